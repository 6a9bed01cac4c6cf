"""Test nodes that the tests of ONNX omit against its reference."""

import math

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import toolkit as tk
from toolkit.errors import LoadBudgetError, ModelFileError, UnsupportedError
from toolkit.models.importing.operators import OPERATORS

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def info(name, shape=None, dtype=FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def node(op, inputs, outputs=("y",), **attributes):
    return helper.make_node(op, inputs, list(outputs), **attributes)


def model(nodes, arrays=None, x=("n", 3), outputs=("y",), opset=17):
    tensors = [
        numpy_helper.from_array(np.asarray(a), k) for k, a in (arrays or {}).items()
    ]
    inputs_of_body = [info(name, None) for name in outputs]
    graph = helper.make_graph(nodes, "graph", [info("x", x)], inputs_of_body, tensors)
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def load(model, tmp_path):
    onnx.save(model, tmp_path / "model.onnx")
    return tk.saving.load_onnx(tmp_path / "model.onnx")


def check(model, tmp_path, *shape):
    """Check that a model equals the reference for two batch sizes."""
    loaded = load(model, tmp_path)
    for n in (1, 4):
        x = np.random.default_rng(n).normal(size=(n, *shape)).astype("float32")
        expected = ReferenceEvaluator(model).run(None, {"x": x})
        for y in (loaded(x), tk.function(loaded)(x)):
            y = y if isinstance(y, list) else [y]
            for actual, reference in zip(y, expected, strict=True):
                assert np.allclose(np.asarray(actual), reference, 1e-4, 1e-5)
    return loaded


def test_number_of_operators_is_about_200():
    assert len(OPERATORS) >= 204


def test_global_lp_pool(tmp_path):
    loaded = load(model([node("GlobalLpPool", ["x"], p=3)], x=("n", 2, 4)), tmp_path)
    x = np.arange(-8.0, 8.0, dtype="float32").reshape(2, 2, 4)
    expected = (np.abs(x) ** 3).sum(-1, keepdims=True) ** (1 / 3)
    assert np.allclose(np.asarray(loaded(x)), expected, 1e-5)


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax_before_opset_13_flattens_axes(op, axis, tmp_path):
    onnx_model = model([node(op, ["x"], axis=axis)], x=("n", 3, 2, 4), opset=11)
    x = np.random.default_rng(0).normal(size=(2, 3, 2, 4)).astype("float32")
    rows = x.reshape((math.prod(x.shape[:axis]), -1))
    expected = np.exp(rows) / np.exp(rows).sum(1, keepdims=True)
    expected = expected if op == "Softmax" else np.log(expected)
    y = np.asarray(load(onnx_model, tmp_path)(x))
    assert np.allclose(y, expected.reshape(x.shape), 1e-5, 1e-6)


SHAPE = ("n", 3, 6, 5)
# Operators whose attributes became inputs: nodes, arrays, opset.
OLDER = {
    "Clip": ([node("Clip", ["x"], min=-0.5, max=0.25)], {}, 6),
    "Pad": ([node("Pad", ["x"], pads=[0, 0, 1, 2, 0, 1, 0, 3], value=2.0)], {}, 9),
    "Slice": ([node("Slice", ["x"], starts=[1, -3], ends=[9, -1], axes=[3, 2])], {}, 9),
    "ReduceSum": ([node("ReduceSum", ["x"], axes=[1, -1], keepdims=0)], {}, 11),
    "ReduceMean": ([node("ReduceMean", ["x"], axes=[2])], {}, 13),
    "Squeeze": (
        [node("ReduceMax", ["x"], ["a"], axes=[2]), node("Squeeze", ["a"], axes=[2])],
        {},
        11,
    ),
    "Unsqueeze": ([node("Unsqueeze", ["x"], axes=[0, 5])], {}, 11),
    "Split": ([node("Split", ["x"], ["y", "z"], axis=3, split=[2, 3])], {}, 11),
    "TopK": ([node("TopK", ["x"], ["y", "z"], axis=2, k=2)], {}, 9),
    "Dropout": ([node("Dropout", ["x"], ratio=0.5)], {}, 10),
    "Upsample": ([node("Upsample", ["x", "s"])], {"s": np.float32([1, 1, 2, 3])}, 9),
    "Reshape": ([node("Reshape", ["x", "s"])], {"s": [0, -1, 5]}, 9),
}


@pytest.mark.parametrize("name", OLDER)
def test_older_opsets(name, tmp_path):
    nodes, arrays, opset = OLDER[name]
    outputs = list(nodes[-1].output)
    check(model(nodes, arrays, SHAPE, outputs, opset), tmp_path, 3, 6, 5)


def test_resize_of_opset_10(tmp_path):
    onnx_model = model(
        [node("Resize", ["x", "s"])], {"s": np.float32([1, 1, 2, 3])}, SHAPE
    )
    onnx_model.opset_import[0].version = 10
    x = np.random.default_rng(0).normal(size=(2, 3, 6, 5)).astype("float32")
    y = np.asarray(load(onnx_model, tmp_path)(x))
    assert np.array_equal(y, x.repeat(2, axis=2).repeat(3, axis=3))


def test_batch_normalization_of_opset_9(tmp_path):
    arrays = {k: np.float32([1, 2, 3]) for k in "abcd"}
    nodes = [node("BatchNormalization", ["x", *"abcd"], epsilon=0.5)]
    onnx_model = model(nodes, arrays, SHAPE, opset=9)
    x = np.random.default_rng(0).normal(size=(2, 3, 6, 5)).astype("float32")
    p = np.float32([1, 2, 3]).reshape(3, 1, 1)
    y = np.asarray(load(onnx_model, tmp_path)(x))
    assert np.allclose(y, (x - p) / np.sqrt(p + 0.5) * p + p, 1e-5, 1e-5)


def test_known_shapes_are_computed(tmp_path):
    """Exporters write these nodes to flatten all axes except the batch."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"]),
        node("Unsqueeze", ["n", "first"], ["n1"]),
        node("Concat", ["n1", "rest"], ["to"], axis=0),
        node("Reshape", ["x", "to"], ["f"]),
        node(
            "ConstantOfShape",
            ["n1"],
            ["ones"],
            value=numpy_helper.from_array(np.float32([2])),
        ),
        node("Unsqueeze", ["ones", "first1"], ["column"]),
        node("Add", ["f", "column"]),
    ]
    arrays = {"zero": np.int64(0), "first": [0], "first1": [1], "rest": [-1]}
    loaded = check(model(nodes, arrays, ("n", 3, 4)), tmp_path, 3, 4)
    assert loaded.output_shape == (None, 12)


def branch(name, *nodes):
    return helper.make_graph(nodes, name, [], [info(f"{name}_y")])


def test_if_depends_on_data(tmp_path):
    nodes = [
        node("ReduceSum", ["x"], ["sum"], keepdims=0),
        node("Greater", ["sum", "zero"], ["positive"]),
        node(
            *("If", ["positive"]),
            then_branch=branch("a", node("Mul", ["x", "two"], ["a_y"])),
            else_branch=branch("b", node("Sub", ["x", "two"], ["b_y"])),
        ),
    ]
    arrays = {"zero": np.float32(0), "two": np.float32(2)}
    loaded = check(model(nodes, arrays), tmp_path, 3)
    for sign in (1, -1):
        x = sign * np.ones((2, 3), "float32")
        expected = 2 * x if sign > 0 else x - 2
        assert np.array_equal(loaded.predict(x, verbose=0), expected)


def body(*nodes, carried=(), stacked=()):
    inputs = [
        info("i", [], INT),
        info("go", [], BOOL),
        *(info(f"{v}_in") for v in carried),
    ]
    results = [info("on", [], BOOL), *(info(f"{v}_out") for v in (*carried, *stacked))]
    return helper.make_graph(nodes, "body", inputs, results)


def grow(*nodes):
    steps = [
        node("Identity", ["go"], ["on"]),
        node("Mul", ["v_in", "factor"], ["v_out"]),
        node("Add", ["v_out", "v_in"], ["s_out"]),
    ]
    return body(*steps, *nodes, carried="v", stacked="s")


@pytest.mark.parametrize("steps", [3, 40])
def test_loops_of_known_length(steps, tmp_path):
    nodes = [node("Loop", ["count", "true", "x"], ["y", "rows"], body=grow())]
    arrays = {
        "count": np.int64(steps),
        "true": np.array(True),
        "factor": np.float32(0.9),
    }
    check(model(nodes, arrays), tmp_path, 3)
    loaded = load(model(nodes, arrays, outputs=("y", "rows")), tmp_path)
    x = np.random.default_rng(0).normal(size=(2, 3)).astype("float32")
    factors = 0.9 ** np.arange(steps).reshape(-1, 1, 1)
    y, rows = loaded.predict(x, verbose=0)
    assert np.allclose(y, x * 0.9**steps, 1e-4)
    assert np.allclose(rows, 1.9 * x * factors, 1e-4)


def test_loop_with_an_end_that_depends_on_data(tmp_path):
    steps = [
        node("Mul", ["v_in", "factor"], ["v_out"]),
        node("ReduceMax", ["v_out"], ["top"], keepdims=0),
        node("Greater", ["top", "limit"], ["on"]),
    ]
    nodes = [
        node("Abs", ["x"], ["a"]),
        node("Loop", ["", "true", "a"], body=body(*steps, carried="v")),
    ]
    arrays = {
        "true": np.array(True),
        "factor": np.float32(0.5),
        "limit": np.float32(0.1),
    }
    check(model(nodes, arrays), tmp_path, 3)


def test_reverse_scan_along_other_axes(tmp_path):
    inputs_of_body = [info("s", None), info("row", None)]
    results = [info("t", None), info("out", None)]
    steps = [node("Add", ["s", "row"], ["t"]), node("Mul", ["t", "half"], ["out"])]
    inner = helper.make_graph(steps, "body", inputs_of_body, results)
    attributes = {"num_scan_inputs": 1, "scan_input_axes": [1], "body": inner}
    attributes |= {"scan_output_axes": [1]}
    nodes = [
        node("ReduceMean", ["x"], ["m"], axes=[1], keepdims=0),
        node("Scan", ["m", "x"], ["last", "y"], **attributes),
    ]
    nodes[1].attribute.append(helper.make_attribute("scan_input_directions", [1]))
    arrays = {"half": np.float32(0.5)}
    loaded = load(model(nodes, arrays, ("n", 5, 3), ("last", "y")), tmp_path)
    x = np.random.default_rng(0).normal(size=(2, 5, 3)).astype("float32")
    running_sums = x.mean(1, keepdims=True) + np.cumsum(x[:, ::-1], 1)
    for last, y in (loaded(x), tk.function(loaded)(x)):
        assert np.allclose(np.asarray(last), running_sums[:, -1], 1e-5, 1e-6)
        assert np.allclose(np.asarray(y), running_sums / 2, 1e-5, 1e-6)


def recurrent(op, gates, tmp_path, **attributes):
    units, features, steps = 3, 4, 5
    count = 2 if attributes.get("direction") == "bidirectional" else 1
    random = np.random.default_rng(0)
    shapes = {"w": (count, gates * units, features), "r": (count, gates * units, units)}
    shapes |= {"b": (count, 2 * gates * units)}
    arrays = {k: random.normal(0, 0.5, s).astype("float32") for k, s in shapes.items()}
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
        node(op, ["t", *"wrb"], ["y", "h"], hidden_size=units, **attributes),
    ]
    onnx_model = model(nodes, arrays, ("n", steps, features), ("y", "h"), 14)
    check(onnx_model, tmp_path, steps, features)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("op, gates", [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_recurrent(op, gates, direction, tmp_path):
    recurrent(op, gates, tmp_path, direction=direction)


def test_gru_with_the_reset_after_the_product(tmp_path):
    recurrent("GRU", 3, tmp_path, linear_before_reset=1)


def test_tied_embedding_is_one_weight(tmp_path):
    nodes = [
        node("Cast", ["x"], ["ids"], to=INT),
        node("Gather", ["words.weight", "ids"], ["e"]),
        node("Transpose", ["words.weight"], ["t"], perm=[1, 0]),
        node("MatMul", ["e", "t"]),
    ]
    table = np.random.default_rng(0).normal(size=(6, 4)).astype("float32")
    loaded = load(model(nodes, {"words.weight": table}, ("n", 3)), tmp_path)
    assert [v.path for v in loaded.variables] == ["words/weight"]
    x = np.array([[0, 5, 2]], "float32")
    expected = table[x.astype(int)] @ table.T
    assert np.allclose(loaded.predict(x, verbose=0), expected, 1e-5)


def test_statistics_and_masks_are_not_trained(tmp_path):
    nodes = [
        node("BatchNormalization", ["x", *(f"bn.{k}" for k in "abcd")], ["n"]),
        node("Where", ["mask", "n", "low"]),
    ]
    arrays = {f"bn.{k}": np.float32([1, 2, 3]) for k in "abcd"}
    arrays |= {"mask": np.array([True, True, False]), "low": np.float32([-1, -2, -3])}
    loaded = load(model(nodes, arrays), tmp_path)
    trained = [v.path for v in loaded.trainable_variables]
    assert trained == ["bn/a", "bn/b"]
    assert [v.path for v in loaded.non_trainable_variables][:2] == ["bn/c", "bn/d"]


# Nodes -> the error, and words of its message.
REFUSED = {
    "an operator": (node("Oh", ["x"]), UnsupportedError, "unsupported operator 'Oh'"),
    "random": (node("RandomNormalLike", ["x"]), UnsupportedError, "random numbers"),
    "strings": (node("StringConcat", ["x"]), UnsupportedError, "only numeric tensors"),
    "a shape": (node("NonZero", ["x"]), UnsupportedError, "computed from data"),
    "an attribute": (node("Relu", ["x"], oh=1), UnsupportedError, r"\['oh'\]"),
    "a kind": (node("Softmax", ["x"], axis=1.5), ModelFileError, "an integer as"),
    "an axis": (node("Softmax", ["x"], axis=7), ModelFileError, "received 7"),
    "inputs": (node("Add", ["x"]), ModelFileError, "2 to 2 inputs; received 1"),
    "shapes": (node("MatMul", ["x", "x"]), ModelFileError, "cannot multiply shapes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_node(name, tmp_path):
    case, error, words = REFUSED[name]
    case.name = "layer1/the_node"
    with pytest.raises(error, match=rf"layer1/the_node.*{case.op_type}.*{words}"):
        load(model([case]), tmp_path)


def test_budget_can_be_set(tmp_path):
    onnx_model = model([node("Expand", ["x", "shape"])], {"shape": [1 << 24, 1, 3]})
    with pytest.raises(LoadBudgetError, match="set_load_budget"):
        load(onnx_model, tmp_path)
    tk.saving.set_load_budget(least=1 << 30)
    try:
        assert load(onnx_model, tmp_path).output_shape == (1 << 24, None, 3)
    finally:
        tk.saving.set_load_budget()


def adding(arrays):
    """Return 300 sums with arrays of 260 kB each, which little text describes."""
    nodes, last = [], "x"
    for i in range(300):
        if i < arrays:
            value = helper.make_tensor("v", onnx.TensorProto.FLOAT, [1], [i])
            nodes.append(node("ConstantOfShape", ["shape"], [f"c{i}"], value=value))
        nodes.append(node("Add", [last, f"c{i % arrays}"], [f"s{i}"]))
        last = "y" if i == 299 else f"m{i}"
        nodes.append(node("ReduceMax", [f"s{i}"], [last], axes=[1], keepdims=1))
    return model(nodes, {"shape": [1, 65_000, 1]})


def test_arrays_of_the_graph_count_against_the_budget(tmp_path):
    with pytest.raises(LoadBudgetError, match="bytes in addition to 66,"):
        load(adding(300), tmp_path)
    load(adding(2), tmp_path)  # each is counted once, however often it is read


def test_inputs_are_checked(tmp_path):
    loaded = load(model([node("Relu", ["x"])]), tmp_path)
    with pytest.raises(tk.errors.ShapeError, match="OnnxModel"):
        loaded(np.ones((2, 4), "float32"))


def aligned(x, axis, n):
    """Resize an axis to n elements, with fixed first and last elements."""
    old = x.shape[axis]
    positions = np.arange(n) * (old - 1) / max(n - 1, 1)
    low = np.minimum(np.floor(positions).astype(int), old - 1)
    shape = [-1 if i == axis else 1 for i in range(x.ndim)]
    fraction = (positions - low).reshape(shape)
    next_values = np.take(x, np.minimum(low + 1, old - 1), axis)
    return np.take(x, low, axis) * (1 - fraction) + next_values * fraction


@pytest.mark.parametrize("scale", [1.3, 1.5, 2.0, 0.7, 0.2])
def test_aligned_corners_of_fractional_scales(scale, tmp_path):
    attributes = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    scales = np.float32([1, 1, scale, scale])
    nodes = [node("Resize", ["x", "", "scales"], **attributes)]
    loaded = load(model(nodes, {"scales": scales}, ("n", 2, 5, 6)), tmp_path)
    x = np.random.default_rng(0).normal(size=(2, 2, 5, 6)).astype("float32")
    expected = aligned(aligned(x, 2, int(5 * scale)), 3, int(6 * scale))
    assert np.allclose(np.asarray(loaded(x)), expected, atol=1e-6)


def test_exclusive_sums_next_to_infinity(tmp_path):
    for reverse in (0, 1):
        nodes = [node("CumSum", ["x", "axis"], exclusive=1, reverse=reverse)]
        loaded = load(model(nodes, {"axis": np.int64(1)}), tmp_path)
        y = np.asarray(loaded(np.float32([[1, 2, np.inf], [np.inf, 1, 2]])))
        expected = [[0, 1, 3], [0, np.inf, np.inf]]
        if reverse:
            expected = [[np.inf, np.inf, 0], [3, 2, 0]]
        assert np.array_equal(y, expected)


def test_narrow_integers_are_divided_towards_zero(tmp_path):
    numbers = np.array([-128, -128, 127, -7, 7, -7], "int8")
    divisors = np.array([2, 3, -2, 2, -2, -2], "int8")
    arrays = {"a": numbers, "b": divisors}
    nodes = [node("Div", ["a", "b"], ["q"]), node("Cast", ["q"], ["f"], to=FLOAT)]
    nodes += [node("ReduceSum", ["x"], ["s"], keepdims=0), node("Mul", ["s", "f"])]
    y = np.asarray(load(model(nodes, arrays), tmp_path)(np.float32([[1, 0, 0]])))
    assert y.tolist() == [-64, -42, -63, -3, -3, 3]


def test_paths_of_weights_do_not_collide(tmp_path):
    names = ["a.w", "a/w", "a.w_1"]
    arrays = {k: np.full((3, 3), i, "float32") for i, k in enumerate(names)}
    steps = zip(["x", "p", "q"], names, ["p", "q", "y"], strict=True)
    nodes = [node("MatMul", [a, w], [b]) for a, w, b in steps]
    loaded = load(model(nodes, arrays), tmp_path)
    assert len({w.path for w in loaded.weights}) == 3
