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
from toolkit.backends.array.conv import Conv
from toolkit.backends.array.depthwise import is_depthwise
from toolkit.backends.array.pool import least_of
from toolkit.backends.array.windows import WindowBox, Windows
from toolkit.backends.kernels import Attributes, DirectCall, Kernel
from toolkit.dtypes import numpy_dtype
from toolkit.ir import Spec
from toolkit.plans.operands import contiguous

Array = Any
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
    family = getattr(kernel, "__self__", None)
    groups: int = attrs["groups"]
    if not isinstance(family, Conv) or x.dtype in HALVES or not (x.size and w.size):
        return None
    if x.size > _MAX_ELEMENTS or is_depthwise(x.shape[-1], groups):
        return None
    windows = Windows(
        x.shape[1:-1],
        w.shape[:-2],
        attrs["strides"],
        attrs["padding"],
        attrs["dilation"],
    )
    columns = Columns.of(x, windows, groups)
    if columns.is_pointwise:
        return _pointwise_call(kernel, family.gemm, specs, attrs)
    if len(columns.window_boxes) != 1:
        return None
    (box,) = columns.window_boxes
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
    dtype, gemm = numpy_dtype(x.dtype), family.gemm
    result = (x.shape[0], *windows.out, w.shape[-1])
    filters = (columns.depth, w.shape[-1])
    rows = (groups, -1, columns.depth)
    expected = contiguous(x).strides

    def call(x: Array, w: Array) -> Array:
        if x.strides != expected:
            return kernel(x, w, **attrs)
        loaded = x if load is None else load(x)
        view = np.ndarray(shape, dtype, loaded, 0, strides)
        block = np.empty(shape, dtype)
        block[...] = view
        out = np.empty(result, dtype)
        weights = grouped(w.reshape(filters), groups)
        gemm(block.reshape(rows), weights, out=grouped(out, groups))
        return out

    return DirectCall(call)


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
        name: the primitive: "max_pool" without its positions, or "sum_pool".
        specs: the specs of the images.
        attrs: the attributes of the call.
        used: whether a result is used, for each result.
    """
    (x,) = specs
    is_max = name == "max_pool"
    if x.dtype in HALVES or not 0 < x.size <= _MAX_ELEMENTS or (is_max and used[1]):
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

    return DirectCall(call_max if is_max else call_sum)


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
