"""Test the content of exported files apart from the graph, and failures."""

import builtins
import json
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import onnx
import pytest

import toolkit
from tests.export.onnx.reference import check_export
from toolkit import Input, Sequential, layers
from toolkit.cli import main
from toolkit.errors import ArgumentError, UnsupportedError, UnwritableFileError
from toolkit.export.onnx import exporter, files, model
from toolkit.layers import InputSpec


def digits(**arguments):
    return Sequential(
        [
            Input((8, 8, 1), name="image"),
            layers.Conv2D(4, 3, activation="relu", name="conv"),
            layers.Flatten(name="flat"),
            layers.Dense(10, name="scores"),
        ],
        name="digits",
        **arguments,
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "m.onnx"


def test_names_and_metadata(path):
    digits().export(path, verbose=False, metadata={"classes": "0 to 9"})
    proto = onnx.load(path)
    assert (proto.producer_name, proto.producer_version) == (
        "toolkit",
        toolkit.__version__,
    )
    assert "digits" in proto.doc_string and proto.graph.name == "digits"
    metadata = {x.key: x.value for x in proto.metadata_props}
    assert metadata["toolkit_version"] == toolkit.__version__
    assert metadata["model"] == "digits" and metadata["classes"] == "0 to 9"
    assert json.loads(metadata["inputs"]) == ["image"]
    assert [x.name for x in proto.graph.input] == ["image"]
    shape = proto.graph.input[0].type.tensor_type.shape
    assert [d.dim_param or d.dim_value for d in shape.dim] == ["batch", 8, 8, 1]
    names = [node.name for node in proto.graph.node]
    assert len({*names}) == len(names)
    paths = ("digits/conv/", "digits/flat/", "digits/scores/")
    assert all(name.startswith(paths) for name in names)
    assert "digits/scores/kernel" in {x.name for x in proto.graph.initializer}


def test_versions_equal_those_of_onnx():
    versions = onnx.helper.OP_SET_ID_VERSION_MAP
    assert model.IR_VERSIONS == {n: versions["ai.onnx", n] for n in range(17, 25)}


def test_same_model_gives_the_same_bytes(tmp_path):
    network = digits()
    for name in ("a.onnx", "b.onnx"):
        network.export(tmp_path / name, verbose=False)
    first, second = ((tmp_path / name).read_bytes() for name in ("a.onnx", "b.onnx"))
    assert first == second
    assert str(tmp_path).encode() not in first


@pytest.mark.parametrize("opset", [16, 25, "20", True, 20.0])
def test_other_opsets(opset, path):
    with pytest.raises(ArgumentError, match="opset_version of .17.*24"):
        digits().export(path, opset_version=opset)
    assert not path.exists()


def test_missing_onnx_is_reported(path, monkeypatch):
    monkeypatch.setattr(exporter, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r'pip install "toolkit-nn\[onnx\]"'):
        digits().export(path)


def test_unknown_options_are_refused(path):
    with pytest.raises(TypeError, match="opset"):
        digits().export(path, opset=20)


# --- external weights -----------------------------------------------------------------


def test_external_weights(path):
    check_export(digits(), path, external_data=True)
    data = path.with_name("m.onnx.data")
    assert sorted(path.parent.iterdir()) == [path, data]
    initializers = onnx.load(path, load_external_data=False).graph.initializer
    entries = [
        {entry.key: entry.value for entry in x.external_data}
        for x in initializers
        if x.data_location == onnx.TensorProto.EXTERNAL
    ]
    assert len(entries) == 1  # small constants stay in the file
    assert all(entry["location"] == data.name for entry in entries)
    assert all(int(entry["offset"]) % 65_536 == 0 for entry in entries)
    last = entries[-1]
    assert int(last["offset"]) + int(last["length"]) == data.stat().st_size


def test_large_weights_are_external(path, monkeypatch):
    monkeypatch.setattr(files, "EXTERNAL_THRESHOLD", 1000)
    digits().export(path, verbose=False)
    assert path.with_name("m.onnx.data").exists()
    digits().export(path, verbose=False, external_data=False)
    assert (
        not onnx.load(path, load_external_data=False).graph.initializer[0].external_data
    )


def test_weights_that_exceed_one_file(path, monkeypatch):
    monkeypatch.setattr(files, "MAX_ARRAY_BYTES", 1000)
    with pytest.raises(ArgumentError, match="external_data=False.*limited to 2 GB"):
        digits().export(path, verbose=False, external_data=False)
    assert not path.exists()
    digits().export(path, verbose=False, external_data=True)


def test_failure_keeps_the_older_files(path, monkeypatch):
    digits().export(path, verbose=False, external_data=True)
    before = {p: p.read_bytes() for p in path.parent.iterdir()}

    def fail(*args, **kwargs):
        raise OSError("no space left")

    monkeypatch.setattr(onnx.checker, "check_model", fail)
    with pytest.raises(UnwritableFileError, match="no space"):
        digits().export(path, verbose=False, external_data=True)
    assert {p: p.read_bytes() for p in path.parent.iterdir()} == before


def test_existing_folder_is_kept(path):
    path.mkdir()
    with pytest.raises(UnwritableFileError, match="not a regular file"):
        digits().export(path)
    assert path.is_dir()


def test_link_at_the_path_of_the_weights_is_kept(path):
    other = path.with_name("other")
    other.write_text("mine")
    path.with_name("m.onnx.data").symlink_to(other)
    with pytest.raises(UnwritableFileError):
        digits().export(path, verbose=False, external_data=True)
    assert other.read_text() == "mine" and not path.exists()


def test_remains_of_a_killed_export_are_removed(path):
    code = f"""
import os, sys
from pathlib import Path
from toolkit.files.staging import replace_files
replace_files([Path({str(path)!r})], lambda folder: os._exit(0))
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert [p.suffix for p in path.parent.iterdir()] == [".tmp"]
    digits().export(path, verbose=False, external_data=True)
    assert {p.name for p in path.parent.iterdir()} == {"m.onnx", "m.onnx.data"}


# --- free axes ------------------------------------------------------------------------


def test_requested_free_axes(path):
    network = Sequential(
        [Input((5, 3), name="x"), layers.LSTM(4, return_sequences=True)]
    )
    network.export(path, verbose=False, dynamic_axes={"x": {1: "steps"}})
    proto = onnx.load(path)
    shapes = [
        [d.dim_param or d.dim_value for d in x.type.tensor_type.shape.dim]
        for x in (*proto.graph.input, *proto.graph.output)
    ]
    assert shapes == [["batch", "steps", 3], ["batch", "steps", 4]]
    x = np.random.default_rng(0).normal(size=(2, 9, 3)).astype("float32")
    (outputs,) = onnx.reference.ReferenceEvaluator(proto).run(None, {"x": x})
    np.testing.assert_allclose(outputs, network.layers[0](x).numpy(), atol=1e-6)


@pytest.mark.parametrize(
    "axes, message",
    [({"y": {1: "n"}}, "names of inputs"), ({"image": {4: "n"}}, "axes of 'image'")],
)
def test_unknown_free_axes_are_refused(axes, message, path):
    with pytest.raises(ArgumentError, match=message):
        digits().export(path, dynamic_axes=axes)


# --- OpenVINO, and the command --------------------------------------------------------


def test_openvino_is_required(tmp_path, monkeypatch):
    from toolkit.export.onnx import openvino

    monkeypatch.setattr(openvino, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install openvino"):
        digits().export(tmp_path / "m.xml")
    with pytest.raises(ArgumentError, match="ends in '.xml'"):
        digits().export(tmp_path / "m.onnx", format="openvino")


def test_openvino(tmp_path):
    openvino = pytest.importorskip("openvino")
    network = digits()
    network.export(tmp_path / "m.xml", verbose=False)
    assert {p.name for p in tmp_path.iterdir()} == {"m.xml", "m.bin"}
    compiled = openvino.compile_model(
        tmp_path / "m.xml", "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
    )
    x = np.random.default_rng(0).normal(size=(5, 8, 8, 1)).astype("float32")
    outputs = compiled([x])[0]
    np.testing.assert_allclose(outputs, network(x).numpy(), atol=1e-5)


def test_the_command(tmp_path, capsys):
    digits().save(tmp_path / "m.keras")
    target = tmp_path / "m.onnx"
    command = ["export", str(tmp_path / "m.keras"), "-o", str(target)]
    assert main([*command, "--opset", "18", "--external-data"]) == 0
    assert str(target) in capsys.readouterr().out
    proto = onnx.load(target, load_external_data=False)
    assert proto.opset_import[0].version == 18
    assert target.with_name("m.onnx.data").exists()


def test_export_needs_only_onnx(path, monkeypatch):
    """Test that no runtime and no script of ONNX is imported."""
    real = builtins.__import__

    def guarded(name, *args, **kwargs):
        assert name.split(".")[0] not in ("onnxruntime", "onnxscript", "torch"), name
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", guarded)
    assert find_spec("onnx")
    digits().export(path, verbose=False)


def test_models_with_unknown_inputs_are_refused(path):
    class Own(toolkit.Model):
        def call(self, a, b):
            return a + b

    with pytest.raises(Exception, match="input_signature"):
        Own().export(path)
    assert not path.exists()


def test_complex_inputs(path):
    network = Sequential([Input((3,), dtype="complex64"), layers.Identity()])
    with pytest.raises(UnsupportedError, match="complex64"):
        network.export(path)


# --- existing files -------------------------------------------------------------------


def test_foreign_data_is_kept(path):
    data = path.with_name("m.onnx.data")
    data.write_text("mine")
    with pytest.raises(UnwritableFileError, match="does not use it"):
        digits().export(path, verbose=False, external_data=True)
    assert data.read_text() == "mine" and not path.exists()
    digits().export(path, verbose=False, external_data=False)
    assert data.read_text() == "mine"


def test_unreferenced_data_is_removed(path):
    for external in (True, True, False):
        digits().export(path, verbose=False, external_data=external)
        assert path.with_name("m.onnx.data").exists() == external


def test_refusal_of_onnx_raises_an_error_of_toolkit(path, monkeypatch):
    def refuse(*args, **kwargs):
        raise onnx.shape_inference.InferenceError("node digits/conv/Conv: no")

    monkeypatch.setattr(onnx.checker, "check_model", refuse)
    with pytest.raises(UnsupportedError, match="digits.export: .*digits/conv/Conv"):
        digits().export(path, verbose=False)
    assert not path.exists()


@pytest.mark.parametrize(
    "options",
    [
        *(
            {"external_data": "no"},
            {"external_data": 1},
            {"allow_random": 3},
            {"metadata": 5},
        ),
        *({"metadata": {"a": 1}}, {"dynamic_axes": 3}),
        *({"dynamic_axes": {"image": [0]}}, {"dynamic_axes": {"image": {0: ""}}}),
    ],
)
def test_invalid_options_are_refused(options, path):
    with pytest.raises(ArgumentError, match=f"digits.export: .*{[*options][0]}"):
        digits().export(path, verbose=False, **options)


def test_variable_names_that_end_with_a_digit(path):
    a, b = (
        toolkit.Variable(np.full((30, 30), n, "float32"), name=f"w{n}") for n in (1, 2)
    )
    call = layers.Lambda(lambda x: x @ a @ b)
    proto = check_export(Sequential([Input((30,)), call]), path)
    assert {"w1", "w2"} <= {x.name for x in proto.graph.initializer}


def test_generated_input_names_are_unique(path):
    class Sum(toolkit.Model):
        def call(self, a, b):
            return a + b

    signature = [InputSpec(shape=(None, 3), name="input_1"), InputSpec(shape=(None, 3))]
    Sum().export(path, verbose=False, input_signature=signature)
    names = [x.name for x in onnx.load(path).graph.input]
    assert names == ["input_1", "input_1_"]
