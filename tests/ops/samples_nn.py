"""Samples of convolutions, pooling, activations, normalizations, losses, attention."""

import functools
import math

import numpy as np

from tests.ops import references_nn as ref
from tests.ops.table import Sample, booleans, distinct, integers, sample, unary, uniform
from toolkit import ops

# --- convolutions ---------------------------------------------------------------------


def conv_sample(name, x, w, first=False, **attrs):
    """Return a row of a convolution; with `first`, of channels-first images."""
    renamed = {"dilation_rate": "dilation"}
    reference = functools.partial(
        getattr(ref, name), **{renamed.get(k, k): v for k, v in attrs.items()}
    )
    if first:
        reference = ref.channels_first(reference)
        attrs["data_format"] = "channels_first"
    x, w = uniform(-1, 1, x), uniform(-1, 1, w)
    return sample(name, x, w, numpy=reference, tolerance=4.0, **attrs)


CONVOLUTIONS = [
    conv_sample("conv", (2, 7, 3), (3, 3, 4)),
    conv_sample("conv", (2, 7, 3), (2, 3, 4), strides=2, padding="same"),
    conv_sample("conv", (1, 9, 2), (3, 2, 2), padding="same", dilation_rate=2),
    conv_sample("conv", (2, 5, 6, 2), (3, 2, 2, 3)),
    conv_sample("conv", (2, 5, 6, 2), (3, 3, 2, 3), strides=(2, 1), padding="same"),
    conv_sample("conv", (1, 6, 6, 2), (2, 2, 2, 1), dilation_rate=(2, 1)),
    conv_sample("conv", (1, 5, 5, 4), (3, 3, 2, 6), padding="same"),
    conv_sample("conv", (1, 5, 4, 3), (1, 1, 3, 2)),
    conv_sample("conv", (0, 5, 5, 2), (3, 3, 2, 2)),
    conv_sample("conv", (1, 4, 3, 4, 2), (2, 2, 2, 2, 2), padding="same"),
    conv_sample("conv", (1, 5, 4, 4, 1), (2, 2, 2, 1, 2), strides=2),
    conv_sample("conv", (2, 3, 5, 4), (3, 2, 3, 2), first=True, padding="same"),
    conv_sample("conv", (1, 2, 7), (3, 2, 2), first=True, strides=2),
    conv_sample("depthwise_conv", (2, 6, 3), (3, 3, 2), padding="same"),
    conv_sample("depthwise_conv", (2, 5, 5, 3), (3, 3, 3, 1), strides=2),
    conv_sample("depthwise_conv", (1, 5, 5, 2), (2, 2, 2, 3), dilation_rate=2),
    conv_sample("depthwise_conv", (1, 3, 5, 5), (2, 2, 3, 2), first=True),
    conv_sample("conv_transpose", (2, 4, 3), (3, 2, 3)),
    conv_sample("conv_transpose", (2, 4, 3), (3, 2, 3), strides=2, padding="same"),
    conv_sample("conv_transpose", (1, 3, 2), (2, 2, 2), strides=4),
    conv_sample("conv_transpose", (1, 3, 2), (2, 2, 2), strides=3, padding="same"),
    conv_sample("conv_transpose", (1, 3, 2), (3, 2, 2), strides=2, output_padding=1),
    conv_sample("conv_transpose", (1, 3, 2), (2, 2, 2), strides=2, output_padding=3),
    conv_sample("conv_transpose", (1, 3, 4, 2), (3, 2, 3, 2), strides=(1, 2)),
    conv_sample(
        "conv_transpose", (1, 3, 4, 2), (3, 3, 1, 2), strides=2, padding="same"
    ),
    conv_sample("conv_transpose", (1, 3, 3, 2), (2, 2, 1, 2), dilation_rate=2),
    conv_sample("conv_transpose", (1, 2, 3, 3), (2, 2, 1, 2), first=True, strides=2),
    conv_sample("conv_transpose", (1, 2, 3, 2, 2), (2, 2, 2, 2, 2), strides=2),
    sample(
        "separable_conv",
        *(uniform(-1, 1, (2, 5, 5, 2)), uniform(-1, 1, (3, 3, 2, 2))),
        uniform(-1, 1, (1, 1, 4, 3)),
        numpy=lambda x, w, v: ref.conv(ref.depthwise_conv(x, w, 2, "same"), v),
        strides=2,
        padding="same",
        tolerance=4.0,
    ),
]

