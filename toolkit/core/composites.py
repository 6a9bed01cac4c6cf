"""Composites: values that consist of several tensors, such as ragged rows.

The core computes with dense tensors only. A compatibility layer defines composites and
their operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolkit import tree
from toolkit.data.padding import Ragged


class Composite:
    """Base class of values that consist of several tensors."""

    def call_layer(self, layer: Any, args: Any, kwargs: Any) -> Any:
        """Call a layer whose first argument is this value.

        Args:
            layer: the layer.
            args: the positional arguments, with this value first.
            kwargs: the keyword arguments.
        """
        raise NotImplementedError

    def as_batch(self) -> Any:
        """Return the value that a step of a model receives."""
        raise NotImplementedError

    def as_data(self) -> Any:
        """Return the value in the form of the data pipelines."""
        return self


def has_composites(structure: Any) -> bool:
    """Return whether a structure contains a composite."""
    return any(isinstance(leaf, Composite) for leaf in tree.flatten(structure))


_make_ragged: Callable[[Any, Any], Any] = Ragged


def register_ragged(constructor: Callable[[Any, Any], Composite]) -> None:
    """Let `make_ragged` create composites.

    Args:
        constructor: returns ragged rows for their values and row splits.
    """
    global _make_ragged
    _make_ragged = constructor


def make_ragged(values: Any, row_splits: Any) -> Any:
    """Return ragged rows: a composite, or without a compatibility layer a `Ragged`."""
    return _make_ragged(values, row_splits)


def can_compute_composites() -> bool:
    """Return whether a compatibility layer computes with composites."""
    return _make_ragged is not Ragged
