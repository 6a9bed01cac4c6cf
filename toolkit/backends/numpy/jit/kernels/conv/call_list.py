"""The calls before a convolution, and their shared scratch memory."""

from __future__ import annotations

from toolkit.backends.numpy.jit.calls import Call, Lowered, Reference, redirect_operands
from toolkit.backends.numpy.jit.fused.elementwise import lower_copy
from toolkit.plans.operands import Operand, align_up, contiguous


class CallList:
    """Collects calls."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.work: int = 0

    def allocate(self, nbytes: int) -> Reference:
        """Allocate scratch memory."""
        start, self.work = self.work, self.work + align_up(nbytes)
        return "work", start

    def copy_row_major(
        self, operand: Operand, reference: Reference
    ) -> tuple[Operand, Reference]:
        """Append a row-major copy of an operand, and return it."""
        copy, target = contiguous(operand.spec), self.allocate(operand.spec.nbytes)
        lowered = lower_copy(None, [operand], [])
        assert lowered is not None and not lowered.work
        references = {("in", 0): reference, ("out", 0): target}
        self.calls += [redirect_operands(call, references) for call in lowered.calls]
        return copy, target

    def lower(self) -> Lowered:
        """Return the collected calls."""
        return Lowered(tuple(self.calls), self.work)
