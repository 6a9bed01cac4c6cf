"""Test the gradients of attention, of both orders, for many kinds of arguments."""

from __future__ import annotations

import numpy as np
import pytest

import toolkit
from toolkit import ops


def assert_close(actual, expected, tolerance=1e-12):
    expected = np.asarray(expected)
    bound = tolerance * max(1.0, abs(expected).max())
    np.testing.assert_allclose(actual.numpy(), expected, rtol=0, atol=bound)


def arrays():
    rng = np.random.default_rng(0)
    shapes = [(2, 5, 4, 3), (2, 6, 2, 3), (2, 6, 2, 3), (4, 5, 6)]
    return rng, [ops.convert_to_tensor(rng.standard_normal(s)) for s in shapes]


def loss(query, key, value, bias, **options):
    y = ops.dot_product_attention(query, key, value, bias=bias, **options)
    return ops.sum(y * y)


def gradients(inputs, **options):
    with toolkit.GradientTape() as tape:
        tape.watch(inputs)
        y = loss(*inputs, **options)
    return tape.gradient(y, inputs)


def masked():
    mask = np.random.default_rng(1).random((2, 1, 5, 6)) < 0.7
    mask[0, 0, 2] = False
    return mask


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    "options", [{}, {"mask": masked()}, {"mask": masked(), "is_causal": True}]
)
def test_gradients_of_both_orders(options, compiled):
    rng, inputs = arrays()
    tangents = [rng.standard_normal(x.shape) for x in inputs]

    def second(inputs):
        with toolkit.GradientTape() as tape:
            tape.watch(inputs)
            pairs = zip(gradients(inputs, **options), tangents, strict=True)
            slope = sum(ops.sum(g * d) for g, d in pairs)
        return slope, *tape.gradient(slope, inputs)

    slope, *results = (toolkit.function(second) if compiled else second)(inputs)
    step = 1e-5
    pairs = list(zip(inputs, tangents, strict=True))
    after, before = ([x + sign * step * d for x, d in pairs] for sign in (1, -1))
    change = float(loss(*after, **options)) - float(loss(*before, **options))
    assert_close(slope, change / (2 * step), 1e-6)
    ends = [gradients(ends, **options) for ends in (after, before)]
    for x, high, low in zip(results, *ends, strict=True):
        assert_close(x, (high.numpy() - low.numpy()) / (2 * step), 1e-6)


def test_scales_and_biases_of_any_kind():
    _, (query, key, value, bias) = arrays()
    expected = ops.dot_product_attention(query, key, value, bias[None], scale=0.5)
    outputs = ops.dot_product_attention(
        query, key, value, bias.numpy(), scale=ops.convert_to_tensor(0.5)
    )
    assert_close(outputs, expected.numpy())


def test_large_cap_has_no_effect():
    _, (query, key, value, bias) = arrays()
    options = {"mask": masked(), "is_causal": True}
    expected = ops.dot_product_attention(query, key, value, bias, **options)
    outputs = ops.dot_product_attention(
        query, key, value, bias, attn_logits_soft_cap=1e6, **options
    )
    assert_close(outputs, expected.numpy(), 1e-6)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("heads", [1, 2])
def test_single_source_depends_only_on_its_value(heads, compiled):
    rng = np.random.default_rng(2)
    shapes = [(3, 4, 2, 8), (3, 1, heads, 8), (3, 1, heads, 8), (2, 4, 1)]
    inputs = [
        ops.convert_to_tensor(rng.standard_normal(s).astype("f4")) for s in shapes
    ]
    results = (toolkit.function(gradients) if compiled else gradients)(inputs)
    for x, index in zip(results, (0, 1, None, 3), strict=True):
        assert x.dtype == "float32"
        assert index is None or not x.numpy().any()
    y = ops.dot_product_attention(*inputs[:3], bias=inputs[3])
    weights = 2 * y.numpy().reshape(3, 4, heads, 2 // heads, 8)
    assert_close(results[2], weights.sum((1, 3))[:, None], 1e-6)
