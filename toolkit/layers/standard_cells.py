"""Standard recurrent cells: their names and properties for ONNX and cuDNN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolkit import activations
from toolkit.layers.cells import Cell, GRUCell, LSTMCell, SimpleRNNCell

_STANDARD_CELLS: dict[type[Cell], str] = {
    SimpleRNNCell: "rnn",
    GRUCell: "gru",
    LSTMCell: "lstm",
}
# Activations of cells in ONNX and cuDNN.
_ACTIVATIONS = ("tanh", "sigmoid", "hard_sigmoid", "relu", "softsign", "linear")


def find_standard_cell(cell: Any, masked: bool) -> tuple[str, dict[str, Any]] | None:
    """Return the name and properties of a standard cell; None for a custom cell.

    Args:
        cell: the cell of a recurrent layer.
        masked: whether steps are masked; the mask is then a part of the loop.
    """
    kind = next((kind for kind in _STANDARD_CELLS if isinstance(cell, kind)), None)
    if kind is None or type(cell).step is not kind.step:
        return None
    used = [cell.recurrent_activation] if cell.gates > 1 else []
    names = tuple(map(_find_activation_name, [*used, cell.activation]))
    if type(cell).recur is not Cell.recur or None in names:
        return None
    properties: dict[str, Any] = {"activations": names, "masked": masked}
    if kind is GRUCell:
        properties["reset_after"] = cell.reset_after
    return _STANDARD_CELLS[kind], properties


def _find_activation_name(function: Callable[..., Any]) -> str | None:
    """Return the name of an activation that ONNX and cuDNN support, or None."""
    if function is None:
        return "linear"
    names = (name for name in _ACTIVATIONS if activations.get(name) is function)
    return next(names, None)
