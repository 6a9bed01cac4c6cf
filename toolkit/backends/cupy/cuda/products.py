"""Matrix products for dtypes without a library product: one thread per element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from toolkit.backends.cupy.cuda.launch import Buffer, Launch
from toolkit.backends.cupy.cuda.prelude import STORED
from toolkit.backends.cupy.cuda.reduction import Reducer
from toolkit.backends.cupy.cuda.scalars import CUDAScalars
from toolkit.backends.cupy.cuda.threads import Threads, offset_text
from toolkit.plans.operands import Operand

if TYPE_CHECKING:
    from toolkit.ir import Node


def generate_matmul(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand], aligned: bool
) -> Sequence[Launch] | None:
    """Return the launch for matrix products with broadcast leading axes."""
    (a, b), (y,) = inputs, outputs
    if not y.spec.size:
        return []
    dtype, depth = y.spec.dtype, a.spec.shape[-1]
    k = Threads("matmul", y.spec.shape, a, b, y)
    k.source("a", a.spec.dtype, Buffer(0))
    k.source("b", b.spec.dtype, Buffer(1))
    k.target("y", dtype, Buffer(2))
    *batch, row, column = k.indices
    reducer = Reducer("any" if dtype == "bool" else "sum", dtype, k)
    total = reducer.declare()
    with k.block(f"for (int n = 0; n < {depth}; ++n)"):
        lhs, rhs = (
            k.let(
                dtype,
                f"widen({name}[{offset_text(x, [*_batch_indices(batch, x), *names])}])",
            )
            for name, x, names in (("a", a, [row, "n"]), ("b", b, ["n", column]))
        )
        reducer.add(total, [CUDAScalars(k).multiply(lhs, rhs)])
    k(f"y[i] = Narrow<{STORED[dtype]}>::of({total[0].text});")
    return [k.launch()]


def _batch_indices(batch: Sequence[str], x: Operand) -> Sequence[str]:
    """Return the indices of the leading axes of an operand."""
    return batch[len(batch) - (x.spec.ndim - 2) :]
