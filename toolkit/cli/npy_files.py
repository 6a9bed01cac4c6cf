"""Arrays in `.npy` and `.npz` files, whose sizes are checked before they are read.

Arrays of Python objects are refused: only pickle could read them, and it runs code.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np

from toolkit.errors import ModelFileError
from toolkit.models.archives import open_members
from toolkit.models.h5_files import replace_file

MAGIC = b"\x93NUMPY"
_HEADER = 12_000  # bytes; NumPy itself refuses headers of more than 10,000
MAX_RATIO = 1_100  # Deflate makes at most 1,032 bytes of one
_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


@dataclass(frozen=True)
class StoredArray:
    """An array in a file, of which only the header has been read so far."""

    path: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    _bytes: Callable[[], bytes]

    def check(self) -> None:
        """Nothing is left to check: its size was compared with the file's."""

    def read(self) -> np.ndarray[Any, Any]:
        """The array."""
        return np.load(io.BytesIO(self._bytes()), allow_pickle=False)  # type: ignore[no-any-return]


@contextmanager
def open_npy(path: Path) -> Iterator[dict[str, StoredArray]]:
    """The array of a `.npy` file, under the file's name without its ending."""
    with open(path, "rb") as file:
        head = file.read(_HEADER)
    try:
        stored = _stored(path.stem, head, path.stat().st_size, path.read_bytes)
    except ModelFileError as error:
        raise ModelFileError(f"{str(path)!r}: {error}") from error
    yield {path.stem: stored}


@contextmanager
def open_npz(path: Path) -> Iterator[dict[str, StoredArray]]:
    """The arrays of a `.npz` file by their names."""
    with open_members(path, ".npz", MAX_RATIO) as members:
        arrays = {}
        for name, size in members.sizes().items():
            key = name.removesuffix(".npy")
            head = members.head(name, _HEADER)
            arrays[key] = _stored(key, head, size, _reader(members, name))
        yield arrays


def _reader(members: Any, name: str) -> Callable[[], bytes]:
    return lambda: members.read(name)  # type: ignore[no-any-return]


def _stored(
    name: str, head: bytes, size: int, read: Callable[[], bytes]
) -> StoredArray:
    """What the first bytes of an array's file say, if that is as long as they say."""
    file: IO[bytes] = io.BytesIO(head)
    try:
        version = np.lib.format.read_magic(file)
        if version not in _READERS:
            raise ValueError(f"format version {version}")
        shape, _, dtype = _READERS[version](file)
    except (ValueError, SyntaxError, TokenError) as error:
        raise ModelFileError(
            f"{name}: expected an array as NumPy saves them ({error})"
        ) from error
    if dtype.hasobject or dtype.names:
        raise ModelFileError(
            f"{name}: expected numbers; found {dtype}, which only pickle could read "
            "and which could run code: refused"
        )
    nbytes = prod(shape) * dtype.itemsize
    if file.tell() + nbytes != size:
        raise ModelFileError(
            f"{name} declares {nbytes} bytes, of which the file holds "
            f"{size - file.tell()}: refused"
        )
    return StoredArray(name, shape, str(dtype), nbytes, read)


def save_npz(path: Path, arrays: dict[str, np.ndarray[Any, Any]]) -> None:
    """Write arrays by name to a `.npz` file in one step.

    Those of other dtypes than NumPy's become float32, which holds each of their values.
    """

    def write(temporary: Path) -> None:
        with zipfile.ZipFile(temporary, "x") as archive:
            for name, array in arrays.items():
                if array.dtype.isbuiltin == 2:  # not NumPy's own
                    array = array.astype(np.float32)
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, array, allow_pickle=False)

    replace_file(path, write)
