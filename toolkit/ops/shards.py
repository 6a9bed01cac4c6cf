"""Lookups and updates of rows in a shard of a table: composites of partitioned steps.

A process of a job stores the rows `start` to `start + n` of a table. The indices refer
to the whole table. An index out of the range of the table is an error, as in `gather`
and `scatter`.
"""

from __future__ import annotations

from toolkit import dtypes
from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor, bind
from toolkit.core.trace import decomposable
from toolkit.ir import Primitive
from toolkit.ops.creation import arange
from toolkit.ops.elementwise import equal, maximum, where
from toolkit.ops.index import gather_p, scatter_p
from toolkit.ops.numeric import logical_and
from toolkit.ops.reduce import max as max_
from toolkit.ops.shape import reshape


def _find_rows(
    shard: Tensor, indices: Tensor, start: int, extent: int
) -> tuple[Tensor, Tensor]:
    """Return which indices are in the shard, and the row of each in the shard.

    The row of an index in another shard is 0. An index out of range is unchanged, so
    that the kernel raises an error.
    """
    count = shard.shape[0]
    wrapped = where(indices < 0, indices + extent, indices)
    rows = wrapped - start
    is_local = logical_and(rows >= 0, rows < count)
    is_valid = logical_and(wrapped >= 0, wrapped < extent)
    return is_local, where(is_local, rows, where(is_valid, 0, indices))


def _mask(is_local: Tensor, rows: Tensor) -> Tensor:
    """Return a mask of indices with the rank of their rows."""
    return reshape(is_local, (*is_local.shape, *(1,) * (rows.ndim - is_local.ndim)))


def _neutral(dtype: str) -> Tensor:
    """Return the number that changes no other number in a sum: not 0.0, but -0.0."""
    return convert(-0.0 if dtypes.is_float(dtype) else 0, dtype)


def _gather(shard: Tensor, indices: Tensor, start: int, extent: int) -> Tensor:
    is_local, local = _find_rows(shard, indices, start, extent)
    rows = bind(gather_p, shard, local, axis=0)
    return where(_mask(is_local, rows), rows, _neutral(rows.dtype))


def _scatter_add(
    shard: Tensor, indices: Tensor, updates: Tensor, start: int, extent: int
) -> Tensor:
    is_local, local = _find_rows(shard, indices, start, extent)
    updates = where(_mask(is_local, updates), updates, _neutral(updates.dtype))
    result: Tensor = bind(scatter_p, shard, local, updates, axis=0, mode="add")
    return result


def _scatter_set(
    shard: Tensor, indices: Tensor, updates: Tensor, start: int, extent: int
) -> Tensor:
    """Repeat the last local update in place of each update of another shard."""
    is_local, local = _find_rows(shard, indices, start, extent)
    size = indices.size
    if not size:
        return shard
    flat, numbers = reshape(is_local, (size,)), arange(size, dtype="int32")
    last = max_(where(flat, numbers, -1))
    has_any, number = last >= 0, maximum(last, 0)
    # Without a local update, the first row is stored again.
    row = where(has_any, bind(gather_p, reshape(local, (size,)), number, axis=0), 0)
    rows = reshape(updates, (size, *shard.shape[1:]))
    value = where(
        has_any,
        bind(gather_p, rows, number, axis=0),
        bind(gather_p, shard, convert(0, "int32"), axis=0),
    )
    target = where(is_local, local, where(equal(local, 0), row, local))
    values = where(_mask(is_local, updates), updates, value)
    result: Tensor = bind(scatter_p, shard, target, values, axis=0, mode="set")
    return result


# Rows of the shard, and -0.0 for all other rows: their sum over the ranks is exact.
gather_in_shard_p: Primitive = decomposable("gather_in_shard", _gather)
add_in_shard_p: Primitive = decomposable("add_in_shard", _scatter_add)
set_in_shard_p: Primitive = decomposable("set_in_shard", _scatter_set)
