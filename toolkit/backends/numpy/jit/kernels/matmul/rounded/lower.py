"""Lowering of products with rounded operands: packing into blocks, and a product."""

from __future__ import annotations

from typing import NamedTuple

from toolkit.backends.numpy.jit.calls import (
    Call,
    Lowered,
    Reference,
    operands_of,
    partition,
)
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.epilogue import BodyStructure
from toolkit.backends.numpy.jit.kernels.amx import (
    BLOCK_BYTES,
    BLOCK_LINES,
    BLOCK_TERMS,
    PANELS,
    SPAN,
)
from toolkit.backends.numpy.jit.kernels.dot_product_tiles import block_flops
from toolkit.backends.numpy.jit.kernels.matmul.combine import combine_call
from toolkit.backends.numpy.jit.kernels.matmul.pack import (
    LINES,
    STRIDED,
    TERMS,
    packing_of,
)
from toolkit.backends.numpy.jit.kernels.matmul.problem import Problem
from toolkit.backends.numpy.jit.kernels.matmul.rounded.pack import (
    StripNumbers,
    emit_strips,
)
from toolkit.backends.numpy.jit.kernels.matmul.rounded.product import (
    RoundedNumbers,
    emit_rounded_product,
)
from toolkit.backends.numpy.jit.kernels.matmul.rounded.split_k import (
    PART,
    OperandFormat,
    SplitKNumbers,
    emit_split_k_product,
)
from toolkit.backends.numpy.jit.processor import current
from toolkit.ir import Graph
from toolkit.plans.loops.planner import TASKS
from toolkit.plans.operands import align_up

# The throughput of a core, measured for shapes of (16, 64, 64) and more: float32
# FLOP/s, and bytes/s of packing.
_FLOP_PER_SECOND, _BYTES_PER_SECOND = 1.5e11, 1.8e10
# The least FLOPs of a product task, and the least bytes of a packing task.
_TASK_FLOPS, _TASK_BYTES = 1 << 26, 1 << 18
# Strips, and blocks of each strip, in a row of a packing call, for contiguous terms and
# for contiguous lines.
_CHUNKS = {TERMS: (1, 16), LINES: (32, 2)}


class Factor(NamedTuple):
    """An operand, or several parts of the same lines. Strides are in bytes.

    Attributes:
        packing: the axis with stride 1.
        dtype: of its elements.
        lines, depth: extents.
        line, term: strides.
        factors, factor: the number of parts, and their stride.
    """

    packing: str
    dtype: str
    lines: int
    depth: int
    line: int
    term: int
    factors: int = 1
    factor: int = 0


