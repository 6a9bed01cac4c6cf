"""Reader and writer of tf.train.Example messages, without Protocol Buffers.

An Example maps names to lists of bytes, floats or integers:
https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/example/example.proto
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from toolkit.data.padding import as_ragged, pad
from toolkit.data.structure import (
    numpy_dtype,
    object_array,
    stack_values,
)
from toolkit.errors import (
    ArgumentError,
    DTypeError,
    MalformedDataError,
    ShapeError,
    UnsupportedError,
)
from toolkit.type_aliases import Array

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
BYTES_LIST, FLOAT_LIST, INT64_LIST = 1, 2, 3
KINDS = {BYTES_LIST: "bytes", FLOAT_LIST: "float32", INT64_LIST: "int64"}


@dataclass(frozen=True)
class FixedLenFeature:
    """Feature with the same number of values in each Example.

    Args:
        shape: the shape of the values.
        dtype: "int64", "float32", "string" or `bytes`.
        default_value: the value for Examples without the feature. None makes it
            required.

    Example:
        >>> from toolkit.data import FixedLenFeature, make_example, parse_single_example
        >>> message = make_example({"x": [4, 5]})
        >>> features = {"x": FixedLenFeature((2,), "int64")}
        >>> parse_single_example(message, features)["x"].tolist()
        [4, 5]
    """

    shape: tuple[int, ...]
    dtype: Any
    default_value: Any = None


@dataclass(frozen=True)
class VarLenFeature:
    """Feature with any number of values: an array, and in batches a Ragged.

    Args:
        dtype: "int64", "float32", "string" or `bytes`.

    Example:
        >>> from toolkit.data import VarLenFeature, make_example, parse_single_example
        >>> message = make_example({"x": [4, 5]})
        >>> parse_single_example(message, {"x": VarLenFeature("int64")})["x"].tolist()
        [4, 5]
    """

    dtype: Any


@dataclass(frozen=True)
class FixedLenSequenceFeature:
    """Feature with a variable number of steps of one shape; batches are padded.

    Args:
        shape: the shape of a step.
        dtype: "int64", "float32", "string" or `bytes`.
        allow_missing: whether the feature can be missing, which means no steps. It must
            be True for Examples; it is optional for a SequenceExample.
        default_value: the padding value in a batch. None pads with 0 or b"".
    """

    shape: tuple[int, ...]
    dtype: Any
    allow_missing: bool = False
    default_value: Any = None

    def check_step(self, name: str, values: Array) -> Array:
        """Return the values of a sequence step in the shape of the feature."""
        dtype, count = numpy_dtype(self.dtype), int(np.prod(self.shape))
        if values.size and values.dtype != dtype:
            raise DTypeError(
                f"parse_sequence_example: expected {name!r} of dtype {dtype}; received "
                f"{values.dtype}"
            )
        if values.size != count:
            raise ShapeError(
                f"parse_sequence_example: expected steps of {name!r} of shape "
                f"{tuple(self.shape)}; received {values.size} values"
            )
        return values.reshape(self.shape)


Feature: TypeAlias = FixedLenFeature | VarLenFeature | FixedLenSequenceFeature

_64_BITS = (1 << 64) - 1


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _64_BITS, at
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def message_fields(data: memoryview) -> Iterator[tuple[int, int, Any]]:
    """Yield (number, wire type, value) of each field of a message."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == VARINT:
            value, at = _varint(data, at)
            yield number, wire, value
            continue
        if wire == BYTES:
            size, at = _varint(data, at)
        elif wire in (FIXED32, FIXED64):
            size = 4 if wire == FIXED32 else 8
        else:
            raise ValueError(f"unsupported wire type {wire} of a field")
        if at + size > len(data):
            raise ValueError("a field is truncated")
        yield number, wire, data[at : at + size]
        at += size


def _integers(data: memoryview) -> list[int]:
    """Return packed integers as an array."""
    values, at = [], 0
    while at < len(data):
        value, at = _varint(data, at)
        values.append(value - (1 << 64) if value >> 63 else value)
    return values


