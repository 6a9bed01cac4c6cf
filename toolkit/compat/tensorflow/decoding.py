"""Decoders of bytes: serialized tensors, rows of CSV files, numbers and base64."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.compat.tensorflow.string_parts import Strings
from toolkit.compat.tensorflow.string_tensors import (
    StringTensor,
    map_strings,
    object_array,
    to_bytes_array,
    to_single_bytes,
)
from toolkit.compat.tensorflow.strings import to_number
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.core.strings import decode_bytes, encode_text, is_string
from toolkit.core.tensor import Tensor
from toolkit.data.examples import (
    as_bytes,
    encode_field,
    encode_number,
    message_fields,
)
from toolkit.errors import ArgumentError, DTypeError, MalformedDataError, ShapeError
from toolkit.type_aliases import Array, DTypeLike, TensorLike

_BASE64 = re.compile(rb"[A-Za-z0-9_-]*")

# The numbers of dtypes in messages: tensorflow/core/framework/types.proto
_NUMBERS = {
    "float32": 1,
    "float64": 2,
    "int32": 3,
    "uint8": 4,
    "int16": 5,
    "int8": 6,
    "string": 7,
    "complex64": 8,
    "int64": 9,
    "bool": 10,
    "bfloat16": 14,
    "uint16": 17,
    "complex128": 18,
    "float16": 19,
    "uint32": 22,
    "uint64": 23,
}
# Fields of a TensorProto: tensorflow/core/framework/tensor.proto
_DTYPE, _SHAPE, _CONTENT, _STRINGS = 1, 2, 4, 8


def serialize_tensor(tensor: TensorLike, name: str | None = None) -> StringTensor:
    """Serialize a tensor to a message for `parse_tensor`.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> tf.io.parse_tensor(tf.io.serialize_tensor([1, 2]), tf.int32).numpy()
        array([1, 2], dtype=int32)
    """
    is_text = is_string(tensor)
    array = to_bytes_array(tensor) if is_text else np.asarray(convert(tensor))
    dtype = dtypes.STRING if is_text else dtypes.name_of(array.dtype)
    if dtype not in _NUMBERS:
        raise DTypeError(
            f"serialize_tensor: expected a dtype among {', '.join(_NUMBERS)}; received "
            f"{dtype}"
        )
    extents = b"".join(encode_field(2, _encode_field(1, n)) for n in array.shape)
    message = _encode_field(_DTYPE, _NUMBERS[dtype]) + encode_field(_SHAPE, extents)
    if is_text:
        texts = array.ravel().tolist()
        message += b"".join(encode_field(_STRINGS, text) for text in texts)
    elif array.size:
        stored = array.astype(array.dtype.newbyteorder("<"))
        message += encode_field(_CONTENT, stored.tobytes())
    return StringTensor(message)


def _encode_field(number: int, value: int) -> bytes:
    """Encode an integer field; 0 is the default and is omitted."""
    return encode_number(number << 3) + encode_number(value) if value else b""


def parse_tensor(
    serialized: TensorLike, out_type: DTypeLike, name: str | None = None
) -> Any:
    """Parse a tensor from `serialize_tensor`.

    Args:
        serialized: the message.
        out_type: the dtype of the tensor.

    Raises:
        MalformedDataError: the message is invalid or truncated.
        DTypeError: the tensor has another dtype.
    """
    message = to_single_bytes(serialized, "parse_tensor")
    try:
        number, shape, content, texts = _parse_message(message)
    except (ValueError, IndexError, OverflowError, TypeError) as error:
        raise MalformedDataError(
            f"parse_tensor: not a message of a tensor: {error}"
        ) from error
    dtype = dtypes.standardize(out_type)
    dtype_name = next(
        (name for name, n in _NUMBERS.items() if n == number), str(number)
    )
    if dtype_name != dtype:
        raise DTypeError(
            f"parse_tensor: expected a tensor of {dtype}; it has {dtype_name}"
        )
    size = int(np.prod(shape, dtype=object))
    is_text = dtype == dtypes.STRING
    received = len(texts) if is_text else len(content)
    expected = size if is_text else size * dtypes.itemsize(dtype)
    if received != expected:
        raise MalformedDataError(
            f"parse_tensor: expected {expected} {'strings' if is_text else 'bytes'} "
            f"for the shape {shape}; the message has {received}"
        )
    if is_text:
        return StringTensor(object_array(texts, shape))
    stored = dtypes.numpy_dtype(dtype).newbyteorder("<")
    try:
        array = np.frombuffer(content, stored).reshape(shape)
    except ValueError as error:  # an invalid shape, for empty content
        raise MalformedDataError(f"parse_tensor: the shape {shape}: {error}") from error
    return convert(array.astype(dtypes.numpy_dtype(dtype)))


def _parse_message(message: bytes) -> tuple[int, tuple[int, ...], bytes, list[bytes]]:
    """Return the number of the dtype, the shape, and the bytes or the strings."""
    number, content = 0, b""
    shape: list[int] = []
    texts: list[bytes] = []
    for field, _, value in message_fields(memoryview(message)):
        if field == _DTYPE:
            number = int(value)
        elif field == _SHAPE:
            for item, _, extent in message_fields(value):
                if item == 2:
                    sizes = {key: n for key, _, n in message_fields(extent)}
                    shape.append(int(sizes.get(1, 0)))
        elif field == _CONTENT:
            content = as_bytes(value)
        elif field == _STRINGS:
            texts.append(as_bytes(value))
    return number, tuple(shape), content, texts


# --- rows of CSV files ----------------------------------------------------------------


def decode_csv(
    records: Any,
    record_defaults: Sequence[Any],
    field_delim: str = ",",
    use_quote_delim: bool = True,
    na_value: str = "",
    select_cols: Sequence[int] | None = None,
    name: str | None = None,
) -> list[Any]:
    """Parse rows of a CSV file to columns, each a tensor with the shape of `records`.

    Args:
        records: a row, or a tensor of rows.
        record_defaults: for each column a list with the value of empty fields, or an
            empty tensor if none is allowed; its dtype is the dtype of the column.
        field_delim: the delimiter of fields.
        use_quote_delim: whether fields can have quotes.
        na_value: another text of an empty field, in addition to "".
        select_cols: the indices of the columns to return, ascending.

    Raises:
        ArgumentError: a row has another number of fields, a field is not a number, or
            a quote is neither around a field nor doubled.
    """
    defaults = [_default_array(value) for value in record_defaults]
    column_numbers = list(range(len(defaults)) if select_cols is None else select_cols)
    if (
        len(column_numbers) != len(defaults)
        or sorted(set(column_numbers)) != column_numbers
    ):
        raise ArgumentError(
            f"decode_csv: select_cols: expected {len(defaults)} rising numbers, one "
            f"for each of record_defaults; received {column_numbers}"
        )
    if len(field_delim) != 1 or field_delim in '"\r\n':
        raise ArgumentError(
            "decode_csv: field_delim: expected one character that is not a quote or "
            f"a newline; received {field_delim!r}"
        )
    array = to_bytes_array(records)
    rows = []
    for text in map(decode_bytes, array.ravel()):
        fields = _split_fields(text, field_delim, use_quote_delim)
        minimum = (
            len(defaults)
            if select_cols is None
            else max(column_numbers, default=-1) + 1
        )
        if len(fields) < minimum or (select_cols is None and len(fields) > minimum):
            raise ArgumentError(
                f"decode_csv: expected {minimum} fields, one for each of "
                f"record_defaults; received {len(fields)} in {text!r:.60}"
            )
        rows.append([fields[number] for number in column_numbers])
    columns = zip(*rows, strict=True) if rows else [()] * len(defaults)
    return [
        _column(list(column), default, na_value, array.shape)
        for column, default in zip(columns, defaults, strict=True)
    ]


def _split_fields(text: str, delimiter: str, may_be_quoted: bool) -> list[str]:
    """Split a row into fields; a quote within quotes is doubled."""
    if not text:
        return []
    if not may_be_quoted:
        return text.split(delimiter)
    field = re.compile(rf'"((?:[^"]|"")*)"|([^"{re.escape(delimiter)}\r\n]*)')
    fields, position = [], 0
    while True:
        match = field.match(text, position)
        assert match is not None  # a field can be empty
        quoted, plain = match.groups()
        fields.append(plain if quoted is None else quoted.replace('""', '"'))
        position = match.end()
        if position == len(text):
            return fields
        if text[position] != delimiter:
            raise ArgumentError(
                "decode_csv: expected quotes around a full field, and doubled quotes "
                f"within it; received {text!r:.60}"
            )
        position += 1


def _default_array(value: TensorLike) -> Array:
    """Return the value of empty fields as an array with at most one element."""
    array = to_bytes_array(value) if is_string(value) else np.asarray(convert(value))
    if array.size > 1:
        raise ShapeError(
            f"decode_csv: record_defaults: expected one value for a column; received "
            f"{array.tolist()!r:.60}"
        )
    return array.ravel()


def _column(
    fields: list[str], default: Array, na_value: str, shape: tuple[int, ...]
) -> Any:
    if not default.size and any(field in ("", na_value) for field in fields):
        raise ArgumentError("decode_csv: a required field is empty")
    is_text = default.dtype.kind == "O"
    fill = default[0] if default.size else None
    fill = fill if is_text or fill is None else str(fill).encode()
    texts = [
        fill if field in ("", na_value) else encode_text(field) for field in fields
    ]
    column = StringTensor(object_array(texts, shape))
    return column if is_text else to_number(column, default.dtype.name)


# --- numbers and base64
# -----------------------------------------------------------------


def decode_raw(
    input_bytes: TensorLike,
    out_type: DTypeLike,
    little_endian: bool = True,
    fixed_length: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Reinterpret the bytes of strings as numbers, along a new last axis.

    Args:
        input_bytes: strings of one length.
        out_type: the dtype of the numbers.
        little_endian: whether the lowest byte of a number is first.
        fixed_length: the number of bytes to read of each string; a shorter string is
            padded with zeros.
    """
    dtype = dtypes.numpy_dtype(dtypes.standardize(out_type))
    stored = dtype.newbyteorder("<" if little_endian else ">")
    array = to_bytes_array(input_bytes)
    texts, size = array.ravel().tolist(), fixed_length
    if size is None:
        lengths = sorted(set(map(len, texts))) or [0]
        size = lengths[0]
        if len(lengths) > 1:
            raise ShapeError(
                f"decode_raw: expected strings of one length; received {lengths[0]} "
                f"and {lengths[-1]} bytes"
            )
    if size % dtype.itemsize or size <= 0 and fixed_length is not None:
        raise ShapeError(
            f"decode_raw: expected a multiple of the {dtype.itemsize} bytes of "
            f"{dtype.name}; received {size} bytes"
        )
    data = b"".join(text[:size].ljust(size, b"\0") for text in texts)
    numbers = np.frombuffer(data, stored).astype(dtype)
    return convert(numbers.reshape(*array.shape, size // dtype.itemsize))


def encode_base64(
    input: TensorLike, pad: bool = False, name: str | None = None
) -> Strings:
    """Encode bytes as web-safe base64, without `=` at the end."""

    def encode(text: bytes) -> bytes:
        letters = base64.urlsafe_b64encode(text)
        return letters if pad else letters.rstrip(b"=")

    return map_strings(encode, input)


def decode_base64(input: TensorLike, name: str | None = None) -> Strings:
    """Decode the result of `encode_base64`."""

    def decode(letters: bytes) -> bytes:
        bare = letters.rstrip(b"=")
        if _BASE64.fullmatch(bare) is None or len(bare) % 4 == 1:
            raise ArgumentError(
                "decode_base64: expected letters, digits, - and _, as in the result "
                f"of encode_base64; received {letters!r:.60}"
            )
        return base64.urlsafe_b64decode(bare + b"=" * (-len(bare) % 4))

    return map_strings(decode, input)
