"""Cached walks over the state of layers, valid until that state changes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from functools import partial, wraps
from operator import is_
from typing import Any, TypeVar

from toolkit.layers.containers import CONTAINERS, items_of
from toolkit.thread_state import ThreadState

T = TypeVar("T")

# No two changes get the same version, in any owner and thread. So a version that an
# owner had before never returns.
_next_version: Callable[[], int] = itertools.count(1).__next__


class _Changes:
    """The version of the last change of any owner: if it is the same, none changed."""

    last_version = 0
    last_revision = 0  # includes the attributes that no walk reads


_changes = _Changes()


class Owner:
    """Base class of objects whose state walks read."""

    _owned: list[Any]  # attributes that hold or can hold state
    _version = 0  # a change of the state, or of what compiled steps read, replaces it
    _revision = 0  # a change of any attribute replaces it
    _walks: WalkCache

    def _mark_changed(self) -> None:
        """Invalidate the walks that have read this owner; call it after the change."""
        version = self.__dict__["_version"] = _next_version()
        _changes.last_version = version  # after the owner's: a reader compares it first
        self._mark_revised()

    def _mark_revised(self) -> None:
        """Note a change of an attribute or of a container, of any kind."""
        revision = self.__dict__["_revision"] = _next_version()
        _changes.last_revision = revision


def last_revision() -> int:
    """Return a number that is different after each change of an owner's attribute."""
    return _changes.last_revision


class _Active(ThreadState):
    walk: Walk | None = None  # the walk that records the owners that are read


_active = _Active()


class Walk:
    """Result of a walk over owners, and the versions of all owners that it read.

    A container can change without a report to its owner, so its items are recorded too.

    Args:
        find: a function that computes the result.
    """

    def __init__(self, find: Callable[[], list[Any]]) -> None:
        self._owners: dict[int, tuple[Owner, int]] = {}
        self._contents: dict[int, tuple[Any, list[Any]]] = {}
        self._last_version = _changes.last_version  # before the first read
        with _active.override(walk=self):
            self.result = find()

    def is_valid(self) -> bool:
        """Return whether no owner or container has changed since the walk."""
        last_version = _changes.last_version
        if last_version != self._last_version:
            for owner, version in self._owners.values():
                if owner._version != version:
                    return False
            self._last_version = last_version
        for container, content in self._contents.values():
            if len(container) != len(content):
                return False
            if not all(map(is_, items_of(container), content)):
                return False
        return True

    def _add(self, owner: Owner) -> None:
        if (key := id(owner)) not in self._owners:
            # The version before the state: a change in between invalidates the walk.
            self._owners[key] = owner, owner._version
            self._add_containers(owner._owned)

    def _add_containers(self, values: Iterable[Any]) -> None:
        contents = self._contents
        for value in values:
            if isinstance(value, CONTAINERS) and (key := id(value)) not in contents:
                contents[key] = value, list(items_of(value))
                self._add_containers(contents[key][1])


def record_read(owner: Owner) -> None:
    """Let the active walk depend on an owner whose state is read next."""
    if _active.walk is not None:
        _active.walk._add(owner)


class WalkCache(dict[str, Walk]):
    """The last walks of one owner, by method. Copies and pickles are empty."""

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return type(self), ()


def cache_walk(find: Callable[[Any], list[T]]) -> Callable[[Any], list[T]]:
    """Cache a method that walks over all state; changes invalidate the result."""
    name = find.__name__

    @wraps(find)
    def wrapper(self: Any) -> list[T]:
        if _active.walk is not None:
            return find(self)  # a part of the active walk
        walk = self._walks.get(name)
        if walk is None or not walk.is_valid():
            walk = self._walks[name] = Walk(partial(find, self))
        return list(walk.result)

    return wrapper
