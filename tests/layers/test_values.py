"""Test values of layers against small NumPy implementations in float64."""

import numpy as np
import pytest

import toolkit
from tests.helpers import assert_close
from tests.layers import reference
from toolkit import layers, ops, serialization
from toolkit.errors import ArgumentError, ShapeError

MASK = np.array([[1, 1, 0, 1, 0], [0, 1, 1, 0, 1]], bool)


@pytest.fixture
def rng():
    return np.random.default_rng(3)


def with_weights(layer, rng, *inputs, **call):
    """Return the layer, built in float64 with random weights, and its weights."""
    layer.dtype_policy = "float64"
    for sublayer in layer._flatten_layers():
        sublayer.dtype_policy = "float64"
    layer(*inputs, **call)
    weights = [rng.normal(size=v.shape) for v in layer.weights]
    layer.set_weights(weights)
    return layer, weights


def test_dense(rng):
    x = rng.normal(size=(4, 3))
    layer, (kernel, bias) = with_weights(layers.Dense(5, activation="tanh"), rng, x)
    assert_close(layer(x), np.tanh(x @ kernel + bias))


def test_embedding(rng):
    ids = rng.integers(0, 7, (2, 5))
    layer, (table,) = with_weights(layers.Embedding(7, 3), rng, ids)
    assert_close(layer(ids), table[ids])
    from_table = layers.Embedding(7, 3, weights=table)
    assert_close(from_table(ids), table[ids].astype("float32"))
    assert from_table.get_config()["weights"] is None
    with pytest.raises(IndexError, match="7"):
        layer(np.array([7]))


@pytest.mark.parametrize("stride", [1, 2])
def test_conv2d(rng, stride):
    x = rng.normal(size=(2, 7, 6, 4))
    layer, (kernel, bias) = with_weights(
        layers.Conv2D(5, (3, 2), strides=stride), rng, x
    )
    assert_close(layer(x), reference.conv2d(x, kernel, bias, stride))


def test_channels_first_equals_the_transposed_result(rng):
    x = rng.normal(size=(2, 7, 6, 4))
    last, weights = with_weights(layers.Conv2D(5, 3, padding="same"), rng, x)
    transposed_layer = layers.Conv2D(5, 3, padding="same", data_format="channels_first")
    transposed_layer, _ = with_weights(transposed_layer, rng, np.moveaxis(x, -1, 1))
    transposed_layer.set_weights(weights)
    assert_close(
        transposed_layer(np.moveaxis(x, -1, 1)), np.moveaxis(last(x).numpy(), -1, 1)
    )


def test_causal_convolution_ignores_later_steps(rng):
    x = rng.normal(size=(1, 8, 2))
    layer, _ = with_weights(
        layers.Conv1D(3, 3, padding="causal", dilation_rate=2), rng, x
    )
    before = layer(x).numpy()
    x[:, 5:] = 0.0
    after = layer(x).numpy()
    assert before.shape == (1, 8, 3)
    assert np.array_equal(before[:, :5], after[:, :5])
    assert not np.array_equal(before[:, 5:], after[:, 5:])


def test_layer_normalization(rng):
    x = rng.normal(size=(4, 5, 3))
    layer, (gamma, beta) = with_weights(layers.LayerNormalization(), rng, x)
    normal = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-3)
    assert_close(layer(x), normal * gamma + beta)


@pytest.mark.parametrize("masked", [False, True])
def test_batch_normalization(rng, masked):
    x = rng.normal(size=(2, 5, 3))
    layer = layers.BatchNormalization(momentum=0.9)
    layer, weights = with_weights(layer, rng, x)
    weights[3] = np.abs(weights[3]) + 0.5
    layer.set_weights(weights)
    gamma, beta, mean, variance = weights
    assert_close(layer(x), (x - mean) / np.sqrt(variance + 1e-3) * gamma + beta)
    rows = x[MASK] if masked else x.reshape(-1, 3)
    expected = (x - rows.mean(0)) / np.sqrt(rows.var(0) + 1e-3) * gamma + beta
    y = layer(x, training=True, mask=MASK if masked else None)
    assert_close(
        y, expected, factor=1e6 if masked else 1.0
    )  # the counter includes epsilon
    assert_close(layer.moving_mean, 0.9 * mean + 0.1 * rows.mean(0), factor=1e6)
    assert_close(layer.moving_variance, 0.9 * variance + 0.1 * rows.var(0), factor=1e6)


def test_frozen_batch_normalization_uses_and_keeps_its_statistics(rng):
    x = rng.normal(size=(4, 3))
    layer = layers.BatchNormalization(trainable=False)
    assert_close(layer(x, training=True), layer(x, training=False))
    assert layer.moving_mean.numpy().tolist() == [0.0] * 3


