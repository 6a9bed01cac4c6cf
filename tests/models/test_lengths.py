"""Steps of models that one compilation computes for many lengths."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import toolkit
from toolkit import layers

LENGTHS = (19, 31, 40, 64, 25, 33, 48, 22, 61, 30, 37, 63, 32, 26, 57, 50)


def attention(
    use_causal_mask: bool, blocks: int = 2, heads: int = 2, units: int = 32
) -> toolkit.Model:
    tokens = toolkit.Input((None,), dtype="int32")
    x = layers.Embedding(50, units)(tokens)
    for _ in range(blocks):
        y = layers.LayerNormalization()(x)
        y = layers.MultiHeadAttention(heads, 16)(y, y, use_causal_mask=use_causal_mask)
        x = layers.Add()([x, y])
        y = layers.Dense(2 * units, activation="gelu")(layers.LayerNormalization()(x))
        x = layers.Add()([x, layers.Dense(units)(y)])
    x = layers.GlobalAveragePooling1D()(x)
    return toolkit.Model(tokens, layers.Dense(1)(x))


def sequential(*stack: Any, mask_zero: bool = False) -> toolkit.Model:
    tokens = toolkit.Input((None,), dtype="int32")
    embedding = layers.Embedding(50, 16, mask_zero=mask_zero)
    return toolkit.Sequential([tokens, embedding, *stack, layers.Dense(1)])


MODELS: dict[str, Callable[[], toolkit.Model]] = {
    "encoder": lambda: attention(False),
    "decoder": lambda: attention(True),
    "four blocks": lambda: attention(False, 4, 4, 64),
    "LSTM": lambda: sequential(layers.LSTM(24)),
    "masked GRU": lambda: sequential(
        layers.Bidirectional(layers.GRU(12)), mask_zero=True
    ),
    "convolutions": lambda: sequential(
        layers.Conv1D(24, 5, activation="relu"),
        layers.MaxPooling1D(2),
        layers.Conv1D(24, 3, padding="same", activation="relu"),
        layers.GlobalMaxPooling1D(),
    ),
    "convolution with strides": lambda: sequential(
        layers.Conv1D(24, 3, strides=2, padding="same", activation="relu"),
        layers.AveragePooling1D(3, padding="same"),
        layers.GlobalMaxPooling1D(),
    ),
    "causal convolution": lambda: sequential(
        layers.Conv1D(24, 3, padding="causal"),
        layers.BatchNormalization(),
        layers.GlobalAveragePooling1D(),
    ),
}


QUICK = ("decoder", "LSTM", "convolutions")
NAMES = [
    name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
    for name in MODELS
]


def train(model: str, free: bool) -> tuple[list[float], list[Any]]:
    """Train on batches of many lengths; return the losses and the weights."""
    toolkit.config.set_free_extents(free)
    toolkit.utils.set_random_seed(0)
    network = MODELS[model]()
    network.compile(toolkit.optimizers.SGD(0.001), "mse")
    random, losses = np.random.default_rng(0), []
    for n in LENGTHS:
        x = random.integers(0, 50, (4, n)).astype("int32")
        y = random.normal(size=(4, 1)).astype("float32")
        losses.append(float(network.train_on_batch(x, y)))
    return losses, network.get_weights()


@pytest.mark.filterwarnings("ignore:.*is traced for")
@pytest.mark.usefixtures("no_free_extents")  # restores the setting
@pytest.mark.parametrize("model", NAMES)
def test_losses_and_weights_are_those_of_one_program_for_each_length(
    model: str,
) -> None:
    losses, weights = train(model, True)
    expected_losses, expected_weights = train(model, False)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-4)
    for weight, expected in zip(weights, expected_weights, strict=True):
        np.testing.assert_allclose(weight, expected, atol=1e-5)


@pytest.mark.parametrize("model", NAMES)
def test_three_compilations_compute_all_lengths(model: str) -> None:
    traced: list[int] = []

    class Count(layers.Layer):
        def call(self, x: Any) -> Any:
            traced.append(1)
            return x

    network = MODELS[model]()
    counted = toolkit.Model(network.inputs, Count()(network.outputs[0]))
    counted.compile("adam", "mse")
    y = np.ones((8, 1), "float32")
    counted.train_on_batch(np.ones((8, 24), "int32"), y)
    traced.clear()
    for n in LENGTHS:
        counted.train_on_batch(np.ones((8, n), "int32"), y)
    assert len(traced) <= 2


def padded_batches(
    count: int = 79, shapes: Any = ([None], [1])
) -> toolkit.data.Dataset:
    """Return batches of 8 rows of many lengths, and a smaller last batch."""
    random = np.random.default_rng(0)
    rows = [
        (np.arange(n, dtype="int32") % 50, random.normal(size=1).astype("float32"))
        for n in random.integers(17, 81, count)
    ]
    specs = [toolkit.data.TensorSpec((None,), "int32")]
    specs += [toolkit.data.TensorSpec((1,), "float32")]
    dataset = toolkit.data.Dataset.from_generator(
        lambda: iter(rows), output_signature=tuple(specs)
    )
    return dataset.padded_batch(8, padded_shapes=shapes)


def fit(model: str, dataset: Any, free: bool) -> tuple[Any, list[Any]]:
    """Fit a model for an epoch; return it and its weights."""
    toolkit.config.set_free_extents(free)
    toolkit.utils.set_random_seed(0)
    network = MODELS[model]()
    network.compile(toolkit.optimizers.SGD(0.001), "mse")
    network.fit(dataset, verbose=0)
    return network, network.get_weights()


@pytest.mark.filterwarnings("ignore:.*is traced for")
@pytest.mark.usefixtures("no_free_extents")  # restores the setting
@pytest.mark.parametrize("model", NAMES)
def test_two_compilations_compute_an_epoch_of_padded_batches(model: str) -> None:
    """Check that one is for full batches of all lengths, and one for the last batch."""
    expected, expected_weights = fit(model, padded_batches(), False)
    assert expected.train_function.trace_count > 5
    network, weights = fit(model, padded_batches(), True)
    # Strides of 2 and 3 have other padding for each remainder of a length.
    most = 6 if model == "convolution with strides" else 2
    assert network.train_function.trace_count <= most
    for weight, expected_weight in zip(weights, expected_weights, strict=True):
        np.testing.assert_allclose(weight, expected_weight, atol=1e-5)
    network.evaluate(padded_batches(), verbose=0)
    assert network.test_function.trace_count <= most
    network.predict(padded_batches(), verbose=0)
    assert network.predict_function.trace_count <= most


def test_buckets_have_a_program_for_each_batch_size() -> None:
    """Check lengths that are declared for targets of length 1, too."""
    dataset = padded_batches().unbatch()
    buckets = dataset.bucket_by_sequence_length(
        lambda x, y: toolkit.ops.shape(x)[0], [30, 60], [8, 6, 4], drop_remainder=True
    )
    network, _ = fit("LSTM", buckets, True)
    assert network.train_function.trace_count <= 3


def test_declared_lengths_can_be_independent() -> None:
    """Check lengths that are equal in the first batch only, and one of length 1."""
    lengths = [(20, 20), (24, 30), (9, 40), (1, 33), (50, 1)]

    def rows() -> Any:
        for n, m in lengths:
            yield np.full((4, n), n, "float32"), np.full((4, m), 1.0, "float32")

    specs = toolkit.data.TensorSpec((None, None), "float32")
    dataset = toolkit.data.Dataset.from_generator(rows, output_signature=(specs, specs))

    class Sums(toolkit.Model):
        def test_step(self, data: Any) -> Any:
            x, y = data
            return {"sum": toolkit.ops.sum(x) + 1000 * toolkit.ops.sum(y)}

    for count, (n, m) in enumerate(lengths):
        sums = Sums()
        sums.compile()
        logs = sums.evaluate(dataset.take(count + 1), verbose=0, return_dict=True)
        assert logs["sum"] == 4 * n * n + 4000 * m


def test_batch_sizes_share_one_program_from_the_third_on() -> None:
    function = toolkit.function(lambda x: x * 2.0)
    for n in (8, 5, 8, 5):
        function(toolkit.ops.ones((n, 3)))
    assert function.trace_count == 2
    for n in (7, 6, 3, 11, 13, 9):
        assert np.array_equal(function(toolkit.ops.ones((n, 3))), np.full((n, 3), 2.0))
    assert function.trace_count == 3


@pytest.mark.filterwarnings("ignore:.*is traced for")
@pytest.mark.usefixtures("no_free_extents")
def test_without_free_extents_each_length_is_compiled() -> None:
    function = toolkit.function(lambda x: x * 2.0)
    for n in (8, 5, 7, 6, 3):
        function(toolkit.ops.ones((3, n)))
    assert function.trace_count == 5


def test_programs_for_inspection_have_one_length() -> None:
    function = toolkit.function(lambda x: toolkit.ops.sum(x * 2.0, axis=1))
    for n in (8, 5, 7):
        function(toolkit.ops.ones((3, n)))
    concrete = function.get_concrete_function(toolkit.ops.ones((3, 6)))
    assert concrete.graph.inputs[0].spec.shape == (3, 6)
    assert concrete(toolkit.ops.ones((3, 6))).tolist() == [12.0] * 3
    assert "extent" not in str(function.inspect(toolkit.ops.ones((3, 6))))


def test_threads_call_one_program_with_several_lengths() -> None:
    function = toolkit.function(lambda x: toolkit.ops.cumsum(x, axis=1) / x.shape[1])
    for n in (8, 5):
        function(toolkit.ops.ones((3, n)))

    def is_right(n: int) -> bool:
        expected = np.tile(np.arange(1, n + 1) / n, (3, 1))
        y = np.asarray(function(toolkit.ops.ones((3, n))))
        return bool(np.allclose(y, expected))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(is_right, [3 + i % 14 for i in range(400)]))


def test_gradients_of_calls_have_the_length_of_the_call() -> None:
    function = toolkit.function(lambda x: x * x * x.shape[1])
    for n in (8, 5, 7):
        function(toolkit.ops.ones((3, n)))
    x = toolkit.ops.ones((3, 6))
    with toolkit.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    assert np.array_equal(tape.gradient(y, x), np.full((3, 6), 12.0))
