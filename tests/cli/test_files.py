"""Tests of `inspect`, `convert` and `plot` with all kinds of files, also malicious
ones.
"""

import io
import json
import pickle
import runpy
import shutil
import struct
import sys
import zipfile
from xml.etree import ElementTree

import numpy as np
import pytest

import toolkit
from tests.reading.hostile_safetensors import HOSTILE
from toolkit import cli, layers
from toolkit.cli.convert import save_npz
from toolkit.data import Dataset, TFRecordWriter, make_example
from toolkit.data.records import masked_crc32c
from toolkit.reading.safetensors import write_safetensors
from toolkit.saving import load_model, save_model


@pytest.fixture(scope="module")
def trained_model(tmp_path_factory):
    """Return (a trained model, a folder that contains it in every format)."""
    folder = tmp_path_factory.mktemp("files")
    toolkit.utils.set_random_seed(1)
    model = toolkit.Sequential(
        [
            toolkit.Input((6,)),
            layers.Dense(4, activation="relu", name="dense"),
            layers.Dense(2, name="dense_1"),
        ],
        name="net",
    )
    model.compile("adam", "mse")
    model.fit(np.ones((8, 6), "float32"), np.ones((8, 2), "float32"), verbose=0)
    for name in ("m.keras", "m.h5"):
        model.save(folder / name)
    save_model(model, folder / "saved", zipped=False)
    model.save_weights(folder / "m.weights.h5")
    model.save_weights(folder / "s.weights.json", max_shard_size=2e-7)
    model.save_weights(folder / "m.safetensors")
    model.save_weights(folder / "s.safetensors.index.json", max_shard_size=2e-7)
    write_safetensors(folder / "a.safetensors", {"other": np.ones(2)})
    np.savez_compressed(folder / "a.npz", zeros=np.zeros(10**6), y=np.arange(3))
    np.save(folder / "b.npy", np.ones((2, 5), "float32"))
    for name, options in (("r.tfrecord", None), ("r.gz", "GZIP")):
        with TFRecordWriter(folder / name, options) as writer:
            for i in range(3):
                writer.write(make_example({"x": [i, 2], "name": [b"abc"]}))
    Dataset.range(3).map(lambda x: {"a": x}).save(folder / "ds")
    return model, folder


@pytest.fixture
def folder(trained_model, tmp_path, monkeypatch):
    """Run the commands in a private copy of the folder with those files."""
    shutil.copytree(trained_model[1], tmp_path / "files")
    monkeypatch.chdir(tmp_path / "files")
    return tmp_path / "files"


def call(capsys, *arguments):
    """Return (exit code, standard output, standard error) of a command."""
    code = cli.main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


SUMMARY = ["dense (Dense)", "Total params: 38 (152.00 B)"]
ARRAYS = ["layers/dense/vars/0    (6, 4)  float32     96\n", "14 arrays"]


@pytest.mark.parametrize(
    "name, words",
    [
        ("m.keras", ["a Keras 3 model", "class: Sequential", *SUMMARY, *ARRAYS]),
        ("saved", ["the folder of a Keras 3 model", *SUMMARY, *ARRAYS]),
        ("m.h5", ["older .h5", *SUMMARY, "model_weights/dense/net/dense/kernel "]),
        ("m.weights.h5", ["m.weights.h5: weights, ", *ARRAYS]),
        ("s.weights.json", ["several files", "files: s_00000.weights.h5, ", *ARRAYS]),
        (
            "m.safetensors",
            ["safetensors, ", "dense/kernel  ", "(6, 4)  float32", "4 arrays"],
        ),
        (
            "s.safetensors.index.json",
            ["safetensors in several files", "files: s-00001-of-0000", "dense/kernel"],
        ),
        ("a.npz", ["zeros  (1000000,)  float64  8,000,000\n", "2 arrays, 7.63 MB"]),
        ("b.npy", ["b      (2, 5)  float32     40\n"]),
        ("r.tfrecord", ["records: 3", "x: int64[2], name: object[1]"]),
        ("r.gz", ["compressed with gzip", "records: 3"]),
        ("ds/elements.data", ["elements: 3", "a: int64[]"]),
    ],
)
def test_inspect_shows_every_kind(name, words, folder, capsys):
    code, printed, _ = call(capsys, "inspect", name)
    assert code == 0
    assert [word for word in words if word not in printed] == []


