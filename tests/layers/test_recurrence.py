"""Test RNN and StackedRNNCells: states, masks, directions and custom cells."""

from types import SimpleNamespace

import numpy as np
import pytest

import toolkit
from tests.compiler.graphs import trace_of
from tests.helpers import assert_close
from toolkit import layers, ops
from toolkit.errors import ArgumentError, ShapeError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 5, 3)).astype("float32")
MASK = np.array([[1, 1, 0, 1, 0], [0, 1, 1, 0, 1]], bool)


class Sum:
    """A cell that is no layer: the cumulative sum."""

    state_size = 3
    compute_dtype = "float32"

    def call(self, inputs, states):
        total = inputs + states[0]
        return total * 2.0, [total]


class RecordingCell(layers.Layer):
    """A cell that is a layer, has two states, and records its calls."""

    state_size = [3, 3]
    output_size = 3

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.calls, self.shapes = [], []

    def build(self, input_shape):
        self.shapes.append(input_shape)

    def call(self, inputs, states, training=None):
        self.calls.append((training, type(states)))
        total = inputs + states[0]
        return total, [total, states[1] + 1.0]


def reference_steps(x, mask=None, start=0.0, zero=False, backwards=False):
    """Return the outputs and the last states of Sum by NumPy."""
    total, previous, outputs = (
        np.zeros(x[:, 0].shape) + start,
        np.zeros(x[:, 0].shape),
        [],
    )
    for t in range(x.shape[1])[:: -1 if backwards else 1]:
        is_valid = np.ones(len(x), bool) if mask is None else mask[:, t]
        new = total + x[:, t]
        out = np.where(is_valid[:, None], 2 * new, 0.0 if zero else previous)
        total = np.where(is_valid[:, None], new, total)
        previous = out
        outputs.append(out)
    return np.stack(outputs, 1), total


@pytest.mark.parametrize("mask", [None, MASK], ids=["whole", "masked"])
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("unroll", [False, True])
@pytest.mark.parametrize("zero", [False, True])
def test_any_cell_is_iterated(mask, backwards, unroll, zero):
    options = {"go_backwards": backwards, "unroll": unroll}
    options["zero_output_for_mask"] = zero
    start = np.full((2, 3), 0.5, "float32")
    outputs, last = reference_steps(X, mask, 0.5, zero, backwards)
    arguments = {"initial_state": ops.convert_to_tensor(start)}
    if mask is not None:
        arguments["mask"] = ops.convert_to_tensor(mask)
    sequence_layer = layers.RNN(
        Sum(), return_sequences=True, return_state=True, **options
    )
    sequence, state = sequence_layer(X, **arguments)
    assert_close(sequence, outputs)
    assert_close(state, last)
    assert_close(layers.RNN(Sum(), **options)(X, **arguments), outputs[:, -1])


@pytest.mark.parametrize("training", [None, False, True])
def test_cell_receives_training_if_supported(training):
    cell = RecordingCell()
    layer = layers.RNN(cell, return_state=True)
    output, *states = layer(X, training=training)
    assert {t for t, _ in cell.calls} == {bool(training)}
    assert {kind for _, kind in cell.calls} == {list}
    assert cell.shapes == [(2, 3)]
    assert_close(output, X.sum(1))
    assert_close(states[1], np.full((2, 3), 5.0))
    layer.build(X.shape)
    assert cell.shapes == [(2, 3)]  # once


@pytest.mark.parametrize(
    "cell",
    [
        SimpleNamespace(state_size=3),
        SimpleNamespace(state_size=3, call=3),
        SimpleNamespace(call=len),
        3,
    ],
)
@pytest.mark.parametrize(
    "cls",
    [
        layers.RNN,
        lambda c: layers.RNN([layers.GRUCell(1), c]),
        lambda c: layers.StackedRNNCells([c]),
    ],
)
def test_invalid_cell_is_refused(cls, cell):
    with pytest.raises(ArgumentError, match="a cell needs `call.*and `state_size`"):
        cls(cell)


def test_initial_states_must_match():
    layer = layers.RNN(RecordingCell())
    with pytest.raises(ArgumentError, match="expected 2 initial states; received 1"):
        layer(X, initial_state=ops.ones((2, 3)))
    with pytest.raises(ShapeError, match=r"states and sequences differs: \(7, 3\)"):
        layer(X, initial_state=[ops.ones((7, 3)), ops.ones((7, 3))])
    outputs = layer(X, initial_state=[np.ones((2, 3)), np.ones((2, 3))])
    assert_close(outputs, X.sum(1) + 1)


