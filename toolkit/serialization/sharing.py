"""Objects that appear more than once in a config: described twice, made once."""

from __future__ import annotations

from typing import Any

from toolkit.thread_state import ThreadState


class _Shared(ThreadState):
    """What the scope that is open in this thread has seen; None outside of scopes."""

    configs: dict[int, tuple[Any, dict[str, Any]]] | None = None
    marks = 0
    objects: dict[Any, Any] | None = None


_shared = _Shared()


class ObjectSharingScope:
    """A context in which an object that is met again is known to be the same."""

    def __enter__(self) -> None:
        self._outer = _shared.configs, _shared.objects, _shared.marks
        _shared.configs, _shared.objects, _shared.marks = {}, {}, 0

    def __exit__(self, *exception: object) -> None:
        _shared.configs, _shared.objects, _shared.marks = self._outer


def note_config(obj: Any, config: dict[str, Any]) -> None:
    """Mark the configs of an object that is described a second time."""
    if _shared.configs is None:
        return
    # The object is held too, as its id must not be given to another one.
    _, first = _shared.configs.setdefault(id(obj), (obj, config))
    if first is config:
        return
    if "shared_object_id" not in first:
        _shared.marks += 1  # and not the id: the same model has the same text each time
        first["shared_object_id"] = _shared.marks
    config["shared_object_id"] = first["shared_object_id"]


def shared_object(config: dict[str, Any]) -> Any:
    """The object made from an earlier config with the same mark, or None."""
    if _shared.objects is None or "shared_object_id" not in config:
        return None
    return _shared.objects.get(config["shared_object_id"])


def note_object(obj: Any, config: dict[str, Any]) -> None:
    """Remember what was made of a marked config."""
    if _shared.objects is not None and "shared_object_id" in config:
        _shared.objects[config["shared_object_id"]] = obj
