"""Pooling, channels last: one image after the other, vectors along the channels.

Windows are clamped to the image, so nothing is padded. What runs backward visits each
pixel of the image once and collects from the windows that see it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import Builder, Value
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.engine import host
from toolkit.backends.numpy.jit.lowering import (
    Call,
    Lowered,
    Operand,
    Reference,
    partition,
)
from toolkit.backends.numpy.jit.memory import Memory

DTYPES = ("float32", "float64", "int32", "int64")
# Vectors of channels that one pixel's turn carries, and taps written out one by one.
_VECTORS, _TAPS = 4, 9

Shape = tuple[int, ...]
# The range of a loop: numbers where they are known, else names.
Range = tuple[str | int, str | int]


class Geometry:
    """Which pixels each window of a pooling sees.

    Args:
        image: the extents of an image, without its channels.
        pooled: those of the result.
    """

    def __init__(
        self, image: Shape, pooled: Shape, window: Shape, strides: Shape, low: Shape
    ) -> None:
        self.image, self.pooled = image, pooled
        self.window, self.strides, self.low = window, strides, low

    def __repr__(self) -> str:
        facts = (self.image, self.pooled, self.window, self.strides, self.low)
        return f"Geometry{facts}"

    def seen(self, b: Builder, axis: int, o: str) -> tuple[str, Range]:
        """The first pixel of window `o` along an axis, and the offsets inside."""
        n, k = self.image[axis], self.window[axis]
        stride, low = self.strides[axis], self.low[axis]
        start = b.integer("sub", b.integer("mul", o, stride), low)
        first: str | int = 0 if low == 0 else b.most(0, b.integer("sub", 0, start))
        inside = (self.pooled[axis] - 1) * stride - low + k <= n
        last: str | int = k if inside else b.least(k, b.integer("sub", n, start))
        return start, (first, last)

    def seeing(self, b: Builder, axis: int, pixel: str) -> tuple[str, Range]:
        """The padded position of a pixel along an axis, and the windows that see it."""
        k, stride = self.window[axis], self.strides[axis]
        at = b.integer("add", pixel, self.low[axis])
        beyond = b.integer("sdiv", at, stride)
        last = b.least(b.integer("add", beyond, 1), self.pooled[axis])
        before = b.integer("sub", at, k - stride)
        first = b.most(0, b.integer("sdiv", b.most(before, 0), stride))
        if k < stride:  # pixels between windows belong to none
            first = b.integer("sdiv", b.integer("add", at, stride - k), stride)
        return at, (first, last)


class _Writer:
    """Writes one pooling function."""

    def __init__(self, geometry: Geometry, channels: int, dtype: str) -> None:
        self.b = Builder(host().lanes)
        self.memory = Memory(self.b)
        self.geometry = geometry
        self.channels = channels
        self.dtype = dtype

    def pointer(self, entry: int) -> str:
        place = self.memory.offset("%table", str(entry), "i64")
        return self.b.let(f"load ptr, ptr {place}", "int64").text

    def constant(self, number: Any, dtype: str) -> Value:
        return self.b.constant(number, Value("", dtype, self.b.lanes))

    def each(self, extents: Shape) -> Iterator[tuple[list[str], str]]:
        """Loops over the images and their pixels: indices, and the pixel's number."""
        b = self.b
        loops = [b.loop("%lo", "%hi"), *(b.loop("0", str(n)) for n in extents)]
        indices = [loop.__enter__() for loop in loops]
        number = indices[0]
        for index, n in zip(indices[1:], extents, strict=True):
            number = b.integer("add", b.integer("mul", number, n), index)
        yield indices[1:], number
        for loop in reversed(loops):
            loop.__exit__(None, None, None)

    def blocks(self) -> Iterator[list[tuple[str, str | None]]]:
        """The channels as vectors, a few at a time: first channel and mask of each."""
        b, lanes = self.b, self.b.lanes
        whole, rest = divmod(self.channels, lanes)
        turns, last = divmod(whole, _VECTORS)
        if turns:
            with b.loop("0", str(turns * _VECTORS * lanes), _VECTORS * lanes) as c:
                yield [(b.integer("add", c, k * lanes), None) for k in range(_VECTORS)]
        start = turns * _VECTORS * lanes
        tail: list[tuple[str, str | None]] = [
            (str(start + k * lanes), None) for k in range(last)
        ]
        if rest:
            bits = ", ".join(f"i1 {str(k < rest).lower()}" for k in range(lanes))
            tail.append((str(start + last * lanes), f"<{bits}>"))
        if tail:
            yield tail

    def at(self, pixel: str, channel: str) -> str:
        """The number of an element."""
        return self.b.integer(
            "add", self.b.integer("mul", pixel, self.channels), channel
        )

    def fold(
        self,
        ranges: Sequence[Range],
        values: list[Value],
        step: Callable[[list[str], list[Value]], list[Value]],
    ) -> list[Value]:
        """Carry values through nested loops, in the order of the indices."""
        known = [r for r in ranges if all(isinstance(n, int) for n in r)]
        if len(known) == len(ranges) and prod(int(r[1]) for r in known) <= _TAPS:
            for taps in product(*(range(int(a), int(z)) for a, z in known)):
                values = step([str(tap) for tap in taps], values)
            return values

        def nest(left: Sequence[Range], indices: list[str], v: list[Value]) -> Any:
            if not left:
                return step(indices, v)
            low, high = map(str, left[0])
            with self.b.accumulate(low, high, 1, v) as turn:
                turn.next(nest(left[1:], [*indices, turn.index], turn.values))
            return turn.values

        return nest(ranges, [], values)  # type: ignore[no-any-return]

    def number(self, image: str, indices: Sequence[str], extents: Shape) -> str:
        """The number of a pixel in a batch of images of some extents."""
        result = image
        for index, n in zip(indices, extents, strict=True):
            result = self.b.integer("add", self.b.integer("mul", result, n), index)
        return result

    def image(self, pixel: str, extents: Shape) -> str:
        """The number of the image of a pixel."""
        return self.b.integer("sdiv", pixel, prod(extents))

    def tap(self, offsets: Sequence[str]) -> str:
        """The number of a position in the window."""
        result = "0"
        for offset, k in zip(offsets, self.geometry.window, strict=True):
            scaled = self.b.integer("mul", _int(result), k)
            result = self.b.integer("add", _int(scaled), _int(offset))
        return result

    def splat(self, number: str) -> Value:
        """A 32-bit integer in every lane."""
        if number.isdecimal():
            return self.constant(int(number), "int32")
        return self.b.splat(self.b.convert("trunc", Value(number, "int64"), "int32"))


