"""Columns: what each window of a convolution sees, copied chunk by chunk."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from toolkit import dtypes
from toolkit.backends.array.common import (
    HALVES,
    Array,
    Box,
    Scratch,
    scratch_bytes,
)
from toolkit.backends.array.windows import Windows
from toolkit.ir import Spec

# Bytes of the column buffer: half of a common L2 cache.
_BUDGET = 1 << 20
# A product of fewer rows would spend its time reading the weights.
_LEAST_PIXELS = 256


@dataclass(frozen=True)
class Columns:
    """How the images of a convolution are cut into chunks of windows.

    channels: of one group. dtype: what is computed in, float32 for half precision.
    """

    windows: Windows
    batch: int
    groups: int
    channels: int
    dtype: str
    half: bool

    @classmethod
    def of(cls, x: Any, windows: Windows, groups: int) -> Columns:
        """The chunks of images `x`, an array or a spec."""
        dtype = x.dtype if isinstance(x, Spec) else dtypes.name_of(x.dtype)
        half = dtype in HALVES
        channels = x.shape[-1] // groups
        computed = "float32" if half else dtype
        return cls(windows, x.shape[0], groups, channels, computed, half)

    @property
    def depth(self) -> int:
        """The length of a column, for one group."""
        return self.windows.taps * self.channels

    @property
    def pixels(self) -> int:
        """The greatest number of windows in a chunk."""
        column = self.groups * self.depth * dtypes.itemsize(self.dtype)
        total = math.prod(self.windows.batch_shape(self.batch))
        return min(total, max(_BUDGET // max(1, column), _LEAST_PIXELS))

    @property
    def seen(self) -> int:
        """The elements that a chunk of windows sees, if they must be copied first."""
        if not (self.half or self.windows.padded):
            return 0
        channels = self.groups * self.channels
        return self.windows.seen(self.batch, self.pixels, channels)

    def nbytes(self, *pieces: int) -> int:
        """The scratch of `blocks`, and of further pieces given in elements."""
        sizes = (self.pixels * self.groups * self.depth, self.seen, *pieces)
        itemsize = dtypes.itemsize(self.dtype)
        return scratch_bytes(*(size * itemsize for size in sizes))

    def is_pointwise(self) -> bool:
        """Whether each window is one pixel, and each pixel one window."""
        windows = self.windows
        return windows.taps == 1 and not windows.padded and set(windows.strides) == {1}

    def chunks(self) -> Iterator[Box]:
        """Boxes of windows over (batch, *output positions)."""
        return self.windows.chunks(self.batch, self.pixels)

    def blocks(self, xp: Any, x: Array, memory: Scratch) -> Iterator[tuple[Box, Array]]:
        """Each box with its columns (groups, windows, depth), valid until the next."""
        buffer = memory.take(self.pixels * self.groups * self.depth, self.dtype)
        copy = memory.take(self.seen, self.dtype) if self.seen else None
        if self.is_pointwise() and not self.half and x.flags.c_contiguous:
            yield ..., grouped(x, self.groups)
            return
        as_strided = xp.lib.stride_tricks.as_strided
        for box in self.chunks():
            images, *outputs = self.windows.ranges(box, self.batch)
            out = tuple(r.stop - r.start for r in outputs)
            part = self.windows.load(xp, x, box, 0, copy)
            across, *steps, channel = part.strides
            axes = zip(steps, self.windows.strides, strict=True)
            gaps = zip(steps, self.windows.dilation, strict=True)
            view = as_strided(
                part,
                (self.groups, part.shape[0], *out, *self.windows.size, self.channels),
                (
                    *(self.channels * channel, across),
                    *(step * stride for step, stride in axes),
                    *(step * dilation for step, dilation in gaps),
                    channel,
                ),
            )
            block = buffer[: view.size].reshape(view.shape)
            xp.copyto(block, view)
            yield box, block.reshape(self.groups, -1, self.depth)

    def add(self, xp: Any, box: Box, block: Array, images: Array) -> None:
        """Add the columns of a block to the pixels of `images` that they show."""
        shown, *outputs = self.windows.ranges(box, self.batch)
        extents = (r.stop - r.start for r in (shown, *outputs))
        shape = (self.groups, *extents, *self.windows.size, self.channels)
        # To (images, *outputs, *offsets, groups, channels), as the pixels are.
        block = xp.moveaxis(block.reshape(shape), 0, -2)
        target = images[shown].reshape(-1, *images.shape[1:-1], *block.shape[-2:])
        place = (slice(None),) * len(outputs)
        for offset in self.windows.offsets():
            pixels, chosen = self.windows.spread(target, offset, outputs)
            seen = block[(slice(None), *place, *offset)][chosen]
            xp.add(pixels, seen, out=pixels)


def grouped(x: Array, groups: int) -> Array:
    """(..., groups * n) as (groups, rows, n), a view of contiguous `x`."""
    return x.reshape(-1, groups, x.shape[-1] // groups).transpose(1, 0, 2)
