"""Pooling, channels last, with vectors along the channels.

Windows are clamped to the image, so nothing is padded. The gradient visits each pixel
of the image once and collects from the windows that contain it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import (
    Builder,
    Index,
    Mask,
    Number,
    Range,
    Value,
)
from toolkit.backends.numpy.jit.calls import Call, Lowered, Reference, partition
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.processor import current
from toolkit.plans.operands import Operand

if TYPE_CHECKING:
    from toolkit.ir import Node

DTYPES = ("float32", "float64", "int32", "int64")
# Vectors of channels per pixel, and the largest number of taps that is unrolled.
_VECTORS, _TAPS = 4, 9

Shape = tuple[int, ...]


class Geometry:
    """The geometry of a pooling: the pixels of each window.

    Args:
        image: the spatial extents of the input.
        pooled: the spatial extents of the result.
    """

    def __init__(
        self, image: Shape, pooled: Shape, window: Shape, strides: Shape, low: Shape
    ) -> None:
        self.image, self.pooled = image, pooled
        self.window, self.strides, self.low = window, strides, low

    def __repr__(self) -> str:
        facts = (self.image, self.pooled, self.window, self.strides, self.low)
        return f"Geometry{facts}"

    def window_range(self, b: Kernel, axis: int, o: Index) -> tuple[Number, Range]:
        """Return the first pixel of window `o` on an axis, and its offsets."""
        n, k = self.image[axis], self.window[axis]
        stride, low = self.strides[axis], self.low[axis]
        start = o * stride - low
        first = 0 if low == 0 else b.max(0, 0 - start)
        fits = (self.pooled[axis] - 1) * stride - low + k <= n
        last = k if fits else b.min(k, n - start)
        return start, (first, last)

    def windows_of_pixel(
        self, b: Kernel, axis: int, pixel: Index
    ) -> tuple[Index, Range]:
        """Return the padded position of a pixel on an axis, and its windows."""
        k, stride = self.window[axis], self.strides[axis]
        at = pixel + self.low[axis]
        last = b.min(at // stride + 1, self.pooled[axis])
        first = b.max(0, b.max(at - (k - stride), 0) // stride)
        if k < stride:  # pixels between windows belong to none
            first = (at + (stride - k)) // stride
        return at, (first, last)


# A block of channels: the first channel and the mask of each vector.
Block = list[tuple[Number, Mask]]


class _Pooling(Kernel):
    """Emits one pooling kernel."""

    def __init__(self, geometry: Geometry, channels: int, dtype: str) -> None:
        super().__init__(current().lanes)
        self.geometry = geometry
        self.channels = channels
        self.dtype = dtype

    def pixels(self, extents: Shape) -> Iterator[tuple[list[Index], Index]]:
        """Loop over images and pixels. Yield the indices and the pixel number."""
        with ExitStack() as loops:
            number = loops.enter_context(self.loop(self.low, self.high))
            indices = []
            for n in extents:
                indices.append(loops.enter_context(self.loop(0, n)))
            for index, n in zip(indices, extents, strict=True):
                number = number * n + index
            yield indices, number

    def blocks(self) -> Iterator[Block]:
        """Loop over the channels in blocks of a few vectors."""
        lanes = self.lanes
        full, remainder = divmod(self.channels, lanes)
        loops, last = divmod(full, _VECTORS)
        start = loops * _VECTORS * lanes
        if loops:
            with self.loop(0, start, _VECTORS * lanes) as c:
                yield [(c + k * lanes, None) for k in range(_VECTORS)]
        tail: Block = [(start + k * lanes, None) for k in range(last)]
        if remainder:
            tail.append((start + last * lanes, self.existing(remainder)))
        if tail:
            yield tail

    def fold(
        self,
        ranges: Sequence[Range],
        values: list[Value],
        step: Callable[[Sequence[Number], list[Value]], list[Value]],
    ) -> list[Value]:
        """Carry values through nested loops, in the order of the indices."""
        static = [
            (a, z) for a, z in ranges if isinstance(a, int) and isinstance(z, int)
        ]
        if len(static) == len(ranges) and prod(z for _, z in static) <= _TAPS:
            for taps in product(*(range(a, z) for a, z in static)):
                values = step(taps, values)
            return values

        def nest(
            remaining: Sequence[Range], indices: list[Number], v: list[Value]
        ) -> list[Value]:
            if not remaining:
                return step(indices, v)
            low, high = remaining[0]
            with self.accumulate(low, high, 1, v) as iteration:
                iteration.next(
                    nest(remaining[1:], [*indices, iteration.index], iteration.values)
                )
            return iteration.values

        return nest(ranges, [], values)

    def tap(self, offsets: Sequence[Number]) -> Number:
        """Return the number of a position in the window."""
        return _pixel_number(0, offsets, self.geometry.window)


def _pixel_number(first: Number, indices: Sequence[Number], extents: Shape) -> Number:
    """Return the row-major number of a pixel.

    Args:
        first: the number of the image.
        indices: the index along each axis.
        extents: the extent of each axis.
    """
    for index, n in zip(indices, extents, strict=True):
        first = first * n + index
    return first


def emit_max_pool(geometry: Geometry, channels: int, dtype: str) -> Kernel:
    """Emit y, index = the maximum of each window and its first position."""
    b = _Pooling(geometry, channels, dtype)
    x, y, index = (b.address(k) for k in range(3))
    lowest = -np.inf if dtypes.is_float(dtype) else np.iinfo(dtype).min
    for indices, pixel in b.pixels(geometry.pooled):
        windows = _Windows(b, indices, pixel)
        for block in b.blocks():
            count = len(block)

            def step(
                offsets: Sequence[Number],
                best: list[Value],
                windows: _Windows = windows,
                block: Block = block,
            ) -> list[Value]:
                source, tap = windows.at(offsets)
                values, taps = [], []
                for k, (channel, mask) in enumerate(block):
                    new = b.load(x, source * channels + channel, dtype, mask)
                    is_greater = _replaces_maximum(b, new, best[k])
                    values.append(b.select(is_greater, new, best[k]))
                    taps.append(b.select(is_greater, tap, best[len(block) + k]))
                return [*values, *taps]

            first = [b.filled(lowest, dtype)] * count
            first += [b.filled(0, "int32")] * count
            best = b.fold(windows.ranges, first, step)
            for k, (channel, mask) in enumerate(block):
                target = pixel * channels + channel
                b.store(best[k], y, target, mask)
                b.store(best[count + k], index, target, mask)
    return b


def _replaces_maximum(b: Kernel, new: Value, old: Value) -> Value:
    """Return where a new element replaces the maximum. The first NaN does."""
    if not dtypes.is_float(new.dtype):
        return b.binary("icmp sgt", new, old, "bool")
    is_greater = b.binary("fcmp ugt", new, old, "bool")
    return b.binary("and", is_greater, b.binary("fcmp ord", old, old, "bool"))


class _Windows:
    """The window of a pixel of the result: its start and its ranges of offsets."""

    def __init__(self, b: _Pooling, indices: Sequence[Index], pixel: Index) -> None:
        windows = [
            b.geometry.window_range(b, axis, o) for axis, o in enumerate(indices)
        ]
        self.b = b
        self.starts = [start for start, _ in windows]
        self.ranges = [r for _, r in windows]
        self.image = pixel // prod(b.geometry.pooled)

    def at(self, offsets: Sequence[Number]) -> tuple[Number, Value]:
        """Return the pixel at some offsets, and its window position in all lanes."""
        at = [start + o for start, o in zip(self.starts, offsets, strict=True)]
        pixel = _pixel_number(self.image, at, self.b.geometry.image)
        return pixel, self.b.int32(self.b.tap(offsets))


def emit_windows(geometry: Geometry, channels: int, dtype: str, picks: bool) -> Kernel:
    """Emit y = the sum of each window, or its element at `index`."""
    b = _Pooling(geometry, channels, dtype)
    x, index = b.address(0), b.address(1)
    y = b.address(2) if picks else index
    for indices, pixel in b.pixels(geometry.pooled):
        windows = _Windows(b, indices, pixel)
        for block in b.blocks():
            picked = [
                b.load(index, pixel * channels + channel, "int32", mask)
                for channel, mask in block
                if picks
            ]

            def step(
                offsets: Sequence[Number],
                sums: list[Value],
                windows: _Windows = windows,
                block: Block = block,
                selected: list[Value] = picked,
            ) -> list[Value]:
                source, tap = windows.at(offsets)
                result = []
                for k, (channel, mask) in enumerate(block):
                    new = b.load(x, source * channels + channel, dtype, mask)
                    if picks:
                        is_selected = b.binary("icmp eq", selected[k], tap, "bool")
                        result.append(b.select(is_selected, new, sums[k]))
                    else:
                        result.append(_add(b, sums[k], new))
                return result

            zero = [b.filled(0, dtype)] * len(block)
            sums = b.fold(windows.ranges, zero, step)
            for total, (channel, mask) in zip(sums, block, strict=True):
                b.store(total, y, pixel * channels + channel, mask)
    return b


def emit_windows_backward(
    geometry: Geometry, channels: int, dtype: str, picks: bool
) -> Kernel:
    """Emit x = the sum of g over the windows of a pixel, or where it is picked."""
    b = _Pooling(geometry, channels, dtype)
    g, index = b.address(0), b.address(1)
    x = b.address(2) if picks else index
    for indices, pixel in b.pixels(geometry.image):
        window_ranges = [
            geometry.windows_of_pixel(b, axis, p) for axis, p in enumerate(indices)
        ]
        ranges = [r for _, r in window_ranges]
        image = pixel // prod(geometry.image)
        for block in b.blocks():

            def step(
                windows: Sequence[Number],
                sums: list[Value],
                block: Block = block,
                pixel_windows: list[tuple[Index, Range]] = window_ranges,
                image: Index = image,
            ) -> list[Value]:
                number = _pixel_number(image, windows, geometry.pooled)
                offsets = [
                    at - o * stride
                    for (at, _), o, stride in zip(
                        pixel_windows, windows, geometry.strides, strict=True
                    )
                ]
                tap = b.int32(b.tap(offsets))
                result = []
                for k, (channel, mask) in enumerate(block):
                    element = number * channels + channel
                    new = b.load(g, element, dtype, mask)
                    if picks:
                        winner = b.load(index, element, "int32", mask)
                        is_selected = b.binary("icmp eq", winner, tap, "bool")
                        new = b.select(is_selected, new, b.filled(0, dtype))
                    result.append(_add(b, sums[k], new))
                return result

            zero = [b.filled(0, dtype)] * len(block)
            sums = b.fold(ranges, zero, step)
            for total, (channel, mask) in zip(sums, block, strict=True):
                b.store(total, x, pixel * channels + channel, mask)
    return b


def _add(b: Kernel, x: Value, y: Value) -> Value:
    return b.binary("fadd" if dtypes.is_float(x.dtype) else "add", x, y)


# --- lowering -------------------------------------------------------------------------


def _lower_pooling(
    emit: Callable[..., Builder],
    node: Node,
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
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Lower the maximum of each window and its position."""
    image, pooled = inputs[0].spec.shape, outputs[0].spec.shape
    return _lower_pooling(emit_max_pool, node, inputs, outputs, image, pooled)


def lower_max_pool_gather(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Lower the gather of the elements at the positions of the maxima."""
    image, pooled = inputs[0].spec.shape, outputs[0].spec.shape
    return _lower_pooling(emit_windows, node, inputs, outputs, image, pooled, True)


def lower_sum_pool(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Lower the sum of each window."""
    image, pooled = inputs[0].spec.shape, outputs[0].spec.shape
    return _lower_pooling(emit_windows, node, inputs, outputs, image, pooled, False)


def lower_max_pool_scatter(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Lower the scatter-add of each element to the position of its maximum."""
    image, pooled = outputs[0].spec.shape, inputs[0].spec.shape
    return _lower_pooling(
        emit_windows_backward, node, inputs, outputs, image, pooled, True
    )


def lower_sum_pool_grad(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Lower the gradient of the sum: scatter-add to all pixels of a window."""
    image, pooled = outputs[0].spec.shape, inputs[0].spec.shape
    return _lower_pooling(
        emit_windows_backward, node, inputs, outputs, image, pooled, False
    )
