"""Batches of which this process of a job has its rows, with the specs of the whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

from toolkit import tree
from toolkit.compiler.distribution_context import DistributionContext
from toolkit.core.tensor import Tensor
from toolkit.data.batch_shards import RowSelector
from toolkit.errors import ArgumentError
from toolkit.ir import Spec


def described(batch: Any) -> str:
    """The shapes and dtypes of a batch of tensors, or of a list of them."""
    leaves = [leaf for leaf in tree.flatten(batch) if leaf is not None]
    return ", ".join(f"{tuple(leaf.shape)} {leaf.dtype}" for leaf in leaves)


def by_rank(texts: Sequence[str]) -> str:
    """What ranks have said: each text with the ranks that said it."""
    groups: dict[str, list[str]] = {}
    for rank, text in enumerate(texts):
        groups.setdefault(text, []).append(str(rank))
    return "; ".join(f"{text} on rank {', '.join(n)}" for text, n in groups.items())


def differing(texts: Sequence[str], label: str = "") -> ArgumentError:
    """The error of ranks that were given other data; a label goes before it."""
    return ArgumentError(
        f"{label}expected data of the same length and shapes on all ranks; "
        f"received {by_rank(texts)}"
    )


def check_same_batch(job: DistributionContext, batch: Any, label: str = "") -> None:
    """Refuse a batch of other shapes than that of other processes.

    Args:
        job: of the processes, all of which call this.
        batch: a nest of tensors; None: there are no more batches.
        label: what goes before an error.

    Raises:
        ArgumentError: on all processes alike.
    """
    if job.num_processes == 1:
        return
    text = "no more batches" if batch is None else described(batch)
    if len(set(job.agree("batches", crc32(text.encode())))) > 1:
        raise differing(job.exchange(text), label)


def rows_of(batch: Any) -> int | None:
    """How many rows a batch of tensors has; None without any tensor."""
    tensors = (leaf for leaf in tree.flatten(batch) if isinstance(leaf, Tensor))
    first = next(tensors, None)
    return first.shape[0] if first is not None and first.shape else None


def as_whole(batch: Any, rows: int) -> Any:
    """Tensors of some rows of a batch, with the specs of the whole batch.

    Args:
        batch: a nest of tensors.
        rows: how many the whole batch has.
    """
    present = rows_of(batch)
    if present == rows:
        return batch

    def convert(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or leaf.shape[:1] != (present,):
            return leaf
        return type(leaf)(leaf._array, Spec((rows, *leaf.shape[1:]), leaf.dtype))

    return tree.map_structure(convert, batch)


def cut(batch: Any, rows: RowSelector) -> Any:
    """The rows of a whole batch that this process computes.

    Args:
        batch: a nest of tensors; what has another first extent than the first of them
            stays as it is, as in programs.
        rows: which rows, of so many.
    """
    whole = rows_of(batch)
    if whole is None:
        return batch
    mine = rows(whole)

    def convert(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or leaf.shape[:1] != (whole,):
            return leaf
        return type(leaf)(leaf._array[mine.start : mine.stop], leaf.spec)

    return tree.map_structure(convert, batch)


def own_rows(outputs: Any, whole: int | None, rows: RowSelector) -> Any:
    """The rows of this process of what a step has returned for a whole batch."""
    if whole is None:
        return outputs
    mine = rows(whole)

    def convert(leaf: Any) -> Any:
        is_of_rows = getattr(leaf, "shape", ())[:1] == (whole,)
        return leaf[mine.start : mine.stop] if is_of_rows else leaf

    return tree.map_structure(convert, outputs)
