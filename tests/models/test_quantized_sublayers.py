"""Test that quantized sublayers of custom layers are restored."""

import numpy as np
import pytest

import toolkit
from toolkit import layers, models, saving
from toolkit.errors import ArgumentError, UnsupportedError

X = np.random.default_rng(0).normal(size=(8, 6)).astype("float32")
IDS = np.arange(12).reshape(4, 3)


@saving.register_keras_serializable("parts")
class Block(layers.Layer):
    """A layer with constructor sublayers, in lists and dicts, built by `build`."""

    def __init__(self, units=6, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.parts = [layers.Dense(units, "relu"), {"last": layers.Dense(units)}]

    def build(self, input_shape):
        self.parts[0].build(input_shape)
        self.parts[1]["last"].build((*input_shape[:-1], self.units))

    def call(self, inputs):
        return self.parts[1]["last"](self.parts[0](inputs))


@saving.register_keras_serializable("parts")
class Late(layers.Layer):
    """A layer with sublayers that `build` creates."""

    def build(self, input_shape):
        self.inner = layers.Dense(4)
        self.inner.build(input_shape)
        self.block = Block(4)
        self.block.build((*input_shape[:-1], 4))

    def call(self, inputs):
        return self.block(self.inner(inputs))


@saving.register_keras_serializable("parts")
class Lazy(layers.Layer):
    """A layer with sublayers that the first call builds."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.inner = toolkit.Sequential([layers.Dense(3), Block(3)])

    def call(self, inputs):
        return self.inner(inputs)


@saving.register_keras_serializable("parts")
class Around(layers.Layer):
    """A wrapper that serializes its layer, and builds it."""

    def __init__(self, layer, **kwargs):
        super().__init__(**kwargs)
        self.layer = layer

    def build(self, input_shape):
        self.layer.build(input_shape)

    def call(self, inputs):
        return self.layer(inputs)

    def get_config(self):
        layer = saving.serialize_keras_object(self.layer)
        return {**super().get_config(), "layer": layer}

    @classmethod
    def from_config(cls, config):
        layer = saving.deserialize_keras_object(config.pop("layer"))
        return cls(layer, **config)


@saving.register_keras_serializable("parts")
class Words(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.words = layers.Embedding(12, 6)
        self.mix = layers.EinsumDense("abc,cd->abd", output_shape=(None, 6))

    def call(self, inputs):
        return self.mix(self.words(inputs))


@saving.register_keras_serializable("parts")
class BlockModel(models.Model):
    """A model of users."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.block, self.last = Block(), layers.Dense(2)

    def build(self, input_shape):
        self.block.build(input_shape)
        self.last.build((None, 6))

    def call(self, inputs):
        return self.last(self.block(inputs))


def stack(*stack_layers, shape=(6,), dtype="float32"):
    return toolkit.Sequential([toolkit.Input(shape, dtype=dtype), *stack_layers])


def whole_model():
    model = BlockModel()
    model(X)
    return model


MAKERS = {
    "block": lambda: stack(Block(), layers.Dense(2)),
    "late": lambda: stack(Late()),
    "lazy": lambda: stack(Lazy()),
    "around": lambda: stack(Around(Around(layers.Dense(4))), Around(Block())),
    "in_wrappers": lambda: stack(layers.TimeDistributed(Block()), shape=(2, 6)),
    "words": lambda: stack(Words(), shape=(3,), dtype="int32"),
    "whole": whole_model,
}


def data_of(name):
    if name == "words":
        return IDS
    return np.stack([X, X], 1) if name == "in_wrappers" else X


@pytest.mark.parametrize("name", MAKERS)
def test_sublayers_built_by_build(name, tmp_path):
    model, x = MAKERS[name](), data_of(name)
    expected = model.predict(x, verbose=0)
    model.save(tmp_path / "m.keras")
    restored = saving.load_model(tmp_path / "m.keras")
    np.testing.assert_array_equal(restored.predict(x, verbose=0), expected)


@pytest.mark.parametrize("mode", ["int8", "int4", "float8"])
@pytest.mark.parametrize("name", MAKERS)
def test_quantized_sublayers(name, mode, tmp_path):
    model, x = MAKERS[name](), data_of(name)
    if name == "words" and mode == "float8":
        pytest.skip("an Embedding has no such mode")
    model.quantize(mode)
    expected = model.predict(x, verbose=0)
    for path in ("m.keras", "folder"):
        saving.save_model(model, tmp_path / path, zipped=path != "folder")
        restored = saving.load_model(tmp_path / path)
        np.testing.assert_array_equal(restored.predict(x, verbose=0), expected)
        kinds = [layer.quantization_mode for layer in restored._flatten_layers()]
        assert kinds == [layer.quantization_mode for layer in model._flatten_layers()]
        assert mode in kinds
    model.save_weights(tmp_path / "m.weights.h5")
    restored.load_weights(tmp_path / "m.weights.h5")


def test_block_sizes_of_sublayers_are_in_the_config(tmp_path):
    config = toolkit.quantizers.Int4QuantizationConfig(block_size=2)
    model = stack(Block())
    model.quantize("int4", config=config)
    model.save(tmp_path / "m.keras")
    restored = saving.load_model(tmp_path / "m.keras")
    np.testing.assert_array_equal(restored.predict(X), model.predict(X))
    assert restored.layers[0].parts[0].quantization_config.block_size == 2


def test_built_layer_ignores_a_second_build():
    layer = layers.Dense(3)
    layer.build((None, 4))
    kernel = layer.kernel
    layer.build((32, 4))
    assert layer.kernel is kernel
    with pytest.raises(ArgumentError, match="the layer is already built"):
        layer.build((None, 5))


def test_layer_without_quantized_sublayers_has_no_entry():
    assert Block().get_quantized_parts() is None
    assert "quantized_parts" not in saving.serialize_keras_object(Block())
    with pytest.raises(UnsupportedError):
        stack(layers.Flatten()).quantize("int8")
