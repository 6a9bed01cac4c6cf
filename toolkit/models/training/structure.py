"""Structure of a model that traces depend on, and the detection of changes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from toolkit.layers.walks import Walk

if TYPE_CHECKING:
    from toolkit.layers.layer import Layer

_SIMPLE = (bool, int, float, complex, str, bytes, np.generic)


class Structure:
    """Layers of a model, their weights, and their constructor arguments.

    Args:
        model: the model, or None.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._recorded: list[Any] = []  # the structure at the time of a trace
        self._walk: Walk | None = None  # the last walk over the structure

    def record_current(self) -> None:
        """Record the current structure: a step has been traced."""
        self._walk = Walk(self._components)
        self._recorded = self._walk.result

    def has_changed(self) -> bool:
        """Return whether the structure differs from the recorded one, if any."""
        if self._walk is None or self._walk.is_valid():
            return False
        self._walk = Walk(self._components)
        current = self._walk.result
        return len(current) != len(self._recorded) or not all(
            map(_same, current, self._recorded)
        )

    def _components(self) -> list[Any]:
        if self._model is None:
            return []
        layers = self._model._flatten_layers()
        return [
            *layers,
            *self._model.weights,
            *chain(*map(_constants, layers)),
        ]

    def __getstate__(self) -> dict[str, Any]:
        """Copy without a record: the copied step has no traces."""
        return {**self.__dict__, "_recorded": [], "_walk": None}


def _constants(layer: Layer) -> Iterator[Any]:
    """Return the attributes that traces contain, without those that `call` sets."""
    for name in (*(layer._arguments or ()), *layer._trace_constants):
        if name not in layer._stored_by_calls:
            yield vars(layer).get(name)


def _same(a: Any, b: Any) -> bool:
    """Return whether two values are one object, or equal values of one simple type."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if type(a) is tuple:
        return len(a) == len(b) and all(map(_same, a, b))
    return isinstance(a, _SIMPLE) and bool(a == b)
