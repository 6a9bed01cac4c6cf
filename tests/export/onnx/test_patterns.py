"""Test which patterns become one operator: the operators of files, in their order."""

import onnx
import pytest

from tests.export.onnx.reference import check_export
from tests.export.onnx.rows import attending, chain, disturbed
from toolkit import Input, Model, layers, ops

IMAGE = (8, 8, 3)


def operators(proto):
    return [node.op_type for node in proto.graph.node]


def of(function):
    """Return a layer of a function."""
    return layers.Lambda(function)


CASES = {
    "relu": ([layers.ReLU()], ["Relu"]),
    "relu6": ([layers.ReLU(max_value=6.0)], ["Clip"]),
    "twice limited": ([layers.ReLU(), layers.ReLU(max_value=6.0)], ["Clip"]),
    "leaky relu": ([layers.LeakyReLU()], ["LeakyRelu"]),
    "elu": ([layers.ELU(alpha=0.5)], ["Elu"]),
    "hard sigmoid": ([layers.Activation("hard_sigmoid")], ["HardSigmoid"]),
    "hard swish": ([layers.Activation("hard_swish")], ["HardSwish"]),
    "swish": ([layers.Activation("swish")], ["Sigmoid", "Mul"]),
    "gelu": ([of(lambda x: ops.gelu(x, approximate=False))], ["Gelu"]),
    "gelu by tanh": ([of(ops.gelu)], ["Gelu"]),
    "softplus": ([layers.Activation("softplus")], ["Softplus"]),
    "softmax": ([layers.Softmax()], ["Softmax"]),
    "layer normalization": ([layers.LayerNormalization()], ["LayerNormalization"]),
    "plain normalization": (
        [layers.LayerNormalization(center=False, scale=False)],
        ["LayerNormalization"],
    ),
    "dense": ([layers.Flatten(), layers.Dense(4)], ["Reshape", "Gemm"]),
    "scaled dense": (
        [layers.Flatten(), layers.Dense(4), layers.BatchNormalization()],
        ["Reshape", "Gemm"],
    ),
}
IMAGES = {
    "batch normalization behind": (
        [layers.Conv2D(4, 3), layers.BatchNormalization(), layers.ReLU()],
        ["Transpose", "Conv", "Relu", "Transpose"],
    ),
    "batch normalization in front": (
        [layers.BatchNormalization(), layers.Conv2D(4, 3, use_bias=False)],
        ["Transpose", "Conv", "Transpose"],
    ),
    "batch normalization in front of padding": (
        [layers.BatchNormalization(), layers.Conv2D(4, 3, padding="same")],
        ["Mul", "Add", "Transpose", "Conv", "Transpose"],
    ),
    "batch normalization between": (
        [
            layers.Conv2D(4, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.ReLU(),
        ],
        ["Transpose", "Conv", "Relu", "BatchNormalization", "Relu", "Transpose"],
    ),
    "rescaled": (
        [layers.Rescaling(1 / 255), layers.Conv2D(4, 3, padding="same")],
        ["Transpose", "Conv", "Transpose"],
    ),
    "padded": (
        [layers.ZeroPadding2D(1), layers.Conv2D(4, 3)],
        ["Transpose", "Conv", "Transpose"],
    ),
    "grouped and scaled": (
        [
            layers.Conv2D(6, 1),
            layers.DepthwiseConv2D(3, depth_multiplier=2),
            layers.BatchNormalization(),
            layers.Conv2D(6, 3, groups=3),
        ],
        ["Transpose", "Conv", "Conv", "Conv", "Transpose"],
    ),
    "transposed and scaled": (
        [layers.Conv2DTranspose(4, 3, strides=2), layers.BatchNormalization()],
        ["Transpose", "ConvTranspose", "Transpose"],
    ),
    "flattened": (
        [
            layers.Conv2D(4, 3),
            layers.MaxPooling2D((2, 1)),
            layers.Flatten(),
            layers.Dense(5),
            layers.BatchNormalization(),
        ],
        ["Transpose", "Conv", "MaxPool", "Reshape", "Gemm"],
    ),
    "pooled": (
        [
            layers.Conv2D(4, 3, padding="same"),
            layers.AveragePooling2D(3, 2, padding="same"),
            layers.MaxPooling2D(2),
            layers.GlobalAveragePooling2D(),
        ],
        ["Transpose", "Conv", "AveragePool", "MaxPool", "GlobalAveragePool", "Reshape"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_operators(name, tmp_path):
    layers_of_model, expected = CASES[name]
    model = disturbed(chain(*layers_of_model, shape=(6, 3)))
    assert operators(check_export(model, tmp_path / "m.onnx")) == expected


@pytest.mark.parametrize("name", IMAGES)
def test_operators_of_images(name, tmp_path):
    layers_of_model, expected = IMAGES[name]
    model = disturbed(chain(*layers_of_model, shape=IMAGE))
    assert operators(check_export(model, tmp_path / "m.onnx")) == expected


def test_squeeze_and_excite_is_channels_first(tmp_path):
    image = Input(IMAGE)
    x = layers.Conv2D(8, 3, padding="same", activation="relu")(image)
    gate = layers.GlobalAveragePooling2D(keepdims=True)(x)
    gate = layers.Conv2D(8, 1, activation="hard_sigmoid")(gate)
    x = layers.Concatenate()([x * gate, layers.Conv2D(8, 1)(x)])
    model = disturbed(Model(image, layers.ZeroPadding2D(1)(x)))
    names = operators(check_export(model, tmp_path / "m.onnx"))
    assert names.count("Transpose") == 2
    assert names[0] == names[-1] == "Transpose"


def test_value_with_two_readers_is_not_fused(tmp_path):
    image = Input(IMAGE)
    x = layers.Conv2D(4, 3)(image)
    y = layers.BatchNormalization()(x)
    model = disturbed(Model(image, [x, y]))
    names = operators(check_export(model, tmp_path / "m.onnx"))
    assert names.count("Conv") == 1


@pytest.mark.parametrize(
    "opset, expected", [(20, {"Gelu"}), (19, {"Tanh"}), (24, {"Gelu"})]
)
def test_gelu_by_opset(opset, expected, tmp_path):
    model = chain(of(ops.gelu))
    proto = check_export(model, tmp_path / "m.onnx", opset_version=opset)
    assert expected <= {*operators(proto)}


@pytest.mark.parametrize("opset", [20, 23, 24])
def test_attention_by_opset(opset, tmp_path):
    model = disturbed(attending(5))
    proto = check_export(model, tmp_path / "m.onnx", opset_version=opset)
    assert operators(proto).count("Attention") == (opset >= 23)
    assert operators(proto).count("Softmax") == (opset < 23)


def test_swish_from_opset_24(tmp_path):
    if onnx.defs.onnx_opset_version() < 24:
        pytest.skip("an older onnx")
    model = chain(layers.Activation("swish"))
    proto = check_export(model, tmp_path / "m.onnx", opset_version=24)
    assert operators(proto) == ["Swish"]
