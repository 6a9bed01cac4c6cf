"""The calls that lead up to a convolution, and the scratch memory that they share."""

from __future__ import annotations

from toolkit.backends.base import Operand, aligned, contiguous
from toolkit.backends.numpy.jit.kernels.move import lower_copy
from toolkit.backends.numpy.jit.lowering import Call, Lowered, Reference, redirected


class Steps:
    """Collects calls."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.work: int = 0

    def take(self, nbytes: int) -> Reference:
        """A piece of scratch memory."""
        start, self.work = self.work, self.work + aligned(nbytes)
        return "work", start

    def row_major(
        self, operand: Operand, place: Reference
    ) -> tuple[Operand, Reference]:
        """A copy of an operand with its elements in row-major order."""
        copy, target = contiguous(operand.spec), self.take(operand.spec.nbytes)
        lowered = lower_copy(None, [operand], [])
        assert lowered is not None and not lowered.work
        places = {("in", 0): place, ("out", 0): target}
        self.calls += [redirected(call, places) for call in lowered.calls]
        return copy, target

    def lowered(self) -> Lowered:
        """What was collected."""
        return Lowered(tuple(self.calls), self.work)
