"""Traced methods of instances."""

from __future__ import annotations

from typing import Any

from toolkit.errors import ArgumentError


class Methods(dict[Any, Any]):
    """Traced methods of an instance; a copy of the instance starts with none."""

    owner: Any = None

    def __reduce__(self) -> Any:
        return Methods, ()


def methods_of(instance: Any) -> Methods:
    """Return the traced methods of an instance, by the function of its class.

    Raises:
        ArgumentError: the instance cannot store them.
    """
    members = getattr(instance, "__dict__", None)
    if members is None:
        raise ArgumentError(
            f"function: a method of {type(instance).__name__} cannot be traced, "
            "because its instances have only __slots__ and cannot store traces"
        )
    methods = members.get("_traced_methods")
    if methods is None or methods.owner is not instance:
        methods = members["_traced_methods"] = Methods()
        methods.owner = instance
    return methods