RECURRENT = [
    (layers.SimpleRNN, {}, reference.simple_rnn, 1),
    (layers.GRU, {}, lambda w: reference.gru(w, True), 1),
    (layers.GRU, {"reset_after": False}, lambda w: reference.gru(w, False), 1),
    (layers.LSTM, {}, reference.lstm, 2),
]


@pytest.mark.parametrize(("cls", "arguments", "cell", "count"), RECURRENT)
@pytest.mark.parametrize("mask", [None, MASK])
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("unroll", [False, True])
def test_recurrent_layers(rng, cls, arguments, cell, count, mask, backwards, unroll):
    x = rng.normal(size=(2, 5, 3))
    options = {"go_backwards": backwards, "unroll": unroll, **arguments}
    layer = cls(4, return_sequences=True, return_state=True, **options)
    layer, weights = with_weights(layer, rng, x)
    outputs, states = reference.recurrent(cell(weights), x, 4, count, mask, backwards)
    output, *last_states = layer(x, mask=mask)
    assert_close(output, outputs)
    for a, b in zip(last_states, states, strict=True):
        assert_close(a, b)
    traced = toolkit.function(lambda: layer(x, mask=mask))()
    assert_close(traced[0], outputs)
    last, _ = with_weights(cls(4, **options), rng, x)
    last.set_weights(weights)
    assert_close(last(x, mask=mask), outputs[:, -1])


@pytest.mark.parametrize(("cls", "arguments"), [case[:2] for case in RECURRENT])
def test_traced_gradients_of_recurrent_layers(rng, cls, arguments):
    x = rng.normal(size=(2, 5, 3))
    layer, _ = with_weights(cls(4, dropout=0.3, seed=2, **arguments), rng, x)
    seed = layer.cell.seed_generator.state

    def gradients():
        with toolkit.GradientTape() as tape:
            y = layer(x, mask=MASK, training=True)
            loss = ops.sum(ops.square(y - 1.0))
        return tape.gradient(loss, layer.trainable_weights)

    start = seed.numpy()
    eager = gradients()
    seed.assign(start)
    for a, b in zip(toolkit.function(gradients)(), eager, strict=True):
        assert_close(a, b, factor=10)
    assert not np.array_equal(seed.numpy(), start)


def test_initial_states_and_the_mask_of_the_inputs(rng):
    ids = np.where(MASK, 1, 0)
    x = layers.Embedding(2, 3, mask_zero=True, dtype="float64")(ids)
    states = [rng.normal(size=(2, 4)) for _ in range(2)]
    layer, weights = with_weights(
        layers.LSTM(4, return_sequences=True), rng, x, initial_state=states
    )
    outputs, _ = reference.recurrent(
        reference.lstm(weights), x.numpy(), 4, 2, MASK, states=states
    )
    # Before its first unmasked step, a sample has no output.
    assert_close(layer(x, initial_state=states), outputs)
    with pytest.raises(ValueError, match="expected 2 initial states; received 1"):
        layer(x, initial_state=states[:1])


def test_stateful_layers_continue(rng):
    x = rng.normal(size=(2, 6, 3))
    expected_layer = layers.GRU(4, return_sequences=True)
    expected_layer, weights = with_weights(expected_layer, rng, x)
    layer = layers.GRU(4, return_sequences=True, stateful=True, dtype="float64")
    layer.build((2, 3, 3))
    layer.set_weights(weights)
    chunks = [layer(x[:, :3]).numpy(), layer(x[:, 3:]).numpy()]
    assert_close(np.concatenate(chunks, 1), expected_layer(x))
    layer.reset_state()
    assert_close(layer(x[:, :3]), chunks[0])
    with pytest.raises(ValueError, match="needs a fixed batch size"):
        layers.GRU(4, stateful=True)(toolkit.Input((5, 3)))


def test_zero_output_for_mask(rng):
    x = rng.normal(size=(2, 5, 3))
    layer = layers.SimpleRNN(4, return_sequences=True, zero_output_for_mask=True)
    y = layer(x, mask=MASK).numpy()
    assert not y[~MASK].any() and y[MASK].any()


def test_dropout_of_recurrent_layers_is_the_same_in_every_step():
    x = np.ones((3, 6, 8), "float32")
    layer = layers.SimpleRNN(
        5, activation=None, dropout=0.5, return_sequences=True, seed=1
    )
    layer.build(x.shape)
    layer.cell.recurrent_kernel.assign(np.zeros((5, 5)))
    y = layer(x, training=True).numpy()
    assert np.array_equal(y, np.repeat(y[:, :1], 6, axis=1))
    assert not np.allclose(y[0, 0], y[1, 0])
    assert not np.array_equal(y, layer(x, training=True).numpy())
    assert np.allclose(layer(x), layer(x, training=False))


