"""ONNX rules of views and data movement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from toolkit.export.onnx.sizes import Extent, Length
from toolkit.export.onnx.table import rule
from toolkit.export.onnx.writer import INT64, Writer
from toolkit.ir import Node, Value


def nchw_axis(axis: int, rank: int) -> int:
    """Return the index of an axis after channels move to axis 1."""
    if axis == 0:
        return 0
    return 1 if axis == rank - 1 else axis + 1


def to_nchw_order(values: Sequence[Any]) -> list[Any]:
    """Return values per axis, reordered for channels at axis 1."""
    return [values[0], values[-1], *values[1:-1]]


def writes_nchw(writer: Writer, x: Value) -> bool:
    """Return whether to write a node channels first, as its input is."""
    return writer.is_only_nchw(x)


@rule("reshape")
def _reshape(writer: Writer, node: Node) -> str:
    (x,) = node.inputs
    attrs = writer.family.attrs(node)
    old = writer.family.shape(x)
    source = ""
    if writer.is_only_nchw(x) and all(n == 1 for n in old[1:-1]):
        source = writer.nchw_names[x]  # the order of its elements is equal
        old = tuple(to_nchw_order(old))
    source = source or writer(x)
    return writer.reshaped(source, _with_copied_extents(attrs["shape"], old))


def _with_copied_extents(
    shape: tuple[Length, ...], old: tuple[Length | None, ...]
) -> list[Length]:
    """Return the requested extents, with 0 for copied ones if useful."""
    free = [i for i, n in enumerate(shape) if not isinstance(n, int)]
    if len(free) < 2 or 0 in shape:
        return [*shape]
    copied_axes = {i for i in free[:-1] if i < len(old) and old[i] == shape[i]}
    inferred_axes = [i for i in free if i not in copied_axes]
    if len(inferred_axes) > 1:
        return [*shape]
    extents: list[Length] = [0 if i in copied_axes else n for i, n in enumerate(shape)]
    for i in inferred_axes:
        extents[i] = -1
    return extents


@rule("transpose")
def _transpose(writer: Writer, node: Node) -> Any:
    (x,), (y,) = node.inputs, node.outputs
    axes = node.attrs["axes"]
    rank = len(axes)
    if 3 <= rank <= 5:
        if axes == (0, *range(2, rank), 1) and x in writer.tensor_names:
            writer.nchw_names[y] = writer.tensor_names[
                x
            ]  # created channels first, read channels last
            return ()
        if axes == (0, rank - 1, *range(1, rank - 1)) and x in writer.nchw_names:
            return writer.nchw_names[x]
    return writer.node("Transpose", [writer(x)], perm=list(axes))


@rule("broadcast_to")
def _broadcast_to(writer: Writer, node: Node) -> str:
    (x,) = node.inputs
    shape = writer.family.attrs(node)["shape"]
    source_shape = writer.family.shape(x)
    old = (1,) * (len(shape) - len(source_shape)) + source_shape
    # Expand broadcasts in both directions: 1 keeps the extent.
    extents = [1 if n == m else n for n, m in zip(shape, old, strict=True)]
    return writer.node("Expand", [writer(x), writer.lengths(extents)])


@rule("slice")
def _slice(writer: Writer, node: Node) -> Any:
    (x,), attrs = node.inputs, writer.family.attrs(node)
    shape = writer.family.shape(x)
    bounds = [*zip(attrs["start"], attrs["stop"], attrs["step"], shape, strict=True)]
    is_first = writes_nchw(writer, x)
    source = writer.nchw_names[x] if is_first else writer(x)
    cuts: list[_Cut] = []
    reversals: list[_Cut] = []
    for axis, (start, stop, step, n) in enumerate(bounds):
        if (start, step) == (0, 1) and stop == n:
            continue
        target_axis = nchw_axis(axis, len(bounds)) if is_first else axis
        if step > 0:
            cuts.append(_Cut(target_axis, start, stop, step, n))
            continue
        if isinstance(n, int):
            stop = INT64.min if stop == -1 else stop
            reversals.append(_Cut(target_axis, start, stop, step, n))
            continue
        if stop != -1 or not _is_last(start, n):
            # ONNX clamps a start below zero to the first element, so cut it separately.
            cuts.append(_Cut(target_axis, stop + 1, start + 1, 1, n))
        reversals.append(_Cut(target_axis, -1, INT64.min, step, n))
    if not cuts and not reversals:
        return source if not is_first else writer(x)
    for slices in (cuts, reversals):
        source = _write_slices(writer, source, slices) if slices else source
    if not is_first:
        return source
    writer.nchw_names[node.outputs[0]] = source
    return ()


class _Cut(NamedTuple):
    """Slice along an axis of n elements."""

    axis: int
    start: Length
    stop: Length
    step: int
    n: Length | None


def _write_slices(writer: Writer, name: str, cuts: list[_Cut]) -> str:
    starts = [_bound(writer, cut.start, cut.n) for cut in cuts]
    stops = [
        INT64.max if _is_end(c.stop, c.n) else _bound(writer, c.stop, c.n) for c in cuts
    ]
    axes, steps = [cut.axis for cut in cuts], [cut.step for cut in cuts]
    bounds = [writer.lengths(starts), writer.lengths(stops), writer.ints(axes)]
    return writer.node("Slice", [name, *bounds, writer.ints(steps)])


def _bound(writer: Writer, bound: Length, n: Length | None) -> Length | str:
    """Clamp a bound for ONNX; bounds below 0 are valid in the graph.

    In ONNX, a negative bound counts from the end.
    """
    if isinstance(bound, int) or min(bound.terms.values()) >= 0:
        return bound
    distance = bound.constant_difference(n) if isinstance(n, Extent) else None
    if distance is not None and distance < 0:
        return distance
    return writer.node("Max", [writer.size(bound), writer.ints([0])])


def _is_end(bound: Length, n: Length | None) -> bool:
    """Return whether a bound is the end for all sizes."""
    return bound == n and not isinstance(n, int)


def _is_last(start: Length, n: Length | None) -> bool:
    return n is not None and start + 1 == n


@rule("concatenate")
def _concatenate(writer: Writer, node: Node) -> Any:
    axis, (y,) = node.attrs["axis"], node.outputs
    rank = y.spec.ndim
    variables = [x for x in node.inputs if x.constant is None]
    if any(map(writer.is_only_nchw, variables)) and all(
        x in writer.nchw_names for x in variables
    ):
        names = [writer.channels_first(x) for x in node.inputs]
        writer.nchw_names[y] = writer.node("Concat", names, axis=nchw_axis(axis, rank))
        return ()
    return writer.node("Concat", [writer(x) for x in node.inputs], axis=axis)


@rule("pad")
def _pad(writer: Writer, node: Node) -> Any:
    (x,), attrs = node.inputs, writer.family.attrs(node)
    widths = attrs["widths"]
    is_first = writes_nchw(writer, x)
    widths = to_nchw_order(widths) if is_first else widths
    pads = writer.lengths([low for low, _ in widths] + [high for _, high in widths])
    number, dtype = attrs["value"], x.spec.dtype
    if number == 0 and node.outputs[0] in writer.max_pool_inputs and dtype == "float32":
        # ONNX Runtime up to 1.24 treats zero padding before MaxPool as its own padding,
        # which never wins. Use a tiny value instead of zero.
        number = np.finfo(np.float32).tiny
    value = writer.scalar(number, dtype)
    source = writer.nchw_names[x] if is_first else writer(x)
    name = writer.node("Pad", [source, pads, value])
    if not is_first:
        return name
    writer.nchw_names[node.outputs[0]] = name
    return ()
