"""Test sequences of tensors inside of a graph."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import toolkit as tk
from toolkit.errors import ModelFileError, ToolkitError, UnsupportedError

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def node(op, inputs, output="y", **attributes):
    return helper.make_node(op, inputs.split(" "), output.split(), **attributes)


def value(name, kind=FLOAT, shape=None):
    return helper.make_tensor_value_info(name, kind, shape)


def load(nodes, tmp_path, arrays=None, output=None):
    arrays = {
        name: np.array(i, np.float32 if isinstance(i, float) else None)
        for name, i in (arrays or {}).items()
    }
    graph = helper.make_graph(
        nodes,
        "graph",
        [value("x", FLOAT, ["n", 4])],
        [output or value("y")],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.save(model, tmp_path / "model.onnx")
    return tk.saving.load_onnx(tmp_path / "model.onnx")


X = np.arange(12, dtype="float32").reshape(3, 4)
HALVES = node("SplitToSequence", "x two", "s", axis=1)
CASES = {
    "halves in another order": (
        [
            HALVES,
            node("SequenceAt", "s last", "a"),
            node("SequenceErase", "s", "rest"),
            node("SequenceInsert", "rest a zero", "t"),
            node("ConcatFromSequence", "t", axis=1),
        ],
        X[:, [2, 3, 0, 1]],
    ),
    "a new axis": (
        [
            node("Neg", "x", "minus"),
            node("SequenceConstruct", "x minus", "s"),
            node("ConcatFromSequence", "s", axis=-1, new_axis=1),
        ],
        np.stack([X, -X], -1),
    ),
    "the length": (
        [
            node("SplitToSequence", "x", "s", axis=1, keepdims=0),
            node("SequenceLength", "s", "n"),
            node("Cast", "n", "f", to=FLOAT),
            node("Mul", "x f"),
        ],
        X * 4,
    ),
}
CASES["a value that may be left out"] = (
    [
        node("Optional", "x", "o"),
        node("OptionalHasElement", "o", "is_there"),
        node("OptionalGetElement", "o", "e"),
        node("Where", "is_there e below"),
    ],
    X,
)
CONSTANTS = {"below": -1.0, "two": 2, "last": -1, "zero": 0}


@pytest.mark.parametrize("name", CASES)
def test_sequence(name, tmp_path):
    nodes, wanted = CASES[name]
    model = load(nodes, tmp_path, CONSTANTS)
    for call in (model, tk.function(model)):
        assert np.array_equal(np.asarray(call(X)), wanted)


def test_sequence_map(tmp_path):
    body = helper.make_graph(
        [node("ReduceSum", "item", "total", keepdims=1)],
        "body",
        [value("item")],
        [value("total")],
    )
    nodes = [
        HALVES,
        node("SequenceMap", "s", "t", body=body),
        node("ConcatFromSequence", "t", axis=1),
    ]
    model = load(nodes, tmp_path, CONSTANTS)
    assert np.asarray(tk.function(model)(X)).tolist() == [[27.0, 39.0]]


def test_loop_that_collects(tmp_path):
    body = helper.make_graph(
        [
            node("Identity", "c", "d"),
            node("Cast", "i", "f", to=FLOAT),
            node("Add", "x f", "shifted"),
            node("SequenceInsert", "s shifted", "t"),
        ],
        "body",
        [value("i", INT, []), value("c", BOOL, []), sequence("s")],
        [value("d", BOOL, []), sequence("t")],
    )
    nodes = [
        helper.make_node("SequenceEmpty", [], ["start"]),
        node("Loop", "count  start", "all", body=body),
        node("ConcatFromSequence", "all", axis=0),
    ]
    model = load(nodes, tmp_path, {"count": 20})
    expected = np.concatenate([X + i for i in range(20)])
    for call in (model, tk.function(model)):
        assert np.array_equal(np.asarray(call(X)), expected)


def sequence(name):
    kind = helper.make_tensor_type_proto(FLOAT, None)
    return helper.make_value_info(name, helper.make_sequence_type_proto(kind))


def test_refusals(tmp_path):
    nodes = [node("SequenceConstruct", "x", "s"), node("Relu", "s")]
    with pytest.raises(UnsupportedError, match="Relu.*received a sequence of 1"):
        load(nodes, tmp_path)
    with pytest.raises(
        ModelFileError, match="position in a sequence of 2 tensors; received 7"
    ):
        load([HALVES, node("SequenceAt", "s at")], tmp_path, {"two": 2, "at": 7})
    with pytest.raises(ModelFileError, match="expected a sequence; received a tensor"):
        load([node("SequenceLength", "x")], tmp_path)
    with pytest.raises(ToolkitError, match="its type is sequence"):
        load([HALVES], tmp_path, CONSTANTS, sequence("s"))
