"""`tf.nn`: activations, convolutions, pooling and losses of logits."""

from __future__ import annotations

from typing import Any

from toolkit import dtypes, ops
from toolkit.compat.tensorflow import math, random
from toolkit.compat.tensorflow.arguments import check_within, extents, refuse
from toolkit.compat.tensorflow.boundary import make_operations
from toolkit.compat.tensorflow.candidates import (
    all_candidate_sampler as all_candidate_sampler,
    compute_accidental_hits as compute_accidental_hits,
    fixed_unigram_candidate_sampler as fixed_unigram_candidate_sampler,
    nce_loss as nce_loss,
    sampled_softmax_loss as sampled_softmax_loss,
)
from toolkit.compat.tensorflow.convolutions import (
    atrous_conv2d as atrous_conv2d,
    atrous_conv2d_transpose as atrous_conv2d_transpose,
    avg_pool as avg_pool,
    avg_pool1d as avg_pool1d,
    avg_pool2d as avg_pool2d,
    avg_pool3d as avg_pool3d,
    conv1d as conv1d,
    conv1d_transpose as conv1d_transpose,
    conv2d as conv2d,
    conv2d_transpose as conv2d_transpose,
    conv3d as conv3d,
    conv3d_transpose as conv3d_transpose,
    conv_transpose as conv_transpose,
    convolution as convolution,
    depthwise_conv2d as depthwise_conv2d,
    local_response_normalization as local_response_normalization,
    lrn as lrn,
    max_pool as max_pool,
    max_pool1d as max_pool1d,
    max_pool2d as max_pool2d,
    max_pool3d as max_pool3d,
    pool as pool,
    separable_conv2d as separable_conv2d,
)
from toolkit.compat.tensorflow.ctc import (
    collapse_repeated as collapse_repeated,
    ctc_beam_search_decoder as ctc_beam_search_decoder,
    ctc_greedy_decoder as ctc_greedy_decoder,
)
from toolkit.compat.tensorflow.math import (
    approx_max_k as approx_max_k,
    approx_min_k as approx_min_k,
    l2_normalize as l2_normalize,
    log_softmax as log_softmax,
    softmax as softmax,
    top_k as top_k,
    zero_fraction as zero_fraction,
)
from toolkit.compat.tensorflow.moments import (
    batch_norm_with_global_normalization as batch_norm_with_global_normalization,
    log_poisson_loss as log_poisson_loss,
    normalize_moments as normalize_moments,
    sufficient_statistics as sufficient_statistics,
    weighted_moments as weighted_moments,
)
from toolkit.compat.tensorflow.parameter_names import rename_functions
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.compat.tensorflow.type_aliases import AxisLike, ShapeLike
from toolkit.compat.tensorflow.windowed import (
    dilation2d as dilation2d,
    erosion2d as erosion2d,
    max_pool_with_argmax as max_pool_with_argmax,
)
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError
from toolkit.type_aliases import TensorLike

