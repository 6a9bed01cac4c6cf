"""`tf.nn`: activations, convolutions, pooling and losses of logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolkit import dtypes, ops
from toolkit.compat.tensorflow import math, random
from toolkit.compat.tensorflow.arguments import check_within, extents, refuse
from toolkit.compat.tensorflow.boundary import operations
from toolkit.compat.tensorflow.math import (
    l2_normalize as l2_normalize,
    log_softmax as log_softmax,
    softmax as softmax,
    top_k as top_k,
    zero_fraction as zero_fraction,
)
from toolkit.compat.tensorflow.renaming import functions
from toolkit.compat.tensorflow.views import convert
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, UnsupportedError

globals().update(
    functions(
        {
            "depth_to_space": (ops.depth_to_space, "input block_size"),
            "elu": (ops.elu, "features"),
            "in_top_k": (ops.in_top_k, "targets predictions k"),
            "leaky_relu": (ops.leaky_relu, "features alpha"),
            "relu": (ops.relu, "features"),
            "relu6": (ops.relu6, "features"),
            "selu": (ops.selu, "features"),
            "sigmoid": (ops.sigmoid, "x"),
            "softplus": (ops.softplus, "features"),
            "softsign": (ops.softsign, "features"),
            "space_to_depth": (ops.space_to_depth, "input block_size"),
            "tanh": (ops.tanh, "x"),
        }
    )
)


def gelu(features: Any, approximate: bool = False, name: Any = None) -> Tensor:
    """x * P(X <= x) for a normal X, by tanh where an approximation will do."""
    return ops.gelu(features, approximate)


def silu(features: Any, beta: float = 1.0) -> Tensor:
    """x * sigmoid(beta * x)"""
    return ops.multiply(features, ops.sigmoid(ops.multiply(beta, features)))


swish = silu


def crelu(features: Any, axis: int = -1, name: Any = None) -> Tensor:
    """relu(x) and relu(-x), one after the other along an axis."""
    return ops.relu(ops.concatenate([features, ops.negative(features)], axis))


def dropout(
    x: Any, rate: Any, noise_shape: Any = None, seed: Any = None, name: Any = None
) -> Tensor:
    """Each element 0 with the probability rate in [0, 1), else times 1 / (1 - rate)."""
    if not 0 <= float(rate) < 1:
        raise ArgumentError(f"dropout: expected a rate in [0, 1); received {rate}")
    shape = None if noise_shape is None else extents(noise_shape)
    return random.core.dropout(x, float(rate), shape, random.source(seed))


def bias_add(
    value: Any, bias: Any, data_format: Any = None, name: Any = None
) -> Tensor:
    """The value with a vector added along its channels."""
    first = bool(data_format) and data_format.startswith("NC")
    spatial = convert(value).ndim - 2 if first else 0
    return ops.add(value, ops.reshape(bias, (-1, *[1] * spatial)))


def l2_loss(t: Any, name: Any = None) -> Tensor:
    """Half the sum of squares."""
    return ops.sum(ops.square(t)) / 2


def moments(
    x: Any, axes: Any, shift: Any = None, keepdims: bool = False, name: Any = None
) -> tuple[Tensor, Tensor]:
    """Mean and variance along axes; `shift` has no effect, as there.

    Those of integers are integers, cut off towards zero.
    """
    x = convert(x)
    if x.dtype not in dtypes.INEXACT:
        mean = math.reduce_mean(x, axes, True)
        variance = math.reduce_mean(ops.square(x - mean), axes, keepdims)
        return math.reduce_mean(x, axes, keepdims), variance
    return ops.moments(x, extents(axes), bool(keepdims))


def batch_normalization(
    x: Any,
    mean: Any,
    variance: Any,
    offset: Any,
    scale: Any,
    variance_epsilon: Any,
    name: Any = None,
) -> Tensor:
    """(x - mean) / sqrt(variance + variance_epsilon) * scale + offset, broadcast."""
    inverse = ops.rsqrt(ops.add(variance, variance_epsilon))
    inverse = inverse if scale is None else inverse * scale
    y = ops.multiply(ops.subtract(x, mean), inverse)
    return y if offset is None else y + offset


def embedding_lookup(
    params: Any, ids: Any, max_norm: Any = None, name: Any = None
) -> Tensor:
    """The rows of params that ids name, each clipped to a norm if one is given.

    Ids are at least 0 and below the number of rows; not checked in a trace.
    """
    params, ids = convert(params), convert(ids)
    check_within("embedding_lookup", ids, params.shape[0])
    rows = ops.take(params, ids, 0)
    if max_norm is None:
        return rows
    return math.clip_by_norm(rows, max_norm, axes=-1)


# --- convolutions and pooling ---------------------------------------------------------


def _layout(data_format: str | None) -> str:
    """The core's word for NHWC and the like."""
    if data_format is None or data_format in ("NWC", "NHWC", "NDHWC"):
        return "channels_last"
    if data_format in ("NCW", "NCHW", "NCDHW"):
        return "channels_first"
    raise ArgumentError(f"data_format: expected NHWC or NCHW; received {data_format!r}")


