"""Depthwise convolution: every group has one input channel, and `multiplier` outputs.

A matrix product would bring no gain. Each tap (position in the window) is one
multiplication of shifted images with the weights. The weights are tiled along the last
spatial axis, so that the inner loop covers whole rows of pixels.
"""

from __future__ import annotations

import math
from functools import cached_property, lru_cache
from typing import Any

from toolkit import dtypes
from toolkit.backends.array.common import (
    HALVES,
    WIDE,
    Array,
    Scratch,
    reduce_rows,
    scratch_bytes,
)
from toolkit.backends.array.windows import WindowBox, Windows, max_elements
from toolkit.definitions.records import record
from toolkit.ir import Spec

# Elements per chunk: images, products and sums of this size stay in the L2 cache.
_CHUNK = 1 << 16


def is_depthwise(channels: int, groups: int) -> bool:
    """Return whether a convolution is depthwise."""
    return channels == groups > 1


@record
class Depthwise:
    """Geometry and kernels of a depthwise convolution.

    dtype: the compute dtype, float32 for half precision.
    """

    windows: Windows
    batch: int
    channels: int
    multiplier: int
    dtype: str
    half: bool

    @staticmethod
    def of(x: Any, windows: Windows, channels: int, filters: int) -> Depthwise:
        """Return the geometry for the batch and dtype of `x`, an array or a spec."""
        dtype = x.dtype if isinstance(x, Spec) else dtypes.name_of(x.dtype)
        return _depthwise(windows, x.shape[0], channels, filters // channels, dtype)

    @cached_property
    def pixels(self) -> int:
        """Return the maximum number of windows in a part."""
        total = self.batch * math.prod(self.windows.out)
        return min(total, max(1, _CHUNK // max(1, self.channels)))

    @cached_property
    def window_boxes(self) -> tuple[WindowBox, ...]:
        """Return all windows, part by part."""
        return self.windows.window_boxes(self.batch, self.pixels)

    @cached_property
    def chunk(self) -> int:
        """Return the elements of a part of windows, one per channel."""
        return self.pixels * self.channels

    @cached_property
    def max_elements(self) -> int:
        """Return the number of elements that a part of windows reads."""
        return max_elements(self.window_boxes, self.channels)

    @cached_property
    def tiles_shape(self) -> tuple[int, ...]:
        """Return (multiplier, taps, extent of the last spatial axis, channels)."""
        windows = self.windows
        return (self.multiplier, windows.taps, windows.out[-1], self.channels)

    def nbytes(self, *pieces: int) -> int:
        """Return the scratch bytes of pieces given in elements."""
        itemsize = dtypes.itemsize(self.dtype)
        return scratch_bytes(*(size * itemsize for size in pieces))

    def forward_bytes(self) -> int:
        """Return the scratch bytes of `forward`."""
        tiles = math.prod(self.tiles_shape)
        return self.nbytes(tiles, self.max_elements, self.chunk, self.chunk)

    def forward(self, xp: Any, x: Array, w: Array, out: Array, memory: Scratch) -> None:
        """Compute out[..., c, m] = the sum over taps of x[..., c] * w[tap, c, m]."""
        tiles = self._tiles(xp, w, memory)
        copy, spare, sums = self._take(
            memory, self.max_elements, self.chunk, self.chunk
        )
        outputs = out.reshape(*out.shape[:-1], self.channels, self.multiplier)
        for window_box in self.window_boxes:
            loaded = window_box.load(xp, x, 0, copy)
            target = outputs[window_box.box]
            product, total = _shaped(target.shape[:-1], spare, sums)
            row = target.shape[-3]
            for m in range(self.multiplier):
                total.fill(0)
                for tap, shift in enumerate(window_box.shifts):
                    xp.multiply(loaded[shift], tiles[m, tap, :row], out=product)
                    xp.add(total, product, out=total)
                xp.copyto(target[..., m], total, casting="unsafe")

    def input_grad_bytes(self) -> int:
        """Return the scratch bytes of `input_grad`."""
        tiles, images = math.prod(self.tiles_shape), self._images()
        return self.nbytes(tiles, self.chunk, self.chunk, images * self.half)

    def input_grad(
        self, xp: Any, g: Array, w: Array, out: Array, memory: Scratch
    ) -> None:
        """Add g[..., c, m] * w[tap, c, m] to the pixel of each tap."""
        tiles = self._tiles(xp, w, memory)
        spare, copy = self._take(memory, self.chunk, self.chunk)
        total = memory.take(out.shape, self.dtype) if self.half else out
        total.fill(0)
        gradients = g.reshape(*g.shape[:-1], self.channels, self.multiplier)
        for window_box in self.window_boxes:
            for m in range(self.multiplier):
                g_part = gradients[window_box.box][..., m]
                (gradient,) = _shaped(g_part.shape, copy)
                xp.copyto(gradient, g_part)
                for tap, (pixels, covered) in enumerate(window_box.meetings):
                    met = total[pixels]
                    (product,) = _shaped(met.shape, spare)
                    tile = tiles[m, tap, : met.shape[-2]]
                    xp.multiply(gradient[covered], tile, out=product)
                    xp.add(met, product, out=met)
        if self.half:
            xp.copyto(out, total, casting="unsafe")

    def kernel_grad_bytes(self) -> int:
        """Return the scratch bytes of `kernel_grad`."""
        weights = self.multiplier * self.windows.taps * self.channels
        return self.nbytes(
            *(self.max_elements, self.chunk, self.chunk, weights, WIDE, self.channels)
        )

    def kernel_grad(
        self, xp: Any, x: Array, g: Array, out: Array, memory: Scratch
    ) -> None:
        """Sum x * g over all pixels, for each tap."""
        windows = self.windows
        copy, spare, gradients = self._take(
            memory, self.max_elements, self.chunk, self.chunk
        )
        shape = (self.multiplier, windows.taps, self.channels)
        total = memory.take(shape, self.dtype)
        wide, row = self._take(memory, WIDE, self.channels)
        total.fill(0)
        split = g.reshape(*g.shape[:-1], self.channels, self.multiplier)
        for window_box in self.window_boxes:
            loaded = window_box.load(xp, x, 0, copy)
            for m in range(self.multiplier):
                g_part = split[window_box.box][..., m]
                gradient, product = _shaped(g_part.shape, gradients, spare)
                xp.copyto(gradient, g_part)
                for tap, shift in enumerate(window_box.shifts):
                    xp.multiply(loaded[shift], gradient, out=product)
                    reduce_rows(xp.add, product.reshape(-1, self.channels), row, wide)
                    xp.add(total[m, tap], row, out=total[m, tap])
        weights = out.reshape(windows.taps, self.channels, self.multiplier)
        xp.copyto(weights, total.transpose(1, 2, 0), casting="unsafe")

    def _images(self) -> int:
        return self.batch * math.prod(self.windows.spatial) * self.channels

    def _take(self, memory: Scratch, *sizes: int) -> list[Array]:
        return [memory.take(size, self.dtype) for size in sizes]

    def _tiles(self, xp: Any, w: Array, memory: Scratch) -> Array:
        """Return the weights by multiplier and tap, repeated along the last axis."""
        weights = w.reshape(-1, 1, self.channels, self.multiplier)
        tiles = memory.take(self.tiles_shape, self.dtype)
        xp.copyto(tiles, weights.transpose(3, 0, 1, 2))
        return tiles


@lru_cache(maxsize=256)
def _depthwise(
    windows: Windows, batch: int, channels: int, multiplier: int, dtype: str
) -> Depthwise:
    half = dtype in HALVES
    computed = "float32" if half else dtype
    return Depthwise(windows, batch, channels, multiplier, computed, half)


def _shaped(shape: tuple[int, ...], *buffers: Array) -> list[Array]:
    """Return the starts of flat buffers in one shape."""
    return [buffer[: math.prod(shape)].reshape(shape) for buffer in buffers]