# --- pooling --------------------------------------------------------------------------


def pool_samples(x, size, strides=None, padding="valid", first=False):
    attrs = {"strides": strides, "padding": padding}
    rows = []
    for name, function in (("max_pool", np.nanmax), ("average_pool", np.nanmean)):
        reference = functools.partial(ref.pool, function, size=size, **attrs)
        data_format = "channels_first" if first else "channels_last"
        rows.append(
            sample(
                name,
                distinct(x),
                numpy=ref.channels_first(reference) if first else reference,
                pool_size=size,
                data_format=data_format,
                **attrs,
            )
        )
    return rows


class Squared(Sample):
    """A row whose result is squared, so that its gradient depends on the inputs."""

    def expected(self, inputs):
        return super().expected(inputs) ** 2

    def call(self, *inputs):
        return ops.square(super().call(*inputs))


def adaptive_samples(x, sizes):
    return [
        sample(
            f"adaptive_{name}_pool",
            distinct(x),
            numpy=functools.partial(ref.adaptive, function, sizes=sizes),
            output_size=sizes,
        )
        for name, function in (("max", np.max), ("average", np.mean))
    ]


POOLS = [
    *pool_samples((2, 6, 2), 2),
    *pool_samples((1, 7, 2), 3, 2, "same"),
    *pool_samples((2, 5, 6, 2), 2, 1),
    *pool_samples((1, 5, 6, 2), (3, 2), (2, 3), "same"),
    *pool_samples((1, 5, 5, 1), 2, 3, "same"),
    *pool_samples((1, 2, 4, 4), 2, first=True),
    *pool_samples((1, 4, 3, 4, 1), 2, 2, "same"),
    Squared(
        "max_pool",
        [distinct((2, 5, 2))],
        {"pool_size": 2, "strides": 1, "padding": "same"},
        functools.partial(ref.pool, np.nanmax, size=2, strides=1, padding="same"),
        label="squared",
    ),
    *adaptive_samples((2, 7, 2), 3),
    *adaptive_samples((1, 5, 4, 2), (2, 6)),
    *adaptive_samples((1, 6, 4, 2), (3, 4)),
]

# --- activations ----------------------------------------------------------------------

erf = np.vectorize(math.erf, otypes=[float])


def tanh_gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def shrink(x):
    return np.sign(x) * np.maximum(np.abs(x) - 0.5, 0)


def split_gate(x):
    first, second = np.split(x, 2, axis=-1)
    return first / (1 + np.exp(-second))


SELU = 1.0507009873554805, 1.6732632423543772
REFERENCES = {
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.2 * x),
    "elu": lambda x: np.where(x > 0, x, np.exp(x) - 1),
    "selu": lambda x: SELU[0] * np.where(x > 0, x, SELU[1] * (np.exp(x) - 1)),
    "celu": lambda x: np.where(x > 0, x, np.exp(x) - 1),
    "softplus": lambda x: np.log(1 + np.exp(x)),
    "log_sigmoid": lambda x: -np.log(1 + np.exp(-x)),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "swish": lambda x: x / (1 + np.exp(-x)),
    "gelu": tanh_gelu,
    "tanh_shrink": lambda x: x - np.tanh(x),
    "squareplus": lambda x: (x + np.sqrt(x**2 + 4)) / 2,
    "sparse_plus": lambda x: np.where(x < 1, np.maximum(x + 1, 0) ** 2 / 4, x),
    "sparse_sigmoid": lambda x: np.clip((x + 1) / 2, 0, 1),
    "hard_sigmoid": lambda x: np.clip(x / 6 + 0.5, 0, 1),
    "hard_silu": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "hard_swish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "hard_tanh": lambda x: np.clip(x, -1, 1),
    "hard_shrink": lambda x: np.where(np.abs(x) > 0.5, x, 0),
    "soft_shrink": shrink,
}