def test_stacked_cells_equal_sequential_layers(rng):
    x = rng.normal(size=(2, 5, 3))
    stacked, weights = with_weights(
        layers.RNN([layers.LSTMCell(4), layers.GRUCell(2)]), rng, x
    )
    first_layer = layers.LSTM(4, return_sequences=True, dtype="float64")
    second_layer = layers.GRU(2, dtype="float64")
    second_layer(first_layer(x))
    first_layer.set_weights(weights[:3])
    second_layer.set_weights(weights[3:])
    assert_close(stacked(x), second_layer(first_layer(x)))
    config = stacked.get_config()
    assert len(layers.RNN.from_config(config).cell.cells) == 2


def test_custom_cell(rng):
    class Sum(layers.Layer):
        state_size = 3

        def call(self, inputs, states):
            total = inputs + states[0]
            return total, [total]

    x = rng.normal(size=(2, 5, 3)).astype("float32")
    layer = layers.RNN(Sum(), return_sequences=True)
    assert_close(layer(x), np.cumsum(x, axis=1))
    assert layer(toolkit.Input((None, 3))).shape == (None, None, 3)


@pytest.mark.parametrize("mode", ["concat", "sum", "mul", "ave", None])
def test_bidirectional(rng, mode):
    x = rng.normal(size=(2, 5, 3)).astype("float32")
    layer = layers.Bidirectional(
        layers.LSTM(4, return_sequences=True, return_state=True), merge_mode=mode
    )
    outputs = layer(x)
    forward, *states = layer.forward_layer(x)
    backward, *other_ends = layer.backward_layer(x)
    a, b = forward.numpy(), backward.numpy()[:, ::-1]
    merged = {
        "concat": [np.concatenate([a, b], -1)],
        "sum": [a + b],
        "mul": [a * b],
        "ave": [(a + b) / 2],
        None: [a, b],
    }[mode]
    for x, y in zip(outputs, [*merged, *states, *other_ends], strict=True):
        assert_close(x, np.asarray(y))
    twin = layers.Bidirectional.from_config(layer.get_config())
    assert twin.merge_mode == mode and twin.backward_layer.go_backwards


def test_time_distributed(rng):
    x = rng.normal(size=(2, 5, 3)).astype("float32")
    layer = layers.TimeDistributed(layers.Dense(4))
    assert_close(layer(x), np.stack([layer.layer(x[:, t]) for t in range(5)], 1))
    assert layer(toolkit.Input((None, 3))).shape == (None, None, 4)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scores", [False, True])
def test_multi_head_attention(rng, causal, scores):
    query, value = rng.normal(size=(2, 5, 8)), rng.normal(size=(2, 6, 7))
    layer = layers.MultiHeadAttention(2, 4, value_dim=3)
    layer, weights = with_weights(layer, rng, query, value)
    allowed = rng.random((2, 5, 6)) < 0.7
    allowed[:, :, 0] = True
    outputs = layer(
        query,
        value,
        attention_mask=allowed,
        use_causal_mask=causal,
        return_attention_scores=scores,
    )
    allowed = np.tril(allowed) if causal else allowed
    expected = reference.attention(query, value, weights, allowed)
    if scores:
        assert_close(outputs[1], expected[1])
    assert_close(outputs[0] if scores else outputs, expected[0], factor=10)


def test_attention_over_two_axes_equals_attention_over_flat_axes(rng):
    x, allowed = rng.normal(size=(2, 2, 3, 8)), rng.random((2, 6, 6)) < 0.7
    allowed[..., 0] = True
    row = x.reshape(2, 6, 8)
    flat, weights = with_weights(layers.MultiHeadAttention(2, 4), rng, row, row)
    layer = layers.MultiHeadAttention(2, 4, attention_axes=(1, 2))
    layer, _ = with_weights(layer, rng, x, x)
    layer.set_weights(weights)
    expected = flat(row, row, attention_mask=allowed).numpy()
    mask = allowed.reshape(2, 2, 3, 2, 3)
    assert_close(layer(x, x, attention_mask=mask), expected.reshape(x.shape))


