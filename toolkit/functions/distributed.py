"""Functions whose calls the processes of a job compute together."""

from __future__ import annotations

from zlib import crc32

import numpy as np

from toolkit import tree
from toolkit.compiler import distribution_context
from toolkit.compiler.distribution_context import DistributionContext
from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor
from toolkit.core.trace import state
from toolkit.data.batch_shards import LocalRows
from toolkit.errors import ArgumentError
from toolkit.functions.concrete_function import DATA_TYPES, ConcreteFunction
from toolkit.functions.function import Function
from toolkit.functions.job_checks import compare_variables, warn_without_distribution
from toolkit.functions.local_rows import (
    as_full_batch,
    check_same_batch,
    complete_local_batch,
    cut_rows,
)


class DistributedFunction(Function):
    """A function that the processes of a job compute together: `distribute=True`.

    Each process passes the same global batch, or its rows from `distribute_dataset`.
    Without a distribution it is a function of one process.
    """

    def __call__(self, *args: object, **kwargs: object) -> object:
        job = distribution_context.current()
        if state.trace is not None:  # a part of another function
            return super().__call__(*args, **kwargs)
        if job is None:
            warn_without_distribution(self.name)
        if self.distribution is not job:
            self._forget_traces(job)
        if job is not None:
            args, kwargs = _local_arguments(self.name, job, args, kwargs)
        return super().__call__(*args, **kwargs)

    def _forget_traces(self, job: DistributionContext | None) -> None:
        self._traces.clear()
        self._fast_path.clear()
        self.distribution = job

    def _trace(
        self,
        key: Key,
        args: object,
        kwargs: object,
        leaves: list[object],
        arguments: list[object],
    ) -> tuple[ConcreteFunction, list[Tensor]]:
        concrete, results = super()._trace(key, args, kwargs, leaves, arguments)
        if self.distribution is not None:
            variables = [*concrete.variables, *concrete.written_variables]
            try:
                compare_variables(self.distribution, variables, f"{self.name}: ")
            except ArgumentError:
                self._forget_traces(self.distribution)  # the next call compares again
                raise
        return concrete, results


def _local_arguments(
    name: str,
    job: DistributionContext,
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> tuple[tuple[object, ...], dict[str, object]]:
    """Return the arguments with the rows of this process, and the specs of all rows.

    Raises:
        ArgumentError: on all processes, for batches that differ; on this process, for
            rows of a data set beside other arrays of as many rows.
    """
    leaves = [x for x in tree.flatten((args, kwargs)) if isinstance(x, DATA_TYPES)]
    counts = {
        leaf.global_count
        for leaf in leaves
        if isinstance(leaf, LocalRows) and leaf.global_count is not None
    }
    batch = tree.map_structure(_as_tensor, (args, kwargs))
    label = f"{name}: "
    if not job.auto_shard_dataset:
        check_same_batch(job, batch, label)
        return complete_local_batch(job, batch)
    if not counts:
        _check_equal_values(name, job, batch)
        return cut_rows(batch, job.rows)
    if len(counts) > 1:
        raise ArgumentError(
            f"{label}expected rows of one batch; received rows of batches of "
            f"{sorted(counts)} rows"
        )
    batch = as_full_batch(batch, counts.pop())
    check_same_batch(job, batch, label)
    return batch


def _as_tensor(leaf: object) -> object:
    return convert(leaf) if isinstance(leaf, DATA_TYPES) else leaf


def _check_equal_values(name: str, job: DistributionContext, batch: object) -> None:
    """Raise on all processes if they do not pass the same batch."""
    checksum = 0
    for leaf in tree.flatten(batch):
        if isinstance(leaf, Tensor):
            array = np.ascontiguousarray(leaf.numpy())
            checksum = crc32(array.reshape(-1).view(np.uint8).data, checksum)
    check_same_batch(job, batch, f"{name}: ")
    if len(set(job.agree("batch", checksum))) > 1:
        raise ArgumentError(
            f"{name}: expected the same batch on all processes, or the elements of "
            "`distribution().distribute_dataset(dataset)` without a change; received "
            "arrays with different values"
        )
