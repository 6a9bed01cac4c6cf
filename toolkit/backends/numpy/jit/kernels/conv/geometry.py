"""The map from outputs to inputs of a convolution, axis by axis.

A convolution and its input gradient are both correlations: outputs are sums of taps,
and a tap is an input times a weight. They differ in the steps between positions, which
`Axis` holds. Strides split the input gradient into several correlations, one for each
phase: outputs whose distance is a multiple of the stride have the same taps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import gcd

from toolkit.definitions.records import record

Range = tuple[int, int]


@record
class Window:
    """One spatial axis of a convolution.

    Attributes:
        extent: of the images.
        out: the number of windows.
        size, stride, dilation: of the windows.
        low: the zeros before the images.
        pitch: the stride in elements of the operand that a kernel reads tap by tap.
        step: the stride in elements of the other operand, if any.
    """

    extent: int
    out: int
    size: int
    stride: int
    dilation: int
    low: int
    pitch: int
    step: int = 0

    @property
    def is_trivial(self) -> bool:
        """Return whether each window is one pixel, and each pixel a window."""
        is_same_extent = self.extent == self.out
        return is_same_extent and (self.size, self.stride, self.low) == (1, 1, 0)


@record
class Axis:
    """One axis of a correlation.

    The output at `start + step * j`, for j < count, is a sum over taps t < taps. A tap
    is the input at `stride * j + offset + gap * t`, if it exists, times the weight at
    `first + every * t`.
    """

    out: int
    start: int
    step: int
    count: int
    extent: int
    pitch: int
    stride: int
    offset: int
    gap: int
    taps: int
    first: int
    every: int

    def visible_taps(self, position: int) -> Range:
        """Return the taps [low, high) of a position that meet an input."""
        base = self.stride * position + self.offset
        low = max(0, -(base // self.gap))
        return low, max(low, min(self.taps, -((base - self.extent) // self.gap)))

    def reached_positions(self, tap: int) -> Range:
        """Return the positions [low, high) at which a tap meets an input."""
        base = self.offset + self.gap * tap
        low = max(0, -(base // self.stride))
        return low, max(low, min(self.count, -((base - self.extent) // self.stride)))

    @property
    def is_padded(self) -> bool:
        """Return whether some position has taps outside the image."""
        return any(
            self.visible_taps(j) != (0, self.taps)
            for j in (0, self.count - 1)
            if j >= 0
        )


Axes = tuple[Axis, ...]


def collapse(windows: Sequence[Window]) -> tuple[Window, ...]:
    """Return the same windows on fewer axes: neighbouring axes of size 1 are merged."""
    merged: list[Window] = []
    for window in windows:
        if window.is_trivial and window.extent == 1:
            continue
        if merged and _can_merge(merged[-1], window):
            extent = merged[-1].extent * window.extent
            merged[-1] = replace(window, extent=extent, out=extent)
        else:
            merged.append(window)
    return tuple(merged) or tuple(windows[-1:])


def _can_merge(outer: Window, inner: Window) -> bool:
    """Return whether two axes can be merged: trivial, and without gaps in memory."""
    if not (outer.is_trivial and inner.is_trivial):
        return False
    reach = (inner.pitch * inner.extent, inner.step * inner.extent)
    return (outer.pitch, outer.step) == reach


def blocks(
    windows: tuple[Window, ...], max_blocks: int, min_pixels: int
) -> tuple[Window, ...]:
    """Return the windows of one trivial axis as blocks of pixels.

    An even number of blocks divides among threads.

    Args:
        windows: on the fewest axes.
        max_blocks: the most blocks. They have the same size.
        min_pixels: the least pixels of a block.
    """
    (*outer, w) = windows
    if outer or not w.is_trivial:
        return windows
    sizes = [w.extent // n for n in range(2, max_blocks + 1) if w.extent % n == 0]
    large_sizes = [n for n in sizes if n >= min_pixels]
    even = [n for n in large_sizes if w.extent // n % 2 == 0]
    size = min(even or large_sizes, default=w.extent)
    if size == w.extent:
        return windows
    count, pitch, step = w.extent // size, w.pitch * size, w.step * size
    block = replace(w, extent=count, out=count, pitch=pitch, step=step)
    return block, replace(w, extent=size, out=size)


def forward(windows: Sequence[Window]) -> Axes:
    """Return the correlation of a convolution."""
    return tuple(
        Axis(
            out=w.out,
            start=0,
            step=1,
            count=w.out,
            extent=w.extent,
            pitch=w.pitch,
            stride=w.stride,
            offset=-w.low,
            gap=w.dilation,
            taps=w.size,
            first=0,
            every=1,
        )
        for w in windows
    )


def backward(windows: Sequence[Window]) -> tuple[Axes, ...]:
    """Return the correlations of an input gradient, one for each combination of phases.

    The order of taps is reversed: tap 0 is the window's last.
    """
    return tuple(product(*map(_phases, windows)))


def sweeps(windows: Sequence[Window], is_input_grad: bool) -> tuple[Axes, ...]:
    """Return the correlations of a convolution or of its input gradient."""
    return backward(windows) if is_input_grad else (forward(windows),)


def _phases(w: Window) -> list[Axis]:
    """Return the image's positions by their remainder modulo the stride.

    Position i has the windows o = (i + low - dilation * k) / stride, for each k that
    makes it an integer: every stride / gcd(stride, dilation)-th.
    """
    common = gcd(w.stride, w.dilation)
    every, gap = w.stride // common, w.dilation // common
    axes = []
    for start in range(min(w.stride, w.extent)):
        taps = [
            k for k in range(w.size) if (start + w.low - k * w.dilation) % w.stride == 0
        ]
        last = taps[-1] if taps else 0
        axes.append(
            Axis(
                out=w.extent,
                start=start,
                step=w.stride,
                count=-(-(w.extent - start) // w.stride),
                extent=w.out,
                pitch=w.pitch,
                stride=1,
                offset=(start + w.low - last * w.dilation) // w.stride,
                gap=gap,
                taps=len(taps),
                first=w.size - 1 - last,
                every=every,
            )
        )
    return axes
