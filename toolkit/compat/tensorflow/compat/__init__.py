"""`tf.compat`: TensorFlow 1's names in `v1`, those of 2 in `v2`."""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    if name in ("v1", "v2"):
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'tf.compat' has no attribute {name!r}")
