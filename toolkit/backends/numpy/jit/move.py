"""Copies of strided arrays, as the identity in one fused loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolkit.backends.numpy.jit.elementwise import lower_fused
from toolkit.backends.numpy.jit.lowering import Lowered, Operand, contiguous
from toolkit.ir import PRIMITIVES, Graph, Node, Spec


class _Value:
    """A value of the identity's graph."""

    constant = None

    def __init__(self, spec: Spec) -> None:
        self.spec = spec


def lower_copy(
    node: Any, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """The elements of a view, in its order, one after the other."""
    spec = inputs[0].spec
    x, y = _Value(spec), _Value(spec)
    copy = Node(PRIMITIVES["stop_gradient"], (x,), {}, (y,))
    return lower_fused(Graph((x,), (copy,), (y,)), inputs, [contiguous(spec)])
