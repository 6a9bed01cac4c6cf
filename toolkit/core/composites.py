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

    def call_layer(
        self, layer: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> object:
        """Call a layer whose first argument is this value.

        Args:
            layer: the layer.
            args: the positional arguments, with this value first.
            kwargs: the keyword arguments.
        """
        raise NotImplementedError

    def as_batch(self) -> object:
        """Return the value that a step of a model receives."""
        raise NotImplementedError

    def as_data(self) -> object:
        """Return the value in the form of the data pipelines."""
        return self


def has_composites(structure: object) -> bool:
    """Return whether a structure contains a composite."""
    return any(isinstance(leaf, Composite) for leaf in tree.flatten(structure))


# Constructors of ragged rows; the last one is used.
_constructors: list[Callable[[Any, Any], object]] = [Ragged]


def register_ragged(constructor: Callable[[object, object], Composite]) -> None:
    """Let `make_ragged` create composites.

    Args:
        constructor: returns ragged rows for their values and row splits.
    """
    _constructors.append(constructor)


def make_ragged(values: object, row_splits: object) -> object:
    """Return ragged rows: a composite, or without a compatibility layer a `Ragged`."""
    return _constructors[-1](values, row_splits)


def can_compute_composites() -> bool:
    """Return whether a compatibility layer computes with composites."""
    return len(_constructors) > 1