@pytest.mark.parametrize("name", ["m.keras", "m.h5", "saved"])
def test_inspect_names_the_program_that_wrote_a_file(name, folder, capsys):
    printed = call(capsys, "inspect", name)[1]
    assert f"saved with toolkit: {toolkit.__version__}\n" in printed
    assert "format: Keras 3.15.1\n" in printed
    assert "saved with Keras" not in printed


def test_inspect_names_keras_for_a_file_of_keras(folder, capsys):
    path = folder / "saved" / "metadata.json"
    metadata = json.loads(path.read_text("utf-8"))
    del metadata["toolkit_version"]
    path.write_text(json.dumps(metadata), "utf-8")
    assert "saved with Keras: 3.15.1\n" in call(capsys, "inspect", "saved")[1]


def test_inspect_detects_the_format_by_content(folder, capsys):
    shutil.move("m.keras", "something")
    assert "a Keras 3 model" in call(capsys, "inspect", "something")[1]


def test_inspect_summarizes_values(folder, capsys):
    np.savez("v.npz", x=np.array([1.0, 3.0, np.nan, np.inf]), text=np.array(["a"]))
    code, printed, _ = call(capsys, "inspect", "v.npz", "--values")
    row = next(line for line in printed.splitlines() if line.startswith("x "))
    assert code == 0 and row.split()[-4:] == ["1", "2", "3", "2"]


def test_inspect_sorts_numbers_numerically(folder, capsys):
    np.savez("v.npz", **{f"vars/{i}": np.ones(1) for i in (10, 9, 1)})
    printed = call(capsys, "inspect", "v.npz")[1]
    assert printed.index("vars/9") < printed.index("vars/10")


def test_inspect_shows_arrays_of_an_unloadable_model(folder, capsys):
    class Own(layers.Dense):
        pass

    toolkit.Sequential([toolkit.Input((2,)), Own(3)]).save("own.keras")
    code, printed, _ = call(capsys, "inspect", "own.keras")
    assert code == 0
    assert "No summary, because the model cannot be created: " in printed
    assert "could not locate class 'Own'" in printed and "(2, 3)" in printed


OWN = """
import toolkit
from toolkit import layers

class Own(layers.Dense):
    pass

if __name__ == "__main__":
    model = toolkit.Sequential([toolkit.Input((2,)), Own(3)])
    model.compile("sgd", "mse")
    model.save("own.keras")
"""


@pytest.mark.parametrize("module", ["my_own.py", "my_own"])
def test_user_classes_can_be_imported(module, folder, capsys, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "my_own", raising=False)
    (folder / "my_own.py").write_text(OWN)
    runpy.run_path("my_own.py", run_name="__main__")
    code, _, message = call(capsys, "plot", "own.keras")
    assert code == cli.FAILED and message.endswith("--import FILE.py\n")
    options = ["--import", module]
    assert " (Own) " in call(capsys, "inspect", "own.keras", *options)[1]
    assert call(capsys, "plot", "own.keras", *options)[0] == 0
    assert call(capsys, "convert", "own.keras", "own.h5", *options)[0] == 0
    code, _, message = call(capsys, "inspect", "own.keras", "--import", "no_such")
    assert code == cli.FAILED and "No module named 'no_such'" in message
    code, _, message = call(capsys, "inspect", "own.keras", "--import", "no_such.py")
    assert code == cli.FAILED and "there is no file 'no_such.py'" in message


class Trap:
    """An object whose pickle calls a function."""

    def __reduce__(self):
        raise_it = "raise SystemExit('code of the file has run')"
        return exec, (raise_it,)


