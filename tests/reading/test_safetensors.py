"""Test that safetensors files round-trip, and that other files are refused."""

from __future__ import annotations

import contextlib
import json
import os
import re

import ml_dtypes
import numpy as np
import pytest

from tests.reading.hostile_safetensors import HOSTILE, PAIR, packed, row
from toolkit import dtypes
from toolkit.errors import (
    ArgumentError,
    LoadBudgetError,
    MissingFileError,
    ModelFileError,
    UnwritableFileError,
)
from toolkit.reading.budget import set_load_budget
from toolkit.reading.safetensors import (
    NAMES,
    open_safetensors,
    read_safetensors,
    write_safetensors,
)


def arrays_of_all_dtypes():
    arrays = {}
    for name in NAMES:
        values = np.arange(6).reshape(2, 3) % 2 if name == "bool" else np.arange(6) - 2
        arrays[f"of/{name}"] = np.reshape(values, (2, 3)).astype(
            dtypes.numpy_dtype(name)
        )
    return arrays | {
        "scalar": np.float32(3),
        "none": np.zeros((0, 3), "float32"),
        "turned": np.arange(6, dtype="float32").reshape(2, 3).T,
        "größe 量": np.array([1], "int8"),
    }


def same(actual, expected):
    assert actual.keys() == expected.keys()
    for name, array in actual.items():
        assert array.dtype == expected[name].dtype
        np.testing.assert_array_equal(array, expected[name])


def save(path, data):
    path.write_bytes(data)
    return path


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.safetensors"


# --- valid files ----------------------------------------------------------------------


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("sort", [True, False])
def test_arrays_round_trip(path, mapped, sort):
    arrays = arrays_of_all_dtypes()
    write_safetensors(path, arrays, {"format": "pt", "ä": "ö"}, sort)
    same(read_safetensors(path, mapped), arrays)
    with open_safetensors(path) as content:
        assert content.metadata == {"format": "pt", "ä": "ö"}
        same({k: v.read() for k, v in content.arrays.items()}, arrays)
        if not sort:
            assert list(content.arrays) == list(arrays)


def test_all_dtypes_but_complex128_have_names():
    assert set(dtypes.DTYPES) - set(NAMES) == {"complex128"}


def test_values_start_at_64_bytes_and_each_array_is_aligned(path):
    for names in ("x", "xy", "a longer name", "a name of some more characters"):
        write_safetensors(path, {name: np.ones(3, "int8") for name in names})
        assert (8 + int.from_bytes(path.read_bytes()[:8], "little")) % 64 == 0
    write_safetensors(path, arrays_of_all_dtypes())
    assert all(a.flags.aligned for a in read_safetensors(path, mapped=True).values())


def test_equal_arrays_write_equal_bytes(path, tmp_path):
    arrays = arrays_of_all_dtypes()
    write_safetensors(path, arrays)
    other = tmp_path / "y.safetensors"
    write_safetensors(other, dict(reversed(arrays.items())))
    assert path.read_bytes() == other.read_bytes()


def test_mapped_arrays_stay_in_the_file_and_are_read_only(path):
    write_safetensors(path, {"x": np.arange(4)})
    array = read_safetensors(path, mapped=True)["x"]
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    with open(path, "r+b") as file:
        file.seek(-8, os.SEEK_END)
        file.write((77).to_bytes(8, "little"))
    assert array[3] == 77


def test_unaligned_mapped_arrays_are_copied(path):
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    values = np.array([1, 2], "float32").tobytes()
    for spaces in range(8):
        save(path, packed(json.dumps({"x": entry}) + " " * spaces, values))
        array = read_safetensors(path, mapped=True)["x"]
        assert array.flags.aligned and array.tolist() == [1, 2]