def _int(text: str) -> str | int:
    return int(text) if text.isdecimal() else text


def _windows(w: _Writer, indices: Sequence[str]) -> tuple[list[str], list[Range]]:
    found = [w.geometry.seen(w.b, axis, o) for axis, o in enumerate(indices)]
    return [start for start, _ in found], [r for _, r in found]


def emit_max_pool(geometry: Geometry, channels: int, dtype: str) -> Builder:
    """y, index = the maximum of each window and its first position."""
    w = _Writer(geometry, channels, dtype)
    b, memory = w.b, w.memory
    x, y, index = (w.pointer(k) for k in range(3))
    is_float = dtypes.is_float(dtype)
    lowest = -np.inf if is_float else np.iinfo(dtype).min
    for indices, pixel in w.each(geometry.pooled):
        starts, ranges = _windows(w, indices)
        image = w.image(pixel, geometry.pooled)
        for block in w.blocks():
            count = len(block)

            def step(
                offsets: list[str], best: list[Value], block: Any = block
            ) -> list[Value]:
                at = [b.integer("add", s, o) for s, o in zip(starts, offsets)]  # noqa: B905, B023
                seen = w.number(image, at, geometry.image)  # noqa: B023
                here = w.splat(w.tap(offsets))
                values, taps = [], []
                for k, (channel, mask) in enumerate(block):
                    new = memory.load(x, w.at(seen, channel), dtype, mask)
                    old = best[k]
                    if is_float:  # a NaN wins, the first of them
                        more = b.binary("fcmp ugt", new, old, "bool")
                        sound = b.binary("fcmp ord", old, old, "bool")
                        more = b.binary("and", more, sound)
                    else:
                        more = b.binary("icmp sgt", new, old, "bool")
                    values.append(b.select(more, new, old))
                    taps.append(b.select(more, here, best[len(block) + k]))
                return [*values, *taps]

            first = [w.constant(lowest, dtype)] * count
            first += [w.constant(0, "int32")] * count
            best = w.fold(ranges, first, step)
            for k, (channel, mask) in enumerate(block):
                target = w.at(pixel, channel)
                memory.store(best[k], y, target, mask)
                memory.store(best[count + k], index, target, mask)
    return b


def emit_seen(geometry: Geometry, channels: int, dtype: str, picks: bool) -> Builder:
    """y = the sum of each window, or of it the element at `index`."""
    w = _Writer(geometry, channels, dtype)
    b, memory = w.b, w.memory
    x = w.pointer(0)
    index, y = (w.pointer(1), w.pointer(2)) if picks else ("", w.pointer(1))
    for indices, pixel in w.each(geometry.pooled):
        starts, ranges = _windows(w, indices)
        image = w.image(pixel, geometry.pooled)
        for block in w.blocks():
            wanted = [
                memory.load(index, w.at(pixel, channel), "int32", mask)
                for channel, mask in block
                if picks
            ]

            def step(
                offsets: list[str],
                sums: list[Value],
                block: Any = block,
                wanted: Any = wanted,
            ) -> list[Value]:
                at = [b.integer("add", s, o) for s, o in zip(starts, offsets)]  # noqa: B905, B023
                seen = w.number(image, at, geometry.image)  # noqa: B023
                here = w.splat(w.tap(offsets))
                result = []
                for k, (channel, mask) in enumerate(block):
                    new = memory.load(x, w.at(seen, channel), dtype, mask)
                    if picks:
                        mine = b.binary("icmp eq", wanted[k], here, "bool")
                        result.append(b.select(mine, new, sums[k]))
                    else:
                        result.append(_add(b, sums[k], new))
                return result

            zero = [w.constant(0, dtype)] * len(block)
            sums = w.fold(ranges, zero, step)
            for total, (channel, mask) in zip(sums, block, strict=True):
                memory.store(total, y, w.at(pixel, channel), mask)
    return b