def objects():
    """Write a `.npy` file of a pickled object that runs code."""
    file = io.BytesIO()
    np.save(file, np.array([Trap()], object), allow_pickle=True)
    return file.getvalue()


def oversized(shape):
    """Write a `.npy` file that declares more data than it contains."""
    file = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue() + b"12345678"


def zipped(**members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return file.getvalue()


def record_of(nbytes):
    length = struct.pack("<Q", nbytes)
    return length + struct.pack("<I", masked_crc32c(length)) + b"data"


def corrupt_zip():
    data = bytearray(zipped(x=oversized((1,))))
    data[-40:-30] = b"\xff" * 10
    return bytes(data)


@pytest.mark.parametrize(
    "data, words",
    [
        (pickle.dumps(Trap()), "a pickle can run code, so it is never read"),
        (
            objects(),
            "needs pickle. A pickle can run code, so it is never read",
        ),
        (zipped(x=objects()), "A pickle can run code, so it is never read"),
        (oversized((10**9,)), "declares 8000000000 bytes, but the file contains 8"),
        (zipped(x=oversized((10**9,))), "x declares 8000000000 bytes"),
        (zipped(x=b"no array"), "x: expected an array as NumPy saves them"),
        (corrupt_zip(), "corrupt"),
        (
            zipped(x=b"").replace(b"PK\x01\x02\x14\x03\x14", b"PK\x01\x02\x14\x03\xff"),
            "25.5",
        ),
        (record_of(2**62), "record 0 is corrupt or truncated"),
        (record_of(4), "record 0 is corrupt or truncated"),
        (b"\x1f\x8b\x08 no gzip", "expected TFRecord"),
        (b"\x89HDF\r\n\x1a\n no HDF5", "expected an HDF5 file"),
        (b"toolkit elements 1\n\xff", "truncated"),
        (b"\x93NUMPY\x01\x00\x02\x00{(", "expected an array as NumPy saves them"),
        (b"", "the file is empty"),
        (HOSTILE["a terabyte in 8 bytes"][0], "takes 1099511627776 bytes"),
        (HOSTILE["lists in lists"][0], "the header: expected JSON"),
        (b"hello", "expected one of .keras, .weights.h5,"),
    ],
)
def test_bad_files_are_refused(data, words, folder, capsys):
    (folder / "bad").write_bytes(data)
    for command in (["inspect", "bad", "--values"], ["convert", "bad", "x.npz"]):
        code, _, message = call(capsys, *command)
        assert code == cli.FAILED
        assert words in message and message.count("\n") == 1


def test_missing_file_suggests_a_name(folder, capsys):
    code, _, message = call(capsys, "inspect", "m.kears")
    assert (code, message.count("\n")) == (cli.FAILED, 1)
    assert "there is no file 'm.kears'; did you mean 'm.keras'?" in message


# --- convert --------------------------------------------------------------------------

LIST = "s.safetensors.index.json"
X = np.linspace(-1, 1, 30, dtype="float32").reshape(5, 6)


@pytest.mark.parametrize(
    "source, target",
    [
        ("m.keras", "new.h5"),
        ("m.h5", "new.keras"),
        ("saved", "new.keras"),
    ],
)
def test_converted_model_keeps_results_and_optimizer(
    source, target, trained_model, folder
):
    assert cli.main(["convert", source, target]) == 0
    model, loaded = trained_model[0], load_model(target)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert len(loaded.optimizer.variables) == len(model.optimizer.variables)
    assert int(loaded.optimizer.iterations) == 1


@pytest.mark.parametrize("target", ["new.weights.h5", "new.weights.json", "new.npz"])
@pytest.mark.parametrize(
    "source", ["m.keras", "saved", "m.h5", "m.weights.h5", "s.weights.json"]
)
def test_weights_convert_between_all_formats(source, target, trained_model, folder):
    assert cli.main(["convert", source, target, "--shard-size", "2e-7"]) == 0
    assert cli.main(["convert", target, "back.weights.h5"]) == 0
    assert cli.main(["convert", target, "back.keras", "--model", "m.keras"]) == 0
    for path in ("back.weights.h5", "back.keras"):
        model = load_model("m.keras")
        model.set_weights([0 * w for w in model.get_weights()])
        model.load_weights(path)
        for ours, theirs in zip(model.weights, trained_model[0].weights, strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("target", ["new.safetensors", "new.safetensors.index.json"])
@pytest.mark.parametrize(
    "source", ["m.keras", "m.h5", "m.weights.h5", "m.safetensors", LIST]
)
def test_weights_convert_to_safetensors_and_back(source, target, trained_model, folder):
    needed = ["--model", "m.keras"] if source == "m.weights.h5" else []
    size = ["--shard-size", "2e-7"]
    assert cli.main(["convert", source, target, *size, *needed]) == 0
    assert cli.main(["convert", target, "back.keras", "--model", "m.keras"]) == 0
    assert cli.main(["convert", target, "back.weights.h5", "--model", "m.keras"]) == 0
    for path in ("back.weights.h5", "back.keras"):
        model = load_model("m.keras")
        model.set_weights([0 * w for w in model.get_weights()])
        model.load_weights(path)
        for ours, theirs in zip(model.weights, trained_model[0].weights, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_inspect_shows_metadata_of_safetensors(folder, capsys):
    metadata = {"format": "pt", "long": "x" * 1000} | {f"k{i}": "" for i in range(30)}
    write_safetensors("x.bin", {"a": np.ones(2)}, metadata)
    code, printed, _ = call(capsys, "inspect", "x.bin", "--values")
    assert code == 0 and "format: pt" in printed and "more of these: 12" in printed
    assert "x" * 100 + "\n" in printed


def test_bfloat16_becomes_float32_in_npz(folder, tmp_path):
    values = toolkit.ops.convert_to_numpy(toolkit.ops.ones((2,), "bfloat16"))
    save_npz(tmp_path / "x.npz", {"layers/dense/vars/0": values})
    with np.load(tmp_path / "x.npz") as arrays:
        assert arrays["layers/dense/vars/0"].dtype == np.float32


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["m.weights.h5", "x.keras"], "holds weights; pass --model FILE"),
        (["a.npz", "x.weights.h5"], "such as 'layers/dense/vars/0'; received"),
        (["a.npz", "m.keras"], "'m.keras' exists already; use --force to replace it"),
        (["r.tfrecord", "x.npz"], "holds TFRecord, without weights"),
        (["b.npy", "x.keras", "--model", "m.keras"], "does not fit the model"),
        (
            ["m.h5", "x.keras", "--model", "b.npy"],
            "expected the file of a complete model",
        ),
        (["m.safetensors", "x.npz"], "holds safetensors; pass --model FILE"),
        (["m.weights.h5", "x.safetensors"], "holds weights; pass --model FILE"),
        (["a.safetensors", "x.keras", "--model", "m.keras"], "other: unexpected"),
        (["m.keras", "no/x.npz"], "cannot write 'no/x.npz'"),
    ],
)
def test_convert_refuses_bad_arguments(arguments, words, folder, capsys):
    code, _, message = call(capsys, "convert", *arguments)
    assert code == cli.FAILED
    assert words in message and not (folder / "x.keras").exists()


