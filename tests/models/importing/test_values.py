"""Test graphs in which a shape depends on values: they run node by node."""

import warnings

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import toolkit as tk
from toolkit.errors import UnsupportedError

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
W = np.arange(6, dtype="float32").reshape(3, 2) - 2


@pytest.fixture
def path(tmp_path):
    """Write a file: the rows of x @ w whose sum is positive, and the product."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("ReduceSum", ["product", "axis"], ["sums"], keepdims=0),
        helper.make_node("Greater", ["sums", "zero"], ["is_positive"]),
        helper.make_node("Compress", ["product", "is_positive"], ["y"], axis=0),
    ]
    arrays = {"w": W, "axis": np.array([1]), "zero": np.float32([0])}
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", FLOAT, ["n", 3])],
        [
            helper.make_tensor_value_info("y", FLOAT, ["positive", 2]),
            helper.make_tensor_value_info("product", FLOAT, ["n", 2]),
        ],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.save(model, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


X = np.random.default_rng(0).normal(size=(6, 3)).astype("float32")


def check(results, x):
    product = x @ W
    selected = product[product.sum(1) > 0]
    assert 0 < len(selected) < len(x)
    for y, expected in zip(results, (selected, product), strict=True):
        np.testing.assert_allclose(np.asarray(y), expected, 1e-5, 1e-6)


def test_model_runs_and_warns_once(path):
    model = tk.saving.load_onnx(path)
    assert model.output_shape == [(None, 2), (None, 2)]
    with pytest.warns(UserWarning, match="node by node.*the condition is computed"):
        check(model(X), X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(model(X), X)
        check(model.predict(X, batch_size=len(X), verbose=0), X)


def test_compiled_function_is_refused(path):
    model = tk.saving.load_onnx(path)
    with pytest.raises(UnsupportedError, match=r"Compress.*outside of `toolkit.func"):
        tk.function(model)(X)


def test_model_is_part_of_other_models_and_saved(path, tmp_path):
    outer = tk.Input((3,))
    model = tk.Model(outer, tk.saving.load_onnx(path)(outer * 1.0))
    model.save(tmp_path / "outer.keras")
    restored = tk.saving.load_model(tmp_path / "outer.keras")
    for loaded in (model, restored):
        with pytest.warns(UserWarning, match="node by node"):
            check(loaded.predict(X, batch_size=len(X), verbose=0), X)


def test_model_trains(path):
    model = tk.saving.load_onnx(path)
    model.compile("sgd", loss=[None, "mse"])
    before = model.get_weights()[0]
    with pytest.warns(UserWarning, match="node by node"):
        model.fit(X, [np.zeros((6, 2)), np.ones((6, 2))], batch_size=6, verbose=0)
    assert not np.array_equal(model.get_weights()[0], before)


def test_shape_input(tmp_path):
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    graph = helper.make_graph(
        [node],
        "graph",
        [
            helper.make_tensor_value_info("x", FLOAT, ["n", 3]),
            helper.make_tensor_value_info("shape", INT, [2]),
        ],
        [helper.make_tensor_value_info("y", FLOAT, ["a", "b"])],
    )
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.save(model, tmp_path / "model.onnx")
    loaded = tk.saving.load_onnx(tmp_path / "model.onnx")
    with pytest.warns(UserWarning, match="the shape is computed from data"):
        y = loaded([X, np.array([3, -1])])
    assert np.array_equal(np.asarray(y), X.reshape(3, -1))