globals().update(
    rename_functions(
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


def gelu(
    features: TensorLike, approximate: bool = False, name: str | None = None
) -> Tensor:
    """Return x * P(X <= x) for a normal X; `approximate` uses tanh."""
    return ops.gelu(features, approximate)


def silu(features: TensorLike, beta: float = 1.0) -> Tensor:
    """Return x * sigmoid(beta * x)."""
    return ops.multiply(features, ops.sigmoid(ops.multiply(beta, features)))


swish = silu


def crelu(features: TensorLike, axis: int = -1, name: str | None = None) -> Tensor:
    """Concatenate relu(x) and relu(-x) along an axis."""
    return ops.relu(ops.concatenate([features, ops.negative(features)], axis))


def dropout(
    x: Any,
    rate: Any,
    noise_shape: ShapeLike | None = None,
    seed: Any = None,
    name: str | None = None,
) -> Tensor:
    """Set elements to 0 with probability rate in [0, 1), else multiply by 1 / (1 -
    rate)."""
    if not 0 <= float(rate) < 1:
        raise ArgumentError(f"dropout: expected a rate in [0, 1); received {rate}")
    shape = None if noise_shape is None else extents(noise_shape)
    return random.core.dropout(x, float(rate), shape, random.source(seed))


def bias_add(
    value: TensorLike,
    bias: TensorLike,
    data_format: Any = None,
    name: str | None = None,
) -> Tensor:
    """Add a vector along the channels."""
    first = bool(data_format) and data_format.startswith("NC")
    spatial = convert(value).ndim - 2 if first else 0
    return ops.add(value, ops.reshape(bias, (-1, *[1] * spatial)))


def l2_loss(t: TensorLike, name: str | None = None) -> Tensor:
    """Return half the sum of squares."""
    return ops.sum(ops.square(t)) / 2


def moments(
    x: Any,
    axes: AxisLike,
    shift: object = None,
    keepdims: bool = False,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Return mean and variance along axes; as in TensorFlow, `shift` has no effect.

    The results for integers are integers, truncated.
    """
    x = convert(x)
    if x.dtype not in dtypes.INEXACT:
        mean = math.reduce_mean(x, axes, True)
        variance = math.reduce_mean(ops.square(x - mean), axes, keepdims)
        return math.reduce_mean(x, axes, keepdims), variance
    return ops.moments(x, extents(axes), bool(keepdims))


def batch_normalization(
    x: TensorLike,
    mean: TensorLike,
    variance: TensorLike,
    offset: TensorLike,
    scale: TensorLike,
    variance_epsilon: TensorLike,
    name: str | None = None,
) -> Tensor:
    """Return (x - mean) / sqrt(variance + variance_epsilon) * scale + offset."""
    inverse = ops.rsqrt(ops.add(variance, variance_epsilon))
    inverse = inverse if scale is None else inverse * scale
    y = ops.multiply(ops.subtract(x, mean), inverse)
    return y if offset is None else y + offset


def embedding_lookup(
    params: Any, ids: Any, max_norm: Any = None, name: str | None = None
) -> Tensor:
    """Gather the rows of params at ids, and clip each to a norm if given.

    Ids are at least 0 and below the number of rows; not checked in a trace.
    """
    params, ids = convert(params), convert(ids)
    check_within("embedding_lookup", ids, params.shape[0])
    rows = ops.take(params, ids, 0)
    if max_norm is None:
        return rows
    return math.clip_by_norm(rows, max_norm, axes=-1)


# --- losses of logits -----------------------------------------------------------------


def softmax_cross_entropy_with_logits(
    labels: TensorLike, logits: TensorLike, axis: int = -1, name: str | None = None
) -> Tensor:
    """Return -sum(labels * log_softmax(logits)) along an axis."""
    return ops.negative(ops.sum(labels * ops.log_softmax(logits, axis), axis))


def sparse_softmax_cross_entropy_with_logits(
    labels: TensorLike, logits: TensorLike, name: str | None = None
) -> Tensor:
    """Return -log_softmax(logits)[label] for integer labels."""
    return ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)


def sigmoid_cross_entropy_with_logits(
    labels: Any = None,
    logits: TensorLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Return softplus(logits) - labels * logits."""
    if labels is None or logits is None:
        raise ArgumentError(
            "sigmoid_cross_entropy_with_logits: expected labels and logits; received "
            "None for one of them"
        )
    logits = convert(logits)
    return ops.softplus(logits) - ops.multiply(labels, logits)


def weighted_cross_entropy_with_logits(
    labels: Any, logits: Any, pos_weight: TensorLike, name: str | None = None
) -> Tensor:
    """Return the sigmoid cross entropy with weight pos_weight for true labels."""
    logits, labels = convert(logits), convert(labels)
    weight = 1 + (ops.convert_to_tensor(pos_weight) - 1) * labels
    return (1 - labels) * logits + weight * ops.softplus(ops.negative(logits))


def compute_average_loss(
    per_example_loss: Any,
    sample_weight: TensorLike | None = None,
    global_batch_size: Any = None,
) -> Tensor:
    """Return the sum of (weighted) losses, divided by the size of the batch."""
    losses = convert(per_example_loss)
    if sample_weight is not None:
        losses = ops.multiply(losses, sample_weight)
    count = losses.shape[0] if global_batch_size is None else global_batch_size
    return ops.sum(losses) / ops.cast(count, losses.dtype)


def scale_regularization_loss(regularization_loss: Any) -> Tensor:
    """Return the sum of losses: there is one replica."""
    return ops.sum(regularization_loss)


def ctc_loss(
    labels: TensorLike,
    logits: Any,
    label_length: TensorLike,
    logit_length: TensorLike,
    logits_time_major: bool = True,
    unique: Any = None,
    blank_index: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Return -log of the probability of labels under any alignment, for each sample.

    Args:
        labels: integers, (batch, maximum length).
        logits: (time, batch, classes), or (batch, time, classes) if not time major.
        label_length, logit_length: the lengths of each sample.
        logits_time_major: selects the layout of logits.
        unique: only None.
        blank_index: the class of the blank; 0 by default, and negative from the end.
    """
    refuse("ctc_loss", unique=(unique, None))
    logits = convert(logits)
    logits = ops.swapaxes(logits, 0, 1) if logits_time_major else logits
    blank = (blank_index or 0) % logits.shape[-1]
    return ops.ctc_loss(labels, logits, label_length, logit_length, blank)


make_operations(__name__)
