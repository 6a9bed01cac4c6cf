"""Import of modules under a second name, and of namespaces as modules.

`from toolkit.compat.tensorflow.train import Example` imports `tf.train.Example`.
`tensorflow.python.keras`, a private name of `tf.keras` in some scripts, also works.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import reduce
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_PACKAGE = __name__.rpartition(".")[0]
_NAMESPACES = frozenset(
    "autodiff bitwise config.experimental dtypes errors io.gfile math.special nest "
    "train version".split()
)
_PRIVATE = "python"  # only `keras` of this package of TensorFlow exists


class Alias(ModuleType):
    """A module with the names of another object.

    Args:
        name: of the module.
        real: the object.
    """

    def __init__(self, name: str, real: Any) -> None:
        super().__init__(name, getattr(real, "__doc__", None))
        self.__dict__["_real"] = real
        # an empty path: the files of the real package must not run again
        self.__path__ = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_real"], name)

    def __dir__(self) -> list[str]:
        return dir(self.__dict__["_real"])


class AliasFinder(MetaPathFinder, Loader):
    """Import finder for aliases inside a package.

    Args:
        package: its name.
        real_of: from a name inside it to the real object, or None.
        alias: creates the module from a name and an object.
    """

    def __init__(
        self,
        package: str,
        real_of: Callable[[str], Any],
        alias: Callable[[str, Any], ModuleType] = Alias,
    ) -> None:
        self._prefix = f"{package}."
        self._real_of, self._alias = real_of, alias

    def find_spec(
        self, name: str, path: Any, target: object = None
    ) -> ModuleSpec | None:
        """Return the spec of an alias; `path` and `target` have no effect."""
        if not name.startswith(self._prefix):
            return None
        real = self._real_of(name.removeprefix(self._prefix))
        if real is None:
            return None
        spec = ModuleSpec(name, self, is_package=True)
        spec.loader_state = real
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._alias(spec.name, spec.loader_state)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the real module has already run."""

    def install(self) -> None:
        """Register the finder, unless an equal finder is registered."""
        prefixes = (getattr(finder, "_prefix", None) for finder in sys.meta_path)
        if self._prefix not in prefixes:
            sys.meta_path.append(self)


class _Private:
    """`tensorflow.python`."""

    @property
    def keras(self) -> Any:
        return import_module(f"{_PACKAGE}.keras")


def _find_real(name: str) -> Any:
    """Return the real object of a name in the package, or None."""
    if name in _NAMESPACES:
        return reduce(getattr, name.split("."), sys.modules[_PACKAGE])
    if name == _PRIVATE:
        return _Private()
    if f"{name}.".startswith(f"{_PRIVATE}.keras."):
        return import_module(f"{_PACKAGE}.{name.removeprefix(f'{_PRIVATE}.')}")
    return None


def install() -> None:
    """Register the finder of these modules."""
    AliasFinder(_PACKAGE, _find_real).install()
