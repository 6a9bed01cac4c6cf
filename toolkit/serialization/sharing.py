"""Objects that occur more than once in a config: written twice, created once."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from toolkit.thread_state import ThreadState

MARK_KEY = "shared_object_id"


class _SharingState(ThreadState):
    """Objects of the current scope of this thread; None outside of scopes."""

    configs: dict[int, tuple[Any, dict[str, Any]]] | None = None
    recorded_configs: dict[int, dict[str, Any]] | None = None  # recorded configs by id
    num_marks = 0
    marks_all = False
    objects: dict[tuple[str, str], Any] | None = None


_state = _SharingState()


class ObjectSharingScope:
    """A context in which a repeated object is recognized.

    Args:
        marks_all: whether the first config of an object also has a mark. Otherwise only
            objects that occur twice have one. True is for configs that are read before
            the last one is written.

    Example:
        >>> from toolkit import initializers, serialization
        >>> ones = initializers.Ones()
        >>> with serialization.ObjectSharingScope():
        ...     configs = serialization.serialize_keras_object([ones, ones])
        ...     first, second = serialization.deserialize_keras_object(configs)
        ...
        >>> first is second
        True
    """

    def __init__(self, marks_all: bool = False) -> None:
        self._marks_all = marks_all

    def __enter__(self) -> None:
        self._scope = _state.override(
            configs={},
            recorded_configs={},
            objects={},
            num_marks=0,
            marks_all=self._marks_all,
        )
        self._scope.__enter__()

    def __exit__(self, *exception: object) -> None:
        self._scope.__exit__(None, None, None)


def suspend_marks() -> AbstractContextManager[None]:
    """Return a context in which no config is marked.

    A constructor may serialize its arguments to copy them. Marks in such configs would
    be mistaken for marks of the file.
    """
    return _state.override(configs=None)


def mark_config(obj: Any, config: dict[str, Any]) -> None:
    """Mark the configs of an object that is serialized a second time."""
    if _state.configs is None or _state.recorded_configs is None:
        return
    # The object is also stored, so that its id is not reused.
    _, first = _state.configs.setdefault(id(obj), (obj, config))
    _state.recorded_configs[id(config)] = config
    if first is config and not _state.marks_all:
        return
    if MARK_KEY not in first:
        # A number and not the id: the same model has the same text each time.
        _state.num_marks += 1
        first[MARK_KEY] = _state.num_marks
    config[MARK_KEY] = first[MARK_KEY]


def remove_foreign_mark(config: dict[str, Any]) -> dict[str, Any]:
    """Return a config without a mark of another scope."""
    recorded_configs = _state.recorded_configs if _state.configs is not None else None
    if MARK_KEY not in config or id(config) in (recorded_configs or ()):
        return config
    return {key: value for key, value in config.items() if key != MARK_KEY}


def find_shared_object(config: dict[str, Any]) -> Any:
    """Return the object of an earlier config with the same mark and class, or None."""
    if _state.objects is None or MARK_KEY not in config:
        return None
    return _state.objects.get(_mark_key(config))


def store_shared_object(obj: Any, config: dict[str, Any]) -> None:
    """Store the object of a marked config."""
    if _state.objects is not None and MARK_KEY in config:
        _state.objects[_mark_key(config)] = obj


def _mark_key(config: dict[str, Any]) -> tuple[str, str]:
    return repr(config[MARK_KEY]), config["class_name"]  # a file may contain any mark
