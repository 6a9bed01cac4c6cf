"""Tensors of requests and responses: dtype names, binary and JSON formats."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import chain
from math import prod
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.definitions.records import record
from toolkit.serving.messages import RequestError, format_value

# dtype -> (name in the Open Inference Protocol, name in TensorFlow).
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
_IS_BIG_ENDIAN = sys.byteorder == "big"  # the binary format is little-endian


@record
class TensorSpec:
    """Name, dtype and shape of an input or an output.

    Args:
        name: the name for clients.
        dtype: for example "float32".
        shape: with the batch axis; None is a variable extent.

    Example:
        >>> from toolkit import serving
        >>> spec = serving.TensorSpec("image", "float32", (None, 28, 28))
        >>> spec.datatype, spec.dims
        ('FP32', [-1, 28, 28])
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...]

    @property
    def datatype(self) -> str:
        """The name of the dtype in the Open Inference Protocol."""
        return DATATYPES[self.dtype][0]

    @property
    def dims(self) -> list[int]:
        """The shape with -1 for variable extents."""
        return [-1 if n is None else n for n in self.shape]

    def check_shape(self, shape: Sequence[int]) -> None:
        """Raise an error for a shape that does not match or is empty.

        Args:
            shape: the shape of a tensor, with the batch axis.

        Raises:
            RequestError: the message has the expected shape.
        """
        is_compatible = len(shape) == len(self.shape) and all(
            n == expected or (expected is None and n >= 1)
            for n, expected in zip(shape[1:], self.shape[1:], strict=True)
        )
        if not is_compatible or not shape[0] >= 1:
            dims = [-1, *self.dims[1:]]
            raise RequestError(
                400,
                f"input {self.name!r}: expected shape {dims}; received "
                f"{format_value(list(shape))}",
            )


def from_bytes(spec: TensorSpec, shape: Sequence[int], data: memoryview) -> Any:
    """Decode a binary tensor, row-major and little-endian, without a copy if possible.

    Raises:
        RequestError: the number of bytes does not match the shape.
    """
    if spec.dtype == dtypes.STRING:
        return _decode_strings(spec, shape, data)
    dtype = dtypes.numpy_dtype(spec.dtype)
    if len(data) != prod(shape) * dtype.itemsize:
        raise RequestError(
            400,
            f"input {spec.name!r}: expected {prod(shape) * dtype.itemsize} bytes for "
            f"{spec.datatype} {list(shape)}; received {len(data)}",
        )
    if spec.dtype == "bool":  # a byte of 2 is not a valid bool for kernels
        return (np.frombuffer(data, np.uint8) != 0).reshape(shape)
    array = np.frombuffer(data, dtype).reshape(shape)
    return array.byteswap() if _IS_BIG_ENDIAN else array


def _decode_strings(spec: TensorSpec, shape: Sequence[int], data: memoryview) -> Any:
    """Decode strings, each with a length prefix of four bytes."""
    strings: list[str] = []
    offset, count = 0, prod(shape)
    while offset + 4 <= len(data) and len(strings) < count:
        end = offset + 4 + int.from_bytes(data[offset : offset + 4], "little")
        if end > len(data):
            break
        strings.append(_decode_text(spec, bytes(data[offset + 4 : end])))
        offset = end
    if len(strings) != count or offset != len(data):
        raise RequestError(
            400, f"input {spec.name!r}: expected {count} strings after their lengths"
        )
    return np.array(strings, object).reshape(shape)


def _is_text(value: str) -> bool:
    """Return whether a string is valid UTF-8, which excludes lone surrogates."""
    return value.isascii() or not any(
        "\ud800" <= character <= "\udfff" for character in value
    )


def _decode_text(spec: TensorSpec, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise RequestError(400, f"input {spec.name!r}: expected UTF-8") from error


def common_extent(extents: Iterable[int]) -> int:
    """Return the extent of the first axes of a request.

    Raises:
        RequestError: they are not equal.
    """
    distinct = set(extents)
    if len(distinct) != 1:
        raise RequestError(
            400,
            f"expected equal extents of the first axes; received {sorted(distinct)}",
        )
    return distinct.pop()


def to_bytes(array: Any) -> bytes:
    """Encode a tensor in binary format."""
    if array.dtype.kind in "OSU":
        texts = [_encode_text(x) for x in array.ravel().tolist()]
        return b"".join(len(x).to_bytes(4, "little") + x for x in texts)
    if _IS_BIG_ENDIAN:
        array = array.byteswap()
    data: bytes = array.tobytes()
    return data


def _encode_text(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


def from_values(spec: TensorSpec, values: Any) -> Any:
    """Convert nested JSON lists to an array of the tensor's dtype, of any shape.

    Raises:
        RequestError: the lists are ragged, or have a wrong type.
    """
    flat, shape = _flatten(spec, values)
    types = set(map(type, flat))
    if spec.dtype == dtypes.STRING:
        if types - {str} or not all(map(_is_text, flat)):
            raise _values_error(spec)
        texts = np.empty(len(flat), object)
        texts[:] = flat
        return texts.reshape(shape)
    kind = _dtype_kind(spec.dtype)
    if types - _JSON_TYPES[kind]:
        raise _values_error(spec)
    dtype = dtypes.numpy_dtype(spec.dtype)
    if kind != "f":
        limits = None if kind == "b" or not flat else np.iinfo(dtype)
        if limits and (min(flat) < limits.min or max(flat) > limits.max):
            raise _values_error(spec)
        return np.array(flat, dtype).reshape(shape)
    try:
        array = np.array(flat, np.float64).reshape(shape)
    except OverflowError:  # an integer outside the range of float64
        raise _values_error(spec) from None
    with np.errstate(over="ignore"):  # an out-of-range number becomes infinite
        return array.astype(dtype)


# The JSON value types for each dtype kind.
_JSON_TYPES: dict[str, set[type]] = {
    "b": {bool},
    "i": {int},
    "u": {int},
    "f": {int, float},
}


def _flatten(spec: TensorSpec, values: Any) -> tuple[list[Any], list[int]]:
    """Return the flat values of nested lists, and their shape.

    NumPy would allocate the length of the longest text for each value.
    """
    flat: list[Any] = [values]
    shape: list[int] = []
    while list in (types := set(map(type, flat))):
        lengths = set(map(len, flat)) if len(types) == 1 else set()
        if len(lengths) != 1:
            raise _values_error(spec)
        shape += lengths
        flat = list(chain.from_iterable(flat))
    return flat, shape


def _dtype_kind(dtype: str) -> str:
    return "f" if dtypes.is_float(dtype) else dtypes.numpy_dtype(dtype).kind


def _values_error(spec: TensorSpec) -> RequestError:
    return RequestError(
        400, f"input {spec.name!r}: expected {spec.datatype} values in regular lists"
    )


def to_values(array: Any) -> Any:
    """Return the nested lists of a tensor, for JSON."""
    if array.dtype.kind == "O":  # one by one, to avoid padding to the longest text
        return _convert_texts(array.tolist())
    if array.dtype.kind == "V":  # bfloat16 has no Python number type
        array = array.astype(np.float32)
    return array.tolist()


def _convert_texts(values: Any) -> Any:
    return (
        [_convert_texts(x) for x in values] if isinstance(values, list) else str(values)
    )
