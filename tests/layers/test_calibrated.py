"""Test layers and models that GPTQ and AWQ quantize."""

import json
from pathlib import Path

import numpy as np
import pytest

from toolkit import GradientTape, Input, Model, Variable, function, layers, saving
from toolkit.quantizers import AWQConfig, GPTQConfig
from toolkit.quantizers.affine import Rounding, round_to_nearest
from toolkit.quantizers.gptq import GPTQ

RNG = np.random.default_rng(0)
BY_KERAS = np.load(Path(__file__).parents[1] / "fixtures" / "calibrated.npz")


def dense(**options):
    return layers.Dense(5, **options)


def heads_layer(**options):
    return layers.EinsumDense("abc,cde->abde", (None, 2, 3), bias_axes="de", **options)


def joined_layer(**options):
    return layers.EinsumDense("abcd,cde->abe", (None, 11), bias_axes="e", **options)


# As in fixtures/make_calibrated.py.
CASES = {
    "gptq": (dense, (10,), GPTQConfig, {"group_size": 4}),
    "gptq_whole": (dense, (10,), GPTQConfig, {"group_size": -1}),
    "gptq_order": (
        dense,
        (10,),
        GPTQConfig,
        {"group_size": 4, "activation_order": True},
    ),
    "gptq_8": (dense, (10,), GPTQConfig, {"group_size": 4, "weight_bits": 8}),
    "gptq_2": (dense, (10,), GPTQConfig, {"group_size": 4, "weight_bits": 2}),
    "gptq_heads": (
        heads_layer,
        (10,),
        GPTQConfig,
        {"group_size": 4, "symmetric": True},
    ),
    "awq": (dense, (10,), AWQConfig, {"group_size": 4}),
    "awq_whole": (dense, (10,), AWQConfig, {"group_size": -1}),
    "awq_joined": (joined_layer, (2, 4), AWQConfig, {"group_size": 3}),
}


def variables_of_keras(name, stage):
    keys = [key for key in BY_KERAS if key.startswith(f"{name}/{stage}/")]
    return {key.rpartition("/")[2]: BY_KERAS[key] for key in keys}


def inputs_of(name):
    _, shape, _, _ = CASES[name]
    rows = BY_KERAS[f"{name}/table"][BY_KERAS[f"{name}/tokens"]]
    return rows.reshape(*rows.shape[:2], *shape).astype("float32")