ACTIVATIONS = [
    *(row for name, f in REFERENCES.items() for row in unary(name, -8, 8, numpy=f)),
    sample(
        "leaky_relu",
        uniform(-2, 2),
        numpy=lambda x: np.where(x > 0, x, 0.01 * x),
        negative_slope=0.01,
    ),
    sample(
        "elu",
        uniform(-2, 2),
        numpy=lambda x: np.where(x > 0, x, 0.5 * (np.exp(x) - 1)),
        alpha=0.5,
    ),
    sample(
        "celu",
        uniform(-2, 2),
        numpy=lambda x: np.where(x > 0, x, 2 * (np.exp(x / 2) - 1)),
        alpha=2.0,
    ),
    sample(
        "gelu",
        uniform(-4, 4),
        numpy=lambda x: x * (1 + erf(x / np.sqrt(2))) / 2,
        approximate=False,
    ),
    sample(
        "squareplus",
        uniform(-4, 4),
        numpy=lambda x: (x + np.sqrt(x**2 + 0.5)) / 2,
        b=0.5,
    ),
    sample(
        "threshold",
        uniform(-2, 2),
        numpy=lambda x: np.where(x > 0.5, x, 7),
        threshold=0.5,
        default_value=7.0,
    ),
    sample("glu", uniform(-2, 2, (3, 4)), numpy=split_gate),
    sample(
        "glu",
        uniform(-2, 2, (4, 3)),
        numpy=lambda x: split_gate(x.T).T,
        axis=0,
    ),
]


def axis_samples(name, reference):
    return [
        sample(
            name,
            uniform(-3, 3, shape),
            numpy=functools.partial(reference, axis=axis),
            axis=axis,
        )
        for shape, axis in (
            ((3, 4), -1),
            ((3, 4), 0),
            ((2, 3, 4), (0, 2)),
            ((2, 3), None),
            ((0, 3), -1),
            ((5,), 0),
        )
    ]


SOFTMAXES = [
    *axis_samples("softmax", ref.softmax),
    *axis_samples("log_softmax", lambda x, axis: np.log(ref.softmax(x, axis))),
    sample("sparsemax", uniform(-2, 2, (3, 5)), numpy=ref.sparsemax),
    sample(
        "sparsemax",
        uniform(-2, 2, (3, 2)),
        numpy=lambda x: ref.sparsemax(x.T).T,
        axis=0,
    ),
]

# --- normalizations -------------------------------------------------------------------


def batch_norm(x, mean, variance, offset=0.0, scale=1.0, epsilon=1e-3):
    """Normalize along the last axis."""
    return (x - mean) / np.sqrt(variance + epsilon) * scale + offset


def norm(x, order, axis):
    return np.sum(np.abs(x) ** order, axis=axis, keepdims=True) ** (1 / order)


NORMALIZATIONS = [
    *(
        sample(
            "moments",
            uniform(-2, 2, (2, 3, 4)),
            numpy=lambda x, a=axes, k=keepdims: (
                np.mean(x, axis=a, keepdims=k),
                np.var(x, axis=a, keepdims=k),
            ),
            axes=axes,
            keepdims=keepdims,
        )
        for axes, keepdims in ((0, False), ((0, 2), True), ((0, 1), False))
    ),
    sample(
        "batch_normalization",
        *(uniform(-2, 2, (2, 3, 4)), uniform(-1, 1, 4), uniform(0.5, 2, 4)),
        numpy=batch_norm,
        axis=-1,
    ),
    sample(
        "batch_normalization",
        *(uniform(-2, 2, (2, 4, 3)), uniform(-1, 1, 4), uniform(0.5, 2, 4)),
        numpy=lambda x, m, v: batch_norm(x, m[:, None], v[:, None], epsilon=0.1),
        axis=1,
        epsilon=0.1,
    ),
    sample(
        "batch_normalization",
        *(uniform(-2, 2, (5, 4)), uniform(-1, 1, 4), uniform(0.5, 2, 4), 1),
        *(uniform(-1, 1, 4), uniform(-1, 1, 4)),
        numpy=lambda x, m, v, axis, offset, scale: batch_norm(x, m, v, offset, scale),
    ),
    sample("layer_normalization", uniform(-2, 2, (3, 4)), numpy=ref.layer_norm),
    sample(
        "layer_normalization",
        *(uniform(-2, 2, (3, 4)), uniform(-1, 1, 4), uniform(-1, 1, 4)),
        numpy=functools.partial(ref.layer_norm, epsilon=1e-2),
        epsilon=1e-2,
    ),
    sample(
        "layer_normalization",
        *(uniform(-2, 2, (2, 3, 4)), uniform(-1, 1, (2, 3)), uniform(-1, 1, (2, 3))),
        numpy=lambda x, g, b: ref.layer_norm(x, g[..., None], b[..., None], (0, 1)),
        axis=(0, 1),
    ),
    sample(
        "rms_normalization",
        *(uniform(-2, 2, (3, 4)), uniform(-1, 1, 4)),
        numpy=lambda x, g: g * x / np.sqrt(np.mean(x**2, -1, keepdims=True) + 1e-7),
    ),
    sample(
        "rms_normalization",
        uniform(-2, 2, (2, 3, 4)),
        numpy=lambda x: x / np.sqrt(np.mean(x**2, (1, 2), keepdims=True) + 1e-2),
        axis=(1, 2),
        epsilon=1e-2,
    ),
    *(
        Sample(
            "normalize",
            [uniform(0.5, 2, (2, 3, 4))],
            {"axis": axis, "order": order},
            lambda x, a=axis, p=order: x / norm(x, p, a),
        )
        for axis, order in ((-1, 2), (0, 1), ((0, 2), 2), (1, 3))
    ),
    sample(
        "psnr",
        *(uniform(0, 1), uniform(0, 1)),
        numpy=lambda a, b: 10 * np.log10(4 / np.mean((a - b) ** 2)),
        max_val=2.0,
    ),
]

