"""Test operators of ONNX Runtime's quantizer against their definitions."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import toolkit as tk
from toolkit.errors import ModelFileError, UnsupportedError
from toolkit.models.importing.operators import OPERATORS

DOMAIN = "com.microsoft"
SCALES = {name: np.float32(s) for name, s in (("xs", 0.043), ("ws", 0.02), ("ys", 0.1))}
ZEROS = {name: np.uint8(z) for name, z in (("xz", 120), ("wz", 9), ("yz", 100))}
W = np.random.default_rng(1).integers(0, 256, (2, 3, 4, 4)).astype("uint8")
M = np.random.default_rng(2).integers(0, 256, (4, 5)).astype("uint8")
BIAS = np.arange(-2, 3).astype("int32") * 500


def number(x, name):
    return (x.astype("float32") - ZEROS[name + "z"]) * SCALES[name + "s"]


def integer(y):
    return np.clip(np.rint(y / SCALES["ys"]) + ZEROS["yz"], 0, 255).astype("uint8")


def of_one(function):
    return lambda x: integer(function(number(x, "x")))


def pooled(x):
    return x.reshape((2, 3, 2, 2, 2, 2)).mean((3, 5))


def softmax(x):
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def product(x):
    return number(x, "x") @ number(M, "w")


def dynamic(x):
    low, high = min(x.min(), 0), max(x.max(), 0)
    scale = np.float32((high - low) / 255)
    zero = np.clip(np.rint(-low / scale), 0, 255)
    integers = np.clip(np.rint(x / scale) + zero, 0, 255)
    return ((integers - zero) * scale) @ number(M, "w") + BIAS.astype("float32")


ONE = "x xs xz ys yz"
# Operator -> inputs, attributes, result.
CASES = {
    "QLinearAdd": (
        "x xs xz w ws wz ys yz",
        {},
        lambda x: integer(number(x, "x") + number(W, "w")),
    ),
    "QLinearMul": (
        "x xs xz w ws wz ys yz",
        {},
        lambda x: integer(number(x, "x") * number(W, "w")),
    ),
    "QLinearSigmoid": (ONE, {}, of_one(lambda x: 1 / (1 + np.exp(-x)))),
    "QLinearLeakyRelu": (
        ONE,
        {"alpha": 0.25},
        of_one(lambda x: np.where(x < 0, x * np.float32(0.25), x)),
    ),
    "QLinearAveragePool": (
        ONE,
        {"kernel_shape": [2, 2], "strides": [2, 2]},
        of_one(pooled),
    ),
    "QLinearGlobalAveragePool": (
        ONE,
        {},
        of_one(lambda x: x.mean((2, 3), keepdims=True)),
    ),
    "QLinearReduceMean": (
        ONE,
        {"axes": [1, -1], "keepdims": 0},
        of_one(lambda x: x.mean((1, 3))),
    ),
    "QLinearSoftmax": (ONE, {"axis": -1, "opset": 13}, of_one(softmax)),
    "QLinearConcat": (
        "ys yz x xs xz w ws wz",
        {"axis": 1},
        lambda x: integer(np.concatenate([number(x, "x"), number(W, "w")], 1)),
    ),
    "QGemm": (
        "m xs xz k ws wz b ys yz",
        {},
        lambda x: integer(product(x) + BIAS * SCALES["xs"] * SCALES["ws"]),
    ),
    "MatMulIntegerToFloat": (
        "m k xs ws xz wz f",
        {},
        lambda x: product(x) + BIAS.astype("float32"),
    ),
    "DynamicQuantizeMatMul": ("t k ws wz f", {}, dynamic),
    "QuantizeLinear": ("t ys yz", {}, integer),
    "DequantizeLinear": ("x xs xz", {}, lambda x: number(x, "x")),
}
INPUTS = {
    "x": (TensorProto.UINT8, W.shape),
    "m": (TensorProto.UINT8, (3, 4)),
    "t": (TensorProto.FLOAT, (3, 4)),
}


def load(name, path, inputs=None, **attributes):
    names = (CASES[name][0] if inputs is None else inputs).split(" ")
    arrays = {**SCALES, **ZEROS, "w": W, "k": M, "b": BIAS, "f": BIAS.astype("float32")}
    names_of_inputs = [key for key in INPUTS if key in names]
    graph = helper.make_graph(
        [helper.make_node(name, names, ["y"], domain=DOMAIN, **attributes)],
        "graph",
        [helper.make_tensor_value_info(key, *INPUTS[key]) for key in names_of_inputs],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, None)],
        [numpy_helper.from_array(v, key) for key, v in arrays.items() if key in names],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return tk.saving.load_onnx(path)


@pytest.mark.parametrize("name", CASES)
def test_operator(name, tmp_path):
    names, attributes, function = CASES[name]
    model = load(name, tmp_path / "model.onnx", **attributes)
    random = np.random.default_rng(0)
    kind, shape = next(value for key, value in INPUTS.items() if key in names.split())
    x = random.integers(0, 256, shape).astype("uint8")
    x = random.normal(size=shape).astype("float32") if kind == TensorProto.FLOAT else x
    expected = function(x)
    for call in (model, tk.function(model)):
        y = np.asarray(call(x))
        assert y.dtype == expected.dtype
        np.testing.assert_allclose(y, expected, 1e-5, 1e-4)


def test_every_operator_has_a_case():
    operators = {name for name in OPERATORS if name.startswith(f"{DOMAIN}.")}
    assert operators == {f"{DOMAIN}.{name}" for name in CASES}


def test_zero_point_is_optional(tmp_path):
    model = load("QLinearSigmoid", tmp_path / "model.onnx", "x xs  ys")
    x = np.arange(96, dtype="uint8").reshape(W.shape)
    expected = np.rint(
        1 / (1 + np.exp(-x.astype("float32") * SCALES["xs"])) / SCALES["ys"]
    )
    assert np.array_equal(np.asarray(model(x)), expected.astype("uint8"))


def test_refusals(tmp_path):
    with pytest.raises(
        ModelFileError, match="input 'y_scale' is required, but it is missing"
    ):
        load("QLinearSigmoid", tmp_path / "model.onnx", "x xs xz")
    with pytest.raises(UnsupportedError, match="channels_last=0; received 1"):
        load("QLinearGlobalAveragePool", tmp_path / "model.onnx", channels_last=1)
    with pytest.raises(UnsupportedError, match=r"com.microsoft.Other.*QLinearAdd"):
        load("Other", tmp_path / "model.onnx", "x")
