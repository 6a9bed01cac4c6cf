"""Test integer convolutions whose input ranges were calibrated with data."""

from __future__ import annotations

import numpy as np
import pytest

import toolkit
from toolkit import layers, ops
from toolkit.errors import ArgumentError, ArgumentTypeError, UnsupportedError
from toolkit.quantizers import (
    AbsMaxQuantizer,
    Int8QuantizationConfig,
    StaticQuantizer,
)

RNG = np.random.default_rng(0)
IMAGES = RNG.uniform(-1, 1, (4, 9, 8, 8)).astype("float32")


def model_of(*stack, shape=(9, 8, 8)):
    toolkit.utils.set_random_seed(0)
    return toolkit.Sequential([layers.Input(shape), *stack])


def quantized(model, x=IMAGES, **kwargs):
    model.quantize(config=Int8QuantizationConfig(dataset=x), **kwargs)
    return model


STACKS = {
    "conv": [layers.Conv2D(12, 3, activation="relu"), layers.Conv2D(5, 1)],
    "same": [layers.Conv2D(12, 3, padding="same", dilation_rate=2)],
    "strides": [layers.Conv2D(12, 3, strides=2, padding="same", use_bias=False)],
    "depthwise": [layers.DepthwiseConv2D(3, padding="same", activation="relu6")],
    "padded": [layers.ZeroPadding2D(1), layers.DepthwiseConv2D(3, strides=2)],
    "mixed": [
        layers.Conv2D(24, 1, use_bias=False),
        layers.BatchNormalization(),
        layers.ReLU(6.0),
        layers.DepthwiseConv2D(3, padding="same", use_bias=False),
        layers.BatchNormalization(),
        layers.ReLU(6.0),
        layers.Conv2D(8, 1, use_bias=False),
        layers.BatchNormalization(),
    ],
}


@pytest.mark.parametrize("name", STACKS)
def test_outputs_are_close(name):
    model = model_of(*(layer.__class__(**_config(layer)) for layer in STACKS[name]))
    before = model.predict(IMAGES, verbose=0)
    quantized(model)
    eager = ops.convert_to_numpy(model(IMAGES, training=False))
    after = model.predict(IMAGES, verbose=0)
    scale = np.abs(before).max()
    assert 0 < np.abs(after - before).max() < 0.04 * scale
    # Values that are folded into one scale are rounded elsewhere, by a step at most.
    assert np.abs(after - eager).max() < 0.02 * scale


def _config(layer):
    excluded = ("name", "trainable")
    return {k: v for k, v in layer.get_config().items() if k not in excluded}


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (lambda: layers.Conv1D(5, 3, padding="causal", dilation_rate=2), (20, 8)),
        (lambda: layers.Conv3D(5, 2, padding="same"), (4, 5, 6, 8)),
        (lambda: layers.DepthwiseConv1D(3), (20, 9)),
        (lambda: layers.Conv2D(5, 3, data_format="channels_first"), (8, 6, 7)),
        (lambda: layers.DepthwiseConv2D(3, data_format="channels_first"), (8, 6, 7)),
    ],
)
def test_other_layouts(layer, shape):
    x = RNG.uniform(-1, 1, (2, *shape)).astype("float32")
    model = model_of(layer(), shape=shape)
    before = model.predict(x, verbose=0)
    after = quantized(model, x).predict(x, verbose=0)
    assert model.layers[-1].weights[0].dtype == "int8"
    assert 0 < np.abs(after - before).max() < 0.03 * np.abs(before).max()


def test_stored_variables():
    layer, depthwise = (
        layers.Conv2D(12, 3, activation="relu"),
        layers.DepthwiseConv2D(2),
    )
    quantized(model_of(layer, depthwise))
    assert layer.quantization_mode == depthwise.quantization_mode == "int8"
    assert layer.dtype_policy.name == "int8_from_float32"
    assert (layer.weights[0].dtype, layer.kernel_scale.shape) == ("int8", (12,))
    assert (depthwise.weights[0].shape, depthwise.kernel_scale.shape) == (
        (2, 2, 12, 1),
        (12,),
    )
    # Signed inputs have 6 bits and a sign, unsigned inputs 7 bits.
    assert layer.inputs_quantizer.value_range == (-64, 63)
    assert depthwise.inputs_quantizer.value_range == (0, 127)
    np.testing.assert_allclose(layer.input_scale, 63 / np.abs(IMAGES).max(), rtol=0.02)


def test_pad_is_no_separate_kernel():
    model = quantized(model_of(layers.ZeroPadding2D(1), layers.DepthwiseConv2D(3)))
    step = toolkit.function(lambda x: model(x, training=False))
    names = [kernel.name for kernel in step.inspect(IMAGES).kernels]
    assert not any("pad" in name for name in names)


