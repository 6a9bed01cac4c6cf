"""Lists, dicts and sets in attributes of layers that report changes to their owner.

A layer's state is in the order of assignment, over all attributes, as in Keras. So
weights have the same order in both, in memory and in files.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Collection, Iterable
from typing import Any

CONTAINERS = (list, tuple, set, frozenset, dict)


def items_of(container: Any) -> Collection[Any]:
    """Return the items of a container, or the values of a dict."""
    return container.values() if isinstance(container, dict) else container


class ArrivalOrder:
    """Ordered collection of weak references, by identity, in order of arrival.

    A removed object keeps its position in case it is added again, unless it is
    forgotten. No object is kept alive.
    """

    def __init__(self, entries: Iterable[tuple[Any, bool]] = ()) -> None:
        # Keys are ids; the boolean is whether the object was trainable on arrival.
        self._entries: dict[int, tuple[weakref.ref[Any], bool]] = {}
        for value, trainable in entries:
            self._entries[id(value)] = weakref.ref(value), trainable

    def add(self, value: Any) -> bool:
        """Append an object unless it is contained; return whether it was appended."""
        entry = self._entries.get(id(value))
        if entry is not None and entry[0]() is value:
            return False
        self.discard(value)  # drop a dead object with the same id
        self._entries[id(value)] = weakref.ref(value), _is_trainable(value)
        return True

    def discard(self, value: Any) -> None:
        """Let an object be last when it is added again."""
        self._entries.pop(id(value), None)

    def copy(self) -> ArrivalOrder:
        """Return an independent copy."""
        copy = ArrivalOrder()
        copy._entries = dict(self._entries)
        return copy

    def sort(self, values: Iterable[Any]) -> list[tuple[Any, bool]]:
        """Return unique objects in order of arrival, with their initial trainable flag.

        Unknown objects are last.
        """
        pending = {id(value): value for value in values}
        ordered = [
            (pending.pop(number), trainable)
            for number, (reference, trainable) in list(self._entries.items())
            if number in pending and reference() is pending[number]
        ]
        return ordered + [(value, _is_trainable(value)) for value in pending.values()]

    def __reduce__(self) -> Any:
        """Pickle by objects: a copy has different ids."""
        entries = [
            (reference(), trainable) for reference, trainable in self._entries.values()
        ]
        return type(self), ([pair for pair in entries if pair[0] is not None],)


def _is_trainable(value: object) -> bool:
    return bool(getattr(value, "trainable", True))


class Owned:
    """Common part of the containers. Copies and pickles have no owner."""

    _owner: weakref.ref[Any] | None = None

    @property
    def owner(self) -> Any:
        """Return the layer that holds the container, directly or nested."""
        return None if self._owner is None else self._owner()

    def _report_added(self, *values: Any) -> None:
        if (owner := self.owner) is not None:
            owner._note_arrivals(values)
            owner._mark_revised()

    def _report_removed(self, *values: Any) -> None:
        if (owner := self.owner) is not None:
            owner._discard_arrivals(values)
            owner._mark_revised()


class OwnedList(Owned, list[Any]):
    """List in an attribute of a layer, directly or nested."""

    _plain_class = list

    def append(self, value: Any) -> None:
        super().append(value)
        self._report_added(value)

    def insert(self, index: Any, value: Any) -> None:
        super().insert(index, value)
        self._report_added(value)

    def extend(self, values: Iterable[Any]) -> None:
        values = list(values)
        super().extend(values)
        self._report_added(*values)

    def __setitem__(self, index: Any, value: Any) -> None:
        value = list(value) if isinstance(index, slice) else value
        super().__setitem__(index, value)
        self._report_added(value)

    def __delitem__(self, index: Any) -> None:
        removed = self[index]
        super().__delitem__(index)
        self._report_removed(removed)

    def pop(self, index: Any = -1) -> Any:
        removed = super().pop(index)
        self._report_removed(removed)
        return removed

    def remove(self, value: Any) -> None:
        super().remove(value)
        self._report_removed(value)

    def clear(self) -> None:
        removed = list(self)
        super().clear()
        self._report_removed(removed)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return type(self), (), None, iter(self)


class _OwnedMapping(Owned, dict[Any, Any]):
    """Common part of both dict classes."""

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        self._report_added(value)

    def __delitem__(self, key: Any) -> None:
        removed = self.get(key)
        super().__delitem__(key)
        self._report_removed(removed)

    def update(self, /, *mappings: Any, **values: Any) -> None:
        added = dict(*mappings, **values)
        super().update(added)
        self._report_added(*added.values())

    def setdefault(self, key: Any, default: Any = None) -> Any:
        value = super().setdefault(key, default)
        self._report_added(value)
        return value

    def pop(self, key: Any, *default: Any) -> Any:
        has_key = key in self
        removed = super().pop(key, *default)
        if has_key:
            self._report_removed(removed)
        return removed

    def popitem(self) -> tuple[Any, Any]:
        key, removed = super().popitem()
        self._report_removed(removed)
        return key, removed

    def clear(self) -> None:
        removed = list(self.values())
        super().clear()
        self._report_removed(removed)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return type(self), (), None, None, iter(self.items())


class OwnedDict(_OwnedMapping):
    """Dict in an attribute of a layer, directly or nested."""

    _plain_class = dict


class OwnedOrderedDict(_OwnedMapping, OrderedDict[Any, Any]):
    """OrderedDict in an attribute of a layer, directly or nested."""

    _plain_class = OrderedDict

    def popitem(self, last: bool = True) -> tuple[Any, Any]:
        key, removed = OrderedDict.popitem(self, last)
        self._report_removed(removed)
        return key, removed


class OwnedSet(Owned, set[Any]):
    """Set in an attribute of a layer, directly or nested."""

    _plain_class = set

    def add(self, value: Any) -> None:
        super().add(value)
        self._report_added(value)

    def update(self, *groups: Iterable[Any]) -> None:
        for value in (value for group in groups for value in group):
            self.add(value)

    def discard(self, value: Any) -> None:
        super().discard(value)
        self._report_removed(value)

    def remove(self, value: Any) -> None:
        super().remove(value)
        self._report_removed(value)

    def pop(self) -> Any:
        removed = super().pop()
        self._report_removed(removed)
        return removed

    def clear(self) -> None:
        removed = list(self)
        super().clear()
        self._report_removed(removed)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return type(self), (list(self),)


_TRACKED_CLASSES: dict[type, type] = {
    **dict.fromkeys((list, OwnedList), OwnedList),
    **dict.fromkeys((dict, OwnedDict), OwnedDict),
    **dict.fromkeys((OrderedDict, OwnedOrderedDict), OwnedOrderedDict),
    **dict.fromkeys((set, OwnedSet), OwnedSet),
}
_MEMBERS = frozenset({tuple, *_TRACKED_CLASSES})


def track(value: Any, owner: Any, replacements: dict[int, Any] | None = None) -> Any:
    """Return a container that reports changes to `owner`, including nested containers.

    Lists, dicts, OrderedDicts and sets are replaced, also in tuples. Objects of
    subclasses stay unchanged.

    Args:
        value: a container, or any other value, which is returned unchanged.
        owner: the layer of the attribute.
        replacements: replacements of containers, by id.
    """
    cls, replacements = type(value), {} if replacements is None else replacements
    if isinstance(value, tuple) and any(type(x) in _MEMBERS for x in value):
        items = [track(item, owner, replacements) for item in value]
        return cls(*items) if hasattr(cls, "_fields") else tuple(items)
    if cls not in _TRACKED_CLASSES:
        return value
    if id(value) in replacements:
        return replacements[id(value)]
    container: Any = _TRACKED_CLASSES[cls](value)
    replacements[id(value)] = container
    is_mapping = isinstance(value, dict)
    for key, item in list(container.items() if is_mapping else enumerate(container)):
        if type(item) in _MEMBERS:
            container[key] = track(item, owner, replacements)
    container._owner = weakref.ref(owner)
    return container


def is_tracked(value: object, owner: Any) -> bool:
    """Return whether a container reports changes to this owner."""
    return isinstance(value, Owned) and value.owner is owner


def set_owner(
    values: Iterable[Any], owner: Any, visited: set[int] | None = None
) -> None:
    """Set the owner of containers without one, such as copies, and of nested ones."""
    visited = set() if visited is None else visited
    for value in values:
        if not isinstance(value, Owned) or id(value) in visited:
            continue
        visited.add(id(value))
        if value.owner is None:
            value._owner = weakref.ref(owner)
        set_owner(items_of(value), owner, visited)
