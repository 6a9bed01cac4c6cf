"""Safetensors: named arrays in one file, with a check before reading.

    8 bytes              the length of the header, little-endian
    header               JSON: name -> {dtype, shape, data_offsets: [start, end]}, and
                         "__metadata__": {text: text}; padded with spaces
    values               row-major, little-endian, without gaps or overlaps

Reference: https://github.com/huggingface/safetensors
"""

from __future__ import annotations

import json
import math
import mmap
import os
import reprlib
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from toolkit import dtypes
from toolkit.definitions.records import record
from toolkit.errors import ArgumentError, MissingFileError, ModelFileError
from toolkit.files.staging import replace_file
from toolkit.reading.budget import load_within_budget, spend
from toolkit.reading.byte_ranges import read_bytes
from toolkit.reading.file_errors import add_path_to_errors, refuse_lfs_pointer
from toolkit.reading.text import parse_json
from toolkit.type_aliases import Array

# Names in files; float8 is e4m3fn, the format without infinities.
NAMES = {
    "bool": "BOOL",
    "float32": "F32",
    "float64": "F64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "complex64": "C64",
    **{f"int{8 * size}": f"I{8 * size}" for size in (1, 2, 4, 8)},
    **{f"uint{8 * size}": f"U{8 * size}" for size in (1, 2, 4, 8)},
}
_DTYPES = {name: dtype for dtype, name in NAMES.items()}
_LENGTH_SIZE = 8  # bytes of the header's length
# Sufficient for 80,000 arrays, which take a second; the format allows 100,000,000
# bytes.
_MAX_HEADER = 1 << 23
_MAX_OBJECTS = 500_000  # lists and objects in it; each array has three
_MAX_AXES = 32  # supported by every version of NumPy
_ALIGNMENT = 64  # alignment for vector instructions and mappings
_METADATA = "__metadata__"
_KEYS = {"dtype", "shape", "data_offsets"}
_short_repr = reprlib.Repr()
_short_repr.maxlevel = 2
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # avoids a wait for the other end of a pipe
_BINARY = getattr(os, "O_BINARY", 0)


@record
class StoredArray:
    """Array in a file; only the header is in memory."""

    path: str
    shape: tuple[int, ...]
    dtype: str
    _start: int
    _file: IO[bytes]

    @property
    def nbytes(self) -> int:
        """Return the size of its values in bytes."""
        return math.prod(self.shape) * dtypes.itemsize(self.dtype)

    def check(self) -> None:
        """Check nothing: the header check compared the sizes."""

    def read(self) -> Array:
        """Return the array."""
        label = f"the array {_short_text(self.path)}"
        return self._convert(read_bytes(self._file, self._start, self.nbytes, label))

    def map_array(self, memory: mmap.mmap) -> Array:
        """Return the array in a mapping of the file, or a copy if it is not aligned."""
        data = np.frombuffer(memory, np.uint8, self.nbytes, self._start)
        if self._start % dtypes.itemsize(self.dtype):
            spend(self.nbytes, f"the array {_short_text(self.path)}")
            data = data.copy()
        return self._convert(data)

    def _convert(self, data: Array) -> Array:
        if self.dtype == "bool" and data.size and data.max() > 1:
            raise ModelFileError(
                f"{_short_text(self.path)}: expected booleans, 0 and 1; received "
                f"{data.max()}"
            )
        array = data.view(dtypes.numpy_dtype(self.dtype)).reshape(self.shape)
        return _to_little_endian(array)


@record
class Content:
    """Arrays of a file by name, in the order of their values, and metadata."""

    arrays: dict[str, StoredArray]
    metadata: dict[str, str]


@contextmanager
def open_safetensors(path: str | os.PathLike[str]) -> Iterator[Content]:
    """Return a context with the content of a file; reads count to the load budget.

    Raises:
        MissingFileError: the file does not exist.
        ModelFileError: the file is not regular, or not valid Safetensors.
        LoadBudgetError: the file exceeds the memory budget.
    """
    with (
        load_within_budget(Path(path)),
        add_path_to_errors(path),
        _open_regular_file(path) as file,
    ):
        yield _read_content(file)


