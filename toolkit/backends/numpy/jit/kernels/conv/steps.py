"""The calls that lead up to a convolution, and the scratch memory that they share."""

from __future__ import annotations

from dataclasses import replace

from toolkit.backends.base import Operand, aligned, contiguous
from toolkit.backends.numpy.jit.fused.elementwise import lower_fused
from toolkit.backends.numpy.jit.lowering import Call, Lowered, Reference
from toolkit.ir import PRIMITIVES, Graph, Node, Value


class Steps:
    """Collects calls."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.work = 0

    def take(self, nbytes: int) -> Reference:
        """A piece of scratch memory."""
        start, self.work = self.work, self.work + aligned(nbytes)
        return "work", start

    def row_major(
        self, operand: Operand, place: Reference
    ) -> tuple[Operand, Reference]:
        """A copy of an operand with its elements in row-major order."""
        copy, source = contiguous(operand.spec), Value(operand.spec)
        result, target = Value(operand.spec), self.take(operand.spec.nbytes)
        identity = Node(PRIMITIVES["stop_gradient"], (source,), {}, (result,))
        lowered = lower_fused(
            Graph((source,), (identity,), (result,)), [operand], [copy]
        )
        assert lowered is not None and not lowered.work
        places = {("in", 0): place, ("out", 0): target}
        for call in lowered.calls:
            operands = tuple(places[operand] for operand in call.operands)
            rows = frozenset(places[operand] for operand in call.row_operands)
            self.calls.append(replace(call, operands=operands, row_operands=rows))
        return copy, target

    def lowered(self) -> Lowered:
        """What was collected."""
        return Lowered(tuple(self.calls), self.work)
