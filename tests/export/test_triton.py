"""Test model repositories: their files, and the configurations of servers."""

import re

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import toolkit
from toolkit import cli, layers
from toolkit.errors import ArgumentError, ToolkitError
from toolkit.export import triton


@pytest.fixture
def model():
    inputs = toolkit.Input((3,), name="x")
    outputs = layers.Dense(2, activation="softmax", name="y")(inputs)
    return toolkit.Model(inputs, outputs, name="mnist")


def write(model, path, **options):
    model.export(path, format="triton", verbose=False, **options)


CONFIG = """\
name: "mnist"
backend: "onnxruntime"
max_batch_size: 32
input {
  name: "x"
  data_type: TYPE_FP32
  dims: [ 3 ]
}
output {
  name: "y"
  data_type: TYPE_FP32
  dims: [ 2 ]
}
dynamic_batching { }
"""


def test_a_repository(model, tmp_path):
    write(model, tmp_path / "models")
    folder = tmp_path / "models" / "mnist"
    assert sorted(x.name for x in folder.iterdir()) == ["1", "config.pbtxt"]
    assert (folder / "config.pbtxt").read_text() == CONFIG
    x = np.random.default_rng(0).standard_normal((5, 3), dtype="float32")
    (y,) = ReferenceEvaluator(str(folder / "1" / "model.onnx")).run(None, {"x": x})
    np.testing.assert_allclose(y, model.predict(x, verbose=0), rtol=1e-5)


def test_next_version_keeps_existing_files(model, tmp_path):
    for _ in range(2):
        write(model, tmp_path)
    folder = tmp_path / "mnist"
    (folder / "config.pbtxt").write_text("mine")
    (folder / "7").mkdir()
    before = (folder / "1" / "model.onnx").read_bytes()
    write(model, tmp_path, external_data=True)
    assert {x.name for x in folder.iterdir()} == {"1", "2", "7", "8", "config.pbtxt"}
    assert (folder / "config.pbtxt").read_text() == "mine"
    assert (folder / "1" / "model.onnx").read_bytes() == before


def test_failure_leaves_no_files(tmp_path):
    words = toolkit.Sequential(
        [toolkit.Input((), dtype="string"), layers.StringLookup(vocabulary=["a"])]
    )
    with pytest.raises(ToolkitError):
        write(words, tmp_path / "new" / "models")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "models").mkdir()
    with pytest.raises(ToolkitError):
        write(words, tmp_path / "models")
    assert list((tmp_path / "models").iterdir()) == []
    (tmp_path / "models" / words.name).mkdir()
    with pytest.raises(ToolkitError):
        write(words, tmp_path / "models")
    assert list((tmp_path / "models" / words.name).iterdir()) == []


def test_sizes_in_the_configuration(model, tmp_path):
    write(model, tmp_path, max_batch_size=8)
    write(model, tmp_path, max_batch_size=8)
    with pytest.raises(
        ArgumentError, match="says 8, and the file is not changed; received 16"
    ):
        write(model, tmp_path, max_batch_size=16)
    unbatched = fixed()
    for _ in range(2):
        write(unbatched, tmp_path, max_batch_size=4)


def numbers():
    a = toolkit.Input((None, 4), name="a", dtype="int32")
    total = layers.Lambda(lambda x: toolkit.ops.sum(x, axis=(1, 2)), name="total")(a)
    return toolkit.Model(a, total, name="numbers")


def fixed():
    inputs = toolkit.Input(batch_shape=(4, 3), name="x")
    return toolkit.Model(inputs, layers.Dense(2, name="y")(inputs), name="fixed")


def dependent():
    inputs = toolkit.Input((3,), name="x")
    centred = layers.Lambda(lambda x: x - toolkit.ops.mean(x, axis=0), name="y")
    return toolkit.Model(inputs, centred(inputs), name="dependent")


@pytest.mark.parametrize(
    "make, lines",
    [
        (dependent, ["max_batch_size: 0", "dims: [ -1, 3 ]"]),
        (numbers, ["max_batch_size: 32", "dims: [ -1, 4 ]", "TYPE_INT32"]),
        (numbers, ["dims: [ 1 ]\n  reshape { shape: [ ] }", "dynamic_batching"]),
        (fixed, ["max_batch_size: 0", "dims: [ 4, 3 ]", "dims: [ 4, 2 ]"]),
    ],
)
def test_configurations(make, lines, tmp_path):
    servable = make()
    write(servable, tmp_path)
    text = (tmp_path / servable.name / "config.pbtxt").read_text()
    assert all(line in text for line in lines), text
    assert ("dynamic_batching" in text) == (make is numbers)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"name": "../up"}, "name of the model"),
        ({"name": ""}, "name of the model"),
        ({"max_batch_size": 0}, "max_batch_size >= 1"),
    ],
)
def test_invalid_models_are_refused(model, options, words, tmp_path):
    with pytest.raises(ArgumentError, match=words):
        write(model, tmp_path, **options)
    assert list(tmp_path.iterdir()) == []


def test_the_command(model, tmp_path, capsys):
    model.save(tmp_path / "m.keras")
    command = ["export", str(tmp_path / "m.keras"), "--triton", str(tmp_path / "to")]
    assert cli.main([*command, "--batch", "1,64"]) == 0
    assert "to/m: wrote version 1\n" in capsys.readouterr().out.replace("\\", "/")
    text = (tmp_path / "to" / "m" / "config.pbtxt").read_text()
    assert 'name: "m"' in text and "max_batch_size: 64" in text
    onnx.checker.check_model(str(tmp_path / "to" / "m" / "1" / "model.onnx"))
    for other in (["--target", "aarch64"], ["--no-threads"], ["--check"]):
        assert cli.main([*command, *other]) == 1
        assert "supports only the options" in capsys.readouterr().err
    assert cli.main([*command, "--batch", "8,16"]) == 1
    assert (
        "config.pbtxt' says 64, and the file is not changed" in capsys.readouterr().err
    )
    assert cli.main(command) == 0
    assert (tmp_path / "to" / "m" / "config.pbtxt").read_text() == text
    assert not (tmp_path / "to" / "m" / "3").exists()


def test_triton_reads_configurations(tmp_path):
    """Read them with the protocol buffer of the client, if it is installed."""
    text_format = pytest.importorskip("google.protobuf.text_format")
    grpc = pytest.importorskip("tritonclient.grpc.model_config_pb2")
    for make in (numbers, fixed):
        servable = make()
        write(servable, tmp_path)
        text = (tmp_path / servable.name / triton.CONFIG).read_text()
        config = text_format.Parse(text, grpc.ModelConfig())
        assert config.name == servable.name and config.backend == "onnxruntime"
        assert re.fullmatch("TYPE_.*", grpc.DataType.Name(config.input[0].data_type))
