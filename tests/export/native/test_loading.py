"""Test native libraries in Python: loading, refusals and results."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import toolkit
from tests.export.native import stub
from toolkit.errors import (
    ArgumentError,
    MissingFileError,
    ModelFileError,
    OutOfRangeError,
    ShapeError,
    UnsupportedError,
)
from toolkit.export.native.weights import write_weights

X = np.arange(15, dtype="float32").reshape(5, 3)
NUMBERS = np.arange(5, dtype="int32")
EXPECTED = X * stub.WEIGHTS + NUMBERS[:, None]


@pytest.fixture
def folder(tmp_path):
    """Return a folder that no other user may write."""
    folder_path = tmp_path / "own"
    folder_path.mkdir(mode=0o700)
    return folder_path


@pytest.fixture
def path(folder):
    return stub.shared(folder / "digits.so")


def test_library_describes_itself(path):
    model = toolkit.load_native(path)
    described = [(x.name, x.shape, x.dtype) for x in model.inputs]
    assert described == [("x", (None, 3), "float32"), ("number", (None,), "int32")]
    assert [y.name for y in model.outputs] == ["scores/a"]
    assert model.batches == (1, 8)
    assert not model.is_stateful and not model.takes_whole_batches


@pytest.mark.parametrize(
    "inputs",
    [
        [X, NUMBERS],
        (X.tolist(), NUMBERS.tolist()),
        {"number": NUMBERS, "x": X},
        [X.astype("float64"), NUMBERS.astype("int64")],
        [np.asfortranarray(X), NUMBERS],
        [np.repeat(X, 2, 0)[::2], NUMBERS],
    ],
    ids=["list", "Python", "dict", "cast", "columns", "strided"],
)
def test_predict(path, inputs):
    model = toolkit.load_native(path)
    np.testing.assert_array_equal(model.predict(inputs), EXPECTED)
    np.testing.assert_array_equal(model(inputs), EXPECTED)


def test_out_of_range_values_are_refused(path):
    model = toolkit.load_native(path)
    infinite = np.full((1, 3), -np.inf)
    assert np.isneginf(model.predict([infinite, [np.uint64(3)]])).all()
    assert model.predict([[[1, True, 0]], [False]]).tolist() == [[1, 2, 0]]
    assert model.predict([np.empty((0, 3)), []]).shape == (0, 3)


def test_no_rows(path):
    model = toolkit.load_native(path)
    assert model.predict([X[:0], NUMBERS[:0]]).shape == (0, 3)


@pytest.mark.parametrize(
    "inputs, error, expected",
    [
        (X, ArgumentError, "expected 2 inputs"),
        ([X], ArgumentError, "received list of 1"),
        ({"x": X}, ArgumentError, r"\['x', 'number'\]"),
        ([X[:, :2], NUMBERS], ShapeError, r"'x'.*\(None, 3\).*\(5, 2\)"),
        ([X[0], NUMBERS], ShapeError, r"received \(3,\)"),
        ([X, NUMBERS[:4]], ShapeError, "equal numbers of rows.*5.*4"),
        ([X, NUMBERS.astype("int64") + 2**40], ArgumentError, "values of int32.*109"),
        ([X, NUMBERS + 1.7], ArgumentError, "integers for int32; received float64"),
        (
            [X + np.float64(1e39), NUMBERS],
            ArgumentError,
            "'x': expected values of float32.*e",
        ),
        ([X + 1j, NUMBERS], ArgumentError, "real numbers for float32.*complex"),
        (["a", NUMBERS], ArgumentError, "'x': expected"),
        ([[[1, 2], [1]], NUMBERS], ArgumentError, "'x': expected an array"),
        ([X, NUMBERS + 6], OutOfRangeError, "digits.so: number: 10 is out of range"),
    ],
)
def test_invalid_inputs_are_refused(path, inputs, error, expected):
    model = toolkit.load_native(path)
    with pytest.raises(error, match=expected):
        model.predict(inputs)
    np.testing.assert_array_equal(model.predict([X, NUMBERS]), EXPECTED)


def test_states_continue_and_are_reset(folder):
    model = toolkit.load_native(stub.shared(folder / "digits.so", states=1))
    assert model.is_stateful and model.takes_whole_batches
    for runs in range(3):
        np.testing.assert_array_equal(model.predict([X, NUMBERS]), EXPECTED + runs)
    model.reset()
    np.testing.assert_array_equal(model.predict([X, NUMBERS]), EXPECTED)


@pytest.mark.parametrize("states", [0, 1])
def test_several_threads_share_a_library(folder, states):
    model = toolkit.load_native(stub.shared(folder / "digits.so", states=states))
    errors = []

    def run():
        for _ in range(200):
            errors.append(model.predict([X, NUMBERS])[0, 0])

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(errors) == (list(range(800)) if states else [0] * 800)


# --- refused files --------------------------------------------------------------------


def test_path_has_a_folder(path, monkeypatch):
    monkeypatch.chdir(path.parent)
    with pytest.raises(
        ArgumentError, match=r"expected a path with its folder.*\./digits.so"
    ):
        toolkit.load_native("digits.so")
    assert toolkit.load_native("./digits.so").batches == (1, 8)


@pytest.mark.parametrize("ending", [".o", ".a", ".wasm"])
def test_static_library_is_refused(folder, ending):
    with pytest.raises(ArgumentError, match="expected a shared library"):
        toolkit.load_native(folder / f"digits{ending}")


def test_missing_file(folder):
    with pytest.raises(MissingFileError, match="no file"):
        toolkit.load_native(folder / "digits.so")


def test_invalid_library_is_refused(folder):
    (folder / "digits.so").write_bytes(b"text")
    with pytest.raises(ModelFileError, match="expected a shared library for this"):
        toolkit.load_native(folder / "digits.so")


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="the system has no such rights")
@pytest.mark.parametrize("of", ["file", "folder", "folder above"])
@pytest.mark.parametrize("mode", [0o020, 0o002])
def test_file_that_others_may_write_is_refused(path, of, mode):
    path_of_kind = {
        "file": path,
        "folder": path.parent,
        "folder above": path.parent.parent,
    }
    path_of_kind[of].chmod(0o700 | mode)
    with pytest.raises(ModelFileError, match="is writable for other users"):
        toolkit.load_native(path)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="the system has no such rights")
def test_file_of_another_user_is_refused(path, monkeypatch):
    if os.getuid() == 0:  # all users may load the files of root
        os.chown(path, 12345, -1)
    else:
        monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(ModelFileError, match="is writable for other users"):
        toolkit.load_native(path)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="the system has no such rights")
@pytest.mark.parametrize("to", ["file", "folder", "a link"])
def test_replaceable_links_are_refused(path, tmp_path, to):
    (tmp_path / "kept").symlink_to(path.parent)
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    target = shared / "digits.so"
    if to == "file":
        target.symlink_to(path)
    elif to == "folder":
        (shared / "own").symlink_to(path.parent)
        target = shared / "own" / "digits.so"
    else:
        target.symlink_to(path)
        target = tmp_path / "digits.so"
        target.symlink_to(shared / "digits.so")
    with pytest.raises(ModelFileError, match="shared' is writable for other"):
        toolkit.load_native(target)
    shared.chmod(0o1777)  # all users may make links in it, but not replace mine
    assert toolkit.load_native(target).batches == (1, 8)
    assert toolkit.load_native(tmp_path / "kept" / "digits.so").batches == (1, 8)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="the system has no such rights")
def test_links_are_resolved_before_permissions_are_checked(path, tmp_path):
    link = tmp_path / "digits.so"
    link.symlink_to(path)
    assert toolkit.load_native(link).batches == (1, 8)
    path.chmod(0o702)
    with pytest.raises(ModelFileError, match=r"own/digits.so"):
        toolkit.load_native(link)


def test_another_interface_is_refused(folder):
    path = stub.shared(folder / "digits.so", abi=7)
    with pytest.raises(ModelFileError, match="version 7 of the interface.*export"):
        toolkit.load_native(path)


def test_another_prefix_is_refused(folder):
    path = stub.shared(folder / "digits.so", prefix="other")
    with pytest.raises(ModelFileError, match="no function digits_abi"):
        toolkit.load_native(path)
    assert toolkit.load_native(path, prefix="other").batches == (1, 8)


def test_prefix_of_a_library_for_linkers(folder):
    assert toolkit.load_native(stub.shared(folder / "libdigits.so")).batches == (1, 8)


@pytest.mark.parametrize("threads", [0, True, 1.5])
def test_threads_are_counted(path, threads):
    with pytest.raises(ArgumentError, match="threads: expected an integer > 0"):
        toolkit.load_native(path, threads=threads)


def test_thread_count_is_checked(path):
    with pytest.raises(UnsupportedError, match="digits.so: no luck"):
        toolkit.load_native(path, threads=2)


def test_replaced_library(folder):
    path = stub.shared(folder / "digits.so")
    older = toolkit.load_native(path)
    stub.shared(folder / "next.so", states=1).replace(path)
    newer = toolkit.load_native(path)
    assert (older.is_stateful, newer.is_stateful) == (False, True)
    assert toolkit.load_native(path).is_stateful
    np.testing.assert_array_equal(older.predict([X, NUMBERS]), EXPECTED)


# --- weights in a file ----------------------------------------------------------------


@pytest.fixture
def with_file(folder):
    path = stub.shared(folder / "digits.so", embeds=0)
    write_weights(folder / "digits.safetensors", stub.library(folder, embeds=0))
    return path


def test_weights_next_to_the_library(with_file):
    model = toolkit.load_native(with_file)
    np.testing.assert_array_equal(model.predict([X, NUMBERS]), EXPECTED)


def test_weights_in_another_folder(with_file):
    moved = with_file.with_name("moved.safetensors")
    with_file.with_name("digits.safetensors").rename(moved)
    with pytest.raises(MissingFileError, match=r"weights: no file.*digits.safetensors"):
        toolkit.load_native(with_file)
    model = toolkit.load_native(with_file, weights=moved)
    np.testing.assert_array_equal(model.predict([X, NUMBERS]), EXPECTED)


@pytest.mark.parametrize(
    "change, expected",
    [
        (lambda data: data[:-1] + b"\1", "SHA-256 differs"),
        (lambda data: data[:-4], "expected 12 bytes.*received 8"),
        (lambda data: data + bytes(4), "received 16"),
        (lambda data: b"\xff" * 8 + data[8:], "received 0"),
        (lambda data: b"", "received 0"),
    ],
    ids=["value", "shorter", "longer", "header", "empty"],
)
def test_different_weights_are_refused(with_file, change, expected):
    file = with_file.with_name("digits.safetensors")
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(ModelFileError, match=f"different weights.*{expected}"):
        toolkit.load_native(with_file)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="the system has no such rights")
def test_weights_that_others_may_write_are_refused(with_file):
    with_file.with_name("digits.safetensors").chmod(0o622)
    with pytest.raises(ModelFileError, match="weights.*is writable for other"):
        toolkit.load_native(with_file)


# --- other tools ----------------------------------------------------------------------


def test_loading_needs_no_compiler(path):
    program = (
        "import sys, toolkit\n"
        f"model = toolkit.load_native({str(path)!r})\n"
        "model.predict([[[1., 2., 3.]], [0]])\n"
        "names = ('llvmlite', 'toolkit.compiler', 'toolkit.core', 'toolkit.ops')\n"
        "assert not [name for name in names if name in sys.modules]\n"
    )
    root = Path(toolkit.__file__).parents[1]
    subprocess.run([sys.executable, "-c", program], cwd=root, check=True, timeout=60)


@pytest.mark.parametrize("name", ["digits.so", "digits.keras", "digits.weights.h5"])
def test_other_loaders_refuse_a_library(path, name):
    named = path.rename(path.with_name(name))
    model = toolkit.Sequential([toolkit.Input((2,)), toolkit.layers.Dense(1)])
    with pytest.raises((ModelFileError, ArgumentError)):
        toolkit.saving.load_model(named)
    with pytest.raises((ModelFileError, ArgumentError)):
        model.load_weights(named)
    maps = Path("/proc/self/maps")
    assert not maps.exists() or str(named) not in maps.read_text("utf-8")