def test_cell_may_define_its_initial_state():
    class Begun(RecordingCell):
        def get_initial_state(self, batch_size=None):
            return (ops.ones((batch_size, 3)), ops.zeros((batch_size, 3)))

    class One(Sum):
        def get_initial_state(self, batch_size=None):
            return ops.ones((batch_size, 3))

    assert_close(layers.RNN(Begun())(X), X.sum(1) + 1)
    assert_close(layers.RNN(One())(X), 2 * (X.sum(1) + 1))
    assert isinstance(layers.RNN(Begun()).get_initial_state(2), list)
    assert isinstance(layers.RNN(One()).get_initial_state(2), list)
    zeros = layers.RNN(RecordingCell()).get_initial_state(4)
    assert [z.shape for z in zeros] == [(4, 3)] * 2 and not np.any(zeros[0].numpy())


# --- stateful -------------------------------------------------------------------------


def test_stateful_layer_continues_until_its_reset():
    layer = layers.RNN(RecordingCell(), stateful=True, dtype="float32")
    assert layer.states is None
    layer.reset_state()  # no state yet
    layer.build((2, 5, 3))
    assert [s.shape for s in layer.states] == [(2, 3)] * 2
    assert_close(layer(X), X.sum(1))
    assert_close(layer(X), 2 * X.sum(1))
    assert_close(layer.states[1], np.full((2, 3), 10.0))
    layer.reset_states()
    assert_close(layer(X), X.sum(1))
    assert_close(layer(X, initial_state=[np.ones((2, 3))] * 2), X.sum(1) + 1)
    assert_close(layer.states[1], np.full((2, 3), 6.0))
    assert not layer.weights and not any(s.trainable for s in layer.states)
    assert {s.dtype for s in layer.states} == {"float32"}
    assert layer.states[0].name == "rnn_state"


@pytest.mark.parametrize("cls", [layers.SimpleRNN, layers.GRU, layers.LSTM])
@pytest.mark.parametrize("options", [{}, {"return_sequences": True}])
def test_a_write_to_an_output_changes_no_state(cls, options):
    layer = cls(4, stateful=True, return_state=True, **options)
    inputs = toolkit.Input(batch_shape=(2, 3, 4))
    model = toolkit.Model(inputs, layer(inputs))
    x = RNG.normal(size=(2, 3, 4)).astype("float32")
    for call in (layer, model, toolkit.function(layer), model.predict_on_batch):
        results = call(x)
        states = [state.numpy() for state in layer.states]
        for result in results:
            array = np.asarray(result)
            array.setflags(write=True)
            array[...] = 77
        for state, before in zip(layer.states, states, strict=True):
            np.testing.assert_array_equal(state.numpy(), before)


def test_layer_without_stateful_restarts():
    layer = layers.RNN(RecordingCell())
    assert_close(layer(X), layer(X).numpy())
    assert layer.states is None


def test_stateful_layer_needs_a_batch_size():
    with pytest.raises(ArgumentError, match="needs a fixed batch size; received"):
        layers.LSTM(2, stateful=True)(toolkit.Input((None, 3)))


# --- shapes and masks -----------------------------------------------------------------

CELLS = {
    "lstm": lambda: layers.LSTMCell(4),
    "stacked": lambda: [layers.GRUCell(4), layers.LSTMCell(6)],
    "mine": RecordingCell,
    "plain": lambda: layers.SimpleRNNCell(4),
}


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("sequences", [False, True])
@pytest.mark.parametrize("state", [False, True])
def test_shapes_and_masks_equal_those_of_the_outputs(kind, sequences, state):
    layer = layers.RNN(CELLS[kind](), return_sequences=sequences, return_state=state)
    outputs = layer(X)
    shapes = toolkit.tree.map_structure(lambda y: y.shape, outputs)
    if kind == "stacked" and state:  # a list of one state or the state itself
        shapes = (*shapes[:1], shapes[1][0], *shapes[2:])
    assert layer.compute_output_shape(X.shape) == shapes
    mask = layer.compute_mask(X, MASK)
    state_mask = mask[0] if state else mask
    assert (state_mask is MASK) == sequences and (state_mask is None) == (not sequences)
    if state:
        assert len(mask) == len(outputs) and mask[1:] == [None] * (len(outputs) - 1)
    masks_with_states = layer.compute_mask([X], [MASK])
    assert (masks_with_states[0] if state else masks_with_states) is state_mask


