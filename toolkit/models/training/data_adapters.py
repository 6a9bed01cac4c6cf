"""Batches as tuples of inputs, targets and weights; errors with the caller's name."""

from __future__ import annotations

from typing import Any

from toolkit.console.tracebacks import filter_traceback
from toolkit.errors import ArgumentError, ToolkitError


def unpack_x_y_sample_weight(data: Any) -> tuple[Any, Any, Any]:
    """Return (x, y, sample_weight) of a batch x, (x,), (x, y) or all three.

    Args:
        data: a batch.

    Returns:
        (x, y, sample_weight), with None for missing values.

    Example:
        >>> unpack_x_y_sample_weight(("x", "y"))
        ('x', 'y', None)
    """
    if not isinstance(data, (tuple, list)):
        return data, None, None
    if not 1 <= len(data) <= 3:
        raise ArgumentError(
            "batch: expected x, (x,), (x, y) or (x, y, sample_weight); received "
            f"{len(data)} components"
        )
    x, y, sample_weight = (*data, None, None)[:3]
    return x, y, sample_weight


def pack_x_y_sample_weight(x: Any, y: Any = None, sample_weight: Any = None) -> Any:
    """Return a batch in the form of `fit`: x, (x, y) or (x, y, sample_weight).

    Args:
        x: the inputs.
        y: the targets, or None.
        sample_weight: the weights of the samples, or None.

    Returns:
        x or a tuple.

    Example:
        >>> from toolkit.utils import pack_x_y_sample_weight
        >>> pack_x_y_sample_weight("x", "y")
        ('x', 'y')
    """
    if y is None and sample_weight is None:
        return (x,) if isinstance(x, (tuple, list)) else x
    return (x, y) if sample_weight is None else (x, y, sample_weight)


class named_errors:
    """Context manager that prefixes errors with the name of the called method."""

    def __init__(self, caller: str) -> None:
        self._caller = caller

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: object, error: BaseException | None, traceback: object
    ) -> None:
        if isinstance(error, ToolkitError):
            error.args = (f"{self._caller}: {error}",)
        if isinstance(error, Exception):
            filter_traceback(error)