def as_bytes(value: Any) -> bytes:
    """Return a bytes field; `bytes(n)` of an integer would return n zeros."""
    if isinstance(value, int):
        raise ValueError("a field of bytes contains a number")
    return bytes(value)


def read_list(kind: int, message: memoryview) -> Array:
    """Return the values of a list, packed or unpacked."""
    fields = [
        (wire, value) for number, wire, value in message_fields(message) if number == 1
    ]
    if kind == BYTES_LIST:
        return object_array([as_bytes(value) for _, value in fields])
    if kind == FLOAT_LIST:
        return np.frombuffer(b"".join(as_bytes(v) for _, v in fields), "<f4")
    integers: list[int] = []
    for wire, value in fields:
        packed = _integers(value) if wire == BYTES else [value - (value >> 63 << 64)]
        integers.extend(packed)
    return np.array(integers, np.int64)


def read_features(message: memoryview) -> dict[str, Array]:
    """Return the values of each feature in a Features message."""
    features: dict[str, Array] = {}
    for _, _, entry in message_fields(message):
        fields = {number: value for number, _, value in message_fields(entry)}
        name = bytes(fields.get(1, b"")).decode()
        for _, values in read_lists(fields.get(2, memoryview(b""))):
            features[name] = values
    return features


def read_lists(message: memoryview) -> Iterator[tuple[int, Array]]:
    """Return (kind, values) of each list in a Feature message; at most one is valid."""
    for kind, _, values in message_fields(message):
        yield kind, read_list(kind, values)


def read_example(serialized: bytes) -> dict[str, Array]:
    """Read all features of an Example.

    Args:
        serialized: the message.

    Returns:
        name -> array of values.

    Example:
        >>> from toolkit.data import make_example, read_example
        >>> read_example(make_example({"x": [1, 2]}))["x"].tolist()
        [1, 2]
    """
    values_by_name: dict[str, Array] = {}
    try:
        for _, _, features in message_fields(memoryview(serialized)):
            values_by_name |= read_features(features)
    except (ValueError, IndexError, TypeError) as error:
        raise MalformedDataError(
            f"parse_example: not an Example message: {error}"
        ) from error
    return values_by_name


def parse_single_example(
    serialized: bytes, features: Mapping[str, Feature]
) -> dict[str, Any]:
    """Parse the requested features of an Example into arrays.

    Args:
        serialized: the message, for example an element of a TFRecordDataset.
        features: name -> feature specification.

    Returns:
        name -> array.

    Raises:
        MalformedDataError: the message is not an Example, or a required feature is
            missing.
        ShapeError, DTypeError: the values of a feature do not match its specification.

    Example:
        >>> from toolkit.data import (
        ...     FixedLenFeature, make_example, parse_single_example)
        >>> message = make_example({"x": [0.5, 1.5], "name": [b"a"]})
        >>> parse_single_example(message, {"x": FixedLenFeature((2,), "float32")})
        {'x': array([0.5, 1.5], dtype=float32)}
    """
    parsed = read_example(serialized)
    return {
        name: check_feature(name, f, parsed.get(name)) for name, f in features.items()
    }


def check_feature(name: str, feature: Any, values: Array | None) -> Any:
    """Return the values of a feature in its required shape and dtype."""
    dtype = numpy_dtype(feature.dtype)
    if values is None or not values.size:
        if isinstance(feature, VarLenFeature):
            return np.zeros(0, dtype)
        if isinstance(feature, FixedLenSequenceFeature):
            _require_allow_missing(name, feature)
            return np.zeros((0, *feature.shape), dtype)
        if feature.default_value is None:
            raise MalformedDataError(
                f"parse_example: the Example has no feature {name!r}"
            )
        return np.broadcast_to(np.asarray(feature.default_value, dtype), feature.shape)
    if values.dtype != dtype:
        raise DTypeError(
            f"parse_example: expected {name!r} of dtype {dtype}; received "
            f"{values.dtype}"
        )
    if isinstance(feature, VarLenFeature):
        return values
    size = int(np.prod(feature.shape))
    if isinstance(feature, FixedLenSequenceFeature):
        _require_allow_missing(name, feature)
        if not size or values.size % size:
            raise ShapeError(
                f"parse_example: expected {name!r} to consist of parts of shape "
                f"{tuple(feature.shape)}; received {values.size} values"
            )
        return values.reshape(-1, *feature.shape)
    if values.size != size:
        raise ShapeError(
            f"parse_example: expected {name!r} of shape {tuple(feature.shape)}; "
            f"received {values.size} values"
        )
    return values.reshape(feature.shape)[()]