def test_force_replaces_a_file(folder):
    assert cli.main(["convert", "m.weights.h5", "a.npz", "--force"]) == 0
    with np.load("a.npz") as arrays:
        assert "layers/dense/vars/0" in arrays


# --- plot -----------------------------------------------------------------------------


def test_plot_writes_an_svg_named_after_the_file(folder, capsys):
    assert call(capsys, "plot", "m.keras", "--shapes")[:2] == (0, "m.svg\n")
    texts = [e.text for e in ElementTree.parse("m.svg").iter() if e.text]
    assert "(None, 4)" in " ".join(texts)


def test_plot_accepts_a_path_and_a_direction(folder, capsys):
    assert cli.main(["plot", "m.h5", "-o", "x.svg"]) == 0
    assert cli.main(["plot", "m.h5", "-o", "y.dot", "--direction", "LR"]) == 0
    down = ElementTree.parse("x.svg").getroot()
    assert float(down.get("height")) > 0
    assert "rankdir=LR" in (folder / "y.dot").read_text().replace('"', "")


@pytest.mark.parametrize(
    "arguments, existing",
    [
        (["plot", "m.keras"], "m.svg"),
        (["plot", "m.keras", "-o", "old.svg"], "old.svg"),
        (["convert", "m.keras", "old.npz"], "old.npz"),
        (["export", "m.keras", "-o", "old.o"], "old.o"),
        (["export", "m.keras", "-o", "old.xml"], "old.bin"),
        (["simulate", "m.keras", "--plot", "old.svg"], "old.svg"),
        (["bench", "--only", "tiny_mlp", "--json", "old.json"], "old.json"),
    ],
)
def test_a_file_is_replaced_only_with_force(arguments, existing, folder, capsys):
    (folder / existing).write_text("old")
    code, _, message = call(capsys, *arguments)
    assert (code, (folder / existing).read_text()) == (cli.FAILED, "old")
    assert f"{existing!r} exists already; use --force to replace it" in message