def test_big_endian_arrays_are_written_little_endian(path):
    write_safetensors(path, {"x": np.arange(3, dtype=">i4")})
    assert read_safetensors(path)["x"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("data", [packed({}, b""), packed({"__metadata__": {}}, b"")])
def test_file_without_arrays(path, data):
    assert read_safetensors(save(path, data)) == {}
    assert read_safetensors(path, mapped=True) == {}


# --- refused files --------------------------------------------------------------------


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused(path, name):
    data, message = HOSTILE[name]
    save(path, data)
    for mapped in (False, True):
        with pytest.raises(ModelFileError, match=message) as caught:
            read_safetensors(path, mapped)
        assert repr(str(path)) in str(caught.value) and len(str(caught.value)) < 1500


def test_hostile_files_derive_from_a_valid_file(path):
    assert read_safetensors(save(path, row()))["x"].tolist() == [0, 0]


def test_path_of_no_regular_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for target in (tmp_path / "pipe", tmp_path / "folder", "/dev/zero"):
        with pytest.raises(ModelFileError, match="regular file|cannot be read"):
            read_safetensors(target)
    with pytest.raises(MissingFileError, match=r"none.*the file does not exist"):
        read_safetensors(tmp_path / "none")
    with pytest.raises(ModelFileError, match="null"):
        read_safetensors("a\0b")


def test_truncation_after_the_check_is_an_error(path):
    write_safetensors(path, {"x": np.arange(1000)})
    with open_safetensors(path) as content:
        os.truncate(path, 4000)
        with pytest.raises(ModelFileError, match="was truncated"):
            content.arrays["x"].read()


def test_values_count_against_the_load_budget(path):
    write_safetensors(path, {"x": np.zeros(1 << 20, "uint8")})
    set_load_budget(least=0)
    try:
        with open_safetensors(path) as content, pytest.raises(LoadBudgetError):
            for _ in range(100):
                content.arrays["x"].read()
    finally:
        set_load_budget()


@pytest.mark.slow
def test_maximum_number_of_arrays_of_a_header(path):
    arrays = dict.fromkeys((f"layers.{i:05}" for i in range(80_000)), np.zeros((1, 1)))
    write_safetensors(path, arrays)
    assert len(read_safetensors(path, mapped=True)) == 80_000
    many_arrays = dict.fromkeys(
        (f"layers.{i:05}" for i in range(120_000)), np.zeros((1, 1))
    )
    with pytest.raises(ArgumentError, match="120000 arrays need a header"):
        write_safetensors(path, many_arrays)


# --- unsupported values ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"__metadata__": [1]}, "expected names"),
        ({"\ud800": [1]}, "expected names"),
        ({1: [1]}, "expected names"),
        ({"x": np.array([1j])}, "x: expected a dtype.*complex128"),
        ({"x": np.array(["a"])}, "expected a dtype"),
        ({"x": np.array([None])}, "expected a dtype"),
        ({"x": np.zeros(2, "M8[s]")}, "expected a dtype"),
        ({"x": np.zeros(2, ml_dtypes.int4)}, "expected a dtype"),
    ],
)
def test_unsupported_values_are_refused(path, arrays, message):
    path.write_bytes(b"old")
    with pytest.raises(ArgumentError, match=message):
        write_safetensors(path, arrays)
    assert path.read_bytes() == b"old"


def test_metadata_must_be_texts(path):
    with pytest.raises(ArgumentError, match="metadata"):
        write_safetensors(path, {}, {"epoch": 1})


def test_failure_keeps_the_older_file(path, monkeypatch):
    write_safetensors(path, {"x": np.zeros(3)})
    old = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("toolkit.files.staging.flush", full)
    with pytest.raises(UnwritableFileError, match="No space left"):
        write_safetensors(path, {"x": np.ones(3)})
    assert path.read_bytes() == old and os.listdir(path.parent) == [path.name]


# --- library safetensors --------------------------------------------------------------


def test_library_safetensors_reads_and_writes_equal_files(path):
    library = pytest.importorskip("safetensors.numpy")
    arrays = {
        name: array
        for name, array in arrays_of_all_dtypes().items()
        if not re.search("float8|complex", name)
    }
    write_safetensors(path, arrays, {"format": "np"})
    same(library.load_file(path), arrays)
    library.save_file({k: np.ascontiguousarray(v) for k, v in arrays.items()}, path)
    same(read_safetensors(path), arrays)
    same(read_safetensors(path, mapped=True), arrays)


def test_library_safetensors_refuses_the_same_files(path):
    library = pytest.importorskip("safetensors.numpy")
    accepted = set()
    for name, (data, _) in HOSTILE.items():
        with contextlib.suppress(Exception):
            library.load(data)
            accepted.add(name)
    # The format requires that a header starts with "{".
    assert "a name twice" in accepted  # the last counts
    assert accepted <= {
        "a name twice",
        "a header longer than any",
        "a header of lists",
        "a header of numbers",
        "spaces first",
        "an entry with more",
        "a truth value that is none",
    }
    assert library.load(packed({"x": PAIR}))["x"].tolist() == [0, 0]