def _require_allow_missing(name: str, feature: FixedLenSequenceFeature) -> None:
    if not feature.allow_missing:
        raise UnsupportedError(
            f"parse_example: expected allow_missing=True for {name!r}: only a "
            "SequenceExample has steps"
        )


def parse_example(serialized: Any, features: Mapping[str, Feature]) -> dict[str, Any]:
    """Parse a batch of Examples into arrays, and Ragged for variable lengths.

    Args:
        serialized: a sequence of messages, for example a batch of a TFRecordDataset.
        features: name -> feature specification.

    Returns:
        name -> array, or Ragged for a variable number of values.

    Example:
        >>> from toolkit.data import FixedLenFeature, make_example, parse_example
        >>> messages = [make_example({"x": [n]}) for n in (4, 5)]
        >>> parse_example(messages, {"x": FixedLenFeature((), "int64")})["x"].tolist()
        [4, 5]
    """
    rows = [parse_single_example(message, features) for message in serialized]
    return {
        name: stack_features(feature, [row[name] for row in rows])
        for name, feature in features.items()
    }


def stack_features(feature: Any, values: list[Any]) -> Any:
    """Return the values of a feature of several Examples as one batch."""
    if isinstance(feature, VarLenFeature):
        return as_ragged(values)
    if isinstance(feature, FixedLenSequenceFeature):
        return pad(values, None, feature.default_value)
    return stack_values(values)


def make_example(features: Mapping[str, Any]) -> bytes:
    """Return a serialized Example.

    Args:
        features: name -> values: bytes or strings, floats, or integers.

    Returns:
        The message.

    Example:
        >>> from toolkit.data import make_example
        >>> len(make_example({"x": [1, 2, 3]}))
        16
    """
    return encode_field(1, encode_features(features))


def encode_features(features: Mapping[str, Any]) -> bytes:
    """Return a Features message for a dict of names and values."""
    return b"".join(
        encode_field(
            1,
            encode_field(1, name.encode())
            + encode_field(2, encode_feature(name, values)),
        )
        for name, values in features.items()
    )


def encode_feature(name: str, values: Any) -> bytes:
    """Return a Feature message of values; errors include its name."""
    if isinstance(values, (str, bytes)):
        values = [values]
    if isinstance(values, (list, tuple)) and not values:
        return b""  # an empty list has no kind
    is_text = isinstance(values, (list, tuple)) and isinstance(values[0], (str, bytes))
    array = object_array(values) if is_text else np.asarray(values)
    if array.dtype.kind in "OUS":
        items = array.ravel().tolist()
        encoded = [v.encode() if isinstance(v, str) else bytes(v) for v in items]
        return encode_field(
            BYTES_LIST, b"".join(encode_field(1, item) for item in encoded)
        )
    array = array.ravel()
    if array.dtype.kind == "f":
        return encode_field(FLOAT_LIST, encode_field(1, array.astype("<f4").tobytes()))
    if array.dtype.kind in "iub":
        packed = b"".join(encode_number(int(value)) for value in array)
        return encode_field(INT64_LIST, encode_field(1, packed))
    raise ArgumentError(
        f"make_example: expected bytes, floats or integers as {name!r}; received "
        f"{array.dtype}"
    )


def encode_number(value: int) -> bytes:
    """Return an integer as a varint."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_field(number: int, data: bytes) -> bytes:
    """Return a length-delimited field of bytes or of a nested message."""
    return encode_number(number << 3 | BYTES) + encode_number(len(data)) + data
