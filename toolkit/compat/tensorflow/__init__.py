"""TensorFlow's names: `import toolkit.compat.tensorflow as tf`.

Each name is one of the core's, with TensorFlow's arguments and result dtypes; what is
not there raises an error that says what to use instead. Names are imported on first
use. The import gives the core's tensors and Variables TensorFlow's attributes, see
`installing`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from toolkit.compat.tensorflow.installing import install

_MODULES = ("keras",)
_DTYPES = (
    *("bfloat16", "complex64", "complex128", "double", "float16", "float32", "float64"),
    *("half", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    "string",
)
_WHERE: dict[str, tuple[str, ...]] = {
    "types": (*_DTYPES, "DType", "TensorShape", "as_dtype"),
    "variables": ("Variable",),
    "modes": ("executing_eagerly",),
}
_HERE = {name: module for module, names in _WHERE.items() for name in names}
_CORE = {
    "GradientTape": "toolkit.tape",
    "Tensor": "toolkit.tensor",
}

__all__ = ["bool", *_HERE, *_CORE, "compat", "keras"]


class _V1(ModuleType):
    """`tf.compat`: TensorFlow 1's names in `v1`, those of 2 in `v2`."""

    def __getattr__(self, name: str) -> Any:
        if name == "v1":
            return import_module("toolkit.compat.tensorflow.v1")
        if name == "v2":
            return sys.modules["toolkit.compat.tensorflow"]
        raise AttributeError(f"module 'tf.compat' has no attribute {name!r}")


def __getattr__(name: str) -> Any:
    if name == "bool":
        value = import_module(f"{__name__}.types").boolean
    elif name == "compat":
        value = _V1("tf.compat")
    elif name in _HERE:
        value = getattr(import_module(f"{__name__}.{_HERE[name]}"), name)
    elif name in _CORE:
        value = getattr(import_module(_CORE[name]), name)
    elif name in _MODULES:
        value = import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(
            f"module 'toolkit.compat.tensorflow' has no attribute {name!r}"
        )
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


install()
