"""Modules of TensorFlow that are namespaces here, or have a second name, to import.

`from toolkit.compat.tensorflow.train import Example` finds what `tf.train.Example` is,
and so does `tensorflow.python.keras`, a private name of `tf.keras` that scripts use.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import reduce
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_PACKAGE = __name__.rpartition(".")[0]
_NAMESPACES = frozenset(
    "autodiff bitwise config.experimental dtypes errors io.gfile nest test train "
    "version".split()
)
_PRIVATE = "python"  # the package of TensorFlow whose `keras` is found, and no more


class _Alias(ModuleType):
    """A module whose names are those of another object."""

    def __getattr__(self, name: str) -> Any:
        if name == "__path__":
            raise AttributeError(name)
        return getattr(self.__dict__["_real"], name)

    def __dir__(self) -> list[str]:
        return dir(self.__dict__["_real"])


class _Private(ModuleType):
    """`tensorflow.python`."""

    def __getattr__(self, name: str) -> Any:
        if name == "keras":
            return import_module(f"{_PACKAGE}.keras")
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


class _Finder(MetaPathFinder, Loader):
    """Finds these modules."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        own = name.removeprefix(f"{_PACKAGE}.")
        is_keras = own == f"{_PRIVATE}.keras" or own.startswith(f"{_PRIVATE}.keras.")
        if own == name or not (is_keras or own in (*_NAMESPACES, _PRIVATE)):
            return None
        return ModuleSpec(name, self, is_package=is_keras or own == _PRIVATE)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        own = spec.name.removeprefix(f"{_PACKAGE}.")
        if own == _PRIVATE:
            return _Private(spec.name)
        if own in _NAMESPACES:
            real = reduce(getattr, own.split("."), sys.modules[_PACKAGE])
        else:
            real = import_module(f"{_PACKAGE}.{own.removeprefix(f'{_PRIVATE}.')}")
        alias = _Alias(spec.name, getattr(real, "__doc__", None))
        alias.__dict__["_real"] = real
        return alias

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""


def install() -> None:
    """Let these modules be found."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
