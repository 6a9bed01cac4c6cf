"""Public names of the package, and the methods that the API reference lists."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MemberDescriptorType, ModuleType
from typing import Any

from api_groups import TITLES

# --- public names ---------------------------------------------------------------------


def public_namespaces() -> list[str]:
    """Return the public modules of the package: all that a public module exports."""
    queue, namespaces = ["toolkit"], []
    while queue:
        namespace = queue.pop(0)
        namespaces.append(namespace)
        queue += [
            f"{namespace}.{name}"
            for name, value in exports(namespace).items()
            if inspect.ismodule(value)
        ]
    return namespaces


@cache
def exports(namespace: str) -> dict[str, Any]:
    """Return the values that a namespace exports, by name."""
    module = import_module(namespace)
    names = getattr(module, "__all__", None)
    if names is None:
        imported = set(_imports_from_elsewhere(module))
        names = [name for name in dir(module) if name not in imported]
    values = {n: getattr(module, n) for n in sorted(names) if not n.startswith("_")}
    is_listed = hasattr(module, "__all__")
    return {n: v for n, v in values.items() if is_listed or _is_own(module, n, v)}


def _is_own(module: ModuleType, name: str, value: Any) -> bool:
    """Return whether a name without `__all__` is a class, function or namespace."""
    if inspect.ismodule(value):
        return name in dict(_imports(module))
    if module.__name__ == "toolkit.errors" and not inspect.isclass(value):
        return False  # functions that write messages
    home = getattr(value, "__module__", None) or ""
    is_object = inspect.isclass(value) or inspect.isroutine(value)
    return is_object and home.startswith("toolkit")


def _imports_from_elsewhere(module: ModuleType) -> Iterator[str]:
    """Yield names that a module imports from other packages without a re-export."""
    for name, (home, is_reexport) in _imports(module):
        if not is_reexport and not home.startswith(module.__name__):
            yield name


def _imports(module: ModuleType) -> Iterator[tuple[str, tuple[str, bool]]]:
    """Yield the names that a module imports: the source, and whether `x as x`."""
    if not getattr(module, "__file__", None):  # a namespace that is no file
        return
    tree = ast.parse(Path(module.__file__ or "").read_text("utf-8"))
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            home = getattr(node, "module", None) or ""
            for alias in node.names:
                yield alias.asname or alias.name, (home, alias.asname == alias.name)


@cache
def entries() -> dict[str, list[str]]:
    """Return the full name of each object with an entry, and its other names."""
    names: dict[int, str] = {}
    aliases: dict[str, list[str]] = {}
    for namespace in sorted(public_namespaces(), key=_priority):
        values = exports(namespace)
        for name in sorted(values, key=lambda n: not _has_name(values[n], n)):
            full_name, value = f"{namespace}.{name}", values[name]
            if inspect.ismodule(value):
                continue
            is_shared = inspect.isclass(value) or inspect.isroutine(value)
            key = id(value) if is_shared else hash(full_name)
            if key in names:
                aliases[names[key]].append(full_name)
            else:
                names[key] = full_name
                aliases[full_name] = []
    return aliases


def _has_name(value: Any, name: str) -> bool:
    return bool(getattr(value, "__name__", None) == name)


def _priority(namespace: str) -> tuple[bool, int, int]:
    """Return the order in which namespaces receive the entry of a shared object."""
    known = [*TITLES]
    order = known.index(namespace) if namespace in known else len(known)
    return namespace == "toolkit", order, namespace.count(".")


@cache
def entry_of() -> dict[str, str]:
    """Return the name of the entry for each full public name."""
    pairs = {alias: name for name, aliases in entries().items() for alias in aliases}
    return pairs | {name: name for name in entries()}


def value_of(full_name: str) -> Any:
    """Return the object of a full name."""
    namespace, _, name = full_name.rpartition(".")
    return getattr(import_module(namespace), name)


def compat_namespaces() -> dict[str, str]:
    """Return the modules with names of TensorFlow, by their names there."""
    root = import_module("toolkit.compat.tensorflow")
    names = [name for name in sorted(root.__all__) if name not in root.INSTEAD]
    modules = {name: getattr(root, name) for name in names}
    nested = {
        f"tf.{name}": module.__name__
        for name, module in modules.items()
        if inspect.ismodule(module) and module.__name__ == f"{root.__name__}.{name}"
    }
    return {"tf": root.__name__, **nested}


def compat_names(namespace: str) -> dict[str, Any]:
    """Return the classes and functions of a module of names of TensorFlow."""
    return {
        name: value
        for name, value in exports(namespace).items()
        if inspect.isclass(value) or inspect.isroutine(value)
    }


# --- members of classes ---------------------------------------------------------------


@cache
def documented_classes() -> dict[type, str]:
    """Return the classes that have an entry, and the names of the entries.

    An internal base of several public classes has one if it defines public methods.
    They then do not appear in the entry of each class.
    """
    exported = {value_of(name): name for name in entries() if _is_class(name)}
    bases = {base: f"{base.__module__}.{base.__name__}" for base in shared_bases()}
    classes = {**exported, **bases}
    return {c: n for c, n in classes.items() if c in exported or members(c, classes)}


@cache
def shared_bases() -> dict[type, str]:
    """Return the internal bases of several public classes, and the first such class."""
    exported = {value_of(name): name for name in entries() if _is_class(name)}
    users: dict[type, list[str]] = {}
    for cls, name in exported.items():
        bases = cls.__mro__[1:]
        reached = {b for base in bases if base in exported for b in base.__mro__}
        for base in bases:
            is_internal = base.__module__.startswith("toolkit") and base not in reached
            if is_internal and not base.__name__.startswith("_"):
                users.setdefault(base, []).append(name)
    return {base: names[0] for base, names in users.items() if len(names) > 1}


def _is_class(full_name: str) -> bool:
    return inspect.isclass(value_of(full_name))


def documented_bases(cls: type) -> list[type]:
    """Return the nearest bases of a class that have an entry."""
    bases: list[type] = []
    for base in cls.__bases__:
        bases += [base] if base in documented_classes() else documented_bases(base)
    return list(dict.fromkeys(bases))


def members(cls: type, documented: Iterable[type] | None = None) -> list[str]:
    """Return the public methods and properties that the entry of a class lists.

    A method that is equal to the method of a documented base has its entry there, and
    so has a method without a docstring that overrides one. The entry of an internal
    base has no methods from the bases of other public classes.
    """
    classes = documented_classes() if documented is None else documented
    bases = [base for base in cls.__mro__[1:] if base in classes]
    if cls in shared_bases():
        others = [c for c in classes if c not in shared_bases()]
        bases += [c for c in others if not issubclass(c, cls) and _is_relative(c, cls)]
    return [name for name in public_members(cls) if not _is_inherited(cls, name, bases)]


def _is_relative(cls: type, other: type) -> bool:
    """Return whether two classes have a base in the package."""
    shared = set(cls.__mro__) & set(other.__mro__)
    return any(base.__module__.startswith("toolkit") for base in shared)


def public_members(cls: type) -> list[str]:
    """Return the public methods and properties of a class, bases included."""
    names = dict.fromkeys(name for base in reversed(cls.__mro__) for name in vars(base))
    return [name for name in names if _is_member(cls, name)]


def _is_member(cls: type, name: str) -> bool:
    owner = next(base for base in cls.__mro__ if name in vars(base))
    value = vars(owner)[name]
    is_public = not name.startswith("_") or (name == "__call__" and docstring_of(value))
    if not is_public or not owner.__module__.startswith("toolkit"):
        return False
    if not hasattr(cls, name):  # a name of another library, whose error has a hint
        return False
    home = getattr(value, "__module__", None) or "toolkit"
    is_slot = isinstance(value, MemberDescriptorType) or inspect.isclass(value)
    return hasattr(value, "__get__") and home.startswith("toolkit") and not is_slot


def _is_inherited(cls: type, name: str, bases: list[type]) -> bool:
    value = inspect.getattr_static(cls, name)
    for base in bases:
        inherited = inspect.getattr_static(base, name, None)
        if inherited is value or (inherited is not None and not docstring_of(value)):
            return True
    return False


def docstring_of(value: Any) -> str:
    """Return the docstring of a method or property itself, not of a base."""
    function = getattr(value, "__func__", value)
    return getattr(function, "__doc__", None) or ""
