"""Encoding of iterator positions as JSON, with tags for other types."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toolkit.data.structure import numpy_dtype
from toolkit.errors import ArgumentError

PLAIN = (bool, int, float, str, type(None))

# name -> (type, encoder, decoder); `encodes` adds entries.
KINDS: dict[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {}


def encodes(
    name: str, kind: type, to: Callable[[Any], Any], back: Callable[[Any], Any]
) -> None:
    """Register a type for objects in positions."""
    KINDS[name] = kind, to, back


def encode(value: Any, buffers: list[bytes] | None = None) -> Any:
    """Encode a structure of numbers, strings, arrays, tuples, lists and dicts for JSON.

    Args:
        buffers: a list that receives the bytes of arrays. None writes base64 into the
            JSON.

    Example:
        >>> from toolkit.data.encoding import decode, encode
        >>> decode(encode((1, b"two", {"three": 3.0})))
        (1, b'two', {'three': 3.0})
    """
    if type(value) in PLAIN:
        return value
    if isinstance(value, list):
        return [encode(item, buffers) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [encode(item, buffers) for item in value]}
    if isinstance(value, dict):
        pairs = [[encode(k), encode(item, buffers)] for k, item in value.items()]
        return {"dict": pairs}
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, np.generic):
        return {"number": _name(value.dtype), "of": _encode_array(value, None)}
    if isinstance(value, np.ndarray):
        return {"array": _name(value.dtype), "of": _encode_array(value, buffers)}
    if hasattr(value, "__array__"):  # a tensor; decoded as an array
        return encode(np.asarray(value), buffers)
    for name, (kind, to, _) in KINDS.items():
        if isinstance(value, kind):
            return {"kind": name, "of": encode(to(value), buffers)}
    raise ArgumentError(
        f"data set: cannot save a {type(value).__name__}: {value!r:.60}"
    )


def _name(dtype: np.dtype[Any]) -> str:
    return dtype.str if dtype.kind in "USmM" else dtype.name


def _encode_array(value: Any, buffers: list[bytes] | None) -> Any:
    array = np.asarray(value)
    if array.dtype == object:
        return [list(array.shape), [encode(item) for item in array.ravel()]]
    data = np.ascontiguousarray(array).tobytes()
    if buffers is None:
        return [list(array.shape), base64.b64encode(data).decode()]
    buffers.append(data)
    return [list(array.shape), len(buffers) - 1]


def decode(value: Any, buffers: Sequence[memoryview] = ()) -> Any:
    """Decode a value from `encode`; a named tuple becomes a tuple."""
    if isinstance(value, list):
        return [decode(item, buffers) for item in value]
    if not isinstance(value, dict):
        return value
    if "tuple" in value:
        return tuple(decode(item, buffers) for item in value["tuple"])
    if "dict" in value:
        return {decode(k): decode(item, buffers) for k, item in value["dict"]}
    if "bytes" in value:
        return base64.b64decode(value["bytes"])
    if "number" in value:
        return _decode_array(value["number"], value["of"], buffers)[()]
    if "kind" in value:
        _, _, back = KINDS[value["kind"]]
        return back(decode(value["of"], buffers))
    return _decode_array(value["array"], value["of"], buffers)


def _decode_array(name: str, of: Any, buffers: Sequence[memoryview]) -> Any:
    shape, data = of
    if any(extent < 0 for extent in shape):
        raise ArgumentError(f"expected a shape; received {shape}")
    if name == "object":
        if math.prod(shape) != len(data):
            raise ArgumentError(f"expected {shape} objects; received {len(data)}")
        array = np.empty(shape, object)
        array.ravel()[:] = [decode(item) for item in data]
        return array
    if isinstance(data, int):  # a view of a file
        return np.frombuffer(buffers[data], numpy_dtype(name)).reshape(shape)
    flat = np.frombuffer(base64.b64decode(data), numpy_dtype(name))
    return flat.reshape(shape).copy()
