"""Products of few rows and a matrix of 4-bit numbers, unpacked as they are multiplied.

Reading the matrix is all the work, so each of its numbers is read once for all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from toolkit.backends.base import Operand
from toolkit.backends.numpy.jit.builder import Mask, Number, Value
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.kernel import Kernel, integers
from toolkit.backends.numpy.jit.lowering import (
    ERROR,
    TASKS,
    Call,
    Lowered,
    Reference,
    index_problem,
)
from toolkit.backends.numpy.jit.processor import current

# Bytes that are worth a task.
_TASK_BYTES = 1 << 16
# Columns whose numbers are a line of a cache.
_LINE = 128
# Rows of the matrix that are read side by side for one row of the first factor.
_TERMS = 4


@dataclass(frozen=True)
class Int4Plan:
    """What the code depends on.

    Attributes:
        lanes: of a vector.
        rows: of the first factor.
        terms: rows of the matrix that are read side by side.
    """

    lanes: int
    rows: int
    terms: int


class Int4Numbers(NamedTuple):
    """What follows the addresses in the table.

    Attributes:
        depth, columns, blocks: extents.
        line: bytes of a packed row.
        width: columns of a panel.
    """

    depth: Any
    columns: Any
    blocks: Any
    line: Any
    width: Any


def lower_matmul_int4(
    node: Any, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """One call, whose rows are panels of columns."""
    x, packed, scale, *_ = inputs
    if not all(each.is_contiguous for each in inputs) or x.spec.dtype != "float32":
        return None
    (rows, depth), columns = x.spec.shape, scale.spec.shape[-1]
    if not rows * columns:
        return Lowered()
    lanes = current().lanes
    nbytes = sum(each.spec.nbytes for each in (*inputs, *outputs))
    tasks = max(1, min(TASKS, packed.spec.nbytes // _TASK_BYTES))
    width = -(-columns // (tasks * _LINE)) * _LINE
    panels = -(-columns // width)
    places: list[Reference] = [("in", i) for i in range(len(inputs))]
    call = Call(
        Code(emit_int4, Int4Plan(lanes, rows, max(1, _TERMS // rows))),
        (*places, ("out", 0), ERROR),
        Int4Numbers(depth, columns, scale.spec.shape[0], packed.spec.shape[-1], width),
        panels,
        flops=2 * rows * depth * columns,
        nbytes=nbytes,
        problem=index_problem("take", 0),
    )
    return Lowered([call])


def emit_int4(plan: Int4Plan) -> Kernel:
    """The function that computes panels.

    The table: addresses of x, of packed numbers, scales, zeros and blocks, of the
    result, and of what is noted of a bad block; `Int4Numbers`.
    """
    b = Kernel(plan.lanes)
    writer = _Panel(b, plan)
    n = writer.n
    with b.loop(b.low, b.high) as panel:
        first, end = b.part(panel, n.width, n.columns)
        for i in range(plan.rows):
            for column, mask in b.run(first, end):
                zero = b.filled(0.0, "float32")
                b.store(zero, writer.y, column + i * n.columns, mask)
        whole = b.whole_vectors(0, n.depth, plan.terms)
        with b.loop(0, whole, plan.terms) as k:
            writer.add([k + t for t in range(plan.terms)], first, end)
        with b.loop(whole, n.depth) as k:
            writer.add([k], first, end)
    return b


class _Panel:
    """Adds to the sums of some columns, which are where the result is."""

    def __init__(self, b: Kernel, plan: Int4Plan) -> None:
        self.b = b
        self.rows = plan.rows
        self.x, self.packed, self.scale, self.zero, self.block, self.y = (
            b.next_address() for _ in range(6)
        )
        self.error = b.next_address()
        self.n = Int4Numbers(*(b.next_entry() for _ in Int4Numbers._fields))

    def add(self, terms: Sequence[Number], first: Number, end: Number) -> None:
        """Add some terms to the sums of columns, in their order."""
        b, n = self.b, self.n
        starts = [self._block(k) * n.columns for k in terms]
        xs = [
            [b.splat(self._x(k + i * n.depth)) for k in terms] for i in range(self.rows)
        ]
        for column, mask in b.run(first, end):
            pairs = zip(terms, starts, strict=True)
            weights = [self._weights(k, start, column, mask) for k, start in pairs]
            for i, factors in enumerate(xs):
                place = column + i * n.columns
                total = b.load(self.y, place, "float32", mask)
                for x, weight in zip(factors, weights, strict=True):
                    total = b.intrinsic("fma", x, weight, total)
                b.store(total, self.y, place, mask)

    def _x(self, index: Number) -> Value:
        return self.b.scalar(self.b.at(self.x, index, "float32"), "float32")

    def _block(self, k: Number) -> Number:
        """The block of a row: one that exists, whatever is stored there."""
        b, blocks = self.b, self.n.blocks
        stored = b.scalar(b.at(self.block, k, "float32"), "float32")
        name = "@llvm.fptosi.sat.i64.f32"
        b.declarations.add(f"declare i64 {name}(float)")
        block = b.index(f"call i64 {name}(float {stored})")
        safe = b.most(b.least(block, blocks - 1), 0)
        with b.when(b.compare("ne", block, safe)):
            b.note_bad_index(self.error, block, blocks)
        return safe

    def _weights(self, k: Number, start: Number, column: Number, mask: Mask) -> Value:
        """What the numbers of a row of the matrix stand for."""
        b = self.b
        place = column + start
        zero = b.convert("sext", b.load(self.zero, place, "int8", mask), "int32")
        whole = b.binary("sub", self._numbers(k, column, mask), zero)
        scale = b.load(self.scale, place, "float32", mask)
        return b.binary("fmul", b.convert("sitofp", whole, "float32"), scale)

    def _numbers(self, k: Number, column: Number, mask: Mask) -> Value:
        """The numbers themselves: lower halves of bytes, then upper ones."""
        b, lanes = self.b, self.b.lanes
        place = self.packed + (k * self.n.line + column // 2)
        halves = [i // 2 for i in range(lanes)]
        if mask is None:
            text = f"load <{lanes // 2} x i8>, ptr {place}, align 1"
            pairs = b.let(text, "int8", lanes // 2)
            pairs = b.shuffled(pairs, pairs, halves)
        else:
            pairs = b.gather_at(place, integers(halves, "int64"), "i8", "int8", mask)
        wide = b.convert("sext", pairs, "int32")
        up = integers((28 - 4 * (i % 2) for i in range(lanes)), "int32")
        return b.binary("ashr", b.binary("shl", wide, up), b.filled(28, "int32"))