def emit_seeing(geometry: Geometry, channels: int, dtype: str, picks: bool) -> Builder:
    """x = for each pixel the sum of g over its windows, or those that it won."""
    w = _Writer(geometry, channels, dtype)
    b, memory = w.b, w.memory
    g = w.pointer(0)
    index, x = (w.pointer(1), w.pointer(2)) if picks else ("", w.pointer(1))
    for indices, pixel in w.each(geometry.image):
        found = [geometry.seeing(b, axis, p) for axis, p in enumerate(indices)]
        positions, ranges = [at for at, _ in found], [r for _, r in found]
        image = w.image(pixel, geometry.image)
        for block in w.blocks():

            def step(
                windows: list[str], sums: list[Value], block: Any = block
            ) -> list[Value]:
                number = w.number(image, windows, geometry.pooled)  # noqa: B023
                offsets = [
                    b.integer("sub", at, b.integer("mul", o, stride))
                    for at, o, stride in zip(  # noqa: B905
                        positions,  # noqa: B023
                        windows,
                        geometry.strides,
                    )
                ]
                here = w.splat(w.tap(offsets))
                result = []
                for k, (channel, mask) in enumerate(block):
                    element = w.at(number, channel)
                    new = memory.load(g, element, dtype, mask)
                    if picks:
                        winner = memory.load(index, element, "int32", mask)
                        mine = b.binary("icmp eq", winner, here, "bool")
                        new = b.select(mine, new, w.constant(0, dtype))
                    result.append(_add(b, sums[k], new))
                return result

            zero = [w.constant(0, dtype)] * len(block)
            sums = w.fold(ranges, zero, step)
            for total, (channel, mask) in zip(sums, block, strict=True):
                memory.store(total, x, w.at(pixel, channel), mask)
    return b


def _add(b: Builder, x: Value, y: Value) -> Value:
    return b.binary("fadd" if dtypes.is_float(x.dtype) else "add", x, y)


# --- lowering -------------------------------------------------------------------------


def _lowered(
    emit: Callable[..., Builder],
    node: Any,
    inputs: Sequence[Operand],
    outputs: Sequence[Operand],
    image: Shape,
    pooled: Shape,
    *options: Any,
) -> Lowered | None:
    dtype = inputs[0].spec.dtype
    if dtype not in DTYPES or not all(x.is_contiguous for x in inputs):
        return None
    if not outputs[0].spec.size:
        return Lowered()
    attrs = node.attrs
    low = tuple(pair[0] for pair in attrs["padding"])
    geometry = Geometry(
        image[1:-1], pooled[1:-1], attrs["window"], attrs["strides"], low
    )
    references: list[Reference] = [("in", i) for i in range(len(inputs))]
    references += [("out", i) for i in range(len(outputs))]
    taps = prod(pooled) * prod(attrs["window"])
    return Lowered(
        (
            Call(
                Code(emit, geometry, image[-1], dtype, *options),
                tuple(references),
                (),
                image[0],
                partition(image[0]),
                frozenset(references),
                flops=taps,
                nbytes=sum(x.spec.nbytes for x in (*inputs, *outputs)),
            ),
        )
    )


def lower_max_pool(
    node: Any, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """The maximum of each window, and where it is."""
    image, pooled = inputs[0].spec.shape, outputs[0].spec.shape
    return _lowered(emit_max_pool, node, inputs, outputs, image, pooled)


def lower_max_pool_gather(
    node: Any, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """The elements at the winners' positions."""
    image, pooled = inputs[0].spec.shape, outputs[0].spec.shape
    return _lowered(emit_seen, node, inputs, outputs, image, pooled, True)


def lower_sum_pool(
    node: Any, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """The sum of each window."""
    image, pooled = inputs[0].spec.shape, outputs[0].spec.shape
    return _lowered(emit_seen, node, inputs, outputs, image, pooled, False)


def lower_max_pool_scatter(
    node: Any, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Each element at its winner's position, added up."""
    image, pooled = outputs[0].spec.shape, inputs[0].spec.shape
    return _lowered(emit_seeing, node, inputs, outputs, image, pooled, True)


def lower_sum_pool_grad(
    node: Any, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Each element at all positions of its window, added up."""
    image, pooled = outputs[0].spec.shape, inputs[0].spec.shape
    return _lowered(emit_seeing, node, inputs, outputs, image, pooled, False)