def test_attention_axes_may_be_negative(rng):
    x = rng.normal(size=(2, 3, 4, 5, 8))
    layer = layers.MultiHeadAttention(2, 4, attention_axes=(1, 3))
    layer, weights = with_weights(layer, rng, x, x)
    negative = layers.MultiHeadAttention(2, 4, attention_axes=(-4, -2))
    negative.build(x.shape, x.shape)
    negative.set_weights(weights)
    assert_close(negative(x, x), layer(x, x).numpy())


@pytest.mark.parametrize("cls", [layers.MultiHeadAttention, layers.GroupQueryAttention])
def test_attention_projections_accept_initializer_functions(rng, cls):
    def sevens(shape, dtype=None):
        return ops.full(shape, 7.0, dtype=dtype)

    arguments = (2, 4, 2) if cls is layers.GroupQueryAttention else (2, 4)
    layer = cls(*arguments, kernel_initializer=sevens, bias_initializer=sevens)
    x = rng.normal(size=(2, 5, 8))
    layer(x, x)
    assert len(layer.weights) == 8
    assert all((weight == 7.0).all() for weight in layer.get_weights())


def test_attention_projections_have_different_initial_values(rng):
    initializer = toolkit.initializers.RandomNormal()
    layer = layers.MultiHeadAttention(2, 4, kernel_initializer=initializer)
    x = rng.normal(size=(2, 5, 8))
    layer(x, x)
    query, key, value = (w for w in layer.get_weights() if w.shape == (8, 2, 4))
    assert (query != key).any() and (key != value).any() and (query != value).any()


def test_keys_are_repeated_only_if_heads_share_them(rng):
    x = ops.convert_to_tensor(rng.normal(size=(2, 5, 2, 4)))
    assert layers.MultiHeadAttention(2, 4)._for_each_head(x) is x
    grouped = layers.GroupQueryAttention(4, num_query_heads=6, num_key_value_heads=2)
    expected = np.repeat(x.numpy(), 3, axis=2)
    assert_close(grouped._for_each_head(x), expected)


def test_attention_uses_the_masks_of_its_inputs(rng):
    ids = np.where(MASK, 1, 0)
    x = layers.Embedding(2, 8, mask_zero=True, dtype="float64")(ids)
    layer, weights = with_weights(layers.MultiHeadAttention(2, 4), rng, x, x)
    allowed = MASK[:, :, None] & MASK[:, None, :]
    y = layer(x, x)
    expected, _ = reference.attention(x.numpy(), x.numpy(), weights, allowed)
    assert_close(y.numpy()[MASK], expected[MASK], factor=10)
    assert np.array_equal(y._keras_mask, MASK)


def test_dropout_scales_the_remaining_values():
    x = ops.ones((100, 100))
    layer = layers.Dropout(0.25, seed=7)
    y = layer(x, training=True).numpy()
    assert set(np.unique(y)) == {0.0, np.float32(1 / 0.75)}
    assert abs(y.mean() - 1.0) < 0.05
    assert not np.array_equal(y, layer(x, training=True).numpy())
    assert np.array_equal(y, layers.Dropout(0.25, seed=7)(x, training=True).numpy())
    assert layer(x) is x
    outputs = layers.SpatialDropout1D(0.5)(ops.ones((8, 5, 8)), training=True).numpy()
    assert np.array_equal(outputs, np.repeat(outputs[:, :1], 5, axis=1))


def test_lambda_is_never_restored_from_code(rng):
    layer = layers.Lambda(lambda x, n: x**n, arguments={"n": 2}, output_shape=(3,))
    assert layer(toolkit.Input((3,))).shape == (None, 3)
    with pytest.warns(UserWarning, match="contain no code"):
        config = serialization.serialize_keras_object(layer)
    with pytest.raises(ValueError, match="arbitrary code execution"):
        serialization.deserialize_keras_object(config)
    custom_objects = {layer.name: lambda x, n: n * x}
    restored = serialization.deserialize_keras_object(
        config, custom_objects=custom_objects
    )
    assert restored(ops.ones((1, 3))).tolist() == [[2.0] * 3]
    layer = layers.Lambda(ops.tanh, mask=lambda inputs, mask: inputs > 0)
    twin = layers.Lambda.from_config(
        {**layers.Lambda(ops.tanh).get_config(), "name": "twin"}
    )
    x = rng.normal(size=(2, 3)).astype("float32")
    assert_close(twin(x), np.tanh(x))
    assert np.array_equal(layer(x)._keras_mask, x > 0)
    marshalled = {"class_name": "__lambda__", "config": {"code": "4wEAAAA="}}
    with pytest.raises(ValueError, match="lambda"):
        layers.Lambda.from_config({"function": marshalled})


