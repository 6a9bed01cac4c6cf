"""Namespaces of a backend whose functions are operations of toolkit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def forward_names(namespace: dict[str, Any], *sources: Any) -> Callable[[str], Any]:
    """Return a module's `__getattr__` that takes each name from the first source.

    The value is stored in the module on first use, so that later uses cost nothing.

    Args:
        namespace: the globals of the module.
        sources: modules of toolkit that define the functions.

    Raises:
        AttributeError: by the returned function, if no source has the name.
    """

    def find(name: str) -> Any:
        for source in sources:
            value = getattr(source, name, None)
            if value is not None and not name.startswith("_"):
                namespace[name] = value
                return value
        raise AttributeError(
            f"module {namespace['__name__']!r} has no attribute {name!r}", name=name
        )

    return find
