"""Test that quantized layers of Keras compute its formula with packed kernels."""

import keras_toolkit  # noqa: F401  # isort: skip

import keras
import numpy as np
import pytest
from keras import layers

import toolkit

DENSE = (
    (lambda: layers.Dense(33, activation="relu"), (5, 40)),
    (lambda: layers.Dense(48, use_bias=False), (2, 3, 300)),
)
EINSUM = (
    ("abc,cde->abde", (None, 4, 8), "de", (2, 3, 24)),
    ("abcd,cde->abe", (None, 16), "e", (2, 3, 4, 8)),
    ("abc,dc->abd", (None, 16), None, (2, 3, 8)),
)


def einsum(equation, output_shape, bias_axes):
    return lambda: layers.EinsumDense(equation, output_shape, bias_axes=bias_axes)


CASES = (*DENSE, *((einsum(*case[:3]), case[3]) for case in EINSUM))


def dequantize(layer):
    """Return the float64 kernel of a layer by the formula of Keras."""
    byte = np.asarray(layer._kernel).astype(np.int64)
    low, high = (byte & 15 ^ 8) - 8, (byte >> 4 & 15 ^ 8) - 8
    numbers = np.stack([low, high], -1).reshape(len(byte), -1)
    scale = np.asarray(layer.kernel_scale, np.float64)
    group = np.asarray(layer.g_idx, np.int64)
    zero = np.asarray(layer.kernel_zero, np.int64)
    return (numbers[:, : scale.shape[1]] - zero[group]) * scale[group]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("number", range(len(CASES)))
def test_int4_layers_equal_the_formula(number, compiled):
    make, shape = CASES[number]
    x = np.random.default_rng(0).normal(size=shape).astype("float32")
    layer = make()
    layer(x)
    layer.quantize("int4")
    if layer.bias is not None:
        layer.bias.assign(np.random.default_rng(1).normal(size=layer.bias.shape))
    kernel = dequantize(layer)
    equation = getattr(layer, "equation", "...c,cd->...d")
    extents = getattr(layer, "original_kernel_shape", kernel.shape)
    expected = np.einsum(equation, x.astype(np.float64), kernel.reshape(extents))
    if layer.bias is not None:
        expected = expected + np.asarray(layer.bias, np.float64)
    if layer.activation is keras.activations.relu:
        expected = np.maximum(expected, 0)
    call = toolkit.function(layer) if compiled else layer
    np.testing.assert_allclose(call(x), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("number", range(len(CASES)))
def test_gradient_of_an_int4_layer_uses_its_kernel(number):
    make, shape = CASES[number]
    x = keras.ops.convert_to_tensor(
        np.random.default_rng(0).normal(size=shape).astype("float32")
    )
    layer = make()
    layer(x)
    layer.activation = None
    layer.quantize("int4")
    with toolkit.GradientTape() as tape:
        tape.watch(x)
        total = keras.ops.sum(layer(x))
    equation = getattr(layer, "equation", "...c,cd->...d")
    inputs, suffix = equation.split(",")
    weights, outputs = suffix.split("->")
    kernel = dequantize(layer)
    extents = getattr(layer, "original_kernel_shape", kernel.shape)
    ones = np.ones(layer(x).shape)
    back = f"{outputs},{weights}->{inputs}"
    expected = np.einsum(back, ones, kernel.reshape(extents))
    np.testing.assert_allclose(tape.gradient(total, x), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.filterwarnings("ignore:Layer InputLayer does not have")
@pytest.mark.parametrize("mode", ["int8", "int4"])
def test_quantized_model_predicts_saves_and_loads(mode, tmp_path):
    x = np.random.default_rng(0).normal(size=(8, 64)).astype("float32")
    model = keras.Sequential([keras.Input((64,)), layers.Dense(64), layers.Dense(5)])
    before = model.predict(x, verbose=0)
    model.quantize(mode)
    after = model.predict(x, verbose=0)
    tolerance = {"int8": 0.02, "int4": 0.3}[mode] * np.abs(before).max()
    np.testing.assert_allclose(after, before, atol=tolerance)
    model.save(tmp_path / "m.keras")
    for read in (keras.saving.load_model, toolkit.saving.load_model):
        same = read(tmp_path / "m.keras").predict(x, verbose=0)
        np.testing.assert_allclose(same, after, rtol=1e-4, atol=1e-5)
