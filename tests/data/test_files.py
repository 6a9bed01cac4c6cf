"""Tests of files as sources: round trips, and errors that name damaged files."""

import functools
import gzip
import os
import struct
import subprocess
import sys

import h5py
import numpy as np
import pytest

from toolkit.data import (
    CsvDataset,
    Dataset,
    FixedLenFeature,
    FixedLengthRecordDataset,
    TextLineDataset,
    TFRecordDataset,
    TFRecordWriter,
    VarLenFeature,
    make_example,
    parse_example,
    parse_single_example,
)
from toolkit.data.records import crc32c_function
from toolkit.errors import DatasetError


def test_lines(tmp_path):
    first, second = tmp_path / "one.txt", tmp_path / "two.txt.gz"
    first.write_bytes(b"a\r\nb\n\nlast")
    with gzip.open(second, "wb") as file:
        file.write(b"x\ny\n")
    assert list(TextLineDataset(first)) == ["a", "b", "", "last"]
    assert list(TextLineDataset([str(first)] * 2, encoding=None)) == [
        *(b"a", b"b", b"", b"last") * 2
    ]
    assert list(TextLineDataset(second, "GZIP")) == ["x", "y"]
    interleaved = TextLineDataset([first, first], num_parallel_reads=2)
    assert list(interleaved) == ["a", "a", "b", "b", "", "", "last", "last"]
    assert list(TextLineDataset(Dataset.from_items([str(first)]))) == list(
        TextLineDataset(first)
    )


def test_position_in_files(tmp_path):
    paths = [tmp_path / f"{i}.txt" for i in range(3)]
    for i, path in enumerate(paths):
        path.write_text("".join(f"{i}-{j}\n" for j in range(4)))
    for arguments in ({}, {"num_parallel_reads": 2}):
        expected = list(TextLineDataset(paths, **arguments))
        for position in range(13):
            iterator = iter(TextLineDataset(paths, **arguments))
            elements = [next(iterator) for _ in range(position)]
            resumed = iter(TextLineDataset(paths, **arguments))
            resumed.set_state(iterator.get_state())
            assert elements + list(resumed) == expected


