"""Custom objects: names that the user permits in configs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from toolkit.errors import ArgumentError
from toolkit.thread_state import ThreadState

T = TypeVar("T")


class _ScopedObjects(ThreadState):
    """Custom objects of the scopes that are open in this thread."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}


_scoped_objects = _ScopedObjects()
_registered_objects: dict[str, Any] = {}
_registered_names: dict[Any, str] = {}


def register_keras_serializable(
    package: str = "Custom", name: str | None = None
) -> Callable[[T], T]:
    """Return a decorator that permits "package>name" in configs.

    Args:
        package: distinguishes objects with the same name.
        name: default: the name of the class.

    Returns:
        A decorator of classes and functions, which returns its argument.

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
        registered_name = name or obj.__name__  # type: ignore[attr-defined]
        if inspect.isclass(obj) and not hasattr(obj, "get_config"):
            raise ArgumentError(
                "Cannot register a class that does not have a get_config() method: "
                f"{registered_name}"
            )
        full_name = f"{package}>{registered_name}"
        _registered_objects[full_name] = obj
        _registered_names[obj] = full_name
        return obj

    return decorate


class custom_object_scope:
    """A context in which configs may name the objects of a dict.

    Args:
        custom_objects: name -> class or function.

    Example:
        >>> import toolkit
        >>> class Doubled(toolkit.layers.Layer):
        ...     def call(self, inputs):
        ...         return 2 * inputs
        ...
        >>> config = {"class_name": "Doubled", "config": {}}
        >>> with toolkit.saving.custom_object_scope({"Doubled": Doubled}):
        ...     layer = toolkit.layers.deserialize(config)
        ...
        >>> type(layer) is Doubled
        True
    """

    def __init__(self, custom_objects: Mapping[str, Any] | None) -> None:
        self.custom_objects: dict[str, Any] = dict(custom_objects or {})

    def __enter__(self) -> custom_object_scope:
        self._outer = _scoped_objects.objects
        _scoped_objects.objects = {**self._outer, **self.custom_objects}
        return self

    def __exit__(self, *exception: object) -> None:
        _scoped_objects.objects = self._outer


CustomObjectScope = custom_object_scope


def get_custom_objects() -> dict[str, Any]:
    """Return the global dict of custom objects, which configs may name.

    Returns:
        A dict from names to classes and functions; changes to it have an effect.

    Example:
        >>> import toolkit
        >>> toolkit.saving.get_custom_objects()["docs>double"] = lambda x: 2 * x
        >>> toolkit.activations.get("docs>double")(3.0)
        6.0
        >>> del toolkit.saving.get_custom_objects()["docs>double"]
    """
    return _registered_objects


def get_registered_name(obj: Any) -> str:
    """Return the registered name of a class or function, or else its `__name__`.

    Args:
        obj: a class or function.

    Returns:
        A name.

    Example:
        >>> import toolkit
        >>> toolkit.saving.get_registered_name(toolkit.layers.Dense)
        'Dense'
    """
    return _registered_names.get(obj) or obj.__name__


def get_registered_object(
    name: str,
    custom_objects: Mapping[str, Any] | None = None,
    module_objects: Mapping[str, Any] | None = None,
) -> Any:
    """Return the custom object with this name, or None.

    The innermost scope is searched first, then the registry, `custom_objects` and
    `module_objects`.

    Args:
        name: a name.
        custom_objects: a dict from names to objects, or None.
        module_objects: a dict from names to objects, or None.

    Returns:
        A class, a function, or None.

    Example:
        >>> import toolkit
        >>> names = {"double": lambda x: 2 * x}
        >>> toolkit.saving.get_registered_object("double", names)(3)
        6
    """
    for source in (
        _scoped_objects.objects,
        _registered_objects,
        custom_objects,
        module_objects,
    ):
        if source and name in source:
            return source[name]
    return None
