"""What a traced step takes for granted of its model, and whether it still holds."""

from __future__ import annotations

from operator import is_
from typing import Any

from toolkit.layers.tracking import Walk


class Structure:
    """The layers of a model, their weights, and what their constructors were given.

    Args:
        model: the model; None if a step has none.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._changes = -1
        self._known: list[Any] | None = None  # as it was when a step was traced

    def note(self) -> None:
        """Remember the structure as it is: a step has been traced."""
        self._known = self._parts()
        self._changes = Walk.changes

    def has_changed(self) -> bool:
        """Whether it is another one than what was noted, if anything was."""
        if self._changes == Walk.changes or self._known is None:
            return False
        self._changes = Walk.changes
        parts = self._parts()
        same = len(parts) == len(self._known) and all(map(is_, parts, self._known))
        return not same

    def _parts(self) -> list[Any]:
        if self._model is None:
            return []
        layers = self._model._flatten_layers()
        settings = (
            vars(layer).get(name) for layer in layers for name in layer._arguments or ()
        )
        return [*layers, *self._model.weights, *settings]

    def __getstate__(self) -> dict[str, Any]:
        """Copies know nothing: their step has no traces yet."""
        return {**self.__dict__, "_known": None}
