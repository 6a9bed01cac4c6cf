"""Addition of the partial sums of a product's slots, followed by the epilogue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.backends.numpy.jit.calls import Call, Reference, operands_of, partition
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.epilogue import BodyStructure, Epilogue
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.gemm.writer import MatrixWriter
from toolkit.ir import Graph

if TYPE_CHECKING:
    from toolkit.backends.numpy.jit.kernels.matmul.problem import Problem


def combine_call(p: Problem, body: Graph, slots: int, partials: Reference) -> Call:
    """Return the call that adds the partial results of a product."""
    size = p.size * p.itemsize
    return Call(
        Code(emit_combine, p.dtype, p.lanes, BodyStructure(body)),
        (*operands_of(body), partials),
        (p.columns, slots, size),
        p.rows,
        partition(p.rows),
        flops=slots * p.size,
        nbytes=(slots + 1) * size,
    )


def emit_combine(dtype: str, lanes: int, body: BodyStructure) -> Kernel:
    """Emit the function that adds partial results in the order of their slots.

    A row of the call is a row of the product. The table holds the addresses of the
    body's inputs and outputs and of the partial results, then columns, slots, bytes of
    a slot.
    """
    w = MatrixWriter(Kernel(lanes), dtype)
    b = w.b
    epilogue = Epilogue.of_table(body, b)
    partials = w.b.next_address()
    columns, slots, size = (w.b.next_entry() for _ in range(3))
    for column, mask in b.run(0, columns):
        loaded = epilogue.columns(column, mask)
        with b.loop(b.low, b.high) as row:
            element = row * columns + column
            first = partials + element * w.itemsize
            with b.accumulate(1, slots, 1, [w.load_vector(first, mask)]) as iteration:
                address = first + iteration.index * size
                iteration.next(
                    [w.add(iteration.values[0], w.load_vector(address, mask))]
                )
            epilogue.apply(iteration.values[0], element, column, mask, loaded)
    return b
