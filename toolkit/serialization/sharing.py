"""Objects that appear more than once in a config: described twice, made once."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from toolkit.thread_state import ThreadState

MARK = "shared_object_id"


class _Shared(ThreadState):
    """The objects that the scope of this thread has seen; None outside of scopes."""

    configs: dict[int, tuple[Any, dict[str, Any]]] | None = None
    described: dict[int, dict[str, Any]] | None = None  # noted configs by their id
    marks = 0
    marks_all = False
    objects: dict[tuple[str, str], Any] | None = None


_shared = _Shared()


class ObjectSharingScope:
    """A context in which an object that is met again is known to be the same.

    Args:
        marks_all: whether the first config of an object gets a mark, too. Else only
            objects that are described twice have one. It is for configs that are read
            before the last one is written.
    """

    def __init__(self, marks_all: bool = False) -> None:
        self._marks_all = marks_all

    def __enter__(self) -> None:
        self._scope = _shared.inside(
            configs={}, described={}, objects={}, marks=0, marks_all=self._marks_all
        )
        self._scope.__enter__()

    def __exit__(self, *exception: object) -> None:
        self._scope.__exit__(None, None, None)


def only_reading() -> AbstractContextManager[None]:
    """Return a context in which no config is marked.

    A constructor may describe its arguments to copy them. Marks of such configs would
    be taken for the marks of the file.
    """
    return _shared.inside(configs=None)


def note_config(obj: Any, config: dict[str, Any]) -> None:
    """Mark the configs of an object that is described a second time."""
    if _shared.configs is None or _shared.described is None:
        return
    # The object is held too, as its id must not be given to another one.
    _, first = _shared.configs.setdefault(id(obj), (obj, config))
    _shared.described[id(config)] = config
    if first is config and not _shared.marks_all:
        return
    if MARK not in first:
        _shared.marks += 1  # and not the id: the same model has the same text each time
        first[MARK] = _shared.marks
    config[MARK] = first[MARK]


def without_foreign_mark(config: dict[str, Any]) -> dict[str, Any]:
    """Return a config without a mark that another scope has given to it."""
    described = _shared.described if _shared.configs is not None else None
    if MARK not in config or id(config) in (described or ()):
        return config
    return {key: value for key, value in config.items() if key != MARK}


def shared_object(config: dict[str, Any]) -> Any:
    """Return the object that an earlier config of this mark and class made, or None."""
    if _shared.objects is None or MARK not in config:
        return None
    return _shared.objects.get(_key(config))


def note_object(obj: Any, config: dict[str, Any]) -> None:
    """Remember the object that a marked config has made."""
    if _shared.objects is not None and MARK in config:
        _shared.objects[_key(config)] = obj


def _key(config: dict[str, Any]) -> tuple[str, str]:
    return repr(config[MARK]), config["class_name"]  # a file may hold any mark
