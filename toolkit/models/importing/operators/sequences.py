"""Sequences of tensors inside of a graph, and optional values.

The length of a sequence is static when the graph is compiled.
"""

from __future__ import annotations

import numpy as np

from toolkit import ops
from toolkit.errors import ModelFileError, UnsupportedError
from toolkit.models.importing.call import Call, Operator, axis_of
from toolkit.models.importing.operators.shapes import dropped
from toolkit.models.importing.values import Value, ValueList
from toolkit.reading.onnx.tensors import dtype_of


def _items(x: Value) -> list[Value]:
    if not isinstance(x, ValueList):
        raise ModelFileError(
            f"expected a sequence; received a tensor of shape {x.shape}"
        )
    return list(x.items)


def _tensor(x: Value) -> Value:
    if isinstance(x, ValueList):
        raise UnsupportedError("expected a tensor; received a sequence")
    return x


def _position(call: Call, position: Value | None, count: int, default: int) -> int:
    """Return a position from 0 to count - 1, counted from the end if negative."""
    index = int(call.static_number(position, default, "the position"))
    if not -count <= index < count:
        raise ModelFileError(
            f"expected a position in a sequence of {count} tensors; received {index}"
        )
    return index % count


def _empty(call: Call) -> Value:
    return ValueList([], dtype_of(call.integer("dtype", 1), "SequenceEmpty"))


def _construct(call: Call, x: Value, *operands: Value) -> Value:
    return ValueList([_tensor(value) for value in (x, *operands)], x.dtype)


def _insert(call: Call, x: Value, item: Value, position: Value | None = None) -> Value:
    items = _items(x)
    count = len(items)
    index = int(call.static_number(position, count, "the position"))
    if not -count <= index <= count:
        raise ModelFileError(
            f"expected a position in a sequence of {count} tensors; received {index}"
        )
    items.insert(index, _tensor(item))
    return ValueList(items, x.dtype)


def _erase(call: Call, x: Value, position: Value | None = None) -> Value:
    items = _items(x)
    del items[_position(call, position, len(items), -1)]
    return ValueList(items, x.dtype)


def _at(call: Call, x: Value, position: Value) -> Value:
    items = _items(x)
    return items[_position(call, position, len(items), 0)]


def _length(call: Call, x: Value) -> Value:
    return Value.of(np.array(len(_items(x)), np.int64))


def _split(call: Call, x: Value, sizes: Value | None = None) -> Value:
    axis, keep = axis_of(call.integer("axis", 0), x.ndim), call.integer("keepdims", 1)
    extent = x.shape[axis]
    static_sizes = None if sizes is None else call.static_integers(sizes, "the sizes")
    if sizes is None or static_sizes is None:
        call.step(extent)
        lengths = (1,) * extent
    elif sizes.ndim:
        lengths = static_sizes
    else:
        size = max(static_sizes[0], 1)
        call.step(extent // size)
        lengths = tuple(min(size, extent - i) for i in range(0, extent, size))
    if sum(lengths) != extent or min(lengths, default=0) < 0:
        raise ModelFileError(f"cannot split an axis of extent {extent} into {lengths}")
    order = x.orders[0]
    offsets = np.cumsum(lengths)[:-1].tolist()
    tensors = ops.split(x.ordered(order), offsets, axis=order.index(axis))
    values = [Value(tensor, order) for tensor in tensors] if lengths else []
    if sizes is None and not keep:
        values = [dropped(value, {axis}) for value in values]
    return ValueList(values, x.dtype)


def _concat(call: Call, x: Value) -> Value:
    items, new = _items(x), call.integer("new_axis", 0)
    if not items:
        raise ModelFileError("expected a sequence of tensors; received an empty one")
    axis = axis_of(call.integer("axis"), items[0].ndim + bool(new))
    shape = list(items[0].shape)
    shape.insert(axis, 1) if new else None
    shape[axis] = len(items) if new else sum(v.shape[axis] for v in items)
    call.allow(shape, x.dtype)
    join = ops.stack if new else ops.concatenate
    return Value(join([value.tensor for value in items], axis=axis))


def _map(call: Call, x: Value, *operands: Value) -> tuple[Value, ...]:
    body, count = call.graph("body"), len(_items(x))
    inputs = (x, *operands)
    lengths = {len(_items(v)) for v in inputs if isinstance(v, ValueList)}
    if lengths != {count}:
        raise ModelFileError(
            f"expected sequences of {count} tensors; received lengths {sorted(lengths)}"
        )
    rows = []
    with call.loop(count):
        for i in range(count):
            arguments = [v.items[i] if isinstance(v, ValueList) else v for v in inputs]
            rows.append(call.run(body, arguments))
    columns = zip(*rows, strict=True) if rows else [()] * len(body.outputs)
    dtypes = [value.dtype for value in body.outputs]
    return tuple(
        ValueList(list(column), column[0].dtype if column else dtype)
        for column, dtype in zip(columns, dtypes, strict=True)
    )


# --- optional values ------------------------------------------------------------------


def _optional(call: Call, x: Value) -> Value:
    return x


def _has_element(call: Call, x: Value | None = None) -> Value:
    return Value.of(np.array(x is not None))


OPERATORS = (
    Operator("SequenceEmpty", _empty),
    Operator("SequenceConstruct", _construct),
    Operator("SequenceInsert", _insert, host=(2,)),
    Operator("SequenceErase", _erase, host=(1,)),
    Operator("SequenceAt", _at, host=(1,)),
    Operator("SequenceLength", _length, needs_data=False),
    Operator("SequenceMap", _map, has_graphs=True),
    Operator("SplitToSequence", _split, host=(1,)),
    Operator("ConcatFromSequence", _concat),
    Operator("Optional", _optional),
    Operator("OptionalGetElement", _optional),
    Operator("OptionalHasElement", _has_element, needs_data=False),
)
