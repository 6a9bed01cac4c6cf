"""Arrays in `.npy` and `.npz` files, with a size check before reading.

Arrays of Python objects are refused, because they need pickle, which executes code.
"""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np

from toolkit.definitions.records import record
from toolkit.errors import ModelFileError
from toolkit.reading.budget import spend
from toolkit.reading.file_errors import check_regular_file
from toolkit.reading.zips import open_members
from toolkit.type_aliases import Array

MAGIC = b"\x93NUMPY"
_MAX_HEADER = 12_000  # bytes; NumPy refuses headers of more than 10,000
_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
# NumPy parses a header as Python source: the errors for a corrupt one.
_CORRUPT_FILE_ERRORS = (
    *(ValueError, SyntaxError, TokenError, TypeError, KeyError, AttributeError),
    *(OverflowError, RecursionError, MemoryError, IndexError),
)
MAX_RATIO = 1_100  # deflate has a maximum ratio of 1,032
_MAX_AXES = 32  # supported by every version of NumPy


@record
class Header:
    """Header of an array's file, checked against the file size.

    start: the offset of the values. in_columns: whether the order is Fortran
    (column-major).
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_fortran_order: bool
    start: int

    @property
    def nbytes(self) -> int:
        """Return the size of its values in bytes."""
        return math.prod(self.shape, start=1) * self.dtype.itemsize


def read_header(name: str, head: bytes, size: int, raw: bool = False) -> Header:
    """Read the header of an array.

    Args:
        name: the name of the array, for messages.
        head: the first bytes of the file, or all.
        size: the size of the whole file in bytes.
        raw: whether elements can be records of several numbers.

    Raises:
        ModelFileError: the header is corrupt, has objects, or does not match the file
            size.
    """
    file = io.BytesIO(head)
    try:
        version = np.lib.format.read_magic(file)
        if version not in _READERS:
            raise ValueError(f"format version {version}")
        shape, is_fortran_order, dtype = _READERS[version](file)
        if any(isinstance(n, bool) or not 0 <= n <= sys.maxsize for n in shape):
            raise ValueError(f"the shape {shape}")
        if len(shape) > _MAX_AXES:
            raise ValueError(f"{len(shape)} axes")
    except _CORRUPT_FILE_ERRORS as error:
        raise ModelFileError(
            f"{name}: expected an array as NumPy saves them ({str(error)[:200]})"
        ) from error
    if dtype.hasobject or (dtype.names and not raw):
        raise ModelFileError(
            f"{name}: expected numbers; received {dtype}, which needs pickle. A "
            "pickle can run code, so it is never read"
        )
    header = Header(shape, dtype, is_fortran_order, file.tell())
    # With an item size of 0, the file size does not limit the number of elements.
    if file.tell() + header.nbytes != size or (not dtype.itemsize and 0 not in shape):
        raise ModelFileError(
            f"{name} declares {header.nbytes} bytes, but the file contains "
            f"{size - file.tell()}"
        )
    return header


def parse_array(name: str, data: bytes) -> Array:
    """Return the array in the bytes of a file."""
    header = read_header(name, data, len(data), raw=True)
    flat = np.frombuffer(data, header.dtype, math.prod(header.shape), header.start)
    if header.is_fortran_order:
        return flat.reshape(header.shape[::-1]).copy().T
    return flat.reshape(header.shape).copy()


def map_npy(path: Path) -> Array:
    """Return the memory-mapped array of a `.npy` file.

    NumPy's memory map divides by the item size. A corrupt header with an item size of 0
    would crash the process.
    """
    with open(path, "rb") as file:
        head = file.read(_MAX_HEADER)
    header = read_header(path.name, head, path.stat().st_size, raw=True)
    if not header.nbytes:
        return np.zeros(header.shape, header.dtype)
    return np.memmap(
        path,
        header.dtype,
        "r",
        header.start,
        header.shape,
        "F" if header.is_fortran_order else "C",
    )


@record
class StoredArray:
    """Array in a file; only the header is in memory."""

    path: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    _bytes: Callable[[], bytes]

    def check(self) -> None:
        """Check nothing: the header check compared the sizes."""

    def read(self) -> Array:
        """Return the array."""
        spend(self.nbytes, self.path)
        return parse_array(self.path, self._bytes())


@contextmanager
def open_npy(path: Path) -> Iterator[dict[str, StoredArray]]:
    """Return the array of a `.npy` file, with the stem of the file as its name."""
    check_regular_file(path)
    with open(path, "rb") as file:
        head = file.read(_MAX_HEADER)
    try:
        stored = _make_stored_array(
            path.stem, head, path.stat().st_size, path.read_bytes
        )
    except ModelFileError as error:
        raise ModelFileError(f"{str(path)!r}: {error}") from error
    yield {path.stem: stored}


@contextmanager
def open_npz(path: Path) -> Iterator[dict[str, StoredArray]]:
    """Return the arrays of a `.npz` file by name."""
    with open_members(path, ".npz", MAX_RATIO) as members:
        arrays = {}
        for name, size in members.sizes().items():
            key = name.removesuffix(".npy")
            head = members.read_head(name, _MAX_HEADER)
            arrays[key] = _make_stored_array(
                key, head, size, _make_reader(members, name)
            )
        yield arrays


def _make_reader(members: Any, name: str) -> Callable[[], bytes]:
    return lambda: members.read(name)


def _make_stored_array(
    name: str, head: bytes, size: int, read: Callable[[], bytes]
) -> StoredArray:
    """Return an array after a check of its header."""
    header = read_header(name, head, size, raw=True)
    return StoredArray(name, header.shape, str(header.dtype), header.nbytes, read)
