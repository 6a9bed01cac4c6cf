"""Conversion of objects to configs."""

from __future__ import annotations

import inspect
import types
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.console.frames import warn
from toolkit.core.keras_tensor import KerasTensor
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentTypeError
from toolkit.serialization.object_names import class_config, find_public_name
from toolkit.serialization.registration import get_registered_name
from toolkit.serialization.sharing import mark_config, remove_foreign_mark

_PLAIN_TYPES = (str, int, float, bool, type(None))
_CONFIG_KEYS = {"module", "class_name", "config", "registered_name"}


def serialize_keras_object(obj: Any) -> Any:
    """Return an object as a dict of plain values that `deserialize_keras_object` reads.

    Args:
        obj: an object with `get_config`, a named function, a plain value, an array, or
            lists, tuples and dicts of them. A lambda is only recorded as a lambda, with
            a warning.

    Returns:
        A dict, a list, a string, a number or None.

    Raises:
        ArgumentError: if the object cannot be serialized.

    Example:
        >>> from toolkit import regularizers, serialization
        >>> serialization.serialize_keras_object(regularizers.L2(0.5))["config"]
        {'l2': 0.5}
    """
    if isinstance(obj, _PLAIN_TYPES):
        return obj
    if isinstance(obj, (list, tuple)):
        values = [serialize_keras_object(x) for x in obj]
        return tuple(values) if isinstance(obj, tuple) else values
    if isinstance(obj, dict):
        if obj.keys() >= _CONFIG_KEYS:  # already serialized by `get_config`
            return remove_foreign_mark(obj)
        return {key: serialize_keras_object(value) for key, value in obj.items()}
    special = _serialize_special(obj)
    if special is not None:
        return special
    if inspect.isclass(obj):
        return {**class_config(obj), "class_name": "type", "config": obj.__name__}
    if isinstance(obj, types.FunctionType) or not hasattr(obj, "get_config"):
        return _serialize_function(obj)
    return _serialize_object(obj)


def _serialize_object(obj: Any) -> dict[str, Any]:
    config = class_config(type(obj))
    inner = obj.get_config()
    if not isinstance(inner, dict):
        raise ArgumentTypeError(
            f"{type(obj).__name__}.get_config: expected a dict; received {inner!r}"
        )
    config["config"] = {k: serialize_keras_object(v) for k, v in inner.items()}
    for key in ("build_config", "compile_config", "quantized_parts"):
        method = getattr(obj, f"get_{key}", None)
        state = method() if method else None
        if state is not None:
            config[key] = serialize_keras_object(state)
    mark_config(obj, config)
    return config


def _serialize_function(obj: Any) -> dict[str, Any]:
    name = getattr(obj, "__name__", None)
    if name is None:
        raise ArgumentTypeError(
            "serialize_keras_object: expected an object with `get_config` or a named "
            f"function; received {obj!r}"
        )
    if name == "<lambda>":
        warn(
            "serialize_keras_object: configs and files contain no code, so each load "
            "needs the lambda as an argument. Prefer a named, registered function"
        )
        return _make_tagged("__lambda__", value=None)
    public_name = find_public_name(obj)
    return {
        "module": "builtins",
        "class_name": "function",
        "config": get_registered_name(obj) if public_name is None else public_name[1],
        "registered_name": "function",
    }


def _serialize_special(obj: Any) -> Any:
    """Return values that JSON lacks as tagged dicts; None for all other values."""
    if isinstance(obj, np.generic) or (isinstance(obj, np.ndarray) and obj.ndim == 0):
        return obj.item()
    if isinstance(obj, np.dtype):
        return dtypes.name_of(obj)
    if isinstance(obj, np.ndarray) and obj.dtype.kind in "US":
        return serialize_keras_object(obj.tolist())  # JSON has lists of strings
    if isinstance(obj, np.ndarray):
        return _make_tagged(
            "__numpy__", value=obj.tolist(), dtype=dtypes.name_of(obj.dtype)
        )
    if isinstance(obj, Tensor):
        return _make_tagged("__tensor__", value=obj.tolist(), dtype=obj.dtype)
    if isinstance(obj, KerasTensor):
        history: Any = obj._keras_history
        if history is not None:
            history = [history[0].name, *history[1:]]
        return _make_tagged(
            "__keras_tensor__", shape=obj.shape, dtype=obj.dtype, keras_history=history
        )
    if isinstance(obj, bytes):
        # The escapes preserve bytes that are not valid text.
        return _make_tagged("__bytes__", value=obj.decode("utf-8", "surrogateescape"))
    if isinstance(obj, slice):
        bounds = {key: getattr(obj, key) for key in ("start", "stop", "step")}
        return _make_tagged("__slice__", **serialize_keras_object(bounds))
    return _make_tagged("__ellipsis__") if obj is Ellipsis else None


def _make_tagged(tag: str, **config: Any) -> dict[str, Any]:
    return {"class_name": tag, "config": config}
