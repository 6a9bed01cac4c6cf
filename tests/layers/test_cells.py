"""Test cells that users derive: their `call`, and the masks of their dropout."""

import copy
import pickle

import numpy as np
import pytest

import toolkit
from toolkit import layers, ops

CELLS = [layers.SimpleRNNCell, layers.GRUCell, layers.LSTMCell]
HALF = {"dropout": 0.5, "seed": 3}
BOTH = {"dropout": 0.5, "recurrent_dropout": 0.5, "seed": 3}
X = np.ones((2, 5, 8), "float32")


def zero_states(cell):
    """Return states of zeros for a batch of two."""
    return cell.get_initial_state(2)


def with_call(base, function):
    """Return a subclass of `base` with this `call(self, inputs, states)`."""

    class Subclass(base):
        def call(self, inputs, states, training=False):
            return function(self, inputs, states, training)

    return Subclass


@pytest.mark.parametrize("base", CELLS)
@pytest.mark.parametrize("stacked", [False, True])
def test_call_of_a_subclass_is_called(base, stacked):
    def doubled(self, inputs, states, training):
        output, states = base.call(self, inputs, states, training)
        return output * 2.0, states

    cell = with_call(base, doubled)(4)
    layer = layers.RNN([cell] if stacked else cell, return_sequences=True)
    reference = base(4)
    reference.build((None, 8))
    outputs = layer(X)
    reference.set_weights(cell.get_weights())
    expected = layers.RNN(reference, return_sequences=True)(X)
    np.testing.assert_allclose(outputs, 2.0 * expected.numpy(), rtol=1e-5)


@pytest.mark.parametrize("base", CELLS)
def test_masks_are_cached_until_they_are_reset(base):
    cell = base(4, **HALF, recurrent_dropout=0.5)
    inputs, state = np.ones((2, 8), "float32"), np.ones((2, 4), "float32")
    for get, reset, x in (
        (cell.get_dropout_mask, cell.reset_dropout_mask, inputs),
        (cell.get_recurrent_dropout_mask, cell.reset_recurrent_dropout_mask, state),
    ):
        first_mask = np.array(get(x))
        assert set(first_mask.ravel().tolist()) == {0.0, 2.0}
        np.testing.assert_array_equal(np.array(get(x)), first_mask)
        reset()
        assert (np.array(get(x)) != first_mask).any()
    single_step = base(4, **HALF)
    assert single_step.get_dropout_mask(inputs).shape == (2, 8)
    assert single_step.get_recurrent_dropout_mask(state) is None
    assert single_step.get_dropout_mask(inputs[:1]).shape == (
        1,
        8,
    )  # the last batch is smaller


@pytest.mark.parametrize(
    "cell, count",
    [
        (layers.SimpleRNNCell(4, **BOTH), None),
        (layers.GRUCell(4, **HALF), None),
        (layers.GRUCell(4, **BOTH), 3),
        (layers.LSTMCell(4, **HALF), None),
        (layers.LSTMCell(4, **BOTH), 4),
        (layers.LSTMCell(4, implementation=1, **HALF), 4),
    ],
)
def test_each_gate_has_a_mask(cell, count):
    mask = cell.get_dropout_mask(np.ones((2, 8), "float32"))
    assert (len(mask) if isinstance(mask, list) else None) == count
    assert cell.dropout_mask_count == count


@pytest.mark.parametrize("base", CELLS)
@pytest.mark.parametrize("arguments", [HALF, BOTH], ids=["inputs", "both"])
def test_step_uses_the_cached_masks(base, arguments):
    cell = base(4, **arguments)
    x, states = X[:, 0], [np.ones((2, 4), "float32") for _ in zero_states(base(4))]

    def step():
        return cell(x, states, training=True)[0].numpy()

    assert (step() != step()).any()  # without cached masks, each call has new ones
    cell.reset_dropout_mask()
    cell.reset_recurrent_dropout_mask()
    first_output = step()
    np.testing.assert_array_equal(step(), first_output)
    cell.reset_dropout_mask()
    assert (step() != first_output).any()


def masked(self, inputs, states, training):
    mask = self.get_dropout_mask(inputs) if training else None
    shown = inputs if mask is None else inputs * mask
    return shown[:, :4], states


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("unroll", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_steps_of_a_layer_share_the_dropout_mask(stacked, unroll, compiled):
    cell = with_call(layers.SimpleRNNCell, masked)(4, **HALF)
    layer = layers.RNN(
        [cell] if stacked else cell, return_sequences=True, unroll=unroll
    )
    call = toolkit.function(layer) if compiled else layer
    first, second = (np.array(call(X, training=True)) for _ in range(2))
    assert set(first.ravel().tolist()) == {0.0, 2.0}
    for outputs in (first, second):
        np.testing.assert_array_equal(outputs, outputs[:, :1].repeat(5, axis=1))
    assert (first != second).any()
    np.testing.assert_array_equal(np.array(call(X)), 1.0)


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("function", [None, masked], ids=["ours", "own call"])
def test_random_numbers_are_drawn_only_in_training(stacked, function):
    base = layers.SimpleRNNCell
    cell = (with_call(base, function) if function else base)(4, **BOTH)
    layer = layers.RNN([cell] if stacked else cell)

    def count_draws(training):
        before = cell.seed_generator.state.numpy()
        layer(X, training=training)
        return (cell.seed_generator.state.numpy() != before).any()

    assert count_draws(True) and not count_draws(False)


def test_steps_share_the_mask_if_the_base_is_called():
    def called(self, inputs, states, training):
        return layers.SimpleRNNCell.call(self, inputs, states, training)

    cell = with_call(layers.SimpleRNNCell, called)(
        4, "linear", recurrent_initializer="zeros", **HALF
    )
    outputs = np.array(layers.RNN(cell, return_sequences=True)(X, training=True))
    np.testing.assert_array_equal(outputs, outputs[:, :1].repeat(5, axis=1))


def test_second_stacked_cell_has_masks_of_its_width():
    first_cell = layers.LSTMCell(3)
    second_cell = with_call(layers.SimpleRNNCell, masked)(3, **HALF)
    outputs = layers.RNN([first_cell, second_cell])(X, training=True)
    assert outputs.shape == (2, 3)


def test_model_with_a_custom_cell_trains():
    def called(self, inputs, states, training):
        return layers.SimpleRNNCell.call(self, inputs, states, training)

    cell = with_call(layers.SimpleRNNCell, called)(4, **HALF)
    model = toolkit.Sequential([layers.RNN(cell), layers.Dense(1)])
    model.compile(toolkit.optimizers.SGD(0.0), "mse")
    history = model.fit(X, np.ones((2, 1), "float32"), epochs=3, verbose=0)
    assert len(set(history.history["loss"])) == 3  # new masks for each batch


def test_masks_are_not_copied_or_pickled():
    cell = layers.LSTMCell(2, **BOTH)
    toolkit.function(cell.get_dropout_mask)(X[:, 0])
    for twin in (copy.deepcopy(cell), pickle.loads(pickle.dumps(cell))):
        assert len(twin.get_dropout_mask(X[:, 0])) == 4


def test_masks_of_a_trace_do_not_leak():
    cell = layers.SimpleRNNCell(4, **HALF)
    traced = toolkit.function(lambda x: ops.sum(cell.get_dropout_mask(x)))
    x = np.ones((64, 8), "float32")
    cell.get_dropout_mask(x)
    results = {float(traced(x)) for _ in range(4)}
    assert len(results) > 1  # no constant of the graph
    assert np.array(cell.get_dropout_mask(x)).shape == (64, 8)
