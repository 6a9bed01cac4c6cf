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
    Walker,
    packed_integers,
    packed_numbers,
    signed,
)

Message = dict[str, Any]
MAX_NAME = 1_000  # characters


@record
class _Field:
    """Field: the key of its value, its kind, and whether it is repeated."""

    key: str
    kind: str
    repeated: bool = False


def _one(key: str, kind: str) -> _Field:
    return _Field(key, kind)


def _many(key: str, kind: str) -> _Field:
    return _Field(key, kind, repeated=True)


_REFUSED = "refused"
_SCHEMA: dict[str, dict[int, _Field]] = {
    "model": {
        1: _one("ir_version", "int"),
        2: _one("producer_name", "text"),
        3: _one("producer_version", "text"),
        7: _one("graph", "graph"),
        8: _many("opset_import", "opset"),
        14: _many("metadata", "entry"),
        20: _one("training_info", _REFUSED),
        25: _many("functions", "function"),
    },
    "opset": {1: _one("domain", "text"), 2: _one("version", "int")},
    "entry": {1: _one("key", "text"), 2: _one("value", "text")},
    "graph": {
        1: _many("nodes", "node"),
        2: _one("name", "text"),
        5: _many("initializers", "tensor"),
        11: _many("inputs", "value"),
        12: _many("outputs", "value"),
        15: _one("sparse_initializer", _REFUSED),
    },
    "node": {
        1: _many("inputs", "text"),
        2: _many("outputs", "text"),
        3: _one("name", "text"),
        4: _one("op", "text"),
        5: _many("attributes", "attribute"),
        7: _one("domain", "text"),
        8: _one("overload", "text"),
    },
    "attribute": {
        1: _one("name", "text"),
        2: _one("f", "float"),
        3: _one("i", "int"),
        4: _one("s", "bytes"),
        5: _one("t", "tensor"),
        6: _one("g", "graph"),
        7: _many("floats", "float"),
        8: _many("ints", "int"),
        9: _many("strings", "bytes"),
        10: _one("tensors", _REFUSED),
        11: _one("graphs", _REFUSED),
        14: _one("type_proto", _REFUSED),
        15: _one("type_protos", _REFUSED),
        20: _one("type", "int"),
        21: _one("refers_to", "text"),
        22: _one("sparse_tensor", _REFUSED),
        23: _one("sparse_tensors", _REFUSED),
    },
    "tensor": {
        1: _many("dims", "int"),
        2: _one("type", "int"),
        3: _one("segment", _REFUSED),
        4: _many("floats", "float"),
        5: _many("int32s", "int"),
        6: _one("string_data", _REFUSED),
        7: _many("int64s", "int"),
        8: _one("name", "text"),
        9: _one("raw", "bytes"),
        10: _many("doubles", "double"),
        11: _many("uint64s", "int"),
        13: _many("external", "entry"),
        14: _one("location", "int"),
    },
    "value": {1: _one("name", "text"), 2: _one("type", "type")},
    "type": {
        1: _one("tensor", "tensor_type"),
        4: _one("sequence", "bytes"),
        5: _one("map", _REFUSED),
        8: _one("sparse_tensor", _REFUSED),
        9: _one("optional", "bytes"),
    },
    "tensor_type": {1: _one("type", "int"), 2: _one("shape", "shape")},
    "shape": {1: _many("dims", "dim")},
    "dim": {1: _one("value", "int"), 2: _one("param", "text")},
    "function": {
        1: _one("name", "text"),
        4: _many("inputs", "text"),
        5: _many("outputs", "text"),
        6: _many("attributes", "text"),
        7: _many("nodes", "node"),
        9: _many("opset_import", "opset"),
        10: _one("domain", "text"),
        11: _many("defaults", "attribute"),
        13: _one("overload", "text"),
    },
}


def decode(data: memoryview) -> Message:
    """Return the model in these bytes."""
    return _decoded(data, "model", Walker(), 0)


def _decoded(data: memoryview, kind: str, walker: Walker, depth: int) -> Message:
    if depth > MAX_DEPTH:
        raise ModelFileError(f"messages in messages, more than {MAX_DEPTH} deep")
    schema = _SCHEMA[kind]
    found: Message = {field.key: [] for field in schema.values() if field.repeated}
    for number, value in walker.fields(data):
        field = schema.get(number)
        if field is None:  # a comment or metadata for other tools
            continue
        if field.kind == _REFUSED:
            raise ModelFileError(f"a {kind} with `{field.key}`: refused")
        if field.kind in _SCHEMA:
            _check_bytes(value, kind, field)
            value = _decoded(value, field.kind, walker, depth + 1)
        else:
            value = _READERS[field.kind](value, kind, field)
        if not field.repeated:
            if field.key in found:
                raise ModelFileError(f"a {kind} with two of `{field.key}`: refused")
            found[field.key] = value
        elif isinstance(value, np.ndarray):
            found[field.key] += [value] if value.size > 64 else value.tolist()
        else:
            found[field.key].append(value)
    return found


def _check_bytes(value: Any, kind: str, field: _Field) -> None:
    if isinstance(value, int):
        raise ModelFileError(f"it is damaged: `{field.key}` of a {kind} is a number")


def _integer(value: Any, kind: str, field: _Field) -> Any:
    if isinstance(value, int):
        return signed(value)
    if field.repeated:
        return packed_integers(value)
    raise ModelFileError(f"it is damaged: `{field.key}` of a {kind} is no number")


def _numbers(dtype: str) -> Callable[..., Any]:
    def read(value: Any, kind: str, field: _Field) -> Any:
        _check_bytes(value, kind, field)
        found = packed_numbers(value, dtype)
        if field.repeated:
            return found
        if found.size != 1:
            raise ModelFileError(f"it is damaged: `{field.key}` of a {kind}")
        return float(found[0])

    return read


def _bytes(value: Any, kind: str, field: _Field) -> memoryview:
    _check_bytes(value, kind, field)
    found: memoryview = value
    return found


def _text(value: Any, kind: str, field: _Field) -> str:
    _check_bytes(value, kind, field)
    if len(value) > MAX_NAME and field.key != "value":
        raise ModelFileError(
            f"`{field.key}` of a {kind} has {len(value):,} characters; expected at "
            f"most {MAX_NAME:,}"
        )
    try:
        return str(value, "utf-8")
    except UnicodeDecodeError as error:
        raise ModelFileError(f"`{field.key}` of a {kind} is no text") from error


_READERS: dict[str, Callable[..., Any]] = {
    "int": _integer,
    "float": _numbers("<f4"),
    "double": _numbers("<f8"),
    "bytes": _bytes,
    "text": _text,
}