def pack_call(
    factor: Factor, is_second: bool, source: Reference, target: Reference
) -> Call:
    """Return the call that packs an operand.

    Args:
        factor: the operand.
        is_second: whether the pairs of all lines are contiguous.
        source, target: the operand, and the destination of its strips.
    """
    lines, blocks = factor.lines, -(-factor.depth // BLOCK_TERMS)
    group, chunk = _CHUNKS[factor.packing]
    strips, chunks = -(-lines // BLOCK_LINES), -(-blocks // chunk)
    nbytes = strips * factor.factors * blocks * BLOCK_BYTES
    rows = -(-strips // group) * factor.factors * chunks
    return Call(
        Code(emit_strips, factor.packing, is_second, factor.dtype),
        (source, target),
        StripNumbers(
            *(lines, factor.depth, factor.line, factor.term),
            *(blocks, group, chunk, chunks, factor.factors, factor.factor),
        ),
        rows,
        partition(rows, nbytes // _TASK_BYTES),
        nbytes=3 * nbytes,
        # The product reads pairs of strips. The last strip may be arbitrary.
        prepares=nbytes + strips % 2 * (nbytes // strips) if is_second else 0,
    )


def lower_rounded(p: Problem, body: Graph) -> Lowered | None:
    """Return the calls of one product, or None if float32 is faster."""
    if not _is_faster(p):
        return None
    slots = _split_k_slots(p)
    return _lower_split_k(p, body, slots) if slots else _Lowering(p, body).lower()


def _split_k_slots(p: Problem) -> int:
    """Return the slots of a product of many terms, or 0 if `split_k` does not apply."""
    cache, sums = current().cache_bytes, p.size * p.itemsize
    a_itemsize, b_itemsize = p.items
    factors = (p.rows * a_itemsize + p.columns * b_itemsize) * p.depth
    # Sums, and a part of the operands, stay in the cache. The whole operands do not.
    if p.is_frozen or 4 * sums > cache or 2 * factors < cache:
        return 0
    if p.rows % SPAN or p.columns % SPAN or p.depth % (PART * BLOCK_TERMS):
        return 0
    # The sums of slots add at most a quarter to the traffic of the operands.
    return min(factors // (8 * sums), TASKS, p.depth // (PART * BLOCK_TERMS))


def _lower_split_k(p: Problem, body: Graph, slots: int) -> Lowered:
    """Lower a product of many terms: sums of slots, and their reduction."""
    blocks = p.depth // BLOCK_TERMS
    slot = -(-blocks // (slots * PART)) * PART
    slots = -(-blocks // slot)
    sums = p.size * p.itemsize
    partials: Reference = ("work", 0)
    packed: Reference = ("work", align_up(slots * sums))
    scratch = (p.rows + p.columns) // BLOCK_LINES * PART * BLOCK_BYTES
    multiply = Call(
        Code(emit_split_k_product, *_operand_formats(p)),
        (("in", p.a), ("in", p.b), partials, packed),
        SplitKNumbers(
            *(p.rows, p.columns, blocks),
            *(p.a_row, p.a_term, p.b_line, p.b_term),
            *(slot, scratch),
        ),
        slots,
        flops=p.flops,
        nbytes=p.nbytes,
    )
    combine = combine_call(p, body, slots, partials)
    return Lowered((multiply, combine), packed[1] + slots * scratch)


def _is_faster(p: Problem) -> bool:
    """Return whether the processor rounds operands, and the packing pays."""
    if not current().rounds_factors:
        return False
    # Batches, and rows that must not depend on the batch, use float32.
    if (
        p.batch
        or p.is_batch_invariant
        or p.is_transposed
        or p.dtype != "float32"
        or not p.flops
    ):
        return False
    if any(read.packing == STRIDED for read in _operand_formats(p)):
        return False
    rows, columns = (-(-n // SPAN) * SPAN for n in (p.rows, p.columns))
    a_itemsize, b_itemsize = p.items
    packed = p.rows * a_itemsize + (0 if p.is_frozen else p.columns * b_itemsize)
    seconds = 2 * rows * columns * p.depth / block_flops(_FLOP_PER_SECOND)
    seconds += packed * p.depth / _BYTES_PER_SECOND
    return seconds < p.flops / _FLOP_PER_SECOND


def _operand_formats(p: Problem) -> tuple[OperandFormat, OperandFormat]:
    """Return the format of both operands."""
    a_itemsize, b_itemsize = p.items
    a = packing_of(p.a_row, p.a_term, a_itemsize)
    b = packing_of(p.b_line, p.b_term, b_itemsize)
    return OperandFormat(a, p.a_dtype), OperandFormat(b, p.b_dtype)


class _Lowering:
    """The calls of one product."""

    def __init__(self, p: Problem, body: Graph) -> None:
        self.p, self.body = p, body
        self.blocks: int = -(-p.depth // BLOCK_TERMS)
        # Pairs of strips are multiplied. A strip past the end is arbitrary.
        self.tiles: int = -(-p.rows // SPAN)
        self.panels: int = -(-p.columns // SPAN)

    def lower(self) -> Lowered:
        """Return all calls, in order."""
        p = self.p
        a_format, b_format = _operand_formats(p)
        b: Reference = ("work", 0)
        a: Reference = ("work", self._bytes(self.panels))
        factor_b = Factor(*b_format, p.columns, p.depth, p.b_line, p.b_term)
        factor_a = Factor(*a_format, p.rows, p.depth, p.a_row, p.a_term)
        calls = (
            pack_call(factor_b, True, ("in", p.b), b),
            pack_call(factor_a, False, ("in", p.a), a),
            self._multiply(a, b),
        )
        return Lowered(calls, a[1] + self._bytes(self.tiles))

    def _bytes(self, pairs: int) -> int:
        return align_up(2 * pairs * self.blocks * BLOCK_BYTES)

    def _multiply(self, a: Reference, b: Reference) -> Call:
        p, body = self.p, self.body
        # The strips of a group stay in the cache for all rows of a part.
        panels_in_cache = (
            current().cache_bytes // 2 // (SPAN * self.blocks * BLOCK_TERMS * 2)
        )
        panels = max(1, min(panels_in_cache, PANELS))
        groups = -(-self.panels // panels)
        tiles = -(-self.tiles // min(-(-TASKS // groups), self.tiles))
        rows = groups * -(-self.tiles // tiles)
        return Call(
            Code(emit_rounded_product, BodyStructure(body)),
            (*operands_of(body), a, b),
            RoundedNumbers(
                p.rows, p.columns, self.blocks, panels * SPAN, groups, tiles * SPAN
            ),
            rows,
            partition(rows, p.flops // _TASK_FLOPS),
            flops=p.flops,
            nbytes=p.nbytes,
        )