def test_csv(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text('n,name,x\n1,"a, b",0.5\n,"two\nlines",\n')
    defaults = [np.int32(7), "none", 2.5]
    rows = list(CsvDataset(path, defaults, header=True))
    assert [(int(n), name, float(x)) for n, name, x in rows] == [
        (1, "a, b", 0.5),
        (7, "two\nlines", 2.5),
    ]
    assert rows[0][0].dtype == "int32"
    assert rows[0][2].dtype == "float32"
    selected = CsvDataset(path, ["float32"], header=True, select_cols=[2])
    with pytest.raises(
        RuntimeError,
        match=r"byte 22, record 1.*a required field is empty: record_defaults\[0\]",
    ):
        list(selected)
    path.write_text("1,2.5\n")
    for defaults in ([0, 0.0], [[0], [0.0]]):
        assert [x.dtype for x in next(iter(CsvDataset(path, defaults)))] == [
            "int32",
            "float32",
        ]
    path.write_text("1,2\n3\n")
    with pytest.raises(RuntimeError, match=r"table.csv: byte 4, record 1.*2 fields"):
        list(CsvDataset(path, [0, 0]))


def test_fixed_length_records(tmp_path):
    path = tmp_path / "records"
    path.write_bytes(b"HEADabcdef")
    assert list(FixedLengthRecordDataset(path, 3, header_bytes=4)) == [b"abc", b"def"]
    with pytest.raises(RuntimeError, match="byte 8, record 1"):
        list(FixedLengthRecordDataset(path, 4, header_bytes=4))


@pytest.mark.parametrize("compression", [None, "GZIP"])
def test_records(tmp_path, compression):
    path = tmp_path / "file.tfrecord"
    records = [b"", b"short", bytes(range(256)) * 50]
    with TFRecordWriter(path, compression) as writer:
        for record in records:
            writer.write(record)
    assert list(TFRecordDataset(path, compression)) == records


def test_corrupt_records_are_named(tmp_path):
    path = tmp_path / "file.tfrecord"
    with TFRecordWriter(path) as writer:
        writer.write(b"first")
        writer.write(b"second")
    data = path.read_bytes()
    for content, words in (
        (data[:-7], "byte 21, record 1: the file is truncated"),
        (data[:25], "truncated inside of a record's length"),
        (data[:-6] + b"X" + data[-5:], "byte 21, record 1: the checksum of the record"),
        (b"\1" + data[1:], "byte 0, record 0: the checksum of the record's length"),
    ):
        path.write_bytes(content)
        with pytest.raises(RuntimeError, match=words) as error:
            list(TFRecordDataset(path))
        assert "file.tfrecord" in str(error.value)


@pytest.mark.parametrize("size", [0, 1, 8, 4096, 10_007])
def test_checksum(size):
    data = np.random.default_rng(size).bytes(size)
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    assert crc32c_function()(data) == crc ^ 0xFFFFFFFF


def test_examples():
    # As TensorFlow 2.21 writes tf.train.Example with these features.
    message = make_example({"n": [1, -2], "x": [0.5], "s": [b"a", b"b\0"]})
    features = {
        "n": FixedLenFeature((2,), "int64"),
        "x": FixedLenFeature((), "float32"),
        "s": VarLenFeature(bytes),
        "missing": FixedLenFeature((1,), "int64", default_value=9),
    }
    parsed = parse_single_example(message, features)
    assert parsed["n"].tolist() == [1, -2]
    assert parsed["x"] == np.float32(0.5)
    assert parsed["s"].tolist() == [b"a", b"b\0"]
    assert parsed["missing"].tolist() == [9]
    batch = parse_example([message, message], features)
    assert batch["n"].shape == (2, 2)
    assert batch["s"].to_list() == [[b"a", b"b\0"]] * 2
    with pytest.raises(RuntimeError, match="no feature 'y'"):
        parse_single_example(message, {"y": FixedLenFeature((), "int64")})
    with pytest.raises(ValueError, match="2 values"):
        parse_single_example(message, {"n": FixedLenFeature((3,), "int64")})
    with pytest.raises(TypeError, match="float32"):
        parse_single_example(message, {"x": FixedLenFeature((), "int64")})
    with pytest.raises(RuntimeError, match="not an Example"):
        parse_single_example(message[:-3], features)


def test_example_of_unpacked_values():
    def field(number, data):
        return bytes([number << 3 | 2, len(data)]) + data

    floats = bytes([1 << 3 | 5]) + struct.pack("<f", 1.5)
    entry = field(1, b"x") + field(2, field(2, floats))
    message = field(1, field(1, entry))
    parsed = parse_single_example(message, {"x": VarLenFeature("float32")})
    assert parsed["x"].tolist() == [1.5]


def test_arrays_in_files(tmp_path):
    x, y = np.arange(20.0).reshape(10, 2), np.arange(10)
    np.savez(tmp_path / "a.npz", x=x, y=y)
    np.save(tmp_path / "x.npy", x)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=x, chunks=(3, 2))
        file["y"] = y
    for dataset in (
        Dataset.from_npz(tmp_path / "a.npz", ("x", "y")),
        Dataset.from_hdf5(tmp_path / "a.h5", ("x", "y")),
        Dataset.zip(Dataset.from_npy(tmp_path / "x.npy"), Dataset.range(10)),
    ):
        order = [int(b) for a, b in dataset.shuffle(10, seed=1)]
        rows = [
            a for a, b in dataset.shuffle(10, seed=1, reshuffle_each_iteration=False)
        ]
        assert sorted(order) == list(range(10))
        assert len(rows) == 10
        for (a, b), batch in zip(dataset, dataset.batch(1), strict=True):
            assert np.array_equal(a, x[b])
            assert np.array_equal(batch[0][0], a)
        shuffled = next(iter(dataset.shuffle(10, seed=3).batch(10)))
        assert np.array_equal(shuffled[0], x[shuffled[1]])
        assert dataset.element_spec[0].shape == (2,)


def test_corrupt_arrays_are_named(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(3))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.arange(1000)
    for name, make in (("a.npz", Dataset.from_npz), ("a.h5", Dataset.from_hdf5)):
        path = tmp_path / name
        path.write_bytes(path.read_bytes()[:100])
        with pytest.raises(RuntimeError, match=name):
            list(make(path))


def test_stored_elements(tmp_path):
    elements = Dataset.from_tensor_slices({"a": np.eye(3), "b": ["x", "yy", "z"]})
    elements.save(tmp_path / "saved")
    loaded = Dataset.load(tmp_path / "saved")
    assert len(loaded) == 3
    for saved, read in zip(elements, loaded, strict=True):
        assert np.array_equal(saved["a"], read["a"])
        assert saved["b"] == read["b"]
    path = tmp_path / "saved" / "elements.data"
    data = bytearray(path.read_bytes())
    data[200] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(RuntimeError, match="elements.data: the element"):
        list(Dataset.load(tmp_path / "saved"))
    path.write_bytes(data[:-30])
    with pytest.raises(RuntimeError, match="truncated"):
        Dataset.load(tmp_path / "saved")


