"""Sliding windows over N spatial axes, shared by convolution and pooling.

Images are laid out (batch, *spatial, channels). A box of outputs is the index that
`boxes` makes over (batch, *output positions).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from toolkit.backends.array.common import Array, Box, boxes

Extents = tuple[int, ...]


@dataclass(frozen=True)
class Windows:
    """The geometry of windows over images with `spatial` extents."""

    spatial: Extents
    size: Extents
    strides: Extents
    padding: tuple[tuple[int, int], ...]
    dilation: Extents

    @property
    def out(self) -> Extents:
        """How many windows fit along each axis."""
        axes = zip(self.spatial, self.padding, self._reach(), self.strides, strict=True)
        return tuple(
            (n + low + high - reach) // stride + 1
            for n, (low, high), reach, stride in axes
        )

    @property
    def taps(self) -> int:
        """How many positions a window has."""
        return math.prod(self.size)

    @property
    def padded(self) -> bool:
        """Whether any window reaches over an edge."""
        return any(low or high for low, high in self.padding)

    def offsets(self) -> Iterator[Extents]:
        """The positions of a window, in row-major order."""
        return product(*map(range, self.size))

    def field(self, out: Extents) -> Extents:
        """The extents that `out` neighbouring windows cover."""
        axes = zip(out, self.strides, self._reach(), strict=True)
        return tuple((n - 1) * stride + reach for n, stride, reach in axes)

    def batch_shape(self, batch: int) -> Extents:
        """The shape that `boxes` cuts: (batch, *output positions)."""
        return (batch, *self.out)

    def chunks(self, batch: int, pixels: int) -> Iterator[Box]:
        """Boxes of at most `pixels` windows over (batch, *output positions)."""
        return boxes(self.batch_shape(batch), pixels)

    def seen(self, batch: int, pixels: int, channels: int) -> int:
        """The elements that the windows of a chunk see, at most."""
        first = next(self.chunks(batch, pixels), None)
        if first is None:
            return 0
        images, *outputs = self.ranges(first, batch)
        field = self.field(tuple(r.stop - r.start for r in outputs))
        return math.prod((images.stop, *field, channels))

    def _reach(self) -> Extents:
        """The extents of one window, with its gaps."""
        axes = zip(self.size, self.dilation, strict=True)
        return tuple((k - 1) * d + 1 for k, d in axes)

    def ranges(self, box: Box, batch: int) -> list[slice]:
        """A box as one slice for each axis, without Ellipsis."""
        shape = self.batch_shape(batch)
        given = () if box is ... else box
        return [*given, *(slice(0, n) for n in shape[len(given) :])]

    def load(
        self, xp: Any, x: Array, box: Box, fill: Any, buffer: Array | None
    ) -> Array:
        """The part of images `x` that a box of windows sees, with its padding.

        A view where no padding is seen and `x` needs no cast, else in `buffer`, which
        is flat.
        """
        images, *outputs = self.ranges(box, x.shape[0])
        field = self.field(tuple(r.stop - r.start for r in outputs))
        source, inside = [images], [slice(None)]
        axes = zip(
            outputs, field, self.strides, self.padding, self.spatial, strict=True
        )
        for r, extent, stride, (low, _), n in axes:
            start = r.start * stride - low
            first, last = max(start, 0), min(start + extent, n)
            source.append(slice(first, max(first, last)))
            inside.append(slice(first - start, max(first, last) - start))
        seen = x[tuple(source)]
        whole = seen.shape[1:-1] == field
        if buffer is None or (whole and x.dtype == buffer.dtype):
            return seen
        shape = (seen.shape[0], *field, x.shape[-1])
        loaded = buffer[: math.prod(shape)].reshape(shape)
        if not whole:
            loaded.fill(fill)
        xp.copyto(loaded[tuple(inside)], seen)
        return loaded

    def shifted(self, loaded: Array, offset: Extents, out: Extents) -> Array:
        """What position `offset` of each of `out` windows sees of a loaded part."""
        axes = zip(offset, self.dilation, self.strides, out, strict=True)
        spans = (
            slice(k * d, k * d + (n - 1) * stride + 1, stride)
            for k, d, stride, n in axes
        )
        return loaded[(slice(None), *spans)]

    def spread(
        self, x: Array, offset: Extents, outputs: list[slice]
    ) -> tuple[Array, tuple[slice, ...]]:
        """Where in `x` position `offset` of windows lies, and which windows those are.

        Windows whose position falls on padding are left out.
        """
        target, chosen = [slice(None)], [slice(None)]
        axes = zip(
            *(offset, outputs, self.dilation, self.strides, self.padding, self.spatial),
            strict=True,
        )
        for k, r, dilation, stride, (low, _), n in axes:
            shift = k * dilation - low
            first = max(r.start, -(shift // stride))
            last = min(r.stop, (n - 1 - shift) // stride + 1)
            last = max(first, last)
            start = first * stride + shift
            target.append(slice(start, start + (last - first) * stride, stride))
            chosen.append(slice(first - r.start, last - r.start))
        return x[tuple(target)], tuple(chosen)
