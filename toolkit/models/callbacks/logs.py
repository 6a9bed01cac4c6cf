"""Logs: loss and metrics by name, read from where they were computed when needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from toolkit.backends.pending_copy import PendingCopy
from toolkit.core.tensor import fetch
from toolkit.core.variable import current_value


def flat(logs: Any) -> dict[str, Any]:
    """Logs sorted by name, with those of nested dicts among them."""
    found: dict[str, Any] = {}
    for name, value in sorted((logs or {}).items()):
        found.update(
            flat(value) if isinstance(value, dict) else {name: current_value(value)}
        )
    return found


def python_logs(logs: Any) -> dict[str, Any]:
    """Logs with arrays or numbers for tensors, by name; nested dicts are merged."""
    if not logs:
        return {}
    return logs.copy() if isinstance(logs, LazyLogs) else LazyLogs(logs).copy()


class LazyLogs(dict[str, Any]):
    """A dict of logs that become numbers when someone reads a value.

    To read one waits for the step that computed it, so callbacks that do not, or only
    now and then, let a device go on.

    Args:
        logs: name -> tensor, or anything else.
    """

    def __init__(self, logs: Any) -> None:
        super().__init__(flat(logs))
        self._is_read = False
        self._coming: PendingCopy | None = None

    def begin(self) -> None:
        """Begin to fetch the values, without waiting for them."""
        if self._coming is None:
            self._coming = fetch(list(dict.values(self)))

    @property
    def is_here(self) -> bool:
        """Whether the values can be read without waiting, as `begin` makes them be."""
        return self._coming is not None and self._coming.is_done

    def read(self) -> None:
        """Put numbers, and arrays, in the place of tensors."""
        if self._is_read:
            return
        self.begin()
        found = self._coming.get() if self._coming is not None else []
        self._is_read = True
        for name, value in zip(list(self.keys()), found, strict=True):
            is_number = isinstance(value, (np.ndarray, np.generic)) and value.size == 1
            dict.__setitem__(self, name, float(value.item()) if is_number else value)

    def __reduce__(self) -> Any:
        return dict, (self.copy(),)


def _reading(name: str) -> Callable[..., Any]:
    method = getattr(dict, name)

    def read(self: LazyLogs, *arguments: Any, **named: Any) -> Any:
        self.read()
        return method(self, *arguments, **named)

    read.__name__, read.__doc__ = name, method.__doc__
    return read


# All that tells values; the rest of a dict tells names.
for _name in (
    *("__eq__", "__getitem__", "__ne__", "__or__", "__ror__", "__repr__"),
    *("copy", "get", "items", "pop", "popitem", "setdefault", "values"),
):
    setattr(LazyLogs, _name, _reading(_name))


def _names(self: LazyLogs) -> Any:
    return iter(self.keys())


# `dict(logs)` asks `keys` and `[]` of a subclass that has an iterator of its own.
setattr(LazyLogs, "__iter__", _names)  # noqa: B010 - mypy knows no other way