def test_mask_may_be_in_a_list_with_masks_of_states():
    layer = layers.RNN(RecordingCell(), return_sequences=True)
    mask = ops.convert_to_tensor(MASK)
    assert_close(layer(X, mask=[mask, None]), layer(X, mask=mask).numpy())


def test_sequences_need_a_step_axis():
    with pytest.raises((ShapeError, ArgumentError), match="ndim|axes|dimension"):
        layers.RNN(RecordingCell())(np.ones((2, 3), "float32"))


# --- stacked cells --------------------------------------------------------------------


@pytest.mark.parametrize("training", [False, True])
def test_stacked_cells_equal_sequential_layers(training):
    cells = [layers.GRUCell(4), layers.LSTMCell(6), layers.SimpleRNNCell(2)]
    layer = layers.RNN(cells, return_state=True)
    outputs, *states = layer(X, training=training)
    x = X
    for i, cell in enumerate(cells):
        recurrent = layers.RNN(cell, return_sequences=True, return_state=True)
        x, *states_of_layer = recurrent(x)
        initial = states[i] if isinstance(states[i], (list, tuple)) else [states[i]]
        for a, b in zip(initial, states_of_layer, strict=True):
            assert_close(a, b.numpy(), factor=10)
    assert_close(outputs, x[:, -1].numpy(), factor=10)


def test_stacked_cells_by_themselves():
    cells = [layers.GRUCell(4), RecordingCell(), Sum()]
    cells[1].state_size, cells[1].output_size = [4, 4], 4
    cells[2].state_size = 4
    stack = layers.StackedRNNCells(cells)
    assert stack.state_size[1:] == [[4, 4], 4] and stack.output_size == 4
    stack.build((2, 3))
    assert cells[0].kernel.shape[0] == 3 and cells[1].shapes == [(2, 4)]
    stack.build((2, 3))
    assert cells[1].shapes == [(2, 4)]
    states = stack.get_initial_state(2)
    shapes = toolkit.tree.map_structure(lambda s: s.shape, states)
    assert shapes[1:] == [[(2, 4), (2, 4)], (2, 4)]
    output, new = stack(X[:, 0], states)
    assert output.shape == (2, 4) and len(new) == 3
    assert isinstance(new[1], list) and new[2].shape == (2, 4)
    assert_close(output, 2 * new[2].numpy())


def test_stacked_cells_share_dropout_over_a_sequence():
    tall = np.ones((3, 6, 8), "float32")
    cells = [layers.SimpleRNNCell(5, dropout=0.5, activation=None) for _ in range(2)]
    for cell in cells:
        cell.recurrent_initializer = toolkit.initializers.Zeros()
    layer = layers.RNN(cells, return_sequences=True)
    outputs = layer(tall, training=True).numpy()[0]
    assert np.ptp(outputs, axis=0).max() < 1e-6
    assert not np.allclose(outputs, layer(tall, training=True).numpy()[0])
    without_dropout = layer(tall, training=False).numpy()[0]
    assert_close(without_dropout, layer(tall).numpy()[0])
    assert not np.allclose(without_dropout, outputs)


@pytest.mark.parametrize("cls", [layers.SimpleRNN, layers.GRU, layers.LSTM])
@pytest.mark.parametrize("stacked", [False, True])
def test_inputs_and_states_have_separate_dropout(cls, stacked):
    cell = getattr(layers, f"{cls.__name__}Cell")

    def outputs(training, **dropped):
        toolkit.utils.set_random_seed(1)
        if stacked:
            layer = layers.RNN([cell(8, **dropped)], return_sequences=True)
        else:
            layer = cls(8, return_sequences=True, **dropped)
        return layer(np.concatenate([X] * 3), training=training).numpy()

    without_dropout = outputs(True)
    assert_close(without_dropout, outputs(False, dropout=0.5, recurrent_dropout=0.5))
    inputs = outputs(True, dropout=0.5)
    assert not np.allclose(inputs[:, 0], without_dropout[:, 0])
    states = outputs(True, recurrent_dropout=0.5)
    assert_close(states[:, 0], without_dropout[:, 0])  # the state is still zero
    assert not np.allclose(states[:, 1], without_dropout[:, 1])


