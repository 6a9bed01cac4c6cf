"""Warning for losses and metrics that combine every target with every output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from toolkit.console.frames import warn
from toolkit.core.tensor import state
from toolkit.ir import Node

TARGET, OUTPUT = 1, 2  # flags of the values that a value depends on


@contextmanager
def warn_of_pairs(term: str, true: Any, pred: Any) -> Iterator[None]:
    """Warn if the block broadcasts targets and outputs of different rank to pairs.

    Targets of shape (batch,) and outputs of shape (batch, 1) broadcast to
    (batch, batch). The mean of such a loss has a finite but wrong value.

    Args:
        term: the loss or metric, for the message.
        true: the targets.
        pred: the outputs.
    """
    trace = state.trace
    shapes = tuple(tuple(getattr(x, "shape", ())) for x in (true, pred))
    if trace is None or not _broadcasts_to_pairs(shapes):
        yield
        return
    start = len(trace.nodes)
    yield
    if _combines_pairs(trace.nodes[start:], true, pred):
        is_flat = len(shapes[0]) == 1
        true_shape, pred_shape = ("(batch,)", "(batch, 1)")[:: 1 if is_flat else -1]
        flat = "y_true" if is_flat else "y_pred"
        warn(
            f"{term}: the targets of shape {true_shape} and the outputs of shape "
            f"{pred_shape} are broadcast to (batch, batch), so every target is "
            f"combined with every output; use ops.expand_dims({flat}, -1)"
        )


def _broadcasts_to_pairs(shapes: Sequence[tuple[Any, ...]]) -> bool:
    """Return whether the shapes are (n,) and (n, 1), in any order, with n > 1."""
    short, long = sorted(shapes, key=len)
    return len(short) == 1 and long == (*short, 1) and short[0] != 1


def _combines_pairs(nodes: Sequence[Node], true: Any, pred: Any) -> bool:
    """Return whether a node broadcasts a column and a row of different origin."""
    sources = {true: TARGET, pred: OUTPUT}
    for node in nodes:
        origins = [sources.get(x, 0) for x in node.inputs]
        for value in node.outputs:
            sources[value] = 0
            for origin in origins:
                sources[value] |= origin
        if sorted(filter(None, origins)) != [TARGET, OUTPUT]:
            continue
        pairs = zip(node.inputs, origins, strict=True)
        shapes = [x.shape for x, origin in pairs if origin]
        if _broadcasts_to_pairs(shapes) and len(node.outputs[0].shape) == 2:
            return True
    return False