def test_normalization_is_folded_into_the_scale():
    stack = [layers.Conv2D(16, 1), layers.BatchNormalization(), layers.ReLU(6.0)]
    model = quantized(model_of(*stack, layers.Conv2D(3, 1)))
    step = toolkit.function(lambda x: model(x, training=False))
    names = [kernel.name for kernel in step.inspect(IMAGES).kernels]
    assert "conv_integer, cast, multiply, add, minimum, quantize" in names


def test_files(tmp_path):
    model = model_of(layers.Conv2D(12, 3, activation="relu"), layers.DepthwiseConv2D(2))
    before = quantized(model).predict(IMAGES, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = toolkit.models.load_model(tmp_path / "model.keras")
    assert loaded.layers[0].weights[0].dtype == "int8"
    np.testing.assert_array_equal(loaded.predict(IMAGES, verbose=0), before)
    model.save_weights(tmp_path / "model.weights.h5")
    copy = toolkit.models.clone_model(model)
    copy.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(copy.predict(IMAGES, verbose=0), before)


def test_gradients_pass():
    """The gradients of earlier layers ignore the rounding."""
    first_layer = layers.Conv2D(8, 1)
    model = model_of(first_layer, layers.Conv2D(4, 3))
    quantized(model, filters=lambda layer: layer is not first_layer)
    assert first_layer.quantization_mode is None
    model.compile("sgd", "mse")
    y = np.zeros((4, 7, 6, 4), "float32")
    losses = model.fit(IMAGES, y, epochs=3, verbose=0).history["loss"]
    assert losses[-1] < losses[0]


def test_unsupported_layers_stay_floating():
    few_channels = layers.Conv2D(8, 3)
    stack = few_channels, layers.Conv2D(8, 1, groups=2), layers.Conv2D(4, 1)
    model = model_of(*stack, layers.Flatten(), layers.Dense(3), shape=(9, 8, 3))
    with pytest.warns(UserWarning, match="not quantized, because") as record:
        quantized(model, IMAGES[..., :3])
    assert len(record) == 2
    modes = [layer.quantization_mode for layer in model.layers]
    assert modes == [None, None, "int8", None, "int8"]
    assert model.layers[-1].quantization_config.dataset is None


FLOATING = {
    "its inputs have 1 channel, fewer than 8": (layers.Conv2D(8, 3), 1),
    "its inputs have 7 channels, fewer than 8": (layers.DepthwiseConv2D(3), 7),
    "it has 2 groups": (layers.Conv2D(8, 1, groups=2), 8),
    "its depth_multiplier is 2": (layers.DepthwiseConv2D(3, depth_multiplier=2), 8),
    "its dilation_rate is (2, 2)": (layers.DepthwiseConv2D(3, dilation_rate=2), 8),
}


@pytest.mark.parametrize("data", [True, False])
@pytest.mark.parametrize("reason", FLOATING)
def test_a_warning_has_the_reason(reason, data):
    layer, channels = FLOATING[reason]
    layer = layer.__class__(**_config(layer) | {"name": "conv"})
    model = model_of(layer, layers.Dense(2), shape=(9, 8, channels))
    x = np.ones((1, 9, 8, channels), "float32") if data else None
    expected = f"{type(layer).__name__} 'conv': not quantized, because {reason}"
    with pytest.warns(UserWarning) as record:
        quantized(model, x)
    assert [str(warning.message) for warning in record] == [expected]
    assert model.layers[0].quantization_mode is None


def test_normalizations_keep_their_vectors_without_a_warning():
    model = model_of(
        layers.Conv2D(8, 3, activation="relu"),
        layers.BatchNormalization(),
        layers.LayerNormalization(),
        layers.Flatten(),
        layers.Dense(2),
    )
    quantized(model)


def test_other_layers_with_matrices_are_named():
    model = toolkit.Sequential([layers.Input((3, 4)), layers.GRU(2), layers.Dense(2)])
    with pytest.warns(UserWarning, match="GRUCell '.*supported are Dense") as record:
        model.quantize("int8")
    assert "policy" not in str(record[0].message)


def test_convolutions_without_data_stay_floating():
    model = model_of(layers.Conv2D(8, 3), layers.Dense(3))
    with pytest.warns(UserWarning, match="Conv2D"):
        model.quantize("int8")
    assert model.layers[0].quantization_mode is None
    with pytest.raises(UnsupportedError, match="dataset"):
        model.layers[0].quantize("int8")
    with pytest.raises(ArgumentError, match="policy"):
        layers.Conv2D(8, 3, dtype="int8_from_float32")


@pytest.mark.parametrize(
    ("data", "error"),
    [([], ArgumentError), ("text", ArgumentTypeError), (3, ArgumentTypeError)],
)
def test_invalid_data_is_refused(data, error):
    with pytest.raises(error, match="dataset"):
        quantized(model_of(layers.Conv2D(8, 3)), data)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_non_finite_data_is_refused(number):
    data = IMAGES.copy()
    data[1, 2, 3, 4] = number
    model = model_of(layers.Conv2D(8, 3, name="first"), layers.Conv2D(4, 1))
    with pytest.raises(
        ArgumentError,
        match="first: expected finite calibration inputs; received 1 values that",
    ):
        quantized(model, data)
    assert all(layer.quantization_mode is None for layer in model.layers)


def test_quantizer_without_a_scale_is_refused():
    class Alone(AbsMaxQuantizer):
        def __call__(self, x, axis=None, to_numpy=False):
            return x

    model = toolkit.Sequential([layers.Input((3,)), layers.Dense(2, name="first")])
    config = Int8QuantizationConfig(Alone(0), None)
    with pytest.raises(
        ArgumentError,
        match="first: expected the weight_quantizer to return integers and their",
    ):
        model.quantize(config=config)


def test_weight_quantizer_that_does_not_fit_all_layers():
    with pytest.raises(ValueError, match="no weight_quantizer with a dataset"):
        Int8QuantizationConfig(AbsMaxQuantizer(0), dataset=IMAGES)


def test_weight_quantizer_of_some_layers():
    model = model_of(layers.Conv2D(8, 3), layers.Flatten(), layers.Dense(2))
    with pytest.warns(UserWarning, match="needs calibration data"):
        model.quantize(config=Int8QuantizationConfig(AbsMaxQuantizer(0)))
    conv, _, dense = model.layers
    assert conv.quantization_mode is None and dense.quantization_mode == "int8"
    config = Int8QuantizationConfig(AbsMaxQuantizer(0), StaticQuantizer())
    with pytest.raises(ValueError, match="must have a scale of shape"):
        conv.quantize(config=config)
    assert conv.quantization_mode is None


def test_batches_and_labels():
    batches = [(IMAGES[:2], np.zeros(2)), (IMAGES[2:], np.zeros(2))]
    model = quantized(model_of(layers.Conv2D(8, 3)), batches)
    other_model = quantized(model_of(layers.Conv2D(8, 3)))
    np.testing.assert_array_equal(model.predict(IMAGES), other_model.predict(IMAGES))


def test_quantizer():
    x = [-9.0, -1.0, 0.0, 0.25, 0.35, 9.0, np.nan]
    assert StaticQuantizer()(x, 10.0).tolist() == [0, 0, 0, 2, 4, 90, 0]
    signed = StaticQuantizer((-64, 63))
    assert (signed.offset, signed.bits) == (64, 7)
    assert signed(x, 10.0).tolist() == [0, 54, 64, 66, 68, 127, 0]
    compiled = toolkit.function(lambda x: signed(x, 10.0))
    assert compiled(x).tolist() == [0, 54, 64, 66, 68, 127, 0]
    with pytest.raises(ArgumentError, match="value_range"):
        StaticQuantizer((-10, 10))


def test_native_library(tmp_path):
    """Test that a program without Python computes the same bits."""
    model = quantized(model_of(*_small()))
    expected = model.predict(IMAGES, verbose=0)
    model.export(tmp_path / "model.so", batch=4, verbose=False)
    native = toolkit.load_native(tmp_path / "model.so")
    np.testing.assert_array_equal(native(IMAGES), expected)


def _small():
    return [
        layers.Conv2D(12, 3, activation="relu", padding="same"),
        layers.DepthwiseConv2D(3, padding="same"),
    ]


def test_accuracy():
    """Test a small trained network with images outside of its training data."""
    rng = np.random.default_rng(1)
    y = rng.integers(0, 4, 600)
    x = rng.normal(0, 0.7, (600, 12, 12, 1)).astype("float32")
    for image, label in zip(x, y, strict=True):
        row, column = divmod(int(label), 2)
        image[6 * row : 6 * row + 5, 6 * column : 6 * column + 5] += 0.6
    stack = [layers.Conv2D(16, 3, activation="relu"), layers.MaxPooling2D()]
    stack += [layers.Conv2D(16, 3, activation="relu"), layers.Flatten()]
    model = model_of(*stack, layers.Dense(4), shape=(12, 12, 1))
    loss = toolkit.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
    model.fit(x[:400], y[:400], epochs=8, verbose=0)
    before = model.evaluate(x[400:], y[400:], return_dict=True, verbose=0)["accuracy"]
    with pytest.warns(UserWarning, match="its inputs have 1 channel"):
        quantized(model, x[:100])
    assert model.layers[2].quantization_mode == "int8"
    after = model.evaluate(x[400:], y[400:], return_dict=True, verbose=0)["accuracy"]
    assert before > 0.9 and after >= before - 0.01