def test_cache_in_a_file(tmp_path):
    produced = []
    dataset = Dataset.range(4).map(lambda x: produced.append(x) or x * x)
    path = tmp_path / "cache.data"
    cached = dataset.cache(path)
    iterator = iter(cached)
    next(iterator)
    iterator.close()
    assert not list(tmp_path.iterdir())  # no file of an incomplete pass remains
    del produced[:]
    assert [list(map(int, cached)) for _ in range(2)] == [[0, 1, 4, 9]] * 2
    assert len(produced) == 4
    assert list(dataset.cache(path).batch(4).as_numpy_iterator())[0].tolist() == [
        *(0, 1, 4, 9)
    ]
    with pytest.raises(RuntimeError, match=r"cache.data: expected elements of"):
        list(Dataset.range(3).cache(path))


def test_images(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for name, color in (("cats", 10), ("dogs", 200)):
        (tmp_path / name).mkdir()
        pixels = np.full((6, 4, 3), color, np.uint8)
        image.fromarray(pixels).save(tmp_path / name / "1.png")
    dataset = Dataset.from_image_folder(tmp_path, image_size=(3, 2))
    assert dataset.class_names == ["cats", "dogs"]
    assert [(x.shape, int(x[0, 0, 0]), int(y)) for x, y in dataset] == [
        ((3, 2, 3), 10, 0),
        ((3, 2, 3), 200, 1),
    ]
    (tmp_path / "dogs" / "2.png").write_bytes(b"no image")
    with pytest.raises(RuntimeError, match=r"dogs/2.png: cannot be read"):
        list(Dataset.from_image_folder(tmp_path))


# --- truncated and corrupt files: path and offset ------------------------------------


def tfrecords(path, compression=None):
    with TFRecordWriter(path, compression) as writer:
        for i in range(100):
            writer.write(b"%04d" % i)


def csv_file(path):
    path.write_text("".join(f'{i},"text {i}"\n' for i in range(100)))


def hdf5(path, **arguments):
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.arange(4000.0).reshape(400, 10), **arguments)


CUT = {  # name: (write, read, the error if the last byte is missing)
    "a.tfrecord": (tfrecords, TFRecordDataset, "byte 1,980, record 99: .*truncated"),
    "a.csv": (
        csv_file,
        lambda p: CsvDataset(p, ["int32", "string"]),
        "byte 1,267, record 99: .*unexpected end of data",
    ),
    "a.tfrecord.gz": (
        lambda p: tfrecords(p, "GZIP"),
        lambda p: TFRecordDataset(p, "GZIP"),
        r"byte [\d,]+, record \d+: .*[Ee]nd-of-stream",
    ),
    "a.txt.gz": (
        lambda p: p.write_bytes(gzip.compress(b"line\n" * 50)),
        lambda p: TextLineDataset(p, "GZIP"),
        r"byte [\d,]+, record \d+: .*[Ee]nd-of-stream",
    ),
    "a.h5": (hdf5, lambda p: Dataset.from_hdf5(p, "x"), r"truncated.*ends at byte"),
    "b.h5": (
        lambda p: hdf5(p, chunks=(50, 10), compression="gzip"),
        lambda p: Dataset.from_hdf5(p, "x"),
        r"truncated.*ends at byte",
    ),
    "a.npz": (lambda p: np.savez(p, x=np.ones(9)), Dataset.from_npz, "ends at byte"),
    "a.npy": (lambda p: np.save(p, np.ones(9)), Dataset.from_npy, "ends at byte"),
    "elements.data": (
        lambda p: Dataset.range(9).save(p.parent),
        lambda p: Dataset.load(p.parent),
        r"truncated at byte [\d,]+",
    ),
    "bytes.bin": (
        lambda p: p.write_bytes(bytes(100)),
        lambda p: FixedLengthRecordDataset(p, 10),
        "byte 90, record 9",
    ),
}


