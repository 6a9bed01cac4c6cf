"""Places in a sorted sequence. NaN counts as behind all numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import Value
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.fused.elementwise import DTYPES
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.lowering import (
    Call,
    Lowered,
    Operand,
    Reference,
)
from toolkit.backends.numpy.jit.processor import current
from toolkit.backends.numpy.jit.scalars import LLVMScalars

# Values of one task, each of which reads all along a sequence.
_GRAIN = 8192


def _precedes(s: LLVMScalars, a: Value, b: Value) -> Value:
    """Whether a comes before b: it is less, or b alone is NaN."""
    less: Value = s.less(a, b)
    if not dtypes.is_float(a.dtype):
        return less
    last: Value = s.logical_and(s.isnan(b), s.logical_not(s.isnan(a)))
    either: Value = s.logical_or(less, last)
    return either


def emit_searchsorted(dtype: str, side: str) -> Kernel:
    """out[i] = how many of the edges precede x[i], or do not follow it.

    The table: edges, x and the result, how many edges there are, at least one, and how
    often that can be halved until one is left. The steps are the same for all values,
    so a vector of them goes through the edges together.
    """
    b = Kernel(current().lanes)
    s = LLVMScalars(b)
    edges, x, out = (b.address(k) for k in range(3))
    extent, halvings = b.entry(3), b.entry(4)

    def passed(place: Value, value: Value) -> Value:
        """1 where the result lies behind an edge."""
        edge = b.gather_at(edges, place, _type(dtype), dtype, None)
        if side == "left":
            behind = _precedes(s, edge, value)
        else:
            behind = s.logical_not(_precedes(s, value, edge))
        return b.convert("zext", behind, "int32")

    for index, mask in b.run(b.low, b.high):
        value = b.load(x, index, dtype, mask)
        first: list[Value] = [b.filled(0, "int32"), extent]
        with b.accumulate(0, halvings, 1, first) as iteration:
            start, left = iteration.values[0], iteration.index_of(1)
            half = left // 2
            step = b.int32(b.int64(half))
            one = b.filled(1, "int32")
            probe = b.binary("sub", b.binary("add", start, step), one)
            moved = b.binary("mul", passed(probe, value), step)
            iteration.next([b.binary("add", start, moved), left - half])
        start = iteration.values[0]
        b.store(b.binary("add", start, passed(start, value)), out, index, mask)
    return b


def _type(dtype: str) -> str:
    return Value("", dtype).type


# --- lowering -------------------------------------------------------------------------


def lower_searchsorted(
    node: Any, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Where values would go in a sorted sequence."""
    edges, x = inputs
    count, dtype = edges.spec.size, x.spec.dtype
    is_known = dtype in DTYPES and dtype != "bool"
    if not is_known or not count or not all(e.is_contiguous for e in inputs):
        return None
    by_rows: tuple[Reference, ...] = (("in", 1), ("out", 0))
    halvings = (count - 1).bit_length()
    call = Call(
        Code(emit_searchsorted, dtype, node.attrs["side"]),
        (("in", 0), *by_rows),
        (count, halvings),
        x.spec.size,
        _GRAIN,
        frozenset(by_rows),
        flops=x.spec.size * (halvings + 1),
        nbytes=x.spec.nbytes + outputs[0].spec.nbytes,
    )
    return Lowered((call,))
