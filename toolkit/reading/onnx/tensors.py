"""Arrays in ONNX files and external data files, with a size check before reading."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.errors import ModelFileError
from toolkit.reading.byte_ranges import read_bytes
from toolkit.reading.onnx.graph import (
    MAX_AXES,
)
from toolkit.reading.onnx.messages import Message
from toolkit.reading.sibling_paths import open_sibling
from toolkit.type_aliases import Array

# dtype number in the schema -> name.
DTYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    16: "bfloat16",
    17: "float8_e4m3fn",
    19: "float8_e5m2",
}
_LIST_KEYS = {
    "float32": "floats",
    "float64": "doubles",
    "int64": "int64s",
    "uint32": "uint64s",
    "uint64": "uint64s",
}
_STORED_AS_BITS = (
    "float16",
    "bfloat16",
    *dtypes.FLOAT8,
)  # stored as integers with their bits
_EXTERNAL = 1  # external data location
_MAX_EXTENT = 1 << 48
_MAX_SPARSE_RATIO = 64  # maximum ratio to the disk usage, to detect sparse files


def dtype_of(number: Any, label: str) -> str:
    """Return the dtype for a number of the schema."""
    if number not in DTYPES:
        names = ", ".join(sorted(DTYPES.values()))
        raise ModelFileError(
            f"{label}: expected one of the dtypes {names}; received ONNX type {number}"
        )
    return DTYPES[number]


class TensorReader:
    """Reader of the arrays of a file.

    Args:
        folder: the folder of the file, with its external data files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # By the id of the message, which is kept alive so that the id is unique.
        self._arrays: dict[int, tuple[Message, Array]] = {}

    def read_array(self, message: Message, label: str) -> Array:
        """Return the array of a TensorProto, cached for later calls.

        Args:
            message: the TensorProto.
            label: its name in messages.
        """
        if id(message) not in self._arrays:
            self._arrays[id(message)] = message, self._read(message, label)
        return self._arrays[id(message)][1]

    def _read(self, message: Message, label: str) -> Array:
        name = message.get("name") or label
        dtype = dtype_of(message.get("type", 0), f"the tensor {name!r}")
        shape = tuple(message["dims"])
        if len(shape) > MAX_AXES or not all(0 <= n < _MAX_EXTENT for n in shape):
            raise ModelFileError(
                f"the tensor {name!r} has the unsupported shape {shape!r:.99}"
            )
        if message.get("location", 0) == _EXTERNAL:
            data = self._read_external(message["external"], shape, dtype, name)
        elif message["external"]:
            raise ModelFileError(f"the tensor {name!r} has data in two fields")
        else:
            data = _stored_elements(message, dtype, name)
        if data.size != math.prod(shape):
            raise ModelFileError(
                f"the tensor {name!r} of shape {shape} has {data.size:,} elements "
                "in the file"
            )
        return data.reshape(shape)

    def _read_external(
        self, entries: list[Message], shape: tuple[int, ...], dtype: str, name: str
    ) -> Array:
        fields = {e.get("key", ""): e.get("value", "") for e in entries}
        location = fields.get("location", "")
        kind = dtypes.numpy_dtype(dtype)
        nbytes = math.prod(shape) * kind.itemsize
        offset = _parse_size(fields.get("offset", "0"), name)
        length = _parse_size(fields.get("length", str(nbytes)), name)
        if length != nbytes:
            raise ModelFileError(
                f"the tensor {name!r} of shape {shape} and dtype {dtype} takes "
                f"{nbytes:,} bytes, but the file has {length:,}"
            )
        data = self._read_external_bytes(location, offset, nbytes, name)
        return _view_numbers(data, dtype)

    def _read_external_bytes(
        self, location: str, offset: int, nbytes: int, name: str
    ) -> Array:
        descriptor = open_sibling(self._folder, location)
        with open(descriptor, "rb", buffering=0) as file:
            size = os.fstat(descriptor).st_size
            if offset + nbytes > size:
                raise ModelFileError(
                    f"the tensor {name!r} ends at byte {offset + nbytes:,} of "
                    f"{location!r}, which has {size:,} bytes"
                )
            return read_bytes(file, offset, nbytes, f"the tensor {name!r}")


def external_size(folder: Path, locations: set[str]) -> int:
    """Return the size of external data files; sparse files count only in part."""
    total = 0
    for location in locations:
        descriptor = open_sibling(folder, location)
        status = os.fstat(descriptor)
        os.close(descriptor)
        blocks = getattr(status, "st_blocks", None)
        on_disk = status.st_size if blocks is None else _MAX_SPARSE_RATIO * 512 * blocks
        total += min(status.st_size, on_disk)
    return total


def _parse_size(text: str, name: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise ModelFileError(
            f"the tensor {name!r}: expected a number of bytes; received {text!r:.99}"
        )
    return int(text)


def _stored_elements(message: Message, dtype: str, name: str) -> Array:
    """Return the elements stored in the message, as one axis."""
    key = _LIST_KEYS.get(dtype, "int32s")
    lists = ("floats", "doubles", "int32s", "int64s", "uint64s")
    used_keys = [k for k in lists if message[k]] + ["raw"] * bool(message.get("raw"))
    if any(k not in (key, "raw") for k in used_keys) or len(used_keys) > 1:
        raise ModelFileError(
            f"the tensor {name!r} of dtype {dtype} has its data in {used_keys}"
        )
    if used_keys == ["raw"]:
        return _view_numbers(np.frombuffer(message["raw"], np.uint8), dtype, name)
    return _convert_elements(_concatenate(message[key], key), dtype, name)


def _view_numbers(data: Array, dtype: str, name: str = "") -> Array:
    kind = dtypes.numpy_dtype(dtype)
    if data.size % kind.itemsize:
        raise ModelFileError(f"the tensor {name!r}: {data.size} bytes of {dtype}")
    if dtype == "bool":  # NumPy requires bool bytes of 0 or 1
        return data != 0
    return np.frombuffer(data.data, kind.newbyteorder("<"))


def _concatenate(chunks: list[Any], key: str) -> Array:
    kind = {"floats": np.float32, "doubles": np.float64}.get(key, np.int64)
    if not chunks:
        return np.zeros(0, kind)
    if not any(isinstance(chunk, np.ndarray) for chunk in chunks):
        return np.array(chunks, kind)
    return np.concatenate([np.atleast_1d(np.asarray(p, kind)) for p in chunks])


def _convert_elements(values: Array, dtype: str, name: str) -> Array:
    kind = dtypes.numpy_dtype(dtype)
    if dtype == "uint64":
        return values.view(np.uint64)
    if dtype in _STORED_AS_BITS:
        bits = np.dtype(f"uint{8 * kind.itemsize}")
        return _cast_checked(values, bits, name).view(kind)
    if dtype == "bool":
        return values != 0
    return values if kind.kind == "f" else _cast_checked(values, kind, name)


def _cast_checked(values: Array, kind: np.dtype[Any], name: str) -> Array:
    limits = np.iinfo(kind)
    if values.size and not (limits.min <= values.min() and values.max() <= limits.max):
        raise ModelFileError(
            f"the tensor {name!r}: a number is out of range for {kind}"
        )
    return values.astype(kind)
