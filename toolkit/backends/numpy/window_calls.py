"""Convolutions and pooling of small images, planned once for the specs of a call.

They are the steps of the kernels for images that are one box of windows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toolkit.backends.array.columns import Columns, grouped
from toolkit.backends.array.common import HALVES
from toolkit.backends.array.conv import Conv, mirrored_windows
from toolkit.backends.array.depthwise import is_depthwise
from toolkit.backends.array.pool import least_of
from toolkit.backends.array.windows import WindowBox, Windows
from toolkit.backends.kernels import Attributes, DirectCall, Kernel
from toolkit.dtypes import numpy_dtype
from toolkit.ir import Spec
from toolkit.plans.operands import contiguous

Array = Any
Shape = tuple[int, ...]
# Elements up to which the plan of a kernel costs more than its work.
_MAX_ELEMENTS = 1 << 12


def conv_call(
    kernel: Kernel, specs: Sequence[Spec], attrs: Attributes
) -> DirectCall | None:
    """Return the steps of a small convolution; None for a large one.

    Args:
        kernel: the kernel `conv`.
        specs: the specs of the images and of the weights.
        attrs: the attributes of the call.
    """
    x, w = specs
    windows = _windows(x.shape[1:-1], w.shape[:-2], attrs)
    plan = _plan(kernel, x, w, x.shape[-1], windows, attrs)
    if plan is None:
        return None
    family, columns = plan
    if columns.is_pointwise:
        return _pointwise_call(kernel, family.gemm, specs, attrs)
    load = _block_loader(columns, x)
    if load is None:
        return None
    dtype, gemm, groups = numpy_dtype(x.dtype), family.gemm, columns.groups
    result = (x.shape[0], *windows.out, w.shape[-1])
    filters, expected = (columns.depth, w.shape[-1]), contiguous(x).strides

    def call(x: Array, w: Array) -> Array:
        if x.strides != expected:
            x = x.copy("C")
        out = np.empty(result, dtype)
        weights = grouped(w.reshape(filters), groups)
        gemm(load(x), weights, out=grouped(out, groups))
        return out

    return DirectCall(call)


def conv_kernel_grad_call(
    kernel: Kernel, specs: Sequence[Spec], attrs: Attributes
) -> DirectCall | None:
    """Return the steps of the gradient by the weights of a small convolution.

    Args:
        kernel: the kernel `conv_kernel_grad`.
        specs: the specs of the images and of the gradient of the results.
        attrs: the attributes of the call.
    """
    x, g = specs
    windows = _windows(x.shape[1:-1], attrs["kernel"], attrs)
    plan = _plan(kernel, x, g, x.shape[-1], windows, attrs)
    if plan is None:
        return None
    family, columns = plan
    gemm, groups = family.gemm, columns.groups
    load = _block_loader(columns, x)
    if load is None:
        return None
    dtype = numpy_dtype(x.dtype)
    result = (*attrs["kernel"], columns.channels, g.shape[-1])
    filters = (columns.depth, g.shape[-1])
    expected = contiguous(x).strides, contiguous(g).strides

    def call(x: Array, g: Array) -> Array:
        if (x.strides, g.strides) != expected:  # such as a gradient of a sum
            x, g = x.copy("C"), g.copy("C")
        out = np.empty(result, dtype)
        columns_of_windows = load(x).transpose(0, 2, 1)
        weights = grouped(out.reshape(filters), groups)
        gemm(columns_of_windows, grouped(g, groups), out=weights)
        return out

    return DirectCall(call)


def conv_input_grad_call(
    kernel: Kernel, specs: Sequence[Spec], attrs: Attributes
) -> DirectCall | None:
    """Return the steps of the gradient by the images of a small convolution.

    Args:
        kernel: the kernel `conv_input_grad`.
        specs: the specs of the gradient of the results, and of the weights.
        attrs: the attributes of the call.
    """
    g, w = specs
    spatial, groups = attrs["spatial"], attrs["groups"]
    windows = _windows(spatial, w.shape[:-2], attrs)
    mirrored = mirrored_windows(windows)
    channels = w.shape[-2] * groups
    if mirrored is None:
        return _spread_call(kernel, specs, windows, attrs)
    plan = _plan(kernel, g, w, channels, mirrored, attrs)
    if plan is None:
        return None
    family, columns = plan
    load = _block_loader(columns, g)
    if load is None:
        return None
    dtype, gemm = numpy_dtype(g.dtype), family.gemm
    result, expected = (g.shape[0], *spatial, channels), contiguous(g).strides
    size = w.shape[:-2]
    flip = (slice(None, None, -1),) * len(size)
    split = (*size, w.shape[-2], groups, w.shape[-1] // groups)
    axes = (len(size) + 1, *range(len(size)), len(size) + 2, len(size))
    rows = (groups, -1, w.shape[-2])

    def call(g: Array, w: Array) -> Array:
        if g.strides != expected:
            g = g.copy("C")
        out = np.empty(result, dtype)
        # To (groups, *size, filters, channels), in row-major order.
        weights = w[flip].reshape(split).transpose(axes).copy("C").reshape(rows)
        gemm(load(g), weights, out=grouped(out, groups))
        return out

    return DirectCall(call)


def _spread_call(
    kernel: Kernel, specs: Sequence[Spec], windows: Windows, attrs: Attributes
) -> DirectCall | None:
    """Return the gradient by the images of a convolution with strides.

    Args:
        kernel: the kernel `conv_input_grad`.
        specs: the specs of the gradient of the results, and of the weights.
        windows: the windows over the images.
        attrs: the attributes of the call.
    """
    g, w = specs
    groups = attrs["groups"]
    channels = w.shape[-2] * groups
    images = Spec((g.shape[0], *attrs["spatial"], channels), g.dtype)
    plan = _plan(kernel, images, g, channels, windows, attrs)
    if plan is None or not w.size or len(plan[1].window_boxes) != 1:
        return None
    family, columns = plan
    (box,) = columns.window_boxes
    dtype, gemm = numpy_dtype(g.dtype), family.gemm
    filters, expected = (-1, w.shape[-1]), contiguous(g).strides
    rows = (groups, columns.pixels, columns.depth)
    split = (groups, g.shape[0], *box.out, windows.taps, columns.channels)
    # To (images, *out, taps, groups, channels), in the order of the pixels.
    axes = (*range(1, len(split) - 1), 0, len(split) - 1)
    pixels_by_group = (*images.shape[:-1], groups, columns.channels)
    additions: list[tuple[Any, Any]] = [
        (pixels, (*covered, tap)) for tap, (pixels, covered) in enumerate(box.meetings)
    ]
    add = np.add

    def call(g: Array, w: Array) -> Array:
        if g.strides != expected:
            g = g.copy("C")
        block, out = np.empty(rows, dtype), np.zeros(images.shape, dtype)
        weights = grouped(w.reshape(filters), groups).transpose(0, 2, 1)
        gemm(grouped(g, groups), weights, out=block)
        terms: Array = block.reshape(split).transpose(axes)
        totals = out.reshape(pixels_by_group)
        for pixels, covered in additions:
            total = totals[pixels]
            add(total, terms[covered], out=total)
        return out

    return DirectCall(call)


def _windows(spatial: Shape, size: Shape, attrs: Attributes) -> Windows:
    """Return the windows of a convolution."""
    return Windows(spatial, size, attrs["strides"], attrs["padding"], attrs["dilation"])


def _plan(
    kernel: Kernel,
    x: Spec,
    other: Spec,
    channels: int,
    windows: Windows,
    attrs: Attributes,
) -> tuple[Conv, Columns] | None:
    """Return the family of a kernel and its columns; None for a large operand.

    Args:
        kernel: the kernel.
        x: the spec of the operand with windows.
        other: the spec of the other operand.
        channels: the channels of the images of the convolution.
        windows: the windows of `x`.
        attrs: the attributes of the call.
    """
    family = getattr(kernel, "__self__", None)
    groups: int = attrs["groups"]
    if not isinstance(family, Conv) or x.dtype in HALVES:
        return None
    if not 0 < x.size <= _MAX_ELEMENTS or not 0 < other.size <= _MAX_ELEMENTS:
        return None
    if is_depthwise(channels, groups):
        return None
    return family, Columns.of(x, windows, groups)


def _block_loader(columns: Columns, x: Spec) -> Callable[[Array], Array] | None:
    """Return a function that copies the windows of contiguous images to a matrix.

    Args:
        columns: the windows.
        x: the spec of the images.

    Returns:
        The function. Its result has the shape (groups, windows, depth). None if the
        windows are several boxes.
    """
    if columns.is_pointwise:
        return lambda x: grouped(x, columns.groups)
    if len(columns.window_boxes) != 1:
        return None
    (box,) = columns.window_boxes
    windows, groups = columns.windows, columns.groups
    load = _loader(box, x, 0)
    field = Spec((*box.field, x.shape[-1]), x.dtype)
    across, *steps, channel = contiguous(field).strides
    if load is None:  # the windows are in the images, which have more pixels
        across, *steps, channel = contiguous(x).strides
    shape = (groups, x.shape[0], *box.out, *windows.size, columns.channels)
    strides = (
        *(columns.channels * channel, across),
        *(step * stride for step, stride in zip(steps, windows.strides, strict=True)),
        *(step * gap for step, gap in zip(steps, windows.dilation, strict=True)),
        channel,
    )
    dtype, rows = numpy_dtype(x.dtype), (groups, -1, columns.depth)

    def load_block(x: Array) -> Array:
        loaded = x if load is None else load(x)
        block = np.empty(shape, dtype)
        block[...] = np.ndarray(shape, dtype, loaded, 0, strides)
        return block.reshape(rows)

    return load_block


def _pointwise_call(
    kernel: Kernel, gemm: Kernel, specs: Sequence[Spec], attrs: Attributes
) -> DirectCall:
    """Return the product of the pixels and the weights of a small convolution."""
    x, w = specs
    groups: int = attrs["groups"]
    dtype, result = numpy_dtype(x.dtype), (*x.shape[:-1], w.shape[-1])
    expected, filters = contiguous(x).strides, w.shape[-2:]

    def call(x: Array, w: Array) -> Array:
        if x.strides != expected:
            return kernel(x, w, **attrs)
        out = np.empty(result, dtype)
        weights = grouped(w.reshape(filters), groups)
        gemm(grouped(x, groups), weights, out=grouped(out, groups))
        return out

    return DirectCall(call)


def pool_call(
    name: str, specs: Sequence[Spec], attrs: Attributes, used: Sequence[bool]
) -> DirectCall | None:
    """Return the steps of a small pooling; None for a large one.

    Args:
        name: the primitive: "max_pool" or "sum_pool".
        specs: the specs of the images.
        attrs: the attributes of the call.
        used: whether a result is used, for each result.
    """
    (x,) = specs
    is_max = name == "max_pool"
    if x.dtype in HALVES or not 0 < x.size <= _MAX_ELEMENTS:
        return None
    size = attrs["window"]
    windows = Windows(
        x.shape[1:-1], size, attrs["strides"], attrs["padding"], (1,) * len(size)
    )
    shape = (x.shape[0], *windows.out, x.shape[-1])
    if not math.prod(shape):
        return None
    (box,) = windows.window_boxes(x.shape[0], math.prod(shape))
    load = _loader(box, x, least_of(x.dtype) if is_max else 0)
    first, *others = box.shifts
    dtype = numpy_dtype(x.dtype)
    maximum, add = np.maximum, np.add

    def call_max(x: Array) -> tuple[Array, None]:
        loaded = x if load is None else load(x)
        y = np.empty(shape, dtype)
        y[...] = loaded[first]
        for shift in others:
            maximum(y, loaded[shift], out=y)
        return y, None

    def call_sum(x: Array) -> Array:
        loaded = x if load is None else load(x)
        total = np.zeros(shape, dtype)
        add(total, loaded[first], out=total)
        for shift in others:
            add(total, loaded[shift], out=total)
        return total

    if not is_max:
        return DirectCall(call_sum)
    if not used[1]:
        return DirectCall(call_max)
    stacked, int32 = (len(box.shifts), *shape), np.dtype("int32")
    numbered = list(enumerate(box.shifts))

    def call_max_with_positions(x: Array) -> tuple[Array, Array]:
        loaded = x if load is None else load(x)
        views = np.empty(stacked, dtype)
        for number, shift in numbered:
            views[number] = loaded[shift]
        y = views[0].copy()
        for view in views[1:]:
            maximum(y, view, out=y)
        return y, views.argmax(0).astype(int32)

    return DirectCall(call_max_with_positions)


def _loader(box: WindowBox, x: Spec, fill: float) -> Callable[[Array], Array] | None:
    """Return a function that copies images with their padding; None without padding."""
    if box.is_unpadded:
        return None
    source, target = box.covered_pixels
    shape, dtype = (*box.field, x.shape[-1]), numpy_dtype(x.dtype)

    def load(x: Array) -> Array:
        loaded = np.full(shape, fill, dtype) if fill else np.zeros(shape, dtype)
        loaded[target] = x[source]
        return loaded

    return load
