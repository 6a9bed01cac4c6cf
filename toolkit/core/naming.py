"""Automatic names (`dense`, `dense_1`, ...) and the scopes of paths."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from toolkit.errors import ArgumentError
from toolkit.thread_state import ThreadState

_counts: Counter[str] = Counter()
_numbers: Counter[str] = Counter()


class _Scopes(ThreadState):
    names: tuple[str, ...] = ()
    caller: Any = None  # the object that opened the innermost scope


scopes: _Scopes = _Scopes()


def to_snake_case(name: str) -> str:
    """Convert `BatchNormalization` to `batch_normalization`, `Conv2D` to `conv2d`."""
    name = re.sub(r"\W+", "", name)
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def auto_name(prefix: str) -> str:
    """Return the next unused name for a prefix: the bare prefix, then _1, _2."""
    prefix = to_snake_case(prefix)
    count = _counts[prefix]
    _counts[prefix] += 1
    return f"{prefix}_{count}" if count else prefix


def unique_number(prefix: str) -> int:
    """Return 1, 2, 3 at successive calls with a prefix; independent of names."""
    _numbers[prefix] += 1
    return _numbers[prefix]


def reset_names() -> None:
    """Reset all automatic names and numbers."""
    _counts.clear()
    _numbers.clear()


class name_scope:
    """Scope that adds `name` to the front of the paths of all objects created in it.

    Args:
        name: a string without "/".
        caller: the object that opens the scope.
        deduplicate: whether a nested scope with the same name and caller adds nothing.
        override_parent: a path to use instead of the path of the enclosing scopes.

    Example:
        >>> import toolkit
        >>> with toolkit.name_scope("encoder"):
        ...     toolkit.Variable(1.0, name="v").path
        'encoder/v'
    """

    def __init__(
        self,
        name: str,
        caller: Any = None,
        deduplicate: bool = True,
        override_parent: str | None = None,
    ) -> None:
        if not isinstance(name, str) or "/" in name:
            raise ArgumentError(
                "name_scope: `name` must be a string and cannot contain character `/`; "
                f"received {name!r}"
            )
        self.name: str = name
        self.caller: Any = caller
        self.deduplicate: bool = deduplicate
        self.override_parent = override_parent

    def __enter__(self) -> name_scope:
        names, caller = self._outer = scopes.names, scopes.caller
        is_repeated = self.caller is not None and caller == self.caller
        if not (self.deduplicate and is_repeated and names[-1:] == (self.name,)):
            if self.override_parent is not None:
                names = tuple(filter(None, self.override_parent.split("/")))
            scopes.names = (*names, self.name)
        scopes.caller = self.caller
        return self

    def __exit__(self, *exception: object) -> None:
        scopes.names, scopes.caller = self._outer


def root_scope(names: tuple[str, ...] = ()) -> AbstractContextManager[None]:
    """Replace the whole scope, to build a layer under its own path."""
    return scopes.override(names=names)


def current_path(name: str = "") -> str:
    """Return `name` in the current scopes: `model/dense/kernel`."""
    return "/".join((*scopes.names, name) if name else scopes.names)


@contextmanager
def restore_counts() -> Iterator[None]:
    """Restore the counters of automatic names on exit, to use the names again."""
    outer = _counts.copy()
    try:
        yield
    finally:
        _counts.clear()
        _counts.update(outer)
