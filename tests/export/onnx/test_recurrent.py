"""Test that recurrent layers become one node, or a loop where ONNX has no node."""

import numpy as np
import pytest

from tests.export.onnx.reference import check_export
from tests.export.onnx.rows import chain, disturbed, masked
from toolkit import Input, Model, layers

# Layers and their nodes.
CASES = {
    "LSTM": (lambda: layers.LSTM(4), "LSTM"),
    "LSTM, all": (
        lambda: layers.LSTM(4, return_sequences=True, return_state=True),
        "LSTM",
    ),
    "LSTM, backwards": (
        lambda: layers.LSTM(4, go_backwards=True, return_sequences=True),
        "LSTM",
    ),
    "LSTM without bias": (lambda: layers.LSTM(4, use_bias=False), "LSTM"),
    "GRU": (lambda: layers.GRU(4, return_sequences=True), "GRU"),
    "GRU, reset before": (lambda: layers.GRU(4, reset_after=False), "GRU"),
    "GRU of 2 units": (lambda: layers.GRU(2, return_state=True), "GRU"),
    "GRU without bias": (lambda: layers.GRU(4, use_bias=False), "GRU"),
    "GRU, backwards": (lambda: layers.GRU(4, go_backwards=True), "GRU"),
    "SimpleRNN": (lambda: layers.SimpleRNN(4), "RNN"),
    "SimpleRNN, linear": (lambda: layers.SimpleRNN(4, activation=None), "RNN"),
    "both directions": (
        lambda: layers.Bidirectional(layers.LSTM(4, return_sequences=True)),
        "LSTM",
    ),
    "of cells": (lambda: layers.RNN(layers.GRUCell(4)), "GRU"),
    "other activations": (lambda: layers.LSTM(4, activation="gelu"), "Scan"),
    "stacked cells": (
        lambda: layers.RNN([layers.LSTMCell(3), layers.GRUCell(4)]),
        "Scan",
    ),
}
LOOPS = {"LSTM", "GRU", "RNN", "Scan", "Loop"}


def loops_of(proto):
    return [node.op_type for node in proto.graph.node if node.op_type in LOOPS]


@pytest.mark.parametrize("name", CASES)
def test_layer_is_one_node(name, tmp_path):
    make, expected = CASES[name]
    proto = check_export(disturbed(chain(make())), tmp_path / "m.onnx")
    assert loops_of(proto) == [expected] * (2 if name == "both directions" else 1)


def test_masked_layers_are_loops(tmp_path):
    """The masked steps are not known before the model runs."""
    proto = check_export(masked(layers.LSTM(4)), tmp_path / "m.onnx")
    assert loops_of(proto) == ["Scan"]


def test_initial_states(tmp_path):
    x, h, c = Input((6, 3)), Input((4,)), Input((4,))
    y = layers.LSTM(4)(x, initial_state=[h, c])
    model = disturbed(Model([x, h, c], y))
    assert loops_of(check_export(model, tmp_path / "m.onnx")) == ["LSTM"]


def test_weights_have_names(tmp_path):
    proto = check_export(chain(layers.LSTM(4, name="memory")), tmp_path / "m.onnx")
    names = {x.name.rpartition("/")[2] for x in proto.graph.initializer}
    assert {"kernel", "recurrent_kernel", "bias"} <= names
    assert all("memory" in n.name for n in proto.graph.node)


@pytest.mark.parametrize("name", ["hard_sigmoid", "relu", "softsign", "linear"])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "SimpleRNN"])
def test_activations_in_onnx_runtime(kind, name, tmp_path):
    """`onnx.reference` ignores the activations of a node."""
    runtime = pytest.importorskip("onnxruntime")

    def run(path):
        session = runtime.InferenceSession(str(path))
        return lambda feeds: session.run(None, feeds)

    where = "activation" if kind == "SimpleRNN" else "recurrent_activation"
    layer = getattr(layers, kind)(4, return_sequences=True, **{where: name})
    rng = np.random.default_rng(0)
    proto = check_export(
        chain(layer),
        tmp_path / "m.onnx",
        run=run,
        draw=lambda shape, dtype: rng.uniform(-1, 1, shape).astype(dtype),
    )
    assert len(loops_of(proto)) == 1