@pytest.mark.parametrize("name", CASES)
def test_files_of_keras(name):
    make, shape, _, _ = CASES[name]
    layer, x = make(dtype=str(BY_KERAS[f"{name}/policy"])), inputs_of(name)
    layer.build((None, 6, *shape))
    stored = variables_of_keras(name, "after")
    saved = {}
    layer.save_own_variables(saved)
    assert {k: (v.dtype, v.shape) for k, v in saved.items()} == {
        k: (str(v.dtype), v.shape) for k, v in stored.items()
    }
    layer.load_own_variables(stored)
    y = BY_KERAS[f"{name}/y"]
    np.testing.assert_allclose(layer(x), y, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(layer(x[:1, :3]), y[:1, :3], rtol=1e-4, atol=1e-4)
    traced = function(lambda x: layer(x))
    np.testing.assert_allclose(traced(x), y, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(traced(x[:1, :2]), y[:1, :2], rtol=1e-4, atol=1e-4)


def model_of(name):
    """Return the quantized model of the fixture: tokens, an embedding and a block."""
    make, shape, kind, options = CASES[name]
    tokens, table = BY_KERAS[f"{name}/tokens"], BY_KERAS[f"{name}/table"]
    layer, inputs = make(), Input((6, *shape))
    before = [layers.Embedding(*table.shape), layers.Reshape((6, *shape))]
    block = Model(inputs, layer(inputs))
    x = start = Input((6,))
    for layer_or_block in (*before, block):
        x = layer_or_block(x)
    model = Model(start, x)
    before[0].set_weights([table])
    layer.set_weights(list(variables_of_keras(name, "before").values()))
    structure = {"pre_block_layers": before, "sequential_blocks": [block]}
    config = kind(
        [tokens],
        None,
        num_samples=40,
        sequence_length=6,
        quantization_layer_structure=structure,
        **options,
    )
    exact = model.predict(tokens, verbose=0)
    model.quantize(config.mode, config=config)
    return model, layer, exact


@pytest.mark.parametrize("name", CASES)
def test_error_is_at_most_that_of_keras(name):
    """AWQ has the numbers of Keras; GPTQ factors the inverse, unlike Keras."""
    model, layer, exact = model_of(name)
    y = model.predict(BY_KERAS[f"{name}/tokens"], verbose=0)
    of_ours = np.square(y - exact).mean()
    assert of_ours <= np.square(BY_KERAS[f"{name}/y"] - exact).mean() * 1.0001
    assert layer.dtype_policy.name == BY_KERAS[f"{name}/policy"]
    assert model.layers[1].quantization_mode is None
    errors = {}
    layer.save_own_variables(errors)
    stored = variables_of_keras(name, "after")
    assert errors.keys() == stored.keys()
    for key, value in stored.items():
        assert errors[key].dtype == str(value.dtype)
        if name.startswith("awq"):
            np.testing.assert_allclose(errors[key], value, rtol=1e-5)
    if name.startswith("gptq"):
        assert of_ours <= error_of_nearest(name, layer)


def test_factorization_is_the_only_difference_from_keras(monkeypatch):
    """With one group; with several, Keras computes ranges before the updates."""
    monkeypatch.setattr(
        GPTQ, "_compute_factor", lambda self, hessian: np.linalg.inv(hessian)
    )
    _, layer, _ = model_of("gptq_whole")
    errors = {}
    layer.save_own_variables(errors)
    stored = variables_of_keras("gptq_whole", "after")
    del stored["4"]  # the groups, which Keras stores as fractions
    for key, value in stored.items():
        np.testing.assert_allclose(errors[key], value, rtol=1e-5)


def error_of_nearest(name, layer):
    """Return the squared error of outputs with independently rounded weights."""
    matrix = variables_of_keras(name, "before")["0"]
    config = layer.quantization_config
    rounding = Rounding(config.weight_bits, config.symmetric, config.per_channel)
    matrix = matrix.reshape(layer.g_idx.shape[0], -1)
    nearest = round_to_nearest(matrix, rounding, config.group_size).dequantize()
    x = inputs_of(name).reshape(-1, len(matrix)).astype("float64")
    return np.square(x @ (nearest - matrix)).mean()


@pytest.mark.parametrize("name", ["gptq_order", "gptq_8", "awq", "awq_joined"])
def test_files(name, tmp_path):
    model, layer, _ = model_of(name)
    tokens = BY_KERAS[f"{name}/tokens"]
    y = model.predict(tokens, verbose=0)
    model.save(tmp_path / "m.keras")
    loaded = saving.load_model(tmp_path / "m.keras")
    np.testing.assert_array_equal(loaded.predict(tokens, verbose=0), y)
    twin = loaded.layers[-1].layers[-1]
    expected = layer.quantization_config.get_config()
    assert twin.quantization_config.get_config() == expected
    model.save_weights(tmp_path / "m.weights.h5")
    restored, _, _ = model_of(name)
    for variable in restored.layers[-1].variables:
        variable.assign(np.zeros(variable.shape))
    restored.load_weights(tmp_path / "m.weights.h5")
    np.testing.assert_array_equal(restored.predict(tokens, verbose=0), y)
    config = json.loads(json.dumps(layer.get_config()))
    config["gptq_unpacked_column_size"] = 5  # as in files of Keras
    assert type(layer).from_config(config).dtype_policy == layer.dtype_policy


@pytest.mark.parametrize("name", ["gptq", "gptq_2", "awq"])
def test_exports(name, tmp_path):
    pytest.importorskip("onnx")
    model, _, _ = model_of(name)
    tokens = BY_KERAS[f"{name}/tokens"][:2]
    model.export(tmp_path / "m.onnx", verbose=False)
    y = saving.load_onnx(tmp_path / "m.onnx").predict(tokens, verbose=0)
    expected = model.predict(tokens, verbose=0)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


def test_numbers_of_many_groups_are_exact():
    """Use a compute dtype that cannot represent all group numbers."""
    layer = layers.Dense(2, dtype="gptq/4/1_from_mixed_bfloat16", use_bias=False)
    layer.build((None, 600))
    layer.g_idx.assign(np.arange(600))
    layer.kernel_scale.assign(np.arange(1200).reshape(2, 600) % 7)
    layer.quantized_kernel.assign(np.full((1, 600), 0x21))
    x = np.eye(600)[500:560]
    expected = layer.kernel_scale.numpy().T[500:560] * [1, 2]
    np.testing.assert_array_equal(np.asarray(layer(x), "float32"), expected)


def test_gradients_pass_to_inputs():
    _, layer, _ = model_of("awq")
    x = Variable(RNG.normal(size=(3, 10)))
    with GradientTape() as tape:
        y = layer(x)
    expected = np.ones((3, 5)) @ np.asarray(layer.kernel).T
    np.testing.assert_allclose(tape.gradient(y, x), expected, rtol=1e-4)
    assert len(layer.trainable_variables) == 1


# --- models ---------------------------------------------------------------------------


class Tokens:
    """A tokenizer of letters."""

    def tokenize(self, text):
        return np.array([ord(c) % 17 for c in text])


class Block(layers.Layer):
    """A block of attention and two dense layers."""

    def __init__(self, **options):
        super().__init__(**options)
        self.attention = layers.MultiHeadAttention(2, 4)
        self.norm = layers.LayerNormalization()
        self.wide = layers.Dense(16, activation="relu", name="wide")
        self.narrow = layers.Dense(8, name="narrow")

    def build(self, input_shape):
        self.attention.build(input_shape, input_shape)
        self.norm.build(input_shape)
        self.wide.build(input_shape)
        self.narrow.build((*input_shape[:-1], 16))

    def call(self, x):
        x = x + self.attention(x, x)
        return x + self.narrow(self.wide(self.norm(x)))


class Network(Model):
    """A network from tokens to logits with two blocks."""

    def __init__(self):
        super().__init__()
        self.embedding = layers.Embedding(17, 8)
        self.blocks = [Block(), Block()]
        self.head = layers.Dense(17)

    def call(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)

    def get_quantization_layer_structure(self, mode):
        return {
            "pre_block_layers": [self.embedding],
            "sequential_blocks": self.blocks,
        }


TEXTS = ["the quick brown fox jumps over", "the lazy dog", "and away"]


@pytest.mark.parametrize("kind", [GPTQConfig, AWQConfig])
def test_transformers(kind):
    model, tokens = Network(), RNG.integers(0, 17, (4, 12))
    before = model.predict(tokens, verbose=0)
    config = kind(TEXTS, Tokens(), num_samples=20, sequence_length=12, group_size=4)
    model.quantize(config=config, filters=lambda layer: layer.name != "wide")
    modes = {layer.name: layer.quantization_mode for layer in model._flatten_layers()}
    names = ["query", "key", "value", "attention_output", "narrow"]
    assert {name for name, mode in modes.items() if mode} == set(names)
    assert model.blocks[1].wide.quantization_mode is None
    after = model.predict(tokens, verbose=0)
    assert 0 < np.abs(after - before).max() < 0.3 * np.abs(before).max()
    with pytest.raises(ValueError, match="already quantized with dtype_policy="):
        model.quantize(config=config)


def small(**changes):
    arguments = {
        "dataset": [np.arange(30) % 17],
        "tokenizer": None,
        "num_samples": 3,
        "sequence_length": 4,
    }
    return GPTQConfig(**(arguments | changes))


@pytest.mark.parametrize(
    "changes, match",
    [
        ({"dataset": None}, "expected a `dataset` in the config"),
        ({"dataset": "text"}, "expected a `dataset` in the config"),
        ({"dataset": []}, "`dataset` of the config is empty"),
        ({"dataset": TEXTS}, "expected a `tokenizer`"),
        ({"dataset": [np.ones(3)]}, "expected integer tokens"),
        ({"quantization_layer_structure": {}}, "quantization_layer_structure"),
        (
            {"quantization_layer_structure": {"sequential_blocks": [3]}},
            "quantization_layer_structure",
        ),
        ({"quantization_layer_structure": {"blocks": []}}, "sequential_blocks"),
    ],
)
def test_refused_arguments(changes, match):
    model = Network()
    model(np.zeros((1, 4), int))
    with pytest.raises(ValueError, match=match):
        model.quantize("gptq", config=small(**changes))
    assert all(x.quantization_mode is None for x in model._flatten_layers())


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_failing_block_keeps_earlier_blocks_unchanged(error):
    class Failing(Block):
        def call(self, x):
            if model.blocks[0].narrow.quantization_mode is not None:
                raise error("in the second block")
            return super().call(x)

    model, tokens = Network(), np.arange(12)[None]
    model.blocks[1] = Failing()
    before = np.asarray(model(tokens))
    weights = model.weights
    with pytest.raises(error, match="second block"):
        model.quantize(config=small())
    assert all(x.quantization_mode is None for x in model._flatten_layers())
    assert all(a is b for a, b in zip(model.weights, weights, strict=True))
    np.testing.assert_array_equal(model(tokens), before)


def test_refused_layers():
    layer = layers.Dense(2)
    layer.build((None, 3))
    with pytest.raises(NotImplementedError, match="call of the model's `quantize`"):
        layer.quantize("gptq", config=small())
    with pytest.raises(ValueError, match="needs calibration data"):
        layer.dtype_policy = "gptq/4/4_from_float32"
    assert layer.dtype_policy.name == "float32"
    of_file = layers.Dense(2, dtype="awq/4/4_from_float32")
    of_file.build((None, 3))
    with pytest.raises(NotImplementedError, match="lora"):
        of_file.enable_lora(2)
    model = Network()
    model(np.zeros((1, 4), int))
    inputs = Input((3,))
    with pytest.raises(ValueError, match="quantization_layer_structure"):
        Model(inputs, layers.Dense(2)(inputs)).quantize(config=small())


def test_unsupported_layers_are_not_quantized():
    """A product of other ranks than two, and a layer that is not called."""
    inputs = Input((3, 4))
    batched = layers.EinsumDense("abc,acd->abd", (3, 6), name="batched")
    x = Input((4, 4))
    block = Model(x, layers.Dense(4, name="inner")(x))
    unused = layers.Dense(3, name="unused")
    unused.build((None, 4))
    block.unused = unused
    model = Model(x, block(x))
    embedding = layers.Embedding(17, 4)
    structure = {"pre_block_layers": [embedding], "sequential_blocks": [block]}
    config = small(quantization_layer_structure=structure)
    with pytest.warns(UserWarning, match="unused: not quantized"):
        model.quantize(config=config)
    assert block.layers[1].quantization_mode == "gptq"
    assert unused.quantization_mode is None
    batched.build((2, 3, 4))
    other_model = Model(inputs, layers.Dense(2)(inputs))
    other_model.extra = batched
    with pytest.warns(UserWarning, match="needs a matrix product"):
        with pytest.raises(NotImplementedError, match="no layer that supports"):
            incomplete = {"sequential_blocks": [batched]}
            other_model.quantize(config=small(quantization_layer_structure=incomplete))