@pytest.mark.parametrize("name", CUT)
def test_truncated_file_is_named_with_the_offset(tmp_path, name):
    write, read, words = CUT[name]
    path = tmp_path / name
    write(path)
    count = len(list(read(path)))
    data = path.read_bytes()
    path.write_bytes(data[:-3])
    with pytest.raises(RuntimeError, match=f"(?s){name}.*{words}"):
        list(read(path))
    for size in (0, 1, len(data) // 3, len(data) // 2):  # anywhere: never silently
        path.write_bytes(data[:size])
        try:
            read_count = len(list(read(path)))
        except RuntimeError as error:
            assert name in str(error)
        else:
            assert read_count < count


def test_corrupt_chunk_of_an_array_is_named(tmp_path):
    path = tmp_path / "a.h5"
    hdf5(path, chunks=(50, 10), compression="gzip")
    with h5py.File(path) as file:
        chunk = file["x"].id.get_chunk_info_by_coord((100, 0))
    data = bytearray(path.read_bytes())
    data[chunk.byte_offset + 5] ^= 0xFF
    path.write_bytes(data)
    words = rf"a.h5: byte {chunk.byte_offset:,}, /x, row 100"
    dataset = Dataset.from_hdf5(path, "x")
    for read in (dataset, dataset.shuffle(400, seed=1).batch(7), dataset.skip(100)):
        with pytest.raises(RuntimeError, match=words):
            list(read)
    with pytest.raises(RuntimeError, match=r"a.h5: byte [\d,]+, /x, row"):
        list(dataset.batch(30))
    assert len(list(dataset.take(100))) == 100


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1,2\n3000000000,4\n", "byte 4, record 1: "),
        ('1,2\n"3"x,4\n', "byte 4, record 1: .*expected after"),
        ("1,2\n3\n", "byte 4, record 1: expected at least 2 fields; received 1"),
        ("1,2\nx,4\n", "byte 4, record 1: .*'x'"),
    ],
)
def test_mismatched_rows_are_named(tmp_path, text, words):
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(RuntimeError, match=f"table.csv: {words}"):
        list(CsvDataset(path, ["int32", "int32"], select_cols=[0, 1]))


# --- fingerprints of stages ----------------------------------------------------------


def scaled(factor):
    return lambda x: x * factor


DIFFERENT = {
    "range": Dataset.range(4).map(scaled(2)).filter(bool),
    "function": Dataset.range(5).map(lambda x: x + 2).filter(bool),
    "enclosed": Dataset.range(5).map(scaled(3)).filter(bool),
    "seed": Dataset.range(5).map(scaled(2)).filter(bool).shuffle(3, seed=1),
    "other seed": Dataset.range(5).map(scaled(2)).filter(bool).shuffle(3, seed=2),
    "array": Dataset.from_tensor_slices(np.arange(5)).map(scaled(2)).filter(bool),
    "other array": Dataset.from_tensor_slices(np.ones(5)).map(scaled(2)).filter(bool),
    "partial": Dataset.range(5).map(functools.partial(max, 2)).filter(bool),
    "plain": Dataset.range(5).map(scaled(2)).filter(bool),
}


def test_fingerprints_distinguish_pipelines():
    numbers = {name: dataset.fingerprint() for name, dataset in DIFFERENT.items()}
    assert len(set(numbers.values())) == len(numbers)
    equal = Dataset.range(5).map(scaled(2)).filter(bool)
    assert list(equal)  # its progress does not count
    assert equal.fingerprint() == numbers["plain"]
    random_orders = [Dataset.range(5).shuffle(5).fingerprint() for _ in range(2)]
    assert random_orders[0] == random_orders[1]


def test_fingerprint_is_the_same_in_another_process():
    program = (
        "from toolkit.data import Dataset\n"
        "d = Dataset.range(5).map(lambda x: x * 2 if x in {'a', 'b'} else 0).batch(2)\n"
        "print(d.fingerprint())"
    )
    fingerprints = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            check=True,
        ).stdout
        for _ in range(2)
    }
    assert len(fingerprints) == 1


def test_snapshots_of_other_arguments_are_other_files(tmp_path):
    for _ in range(2):
        for factor in (2, 3):
            numbers = Dataset.range(3).map(scaled(factor)).snapshot(tmp_path)
            assert [int(x) for x in numbers] == [0, factor, 2 * factor]
    assert len(list(tmp_path.iterdir())) == 2
    path = tmp_path / "cache"
    assert list(Dataset.range(3).map(scaled(2)).filter(bool).cache(path)) == [2, 4]
    with pytest.raises(RuntimeError, match="The stages or their arguments differ"):
        list(Dataset.range(3).map(scaled(3)).filter(bool).cache(path))