def test_stacked_cells_may_define_their_initial_state():
    class One(Sum):
        def get_initial_state(self, batch_size=None):
            return ops.ones((batch_size, 3))

    layer = layers.RNN([One(), One()])
    assert [s.shape for s in layer.get_initial_state(2)] == [(2, 3)] * 2
    expected = 2 * (1 + np.cumsum(2 * (1 + np.cumsum(X, 1)), 1))
    assert_close(layer(X), expected[:, -1], factor=10)


# --- graphs ---------------------------------------------------------------------------


def nodes_of(layer, name):
    """Return the nodes of an operation, except nodes in the bodies of loops."""
    layer(X)
    graph = trace_of(lambda x: toolkit.tree.flatten(layer(x)), X.shape)
    return [node for node in graph.nodes if node.op.name == name]


def scans_of(layer):
    """Return the loops of a layer; loops of built-in cells have their names."""
    names = ("scan", "lstm", "gru", "rnn")
    return [node for name in names for node in nodes_of(layer, name)]


@pytest.mark.parametrize("unroll", [False, True])
def test_graph_is_unrolled_only_on_request(unroll):
    assert len(scans_of(layers.LSTM(4, unroll=unroll))) == (0 if unroll else 1)
    symbolic = layers.LSTM(4, unroll=unroll)(toolkit.Input((None, 3)))
    assert symbolic.shape == (None, 4)  # for any number of steps


def test_shape_inference_does_not_unroll():
    class Counted(layers.SimpleRNNCell):
        calls = 0

        def call(self, inputs, states, training=False):
            Counted.calls += 1
            return super().call(inputs, states, training=training)

    layer = layers.RNN(Counted(4), unroll=True)
    layer(toolkit.Input((50, 3)))
    assert 0 < Counted.calls < 50
    layer(ops.ones((2, 50, 3)))
    assert Counted.calls >= 50


def test_no_masks_are_computed_without_dropout(monkeypatch):
    layer = layers.LSTM(4, dropout=0.5)
    layer(X)
    monkeypatch.setattr("toolkit.layers.rnn.output_size_of", None)
    assert layer(X, training=True).shape == (2, 4)


def test_states_of_custom_cells_have_the_compute_dtype():
    class Plain(layers.Layer):
        state_size = 3

        def call(self, inputs, states):
            return inputs, states

    stacked = layers.StackedRNNCells([Plain(), Plain()], dtype="mixed_float16")
    initial_states = stacked.get_initial_state(batch_size=2)
    assert [state.dtype for state in toolkit.tree.flatten(initial_states)] == [
        "float16"
    ] * 2


@pytest.mark.parametrize("dtype", ["float64", "mixed_bfloat16", "float16"])
@pytest.mark.parametrize("stateful", [False, True])
def test_list_of_cells_has_the_dtype_of_the_layer(dtype, stateful):
    cells = [layers.GRUCell(4, dtype=dtype), layers.LSTMCell(2, dtype=dtype)]
    layer = layers.RNN(cells, stateful=stateful, return_state=True, dtype=dtype)
    outputs = toolkit.tree.flatten(layer(X))
    assert {y.dtype for y in outputs} == {layer.compute_dtype}
    restored = layers.RNN.from_config(layer.get_config())
    assert restored.cell.compute_dtype == layer.compute_dtype


def test_initial_state_determines_an_unknown_output_size():
    class Two(layers.Layer):
        state_size = (3, 5)

        def call(self, inputs, states):
            return inputs, states

    assert layers.RNN(Two())(toolkit.Input((4, 3))).shape == (None, 3)
    assert layers.RNN(Two()).compute_output_shape((2, 4, 3)) == (2, 3)


@pytest.mark.parametrize("sequences", [False, True])
def test_outputs_are_stacked_only_if_they_are_returned(sequences):
    (scan,) = scans_of(layers.LSTM(4, return_sequences=sequences))
    assert len(scan.outputs) - scan.attrs["carry"] == sequences


@pytest.mark.parametrize("cls", [layers.SimpleRNN, layers.GRU, layers.LSTM])
def test_inputs_of_all_steps_are_projected_together(cls):
    (matmul,) = nodes_of(cls(4), "matmul")
    assert matmul.inputs[0].shape == (5, 2, 3)


def test_cells_of_another_precision_keep_it():
    cell = layers.GRUCell(4, dtype="float16")
    assert layers.RNN(cell, dtype="float32")(X).dtype == "float16"
    assert layers.RNN(layers.GRUCell(4, dtype="float64"), dtype="float64")(X).dtype == (
        "float64"
    )