def test_input_layer_round_trip():
    symbol = layers.Input((3, None), batch_size=2, dtype="int32", name="ids")
    assert (symbol.shape, symbol.dtype, symbol.name) == ((2, 3, None), "int32", "ids")
    layer = symbol._keras_history.operation
    twin = layers.InputLayer.from_config(layer.get_config())
    assert twin.output.shape == symbol.shape and twin.name == "ids"
    assert layers.Input(tensor=symbol).dtype == "int32"


def test_functional_forms():
    x = ops.ones((2, 3))
    assert float(layers.add([x, x])[0, 0]) == 2.0
    assert float(layers.subtract([x, x])[0, 0]) == 0.0
    assert float(layers.multiply([x, x])[0, 0]) == 1.0
    assert float(layers.average([x, x])[0, 0]) == 1.0
    assert float(layers.maximum([x, -x])[0, 0]) == 1.0
    assert float(layers.minimum([x, -x])[0, 0]) == -1.0
    assert layers.concatenate([x, x], axis=0).shape == (4, 3)
    assert layers.dot([x, x], axes=1).tolist() == [[3.0], [3.0]]


def test_dot_names_different_extents_and_the_batch():
    x, y = np.ones((2, 3)), np.ones((2, 4))
    with pytest.raises(ShapeError, match="expected equal extents"):
        layers.Dot(axes=1)([x, y])
    with pytest.raises(ShapeError, match="none of them the batch"):
        layers.Dot(axes=0)([x, x])


def test_grouped_attention_shares_keys_and_values_between_heads():
    x = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
    grouped = layers.GroupQueryAttention(3, 4, 2)
    single = layers.GroupQueryAttention(3, 4, 4)
    grouped(x, x), single(x, x)
    weights = [
        np.repeat(w, 2, axis=-2) if "key" in v.path or "value" in v.path else w
        for v, w in zip(grouped.weights, grouped.get_weights(), strict=True)
    ]
    single.set_weights(weights)
    for scores in False, True:
        results = grouped(x, x, return_attention_scores=scores)
        expected = single(x, x, return_attention_scores=scores)
        results, expected = (y if scores else [y] for y in (results, expected))
        for actual, target in zip(results, expected, strict=True):
            assert_close(actual, target.numpy(), factor=10)


class Counting(layers.Layer):
    """A cell that does not define its initial state."""

    state_size = 1

    def call(self, inputs, states):
        return states[0] + 1.0, [states[0] + 1.0]


def test_default_initial_states_are_zeros_in_the_dtype_of_the_cell():
    layer = layers.RNN(Counting(dtype="float64"), dtype="float64")
    (state,) = layer.get_initial_state(2)
    assert (state.dtype, state.shape) == ("float64", (2, 1))
    assert layer(np.zeros((2, 3, 1))).tolist() == [[3.0], [3.0]]


@pytest.mark.parametrize(
    ("noise_shape", "expected"),
    [((None, 0), "all dimensions to be positive"), ((None, "1"), "all elements to be")],
)
def test_noise_shapes_are_checked(noise_shape, expected):
    with pytest.raises(ArgumentError, match=expected):
        layers.Dropout(0.5, noise_shape=noise_shape)


def test_batch_normalization_of_another_axis_equals_the_transposed_result(rng):
    x = rng.normal(size=(6, 3, 4)).astype("float32")
    last, first_axis = layers.BatchNormalization(), layers.BatchNormalization(axis=1)
    expected = ops.transpose(last(np.swapaxes(x, 1, 2), training=True), (0, 2, 1))
    assert_close(first_axis(x, training=True), expected.numpy())
    for actual, target in zip(first_axis.weights, last.weights, strict=True):
        assert_close(actual, target.numpy())


def test_merged_tensors_get_missing_axes_after_the_batch(rng):
    x, y = rng.normal(size=(2, 4)), rng.normal(size=(2, 3, 4))
    for pair in ([x, y], [y, x]):
        assert_close(layers.Add(dtype="float64")(pair), x[:, None] + y)


def test_renormalization_limits_are_applied(rng):
    x = (rng.normal(size=(8, 3)) * 5 + 2).astype("float32")
    options = {"renorm": True, "dtype": "float64"}
    free = layers.BatchNormalization(**options)
    limits = {"rmin": 1.0, "rmax": 1.0, "dmax": 0.0}
    bound = layers.BatchNormalization(**options, renorm_clipping=limits)
    expected_layer = layers.BatchNormalization(dtype="float64")
    limited, unlimited, expected = (
        f(x, training=True) for f in (bound, free, expected_layer)
    )
    assert_close(limited, expected.numpy(), factor=10)
    assert np.abs(unlimited.numpy() - expected.numpy()).max() > 0.1
