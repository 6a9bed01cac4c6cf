"""Test masks of attention, and the statistics of noise, against their definitions."""

import numpy as np
import pytest

from tests.helpers import assert_close
from toolkit import layers
from toolkit.errors import ArgumentError

BATCH, QUERIES, KEYS, FEATURES = 3, 4, 5, 6
QUERY_MASK = np.array([[1, 0, 1, 1], [0, 1, 1, 0], [1, 1, 0, 1]], bool)
VALUE_MASK = np.array([[1, 1, 0, 1, 0], [1, 0, 1, 1, 1], [0, 1, 1, 1, 0]], bool)
KEY_MASK = np.array([[0, 1, 1, 1, 1], [1, 1, 1, 0, 1], [1, 1, 1, 1, 0]], bool)
ALLOWED = np.array([[1, 1, 1, 0, 1]] * 2 + [[1, 0, 1, 1, 1]] * 2, bool)[None]


@pytest.fixture
def inputs():
    rng = np.random.default_rng(5)
    extents = (QUERIES, KEYS, KEYS)
    return [rng.normal(size=(BATCH, n, FEATURES)).astype("float32") for n in extents]


def softmax(scores, allowed):
    """Compute the softmax of the allowed scores; zeros if no score is allowed."""
    e = np.exp(scores - scores.max(-1, keepdims=True)) * allowed
    return e / np.maximum(e.sum(-1, keepdims=True), 1e-30)


MASKS = [
    {},
    {"query_mask": QUERY_MASK},
    {"value_mask": VALUE_MASK},
    {"key_mask": KEY_MASK},
    {"query_mask": QUERY_MASK, "value_mask": VALUE_MASK, "key_mask": KEY_MASK},
    {"attention_mask": ALLOWED},
    {"use_causal_mask": True},
    {"query_mask": QUERY_MASK, "attention_mask": ALLOWED, "use_causal_mask": True},
    {"value_mask": VALUE_MASK, "use_causal_mask": True},
]


def all_of(masks):
    """Return which keys each query may attend to: (batch, queries, keys)."""
    allowed = np.ones((BATCH, QUERIES, KEYS), bool)
    if "query_mask" in masks:
        allowed = allowed & masks["query_mask"][:, :, None]
    for name in ("value_mask", "key_mask"):
        if name in masks:
            allowed = allowed & masks[name][:, None, :]
    if "attention_mask" in masks:
        allowed = allowed & masks["attention_mask"]
    if masks.get("use_causal_mask"):
        allowed = allowed & np.tri(QUERIES, KEYS, dtype=bool)
    return allowed


@pytest.mark.parametrize("masks", MASKS, ids=lambda masks: "+".join(masks) or "none")
def test_every_mask_of_multi_head_attention(inputs, masks):
    query, value, key = inputs
    layer = layers.MultiHeadAttention(num_heads=2, key_dim=3, seed=1)
    output, scores = layer(query, value, key, return_attention_scores=True, **masks)
    by_name = {w.path.split("/")[-2] + w.name: w.numpy() for w in layer.weights}
    q, k, v = (
        np.einsum("btf,fhd->bthd", x, by_name[f"{name}kernel"]) + by_name[f"{name}bias"]
        for x, name in ((query, "query"), (key, "key"), (value, "value"))
    )
    reference = softmax(
        np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(3), all_of(masks)[:, None]
    )
    assert_close(scores, reference.astype("float32"))
    mixed = np.einsum("bhqk,bkhd->bqhd", reference, v)
    kernel, bias = by_name["attention_outputkernel"], by_name["attention_outputbias"]
    assert_close(
        output, (np.einsum("bqhd,hdf->bqf", mixed, kernel) + bias).astype("float32")
    )


@pytest.mark.parametrize("cls", [layers.Attention, layers.AdditiveAttention])
@pytest.mark.parametrize("with_query_mask", [False, True])
@pytest.mark.parametrize("with_value_mask", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_every_mask_of_simple_attention(
    inputs, cls, with_query_mask, with_value_mask, causal
):
    query, value, key = inputs
    layer = cls(use_scale=False)
    mask = [
        QUERY_MASK if with_query_mask else None,
        VALUE_MASK if with_value_mask else None,
    ]
    output = layer([query, value, key], mask=mask, use_causal_mask=causal)
    if cls is layers.Attention:
        scores = np.einsum("bqf,bkf->bqk", query, key)
    else:
        scores = np.tanh(query[:, :, None] + key[:, None]).sum(-1)
    allowed = np.ones((BATCH, QUERIES, KEYS), bool)
    if with_value_mask:
        allowed = allowed & VALUE_MASK[:, None]
    if causal:
        allowed = allowed & np.tri(QUERIES, KEYS, dtype=bool)
    reference = np.einsum("bqk,bkf->bqf", softmax(scores, allowed), value)
    if with_query_mask:
        reference = reference * QUERY_MASK[..., None]
    # The result of a query that attends to no key is undefined.
    defined = allowed.any(-1)
    assert_close(output.numpy()[defined], reference.astype("float32")[defined])


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5])
@pytest.mark.parametrize(
    "cls", [layers.AlphaDropout, layers.GaussianDropout, layers.Dropout]
)
def test_noise_keeps_the_mean_and_has_its_variance(cls, rate):
    """For inputs with mean 0 and variance 1, like activations of SELU networks."""
    x = np.random.default_rng(0).normal(size=400_000).astype("float32")
    y = np.asarray(cls(rate, seed=1)(x, training=True), "float64")
    variance = {
        layers.AlphaDropout: 1.0,
        layers.GaussianDropout: 1 + rate / (1 - rate),
        layers.Dropout: 1 / (1 - rate),
    }[cls]
    assert abs(y.mean()) < 0.01
    assert abs(y.var() / variance - 1) < 0.02


def test_alpha_dropout_sets_dropped_elements_to_one_value():
    x = np.random.default_rng(0).normal(size=10_000).astype("float32")
    y = np.asarray(layers.AlphaDropout(0.25, seed=1)(x, training=True))
    values, frequencies = np.unique(y, return_counts=True)
    assert abs(frequencies.max() / y.size - 0.25) < 0.02
    is_kept = y != values[frequencies.argmax()]
    slope, offset = np.polyfit(x[is_kept], y[is_kept], 1)
    limit = -1.7580993408473766
    assert abs(slope - (0.75 * (1 + 0.25 * limit**2)) ** -0.5) < 1e-4
    assert abs(offset + slope * limit * 0.25) < 1e-4


def test_merge_needs_a_mask_per_input():
    with pytest.raises(ArgumentError, match="the same length; received 2 and 1"):
        layers.Add().compute_mask([np.ones((2, 3))] * 2, [None])


PASS_ON = [
    layers.Dropout(0.5),
    layers.SpatialDropout1D(0.5),
    layers.GaussianDropout(0.5),
    layers.GaussianNoise(0.5),
    layers.AlphaDropout(0.5),
    layers.Activation("relu"),
    layers.LeakyReLU(),
    layers.BatchNormalization(),
    layers.LayerNormalization(),
    layers.TimeDistributed(layers.Dense(2)),
    layers.Bidirectional(layers.LSTM(2, return_sequences=True)),
]


@pytest.mark.parametrize("layer", PASS_ON, ids=lambda layer: type(layer).__name__)
def test_layers_forward_the_mask_of_their_inputs(layer):
    ids = VALUE_MASK.astype("int32")
    embedded = layers.Embedding(2, 4, mask_zero=True)(ids)
    np.testing.assert_array_equal(layer(embedded)._keras_mask, VALUE_MASK)
