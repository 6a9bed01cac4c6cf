"""ONNX rules of views and data movement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from toolkit.export.onnx.sizes import Extent, Length
from toolkit.export.onnx.table import row
from toolkit.export.onnx.writer import INT64, Writer
from toolkit.ir import Node, Value


def moved_axis(axis: int, rank: int) -> int:
    """Return the index of an axis after channels move to axis 1."""
    if axis == 0:
        return 0
    return 1 if axis == rank - 1 else axis + 1


def moved(values: Sequence[Any]) -> list[Any]:
    """Return values per axis, reordered for channels at axis 1."""
    return [values[0], values[-1], *values[1:-1]]


def in_layout(write: Writer, x: Value) -> bool:
    """Return whether to write a node channels first, as its input is."""
    return write.only_first(x)


@row("reshape")
def _reshape(write: Writer, node: Node) -> str:
    (x,) = node.inputs
    attrs = write.family.attrs(node)
    old = write.family.shape(x)
    source = ""
    if write.only_first(x) and all(n == 1 for n in old[1:-1]):
        source = write.first[x]  # the order of its elements is equal
        old = tuple(moved(old))
    source = source or write(x)
    return write.reshaped(source, _copied(attrs["shape"], old))


def _copied(shape: tuple[Length, ...], old: tuple[Length | None, ...]) -> list[Length]:
    """Return the requested extents, with 0 for copied ones if useful."""
    free = [i for i, n in enumerate(shape) if not isinstance(n, int)]
    if len(free) < 2 or 0 in shape:
        return [*shape]
    kept = {i for i in free[:-1] if i < len(old) and old[i] == shape[i]}
    rest = [i for i in free if i not in kept]
    if len(rest) > 1:
        return [*shape]
    wanted: list[Length] = [0 if i in kept else n for i, n in enumerate(shape)]
    for i in rest:
        wanted[i] = -1
    return wanted


@row("transpose")
def _transpose(write: Writer, node: Node) -> Any:
    (x,), (y,) = node.inputs, node.outputs
    axes = node.attrs["axes"]
    rank = len(axes)
    if 3 <= rank <= 5:
        if axes == (0, *range(2, rank), 1) and x in write.last:
            write.first[y] = write.last[x]  # created channels first, read channels last
            return ()
        if axes == (0, rank - 1, *range(1, rank - 1)) and x in write.first:
            return write.first[x]
    return write.node("Transpose", [write(x)], perm=list(axes))


@row("broadcast_to")
def _broadcast_to(write: Writer, node: Node) -> str:
    (x,) = node.inputs
    shape = write.family.attrs(node)["shape"]
    own = write.family.shape(x)
    old = (1,) * (len(shape) - len(own)) + own
    # Expand broadcasts in both directions: 1 keeps the extent.
    wanted = [1 if n == m else n for n, m in zip(shape, old, strict=True)]
    return write.node("Expand", [write(x), write.lengths(wanted)])


@row("slice")
def _slice(write: Writer, node: Node) -> Any:
    (x,), attrs = node.inputs, write.family.attrs(node)
    shape = write.family.shape(x)
    bounds = [*zip(attrs["start"], attrs["stop"], attrs["step"], shape, strict=True)]
    is_first = in_layout(write, x)
    source = write.first[x] if is_first else write(x)
    cuts: list[_Cut] = []
    turns: list[_Cut] = []
    for axis, (start, stop, step, n) in enumerate(bounds):
        if (start, step) == (0, 1) and stop == n:
            continue
        place = moved_axis(axis, len(bounds)) if is_first else axis
        if step > 0:
            cuts.append(_Cut(place, start, stop, step, n))
            continue
        if isinstance(n, int):
            stop = INT64.min if stop == -1 else stop
            turns.append(_Cut(place, start, stop, step, n))
            continue
        if stop != -1 or not _is_last(start, n):
            # ONNX clamps a start below zero to the first element, so cut it separately.
            cuts.append(_Cut(place, stop + 1, start + 1, 1, n))
        turns.append(_Cut(place, -1, INT64.min, step, n))
    if not cuts and not turns:
        return source if not is_first else write(x)
    for some in (cuts, turns):
        source = _sliced(write, source, some) if some else source
    if not is_first:
        return source
    write.first[node.outputs[0]] = source
    return ()


class _Cut(NamedTuple):
    """Slice along an axis of n elements."""

    axis: int
    start: Length
    stop: Length
    step: int
    n: Length | None


def _sliced(write: Writer, name: str, cuts: list[_Cut]) -> str:
    starts = [_bound(write, cut.start, cut.n) for cut in cuts]
    stops = [
        INT64.max if _is(c.stop, c.n) else _bound(write, c.stop, c.n) for c in cuts
    ]
    axes, steps = [cut.axis for cut in cuts], [cut.step for cut in cuts]
    given = [write.lengths(starts), write.lengths(stops), write.ints(axes)]
    return write.node("Slice", [name, *given, write.ints(steps)])


def _bound(write: Writer, bound: Length, n: Length | None) -> Length | str:
    """Clamp a bound for ONNX; bounds below 0 are valid in the graph.

    In ONNX, a negative bound counts from the end.
    """
    if isinstance(bound, int) or min(bound.terms.values()) >= 0:
        return bound
    behind = bound.without(n) if isinstance(n, Extent) else None
    if behind is not None and behind < 0:
        return behind
    return write.node("Max", [write.size(bound), write.ints([0])])


def _is(bound: Length, n: Length | None) -> bool:
    """Return whether a bound is the end for all sizes."""
    return bound == n and not isinstance(n, int)


def _is_last(start: Length, n: Length | None) -> bool:
    return n is not None and start + 1 == n


@row("concatenate")
def _concatenate(write: Writer, node: Node) -> Any:
    axis, (y,) = node.attrs["axis"], node.outputs
    rank = y.spec.ndim
    given = [x for x in node.inputs if x.constant is None]
    if any(map(write.only_first, given)) and all(x in write.first for x in given):
        names = [write.channels_first(x) for x in node.inputs]
        write.first[y] = write.node("Concat", names, axis=moved_axis(axis, rank))
        return ()
    return write.node("Concat", [write(x) for x in node.inputs], axis=axis)


@row("pad")
def _pad(write: Writer, node: Node) -> Any:
    (x,), attrs = node.inputs, write.family.attrs(node)
    widths = attrs["widths"]
    is_first = in_layout(write, x)
    widths = moved(widths) if is_first else widths
    pads = write.lengths([low for low, _ in widths] + [high for _, high in widths])
    number, dtype = attrs["value"], x.spec.dtype
    if number == 0 and node.outputs[0] in write.pooled and dtype == "float32":
        # ONNX Runtime up to 1.24 treats zero padding before MaxPool as its own padding,
        # which never wins. Use a tiny value instead of zero.
        number = np.finfo(np.float32).tiny
    value = write.scalar(number, dtype)
    source = write.first[x] if is_first else write(x)
    name = write.node("Pad", [source, pads, value])
    if not is_first:
        return name
    write.first[node.outputs[0]] = name
    return ()
