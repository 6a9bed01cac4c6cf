"""Local rows of batches in distributed training, with the specs of the full batch.

A source has a `BatchSharing`, which returns the rows that this process computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeVar
from zlib import crc32

import numpy as np

from toolkit import tree
from toolkit.backends.memory import memory_of, to_host
from toolkit.compiler.distribution_context import DistributionContext
from toolkit.core.tensor import Tensor
from toolkit.data.batch_shards import RowSelector, checksum_of_arrays
from toolkit.errors import ArgumentError
from toolkit.ir import Spec

Batch = TypeVar("Batch")  # a nest of tensors


def describe_batch(batch: object) -> str:
    """Return the shapes and dtypes of a batch of tensors, or of a list of them.

    Python values are described by their values, and objects by their types.
    """
    leaves = [leaf for leaf in tree.flatten(batch) if leaf is not None]
    return ", ".join(map(_describe_leaf, leaves))


def _describe_leaf(leaf: Any) -> str:
    if isinstance(leaf, (bool, int, float, complex, str, bytes)):
        return repr(leaf)
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        return f"{tuple(leaf.shape)} {leaf.dtype}"
    return type(leaf).__name__


def group_by_rank(texts: Sequence[str]) -> str:
    """Group the texts of ranks: each text with the ranks that sent it."""
    groups: dict[str, list[str]] = {}
    for rank, text in enumerate(texts):
        groups.setdefault(text, []).append(str(rank))
    return "; ".join(f"{text} on rank {', '.join(n)}" for text, n in groups.items())


def data_mismatch_error(texts: Sequence[str], label: str = "") -> ArgumentError:
    """Return the error for ranks with different data, with a label as prefix."""
    return ArgumentError(
        f"{label}expected data of the same length and shapes on all ranks; "
        f"received {group_by_rank(texts)}"
    )


def rows_mismatch_error(texts: Sequence[str], label: str = "") -> ArgumentError:
    """Return the error for ranks with different rows, with a label as prefix."""
    return ArgumentError(
        f"{label}expected the same rows in the same order on all ranks; received "
        f"{group_by_rank(texts)}; for equal random numbers on all ranks, call "
        "`set_distribution` or `set_random_seed` first, and give other generators a "
        "seed; remove `shard`, because each process takes its rows of the same "
        "batches, or use `DataParallel(auto_shard_dataset=False)`, with which each "
        "process provides its rows"
    )


# The number that a process sends instead of a checksum of its batch.
_FAILED = 1 << 40


def checksum_of_batch(batch: object, arrays: object = None) -> int:
    """Return a checksum of some elements of the arrays in a batch.

    Args:
        batch: a nest of tensors.
        arrays: the same batch before its conversion to tensors, to read no memory of a
            device.
    """
    tensors = [leaf._array for leaf in tree.flatten(batch) if isinstance(leaf, Tensor)]
    if arrays is not None and any(memory_of(x) is not None for x in tensors):
        tensors = [x for x in tree.flatten(arrays) if isinstance(x, np.ndarray)]
    return checksum_of_arrays(map(to_host, tensors))


def check_same_batch(
    job: DistributionContext,
    batch: object,
    label: str = "",
    error: str = "",
    checksum: int = 0,
) -> None:
    """Raise for a batch whose shapes or values differ between processes.

    Args:
        job: the job, of which all processes call this.
        batch: a nest of tensors; None: there are no more batches.
        label: the prefix of an error.
        error: the reason why this process has no valid batch.
        checksum: of the values, if all processes must have the same.

    Raises:
        ArgumentError: on all processes, also for the `error` of one process.
    """
    if job.num_processes == 1:
        if error:
            raise ArgumentError(error)
        return
    text = "no more batches" if batch is None else describe_batch(batch)
    number = _FAILED if error else crc32(text.encode(), checksum)
    numbers = job.agree("batches", number)
    if _FAILED in numbers:
        errors = job.exchange(error)
        raise ArgumentError(next(filter(None, errors)))
    if len(set(numbers)) == 1:
        return
    texts = job.exchange(text)
    if len(set(texts)) > 1:
        raise data_mismatch_error(texts, label)
    sums = job.exchange(f"a batch with the checksum {checksum:08x}")
    raise rows_mismatch_error(sums, label)


def count_rows(batch: object) -> int | None:
    """Return the number of rows in a batch of tensors, or None without tensors."""
    first = batch[0] if type(batch) is tuple and batch else batch
    for leaf in (first,) if isinstance(first, Tensor) else tree.flatten(batch):
        if isinstance(leaf, Tensor):
            shape = leaf.shape
            return shape[0] if shape else None
    return None


def with_row_count(tensor: Tensor, rows: int) -> Tensor:
    """Return a tensor of some rows of a batch, with the spec of the full batch."""
    spec = _batch_spec(rows, tensor.shape, tensor.dtype)
    return type(tensor)(tensor._array, spec)


@lru_cache(maxsize=256)  # each step converts tensors of the same few specs
def _batch_spec(rows: int, shape: tuple[int, ...], dtype: str) -> Spec:
    return Spec((rows, *shape[1:]), dtype)


def as_full_batch(batch: Batch, rows: int) -> Batch:
    """Return tensors of some rows of a batch, with the specs of the full batch.

    Args:
        batch: a nest of tensors.
        rows: the number of rows of the full batch.
    """
    num_local_rows = count_rows(batch)
    if num_local_rows == rows:
        return batch

    def convert(leaf: Any) -> Any:
        if isinstance(leaf, Tensor) and leaf.shape[:1] == (num_local_rows,):
            return with_row_count(leaf, rows)
        return leaf

    return tree.map_structure(convert, batch)


def cut_rows(batch: Batch, rows: RowSelector) -> Batch:
    """Return the rows of a full batch that this process computes.

    Args:
        batch: a nest of tensors. A tensor whose first extent differs from the first
            tensor's stays unchanged, as in programs.
        rows: the selected rows.
    """
    num_rows = count_rows(batch)
    if num_rows is None:
        return batch
    local = rows(num_rows)

    def convert(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or leaf.shape[:1] != (num_rows,):
            return leaf
        return type(leaf)(leaf._array[local.start : local.stop], leaf.spec)

    return tree.map_structure(convert, batch)


def take_local_outputs(
    outputs: Batch, num_rows: int | None, rows: RowSelector
) -> Batch:
    """Return the local rows of the outputs of a step for a full batch."""
    if num_rows is None:
        return outputs
    local = rows(num_rows)

    def convert(leaf: Any) -> Any:
        has_batch_axis = getattr(leaf, "shape", ())[:1] == (num_rows,)
        return leaf[local.start : local.stop] if has_batch_axis else leaf

    return tree.map_structure(convert, outputs)


def complete_local_batch(job: DistributionContext, batch: Batch) -> Batch:
    """Return the local batch of a process, with the specs of the full batch."""
    return as_full_batch(batch, (count_rows(batch) or 0) * job.num_model_replicas)


class BatchSharing:
    """Sharing of the batches of a source; this class is for one process."""

    @property
    def rows(self) -> RowSelector | None:
        """Return the rows of a batch that the source must read; None: all rows."""
        return None

    def local_batch(self, batch: Batch, arrays: object) -> Batch:
        """Return the rows of a batch that this process computes.

        Args:
            batch: a nest of tensors, with all rows that the source has.
            arrays: the same batch before its conversion to tensors; it has no effect in
                one process.
        """
        return batch

    def note_ends(self, ends: object) -> None:
        """Record some elements of the whole batch of which a process has its rows.

        Args:
            ends: the elements; None: this process has not computed them.
        """

    def end_pass(self) -> None:
        """Record that a pass has no more batches."""


class JobSharing(BatchSharing):
    """Sharing of the batches of a source by the processes of a job.

    Args:
        job: the job, of which all processes take the batches at the same time.
        compares: whether to compare each batch, and the end of a pass. This is not
            necessary if the processes have compared the number of batches.

    Attributes:
        first_checksum: of the first batch, if it is not compared when it is taken, and
            if this process has computed all rows.
    """

    first_checksum: int | None = None

    def __init__(self, job: DistributionContext, compares: bool) -> None:
        self._job, self._compares = job, compares
        self._num_compared = 0  # batches and ends of all passes

    @property
    def rows(self) -> RowSelector | None:
        job = self._job
        is_full = not job.auto_shard_dataset or job.num_model_replicas == 1
        return None if is_full else job.rows

    def local_batch(self, batch: Batch, arrays: object) -> Batch:
        self._compare(batch, arrays)
        if not self._job.auto_shard_dataset:
            return complete_local_batch(self._job, batch)
        return batch if self.rows is None else cut_rows(batch, self.rows)

    def note_ends(self, ends: object) -> None:
        if self.first_checksum is None and ends is not None:
            self.first_checksum = checksum_of_arrays(tree.flatten(ends))

    def end_pass(self) -> None:
        self._compare(None, None)

    def _compare(self, batch: object, arrays: object) -> None:
        """Raise for a batch, or an end, that only some processes have."""
        is_first, self._num_compared = not self._num_compared, self._num_compared + 1
        if self._job.num_processes == 1 or not (self._compares or is_first):
            return
        has_all_rows = self._job.auto_shard_dataset and batch is not None
        checksum = checksum_of_batch(batch, arrays) if has_all_rows else 0
        if self._compares:
            label = f"after {self._num_compared - 1} batches: "
            check_same_batch(self._job, batch, label, checksum=checksum)
        elif has_all_rows:
            self.first_checksum = checksum
