"""Convolutions as matrix products over the columns of cache-sized chunks.

Shapes: x (batch, *spatial, groups * channels), w (*size, channels, groups * filters), g
like the output (batch, *out, groups * filters).
"""

from __future__ import annotations

from typing import Any

from toolkit import dtypes
from toolkit.backends.array.columns import Columns, grouped
from toolkit.backends.array.common import (
    Array,
    Kernels,
    Scratch,
    scratch_bytes,
)
from toolkit.backends.array.depthwise import Depthwise, is_depthwise
from toolkit.backends.array.windows import Windows
from toolkit.backends.kernels import workspace
from toolkit.ir import Spec

Shape = tuple[int, ...]
Pads = tuple[tuple[int, int], ...]


def _conv_bytes(
    x: Spec,
    w: Spec,
    strides: Shape,
    padding: Pads,
    dilation: Shape,
    groups: int,
    factors: str = "",
) -> int:
    windows = Windows(x.shape[1:-1], w.shape[:-2], strides, padding, dilation)
    if is_depthwise(x.shape[-1], groups):
        return Depthwise.of(x, windows, groups, w.shape[-1]).forward_bytes()
    return _forward_bytes(Columns.of(x, windows, groups), w)


def _forward_bytes(columns: Columns, w: Spec) -> int:
    """Return the bytes of float32 weights and chunk results, for half precision."""
    if not columns.half:
        return columns.nbytes()
    return columns.nbytes(w.size, columns.pixels * w.shape[-1])


def _input_grad_bytes(
    g: Spec,
    w: Spec,
    spatial: Shape,
    strides: Shape,
    padding: Pads,
    dilation: Shape,
    groups: int,
    factors: str = "",
) -> int:
    windows = Windows(spatial, w.shape[:-2], strides, padding, dilation)
    channels = w.shape[-2] * groups
    if is_depthwise(channels, groups):
        return Depthwise.of(g, windows, groups, g.shape[-1]).input_grad_bytes()
    mirrored = mirrored_windows(windows)
    if mirrored is not None:
        columns = Columns.of(g, mirrored, groups)
        weights = scratch_bytes(w.size * dtypes.itemsize(columns.dtype))
        return weights + columns.nbytes(columns.half * columns.pixels * channels)
    x = Spec((g.shape[0], *spatial, channels), g.dtype)
    columns = Columns.of(x, windows, groups)
    sizes = (w.size, x.size) if columns.half else ()
    return columns.nbytes(columns.pixels * g.shape[-1], *sizes)


def _kernel_grad_bytes(
    x: Spec,
    g: Spec,
    kernel: Shape,
    strides: Shape,
    padding: Pads,
    dilation: Shape,
    groups: int,
    factors: str = "",
) -> int:
    windows = Windows(x.shape[1:-1], kernel, strides, padding, dilation)
    if is_depthwise(x.shape[-1], groups):
        return Depthwise.of(x, windows, groups, g.shape[-1]).kernel_grad_bytes()
    columns = Columns.of(x, windows, groups)
    weights = columns.depth * g.shape[-1]
    sizes = (weights, weights) if columns.half else (weights,)
    return columns.nbytes(columns.pixels * g.shape[-1], *sizes)


def mirrored_windows(windows: Windows) -> Windows | None:
    """Return the windows over g that contribute to each pixel of x, if without gaps."""
    reaches = ((k - 1) * d for k, d in zip(windows.size, windows.dilation, strict=True))
    pairs = zip(reaches, windows.padding, strict=True)
    padding = tuple((reach - low, reach - high) for reach, (low, high) in pairs)
    if set(windows.strides) != {1} or min(map(min, padding)) < 0:
        return None
    out, size, dilation = windows.out, windows.size, windows.dilation
    return Windows(out, size, windows.strides, padding, dilation)


def _zeros(out: Array) -> Array:
    """Fill `out` with zeros, the value of empty sums."""
    out.fill(0)
    return out


