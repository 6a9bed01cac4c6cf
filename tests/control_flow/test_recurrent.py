"""Tests of recurrent layers as single nodes with the results of their scans."""

import numpy as np
import pytest

import toolkit
from toolkit import GradientTape, layers, ops
from toolkit.layers import rnn

X = np.random.default_rng(0).normal(size=(3, 5, 4)).astype("float32")
MASK = np.random.default_rng(1).uniform(size=(3, 5)) < 0.7
NAMES = {"lstm", "gru", "rnn", "scan"}

CASES = {
    "LSTM": ("lstm", lambda: layers.LSTM(6)),
    "LSTM, all": (
        "lstm",
        lambda: layers.LSTM(6, return_sequences=True, return_state=True),
    ),
    "LSTM, backwards": ("lstm", lambda: layers.LSTM(6, go_backwards=True)),
    "GRU": ("gru", lambda: layers.GRU(6, return_sequences=True)),
    "GRU, reset before": ("gru", lambda: layers.GRU(6, reset_after=False)),
    "SimpleRNN": ("rnn", lambda: layers.SimpleRNN(6, activation="relu")),
    "RNN": ("rnn", lambda: layers.RNN(layers.SimpleRNNCell(6))),
}


def traced(function):
    """Return the graph of a function before optimization."""
    return toolkit.function(function).inspect(X).passes[0][1]


def nodes_of(layer, **arguments):
    """Return the names of the loops in the trace of a call."""
    layer(X)
    graph = traced(lambda x: toolkit.tree.flatten(layer(x, **arguments)))
    return [node.op.name for node in graph.nodes if node.op.name in NAMES]


def results(layer, **arguments):
    """Return the result of a compiled call."""
    function = toolkit.function(lambda x: toolkit.tree.flatten(layer(x, **arguments)))
    return [y.numpy() for y in function(ops.convert_to_tensor(X))]


@pytest.mark.parametrize("mask", [None, MASK])
@pytest.mark.parametrize("name", CASES)
def test_bits_match_the_scan(name, mask, monkeypatch):
    expected, make = CASES[name]
    layer = make()
    arguments = {} if mask is None else {"mask": ops.convert_to_tensor(mask)}
    assert nodes_of(layer, **arguments) == [expected]
    actual = results(layer, **arguments)
    monkeypatch.setattr(rnn, "_find_standard_cell", lambda *args, **kwargs: None)
    assert nodes_of(layer, **arguments) == ["scan"]
    for a, b in zip(actual, results(layer, **arguments), strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("name", CASES)
def test_training_uses_a_scan(name):
    layer = CASES[name][1]()
    layer(X)

    def step(x):
        with GradientTape() as tape:
            loss = ops.sum(ops.square(toolkit.tree.flatten(layer(x))[0]))
        return tape.gradient(loss, layer.trainable_weights)

    assert {node.op.name for node in traced(step).nodes} & NAMES == {"scan"}


@pytest.mark.parametrize("name", CASES)
def test_gradients_through_a_function(name, monkeypatch):
    layer = CASES[name][1]()
    layer(X)
    function = toolkit.function(lambda x: toolkit.tree.flatten(layer(x))[0])

    def gradient():
        x = ops.convert_to_tensor(X)
        with GradientTape() as tape:
            tape.watch(x)
            loss = ops.sum(ops.square(function(x)))
        return [g.numpy() for g in tape.gradient(loss, [x, *layer.trainable_weights])]

    actual = gradient()
    monkeypatch.setattr(rnn, "_find_standard_cell", lambda *args, **kwargs: None)
    function = toolkit.function(lambda x: toolkit.tree.flatten(layer(x))[0])
    for a, b in zip(actual, gradient(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_user_cells_use_scans():
    class CustomCell(layers.LSTMCell):
        def step(self, x, states, mask=None):
            h, states = super().step(x, states, mask)
            return h * 2, states

    assert nodes_of(layers.RNN(CustomCell(6))) == ["scan"]
    assert nodes_of(layers.LSTM(6, activation=lambda x: x * 2)) == ["scan"]


def test_graphs_are_not_kept_alive():
    import gc
    import weakref

    function = toolkit.function(layers.LSTM(6))
    function(X)
    nodes = function.inspect(X).passes[0][1].nodes
    body = next(weakref.ref(n.attrs["body"]) for n in nodes if n.op.name in NAMES)
    del nodes, function
    toolkit.utils.clear_session()
    gc.collect()
    assert body() is None