def read_safetensors(
    path: str | os.PathLike[str], mapped: bool = False
) -> dict[str, Array]:
    """Read the arrays of a file by name.

    Args:
        path: the path of the file.
        mapped: whether to memory-map the values. Mapped arrays are read-only. The file
            must not be changed or truncated while they are in use.

    Raises:
        MissingFileError: the file does not exist.
        ModelFileError: the file is not regular, or not valid Safetensors.
        LoadBudgetError: the file exceeds the memory budget.
    """
    with (
        load_within_budget(Path(path)),
        add_path_to_errors(path),
        _open_regular_file(path) as file,
    ):
        arrays = _read_content(file).arrays
        if not mapped:
            return {name: array.read() for name, array in arrays.items()}
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return {name: array.map_array(memory) for name, array in arrays.items()}


@contextmanager
def _open_regular_file(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a regular file without blocking."""
    try:
        handle = os.open(path, os.O_RDONLY | _NO_WAIT | _BINARY)
    except FileNotFoundError:
        raise MissingFileError("the file does not exist") from None
    except (OSError, ValueError) as error:  # a NUL character makes a name invalid
        raise ModelFileError(f"it cannot be read ({error})") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ModelFileError("expected a regular file")
    with open(handle, "rb", buffering=0) as file:
        refuse_lfs_pointer(file)
        yield file


# --- the header -----------------------------------------------------------------------


def _read_content(file: IO[bytes]) -> Content:
    """Return the declared content of a file, after a check of its size."""
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(_LENGTH_SIZE), "little")
    if size < _LENGTH_SIZE or length > size - _LENGTH_SIZE:
        raise ModelFileError(
            f"expected safetensors; a header of {length} bytes does not fit a file "
            f"of {size}: it is corrupt or has another format"
        )
    if length > _MAX_HEADER:
        raise ModelFileError(
            f"the header of {length} bytes exceeds the limit of {_MAX_HEADER}"
        )
    spend(2 * length, "the header")
    header = _parse_header(file.read(length))
    metadata = _parse_metadata(header.pop(_METADATA, {}))
    start = _LENGTH_SIZE + length
    arrays = [_parse_entry(name, entry, start, file) for name, entry in header.items()]
    # An empty array has no values, so it can have the offset of another array.
    arrays.sort(key=lambda array: (array._start, array.nbytes))
    end = start
    for array in arrays:
        if array._start != end:
            problem = "a hole" if array._start > end else "values of another array"
            raise ModelFileError(f"{_short_text(array.path)}: {problem} before it")
        end += array.nbytes
    if end != size:
        raise ModelFileError(
            f"its arrays end at byte {end}, the file at {size}: it is corrupt"
        )
    return Content({array.path: array for array in arrays}, metadata)


def _parse_header(data: bytes) -> dict[str, Any]:
    """Return the objects of a header by name."""
    if not data.startswith(b"{"):
        raise ModelFileError(
            "expected safetensors, whose header starts with '{'; received "
            f"{data[:8]!r}"
        )
    if data.count(b"[") + data.count(b"{") > _MAX_OBJECTS:
        raise ModelFileError(
            f"the header has more than {_MAX_OBJECTS} lists and objects"
        )
    try:
        text = data.decode("utf-8")
    except UnicodeError as error:
        raise ModelFileError(f"expected a header in UTF-8 ({error})") from error
    header: dict[str, Any] = parse_json(text, "the header", unique=True)
    return header


def _parse_metadata(metadata: Any) -> dict[str, str]:
    if not isinstance(metadata, dict) or not all(
        map(_is_text, [*metadata, *metadata.values()])
    ):
        raise ModelFileError(f"{_METADATA}: expected a dict of strings")
    return metadata


def _parse_entry(name: str, entry: Any, start: int, file: IO[bytes]) -> StoredArray:
    """Return an array whose shape matches its size."""
    label = _short_text(name)
    if not _is_text(name):
        raise ModelFileError(f"{label}: expected a name in UTF-8")
    if not isinstance(entry, dict) or entry.keys() != _KEYS:
        raise ModelFileError(
            f"{label}: expected an object of {', '.join(sorted(_KEYS))}; received "
            f"{_short_text(entry)}"
        )
    dtype = entry["dtype"]
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise ModelFileError(
            f"{label}: expected a dtype among {', '.join(_DTYPES)}; received "
            f"{_short_text(dtype)}"
        )
    shape = entry["shape"]
    if not _are_sizes(shape) or len(shape) > _MAX_AXES:
        raise ModelFileError(
            f"{label}: expected a shape of at most {_MAX_AXES} axes; received "
            f"{_short_text(shape)}"
        )
    offsets = entry["data_offsets"]
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise ModelFileError(
            f"{label}: expected two offsets; received {_short_text(offsets)}"
        )
    # Treat 0 as 1, because NumPy also limits the product of the other extents.
    size = math.prod(max(1, n) for n in shape) * dtypes.itemsize(_DTYPES[dtype])
    needed = 0 if 0 in shape else size
    if size > sys.maxsize or offsets[1] - offsets[0] != needed:
        raise ModelFileError(
            f"{label}: {dtype} of shape {_short_text(shape)} takes "
            f"{_short_text(needed)} bytes; received the offsets "
            f"{_short_text(offsets)}"
        )
    return StoredArray(name, tuple(shape), _DTYPES[dtype], start + offsets[0], file)


def _are_sizes(value: object) -> bool:
    """Return whether the value is a list of valid extents or offsets."""
    return isinstance(value, list) and all(
        type(n) is int and 0 <= n <= sys.maxsize for n in value
    )


def _is_text(value: object) -> bool:
    """Return whether the value is valid UTF-8 text; JSON allows lone surrogates."""
    return isinstance(value, str) and value.encode("utf-8", "replace").decode() == value


def _short_text(value: Any) -> str:
    """Return a short form of a value for messages."""
    return _short_repr.repr(value) if not isinstance(value, str) else value[:100]


def _to_little_endian(array: Array) -> Array:
    return array if sys.byteorder == "little" else array.byteswap()


# --- writing --------------------------------------------------------------------------


def write_safetensors(
    path: str | os.PathLike[str],
    arrays: Mapping[str, Any],
    metadata: Mapping[str, str] | None = None,
    sort: bool = True,
) -> None:
    """Write arrays to a file atomically; the result is deterministic.

    Values start at a multiple of 64 bytes.

    Args:
        path: the path of the file. An older file is replaced after the new one is on
            disk.
        arrays: name -> array-like.
        metadata: strings by name.
        sort: whether to sort arrays by item size, largest first, then by name, so that
            all are aligned. Otherwise they keep the given order.

    Raises:
        ArgumentError: a name, text or dtype is not supported by the format.
        UnwritableFileError: the file cannot be written.
    """
    header, values = prepare_file(arrays, metadata, sort)
    replace_file(path, lambda staged_path: write_prepared(staged_path, header, values))


def prepare_file(
    arrays: Mapping[str, Any], metadata: Mapping[str, str] | None, sort: bool = True
) -> tuple[bytes, list[Array]]:
    """Return the header bytes, and the arrays in file order."""
    pairs = [(name, np.asarray(array)) for name, array in arrays.items()]
    if sort:
        pairs.sort(key=lambda pair: (-pair[1].dtype.itemsize, pair[0]))
    header: dict[str, Any] = {}
    if metadata:
        header[_METADATA] = _check_metadata(metadata)
    offset = 0
    for name, array in pairs:
        if not _is_text(name) or name == _METADATA or name in header:
            raise ArgumentError(f"safetensors: expected names; received {name!r}")
        end = offset + array.nbytes
        header[name] = {
            "dtype": _dtype_name(name, array),
            "shape": list(array.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-(_LENGTH_SIZE + len(text)) % _ALIGNMENT)
    if len(text) > _MAX_HEADER:
        raise ArgumentError(
            f"safetensors: {len(pairs)} arrays need a header of {len(text)} bytes; "
            f"the limit is {_MAX_HEADER}"
        )
    return len(text).to_bytes(_LENGTH_SIZE, "little") + text, [
        array for _, array in pairs
    ]


def _check_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    if not all(map(_is_text, [*metadata, *metadata.values()])):
        raise ArgumentError(
            "safetensors: expected metadata as a dict of strings; received "
            f"{metadata!r}"
        )
    return dict(metadata)


def _dtype_name(name: str, array: Array) -> str:
    dtype_name = NAMES.get(array.dtype.name)
    if dtype_name is None or array.dtype.hasobject:
        raise ArgumentError(
            f"safetensors: {name}: expected a dtype among {', '.join(NAMES)}; received "
            f"{array.dtype}"
        )
    return dtype_name


def write_prepared(path: Path, header: bytes, values: list[Array]) -> None:
    """Write a new file from the result of `prepare_file`."""
    with open(path, "xb") as file:
        file.write(header)
        for array in values:
            native = array.astype(array.dtype.newbyteorder("="), copy=False)
            # As bytes, because bfloat16 has no buffer interface, and a scalar has no
            # view.
            rows = np.ascontiguousarray(_to_little_endian(native)).reshape(-1)
            file.write(rows.view(np.uint8).data)
