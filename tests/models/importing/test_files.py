"""Test the files of torch's exporters: see tests/fixtures/make_onnx.py."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import toolkit as tk

FOLDER = Path(__file__).parents[2] / "fixtures" / "onnx"
FILES = sorted(path.stem for path in FOLDER.glob("*.onnx"))
# Name -> the shapes of the inputs and outputs, whose first axis is the batch.
SHAPES = {
    "bert": ([(None, None)] * 2, [(None, None, 8), (None, 8)]),
    "lstm": ([(None, 6, 3)], [(None, 2)]),
    "mobilenetv3": ([(None, 3, 32, 32)], [(None, 5)]),
    "resnet18": ([(None, 3, 64, 64)], [(None, 5)]),
}


def loaded(name):
    """Return a model, its inputs, and the results of torch."""
    model = tk.saving.load_onnx(FOLDER / f"{name}.onnx")
    with np.load(FOLDER / f"{name.rpartition('_')[0]}.npz") as arrays:
        inputs = [arrays[key] for key in sorted(arrays) if key.startswith("input")]
        outputs = [arrays[key] for key in sorted(arrays) if key.startswith("output")]
    return model, inputs, outputs


def only_value(values):
    return values[0] if len(values) == 1 else values


def as_list(values):
    return values if isinstance(values, list) else [values]


def assert_near(actual, expected, tolerance=1e-5):
    for y, reference in zip(as_list(actual), as_list(expected), strict=True):
        assert y.shape == reference.shape
        assert np.abs(y - reference).max() <= tolerance * np.abs(reference).max()


def test_all_files_exist():
    networks = ("bert", "lstm", "mobilenetv3", "resnet18")
    assert FILES == sorted(
        f"{n}_{e}" for n in networks for e in ("dynamo", "torchscript")
    )


@pytest.mark.parametrize("name", FILES)
def test_predictions_equal_torch(name):
    model, inputs, outputs = loaded(name)
    assert_near(model.predict(only_value(inputs), verbose=0), outputs)
    first = [x[:1] for x in inputs]
    assert_near(model.predict(only_value(first), verbose=0), [y[:1] for y in outputs])
    assert_near([np.asarray(y) for y in as_list(model(only_value(inputs)))], outputs)
    shapes = SHAPES[name.rpartition("_")[0]]
    assert [x.shape for x in model.inputs] == shapes[0]
    assert [y.shape for y in model.outputs] == shapes[1]
    by_name = dict(zip([x.name for x in model.inputs], inputs, strict=True))
    assert_near(model.predict(by_name, verbose=0), outputs)


@pytest.mark.parametrize("name", FILES)
def test_model_trains(name):
    model, inputs, outputs = loaded(name)
    before = [np.array(v) for v in model.trainable_variables]
    targets = [0.5 * y for y in outputs]
    model.compile(tk.optimizers.Adam(0.01), "mse")
    losses = model.fit(only_value(inputs), only_value(targets), epochs=8, verbose=0)
    assert losses.history["loss"][-1] < 0.7 * losses.history["loss"][0]
    after = [np.array(v) for v in model.trainable_variables]
    changed = sum(not np.array_equal(a, b) for a, b in zip(before, after, strict=True))
    assert changed >= 0.9 * len(before)


@pytest.mark.parametrize("name", FILES)
def test_model_is_saved_and_restored(name, tmp_path):
    model, inputs, _ = loaded(name)
    model.layers[0].trainable = False
    model.save(tmp_path / "model.keras")
    restored = tk.saving.load_model(tmp_path / "model.keras")
    assert restored.get_config() == model.get_config()
    for y, reference in zip(
        as_list(restored.predict(only_value(inputs), verbose=0)),
        as_list(model.predict(only_value(inputs), verbose=0)),
        strict=True,
    ):
        assert np.array_equal(y, reference)
    assert [v.path for v in restored.variables] == [v.path for v in model.variables]
    assert [v.trainable for v in restored.variables] == (
        [v.trainable for v in model.variables]
    )


CONVOLUTIONAL = [name for name in FILES if name.startswith(("mobile", "resnet"))]


def traced(model, inputs):
    """Return the concrete function of a model, for one row."""
    function = tk.function(lambda x: model(x))
    row = tk.ops.convert_to_tensor(inputs[0][:1])
    return function.get_concrete_function(row)


@pytest.mark.parametrize("name", CONVOLUTIONAL)
def test_convolutions_are_transposed_once(name):
    model, inputs, _ = loaded(name)
    concrete = traced(model, inputs)
    transposes = [n for n in concrete.graph.nodes if n.op.name == "transpose"]
    assert len(transposes) == 1  # the images
    assert transposes[0].inputs[0].shape == (1, *inputs[0].shape[1:])


@pytest.mark.parametrize("name", FILES)
def test_program_is_only_generated_code(name):
    pytest.importorskip("llvmlite")
    model, inputs, _ = loaded(name)
    rows = [tk.ops.convert_to_tensor(x[:1]) for x in inputs]
    function = tk.function(lambda *xs: model(only_value(list(xs))))
    function(*rows)
    assert function.get_concrete_function(*rows).program.single_segment is not None


def test_names_of_the_file():
    model, *_ = loaded("resnet18_dynamo")
    assert [layer.name for layer in model.layers][:3] == (
        ["conv1", "layers.0.conv1", "layers.0.conv2"]
    )
    assert model.get_layer("fc").weights[0].path == "fc/weight"
    assert model.get_layer("fc").weights[0].shape == (16, 5)  # the shape of Dense
    assert model.get_layer("conv1").weights[0].shape == (7, 7, 3, 2)
    assert model.get_layer("conv1").output_shape == (None, 2, 32, 32)
    model, *_ = loaded("resnet18_torchscript")
    assert model.layers[0].name == "conv1"


def test_computations_have_the_names_of_layers():
    model, inputs, _ = loaded("resnet18_dynamo")
    origins = {y.origin for n in traced(model, inputs).graph.nodes for y in n.outputs}
    assert any("layers.0.conv1" in origin for origin in origins)


def test_summary_and_other_models():
    model, inputs, _ = loaded("resnet18_dynamo")
    lines = []
    model.summary(print_fn=lines.append)
    assert "layers.7.conv2" in lines[0] and "(None, 2, 16, 16)" in lines[0]
    images = tk.Input((3, 64, 64))
    model.trainable = False
    outputs = tk.layers.Dense(3)(model(images))
    classifier = tk.Model(images, outputs)
    assert classifier.output_shape == (None, 3)
    assert [model.input, model.output] == [model.inputs[0], model.outputs[0]]
    assert model.input is not images
    assert len(classifier.trainable_variables) == 2
    classifier.compile("sgd", "mse")
    classifier.fit(inputs[0], np.zeros((2, 3)), verbose=0)


def test_copy_has_separate_weights():
    model, inputs, _ = loaded("lstm_dynamo")
    copy = tk.models.clone_model(model)
    copy.set_weights(model.get_weights())
    rows = inputs[0]
    expected = model.predict(rows, verbose=0)
    copy.layers[0].weights[0].assign(0 * copy.layers[0].weights[0])
    assert np.array_equal(model.predict(rows, verbose=0), expected)
    assert not np.array_equal(copy.predict(rows, verbose=0), expected)


def test_array_of_a_function_with_two_calls_is_one_weight(tmp_path):
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    kernel = np.random.default_rng(0).normal(size=(40, 40)).astype("float32")
    nodes = [
        helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(kernel)),
        helper.make_node("MatMul", ["a", "k"], ["b"]),
    ]
    function = helper.make_function("own", "Dense", ["a"], ["b"], nodes, opsets)
    calls = [helper.make_node("Dense", [a], [b], domain="own") for a, b in ("xh", "hy")]
    graph = helper.make_graph(
        calls,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 40])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 40])],
    )
    onnx_model = helper.make_model(
        graph, functions=[function], opset_imports=opsets, ir_version=8
    )
    onnx.save(onnx_model, tmp_path / "model.onnx")
    model = tk.saving.load_onnx(tmp_path / "model.onnx")
    assert [w.shape for w in model.weights] == [(40, 40)]
    x = np.ones((2, 40), "float32")
    assert np.allclose(np.asarray(model(x)), x @ kernel @ kernel, atol=1e-3)
