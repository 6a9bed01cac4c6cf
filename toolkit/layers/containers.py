"""Lists, dicts and sets in attributes of layers that report changes to their owner.

A layer's state is in the order of assignment, over all attributes, as in Keras. So
weights have the same order in both, in memory and in files.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any


class Arrivals:
    """Ordered collection of weak references, by identity, in order of arrival.

    A removed object keeps its position in case it is added again, unless it is
    forgotten. No object is kept alive.
    """

    def __init__(self, came: Iterable[tuple[Any, bool]] = ()) -> None:
        # Keys are ids; the boolean is whether the object was trainable on arrival.
        self._places: dict[int, tuple[weakref.ref[Any], bool]] = {}
        for value, trainable in came:
            self._places[id(value)] = weakref.ref(value), trainable

    def add(self, value: Any) -> bool:
        """Append an object unless it is contained; return whether it was appended."""
        place = self._places.get(id(value))
        if place is not None and place[0]() is value:
            return False
        self.forget(value)  # drop a dead object with the same id
        self._places[id(value)] = weakref.ref(value), _is_trainable(value)
        return True

    def forget(self, value: Any) -> None:
        """Let an object be last when it is added again."""
        self._places.pop(id(value), None)

    def copied(self) -> Arrivals:
        """Return an independent copy."""
        found = Arrivals()
        found._places = dict(self._places)
        return found

    def sort(self, values: Iterable[Any]) -> list[tuple[Any, bool]]:
        """Return unique objects in order of arrival, with their initial trainable flag.

        Unknown objects are last.
        """
        left = {id(value): value for value in values}
        came = [
            (left.pop(number), trainable)
            for number, (place, trainable) in list(self._places.items())
            if number in left and place() is left[number]
        ]
        return came + [(value, _is_trainable(value)) for value in left.values()]

    def __reduce__(self) -> Any:
        """Pickle by objects: a copy has different ids."""
        places = [(place(), trainable) for place, trainable in self._places.values()]
        return type(self), ([pair for pair in places if pair[0] is not None],)


def _is_trainable(value: Any) -> bool:
    return bool(getattr(value, "trainable", True))


class Owned:
    """Common part of the containers. Copies and pickles have no owner."""

    _owner: weakref.ref[Any] | None = None

    @property
    def owner(self) -> Any:
        """Return the layer that holds the container, directly or nested."""
        return None if self._owner is None else self._owner()

    def _came(self, *values: Any) -> None:
        if (owner := self.owner) is not None:
            owner._note_arrivals(values)

    def _left(self, *values: Any) -> None:
        if (owner := self.owner) is not None:
            owner._forget_arrivals(values)


class OwnedList(Owned, list[Any]):
    """List in an attribute of a layer, directly or nested."""

    _plain_class = list

    def append(self, value: Any) -> None:
        super().append(value)
        self._came(value)

    def insert(self, index: Any, value: Any) -> None:
        super().insert(index, value)
        self._came(value)

    def extend(self, values: Iterable[Any]) -> None:
        values = list(values)
        super().extend(values)
        self._came(*values)

    def __setitem__(self, index: Any, value: Any) -> None:
        value = list(value) if isinstance(index, slice) else value
        super().__setitem__(index, value)
        self._came(value)

    def __delitem__(self, index: Any) -> None:
        gone = self[index]
        super().__delitem__(index)
        self._left(gone)

    def pop(self, index: Any = -1) -> Any:
        gone = super().pop(index)
        self._left(gone)
        return gone

    def remove(self, value: Any) -> None:
        super().remove(value)
        self._left(value)

    def clear(self) -> None:
        gone = list(self)
        super().clear()
        self._left(gone)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return type(self), (), None, iter(self)


class _OwnedMapping(Owned, dict[Any, Any]):
    """Common part of both dict classes."""

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        self._came(value)

    def __delitem__(self, key: Any) -> None:
        gone = self.get(key)
        super().__delitem__(key)
        self._left(gone)

    def update(self, /, *mappings: Any, **values: Any) -> None:
        came = dict(*mappings, **values)
        super().update(came)
        self._came(*came.values())

    def setdefault(self, key: Any, default: Any = None) -> Any:
        found = super().setdefault(key, default)
        self._came(found)
        return found

    def pop(self, key: Any, *default: Any) -> Any:
        is_there = key in self
        gone = super().pop(key, *default)
        if is_there:
            self._left(gone)
        return gone

    def popitem(self) -> tuple[Any, Any]:
        key, gone = super().popitem()
        self._left(gone)
        return key, gone

    def clear(self) -> None:
        gone = list(self.values())
        super().clear()
        self._left(gone)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return type(self), (), None, None, iter(self.items())


class OwnedDict(_OwnedMapping):
    """Dict in an attribute of a layer, directly or nested."""

    _plain_class = dict


class OwnedOrderedDict(_OwnedMapping, OrderedDict[Any, Any]):
    """OrderedDict in an attribute of a layer, directly or nested."""

    _plain_class = OrderedDict

    def popitem(self, last: bool = True) -> tuple[Any, Any]:
        key, gone = OrderedDict.popitem(self, last)
        self._left(gone)
        return key, gone


class OwnedSet(Owned, set[Any]):
    """Set in an attribute of a layer, directly or nested."""

    _plain_class = set

    def add(self, value: Any) -> None:
        super().add(value)
        self._came(value)

    def update(self, *groups: Iterable[Any]) -> None:
        for value in (value for group in groups for value in group):
            self.add(value)

    def discard(self, value: Any) -> None:
        super().discard(value)
        self._left(value)

    def remove(self, value: Any) -> None:
        super().remove(value)
        self._left(value)

    def pop(self) -> Any:
        gone = super().pop()
        self._left(gone)
        return gone

    def clear(self) -> None:
        gone = list(self)
        super().clear()
        self._left(gone)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return type(self), (list(self),)


_WATCHED: dict[type, type] = {
    **dict.fromkeys((list, OwnedList), OwnedList),
    **dict.fromkeys((dict, OwnedDict), OwnedDict),
    **dict.fromkeys((OrderedDict, OwnedOrderedDict), OwnedOrderedDict),
    **dict.fromkeys((set, OwnedSet), OwnedSet),
}
_MEMBERS = frozenset({tuple, *_WATCHED})


def watched(value: Any, owner: Any, known: dict[int, Any] | None = None) -> Any:
    """Return a container that reports changes to `owner`, including nested containers.

    Lists, dicts, OrderedDicts and sets are replaced, also in tuples. Objects of
    subclasses stay unchanged.

    Args:
        value: a container, or any other value, which is returned unchanged.
        owner: the layer of the attribute.
        known: replacements of containers, by id.
    """
    kind, known = type(value), {} if known is None else known
    if isinstance(value, tuple) and any(type(x) in _MEMBERS for x in value):
        items = [watched(item, owner, known) for item in value]
        return kind(*items) if hasattr(kind, "_fields") else tuple(items)
    if kind not in _WATCHED:
        return value
    if id(value) in known:
        return known[id(value)]
    found: Any = _WATCHED[kind](value)
    known[id(value)] = found
    is_mapping = isinstance(value, dict)
    for place, item in list(found.items() if is_mapping else enumerate(found)):
        if type(item) in _MEMBERS:
            found[place] = watched(item, owner, known)
    found._owner = weakref.ref(owner)
    return found


def is_watched(value: Any, owner: Any) -> bool:
    """Return whether a container reports changes to this owner."""
    return isinstance(value, Owned) and value.owner is owner


def adopt(values: Iterable[Any], owner: Any, seen: set[int] | None = None) -> None:
    """Set the owner of containers without one, such as copies, and of nested ones."""
    seen = set() if seen is None else seen
    for value in values:
        if not isinstance(value, Owned) or id(value) in seen:
            continue
        seen.add(id(value))
        if value.owner is None:
            value._owner = weakref.ref(owner)
        inside: Any = value.values() if isinstance(value, dict) else value
        adopt(inside, owner, seen)
