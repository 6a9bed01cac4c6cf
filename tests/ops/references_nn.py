"""Plain NumPy references of neural-network operations: loops and textbook formulas."""

import itertools
import math

import numpy as np


def per_axis(value, ndim):
    return tuple(value) if isinstance(value, tuple) else (value,) * ndim


def same_pads(n, k, stride):
    """Return the padding "same" of TensorFlow for windows over k elements."""
    total = max((math.ceil(n / stride) - 1) * stride + k - n, 0)
    return total // 2, total - total // 2


def windows(x, size, strides, padding, dilation=1, fill_value=0.0):
    """Yield (output position, its window as (batch, *size, channels))."""
    ndim = x.ndim - 2
    strides, dilation = per_axis(strides, ndim), per_axis(dilation, ndim)
    window_sizes = [(k - 1) * d + 1 for k, d in zip(size, dilation, strict=True)]
    pads = [(0, 0)] * ndim
    if padding == "same":
        pads = [
            same_pads(*axis)
            for axis in zip(x.shape[1:-1], window_sizes, strides, strict=True)
        ]
    x = np.pad(x, [(0, 0), *pads, (0, 0)], constant_values=fill_value)
    axes = zip(x.shape[1:-1], window_sizes, strides, strict=True)
    counts = [(n - k) // stride + 1 for n, k, stride in axes]
    for position in itertools.product(*map(range, counts)):
        starts = [i * stride for i, stride in zip(position, strides, strict=True)]
        spans = zip(starts, window_sizes, dilation, strict=True)
        yield (
            position,
            x[(slice(None), *(slice(i, i + k, d) for i, k, d in spans))],
            counts,
        )


def assemble_outputs(outputs):
    """Return an array (batch, *counts, channels) from (position, value, counts)."""
    outputs = list(outputs)
    (_, value, counts) = outputs[0]
    y = np.empty((value.shape[0], *counts, value.shape[1]))
    for position, value, _ in outputs:
        y[(slice(None), *position)] = value
    return y


def conv(x, w, strides=1, padding="valid", dilation=1):
    """Convolve x (batch, *spatial, channels); w (*size, channels / groups, filters)."""
    *size, inputs_per_group, filters = w.shape
    groups = x.shape[-1] // inputs_per_group
    filters_per_group = filters // groups

    def product(window):
        groups_of_outputs = []
        for g in range(groups):
            channels = window[..., g * inputs_per_group : (g + 1) * inputs_per_group]
            weights = w[..., g * filters_per_group : (g + 1) * filters_per_group]
            axes = range(1, x.ndim), range(x.ndim - 1)
            groups_of_outputs.append(np.tensordot(channels, weights, axes))
        return np.concatenate(groups_of_outputs, -1)

    regions = windows(x, size, strides, padding, dilation)
    return assemble_outputs(
        (p, product(window), counts) for p, window, counts in regions
    )


def depthwise_conv(x, w, strides=1, padding="valid", dilation=1):
    """Convolve each channel with w (*size, channels, multiplier)."""
    w = w.reshape(*w.shape[:-2], 1, -1)
    return conv(x, w, strides, padding, dilation)


def conv_transpose(x, w, strides=1, padding="valid", dilation=1, output_padding=None):
    """Add w times each element of x to the output; w (*size, filters, channels)."""
    ndim = x.ndim - 2
    strides, dilation = per_axis(strides, ndim), per_axis(dilation, ndim)
    window_sizes = [
        (k - 1) * d + 1 for k, d in zip(w.shape[:-2], dilation, strict=True)
    ]
    extents = x.shape[1:-1]
    sizes = [
        (n - 1) * s + k for n, s, k in zip(extents, strides, window_sizes, strict=True)
    ]
    y = np.zeros((len(x), *sizes, w.shape[-2]))
    for position in itertools.product(*map(range, extents)):
        for tap in itertools.product(*map(range, w.shape[:-2])):
            axes = zip(position, strides, tap, dilation, strict=True)
            target = tuple(i * s + k * d for i, s, k, d in axes)
            y[(slice(None), *target)] += x[(slice(None), *position)] @ w[tap].T
    for axis, (n, s, k) in enumerate(
        zip(extents, strides, window_sizes, strict=True), start=1
    ):
        low, size = 0, (n - 1) * s + max(k, s)
        if output_padding is not None:
            size = (n - 1) * s + k + output_padding
        if padding == "same":
            # The transpose of a convolution with n "same" windows over n * s elements.
            low, size = same_pads(n * s, k, s)[0], n * s
        y = np.pad(y, [(0, size if i == axis else 0) for i in range(y.ndim)])
        y = np.take(y, range(low, low + size), axis)
    return y


def pool(function, x, size, strides=None, padding="valid"):
    """Apply `function` to the windows of x, which are NaN outside."""
    size = per_axis(size, x.ndim - 2)
    strides = size if strides is None else strides
    axes = tuple(range(1, x.ndim - 1))
    regions = windows(x, size, strides, padding, fill_value=np.nan)
    return assemble_outputs(
        (p, function(window, axes), counts) for p, window, counts in regions
    )


def adaptive(function, x, sizes):
    ndim = x.ndim - 2
    sizes = per_axis(sizes, ndim)
    y = np.empty((len(x), *sizes, x.shape[-1]))
    for position in itertools.product(*map(range, sizes)):
        axes = list(zip(position, x.shape[1:-1], sizes, strict=True))
        slices = [slice(i * n // m, math.ceil((i + 1) * n / m)) for i, n, m in axes]
        window = x[(slice(None), *slices)]
        y[(slice(None), *position)] = function(window, tuple(range(1, ndim + 1)))
    return y


def channels_first(function):
    """Return a function of images for images with their channels first."""
    return lambda x, *operands: np.moveaxis(
        function(np.moveaxis(x, 1, -1), *operands), -1, 1
    )


def softmax(x, axis=-1):
    weights = np.exp(x - x.max(axis=axis, keepdims=True))
    return weights / weights.sum(axis=axis, keepdims=True)


def sparsemax(x):
    """Find each row's threshold by bisection: the sum decreases in the threshold."""
    low, high = x.min(-1, keepdims=True) - 1, x.max(-1, keepdims=True)
    for _ in range(100):
        threshold = (low + high) / 2
        is_low = np.maximum(x - threshold, 0).sum(-1, keepdims=True) > 1
        low, high = np.where(is_low, threshold, low), np.where(is_low, high, threshold)
    return np.maximum(x - low, 0)


def binary_crossentropy(t, p):
    p = np.clip(p, 1e-7, 1 - 1e-7)
    return -t * np.log(p) - (1 - t) * np.log(1 - p)


def categorical_crossentropy(t, p, axis=-1):
    p = p / p.sum(axis=axis, keepdims=True)
    return -np.sum(t * np.log(np.clip(p, 1e-7, 1 - 1e-7)), axis=axis)


def one_hot(labels, classes, axis=-1):
    return np.moveaxis(np.eye(classes)[labels], -1, axis)


def layer_norm(x, gamma=1, beta=0, axis=-1, epsilon=1e-7):
    centered = x - x.mean(axis=axis, keepdims=True)
    variance = np.mean(centered**2, axis=axis, keepdims=True)
    return centered / np.sqrt(variance + epsilon) * gamma + beta


def attention(q, k, v, bias=0.0, mask=None, scale=None, cap=None):
    """Loop over the heads; q (batch, targets, heads, features)."""
    heads_per_key = q.shape[2] // k.shape[2]
    k, v = np.repeat(k, heads_per_key, axis=2), np.repeat(v, heads_per_key, axis=2)
    scale = 1 / np.sqrt(q.shape[-1]) if scale is None else scale
    logits = np.einsum("btnh,bsnh->bnts", q, k) * scale
    logits = logits if cap is None else cap * np.tanh(logits / cap)
    logits = logits + bias
    if mask is not None:
        logits = np.where(mask, logits, -1e30)
    return np.einsum("bnts,bsnh->btnh", softmax(logits), v)
