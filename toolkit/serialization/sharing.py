"""Objects that occur more than once in a config: written twice, created once."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from toolkit.thread_state import ThreadState

MARK = "shared_object_id"


class _Shared(ThreadState):
    """Objects of the current scope of this thread; None outside of scopes."""

    configs: dict[int, tuple[Any, dict[str, Any]]] | None = None
    described: dict[int, dict[str, Any]] | None = None  # recorded configs by id
    marks = 0
    marks_all = False
    objects: dict[tuple[str, str], Any] | None = None


_shared = _Shared()


class ObjectSharingScope:
    """A context in which a repeated object is recognized.

    Args:
        marks_all: whether the first config of an object also has a mark. Otherwise only
            objects that occur twice have one. True is for configs that are read before
            the last one is written.
    """

    def __init__(self, marks_all: bool = False) -> None:
        self._marks_all = marks_all

    def __enter__(self) -> None:
        self._scope = _shared.override(
            configs={}, described={}, objects={}, marks=0, marks_all=self._marks_all
        )
        self._scope.__enter__()

    def __exit__(self, *exception: object) -> None:
        self._scope.__exit__(None, None, None)


def only_reading() -> AbstractContextManager[None]:
    """Return a context in which no config is marked.

    A constructor may serialize its arguments to copy them. Marks in such configs would
    be mistaken for marks of the file.
    """
    return _shared.override(configs=None)


def note_config(obj: Any, config: dict[str, Any]) -> None:
    """Mark the configs of an object that is serialized a second time."""
    if _shared.configs is None or _shared.described is None:
        return
    # The object is also stored, so that its id is not reused.
    _, first = _shared.configs.setdefault(id(obj), (obj, config))
    _shared.described[id(config)] = config
    if first is config and not _shared.marks_all:
        return
    if MARK not in first:
        _shared.marks += 1  # and not the id: the same model has the same text each time
        first[MARK] = _shared.marks
    config[MARK] = first[MARK]


def without_foreign_mark(config: dict[str, Any]) -> dict[str, Any]:
    """Return a config without a mark of another scope."""
    described = _shared.described if _shared.configs is not None else None
    if MARK not in config or id(config) in (described or ()):
        return config
    return {key: value for key, value in config.items() if key != MARK}


def shared_object(config: dict[str, Any]) -> Any:
    """Return the object of an earlier config with the same mark and class, or None."""
    if _shared.objects is None or MARK not in config:
        return None
    return _shared.objects.get(_key(config))


def note_object(obj: Any, config: dict[str, Any]) -> None:
    """Store the object of a marked config."""
    if _shared.objects is not None and MARK in config:
        _shared.objects[_key(config)] = obj


def _key(config: dict[str, Any]) -> tuple[str, str]:
    return repr(config[MARK]), config["class_name"]  # a file may contain any mark
