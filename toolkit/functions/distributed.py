"""Functions whose calls the processes of a job compute together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from zlib import crc32

import numpy as np

from toolkit import comm, tree
from toolkit.comm.flight_recorder import Step, begin_step
from toolkit.compiler import distribution_context
from toolkit.compiler.distribution_context import DistributionContext
from toolkit.compiler.shared_steps import warn_without_distribution
from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor
from toolkit.core.trace import state
from toolkit.data.batch_shards import LocalRows
from toolkit.errors import ArgumentError, UnsupportedError
from toolkit.functions.concrete_function import DATA_TYPES, ConcreteFunction
from toolkit.functions.function import Function
from toolkit.functions.job_checks import ComparedState
from toolkit.functions.local_rows import (
    check_same_batch,
    complete_local_batch,
    cut_rows,
    with_row_count,
)
from toolkit.functions.retraces import Key


class DistributedFunction(Function):
    """A function that the processes of a job compute together: `distribute=True`.

    Each process passes the same global batch, or its rows from `distribute_dataset`.
    Without a distribution it is a function of one process.
    """

    _state: ComparedState | None = None  # the variables of its programs
    _num_calls = 0

    def __call__(self, *args: object, **kwargs: object) -> object:
        job = distribution_context.current()
        if state.trace is not None:  # a part of another function
            return super().__call__(*args, **kwargs)
        if job is None:
            warn_without_distribution(self.name)
        elif comm.is_elastic():
            raise UnsupportedError(
                f"{self.name}: distribute=True is not supported in an elastic job; use "
                "`fit`, which continues without a lost process"
            )
        if self.distribution is not job:
            self._forget_traces(job)
        if job is None:
            return super().__call__(*args, **kwargs)
        self._num_calls += 1
        with comm.shared_operation(self.name):
            begin_step(Step(self.name, self._num_calls))
            if kwargs:  # the order of arrays is that of the program
                args, kwargs = self._parameters.bind(args, kwargs)
            if self._state is not None:
                self._state.compare(f"{self.name}: ")
            args, kwargs = _local_arguments(self.name, job, args, kwargs)
            return super().__call__(*args, **kwargs)

    def _forget_traces(self, job: DistributionContext | None) -> None:
        self._state = None
        for cache in (self._traces, self._fast_path, self._host_calls):
            cache.clear()
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
        job = self.distribution
        if job is not None:
            variables = [*concrete.variables, *concrete.written_variables]
            scalars = [v for v in variables if v.shape == ()]
            self._state = self._state or ComparedState(job)
            try:
                self._state.add(variables, scalars, f"{self.name}: ")
            except ArgumentError:
                self._forget_traces(job)  # the next call compares again
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
        ArgumentError: on all processes, for batches that differ, and for arrays of one
            process that are computed from the rows of a data set.
    """
    leaves = tree.flatten((args, kwargs))
    shards = [x for x in leaves if isinstance(x, LocalRows) and x.global_count]
    if shards:
        batch, error = None, ""
        try:
            batch = _complete_element(name, shards[0], args, kwargs)
        except ArgumentError as failure:  # its peers wait, and must raise it too
            error = str(failure)
        check_same_batch(job, batch, f"{name}: ", error, shards[0].checksum)
        values = [x for x in leaves if isinstance(x, DATA_TYPES)]
        _check_equal_values(
            name, job, [convert(x) for x in values if not isinstance(x, LocalRows)]
        )
        assert batch is not None
        return batch
    batch = tree.map_structure(_as_tensor, (args, kwargs))
    check_same_batch(job, batch, f"{name}: ")
    if not job.auto_shard_dataset:
        return complete_local_batch(job, batch)
    _check_equal_values(name, job, tree.flatten(batch))
    return cut_rows(batch, job.rows)


def _complete_element(
    name: str, shard: LocalRows, args: tuple[object, ...], kwargs: dict[str, object]
) -> tuple[tuple[object, ...], dict[str, object]]:
    """Return an element of a data set, and other arguments, with the specs of all rows.

    Raises:
        ArgumentError: for arrays that are computed from the rows of a data set, or that
            are before the rows.
    """
    complete = partial(_as_full_tensor, name, shard)
    batch = tree.map_structure(complete, (args, kwargs))
    leaves = tree.flatten((args, kwargs))
    first = next(x for x in leaves if isinstance(x, DATA_TYPES))
    if not isinstance(first, LocalRows):  # programs split arrays as the first
        raise ArgumentError(
            f"{name}: expected the rows of a batch before other arrays; received "
            f"an array of shape {np.shape(first)} as the first"
        )
    result: tuple[tuple[object, ...], dict[str, object]] = batch
    return result


def _as_tensor(leaf: object) -> object:
    return convert(leaf) if isinstance(leaf, DATA_TYPES) else leaf


def _as_full_tensor(name: str, shard: LocalRows, leaf: object) -> object:
    """Return a leaf as a tensor, with the spec of all rows for rows of a data set.

    Args:
        name: the function.
        shard: rows of the batch.
        leaf: an argument of the function.
    """
    if not isinstance(leaf, DATA_TYPES):
        return leaf
    tensor = convert(leaf)
    rows, count = len(shard), shard.global_count or 0
    if isinstance(leaf, LocalRows) and (len(leaf), leaf.global_count) == (rows, count):
        return with_row_count(tensor, count)
    if isinstance(leaf, LocalRows) or tensor.shape[:1] in ((rows,), (count,)):
        raise ArgumentError(
            f"{name}: expected the arrays of one element of `distribute_dataset`, "
            f"without a change; received another array of shape {tensor.shape}; do "
            "computations on a batch in the data set, or in the function"
        )
    return tensor


def _check_equal_values(
    name: str, job: DistributionContext, leaves: Sequence[object]
) -> None:
    """Raise on all processes if they do not pass the same values."""
    checksum = 0
    for leaf in leaves:
        if isinstance(leaf, Tensor):
            array = np.ascontiguousarray(leaf.numpy())
            checksum = crc32(array.reshape(-1).view(np.uint8).data, checksum)
    if len(set(job.agree("values", checksum))) > 1:
        raise ArgumentError(
            f"{name}: expected the same batch on all processes, or the elements of "
            "`distribution().distribute_dataset(dataset)` without a change; received "
            "arrays with different values"
        )
