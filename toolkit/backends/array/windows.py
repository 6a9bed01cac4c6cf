"""Sliding windows over N spatial axes, shared by convolution and pooling.

Images have the layout (batch, *spatial, channels). Windows have the index of their
output, (batch, *output positions). A part is a box of windows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from itertools import product
from typing import Any

from toolkit.backends.array.common import Array, Box, boxes
from toolkit.definitions.records import record

Extents = tuple[int, ...]
Index = tuple[slice, ...]


@record
class Windows:
    """Geometry of windows over images with `spatial` extents."""

    spatial: Extents
    size: Extents
    strides: Extents
    padding: tuple[tuple[int, int], ...]
    dilation: Extents

    @cached_property
    def reach(self) -> Extents:
        """Return the extents of one window, including its gaps."""
        axes = zip(self.size, self.dilation, strict=True)
        return tuple((k - 1) * d + 1 for k, d in axes)

    @cached_property
    def out(self) -> Extents:
        """Return the number of windows along each axis."""
        axes = zip(self.spatial, self.padding, self.reach, self.strides, strict=True)
        return tuple(
            (n + low + high - reach) // stride + 1
            for n, (low, high), reach, stride in axes
        )

    @cached_property
    def taps(self) -> int:
        """Return the number of positions in a window."""
        return math.prod(self.size)

    @cached_property
    def padded(self) -> bool:
        """Return whether any window extends over an edge."""
        return any(low or high for low, high in self.padding)

    def offsets(self) -> Iterator[Extents]:
        """Yield the positions of a window, in row-major order."""
        return product(*map(range, self.size))

    def window_boxes(self, batch: int, pixels: int) -> tuple[WindowBox, ...]:
        """Return all windows of a batch in boxes of at most `pixels`."""
        shape = (batch, *self.out)
        window_boxes = []
        for box in boxes(shape, pixels):
            ranges = [] if box is ... else list(box)
            ranges += [slice(0, n) for n in shape[len(ranges) :]]
            window_boxes.append(WindowBox(self, box, ranges[0], tuple(ranges[1:])))
        return tuple(window_boxes)


@record
class WindowBox:
    """Box of adjacent windows: `box` is their index among all outputs."""

    windows: Windows
    box: Box
    images: slice
    outputs: Index

    @cached_property
    def out(self) -> Extents:
        """Return the number of windows along each spatial axis."""
        return tuple(r.stop - r.start for r in self.outputs)

    @cached_property
    def field(self) -> Extents:
        """Return the shape of the pixels under these windows, without channels."""
        axes = zip(self.out, self.windows.strides, self.windows.reach, strict=True)
        extents = ((n - 1) * stride + reach for n, stride, reach in axes)
        return (self.images.stop - self.images.start, *extents)

    @cached_property
    def covered_pixels(self) -> tuple[Index, Index]:
        """Return the index of these pixels in the images, and in the field."""
        windows = self.windows
        source, target = [self.images], [slice(None)]
        axes = zip(
            *(self.outputs, self.field[1:], windows.strides),
            *(windows.padding, windows.spatial),
            strict=True,
        )
        for r, extent, stride, (low, _), n in axes:
            start = r.start * stride - low
            first = max(start, 0)
            last = max(first, min(start + extent, n))
            source.append(slice(first, last))
            target.append(slice(first - start, last - start))
        return tuple(source), tuple(target)

    @cached_property
    def is_unpadded(self) -> bool:
        """Return whether no window includes padding."""
        _, (_, *target) = self.covered_pixels
        axes = zip(target, self.field[1:], strict=True)
        return all(r.stop - r.start == extent for r, extent in axes)

    @cached_property
    def shifts(self) -> list[Index]:
        """Return, for each position of a window, its pixels in the field."""
        windows = self.windows
        axes = list(zip(windows.dilation, windows.strides, self.out, strict=True))
        return [
            (
                slice(None),
                *(
                    slice(k * gap, k * gap + (n - 1) * stride + 1, stride)
                    for k, (gap, stride, n) in zip(offset, axes, strict=True)
                ),
            )
            for offset in windows.offsets()
        ]

    @cached_property
    def meetings(self) -> list[tuple[Index, Index]]:
        """Return, for each position of a window, its pixels and its windows.

        Windows in which the position is on padding are excluded.
        """
        return [self._meeting(offset) for offset in self.windows.offsets()]

    def _meeting(self, offset: Extents) -> tuple[Index, Index]:
        windows = self.windows
        pixels, covered = [self.images], [slice(None)]
        axes = zip(
            *(offset, self.outputs, windows.dilation, windows.strides),
            *(windows.padding, windows.spatial),
            strict=True,
        )
        for k, r, gap, stride, (low, _), n in axes:
            shift = k * gap - low
            first = max(r.start, -(shift // stride))
            last = max(first, min(r.stop, (n - 1 - shift) // stride + 1))
            start = first * stride + shift
            pixels.append(slice(start, start + (last - first) * stride, stride))
            covered.append(slice(first - r.start, last - r.start))
        return tuple(pixels), tuple(covered)

    def load(self, xp: Any, x: Array, fill: Any, buffer: Array | None) -> Array:
        """Return the part of images `x` under the windows, with padding.

        The result is a view if it has no padding and `x` needs no cast. Otherwise it is
        in `buffer`, which is flat.
        """
        source, target = self.covered_pixels
        pixels = x[source]
        if buffer is None or (self.is_unpadded and x.dtype == buffer.dtype):
            return pixels
        shape = (*self.field, x.shape[-1])
        loaded = buffer[: math.prod(shape)].reshape(shape)
        if not self.is_unpadded:
            loaded.fill(fill)
        xp.copyto(loaded[target], pixels)
        return loaded


def max_elements(window_boxes: tuple[WindowBox, ...], channels: int) -> int:
    """Return the maximum number of elements under the windows of one part."""
    return math.prod((*window_boxes[0].field, channels)) if window_boxes else 0
