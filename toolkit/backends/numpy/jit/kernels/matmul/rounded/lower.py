"""Lowering of products with rounded operands: packing into blocks, and a product."""

from __future__ import annotations

from toolkit.backends.numpy.jit.calls import (
    Call,
    Lowered,
    operands_of,
)
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.epilogue import BodyStructure
from toolkit.backends.numpy.jit.kernels.gemm.amx import (
    BFLOAT16,
    BLOCK_BYTES,
    BLOCK_LINES,
    BLOCK_TERMS,
    SPAN,
    TILE_ROW_BYTES,
)
from toolkit.backends.numpy.jit.kernels.gemm.call_list import CallList
from toolkit.backends.numpy.jit.kernels.gemm.combine import combine_call
from toolkit.backends.numpy.jit.kernels.gemm.cost_model import BlockRates
from toolkit.backends.numpy.jit.kernels.gemm.problem import STRIDED
from toolkit.backends.numpy.jit.kernels.gemm.strips import (
    Factor,
    pack_call,
)
from toolkit.backends.numpy.jit.kernels.gemm.tiled_product import (
    Division,
    TiledNumbers,
    divide_into_parts,
    emit_tiled_product,
)
from toolkit.backends.numpy.jit.kernels.matmul.problem import Problem
from toolkit.backends.numpy.jit.kernels.matmul.rounded.split_k import (
    PART,
    OperandFormat,
    SplitKNumbers,
    emit_split_k_product,
)
from toolkit.backends.numpy.jit.processor import current
from toolkit.ir import Graph
from toolkit.plans.loops.planner import TASKS

# Measured for shapes of (16, 64, 64) and more.
_RATES = BlockRates(float32_flops=1.5e11, packed_bytes=1.8e10)


# The rows up to which a group has few columns: the rows stay in the cache, and panels
# come from memory. 128 rows of 768 and of 3,072 terms take 6 and 10 % less time.
_FEW_ROWS, _FEW_COLUMNS = 128, 2 * SPAN


def lower_rounded(p: Problem, body: Graph) -> Lowered | None:
    """Return the calls of one product, or None if float32 is faster."""
    if not _is_faster(p):
        return None
    slots = _split_k_slots(p)
    return _lower_split_k(p, body, slots) if slots else _lower_packed(p, body)


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
    calls, blocks = CallList(), p.depth // BLOCK_TERMS
    slot = -(-blocks // (slots * PART)) * PART
    slots = -(-blocks // slot)
    partials = calls.allocate(slots * p.size * p.itemsize)
    scratch = (p.rows + p.columns) // BLOCK_LINES * PART * BLOCK_BYTES
    packed = calls.allocate(slots * scratch)
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
    calls.append(multiply)
    calls.append(combine_call(p, body, slots, partials))
    return calls.lower()


def _lower_packed(p: Problem, body: Graph) -> Lowered:
    """Lower a product whose operands earlier calls pack into strips."""
    calls, blocks = CallList(), -(-p.depth // BLOCK_TERMS)
    panel_bytes = 2 * blocks * BLOCK_BYTES
    # Pairs of strips are multiplied. A strip past the end is arbitrary.
    b, a = (calls.allocate(-(-n // SPAN) * panel_bytes) for n in (p.columns, p.rows))
    a_format, b_format = _operand_formats(p)
    columns = Factor(*b_format, p.columns, p.depth, p.b_line, p.b_term)
    rows = Factor(*a_format, p.rows, p.depth, p.a_row, p.a_term)
    calls.append(pack_call(columns, True, ("in", p.b), b))
    calls.append(pack_call(rows, False, ("in", p.a), a))
    division = divide_into_parts(p.rows, p.columns, panel_bytes)
    if p.rows <= _FEW_ROWS:
        group = min(_FEW_COLUMNS, division.group_columns)
        division = Division(group, p.rows, -(-p.columns // group))
    multiply = Call(
        Code(emit_tiled_product, BFLOAT16, BodyStructure(body)),
        (*operands_of(body), a, b),
        TiledNumbers(
            *(p.rows, p.columns, blocks),
            *(blocks * TILE_ROW_BYTES, panel_bytes),
            *(division.group_columns, division.part_rows),
        ),
        division.rows,
        division.grain(p.flops),
        flops=p.flops,
        nbytes=p.nbytes,
    )
    calls.append(multiply)
    return calls.lower()


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
    block_flops = 2 * rows * columns * p.depth
    return _RATES.prefers_blocks(p.flops, block_flops, packed * p.depth)


def _operand_formats(p: Problem) -> tuple[OperandFormat, OperandFormat]:
    """Return the format of both operands."""
    a, b = p.packings
    return OperandFormat(a, p.a_dtype), OperandFormat(b, p.b_dtype)
