"""Gradients scaled down to a largest norm."""

from __future__ import annotations

from collections.abc import Sequence

from toolkit import ops
from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor


def clip_by_norm(g: Tensor, norm: float) -> Tensor:
    """g scaled down to the norm if it is longer: g * norm / max(|g|, norm)."""
    length = ops.sqrt(ops.sum(ops.square(g)))
    return g * (norm / ops.maximum(length, norm))


def clip_by_global_norm(grads: Sequence[Tensor], norm: float) -> list[Tensor]:
    """All gradients scaled by one factor, to have at most the norm together."""
    total = ops.sqrt(sum((ops.sum(ops.square(g)) for g in grads), start=ops.zeros(())))
    # The difference is 0, or NaN for an infinite norm: then all become NaN.
    scale = norm / ops.maximum(total, norm) + (total - total)
    return [g * convert(scale, g.dtype) for g in grads]
