"""`tf.compat`: TensorFlow 1's names in `v1`, those of 2 in `v2`, also to import."""

import os
import sys
from typing import Any

from toolkit.compat import tensorflow as v2
from toolkit.compat.tensorflow import v1

for _name, _module in (("v1", v1), ("v2", v2)):
    sys.modules[f"{__name__}.{_name}"] = _module


def dimension_value(dimension: Any) -> Any:
    """An extent as a number; None where it is open."""
    return getattr(dimension, "value", dimension)


def as_bytes(bytes_or_text: Any, encoding: str = "utf-8") -> bytes:
    """Text as bytes; bytes as they are."""
    if isinstance(bytes_or_text, str):
        return bytes_or_text.encode(encoding)
    return bytes(bytes_or_text)


def as_text(bytes_or_text: Any, encoding: str = "utf-8") -> str:
    """Bytes as text; text as it is."""
    if isinstance(bytes_or_text, str):
        return bytes_or_text
    return bytes(bytes_or_text).decode(encoding)


as_str = as_text


def as_str_any(value: Any, encoding: str = "utf-8") -> str:
    """Bytes as text, and anything else as `str` has it."""
    return as_text(value, encoding) if isinstance(value, bytes) else str(value)


def path_to_str(path: Any) -> Any:
    """A path as text."""
    return os.fspath(path) if hasattr(path, "__fspath__") else path
