"""Registry of backends by name."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import Any

from toolkit.backends.base import Backend
from toolkit.backends.memory import device_memories, memory_of
from toolkit.definitions.namespaces import import_location
from toolkit.errors import unknown_choice

Factory = Callable[[], Backend]

ENTRY_POINT_GROUP = "toolkit.backends"

_factories: dict[str, Factory | str] = {
    "numpy": "toolkit.backends.numpy:create",
    "reference": "toolkit.backends.reference:create",
    "cupy": "toolkit.backends.cupy:create",
}
_backends: dict[str, Backend] = {}
_creating = RLock()


def register_backend(name: str, factory: Factory | str) -> None:
    """Register a backend under `name`; a later registration replaces an earlier one.

    Args:
        name: the argument of `toolkit.config.set_backend`.
        factory: a function that returns the `Backend`, or "module:function"; the
            registry calls it once, at the first use of the backend.

    Example:
        >>> import toolkit
        >>> toolkit.register_backend("mine", "my_package:backend")  # doctest: +SKIP
    """
    _factories[name] = factory
    replaced = _backends.pop(name, None)
    if replaced is not None and replaced.memory in device_memories:
        device_memories.remove(replaced.memory)


def get_backend(name: str) -> Backend:
    """Return the backend of that name, created on first use.

    Args:
        name: a registered name; "name:1" is the backend of the second device, whose
            factory is called with that number.

    Raises:
        ArgumentError: no backend of that name is registered or installed.
    """
    if name not in _backends:
        with _creating:  # two backends of one GPU would not synchronize
            if name not in _backends:
                _backends[name] = _create(name)
    return _backends[name]


def owner_of(array: Any) -> Backend | None:
    """Return the backend whose memory holds an array; None for the host's memory."""
    memory = memory_of(array)
    if memory is None:
        return None
    return next(b for b in _backends.values() if b.memory is memory)


def _create(name: str) -> Backend:
    prefix, _, number = name.partition(":")
    if prefix not in _factories:
        _find_installed()
    if prefix not in _factories:
        raise unknown_choice("backend", name, _factories)
    factory: Callable[..., Backend] = _load(_factories[prefix])
    created = factory(int(number)) if number else factory()
    created.key = name
    if created.is_accelerator:
        device_memories.append(created.memory)
    return created


def describe_backends() -> dict[str, dict[str, Any]]:
    """Return the `describe` result of each registered backend, or its error."""
    facts: dict[str, dict[str, Any]] = {}
    for name in _factories:
        try:
            facts[name] = get_backend(name).describe()
        except (ImportError, OSError, RuntimeError) as error:
            facts[name] = {"unavailable": str(error)}
    return facts


def _find_installed() -> None:
    """Register the backends of installed distributions."""
    from importlib.metadata import entry_points  # slow to import, and rarely needed

    for point in entry_points(group=ENTRY_POINT_GROUP):
        _factories.setdefault(point.name, point.value)


def _load(factory: Factory | str) -> Factory:
    if not isinstance(factory, str):
        return factory
    loaded: Factory = import_location(factory)
    return loaded
