"""Automatic names (`dense`, `dense_1`, ...) and the scopes that make paths."""

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
    caller: Any = None  # who opened the innermost one


scopes: _Scopes = _Scopes()


def to_snake_case(name: str) -> str:
    """`BatchNormalization` -> `batch_normalization`, `Conv2D` -> `conv2d`."""
    name = re.sub(r"\W+", "", name)
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def auto_name(prefix: str) -> str:
    """The next unused name with this prefix: the bare prefix first, then _1, _2."""
    prefix = to_snake_case(prefix)
    count = _counts[prefix]
    _counts[prefix] += 1
    return f"{prefix}_{count}" if count else prefix


def unique_number(prefix: str) -> int:
    """1 at the first call with this prefix, then 2, 3: apart from automatic names."""
    _numbers[prefix] += 1
    return _numbers[prefix]


def reset_names() -> None:
    """Start all automatic names and numbers anew."""
    _counts.clear()
    _numbers.clear()


class name_scope:
    """A scope that puts `name` in front of the paths of all that is created inside.

    Args:
        name: a string without "/".
        caller: the object that opens the scope.
        deduplicate: whether a scope of the same name inside, by the same caller, adds
            nothing.
        override_parent: a path to use instead of that of the scopes around.

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
        again = self.caller is not None and caller == self.caller
        if not (self.deduplicate and again and names[-1:] == (self.name,)):
            if self.override_parent is not None:
                names = tuple(filter(None, self.override_parent.split("/")))
            scopes.names = (*names, self.name)
        scopes.caller = self.caller
        return self

    def __exit__(self, *exception: object) -> None:
        scopes.names, scopes.caller = self._outer


def root_scope(names: tuple[str, ...] = ()) -> AbstractContextManager[None]:
    """Replace the whole scope, to build a layer under its own path."""
    return scopes.inside(names=names)


def current_path(name: str = "") -> str:
    """`name` under the scopes that are open: `model/dense/kernel`."""
    return "/".join((*scopes.names, name) if name else scopes.names)


@contextmanager
def keep_counts() -> Iterator[None]:
    """Forget the automatic names that are given inside: they may be given again."""
    outer = _counts.copy()
    try:
        yield
    finally:
        _counts.clear()
        _counts.update(outer)
