"""Logs: loss and metrics by name, copied from the device on demand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from toolkit.backends.pending_copy import PendingCopy
from toolkit.core.fetching import fetch
from toolkit.core.variable import current_value


def flatten_logs(logs: Any) -> dict[str, Any]:
    """Return logs sorted by name, with nested dicts merged."""
    values: dict[str, Any] = {}
    for name, value in sorted((logs or {}).items()):
        values.update(
            flatten_logs(value)
            if isinstance(value, dict)
            else {name: current_value(value)}
        )
    return values


def python_logs(logs: Any) -> dict[str, Any]:
    """Return logs as arrays or numbers, by name; nested dicts are merged."""
    if not logs:
        return {}
    return logs.copy() if isinstance(logs, LazyLogs) else LazyLogs(logs).copy()


class LazyLogs(dict[str, Any]):
    """Dict of logs that converts tensors to numbers on the first read of a value.

    A read waits for the step that computed the value. Callbacks that rarely read values
    therefore do not block the device.

    Args:
        logs: name -> tensor, or any other value.
    """

    def __init__(self, logs: Any) -> None:
        super().__init__(flatten_logs(logs))
        self._is_read = False
        self._pending_copy: PendingCopy | None = None

    def begin(self) -> None:
        """Start to fetch the values, without waiting."""
        if self._pending_copy is None:
            self._pending_copy = fetch(list(dict.values(self)))

    @property
    def is_available(self) -> bool:
        """Return whether the values are available without waiting, after `begin`."""
        return self._pending_copy is not None and self._pending_copy.is_done

    def read(self) -> None:
        """Replace tensors by numbers and arrays."""
        if self._is_read:
            return
        self.begin()
        values = self._pending_copy.get() if self._pending_copy is not None else []
        self._is_read = True
        for name, value in zip(list(self.keys()), values, strict=True):
            is_number = isinstance(value, (np.ndarray, np.generic)) and value.size == 1
            dict.__setitem__(self, name, float(value.item()) if is_number else value)

    def __reduce__(self) -> Any:
        return dict, (self.copy(),)


def _read_before(name: str) -> Callable[..., Any]:
    method = getattr(dict, name)

    def read(self: LazyLogs, *arguments: Any, **named: Any) -> Any:
        self.read()
        return method(self, *arguments, **named)

    read.__name__, read.__doc__ = name, method.__doc__
    return read


# All methods that return values; other methods of a dict return only names.
for _name in (
    *("__eq__", "__getitem__", "__ne__", "__or__", "__ror__", "__repr__"),
    *("copy", "get", "items", "pop", "popitem", "setdefault", "values"),
):
    setattr(LazyLogs, _name, _read_before(_name))


def _names(self: LazyLogs) -> Any:
    return iter(self.keys())


# `dict(logs)` calls `keys` and `[]` of a subclass that defines an iterator.
setattr(LazyLogs, "__iter__", _names)  # noqa: B010 - mypy knows no other way