def test_packed_elements(tmp_path):
    zeros = Dataset.from_items([np.zeros(5000)] * 3 + [np.ones(3)])
    zeros.save(tmp_path / "packed", compression="GZIP")
    zeros.save(tmp_path / "plain")
    sizes = [
        (tmp_path / name / "elements.data").stat().st_size
        for name in ("packed", "plain")
    ]
    assert sizes[0] < sizes[1] / 50
    loaded = list(Dataset.load(tmp_path / "packed", compression="GZIP"))
    for saved, read in zip(zeros, loaded, strict=True):
        assert np.array_equal(saved, read)
    for make in (
        lambda: zeros.save(tmp_path / "x", shard_func=len),
        lambda: Dataset.load(tmp_path / "plain", wait=True),
        lambda: zeros.snapshot(tmp_path, reader_func=len),
    ):
        with pytest.raises(NotImplementedError, match="is not supported"):
            make()
    with pytest.raises(ValueError, match="SNAPPY"):
        zeros.save(tmp_path / "x", compression="SNAPPY")


def test_blocks_headers_and_footers(tmp_path):
    path = tmp_path / "records"
    path.write_bytes(b"HEADabcdefFT")
    for block in (None, 1, 5):
        records = FixedLengthRecordDataset(path, 3, 4, 2, block)
        assert list(records) == [b"abc", b"def"]
    with pytest.raises(RuntimeError, match="byte 4, record 0"):
        list(FixedLengthRecordDataset(path, 7, 4, 2))
    path.write_text("one\ntwo\n")
    lines = TextLineDataset(path, None, 1, 2, "lines")
    assert list(lines) == ["one", "two"]
    path.write_text("1,2,3\n4,5,6\n")
    rows = CsvDataset(path, [0, 0], exclude_cols=[1])
    assert [tuple(map(int, row)) for row in rows] == [(1, 3), (4, 6)]


# --- existing files -------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"years of work"])
def test_a_foreign_file_is_not_replaced(tmp_path, content):
    path = tmp_path / "elements.data"
    path.write_bytes(content)
    with pytest.raises(DatasetError, match="not a file of elements"):
        Dataset.range(3).save(tmp_path)
    assert path.read_bytes() == content
    Dataset.range(3).save(tmp_path / "other")
    Dataset.range(4).save(tmp_path / "other")
    assert len(list(Dataset.load(tmp_path / "other"))) == 4


KILLED = """
import os, sys
from toolkit.data import Dataset

def kill(x):
    if x == 2:
        os._exit(9)
    return x

data = Dataset.range(3).map(kill)
data.save(sys.argv[1]) if sys.argv[2] == "save" else list(data.cache(sys.argv[1]))
"""


@pytest.mark.parametrize("moment", ["save", "cache"])
def test_killed_save_keeps_the_old_file(tmp_path, moment):
    path = tmp_path / "made"
    if moment == "save":
        Dataset.range(5).save(path)
    command = [sys.executable, "-c", KILLED, str(path), moment]
    assert subprocess.run(command).returncode == 9
    folder = path if moment == "save" else tmp_path
    assert [name for name in os.listdir(folder) if name.endswith(".tmp")]
    if moment == "save":
        assert len(list(Dataset.load(path))) == 5
        Dataset.range(4).save(path)
        assert os.listdir(path) == ["elements.data"]
    else:
        assert len(list(Dataset.range(4).filter(bool).cache(path))) == 3
        assert os.listdir(tmp_path) == ["made"]


def test_hidden_files_are_listed(tmp_path):
    for name in (".b", "a"):
        (tmp_path / name).touch()
    paths = Dataset.list_files(f"{tmp_path}/*", shuffle=False)
    assert list(paths) == [f"{tmp_path}/.b", f"{tmp_path}/a"]


@pytest.mark.parametrize("compression", [None, "GZIP", "ZLIB"])
def test_records_of_any_size_cross_the_blocks_of_a_read(tmp_path, compression):
    rng = np.random.default_rng(0)
    sizes = [0, 1, (1 << 18) - 16, (1 << 18) - 17, 1 << 18, 3, 700_000, 5, 0]
    sizes += rng.integers(0, 3000, 400).tolist()
    records = [rng.bytes(size) for size in sizes]
    path = tmp_path / "a.tfrecord"
    with TFRecordWriter(path, compression) as writer:
        for record in records:
            writer.write(record)
    dataset = TFRecordDataset(path, compression)
    assert list(dataset) == records
    iterator = iter(dataset)
    for _ in range(5):
        next(iterator)
    state = iterator.get_state()
    resumed = iter(dataset)
    resumed.set_state(state)
    assert list(resumed) == records[5:]


def test_records_are_bytes_of_any_type(tmp_path):
    with TFRecordWriter(tmp_path / "a") as writer:
        for record in (b"ab", bytearray(b"ab"), memoryview(b"xab")[1:]):
            writer.write(record)
        with pytest.raises(TypeError):
            writer.write(3)
    assert list(TFRecordDataset(tmp_path / "a")) == [b"ab"] * 3