class Conv(Kernels):
    """Channels-last convolution over N spatial axes, and its gradients."""

    @workspace(_conv_bytes)
    def conv(
        self,
        x: Array,
        w: Array,
        *,
        strides: Shape,
        padding: Pads,
        dilation: Shape,
        groups: int,
        factors: str = "",
        out: Any = None,
        work: Any = None,
    ) -> Array:
        """Return the cross-correlation of `x` with `w`."""
        windows = Windows(x.shape[1:-1], w.shape[:-2], strides, padding, dilation)
        shape = (x.shape[0], *windows.out, w.shape[-1])
        out = self._result(out, shape, x.dtype)
        if not (x.size and w.size):
            return _zeros(out)
        memory = Scratch(self.xp, work)
        if is_depthwise(x.shape[-1], groups):
            taps = Depthwise.of(x, windows, groups, w.shape[-1])
            taps.forward(self.xp, x, w, out, memory)
            return out
        columns = Columns.of(x, windows, groups)
        return self._forward(columns, x, self._weights(w, columns, memory), out, memory)

    def conv_integer(
        self,
        x: Array,
        w: Array,
        *,
        offset: int = 0,
        bits: int = 8,
        out: Any = None,
        **attrs: Any,
    ) -> Array:
        """Return the int32 convolution of 8-bit integers, exact in float64 BLAS."""
        images, weights = (operand.astype("float64") for operand in (x, w))
        images -= offset
        sums = self.conv(images, weights, **attrs)
        return self._copy_to(self._result(out, sums.shape, "int32"), sums)

    @workspace(_input_grad_bytes)
    def conv_input_grad(
        self,
        g: Array,
        w: Array,
        *,
        spatial: Shape,
        strides: Shape,
        padding: Pads,
        dilation: Shape,
        groups: int,
        factors: str = "",
        out: Any = None,
        work: Any = None,
    ) -> Array:
        """Return the gradient of `conv` with respect to `x`."""
        windows = Windows(spatial, w.shape[:-2], strides, padding, dilation)
        channels = w.shape[-2] * groups
        out = self._result(out, (g.shape[0], *spatial, channels), g.dtype)
        if not (g.size and w.size):
            return _zeros(out)
        memory = Scratch(self.xp, work)
        if is_depthwise(channels, groups):
            taps = Depthwise.of(g, windows, groups, g.shape[-1])
            taps.input_grad(self.xp, g, w, out, memory)
            return out
        mirrored = mirrored_windows(windows)
        if mirrored is None:
            return self._add_columns(
                Columns.of(out, windows, groups), g, w, out, memory
            )
        columns = Columns.of(g, mirrored, groups)
        return self._forward(
            columns, g, self._transpose_weights(w, columns, memory), out, memory
        )

    @workspace(_kernel_grad_bytes)
    def conv_kernel_grad(
        self,
        x: Array,
        g: Array,
        *,
        kernel: Shape,
        strides: Shape,
        padding: Pads,
        dilation: Shape,
        groups: int,
        factors: str = "",
        out: Any = None,
        work: Any = None,
    ) -> Array:
        """Return the gradient of `conv` with respect to `w`."""
        windows = Windows(x.shape[1:-1], kernel, strides, padding, dilation)
        shape = (*kernel, x.shape[-1] // groups, g.shape[-1])
        out = self._result(out, shape, x.dtype)
        if not (x.size and g.size):
            return _zeros(out)
        memory = Scratch(self.xp, work)
        if is_depthwise(x.shape[-1], groups):
            taps = Depthwise.of(x, windows, groups, g.shape[-1])
            taps.kernel_grad(self.xp, x, g, out, memory)
            return out
        columns = Columns.of(x, windows, groups)
        return self._kernel_grad(columns, x, g, out, memory)

    def _forward(
        self, columns: Columns, x: Array, weights: Array, out: Array, memory: Scratch
    ) -> Array:
        """Multiply each block of columns with `weights` (groups, depth, filters)."""
        result = None
        if columns.half:
            result = memory.take(columns.pixels * out.shape[-1], "float32")
        for box, block in columns.blocks(self.xp, x, memory):
            target = out[box]
            chunk = target
            if result is not None:
                chunk = result[: target.size].reshape(target.shape)
            self.gemm(block, weights, out=grouped(chunk, columns.groups))
            if result is not None:
                self._copy_to(target, chunk)
        return out

    def _kernel_grad(
        self, columns: Columns, x: Array, g: Array, out: Array, memory: Scratch
    ) -> Array:
        """Sum the products of each block's columns and its part of `g`."""
        total = out
        if columns.half:
            total = memory.take(out.shape, "float32")
        weights = grouped(total.reshape(columns.depth, -1), columns.groups)
        product = memory.take(weights.shape, columns.dtype)
        rows = memory.take(columns.pixels * g.shape[-1], columns.dtype)
        target = weights
        for box, block in columns.blocks(self.xp, x, memory):
            gradient = self._rows(g[box], columns, rows)
            self.gemm(block.transpose(0, 2, 1), gradient, out=target)
            if target is product:
                self.xp.add(weights, product, out=weights)
            target = product
        if target is weights:
            total.fill(0)
        return self._copy_to(out, total) if columns.half else out

    def _add_columns(
        self, columns: Columns, g: Array, w: Array, out: Array, memory: Scratch
    ) -> Array:
        """Compute the input gradient of windows with gaps: add columns to pixels."""
        weights = self._weights(w, columns, memory).transpose(0, 2, 1)
        total = memory.take(out.shape, "float32") if columns.half else out
        total.fill(0)
        rows = memory.take(columns.pixels * g.shape[-1], columns.dtype)
        buffer = memory.take(
            (columns.groups, columns.pixels, columns.depth), columns.dtype
        )
        for window_box in columns.window_boxes:
            gradient = self._rows(g[window_box.box], columns, rows)
            block = buffer[:, : gradient.shape[1]]
            self.gemm(gradient, weights, out=block)
            columns.add(self.xp, window_box, block, total)
        return self._copy_to(out, total) if columns.half else out

    def _rows(self, g: Array, columns: Columns, buffer: Array) -> Array:
        """Return a part of `g` as (groups, windows, filters), cast and contiguous."""
        if columns.half or not g.flags.c_contiguous:
            copy = buffer[: g.size].reshape(g.shape)
            g = self._copy_to(copy, g)
        return grouped(g, columns.groups)

    def _weights(self, w: Array, columns: Columns, memory: Scratch) -> Array:
        """Return `w` as (groups, depth, filters)."""
        if columns.half:
            w = self._copy_to(memory.take(w.shape, "float32"), w)
        return grouped(w.reshape(-1, w.shape[-1]), columns.groups)

    def _transpose_weights(self, w: Array, columns: Columns, memory: Scratch) -> Array:
        """Return the weights of the input gradient: (groups, depth, channels)."""
        *size, channels, filters = w.shape
        groups, spatial = columns.groups, len(size)
        flipped = w[(slice(None, None, -1),) * spatial]
        split = flipped.reshape(*size, channels, groups, filters // groups)
        # To (groups, *size, filters, channels).
        axes = (spatial + 1, *range(spatial), spatial + 2, spatial)
        transposed = split.transpose(axes)
        copy = self._copy_to(memory.take(transposed.shape, columns.dtype), transposed)
        return copy.reshape(groups, -1, channels)
