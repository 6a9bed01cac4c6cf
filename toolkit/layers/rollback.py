"""Rollback of layers after an error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from toolkit.layers.layer import Layer


class _Snapshot(NamedTuple):
    """Snapshot of a layer's attributes and of its lists and mappings."""

    layer: Any
    attributes: dict[str, Any]
    contents: list[tuple[Any, Any]]


@contextmanager
def rollback_on_error(layers: Iterable[Any]) -> Iterator[None]:
    """Roll back the attributes of layers if the block raises.

    Lists and mappings get their old contents. Other objects are not copied, so that
    changes inside of them stay. Replaced objects stay in memory until the block ends.
    """
    snapshots = [_take_snapshot(layer) for layer in layers]
    try:
        yield
    except BaseException:
        for snapshot in snapshots:
            _restore(snapshot)
            snapshot.layer._mark_changed()
        raise


def _take_snapshot(layer: Layer) -> _Snapshot:
    attributes = dict(vars(layer))
    if "_arrivals" in attributes:
        attributes["_arrivals"] = attributes["_arrivals"].copy()
    contents: list[tuple[Any, Any]] = []
    for value in attributes.values():
        if isinstance(value, list):
            contents.append((value, list(value)))
        elif isinstance(value, MutableMapping):
            contents.append((value, dict(value)))
    return _Snapshot(layer, attributes, contents)


def _restore(snapshot: _Snapshot) -> None:
    members = vars(snapshot.layer)
    members.update(snapshot.attributes)
    for name in [name for name in members if name not in snapshot.attributes]:
        del members[name]
    for container, old in snapshot.contents:
        if isinstance(container, list):
            container[:] = old
        else:
            _restore_mapping(container, old)


def _restore_mapping(mapping: MutableMapping[Any, Any], old: dict[Any, Any]) -> None:
    """Restore only changed entries: other objects can hold the mapping, too."""
    for key in list(mapping):
        if key not in old or mapping[key] is not old[key]:
            del mapping[key]
    for key, value in old.items():
        if key not in mapping:
            mapping[key] = value
