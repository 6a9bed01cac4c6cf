"""Operators that gather, scatter and sort elements."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from toolkit import ops
from toolkit.core.tensor import Tensor
from toolkit.errors import ModelFileError, UnsupportedError
from toolkit.models.importing.call import Call, Operator, axis_of
from toolkit.models.importing.values import Value
from toolkit.ops.index import flat_indices


def _indices(indices: Value, extent: int) -> Any:
    """Return indices into an axis; raise if static ones are out of range.

    Operations count negative indices from the end and check the range of all indices.
    """
    array = indices.static_array
    if array is not None and array.size:
        low, high = array.min(), array.max()
        if low < -extent or high >= extent:
            raise ModelFileError(
                f"expected indices of an axis of extent {extent}; received {low} to "
                f"{high}"
            )
    return indices.tensor


def _gather(call: Call, x: Value, indices: Value) -> Value:
    axis = axis_of(call.integer("axis", 0), x.ndim)
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    call.allow(shape, x.dtype)
    positions = _indices(indices, x.shape[axis])
    return Value(ops.take(x.tensor, positions, axis=axis))


def _gather_elements(call: Call, x: Value, indices: Value) -> Value:
    axis = axis_of(call.integer("axis", 0), x.ndim)
    if indices.ndim != x.ndim:
        raise ModelFileError(
            f"indices of shape {indices.shape} do not fit shape {x.shape}"
        )
    call.allow((x.ndim, *indices.shape), "int64")
    cuts = tuple(
        slice(None) if i == axis else slice(0, n) for i, n in enumerate(indices.shape)
    )
    positions = _indices(indices, x.shape[axis])
    return Value(ops.take_along_axis(x.tensor[cuts], positions, axis=axis))


def _gather_nd(call: Call, x: Value, indices: Value) -> Value:
    batch = call.integer("batch_dims", 0)
    if not 0 <= batch < min(x.ndim, indices.ndim):
        raise ModelFileError(f"batch_dims={batch} does not fit shape {x.shape}")
    depth = indices.shape[-1]
    if not 1 <= depth <= x.ndim - batch or x.shape[:batch] != indices.shape[:batch]:
        raise ModelFileError(
            f"indices of shape {indices.shape} do not fit shape {x.shape}"
        )
    call.allow((*indices.shape[:-1], *x.shape[batch + depth :]), x.dtype)
    columns = _columns(indices, x.shape[batch : batch + depth])
    lead = indices.shape[:-1]
    rows = [
        ops.broadcast_to(ops.convert_to_tensor(row), lead)
        for row in np.indices(lead, sparse=True)[:batch]
    ]
    flat = flat_indices([*rows, *columns], x.shape[: batch + depth])
    return Value(ops.take(_flattened(x, batch + depth), flat, axis=0))


def _columns(indices: Value, extents: tuple[int, ...]) -> list[Any]:
    """Return the indices into each axis, which are in the last axis of `indices`."""
    if indices.static_array is not None:
        columns = [Value.of(indices.static_array[..., i]) for i in range(len(extents))]
    else:
        columns = [Value(indices.tensor[..., i]) for i in range(len(extents))]
    return [_indices(column, n) for column, n in zip(columns, extents, strict=True)]


def _flattened(x: Value, count: int) -> Any:
    """Return the tensor with its first axes merged."""
    return ops.reshape(x.tensor, (math.prod(x.shape[:count]), *x.shape[count:]))


_MODES = ("none", "add", "mul", "max", "min")


def _scatter_elements(call: Call, x: Value, indices: Value, updates: Value) -> Value:
    axis = axis_of(call.integer("axis", 0), x.ndim)
    mode = call.text("reduction", "none")
    if indices.shape != updates.shape or indices.ndim != x.ndim:
        raise ModelFileError(
            f"updates of shape {updates.shape} do not fit indices of shape "
            f"{indices.shape}"
        )
    call.allow((x.ndim, *indices.shape), "int64")
    columns = np.indices(indices.shape, sparse=True)
    positions = [
        ops.broadcast_to(ops.convert_to_tensor(c), indices.shape) for c in columns
    ]
    positions[axis] = ops.cast(_indices(indices, x.shape[axis]), "int64")
    return _scatter(x, positions, updates.tensor, mode)


def _scatter_nd(call: Call, x: Value, indices: Value, updates: Value) -> Value:
    mode, depth = call.text("reduction", "none"), indices.shape[-1]
    if not 1 <= depth <= x.ndim:
        raise ModelFileError(
            f"indices of shape {indices.shape} do not fit shape {x.shape}"
        )
    target_shape = (*indices.shape[:-1], *x.shape[depth:])
    if updates.shape != target_shape:
        raise ModelFileError(
            f"expected updates of shape {target_shape}; received {updates.shape}"
        )
    flat = flat_indices(_columns(indices, x.shape[:depth]), x.shape[:depth])
    flat = ops.reshape(flat, (-1,))
    table = Value(_flattened(x, depth))
    rows = ops.reshape(updates.tensor, (flat.shape[0], *x.shape[depth:]))
    y = _scatter(table, [flat], rows, mode)
    return Value(ops.reshape(y.tensor, x.shape))


def _scatter_steps(
    call: Call, x: Value, updates: Value, starts: Value | None = None
) -> Value:
    """Write new steps to a cache, at a different start for each row of the batch."""
    axis, mode = axis_of(call.integer("axis", -2), x.ndim), call.text("mode", "linear")
    n, steps = x.shape[axis], updates.shape[axis] if updates.ndim == x.ndim else 0
    target_shape = tuple(steps if i == axis else k for i, k in enumerate(x.shape))
    if not axis or updates.shape != target_shape or steps > n:
        raise ModelFileError(
            f"updates of shape {updates.shape} do not fit a cache of shape {x.shape}"
        )
    if mode not in ("linear", "circular"):
        raise ModelFileError(f"expected mode 'linear' or 'circular'; received {mode!r}")
    call.allow((x.ndim, *updates.shape), "int64")
    positions = ops.expand_dims(ops.arange(steps, dtype="int64"), 0)
    if starts is not None:
        positions = positions + ops.reshape(ops.cast(starts.tensor, "int64"), (-1, 1))
    positions = ops.mod(positions, n) if mode == "circular" else positions
    shape = [k if i in (0, axis) else 1 for i, k in enumerate(updates.shape)]
    shape[0] = positions.shape[0]
    indices = [
        ops.broadcast_to(ops.convert_to_tensor(c), updates.shape)
        for c in np.indices(updates.shape, sparse=True)
    ]
    indices[axis] = ops.broadcast_to(ops.reshape(positions, shape), updates.shape)
    return _scatter(x, indices, updates.tensor, "none")


def _scatter(x: Value, positions: list[Any], updates: Any, mode: str) -> Value:
    if mode not in _MODES:
        raise ModelFileError(f"unsupported reduction={mode!r}")
    indices = ops.stack([ops.reshape(p, (-1,)) for p in positions], axis=-1)
    tail_shape = x.shape[len(positions) :]
    updates = ops.reshape(updates, (indices.shape[0], *tail_shape))
    reduction = None if mode == "none" else mode
    return Value(ops.scatter_update(x.tensor, indices, updates, reduction))


def _one_hot(call: Call, indices: Value, depth: Value, values: Value) -> Value:
    n = int(call.static_number(depth, None, "the depth"))
    axis = axis_of(call.integer("axis", -1), indices.ndim + 1)
    if values.shape != (2,) or n < 0:
        raise ModelFileError(f"expected two values; received shape {values.shape}")
    shape = (*indices.shape[:axis], n, *indices.shape[axis:])
    call.allow(shape, values.dtype)
    positions = ops.cast(indices.tensor, "int64")
    positions = ops.expand_dims(
        ops.where(positions < 0, positions + n, positions), axis
    )
    extents = [n if i == axis else 1 for i in range(len(shape))]
    classes = ops.reshape(ops.arange(n, dtype="int64"), extents)
    off, on = values.tensor[0], values.tensor[1]
    return Value(ops.where(ops.equal(positions, classes), on, off))


def _top_k(call: Call, x: Value, k: Value | None = None) -> tuple[Value, Value]:
    count = call.integer("k", None)
    count = int(call.static_number(k, count, "k"))
    axis = axis_of(call.integer("axis", -1), x.ndim)
    largest, _ = call.integer("largest", 1), call.integer("sorted", 1)
    if not 0 <= count <= x.shape[axis]:
        raise ModelFileError(
            f"expected k of at most the axis extent {x.shape[axis]}; received k={count}"
        )
    tensor = ops.moveaxis(x.tensor, axis, -1)
    if largest:
        values, positions = ops.top_k(tensor, count, True)
    else:
        positions = ops.argsort(tensor, axis=-1)[..., :count]
        values = ops.take_along_axis(tensor, positions, axis=-1)
    positions = ops.cast(positions, "int64")
    return tuple(Value(ops.moveaxis(t, -1, axis)) for t in (values, positions))  # type: ignore[return-value]


def _cumulative(name: str, function: Callable[..., Any], empty: Any) -> Operator:
    """Return a running total along an axis; `empty` is the first value if exclusive."""

    def run(call: Call, x: Value, axis: Value) -> Value:
        exclusive, reverse = call.integer("exclusive", 0), call.integer("reverse", 0)
        position = axis_of(int(call.static_number(axis, None, "the axis")), x.ndim)
        tensor = ops.flip(x.tensor, axis=position) if reverse else x.tensor
        # not the sum minus x, which is wrong for infinity
        if exclusive and x.shape[position]:
            widths = [(1, 0) if axis == position else (0, 0) for axis in range(x.ndim)]
            cut = [slice(None)] * x.ndim
            cut[position] = slice(0, -1)
            tensor = ops.pad(tensor[tuple(cut)], widths, "constant", empty)
        total = function(tensor, axis=position, dtype=x.dtype)
        return Value(ops.flip(total, axis=position) if reverse else total)

    return Operator(name, run, host=(1,))


def reversed_sequences(x: Any, lengths: Any, time: int, batch: int) -> Tensor:
    """Reverse the first `lengths` steps of each sequence."""
    steps = x.shape[time]
    shape = [1] * x.ndim
    shape[time] = steps
    position = ops.reshape(ops.arange(steps, dtype="int64"), shape)
    shape = [1] * x.ndim
    shape[batch] = -1
    ends = ops.reshape(ops.cast(lengths, "int64"), shape)
    positions = ops.where(position < ends, ends - 1 - position, position)
    return ops.take_along_axis(x, ops.broadcast_to(positions, x.shape), axis=time)


def _reverse_sequence(call: Call, x: Value, lengths: Value) -> Value:
    batch, time = call.integer("batch_axis", 1), call.integer("time_axis", 0)
    if x.ndim < 2 or {batch, time} != {0, 1}:
        raise UnsupportedError(
            f"expected the axes 0 and 1; received batch_axis={batch} and "
            f"time_axis={time}"
        )
    call.allow(x.shape, "int64")
    return Value(reversed_sequences(x.tensor, lengths.tensor, time, batch))


OPERATORS = (
    Operator("Gather", _gather),
    Operator("GatherElements", _gather_elements),
    Operator("GatherND", _gather_nd),
    Operator("ScatterElements", _scatter_elements),
    Operator("ScatterND", _scatter_nd),
    Operator("OneHot", _one_hot, host=(1,)),
    Operator("TopK", _top_k, host=(1,)),
    Operator("Scatter", _scatter_elements),  # its name up to opset 10
    Operator("TensorScatter", _scatter_steps),
    _cumulative("CumSum", ops.cumsum, 0),
    _cumulative("CumProd", ops.cumprod, 1),
    Operator("ReverseSequence", _reverse_sequence),
)
