"""Test quantized models with the operators of runtimes against ONNX's reference."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import toolkit as tk

FLOAT = TensorProto.FLOAT
RANDOM = np.random.default_rng(0)
W8 = RANDOM.integers(-128, 128, (6, 2, 3, 3)).astype("int8")
CHANNELS = np.float32(RANDOM.uniform(0.01, 0.05, 6))
ZEROS = np.zeros(6, "int8")
UINT = {"scale": np.float32(0.02), "zero": np.uint8(120)}


def node(op, inputs, output, **attributes):
    return helper.make_node(op, inputs.split(), [output], **attributes)


def make(nodes, arrays, shape, output=FLOAT):
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", FLOAT, ["n", *shape])],
        [helper.make_tensor_value_info("y", output, None)],
        [numpy_helper.from_array(np.asarray(a), name) for name, a in arrays.items()],
    )
    opsets = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


CONV = {"group": 2, "pads": [1, 1, 0, 1], "strides": [2, 1]}
MODELS = {
    "pairs around a convolution": make(
        [
            node("QuantizeLinear", "x scale zero", "q"),
            node("DequantizeLinear", "q scale zero", "d"),
            node("DequantizeLinear", "w channels zeros", "k", axis=0),
            node("Conv", "d k bias", "y", **CONV),
        ],
        {"w": W8, "channels": CHANNELS, "zeros": ZEROS, "bias": CHANNELS, **UINT},
        (4, 6, 5),
    ),
    "a convolution of integers": make(
        [
            node("QuantizeLinear", "x scale zero", "q"),
            node(
                "QLinearConv",
                "q scale zero w channels zeros y_scale y_zero b",
                "i",
                **CONV,
            ),
            node("DequantizeLinear", "i y_scale y_zero", "y"),
        ],
        {
            "w": W8,
            "channels": CHANNELS,
            "zeros": ZEROS,
            **UINT,
            "y_scale": np.float32(0.3),
            "y_zero": np.uint8(99),
            "b": RANDOM.integers(-900, 900, 6).astype("int32"),
        },
        (4, 6, 5),
    ),
    "a dynamic product": make(
        [
            helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
            node("MatMulInteger", "q w z zeros", "i"),
            node("Cast", "i", "f", to=FLOAT),
            node("Mul", "s channels", "factor"),
            node("Mul", "f factor", "y"),
        ],
        {"w": W8[..., 0, 0].T.copy(), "zeros": ZEROS, "channels": CHANNELS},
        (2,),
    ),
    "a convolution with a dynamic scale": make(
        [
            helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
            node("ConvInteger", "q w z", "i", **CONV),
            node("Cast", "i", "y", to=FLOAT),
        ],
        {"w": W8},
        (4, 6, 5),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_quantized(name, tmp_path):
    model = MODELS[name]
    onnx.save(model, tmp_path / "model.onnx")
    loaded = tk.saving.load_onnx(tmp_path / "model.onnx")
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim][1:]
    for n in (1, 3):
        x = np.random.default_rng(n).normal(size=(n, *shape)).astype("float32")
        (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
        for call in (loaded, tk.function(loaded)):
            y = np.asarray(call(x))
            assert y.dtype == expected.dtype
            np.testing.assert_allclose(y, expected, 1e-5, 1e-4)


def test_large_sums_are_exact(tmp_path):
    # 255 * 127 * 2000 has more digits than float32.
    model = make(
        [
            node("Cast", "x", "q", to=TensorProto.UINT8),
            node("MatMulInteger", "q w", "i"),
            node("Cast", "i", "y", to=TensorProto.INT64),
        ],
        {"w": np.full((2000, 1), 127, "int8")},
        (2000,),
        TensorProto.INT64,
    )
    onnx.save(model, tmp_path / "model.onnx")
    x = np.full((1, 2000), 255, "float32")
    x[0, 0] = 254
    y = tk.saving.load_onnx(tmp_path / "model.onnx")(x)
    assert int(np.asarray(y)[0, 0]) == 127 * (255 * 2000 - 1)


def test_scales_are_not_trained(tmp_path):
    onnx.save(MODELS["pairs around a convolution"], tmp_path / "model.onnx")
    loaded = tk.saving.load_onnx(tmp_path / "model.onnx")
    assert [tuple(w.shape) for w in loaded.trainable_weights] == [(6,)]  # the bias
