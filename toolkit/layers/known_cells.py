"""Cells that others know, too: their names, and what tells one from another."""

from __future__ import annotations

from typing import Any

from toolkit import activations
from toolkit.layers.cells import Cell, GRUCell, LSTMCell, SimpleRNNCell

_KNOWN: dict[type[Cell], str] = {SimpleRNNCell: "rnn", GRUCell: "gru", LSTMCell: "lstm"}
# Activations that ONNX and cuDNN have in their cells.
_ACTIVATIONS = ("tanh", "sigmoid", "hard_sigmoid", "relu", "softsign", "linear")


def known_cell(cell: Any, masked: bool) -> tuple[str, dict[str, Any]] | None:
    """The name of what a cell computes, and facts of it; None: something of its own.

    Args:
        cell: of a recurrent layer.
        masked: whether steps are masked, which is a part of the loop then.
    """
    kind = next((kind for kind in _KNOWN if isinstance(cell, kind)), None)
    if kind is None or type(cell).step is not kind.step:
        return None
    used = [cell.recurrent_activation] if cell.gates > 1 else []
    names = tuple(map(_name_of, [*used, cell.activation]))
    if type(cell).recur is not Cell.recur or None in names:
        return None
    facts: dict[str, Any] = {"activations": names, "masked": masked}
    if kind is GRUCell:
        facts["reset_after"] = cell.reset_after
    return _KNOWN[kind], facts


def _name_of(function: Any) -> str | None:
    """The name of an activation, if it is one of those that others know."""
    if function is None:
        return "linear"
    found = (name for name in _ACTIVATIONS if activations.get(name) is function)
    return next(found, None)