# --- losses ---------------------------------------------------------------------------


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def sparse_crossentropy(labels, p, axis=-1):
    target = ref.one_hot(labels, p.shape[axis], axis)
    return ref.categorical_crossentropy(target, p, axis)


LOSSES = [
    sample(
        "binary_crossentropy",
        *(uniform(0, 1), uniform(0.05, 0.95)),
        numpy=ref.binary_crossentropy,
    ),
    sample(
        "binary_crossentropy",
        *(uniform(0, 1), uniform(-4, 4)),
        numpy=lambda t, x: ref.binary_crossentropy(t, sigmoid(x)),
        from_logits=True,
    ),
    sample(
        "categorical_crossentropy",
        *(uniform(0, 1), uniform(0.1, 0.9)),
        numpy=ref.categorical_crossentropy,
    ),
    sample(
        "categorical_crossentropy",
        *(uniform(0, 1, (2, 3, 2)), uniform(-4, 4, (2, 3, 2))),
        numpy=lambda t, x: ref.categorical_crossentropy(t, ref.softmax(x, 1), 1),
        from_logits=True,
        axis=1,
    ),
    sample(
        "sparse_categorical_crossentropy",
        *(integers(0, 4, (3,)), uniform(0.1, 0.9, (3, 4))),
        numpy=sparse_crossentropy,
    ),
    sample(
        "sparse_categorical_crossentropy",
        *(integers(0, 4, (3, 1)), uniform(-4, 4, (3, 4))),
        numpy=lambda t, x: sparse_crossentropy(t[:, 0], ref.softmax(x)),
        from_logits=True,
    ),
    sample(
        "sparse_categorical_crossentropy",
        *(integers(0, 3, (2, 4)), uniform(-4, 4, (2, 3, 4))),
        numpy=lambda t, x: sparse_crossentropy(t, ref.softmax(x, 1), 1),
        from_logits=True,
        axis=1,
    ),
]

# --- attention ------------------------------------------------------------------------


def attention_sample(numpy, heads=2, key_heads=2, sources=4, **attrs):
    return sample(
        "dot_product_attention",
        uniform(-1, 1, (2, 3, heads, 5)),
        *(uniform(-1, 1, (2, sources, key_heads, 5)) for _ in range(2)),
        numpy=numpy,
        tolerance=4.0,
        **attrs,
    )


bias, mask = uniform(-1, 1, (1, 2, 3, 4)), booleans((2, 1, 3, 4))
ATTENTION = [
    attention_sample(ref.attention),
    attention_sample(ref.attention, heads=4),
    attention_sample(functools.partial(ref.attention, scale=0.5), scale=0.5),
    attention_sample(functools.partial(ref.attention, mask=mask), mask=mask),
    attention_sample(functools.partial(ref.attention, bias=bias), bias=bias),
    attention_sample(
        functools.partial(ref.attention, cap=0.5), attn_logits_soft_cap=0.5
    ),
    attention_sample(
        functools.partial(ref.attention, mask=np.tri(3, 4, dtype=bool)),
        is_causal=True,
        flash_attention=False,
    ),
]

SAMPLES = [
    *(*CONVOLUTIONS, *POOLS, *ACTIVATIONS, *SOFTMAXES),
    *(*NORMALIZATIONS, *LOSSES, *ATTENTION),
]
