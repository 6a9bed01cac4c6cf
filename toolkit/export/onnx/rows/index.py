"""ONNX rules of gather, scatter, slices and random numbers."""

from __future__ import annotations

from collections.abc import Sequence

from toolkit.export.onnx.sizes import Length
from toolkit.export.onnx.table import row
from toolkit.export.onnx.writer import Writer
from toolkit.ir import Node

_REDUCTIONS = {"set": None, "add": "add", "mul": "mul", "max": "max", "min": "min"}


def _reduction(write: Writer, node: Node) -> str | None:
    mode: str = node.attrs["mode"]
    if mode in ("max", "min") and write.opset < 18:
        raise write.refused(node, f"mode {mode!r} is in opset 18 and later")
    return _REDUCTIONS[mode]


@row("gather")
def _gather(write: Writer, node: Node) -> str:
    names = [write(x) for x in node.inputs]
    return write.node("Gather", names, axis=node.attrs["axis"])


@row("take_along_axis")
def _take_along_axis(write: Writer, node: Node) -> str:
    names = [write(x) for x in node.inputs]
    return write.node("GatherElements", names, axis=node.attrs["axis"])


@row("put_along_axis")
def _put_along_axis(write: Writer, node: Node) -> str:
    names, axis = [write(x) for x in node.inputs], node.attrs["axis"]
    mode = _reduction(write, node)
    return write.node("ScatterElements", names, axis=axis, reduction=mode)


@row("scatter")
def _scatter(write: Writer, node: Node) -> str:
    x, indices, updates = node.inputs
    axis, mode = node.attrs["axis"], _reduction(write, node)
    column = write.node("Unsqueeze", [write(indices), write.ints([-1])])
    column = write.cast(column, "int64")
    if axis == 0:
        return write.node(
            "ScatterND", [write(x), column, write(updates)], reduction=mode
        )
    rank, count = x.spec.ndim, indices.spec.ndim
    order = [axis, *(i for i in range(rank) if i != axis)]
    behind = [i for i in range(updates.spec.ndim) if not axis <= i < axis + count]
    rows = [*range(axis, axis + count), *behind]
    names = [
        write.node("Transpose", [write(x)], perm=order),
        column,
        write.node("Transpose", [write(updates)], perm=rows),
    ]
    found = write.node("ScatterND", names, reduction=mode)
    inverse = [order.index(i) for i in range(rank)]
    return write.node("Transpose", [found], perm=inverse)


# --- boxes ----------------------------------------------------------------------------


def _start(write: Writer, name: str, n: Length | None, size: Length, node: Node) -> str:
    """Return the start of a box along an axis as int64[1], clamped to fit."""
    if n is None:
        raise write.family.not_affine(node, "an extent")
    name = write.cast(write.reshaped(name, [1]), "int64")
    room = write.node("Sub", [write.size(n), write.size(size)])
    name = write.node("Min", [name, room])
    return write.node("Max", [name, write.ints([0])])


@row("dynamic_slice")
def _dynamic_slice(write: Writer, node: Node) -> str:
    x, *starts = node.inputs
    sizes = write.family.attrs(node)["sizes"]
    shape = write.family.shape(x)
    axes = [
        i for i, (n, size) in enumerate(zip(shape, sizes, strict=True)) if n != size
    ]
    if not axes:
        return write(x)
    first = [_start(write, write(starts[i]), shape[i], sizes[i], node) for i in axes]
    begin = write.node("Concat", first, axis=0)
    end = write.node("Add", [begin, write.lengths([sizes[i] for i in axes])])
    return write.node("Slice", [write(x), begin, end, write.ints(axes)])


@row("dynamic_update_slice")
def _dynamic_update_slice(write: Writer, node: Node) -> str:
    x, update, *starts = node.inputs
    shape, sizes = write.family.shape(x), write.known_shape(update, node)
    boxes = [
        (axis, _start(write, write(starts[axis]), n, size, node), size)
        for axis, (n, size) in enumerate(zip(shape, sizes, strict=True))
        if n != size
    ]
    return _put(write, write(x), write(update), boxes)


def _put(
    write: Writer, x: str, update: str, boxes: Sequence[tuple[int, str, Length]]
) -> str:
    """Replace a box of `x`: concatenate the parts before, inside and after it."""
    if not boxes:
        return update
    (axis, begin, size), *rest = boxes
    end = write.node("Add", [begin, write.size(size)])
    axes = write.ints([axis])
    last = write.ints([2**63 - 1])
    before = write.node("Slice", [x, write.ints([0]), begin, axes])
    inside = write.node("Slice", [x, begin, end, axes])
    behind = write.node("Slice", [x, end, last, axes])
    parts = [before, _put(write, inside, update, rest), behind]
    return write.node("Concat", parts, axis=axis)


# --- random numbers -------------------------------------------------------------------


@row("random_uniform")
def _random_uniform(write: Writer, node: Node) -> str:
    attrs = write.family.attrs(node)
    shape = write.lengths(attrs["shape"])
    blank = write.node("Expand", [write.scalar(0, attrs["dtype"]), shape])
    return write.node("RandomUniformLike", [blank])
