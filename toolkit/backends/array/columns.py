"""Column buffers of a convolution (im2col), copied chunk by chunk."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import Any

from toolkit import dtypes
from toolkit.backends.array.common import HALVES, Array, Box, Scratch, scratch_bytes
from toolkit.backends.array.windows import WindowBox, Windows, max_elements
from toolkit.definitions.records import record
from toolkit.ir import Spec

# Bytes of the column buffer: half of a common L2 cache.
_BUDGET = 1 << 20
# A product of fewer rows would spend its time on reads of the weights.
_MIN_PIXELS = 256


@record
class Columns:
    """Partition of a convolution's images into chunks of windows.

    channels: of one group. dtype: the compute dtype, float32 for half precision.
    """

    windows: Windows
    batch: int
    groups: int
    channels: int
    dtype: str
    half: bool

    @staticmethod
    def of(x: Any, windows: Windows, groups: int) -> Columns:
        """Return the partition of images `x`, an array or a spec."""
        dtype = x.dtype if isinstance(x, Spec) else dtypes.name_of(x.dtype)
        return _columns(windows, x.shape[0], groups, x.shape[-1] // groups, dtype)

    @cached_property
    def depth(self) -> int:
        """Return the length of a column, for one group."""
        return self.windows.taps * self.channels

    @cached_property
    def pixels(self) -> int:
        """Return the maximum number of windows in a part."""
        column = self.groups * self.depth * dtypes.itemsize(self.dtype)
        total = self.batch * math.prod(self.windows.out)
        return min(total, max(_BUDGET // max(1, column), _MIN_PIXELS))

    @cached_property
    def window_boxes(self) -> tuple[WindowBox, ...]:
        """Return all windows, part by part."""
        return self.windows.window_boxes(self.batch, self.pixels)

    @cached_property
    def max_elements(self) -> int:
        """Return the elements that a part reads, if they must be copied first."""
        copied = self.half or self.windows.padded
        return (
            max_elements(self.window_boxes, self.groups * self.channels)
            if copied
            else 0
        )

    @cached_property
    def is_pointwise(self) -> bool:
        """Return whether each window is one pixel, and each pixel one window."""
        windows = self.windows
        return windows.taps == 1 and not windows.padded and set(windows.strides) == {1}

    def nbytes(self, *pieces: int) -> int:
        """Return the scratch bytes of `blocks` and of more pieces, given in
        elements.
        """
        sizes = (self.pixels * self.groups * self.depth, self.max_elements, *pieces)
        itemsize = dtypes.itemsize(self.dtype)
        return scratch_bytes(*(size * itemsize for size in sizes))

    def blocks(self, xp: Any, x: Array, memory: Scratch) -> Iterator[tuple[Box, Array]]:
        """Yield each box with its columns (groups, windows, depth) in a reused
        buffer.
        """
        buffer = memory.take(self.pixels * self.groups * self.depth, self.dtype)
        copy = memory.take(self.max_elements, self.dtype) if self.max_elements else None
        if self.is_pointwise and not self.half and x.flags.c_contiguous:
            yield ..., grouped(x, self.groups)
            return
        field = None
        for window_box in self.window_boxes:
            loaded = window_box.load(xp, x, 0, copy)
            # Copies into the same buffer share a view.
            copied = self.half or not window_box.is_unpadded
            if not copied or window_box.field != field:
                field = window_box.field if copied else None
                view = self._view(xp, window_box, loaded)
                block = buffer[: view.size].reshape(view.shape)
            xp.copyto(block, view)
            yield window_box.box, block.reshape(self.groups, -1, self.depth)

    def _view(self, xp: Any, window_box: WindowBox, loaded: Array) -> Array:
        """Return a view of the columns: (groups, images, *out, *size, channels)."""
        across, *steps, channel = loaded.strides
        axes = zip(steps, self.windows.strides, strict=True)
        gaps = zip(steps, self.windows.dilation, strict=True)
        return xp.lib.stride_tricks.as_strided(
            loaded,
            (
                self.groups,
                window_box.field[0],
                *window_box.out,
                *self.windows.size,
                self.channels,
            ),
            (
                *(self.channels * channel, across),
                *(step * stride for step, stride in axes),
                *(step * gap for step, gap in gaps),
                channel,
            ),
        )

    def add(self, xp: Any, window_box: WindowBox, block: Array, images: Array) -> None:
        """Add the columns of a part to the pixels of `images` that they cover."""
        shape = (self.groups, window_box.field[0], *window_box.out, -1, self.channels)
        # To (images, *out, taps, groups, channels), in the order of the pixels.
        block = xp.moveaxis(block.reshape(shape), 0, -2)
        target = images.reshape(*images.shape[:-1], *block.shape[-2:])
        for tap, (pixels, covered) in enumerate(window_box.meetings):
            met = target[pixels]
            xp.add(met, block[..., tap, :, :][covered], out=met)


@lru_cache(maxsize=256)
def _columns(
    windows: Windows, batch: int, groups: int, channels: int, dtype: str
) -> Columns:
    half = dtype in HALVES
    computed = "float32" if half else dtype
    return Columns(windows, batch, groups, channels, computed, half)


def grouped(x: Array, groups: int) -> Array:
    """Return (..., groups * n) as (groups, rows, n), a view of contiguous `x`."""
    return x.reshape(-1, groups, x.shape[-1] // groups).transpose(1, 0, 2)