def _spatial(sizes: Any, layout: str, count: int, what: str) -> tuple[int, ...]:
    """Sizes of the spatial axes, of one number, one for each, or one for each axis."""
    given = extents(sizes)
    if len(given) == 1:
        return given * count
    if len(given) == count:
        return given
    inner = given[1:-1] if layout == "channels_last" else given[2:]
    outer = [*given[:1], *(given[-1:] if layout == "channels_last" else given[1:2])]
    if len(inner) != count or set(outer) != {1}:
        raise UnsupportedError(
            f"{what}: expected sizes of {count} spatial axes, and 1 for others; "
            f"received {given}"
        )
    return inner


def _padded(x: Any, padding: Any, count: int) -> tuple[Tensor, str]:
    """What is to be convolved, and how: explicit padding is made before."""
    if isinstance(padding, str):
        return convert(x), padding.lower()
    pairs = [tuple(map(int, pair)) for pair in padding]
    if len(pairs) != count + 2:
        raise ArgumentError(
            f"padding: expected a pair for each of {count + 2} axes; received {pairs}"
        )
    return ops.pad(x, pairs), "valid"


def _convolving(operation: Callable[..., Tensor], name: str, count: int) -> Any:
    def convolve(
        input: Any,
        filters: Any,
        strides: Any,
        padding: Any,
        data_format: Any = None,
        dilations: Any = None,
        name: Any = None,
    ) -> Tensor:
        layout = _layout(data_format)
        x, words = _padded(input, padding, count)
        steps = _spatial(strides, layout, count, "strides")
        holes = _spatial(dilations or 1, layout, count, "dilations")
        return operation(x, filters, steps, words, layout, holes)

    convolve.__name__ = convolve.__qualname__ = name
    convolve.__doc__ = (
        f"The convolution of `ops.{operation.__name__}` over {count} spatial axes; "
        "padding: SAME, VALID or pairs."
    )
    return convolve


conv2d: Any = _convolving(ops.conv, "conv2d", 2)
conv3d: Any = _convolving(ops.conv, "conv3d", 3)


def conv1d(
    input: Any,
    filters: Any,
    stride: Any,
    padding: Any,
    data_format: Any = "NWC",
    dilations: Any = None,
    name: Any = None,
) -> Tensor:
    """The convolution over one spatial axis."""
    return _convolving(ops.conv, "conv1d", 1)(
        input, filters, stride, padding, data_format, dilations
    )


def depthwise_conv2d(
    input: Any,
    filter: Any,
    strides: Any,
    padding: Any,
    data_format: Any = None,
    dilations: Any = None,
    name: Any = None,
) -> Tensor:
    """The convolution of each channel with filters of its own."""
    return _convolving(ops.depthwise_conv, "depthwise_conv2d", 2)(
        input, filter, strides, padding, data_format, dilations
    )


