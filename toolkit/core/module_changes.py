"""Notes of replaced functions in the modules of this package.

A replay runs no Python code, so it cannot see that a user has replaced a function, for
example `toolkit.ops.tanh`. An assignment to a module reports it. A change of the
dictionary of a module stays unseen.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType

from toolkit import settings
from toolkit.console.frames import is_package_function

_PACKAGE = __name__.partition(".")[0]
# The replaced functions: the names of the module and of the attribute.
_foreign: set[tuple[str, str]] = set()
# The values before the first replacement. Some are functions of other packages.
_originals: dict[tuple[str, str], object] = {}
_num_modules = 0


class _ObservedModule(ModuleType):
    """Module that reports the replacement of a function."""

    def __reduce__(self) -> tuple[Callable[[str], ModuleType], tuple[str]]:
        return import_module, (self.__name__,)

    def __setattr__(self, name: str, value: object) -> None:
        old = vars(self).get(name)
        super().__setattr__(name, value)
        if callable(old) and old is not value:
            _report(self.__name__, name, old, value)

    def __delattr__(self, name: str) -> None:
        old = vars(self).get(name)
        super().__delattr__(name)
        if callable(old):
            _report(self.__name__, name, old, None)


def _report(module: str, name: str, old: object, value: object) -> None:
    key = module, name
    if value is _originals.setdefault(key, old) or not _is_foreign(value):
        _foreign.discard(key)
    else:
        _foreign.add(key)
    settings.report_change()


def _is_foreign(value: object) -> bool:
    """Return whether a value is code of the user."""
    if isinstance(value, type):
        return value.__module__.partition(".")[0] != _PACKAGE
    return callable(value) and not is_package_function(value)


def observe_modules() -> None:
    """Observe all loaded modules of this package."""
    global _num_modules
    if len(sys.modules) == _num_modules:
        return
    _num_modules = len(sys.modules)
    for name, module in list(sys.modules.items()):
        if type(module) is ModuleType and name.partition(".")[0] == _PACKAGE:
            module.__class__ = _ObservedModule


def has_foreign_functions() -> bool:
    """Return whether code of the user replaces a function of this package."""
    return bool(_foreign)
