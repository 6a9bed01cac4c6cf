"""Test that `load_onnx` reads the files of `export`: equal values, equal speed."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import toolkit as tk
from toolkit import layers


def exported(model, folder, name="model.onnx"):
    path = folder / name
    model.export(path, format="onnx", verbose=False)
    return tk.saving.load_onnx(path)


def assert_near(model, restored, *inputs):
    batch = list(inputs) if len(inputs) > 1 else inputs[0]
    predictions, expected = (m.predict(batch, verbose=0) for m in (restored, model))
    assert predictions.shape == expected.shape
    assert np.abs(predictions - expected).max() <= 1e-5 * np.abs(expected).max()


def rows(*shape):
    return np.random.default_rng(0).normal(size=(3, *shape)).astype("float32")


def convolutional():
    return tk.Sequential(
        [
            tk.Input((12, 12, 3), name="images"),
            layers.Conv2D(8, 3, padding="same", activation="relu", name="first"),
            layers.BatchNormalization(name="norm"),
            layers.MaxPooling2D(),
            layers.DepthwiseConv2D(3, strides=2, padding="same", name="depth"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(4, activation="softmax", name="classes"),
        ]
    )


def attending():
    inputs = tk.Input((7, 8))
    x = layers.LayerNormalization()(inputs)
    x = layers.MultiHeadAttention(2, 4)(x, x)
    x = layers.Dense(8, activation="gelu")(layers.Add()([inputs, x]))
    return tk.Model(inputs, layers.GlobalAveragePooling1D()(x))


def recurrent():
    return tk.Sequential(
        [
            tk.Input((7, 8)),
            layers.LSTM(5, return_sequences=True),
            layers.Bidirectional(layers.GRU(4, return_sequences=True)),
            layers.SimpleRNN(3),
        ]
    )


MODELS = {
    "convolutional": (convolutional, (12, 12, 3)),
    "attending": (attending, (7, 8)),
    "recurrent": (recurrent, (7, 8)),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_are_restored(name, tmp_path):
    make, shape = MODELS[name]
    tk.utils.set_random_seed(1)
    model = make()
    restored = exported(model, tmp_path)
    assert_near(model, restored, rows(*shape))
    assert restored.input_shape == model.input_shape
    assert restored.output_shape == model.output_shape
    third = exported(restored, tmp_path, "again.onnx")
    assert_near(model, third, rows(*shape))


def test_layers_keep_their_names(tmp_path):
    restored = exported(convolutional(), tmp_path)
    names = " ".join(layer.name for layer in restored.layers)
    assert "first" in names and "depth" in names and "classes" in names
    assert [x.name for x in restored.inputs] == ["images"]


def transposes_and_code(model, shape):
    x = tk.ops.zeros((1, *shape))
    function = tk.function(lambda x: model(x))
    function(x)
    concrete = function.get_concrete_function(x)
    moved = sum(node.op.name == "transpose" for node in concrete.graph.nodes)
    return moved, concrete.program.single_segment is not None


def test_channels_stay_last(tmp_path):
    """The file is channels first; neither inputs nor weights are transposed here."""
    pytest.importorskip("llvmlite")
    restored = exported(convolutional(), tmp_path)
    assert transposes_and_code(restored, (12, 12, 3)) == (0, True)


APPLICATIONS = {
    "ConvNeXtTiny": 64,
    "DenseNet121": 64,
    "EfficientNetB0": 64,
    "EfficientNetV2B0": 64,
    "InceptionResNetV2": 75,
    "InceptionV3": 75,
    "MobileNetV2": 64,
    "MobileNetV3Small": 64,
    "NASNetMobile": 64,
    "ResNet50V2": 64,
    "VGG16": 64,
    "Xception": 71,
}
SHORT = {"MobileNetV3Small"}


@pytest.mark.parametrize(
    "name",
    [
        n if n in SHORT else pytest.param(n, marks=pytest.mark.slow)
        for n in APPLICATIONS
    ],
)
def test_applications_are_restored(name, tmp_path):
    pytest.importorskip("llvmlite")
    tk.utils.set_random_seed(1)
    shape = (APPLICATIONS[name], APPLICATIONS[name], 3)
    options = {"weights": None, "input_shape": shape, "classes": 10}
    model = getattr(tk.applications, name)(**options)
    restored = exported(model, tmp_path)
    assert_near(model, restored, 50 * rows(*shape))
    # `Flatten` transposes a small image to the file's order, channels first.
    flattened = int(name == "VGG16")
    assert transposes_and_code(restored, shape) == (flattened, True)


# Reshape of ONNX: the input's shape, the shape operand, and allowzero.
RESHAPED = [
    (("n", 4, 6), [0, -1], 0),
    (("n", 4, 6), [0, 0, -1], 0),
    (("n", 4, 6), [0, 24], 0),
    (("n", 4, 6), [-1, 3, 8], 0),
    (("n", 4, 6), [0, 2, -1, 3], 0),
    (("n", 4, 6), [-1], 0),
    (("n", 4, 6), [2, -1, 4], 0),
    (("n", "m", 6), [0, -1, 2], 0),
    (("n", "m", 6), [-1, 6], 0),
    (("n", 0, 4), [5, 0, 2], 1),
    (("n", 0, 4), [0, 7], 1),
    (("n", 0, 4), [0, 0, 2, 2], 0),
]


@pytest.mark.parametrize(
    "input_shape, shape, allowzero", RESHAPED, ids=[f"{g}-{s}" for g, s, _ in RESHAPED]
)
def test_reshape_is_exported_and_restored(input_shape, shape, allowzero, tmp_path):
    node = helper.make_node("Reshape", ["x", "s"], ["y"], allowzero=allowzero)
    infos = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, extents)
        for name, extents in (("x", input_shape), ("y", None))
    ]
    s = numpy_helper.from_array(np.array(shape), "s")
    graph = helper.make_graph([node], "graph", infos[:1], infos[1:], [s])
    opset = helper.make_opsetid("", 17)
    file = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    onnx.save(file, tmp_path / "theirs.onnx")
    model = tk.saving.load_onnx(tmp_path / "theirs.onnx")
    model.export(tmp_path / "ours.onnx", verbose=False)
    exported = ReferenceEvaluator(str(tmp_path / "ours.onnx"))
    for sizes in ({"n": 1, "m": 1}, {"n": 4, "m": 3}, {"n": 6, "m": 7}):
        extents = [sizes.get(n, n) for n in input_shape]
        x = np.random.default_rng(0).normal(size=extents).astype("float32")
        (expected,) = ReferenceEvaluator(file).run(None, {"x": x})
        (actual,) = exported.run(None, {exported.input_names[0]: x})
        assert actual.shape == expected.shape and (actual == expected).all()
