"""ONNX protobuf messages, as dicts of the fields that this package uses.

https://github.com/onnx/onnx/blob/main/onnx/onnx.proto has the numbers of the fields.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from toolkit.definitions.records import record
from toolkit.errors import ModelFileError
from toolkit.reading.onnx.wire import (
    MAX_DEPTH,
    FieldParser,
    to_signed,
    unpack_integers,
    unpack_numbers,
)

Message = dict[str, Any]
MAX_NAME = 1_000  # characters


@record
class _Field:
    """Field: the key of its value, its kind, and whether it is repeated."""

    key: str
    kind: str
    repeated: bool = False


def _single(key: str, kind: str) -> _Field:
    return _Field(key, kind)


def _repeated(key: str, kind: str) -> _Field:
    return _Field(key, kind, repeated=True)


_REFUSED = "refused"
_SCHEMA: dict[str, dict[int, _Field]] = {
    "model": {
        1: _single("ir_version", "int"),
        2: _single("producer_name", "text"),
        3: _single("producer_version", "text"),
        7: _single("graph", "graph"),
        8: _repeated("opset_import", "opset"),
        14: _repeated("metadata", "entry"),
        20: _single("training_info", _REFUSED),
        25: _repeated("functions", "function"),
    },
    "opset": {1: _single("domain", "text"), 2: _single("version", "int")},
    "entry": {1: _single("key", "text"), 2: _single("value", "text")},
    "graph": {
        1: _repeated("nodes", "node"),
        2: _single("name", "text"),
        5: _repeated("initializers", "tensor"),
        11: _repeated("inputs", "value"),
        12: _repeated("outputs", "value"),
        15: _single("sparse_initializer", _REFUSED),
    },
    "node": {
        1: _repeated("inputs", "text"),
        2: _repeated("outputs", "text"),
        3: _single("name", "text"),
        4: _single("op", "text"),
        5: _repeated("attributes", "attribute"),
        7: _single("domain", "text"),
        8: _single("overload", "text"),
    },
    "attribute": {
        1: _single("name", "text"),
        2: _single("f", "float"),
        3: _single("i", "int"),
        4: _single("s", "bytes"),
        5: _single("t", "tensor"),
        6: _single("g", "graph"),
        7: _repeated("floats", "float"),
        8: _repeated("ints", "int"),
        9: _repeated("strings", "bytes"),
        10: _single("tensors", _REFUSED),
        11: _single("graphs", _REFUSED),
        14: _single("type_proto", _REFUSED),
        15: _single("type_protos", _REFUSED),
        20: _single("type", "int"),
        21: _single("refers_to", "text"),
        22: _single("sparse_tensor", _REFUSED),
        23: _single("sparse_tensors", _REFUSED),
    },
    "tensor": {
        1: _repeated("dims", "int"),
        2: _single("type", "int"),
        3: _single("segment", _REFUSED),
        4: _repeated("floats", "float"),
        5: _repeated("int32s", "int"),
        6: _single("string_data", _REFUSED),
        7: _repeated("int64s", "int"),
        8: _single("name", "text"),
        9: _single("raw", "bytes"),
        10: _repeated("doubles", "double"),
        11: _repeated("uint64s", "int"),
        13: _repeated("external", "entry"),
        14: _single("location", "int"),
    },
    "value": {1: _single("name", "text"), 2: _single("type", "type")},
    "type": {
        1: _single("tensor", "tensor_type"),
        4: _single("sequence", "bytes"),
        5: _single("map", _REFUSED),
        8: _single("sparse_tensor", _REFUSED),
        9: _single("optional", "bytes"),
    },
    "tensor_type": {1: _single("type", "int"), 2: _single("shape", "shape")},
    "shape": {1: _repeated("dims", "dim")},
    "dim": {1: _single("value", "int"), 2: _single("param", "text")},
    "function": {
        1: _single("name", "text"),
        4: _repeated("inputs", "text"),
        5: _repeated("outputs", "text"),
        6: _repeated("attributes", "text"),
        7: _repeated("nodes", "node"),
        9: _repeated("opset_import", "opset"),
        10: _single("domain", "text"),
        11: _repeated("defaults", "attribute"),
        13: _single("overload", "text"),
    },
}


def decode_model(data: memoryview) -> Message:
    """Return the model in these bytes."""
    return _decode_message(data, "model", FieldParser(), 0)


def _decode_message(
    data: memoryview, kind: str, walker: FieldParser, depth: int
) -> Message:
    if depth > MAX_DEPTH:
        raise ModelFileError(f"messages are nested more than {MAX_DEPTH} deep")
    schema = _SCHEMA[kind]
    message: Message = {field.key: [] for field in schema.values() if field.repeated}
    for number, value in walker.fields(data):
        field = schema.get(number)
        if field is None:  # a comment or metadata for other tools
            continue
        if field.kind == _REFUSED:
            raise ModelFileError(f"a {kind} with `{field.key}` is unsupported")
        if field.kind in _SCHEMA:
            _check_bytes(value, kind, field)
            value = _decode_message(value, field.kind, walker, depth + 1)
        else:
            value = _READERS[field.kind](value, kind, field)
        if not field.repeated:
            if field.key in message:
                raise ModelFileError(f"a {kind} contains `{field.key}` twice")
            message[field.key] = value
        elif isinstance(value, np.ndarray):
            message[field.key] += [value] if value.size > 64 else value.tolist()
        else:
            message[field.key].append(value)
    return message


def _check_bytes(value: object, kind: str, field: _Field) -> None:
    if isinstance(value, int):
        raise ModelFileError(f"it is corrupt: `{field.key}` of a {kind} is a number")


def _read_integer(value: Any, kind: str, field: _Field) -> Any:
    if isinstance(value, int):
        return to_signed(value)
    if field.repeated:
        return unpack_integers(value)
    raise ModelFileError(f"it is corrupt: `{field.key}` of a {kind} is not a number")


def _make_number_reader(dtype: str) -> Callable[..., Any]:
    def read(value: Any, kind: str, field: _Field) -> Any:
        _check_bytes(value, kind, field)
        numbers = unpack_numbers(value, dtype)
        if field.repeated:
            return numbers
        if numbers.size != 1:
            raise ModelFileError(f"it is corrupt: `{field.key}` of a {kind}")
        return float(numbers[0])

    return read


def _read_bytes(value: Any, kind: str, field: _Field) -> memoryview:
    _check_bytes(value, kind, field)
    data: memoryview = value
    return data


def _read_text(value: Any, kind: str, field: _Field) -> str:
    _check_bytes(value, kind, field)
    if len(value) > MAX_NAME and field.key != "value":
        raise ModelFileError(
            f"`{field.key}` of a {kind} has {len(value):,} characters; expected at "
            f"most {MAX_NAME:,}"
        )
    try:
        return str(value, "utf-8")
    except UnicodeDecodeError as error:
        raise ModelFileError(f"`{field.key}` of a {kind} is not text") from error


_READERS: dict[str, Callable[..., Any]] = {
    "int": _read_integer,
    "float": _make_number_reader("<f4"),
    "double": _make_number_reader("<f8"),
    "bytes": _read_bytes,
    "text": _read_text,
}
