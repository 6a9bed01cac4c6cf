"""Test operators that read and write at indices: the valid range is [-n, n - 1]."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import toolkit as tk
from toolkit.errors import ModelFileError, OutOfRangeError

X = np.arange(12, dtype="float32").reshape(3, 4)
U = np.float32([[50, 51, 52, 53]])
# Operator -> its attributes, the shape of its indices with an index i, the result.
CASES = {
    "Gather": ({}, lambda i: [i], lambda i: X[[i]]),
    "GatherElements": ({}, lambda i: [[i] * 4], lambda i: X[[i]]),
    "GatherND": ({}, lambda i: [[i, 0]], lambda i: X[[i], 0]),
    "GatherND of one axis": ({}, lambda i: [[i]], lambda i: X[[i]]),
    "GatherND of a batch": (
        {"batch_dims": 1},
        lambda i: [[0], [1], [i]],
        lambda i: X[[0, 1, 2], [0, 1, i]],
    ),
    "ScatterElements": ({}, lambda i: [[i] * 4], None),
    "ScatterND": ({}, lambda i: [[i]], None),
}


def load(name, indices, as_constant, tmp_path):
    op = name.split()[0]
    inputs = ["x", "i"] + ["u"] * op.startswith("Scatter")
    node = helper.make_node(op, inputs, ["y"], **CASES[name][0])
    arrays = {"i": np.array(indices, np.int64), "u": U}
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)]
    if not as_constant:
        shape = arrays["i"].shape
        values.append(helper.make_tensor_value_info("i", TensorProto.INT64, shape))
        del arrays["i"]
    graph = helper.make_graph(
        [node],
        "graph",
        values,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, k) for k, array in arrays.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.save(model, tmp_path / "model.onnx")
    return tk.saving.load_onnx(tmp_path / "model.onnx")


def extent_of(name):
    return X.shape[1 if name.endswith("batch") else 0]


@pytest.mark.parametrize("end", ["first", "last", "below", "above"])
@pytest.mark.parametrize("name", CASES)
def test_range_of_indices(name, end, tmp_path):
    _, shaped, result = CASES[name]
    n = extent_of(name)
    i = {"first": -n, "last": n - 1, "below": -n - 1, "above": n}[end]
    if end in ("below", "above"):
        with pytest.raises(ModelFileError, match="expected indices"):
            load(name, shaped(i), True, tmp_path)
        model = load(name, shaped(i), False, tmp_path)
        for call in (model, tk.function(model)):
            with pytest.raises(OutOfRangeError, match="out of range"):
                call([X, np.array(shaped(i))])
        return
    expected = result(i) if result else np.where(np.arange(3)[:, None] == i % n, U, X)
    for as_constant in (True, False):
        model = load(name, shaped(i), as_constant, tmp_path)
        inputs = X if as_constant else [X, np.array(shaped(i))]
        for call in (model, tk.function(model)):
            assert np.array_equal(np.asarray(call(inputs)), expected)
