"""Lists, dicts and sets in attributes of layers, which tell their owner what changes.

State belongs to a layer in the order in which it came, whichever attribute holds it: so
weights have one order in memory, in files and in Keras.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any


class Arrivals:
    """Objects in the order in which they came; each once, by identity."""

    def __init__(self, came: Iterable[tuple[Any, bool]] = ()) -> None:
        # Each with whether it was trainable then.
        self.came: list[tuple[Any, bool]] = list(came)
        self._ids = {id(value) for value, _ in self.came}

    def add(self, value: Any) -> None:
        """Put an object last, unless it is there."""
        if id(value) not in self._ids:
            self._ids.add(id(value))
            self.came.append((value, getattr(value, "trainable", True)))

    def __reduce__(self) -> Any:
        """Copies have other objects, with ids of their own."""
        return type(self), (self.came,)


class _Owned:
    """What containers have in common."""

    _owner: Any = None

    @contextmanager
    def _telling(self, *came: Any, gone: Any = None) -> Iterator[None]:
        """A change by which values come or go, of which the owner is told."""
        try:
            yield
        finally:
            if self._owner is not None:
                self._owner._note_changes(came, gone)


class OwnedList(_Owned, list[Any]):
    """A list that is an attribute of a layer, or in one."""

    def append(self, value: Any) -> None:
        with self._telling(value):
            super().append(value)

    def insert(self, index: Any, value: Any) -> None:
        with self._telling(value):
            super().insert(index, value)

    def extend(self, values: Iterable[Any]) -> None:
        values = list(values)
        with self._telling(*values):
            super().extend(values)

    def __setitem__(self, index: Any, value: Any) -> None:
        value = list(value) if isinstance(index, slice) else value
        came = value if isinstance(index, slice) else [value]
        with self._telling(*came, gone=self[index]):
            super().__setitem__(index, value)

    def __delitem__(self, index: Any) -> None:
        with self._telling(gone=self[index]):
            super().__delitem__(index)

    def pop(self, index: Any = -1) -> Any:
        value = self[index]
        del self[index]
        return value

    def remove(self, value: Any) -> None:
        del self[self.index(value)]

    def clear(self) -> None:
        del self[:]


class OwnedDict(_Owned, dict[Any, Any]):
    """A dict that is an attribute of a layer, or in one."""

    def __setitem__(self, key: Any, value: Any) -> None:
        with self._telling(value, gone=self.get(key)):
            super().__setitem__(key, value)

    def __delitem__(self, key: Any) -> None:
        with self._telling(gone=self.get(key)):
            super().__delitem__(key)

    def update(self, *mappings: Any, **values: Any) -> None:
        for key, value in dict(*mappings, **values).items():
            self[key] = value

    def setdefault(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def pop(self, key: Any, *default: Any) -> Any:
        with self._telling(gone=self.get(key)):
            return super().pop(key, *default)

    def popitem(self) -> tuple[Any, Any]:
        key = next(reversed(self), None)
        return (key, self.pop(key)) if self else super().popitem()

    def clear(self) -> None:
        with self._telling(gone=list(self.values())):
            super().clear()


class OwnedSet(_Owned, set[Any]):
    """A set that is an attribute of a layer, or in one."""

    def add(self, value: Any) -> None:
        with self._telling(value):
            super().add(value)

    def update(self, *groups: Iterable[Any]) -> None:
        for value in (value for group in groups for value in group):
            self.add(value)

    def discard(self, value: Any) -> None:
        with self._telling(gone=value):
            super().discard(value)

    def remove(self, value: Any) -> None:
        with self._telling(gone=value):
            super().remove(value)

    def pop(self) -> Any:
        value = super().pop()
        with self._telling(gone=value):
            return value

    def clear(self) -> None:
        with self._telling(gone=list(self)):
            super().clear()


_WATCHED: dict[type, type] = {
    **dict.fromkeys((list, OwnedList), OwnedList),
    **dict.fromkeys((dict, OwnedDict), OwnedDict),
    **dict.fromkeys((set, OwnedSet), OwnedSet),
}


def watched(value: Any, owner: Any, known: dict[int, Any] | None = None) -> Any:
    """A container that tells `owner` of changes, with those inside of it.

    Only lists, dicts and sets are replaced, no objects of classes made from them.

    Args:
        value: a container, or anything else, which stays.
        owner: whose attribute it is, or is in.
        known: what has taken the place of others, by their ids.
    """
    kind, known = type(value), {} if known is None else known
    if kind not in _WATCHED:
        return value
    if id(value) in known:
        return known[id(value)]
    found: Any = _WATCHED[kind](value)
    known[id(value)] = found
    items = list(found.items() if kind in (dict, OwnedDict) else enumerate(found))
    for place, item in items:
        if type(item) in _WATCHED:
            found[place] = watched(item, owner, known)
    found._owner = owner
    return found
