"""ONNX rules of gather, scatter, slices and random numbers."""

from __future__ import annotations

from collections.abc import Sequence

from toolkit.export.onnx.sizes import Length
from toolkit.export.onnx.table import rule
from toolkit.export.onnx.writer import Writer
from toolkit.ir import Node

_REDUCTIONS = {"set": None, "add": "add", "mul": "mul", "max": "max", "min": "min"}


def _reduction(writer: Writer, node: Node) -> str | None:
    mode: str = node.attrs["mode"]
    if mode in ("max", "min") and writer.opset < 18:
        raise writer.unsupported_node(node, f"mode {mode!r} needs opset 18 or later")
    return _REDUCTIONS[mode]


@rule("gather")
def _gather(writer: Writer, node: Node) -> str:
    names = [writer(x) for x in node.inputs]
    return writer.node("Gather", names, axis=node.attrs["axis"])


@rule("take_along_axis")
def _take_along_axis(writer: Writer, node: Node) -> str:
    names = [writer(x) for x in node.inputs]
    return writer.node("GatherElements", names, axis=node.attrs["axis"])


@rule("put_along_axis")
def _put_along_axis(writer: Writer, node: Node) -> str:
    names, axis = [writer(x) for x in node.inputs], node.attrs["axis"]
    mode = _reduction(writer, node)
    return writer.node("ScatterElements", names, axis=axis, reduction=mode)


@rule("scatter")
def _scatter(writer: Writer, node: Node) -> str:
    x, indices, updates = node.inputs
    axis, mode = node.attrs["axis"], _reduction(writer, node)
    column = writer.node("Unsqueeze", [writer(indices), writer.ints([-1])])
    column = writer.cast(column, "int64")
    if axis == 0:
        return writer.node(
            "ScatterND", [writer(x), column, writer(updates)], reduction=mode
        )
    rank, count = x.spec.ndim, indices.spec.ndim
    order = [axis, *(i for i in range(rank) if i != axis)]
    trailing_axes = [
        i for i in range(updates.spec.ndim) if not axis <= i < axis + count
    ]
    rows = [*range(axis, axis + count), *trailing_axes]
    names = [
        writer.node("Transpose", [writer(x)], perm=order),
        column,
        writer.node("Transpose", [writer(updates)], perm=rows),
    ]
    scattered = writer.node("ScatterND", names, reduction=mode)
    inverse = [order.index(i) for i in range(rank)]
    return writer.node("Transpose", [scattered], perm=inverse)


# --- boxes ----------------------------------------------------------------------------


def _start(
    writer: Writer, name: str, n: Length | None, size: Length, node: Node
) -> str:
    """Return the start of a box along an axis as int64[1], clamped to fit."""
    if n is None:
        raise writer.family.unsupported_dependence(node, "an extent")
    name = writer.cast(writer.reshaped(name, [1]), "int64")
    room = writer.node("Sub", [writer.size(n), writer.size(size)])
    name = writer.node("Min", [name, room])
    return writer.node("Max", [name, writer.ints([0])])


@rule("dynamic_slice")
def _dynamic_slice(writer: Writer, node: Node) -> str:
    x, *starts = node.inputs
    sizes = writer.family.attrs(node)["sizes"]
    shape = writer.family.shape(x)
    axes = [
        i for i, (n, size) in enumerate(zip(shape, sizes, strict=True)) if n != size
    ]
    if not axes:
        return writer(x)
    first = [_start(writer, writer(starts[i]), shape[i], sizes[i], node) for i in axes]
    begin = writer.node("Concat", first, axis=0)
    end = writer.node("Add", [begin, writer.lengths([sizes[i] for i in axes])])
    return writer.node("Slice", [writer(x), begin, end, writer.ints(axes)])


@rule("dynamic_update_slice")
def _dynamic_update_slice(writer: Writer, node: Node) -> str:
    x, update, *starts = node.inputs
    shape, sizes = writer.family.shape(x), writer.known_shape(update, node)
    boxes = [
        (axis, _start(writer, writer(starts[axis]), n, size, node), size)
        for axis, (n, size) in enumerate(zip(shape, sizes, strict=True))
        if n != size
    ]
    return _replace_box(writer, writer(x), writer(update), boxes)


def _replace_box(
    writer: Writer, x: str, update: str, boxes: Sequence[tuple[int, str, Length]]
) -> str:
    """Replace a box of `x`: concatenate the parts before, inside and after it."""
    if not boxes:
        return update
    (axis, begin, size), *remaining_boxes = boxes
    end = writer.node("Add", [begin, writer.size(size)])
    axes = writer.ints([axis])
    last = writer.ints([2**63 - 1])
    before = writer.node("Slice", [x, writer.ints([0]), begin, axes])
    middle = writer.node("Slice", [x, begin, end, axes])
    after = writer.node("Slice", [x, end, last, axes])
    pieces = [before, _replace_box(writer, middle, update, remaining_boxes), after]
    return writer.node("Concat", pieces, axis=axis)


# --- random numbers -------------------------------------------------------------------


@rule("random_uniform")
def _random_uniform(writer: Writer, node: Node) -> str:
    attrs = writer.family.attrs(node)
    shape = writer.lengths(attrs["shape"])
    blank = writer.node("Expand", [writer.scalar(0, attrs["dtype"]), shape])
    return writer.node("RandomUniformLike", [blank])
