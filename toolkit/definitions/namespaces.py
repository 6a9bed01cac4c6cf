"""Namespaces that import some of their names on first use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import import_module
from types import ModuleType, UnionType
from typing import Any

from toolkit.definitions import foreign_names, hints


def lazy_namespace(
    namespace: str, homes: Mapping[str, Iterable[str]], modules: Iterable[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the functions `__getattr__` and `__dir__` of a module.

    Args:
        namespace: the name of the module.
        homes: modules, each with the names that it defines; a module inside the
            namespace starts with a dot.
        modules: submodules that are also imported on first use.
    """
    module_of = {name: module for module, names in homes.items() for name in names}
    submodules = {name: f"{namespace}.{name}" for name in modules}

    def find(name: str) -> Any:
        if name in submodules:
            return import_module(submodules[name])
        if name not in module_of:
            raise missing_name(namespace, name, listed)
        value = getattr(import_module(module_of[name], namespace), name)
        vars(sys.modules[namespace])[name] = value
        return value

    def listed() -> list[str]:
        names = {*public_names(namespace), *module_of, *submodules}
        return sorted(names)

    return find, listed


class MissingName:
    """Message of the AttributeError for a name that a module does not define.

    It is composed when it is read, because `hasattr` reads no message.

    Args:
        namespace: the name of the module.
        name: the missing name.
        names: a function that returns the names of the module.
    """

    def __init__(
        self, namespace: str, name: str, names: Callable[[], Iterable[str]]
    ) -> None:
        self._namespace, self._name, self._names = namespace, name, names

    def __str__(self) -> str:
        text = f"module {self._namespace!r} has no attribute {self._name!r}"
        match = foreign_names.MODULES.get(self._namespace, {}).get(self._name)
        if match is not None:
            return f"{text}; did you mean toolkit.{match}?"
        matches = map(repr, hints.closest(self._name, self._names()))
        suggestion = " or ".join(matches)
        return f"{text}; did you mean {suggestion}?" if suggestion else text

    def __repr__(self) -> str:
        return repr(str(self))

    def __reduce__(self) -> tuple[object, ...]:
        return str, (str(self),)


def missing_name(
    namespace: str, name: str, names: Callable[[], Iterable[str]]
) -> AttributeError:
    """Return the error for a name that a module does not define."""
    # Without an object, Python does not add another suggestion.
    return AttributeError(MissingName(namespace, name, names), name=name, obj=None)


def module_dir(namespace: str, aliases: Iterable[str] = ()) -> Callable[[], list[str]]:
    """Return the function `__dir__` of a public module.

    Args:
        namespace: the name of the module.
        aliases: names that its `__getattr__` finds.
    """
    return lambda: sorted({*public_names(namespace), *aliases})


def public_names(namespace: str) -> list[str]:
    """Return the names of a module, without imports from other packages."""
    package = namespace.partition(".")[0]

    def is_own(value: Any) -> bool:
        if isinstance(value, UnionType):  # a type alias
            return False
        is_module = isinstance(value, ModuleType)
        home = value.__name__ if is_module else getattr(value, "__module__", package)
        return str(home).partition(".")[0] == package

    return [
        name
        for name, value in vars(sys.modules[namespace]).items()
        if name.startswith("__") or (is_own(value) and name not in _HELPERS)
    ]


_HELPERS = ("lazy_namespace", "missing_name", "module_dir")


@cache
def import_location(location: str, package: str = "") -> Any:
    """Return an object by its location, "module:name".

    Args:
        location: the module and the name.
        package: the package of the module; "" for a full name.
    """
    module, _, name = location.partition(":")
    return getattr(import_module(f"{package}.{module}" if package else module), name)
