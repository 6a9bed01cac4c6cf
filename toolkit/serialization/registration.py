"""Custom objects: what the user lets configs name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from toolkit.errors import ArgumentError
from toolkit.thread_state import ThreadState

T = TypeVar("T")


class _Scoped(ThreadState):
    """The custom objects of the scopes that are open in this thread."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}


_scoped = _Scoped()
_registered: dict[str, Any] = {}
_registered_names: dict[Any, str] = {}


def register_keras_serializable(
    package: str = "Custom", name: str | None = None
) -> Callable[[T], T]:
    """A decorator: let configs name this class or function as "package>name".

    Args:
        package: keeps apart what has the same name.
        name: the class's own name unless given.

    Example:
        >>> from toolkit import losses, serialization
        >>> @serialization.register_keras_serializable("docs")
        ... def absolute(y_true, y_pred):
        ...     return abs(y_true - y_pred)
        >>> serialization.get_registered_name(absolute)
        'docs>absolute'
        >>> losses.get("docs>absolute") is absolute
        True
    """

    def decorate(obj: T) -> T:
        own = name or obj.__name__  # type: ignore[attr-defined]
        if inspect.isclass(obj) and not hasattr(obj, "get_config"):
            raise ArgumentError(
                "Cannot register a class that does not have a get_config() method: "
                f"{own}"
            )
        full = f"{package}>{own}"
        _registered[full] = obj
        _registered_names[obj] = full
        return obj

    return decorate


class custom_object_scope:
    """A context in which configs may name the objects of a dict.

    Args:
        custom_objects: name -> class or function.
    """

    def __init__(self, custom_objects: Mapping[str, Any] | None) -> None:
        self.custom_objects: dict[str, Any] = dict(custom_objects or {})

    def __enter__(self) -> custom_object_scope:
        self._outer = _scoped.objects
        _scoped.objects = {**self._outer, **self.custom_objects}
        return self

    def __exit__(self, *exception: object) -> None:
        _scoped.objects = self._outer


CustomObjectScope = custom_object_scope


def get_custom_objects() -> dict[str, Any]:
    """The global dict of custom objects; what is added can be named in configs."""
    return _registered


def get_registered_name(obj: Any) -> str:
    """The name that a class or function was registered under, else its own name."""
    return _registered_names.get(obj) or obj.__name__


def get_registered_object(
    name: str,
    custom_objects: Mapping[str, Any] | None = None,
    module_objects: Mapping[str, Any] | None = None,
) -> Any:
    """The custom object of this name, or None.

    The innermost scope is asked first, then what is registered, `custom_objects` and
    `module_objects`.
    """
    for source in (_scoped.objects, _registered, custom_objects, module_objects):
        if source and name in source:
            return source[name]
    return None
