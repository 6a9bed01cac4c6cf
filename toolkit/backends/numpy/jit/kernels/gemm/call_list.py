"""The calls of a lowering, and their shared scratch memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from toolkit.backends.numpy.jit.calls import (
    Call,
    Lowered,
    Reference,
    operands_of,
    redirect_operands,
)
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.fused.elementwise import lower_copy
from toolkit.ir import Graph
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

    def append(self, call: Call) -> None:
        """Append a call."""
        self.calls.append(call)

    def copy(
        self, lowered: Lowered | None, reference: Reference, nbytes: int
    ) -> Reference:
        """Append the calls that copy one operand, and return the copy."""
        assert lowered is not None and not lowered.work
        target = self.allocate(nbytes)
        references = {("in", 0): reference, ("out", 0): target}
        self.calls += [redirect_operands(call, references) for call in lowered.calls]
        return target

    def copy_row_major(
        self, operand: Operand, reference: Reference
    ) -> tuple[Operand, Reference]:
        """Append a row-major copy of an operand, and return it."""
        lowered = lower_copy(None, [operand], [])
        target = self.copy(lowered, reference, operand.spec.nbytes)
        return contiguous(operand.spec), target

    def lower(self) -> Lowered:
        """Return the collected calls."""
        return Lowered(tuple(self.calls), self.work)


def body_call(
    code: Code,
    body: Graph,
    extra_operands: Iterable[Reference],
    numbers: tuple[int, ...],
    rows: int,
    grain: int,
    flops: int,
    row_operands: Iterable[Reference] = (),
) -> Call:
    """Return the call that computes the outputs of a body.

    Args:
        code: its function.
        body: its first node is a product, the others are the epilogue.
        extra_operands: the operands after the inputs and outputs of the body.
        numbers, rows, grain, flops, row_operands: see `Call`.
    """
    return Call(
        code,
        (*operands_of(body), *extra_operands),
        numbers,
        rows,
        grain,
        frozenset(row_operands),
        flops,
        nbytes=sum(value.spec.nbytes for value in (*body.inputs, *body.outputs)),
    )


def full_operands(body: Graph) -> Sequence[Reference]:
    """Return the outputs of a body, and the inputs with the shape of its result."""
    shape = body.nodes[0].outputs[0].spec.shape
    values = (*body.inputs, *body.outputs)
    return [
        reference
        for reference, value in zip(operands_of(body), values, strict=True)
        if reference[0] == "out" or value.spec.shape == shape
    ]
