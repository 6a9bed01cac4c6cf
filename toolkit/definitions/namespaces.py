"""Namespaces that import some of their names on first use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import import_module
from typing import Any


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
            raise AttributeError(
                f"module {namespace!r} has no attribute {name!r}",
                name=name,  # with these, Python suggests a similar name
                obj=sys.modules[namespace],
            )
        value = getattr(import_module(module_of[name], namespace), name)
        vars(sys.modules[namespace])[name] = value
        return value

    def listed() -> list[str]:
        names = {*vars(sys.modules[namespace]), *module_of, *submodules}
        return sorted(names - {lazy_namespace.__name__})

    return find, listed


@cache
def import_location(location: str, package: str = "") -> Any:
    """Return an object by its location, "module:name".

    Args:
        location: the module and the name.
        package: the package of the module; "" for a full name.
    """
    module, _, name = location.partition(":")
    return getattr(import_module(f"{package}.{module}" if package else module), name)
