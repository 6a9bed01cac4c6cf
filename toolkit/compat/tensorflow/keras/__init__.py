"""`tf.keras`: the names of toolkit, and the modules that only TensorFlow has.

Modules can be imported by their dotted names, as in
`from toolkit.compat.tensorflow.keras.layers import Dense`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import toolkit
from toolkit.errors import UnsupportedError

_OWN = ("backend", "optimizers")
__version__ = toolkit.__version__
__all__ = sorted({*toolkit.__all__, *_OWN} - {"__version__"})


class _Alias(ModuleType):
    """A module of toolkit under its name in `tf.keras`."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_real"], name)

    def __dir__(self) -> list[str]:
        return dir(self._real)


class _Finder:
    """Finds modules of toolkit under their names in `tf.keras`."""

    prefix = f"{__name__}."

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if not name.startswith(self.prefix):
            return None
        try:
            real = import_module("toolkit." + name.removeprefix(self.prefix))
        except ModuleNotFoundError:
            return None
        spec = ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]
        spec.loader_state = real
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        alias = _Alias(spec.name, spec.loader_state.__doc__)
        alias.__dict__["_real"] = spec.loader_state
        return alias

    def exec_module(self, module: ModuleType) -> None:
        """The module of toolkit has run already."""


if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
    sys.meta_path.append(_Finder())  # type: ignore[arg-type]


def __getattr__(name: str) -> Any:
    if name in _OWN:
        return import_module(f"{__name__}.{name}")
    if name in toolkit.__all__:
        return getattr(toolkit, name)
    if name in ("estimator", "experimental"):
        raise UnsupportedError(
            f"tf.keras.{name} is not supported; train with `fit`, or see "
            "toolkit.wrappers for estimators of scikit-learn"
        )
    raise AttributeError(f"module 'tf.keras' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
