"""Convolution and pooling, as a loop over the positions of the window.

Layouts: x (batch, *spatial, channels), w (*size, channels / groups, filters).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.backends.reference.common import widen

Array = Any
Shape = tuple[int, ...]
Pads = tuple[tuple[int, int], ...]


def _pad(x: Array, padding: Pads, value: Any = 0) -> Array:
    """Pad the spatial axes of `x` with `value`."""
    return np.pad(x, ((0, 0), *padding, (0, 0)), constant_values=value)


def _crop(x: Array, padding: Pads, spatial: Shape) -> Array:
    """Invert `_pad`."""
    interior = (
        np.s_[low : low + n] for (low, _), n in zip(padding, spatial, strict=True)
    )
    return x[(np.s_[:], *interior)]


def _padded_shape(batch: int, spatial: Shape, padding: Pads, channels: int) -> Shape:
    extents = zip(spatial, padding, strict=True)
    return (batch, *(low + n + high for n, (low, high) in extents), channels)


def _taps(
    padded: Shape, size: Shape, strides: Shape, dilation: Shape
) -> Iterator[tuple[Shape, Any]]:
    """Yield each position in the window, with the index of its pixels."""
    for offset in product(*map(range, size)):
        index: list[Any] = [np.s_[:]]
        for n, k, at, stride, gap in zip(
            padded[1:-1], size, offset, strides, dilation, strict=True
        ):
            count = (n - (k - 1) * gap - 1) // stride + 1
            first = at * gap
            index.append(np.s_[first : first + (count - 1) * stride + 1 : stride])
        yield offset, tuple(index)


def _split(x: Array, groups: int) -> Array:
    """Split the last axis into (groups, elements per group)."""
    return x.reshape(*x.shape[:-1], groups, x.shape[-1] // groups)


def conv(
    x: Array,
    w: Array,
    strides: Shape,
    padding: Pads,
    dilation: Shape,
    groups: int,
    factors: str = "",
) -> Array:
    """Return the cross-correlation of `x` with `w`."""
    images, weights = _split(_pad(widen(x), padding), groups), _split(widen(w), groups)
    padded = (*images.shape[:-2], x.shape[-1])
    result = 0
    for offset, pixels in _taps(padded, w.shape[:-2], strides, dilation):
        result = result + np.einsum("...gc,cgf->...gf", images[pixels], weights[offset])
    return np.reshape(result, (*np.shape(result)[:-2], w.shape[-1])).astype(x.dtype)


def conv_integer(
    x: Array, w: Array, offset: int = 0, bits: int = 8, **attrs: Any
) -> Array:
    """Return the int32 convolution of the 8-bit `x - offset`."""
    return conv(x.astype(np.int32) - offset, w.astype(np.int32), **attrs)


def conv_input_grad(
    g: Array,
    w: Array,
    spatial: Shape,
    strides: Shape,
    padding: Pads,
    dilation: Shape,
    groups: int,
    factors: str = "",
) -> Array:
    """Return the gradient of `conv` with respect to `x`."""
    gradients, weights = _split(widen(g), groups), _split(widen(w), groups)
    channels = w.shape[-2] * groups
    padded = _padded_shape(g.shape[0], spatial, padding, channels)
    images = np.zeros((*padded[:-1], groups, w.shape[-2]), gradients.dtype)
    for offset, pixels in _taps(padded, w.shape[:-2], strides, dilation):
        images[pixels] += np.einsum("...gf,cgf->...gc", gradients, weights[offset])
    return _crop(images.reshape(padded), padding, spatial).astype(g.dtype)


def conv_kernel_grad(
    x: Array,
    g: Array,
    kernel: Shape,
    strides: Shape,
    padding: Pads,
    dilation: Shape,
    groups: int,
    factors: str = "",
) -> Array:
    """Return the gradient of `conv` with respect to `w`."""
    images, gradients = (
        _split(_pad(widen(x), padding), groups),
        _split(widen(g), groups),
    )
    padded = (*images.shape[:-2], x.shape[-1])
    shape = (*kernel, images.shape[-1], *gradients.shape[-2:])
    weights = np.zeros(shape, images.dtype)
    flat = gradients.reshape(-1, *gradients.shape[-2:])
    for offset, window_index in _taps(padded, kernel, strides, dilation):
        pixels = images[window_index].reshape(-1, *images.shape[-2:])
        weights[offset] = np.einsum("pgc,pgf->cgf", pixels, flat)
    return weights.reshape(*kernel, images.shape[-1], g.shape[-1]).astype(x.dtype)


def max_pool(
    x: Array, window: Shape, strides: Shape, padding: Pads
) -> tuple[Array, Array]:
    """Return each window's maximum, and its first position in the window."""
    name = dtypes.name_of(x.dtype)
    lowest = -np.inf if dtypes.is_float(name) else np.iinfo(name).min
    images = _pad(widen(x), padding, lowest)
    taps = _taps(images.shape, window, strides, (1,) * len(window))
    window_values = np.stack([images[pixels] for _, pixels in taps])
    # NumPy's argmax returns the first of equal elements, and the first NaN before all
    # numbers.
    index = np.argmax(window_values, axis=0)
    y = np.take_along_axis(window_values, index[np.newaxis], axis=0)[0]
    return y.astype(x.dtype), index.astype(np.int32)


def max_pool_gather(
    x: Array, index: Array, window: Shape, strides: Shape, padding: Pads
) -> Array:
    """Return the elements of `x` at the argmax positions; 0 on padding."""
    images = _pad(x, padding)
    taps = _taps(images.shape, window, strides, (1,) * len(window))
    window_values = np.stack([images[pixels] for _, pixels in taps])
    return np.take_along_axis(
        window_values, index[np.newaxis].astype(np.int64), axis=0
    )[0]


def max_pool_scatter(
    g: Array, index: Array, spatial: Shape, window: Shape, strides: Shape, padding: Pads
) -> Array:
    """Return images with each element of `g` added at the argmax of its window."""
    padded = _padded_shape(g.shape[0], spatial, padding, g.shape[-1])
    images = np.zeros(padded, widen(g).dtype)
    taps = _taps(padded, window, strides, (1,) * len(window))
    for position, (_, pixels) in enumerate(taps):
        images[pixels] += np.where(index == position, widen(g), 0)
    return _crop(images, padding, spatial).astype(g.dtype)


def sum_pool(x: Array, window: Shape, strides: Shape, padding: Pads) -> Array:
    """Return the sum of each window."""
    images = _pad(widen(x), padding)
    taps = _taps(images.shape, window, strides, (1,) * len(window))
    result = 0
    for _, pixels in taps:
        result = result + images[pixels]
    return np.asarray(result).astype(x.dtype)


def sum_pool_grad(
    g: Array, spatial: Shape, window: Shape, strides: Shape, padding: Pads
) -> Array:
    """Return images with each element of `g` added to all pixels of its window."""
    padded = _padded_shape(g.shape[0], spatial, padding, g.shape[-1])
    images = np.zeros(padded, widen(g).dtype)
    for _, pixels in _taps(padded, window, strides, (1,) * len(window)):
        images[pixels] += widen(g)
    return _crop(images, padding, spatial).astype(g.dtype)
