"""Safe reader for pickles of plain data.

Unpickling can call any function that the file names. This reader replaces each name
that NumPy arrays need by an inert record and refuses all other names. A malicious file
can only raise an error.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import re
import zipfile
from typing import IO, Any

import numpy as np

from toolkit.errors import DatasetError
from toolkit.type_aliases import Array


class Record:
    """Description of a pickled object: constructor arguments and state, as data."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


_NAMES = {
    "numpy.dtype",
    "numpy.ndarray",
    "numpy.core.multiarray._reconstruct",
    "numpy._core.multiarray._reconstruct",
}


class _DataUnpickler(pickle.Unpickler):
    """Unpickler of dicts, lists, strings and numbers; an array becomes a `Record`."""

    def find_class(self, module: str, name: str) -> Any:
        if f"{module}.{name}" in _NAMES:
            return Record
        raise pickle.UnpicklingError(f"it names {module}.{name}")


def load_data(stream: IO[bytes]) -> Any:
    """Read the dicts, lists, strings, numbers and `Record`s of one pickle."""
    content = stream.read()
    _check_lengths(content)
    return _DataUnpickler(io.BytesIO(content), encoding="bytes").load()


_MEMO = ("LONG_BINPUT", "PUT")
# Runs of opcodes whose arguments have a fixed length.
_FIXED = re.compile(
    b"(?:%s)*+"
    % b"|".join(
        re.escape(op.code.encode("latin-1")) + b"." * (op.arg.n if op.arg else 0)
        for op in pickletools.opcodes
        if op.name not in (*_MEMO, "STOP") and (op.arg is None or op.arg.n >= 0)
    ),
    re.DOTALL,
)


def _check_lengths(content: bytes) -> None:
    """Raise for a pickle that declares more memory than its content can need.

    The unpickler allocates the declared number of bytes, and memo slots up to the
    highest memo index.
    """
    stream, end = io.BytesIO(content), 0
    while True:
        match = _FIXED.match(content, end)
        assert match is not None
        stream.seek(match.end())
        op, argument, _ = next(pickletools.genops(stream))
        if op.name == "STOP":
            return
        end = stream.tell()
        if op.name in _MEMO and int(argument or 0) > end:
            raise pickle.UnpicklingError(f"it marks {argument:,} objects")


def load_lists(path: str) -> dict[str, Array]:
    """Read the arrays of an .npz file, whose objects can be lists of integers."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {
                name.removesuffix(".npy"): _read_array(archive.read(name))
                for name in archive.namelist()
            }
    except Exception as error:  # a corrupt pickle can raise any exception
        raise DatasetError(
            f"{path} is not an archive of arrays and lists of whole numbers: "
            f"{type(error).__name__}: {error}"
        ) from error


def _read_array(content: bytes) -> Array:
    """Read one .npy file: numbers, or a pickled array (n,) of lists."""
    stream = io.BytesIO(content)
    major, _ = np.lib.format.read_magic(stream)
    headers = {
        1: np.lib.format.read_array_header_1_0,
        2: np.lib.format.read_array_header_2_0,
    }
    shape, _, dtype = headers[major](stream)
    if not dtype.hasobject:
        stream.seek(0)
        return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))
    lists = load_data(stream).state[-1]
    if shape != (len(lists),) or not all(map(_is_whole_numbers, lists)):
        raise ValueError("expected lists of whole numbers")
    return array_of_lists(lists)


def _is_whole_numbers(value: object) -> bool:
    return type(value) is list and all(type(item) is int for item in value)


def array_of_lists(lists: list[list[int]]) -> Array:
    """Create an object array (n,), also for lists of equal length."""
    array = np.empty(len(lists), object)
    for index, value in enumerate(lists):
        array[index] = value
    return array