def test_force_replaces_a_picture(folder, capsys):
    (folder / "m.svg").write_text("old")
    assert call(capsys, "plot", "m.keras", "--force")[:2] == (0, "m.svg\n")
    assert ElementTree.parse("m.svg").getroot() is not None


def test_plot_needs_a_model(folder, capsys):
    code, _, message = call(capsys, "plot", "m.weights.h5")
    assert code == cli.FAILED and "expected the file of a complete model" in message


# --- export ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, written",
    [
        (["-o", "net.o"], "net.o"),
        (["--format", "object"], "m.o"),
        (["--format", "static", "--target", "aarch64"], "m.a"),
        (["-o", "out.a", "--batch", "2,8", "--prefix", "own"], "out.a"),
        (["-o", "w.o", "--weights", "file", "--no-threads"], "w.o"),
    ],
)
def test_export(folder, capsys, options, written):
    code, printed, _ = call(capsys, "export", "m.keras", *options)
    assert code == 0
    assert printed.startswith(f"{written}: ")
    assert (folder / written).is_file()
    assert (folder / written).with_suffix(".h").is_file()
    text = (folder / written).with_suffix(".h").read_text()
    assert ("OWN_BATCHES {2, 8}" in text) == ("--batch" in options)
    assert (folder / "w.safetensors").exists() == ("--weights" in options)


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no linker")
def test_export_is_checked(folder, capsys):
    folder.chmod(0o700)
    code, printed, _ = call(capsys, "export", "m.keras", "--check", "--batch", "1,4")
    assert code == 0
    assert "compared with the model for 1, 4, 2, 13 rows: error at most " in printed
    code, _, message = call(capsys, "export", "m.keras", "--check")
    assert (code, "use --force to replace it" in message) == (1, True)
    assert call(capsys, "export", "m.keras", "--check", "--force")[0] == 0


@pytest.mark.parametrize(
    "arguments, expected",
    [
        (["m.weights.h5"], "expected the file of a complete model"),
        (["m.keras", "-o", "m.txt"], "ends in one of"),
        (["m.keras", "-o", "m.o", "--format", "static"], "ends in .a; received 'm.o'"),
        (["m.keras", "-o", "m.o", "--check"], "--check supports only shared libraries"),
        (["m.keras", "-o", "m.o", "--size", "dim_0_1=3"], "received 'dim_0_1'"),
        (["m.keras", "-o", "m.o", "--target", "z80"], "z80"),
    ],
)
def test_export_refuses_bad_arguments(folder, capsys, arguments, expected):
    code, _, message = call(capsys, "export", *arguments)
    assert code == 1
    assert expected in message
    assert not (folder / "m.o").exists()
