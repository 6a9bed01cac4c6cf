"""Tensors of requests and responses: their types' names, and both of their forms."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import chain
from math import prod
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.definitions.records import record
from toolkit.serving.messages import RequestError, shown

# dtype -> (the name in the Open Inference Protocol, that in TensorFlow).
DATATYPES = {
    "bool": ("BOOL", "DT_BOOL"),
    "uint8": ("UINT8", "DT_UINT8"),
    "uint16": ("UINT16", "DT_UINT16"),
    "uint32": ("UINT32", "DT_UINT32"),
    "uint64": ("UINT64", "DT_UINT64"),
    "int8": ("INT8", "DT_INT8"),
    "int16": ("INT16", "DT_INT16"),
    "int32": ("INT32", "DT_INT32"),
    "int64": ("INT64", "DT_INT64"),
    "float16": ("FP16", "DT_HALF"),
    "bfloat16": ("BF16", "DT_BFLOAT16"),
    "float32": ("FP32", "DT_FLOAT"),
    "float64": ("FP64", "DT_DOUBLE"),
    dtypes.STRING: ("BYTES", "DT_STRING"),
}
_SWAPPED = sys.byteorder == "big"  # the binary form is little-endian


@record
class TensorSpec:
    """The name, dtype and shape of an input or an output.

    Args:
        name: as clients call it.
        dtype: such as "float32".
        shape: with the batch axis; None is any extent.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...]

    @property
    def datatype(self) -> str:
        """The dtype as the Open Inference Protocol calls it."""
        return DATATYPES[self.dtype][0]

    @property
    def dims(self) -> list[int]:
        """The shape with -1 for any extent."""
        return [-1 if n is None else n for n in self.shape]

    def check_shape(self, shape: Sequence[int]) -> None:
        """Refuse a shape that is not one of this tensor, or holds nothing.

        Raises:
            RequestError: it says what was expected.
        """
        fits = len(shape) == len(self.shape) and all(
            n == own or (own is None and n >= 1)
            for n, own in zip(shape[1:], self.shape[1:], strict=True)
        )
        if not fits or not shape[0] >= 1:
            dims = [-1, *self.dims[1:]]
            raise RequestError(
                400,
                f"input {self.name!r}: expected shape {dims}; received "
                f"{shown(list(shape))}",
            )


def from_bytes(spec: TensorSpec, shape: Sequence[int], data: memoryview) -> Any:
    """A tensor in binary form, row-major and little-endian; not copied if it may be.

    Raises:
        RequestError: there are more or fewer bytes than the shape needs.
    """
    if spec.dtype == dtypes.STRING:
        return _strings(spec, shape, data)
    dtype = dtypes.numpy_dtype(spec.dtype)
    if len(data) != prod(shape) * dtype.itemsize:
        raise RequestError(
            400,
            f"input {spec.name!r}: expected {prod(shape) * dtype.itemsize} bytes for "
            f"{spec.datatype} {list(shape)}; received {len(data)}",
        )
    if spec.dtype == "bool":  # a byte of 2 is no bool that kernels know
        return (np.frombuffer(data, np.uint8) != 0).reshape(shape)
    array = np.frombuffer(data, dtype).reshape(shape)
    return array.byteswap() if _SWAPPED else array


def _strings(spec: TensorSpec, shape: Sequence[int], data: memoryview) -> Any:
    """Strings, each behind its length in four bytes."""
    found: list[str] = []
    at, count = 0, prod(shape)
    while at + 4 <= len(data) and len(found) < count:
        end = at + 4 + int.from_bytes(data[at : at + 4], "little")
        if end > len(data):
            break
        found.append(_text(spec, bytes(data[at + 4 : end])))
        at = end
    if len(found) != count or at != len(data):
        raise RequestError(
            400, f"input {spec.name!r}: expected {count} strings behind their lengths"
        )
    return np.array(found, object).reshape(shape)


def _is_text(value: str) -> bool:
    """Whether a string can be written as UTF-8, which half of a pair cannot."""
    return value.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in value)


def _text(spec: TensorSpec, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise RequestError(400, f"input {spec.name!r}: expected UTF-8") from error


def to_bytes(array: Any) -> bytes:
    """The binary form of a tensor."""
    if array.dtype.kind in "OSU":
        texts = [_encoded(x) for x in array.ravel().tolist()]
        return b"".join(len(x).to_bytes(4, "little") + x for x in texts)
    if _SWAPPED:
        array = array.byteswap()
    made: bytes = array.tobytes()
    return made


def _encoded(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


def from_values(spec: TensorSpec, values: Any) -> Any:
    """Nested lists of JSON as an array of the tensor's dtype, of any shape.

    Raises:
        RequestError: they are ragged, or not of this type.
    """
    flat, shape = _flattened(spec, values)
    types = set(map(type, flat))
    if spec.dtype == dtypes.STRING:
        if types - {str} or not all(map(_is_text, flat)):
            raise _wrong_values(spec)
        texts = np.empty(len(flat), object)
        texts[:] = flat
        return texts.reshape(shape)
    kind = _kind(spec.dtype)
    if types - _TYPES[kind]:
        raise _wrong_values(spec)
    dtype = dtypes.numpy_dtype(spec.dtype)
    if kind != "f":
        limits = None if kind == "b" or not flat else np.iinfo(dtype)
        if limits and (min(flat) < limits.min or max(flat) > limits.max):
            raise _wrong_values(spec)
        return np.array(flat, dtype).reshape(shape)
    try:
        found = np.array(flat, np.float64).reshape(shape)
    except OverflowError:  # an integer that no float64 is near to
        raise _wrong_values(spec) from None
    with np.errstate(over="ignore"):  # a number beyond its range is infinite
        return found.astype(dtype)


# The types of values in JSON, by the kind of dtype that they are for.
_TYPES: dict[str, set[type]] = {"b": {bool}, "i": {int}, "u": {int}, "f": {int, float}}


def _flattened(spec: TensorSpec, values: Any) -> tuple[list[Any], list[int]]:
    """The values in nested lists, and the shape of these.

    NumPy would make room for the longest text as many times as there are values.
    """
    flat: list[Any] = [values]
    shape: list[int] = []
    while list in (types := set(map(type, flat))):
        lengths = set(map(len, flat)) if len(types) == 1 else set()
        if len(lengths) != 1:
            raise _wrong_values(spec)
        shape += lengths
        flat = list(chain.from_iterable(flat))
    return flat, shape


def _kind(dtype: str) -> str:
    return "f" if dtypes.is_float(dtype) else dtypes.numpy_dtype(dtype).kind


def _wrong_values(spec: TensorSpec) -> RequestError:
    return RequestError(
        400, f"input {spec.name!r}: expected {spec.datatype} values in regular lists"
    )


def to_values(array: Any) -> Any:
    """The nested lists of a tensor, for JSON."""
    if array.dtype.kind == "O":  # as text, one by one: the longest is not for all
        return _texts(array.tolist())
    if array.dtype.kind == "V":  # bfloat16 and its like have no Python numbers
        array = array.astype(np.float32)
    return array.tolist()


def _texts(values: Any) -> Any:
    return [_texts(x) for x in values] if isinstance(values, list) else str(values)
