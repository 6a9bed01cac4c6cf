"""Gradient clipping by norm."""

from __future__ import annotations

from collections.abc import Sequence

from toolkit import ops
from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor


def clip_by_norm(g: Tensor, norm: float) -> Tensor:
    """Scale g down to the norm: g * norm / max(|g|, norm)."""
    length = ops.sqrt(ops.sum(ops.square(g)))
    return g * (norm / ops.maximum(length, norm))


def clip_by_global_norm(grads: Sequence[Tensor], norm: float) -> list[Tensor]:
    """Scale all gradients by one factor to a global norm of at most `norm`."""
    total = ops.sqrt(sum((ops.sum(ops.square(g)) for g in grads), start=ops.zeros(())))
    # The difference is 0, or NaN for an infinite norm: then all gradients become NaN.
    scale = norm / ops.maximum(total, norm) + (total - total)
    return [g * convert(scale, g.dtype) for g in grads]
