"""Test unknown extents of inputs: extents with one name are equal."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import toolkit as tk
from toolkit.models.importing.inference import filled_shapes

FLOAT = TensorProto.FLOAT


def save_model(path, nodes, inputs, outputs=("y",)):
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(k, FLOAT, shape) for k, shape in inputs.items()],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs],
    )
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.save(model, path)
    return tk.saving.load_onnx(path)


def test_name_in_two_inputs_is_one_extent(tmp_path):
    # A recurrent model has its batch in axis 0 of the input and axis 1 of the state.
    nodes = [
        helper.make_node("Unsqueeze", ["x", "axes"], ["rows"]),
        helper.make_node("Add", ["rows", "state"], ["y"]),
    ]
    nodes.insert(0, helper.make_node("Constant", [], ["axes"], value_ints=[0]))
    inputs = {"x": ["batch", 4], "state": [2, "batch", 4]}
    model = save_model(tmp_path / "model.onnx", nodes, inputs)
    assert model.output_shape == (2, None, 4)
    x, state = np.ones((3, 4), "float32"), np.ones((2, 3, 4), "float32")
    assert np.array_equal(np.asarray(model([x, state])), state + 1)
    outer = model([tk.Input((4,)), tk.Input((3, 4), batch_size=2)])
    assert outer.shape == (2, 3, 4)


def test_name_that_is_a_sum(tmp_path):
    # Decoders have a mask that is as long as the cache and the new tokens.
    nodes = [
        helper.make_node("Concat", ["past", "x"], ["all"], axis=1),
        helper.make_node("Add", ["all", "mask"], ["y"]),
    ]
    inputs = {
        "x": ["batch", "steps"],
        "past": ["batch", "past"],
        "mask": ["batch", "past + steps"],
    }
    model = save_model(tmp_path / "model.onnx", nodes, inputs)
    arrays = [np.ones((2, n), "float32") for n in (3, 4, 7)]
    assert np.asarray(model(arrays)).shape == (2, 7)


@pytest.mark.parametrize(
    ("shapes", "filled"),
    [
        ([(None, None)], [(2, 9)]),
        ([(3, "n"), ("n", 4)], [(3, 2), (2, 4)]),
        ([("n", "m"), (1, "m+1"), (1, "n + m")], [(2, 9), (1, 10), (1, 11)]),
        ([(1, "12"), (1, "a+")], [(1, 12), (1, 9)]),
        ([("n+1", "n")], [(10, 9)]),
    ],
)
def test_filled_shapes(shapes, filled):
    assert filled_shapes(shapes, (2, 9)) == filled


def test_extent_of_minus_one_is_unknown(tmp_path):
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    model = save_model(tmp_path / "model.onnx", nodes, {"x": [-1, 3, -1]})
    assert model.input_shape == model.output_shape == (None, 3, None)
