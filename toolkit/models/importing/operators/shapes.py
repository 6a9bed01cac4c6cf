"""Operators that move elements, create tensors, or return shapes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from toolkit import ops
from toolkit.dtypes import numpy_dtype
from toolkit.errors import ModelFileError, UnsupportedError
from toolkit.models.importing.call import Call, Operator, axes_of, axis_of
from toolkit.models.importing.operators.elementwise import broadcast
from toolkit.models.importing.values import Value, file_order, without_axes
from toolkit.reading.onnx.tensors import dtype_of


def _axes(call: Call, axes: Value | None, ndim: int, default: Any = None) -> Any:
    """Return axes, an attribute in older opsets and an input in newer ones."""
    values = call.integers("axes", None)
    if axes is not None:
        values = call.static_integers(axes, "axes")
    return default if values is None else axes_of(values, ndim)


def _reshape(call: Call, x: Value, shape: Value | None = None) -> Value:
    target_shape = call.integers("shape", None)
    if shape is not None:
        target_shape = call.static_integers(shape, "the shape")
    if target_shape is None:
        raise ModelFileError("expected a shape, but it is missing")
    if not call.integer("allowzero", 0):
        if any(n == 0 for n in target_shape[x.ndim :]):
            raise ModelFileError(
                f"shape {target_shape} copies an axis that shape {x.shape} does not "
                "have"
            )
        target_shape = [n or x.shape[i] for i, n in enumerate(target_shape)]
    return reshaped(x, target_shape)


def reshaped(x: Value, shape: Any) -> Value:
    """Reshape the value; one extent can be -1."""
    known_size = math.prod(n for n in shape if n != -1)
    if list(shape).count(-1) > 1 or min(shape, default=0) < -1:
        raise ModelFileError(f"expected extents and at most one -1; received {shape}")
    if -1 in shape:
        shape = [x.size // max(known_size, 1) if n == -1 else n for n in shape]
    if math.prod(shape) != x.size:
        raise ModelFileError(
            f"cannot reshape {x.shape} to {tuple(shape)}: the numbers of elements "
            "differ"
        )
    return Value(ops.reshape(x.tensor, tuple(shape)))


def _flatten(call: Call, x: Value) -> Value:
    axis = call.integer("axis", 1)
    axis = x.ndim if axis == x.ndim else axis_of(axis, x.ndim)
    return reshaped(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


def _transpose(call: Call, x: Value) -> Value:
    axes = call.integers("perm", file_order(x.ndim)[::-1])
    if len(axes) != x.ndim:
        raise ModelFileError(f"perm={axes} does not fit {x.ndim} axes")
    return x.permuted(axes_of(axes, x.ndim))


def _squeeze(call: Call, x: Value, axes: Value | None = None) -> Value:
    single = tuple(i for i, n in enumerate(x.shape) if n == 1)
    removed = _axes(call, axes, x.ndim, single)
    if any(x.shape[i] != 1 for i in removed):
        raise ModelFileError(
            f"cannot remove axes {removed} of shape {x.shape}: not all extents are 1"
        )
    return dropped(x, set(removed))


def dropped(x: Value, axes: set[int]) -> Value:
    """Return the value without some axes of extent 1."""
    order = x.orders[0]
    shape = tuple(x.shape[i] for i in order if i not in axes)
    return Value(ops.reshape(x.ordered(order), shape), without_axes(order, axes))


def _unsqueeze(call: Call, x: Value, axes: Value | None = None) -> Value:
    values = call.integers("axes", None)
    if axes is not None:
        values = call.static_integers(axes, "axes")
    if values is None:
        raise ModelFileError("expected axes, but they are missing")
    added = set(axes_of(values, x.ndim + len(values)))
    ndim = x.ndim + len(added)
    old = [i for i in range(ndim) if i not in added]
    order = [old[i] for i in x.orders[0]]
    for axis in sorted(added):
        order.insert(axis, axis)
    extents = dict(zip(old, x.shape, strict=True))
    shape = tuple(extents.get(i, 1) for i in order)
    return Value(ops.reshape(x.ordered(x.orders[0]), shape), tuple(order))


def _concat(call: Call, x: Value, *operands: Value) -> Value:
    axis = axis_of(call.integer("axis"), x.ndim)
    values = (x, *operands)
    if any(v.ndim != x.ndim for v in values):
        raise ModelFileError(f"cannot concatenate shapes {[v.shape for v in values]}")
    total = sum(v.shape[axis] for v in values)
    call.allow((*x.shape[:axis], total, *x.shape[axis + 1 :]), x.dtype)
    # In most cases, most operands have the layout of convolutions, or all have the
    # file's.
    order = max(values, key=lambda v: v.size).orders[0]
    tensors = [v.ordered(order) for v in values]
    return Value(ops.concatenate(tensors, axis=order.index(axis)), order)


def _split(call: Call, x: Value, sizes: Value | None = None) -> tuple[Value, ...]:
    axis = axis_of(call.integer("axis", 0), x.ndim)
    extent = x.shape[axis]
    values = call.integers("split", None)
    if sizes is not None:
        values = call.static_integers(sizes, "the sizes")
    if values is None:
        count = call.integer("num_outputs", call.outputs)
        size = -(-extent // max(count, 1))
        values = [max(0, min(size, extent - i * size)) for i in range(count)]
    if sum(values) != extent or min(values) < 0 or len(values) < call.outputs:
        raise ModelFileError(
            f"cannot split an axis of extent {extent} into {tuple(values)}"
        )
    order = x.orders[0]
    indices = np.cumsum(values)[:-1].tolist()
    tensors = ops.split(x.ordered(order), indices, axis=order.index(axis))
    return tuple(Value(tensor, order) for tensor in tensors)


def _slice(
    call: Call,
    x: Value,
    starts: Value | None = None,
    ends: Value | None = None,
    axes: Value | None = None,
    steps: Value | None = None,
) -> Value:
    inputs = {"starts": starts, "ends": ends, "axes": axes, "steps": steps}
    attributes = {k: call.integers(k, None) for k in ("starts", "ends", "axes")}
    for name, value in inputs.items():
        if value is not None:
            attributes[name] = call.static_integers(value, name)
    low, high = attributes["starts"], attributes["ends"]
    if low is None or high is None:
        raise ModelFileError("starts and ends are required")
    which = axes_of(attributes["axes"] or range(len(low)), x.ndim)
    step = attributes.get("steps") or (1,) * len(low)
    if not len(low) == len(high) == len(which) == len(step):
        raise ModelFileError(
            f"expected a start for each of {len(which)} axes; received {len(low)}"
        )
    order = x.orders[0]
    indices = [slice(None)] * x.ndim
    for a, b, axis, s in zip(low, high, which, step, strict=True):
        if s == 0:
            raise ModelFileError("expected a nonzero step")
        if s < 0 and b < -x.shape[axis]:
            b = None  # past the front
        indices[order.index(axis)] = slice(a, b, s)
    return Value(x.ordered(order)[tuple(indices)], order)


def _expand(call: Call, x: Value, shape: Value) -> Value:
    target_shape = broadcast(x.shape, call.static_integers(shape, "the shape"))
    call.allow(target_shape, x.dtype)
    if target_shape == x.shape:
        return x
    if len(target_shape) == x.ndim:
        order = x.orders[0]
        extents = tuple(target_shape[i] for i in order)
        return Value(ops.broadcast_to(x.ordered(order), extents), order)
    return Value(ops.broadcast_to(x.tensor, target_shape))


def _tile(call: Call, x: Value, repeats: Value) -> Value:
    counts = call.static_integers(repeats, "the repeats")
    if len(counts) != x.ndim or min(counts, default=0) < 0:
        raise ModelFileError(f"repeats {counts} do not fit shape {x.shape}")
    call.allow([n * k for n, k in zip(x.shape, counts, strict=True)], x.dtype)
    return Value(ops.tile(x.tensor, counts))


def _shape(call: Call, x: Value) -> Value:
    start, end = call.integer("start", 0), call.integer("end", None)
    return Value.of(np.array(x.shape[start:end], np.int64))


def _size(call: Call, x: Value) -> Value:
    return Value.of(np.array(x.size, np.int64))


def _pad(
    call: Call,
    x: Value,
    pads: Value | None = None,
    fill: Value | None = None,
    axes: Value | None = None,
) -> Value:
    mode = call.text("mode", "constant")
    amounts = call.integers("pads", None)
    if pads is not None:
        amounts = call.static_integers(pads, "the pads")
    number = call.static_number(fill, call.number("value", 0.0), "the value")
    which = file_order(x.ndim)
    if axes is not None:
        which = axes_of(call.static_integers(axes, "axes"), x.ndim)
    if amounts is None or len(amounts) != 2 * len(which):
        raise ModelFileError(f"pads {amounts} do not fit {len(which)} axes")
    widths = dict.fromkeys(range(x.ndim), (0, 0))
    for i, axis in enumerate(which):
        widths[axis] = (amounts[i], amounts[i + len(which)])
    return padded(call, x, [widths[i] for i in range(x.ndim)], mode, number)


_MODES = {"constant": "constant", "reflect": "reflect", "edge": "edge", "wrap": "wrap"}


def padded(
    call: Call, x: Value, widths: list[tuple[int, int]], mode: str, number: Any
) -> Value:
    """Pad the value, or crop it where a width is negative."""
    if mode not in _MODES:
        raise UnsupportedError(
            f"expected mode to be one of {sorted(_MODES)}; received {mode!r}"
        )
    extents = [n + a + b for n, (a, b) in zip(x.shape, widths, strict=True)]
    call.allow(extents, x.dtype)
    order = x.orders[0]
    tensor = x.ordered(order)
    if any(width < 0 for pair in widths for width in pair):
        cuts = tuple(
            slice(max(-a, 0), n - max(-b, 0))
            for n, (a, b) in ((x.shape[i], widths[i]) for i in order)
        )
        tensor = tensor[cuts]
    added = [(max(a, 0), max(b, 0)) for a, b in (widths[i] for i in order)]
    if any(width > 0 for pair in added for width in pair):
        if mode == "wrap":
            tensor = _wrapped(tensor, added)
        elif mode == "constant":
            number = numpy_dtype(x.dtype).type(number).item()
            tensor = ops.pad(tensor, added, "constant", number)
        else:
            tensor = ops.pad(tensor, added, {"edge": "edge"}.get(mode, mode))
    return Value(tensor, order)


def _wrapped(tensor: Any, widths: list[tuple[int, int]]) -> Any:
    for axis, (low, high) in enumerate(widths):
        if low or high:
            indices = np.arange(-low, tensor.shape[axis] + high) % tensor.shape[axis]
            tensor = ops.take(tensor, indices, axis=axis)
    return tensor


def _constant_of_shape(call: Call, shape: Value) -> Value:
    extents = call.static_integers(shape, "the shape")
    fill = call.array("value", np.zeros(1, np.float32))
    if fill.size != 1:
        raise ModelFileError(f"expected one value; received shape {fill.shape}")
    call.allow(extents, Value.of(fill).dtype)
    number = fill.reshape(())[()]
    return Value(ops.broadcast_to(ops.convert_to_tensor(number), extents))


def _range(call: Call, start: Value, limit: Value, delta: Value) -> Value:
    low, high, step = (
        call.static_number(value, None, label)
        for value, label in ((start, "start"), (limit, "limit"), (delta, "delta"))
    )
    if not step or not all(map(math.isfinite, (low, high, step))):
        raise ModelFileError(f"expected finite numbers; received {low, high, step}")
    count = max(math.ceil((high - low) / step), 0)
    call.allow((count,), start.dtype)
    kind = numpy_dtype(start.dtype)
    return Value.of((low + np.arange(count) * step).astype(kind))


def _eye_like(call: Call, x: Value) -> Value:
    number = call.integer("dtype", None)
    dtype = x.dtype if number is None else dtype_of(number, "EyeLike")
    if x.ndim != 2:
        raise ModelFileError(f"expected two axes; received shape {x.shape}")
    call.allow(x.shape, dtype)
    rows, columns = (ops.arange(n, dtype="int32") for n in x.shape)
    rows = ops.expand_dims(rows, 1) + max(min(call.integer("k", 0), 1 << 30), -1 << 30)
    return Value(ops.cast(ops.equal(rows, columns), dtype))


def _triangle(call: Call, x: Value, k: Value | None = None) -> Value:
    shift = call.static_number(k, 0, "k")
    shift = max(min(shift, 1 << 30), -1 << 30)
    if x.ndim < 2:
        raise ModelFileError(f"expected a matrix; received shape {x.shape}")
    call.allow(x.shape, "int64")
    tensor = x.tensor
    rows = ops.expand_dims(ops.arange(x.shape[-2], dtype="int32"), 1) + shift
    columns = ops.arange(x.shape[-1], dtype="int32")
    is_inside = columns >= rows if call.integer("upper", 1) else columns <= rows
    return Value(ops.where(is_inside, tensor, ops.zeros_like(tensor)))


def _constant(call: Call) -> Value:
    readers = {
        "value": call.array,
        "value_float": call.number,
        "value_int": call.integer,
        "value_floats": call.numbers,
        "value_ints": call.integers,
    }
    values = {key: read(key, None) for key, read in readers.items()}
    present = {key: value for key, value in values.items() if value is not None}
    if len(present) != 1:
        raise ModelFileError(f"expected one value; received {sorted(present)}")
    key, value = present.popitem()
    if key == "value":
        return Value.of(value)
    return Value.of(np.array(value, np.float32 if "float" in key else np.int64))


OPERATORS = (
    Operator("Reshape", _reshape, host=(1,)),
    Operator("Flatten", _flatten),
    Operator("Transpose", _transpose),
    Operator("Squeeze", _squeeze, host=(1,)),
    Operator("Unsqueeze", _unsqueeze, host=(1,)),
    Operator("Concat", _concat),
    Operator("Split", _split, host=(1,)),
    Operator("Slice", _slice, host=(1, 2, 3, 4)),
    Operator("Expand", _expand, host=(1,)),
    Operator("Tile", _tile, host=(1,)),
    Operator("Shape", _shape, needs_data=False),
    Operator("Size", _size, needs_data=False),
    Operator("Pad", _pad, host=(1, 2, 3)),
    Operator("ConstantOfShape", _constant_of_shape, host=(0,)),
    Operator("Range", _range, host=(0, 1, 2)),
    Operator("EyeLike", _eye_like, needs_data=False),
    Operator("Trilu", _triangle, host=(1,)),
    Operator("Constant", _constant),
)
