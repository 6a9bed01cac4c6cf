"""`tf.compat`: the names of TensorFlow 1 in `v1`, and of TensorFlow 2 in `v2`."""

import os
import sys
from os import PathLike
from typing import Any

from toolkit.compat import tensorflow as v2
from toolkit.compat.tensorflow import v1

for _name, _module in (("v1", v1), ("v2", v2)):
    sys.modules[f"{__name__}.{_name}"] = _module


def dimension_value(dimension: Any) -> int | None:
    """Return an extent as a number; None if it is dynamic."""
    return getattr(dimension, "value", dimension)


def as_bytes(bytes_or_text: Any, encoding: str = "utf-8") -> bytes:
    """Convert text to bytes; bytes do not change."""
    if isinstance(bytes_or_text, str):
        return bytes_or_text.encode(encoding)
    return bytes(bytes_or_text)


def as_text(bytes_or_text: Any, encoding: str = "utf-8") -> str:
    """Convert bytes to text; text does not change."""
    if isinstance(bytes_or_text, str):
        return bytes_or_text
    return bytes(bytes_or_text).decode(encoding)


as_str = as_text


def as_str_any(value: Any, encoding: str = "utf-8") -> str:
    """Convert bytes to text, and any other value with `str`."""
    return as_text(value, encoding) if isinstance(value, bytes) else str(value)


def path_to_str(path: str | PathLike[str]) -> Any:
    """Convert a path to text."""
    return os.fspath(path) if hasattr(path, "__fspath__") else path