def separable_conv2d(
    input: Any,
    depthwise_filter: Any,
    pointwise_filter: Any,
    strides: Any,
    padding: Any,
    data_format: Any = None,
    dilations: Any = None,
    name: Any = None,
) -> Tensor:
    """A convolution of each channel, then one across channels."""
    y = depthwise_conv2d(
        input, depthwise_filter, strides, padding, data_format, dilations
    )
    return conv2d(y, pointwise_filter, 1, "VALID", data_format)


def conv2d_transpose(
    input: Any,
    filters: Any,
    output_shape: Any,
    strides: Any,
    padding: str = "SAME",
    data_format: Any = "NHWC",
    dilations: Any = None,
    name: Any = None,
) -> Tensor:
    """The gradient of a convolution as an operation of its own.

    Args:
        input: of a batch.
        filters: (height, width, channels out, channels in).
        output_shape: as the convolution would be given it, batch and channels too.
        strides, padding, data_format, dilations: of the convolution.
    """
    layout = _layout(data_format)
    steps = _spatial(strides, layout, 2, "strides")
    holes = _spatial(dilations or 1, layout, 2, "dilations")
    at = slice(1, 3) if layout == "channels_last" else slice(2, 4)
    wanted, kernel = extents(output_shape)[at], convert(filters).shape[:2]
    rests = []
    for n, size, k, s, d in zip(
        convert(input).shape[at], wanted, kernel, steps, holes, strict=True
    ):
        k = (k - 1) * d + 1
        least = (n - 1) * s + (k if padding == "VALID" else k - 2 * (k // 2))
        rests.append(size - least)
    y = ops.conv_transpose(
        input, filters, steps, padding.lower(), tuple(rests), layout, holes
    )
    if y.shape[at] != wanted:
        raise UnsupportedError(
            f"conv2d_transpose: output_shape {wanted} is not supported for an input of "
            f"{convert(input).shape[at]}; the nearest is {y.shape[at]}"
        )
    return y


def _pooling(operation: Callable[..., Tensor], name: str, count: int | None) -> Any:
    def pool(
        input: Any,
        ksize: Any,
        strides: Any,
        padding: Any,
        data_format: Any = None,
        name: Any = None,
    ) -> Tensor:
        refuse("pool", padding=(isinstance(padding, str), True))
        layout, axes = _layout(data_format), count or convert(input).ndim - 2
        window = _spatial(ksize, layout, axes, "ksize")
        steps = _spatial(strides, layout, axes, "strides")
        return operation(input, window, steps, padding.lower(), layout)

    pool.__name__ = pool.__qualname__ = name
    pool.__doc__ = f"`ops.{operation.__name__}` of windows; padding: SAME or VALID."
    return pool


max_pool: Any = _pooling(ops.max_pool, "max_pool", None)
max_pool1d: Any = _pooling(ops.max_pool, "max_pool1d", 1)
max_pool2d: Any = _pooling(ops.max_pool, "max_pool2d", 2)
max_pool3d: Any = _pooling(ops.max_pool, "max_pool3d", 3)
avg_pool: Any = _pooling(ops.average_pool, "avg_pool", None)
avg_pool1d: Any = _pooling(ops.average_pool, "avg_pool1d", 1)
avg_pool2d: Any = _pooling(ops.average_pool, "avg_pool2d", 2)
avg_pool3d: Any = _pooling(ops.average_pool, "avg_pool3d", 3)


def convolution(
    input: Any,
    filters: Any,
    strides: Any = None,
    padding: Any = "VALID",
    data_format: Any = None,
    dilations: Any = None,
    name: Any = None,
) -> Tensor:
    """The convolution over as many spatial axes as the input has."""
    convolve = _convolving(ops.conv, "convolution", convert(input).ndim - 2)
    return convolve(input, filters, strides or 1, padding, data_format, dilations)


def pool(
    input: Any,
    window_shape: Any,
    pooling_type: str,
    strides: Any = None,
    padding: str = "VALID",
    data_format: Any = None,
    dilations: Any = None,
    name: Any = None,
) -> Tensor:
    """`max_pool` or `avg_pool`, as pooling_type MAX or AVG says."""
    refuse("pool", dilations=(dilations, None))
    if pooling_type not in ("MAX", "AVG"):
        raise ArgumentError(f"pool: expected MAX or AVG; received {pooling_type!r}")
    chosen = max_pool if pooling_type == "MAX" else avg_pool
    return chosen(input, window_shape, strides or 1, padding, data_format)


def local_response_normalization(
    input: Any,
    depth_radius: int = 5,
    bias: float = 1.0,
    alpha: float = 1.0,
    beta: float = 0.5,
    name: Any = None,
) -> Tensor:
    """x / (bias + alpha * sum of squares of the channels around) ** beta"""
    x = convert(input)
    squares = ops.pad(
        ops.square(x), [(0, 0)] * (x.ndim - 1) + [(depth_radius, depth_radius)]
    )
    count = x.shape[-1]
    around = [squares[..., i : i + count] for i in range(2 * depth_radius + 1)]
    return x / ops.power(bias + alpha * math.add_n(around), beta)


lrn = local_response_normalization


# --- losses of logits -----------------------------------------------------------------


def softmax_cross_entropy_with_logits(
    labels: Any, logits: Any, axis: int = -1, name: Any = None
) -> Tensor:
    """-sum(labels * log_softmax(logits)) along an axis."""
    return ops.negative(ops.sum(labels * ops.log_softmax(logits, axis), axis))


def sparse_softmax_cross_entropy_with_logits(
    labels: Any, logits: Any, name: Any = None
) -> Tensor:
    """-log_softmax(logits)[label] for integer labels."""
    return ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)


def sigmoid_cross_entropy_with_logits(
    labels: Any = None, logits: Any = None, name: Any = None
) -> Tensor:
    """softplus(logits) - labels * logits"""
    logits = convert(logits)
    return ops.softplus(logits) - ops.multiply(labels, logits)


def weighted_cross_entropy_with_logits(
    labels: Any, logits: Any, pos_weight: Any, name: Any = None
) -> Tensor:
    """As sigmoid_cross_entropy_with_logits, true labels weighted by pos_weight."""
    logits, labels = convert(logits), convert(labels)
    weight = 1 + (ops.convert_to_tensor(pos_weight) - 1) * labels
    return (1 - labels) * logits + weight * ops.softplus(ops.negative(logits))


def compute_average_loss(
    per_example_loss: Any, sample_weight: Any = None, global_batch_size: Any = None
) -> Tensor:
    """The sum of losses, weighted if asked, divided by the size of the batch."""
    losses = convert(per_example_loss)
    if sample_weight is not None:
        losses = ops.multiply(losses, sample_weight)
    count = losses.shape[0] if global_batch_size is None else global_batch_size
    return ops.sum(losses) / ops.cast(count, losses.dtype)


def scale_regularization_loss(regularization_loss: Any) -> Tensor:
    """The sum of losses: there is one replica."""
    return ops.sum(regularization_loss)


def ctc_loss(
    labels: Any,
    logits: Any,
    label_length: Any,
    logit_length: Any,
    logits_time_major: bool = True,
    unique: Any = None,
    blank_index: int | None = None,
    name: Any = None,
) -> Tensor:
    """-log of the probability of labels under any alignment, for each sample.

    Args:
        labels: integers, (batch, most labels).
        logits: (time, batch, classes), or (batch, time, classes) if not time major.
        label_length, logit_length: how many of each sample count.
        logits_time_major: which of these logits are.
        unique: only None.
        blank_index: the class that stands for nothing; 0 by default, and negative from
            the end.
    """
    refuse("ctc_loss", unique=(unique, None))
    logits = convert(logits)
    logits = ops.swapaxes(logits, 0, 1) if logits_time_major else logits
    blank = (blank_index or 0) % logits.shape[-1]
    return ops.ctc_loss(labels, logits, label_length, logit_length, blank)


operations(__name__)
