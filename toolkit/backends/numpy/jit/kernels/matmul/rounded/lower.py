"""From a product of rounded factors to calls: both factors as blocks, and a product."""

from __future__ import annotations

from typing import NamedTuple

from toolkit.backends.base import aligned
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.epilogue import Described
from toolkit.backends.numpy.jit.kernels.amx import (
    BLOCK_BYTES,
    BLOCK_LINES,
    BLOCK_TERMS,
    PANELS,
    SPAN,
)
from toolkit.backends.numpy.jit.kernels.dots import flops_in_blocks
from toolkit.backends.numpy.jit.kernels.matmul.combine import combining
from toolkit.backends.numpy.jit.kernels.matmul.pack import (
    APART,
    LINES,
    TERMS,
    packing_of,
)
from toolkit.backends.numpy.jit.kernels.matmul.problem import Problem
from toolkit.backends.numpy.jit.kernels.matmul.rounded.deep import (
    PART,
    DeepNumbers,
    Read,
    emit_deep_product,
)
from toolkit.backends.numpy.jit.kernels.matmul.rounded.pack import (
    StripNumbers,
    emit_strips,
)
from toolkit.backends.numpy.jit.kernels.matmul.rounded.product import (
    RoundedNumbers,
    emit_rounded_product,
)
from toolkit.backends.numpy.jit.lowering import (
    TASKS,
    Call,
    Lowered,
    Reference,
    operands_of,
    partition,
)
from toolkit.backends.numpy.jit.processor import current
from toolkit.ir import Graph

# What a core does in a second, as measured over shapes of (16, 64, 64) and more:
# arithmetic of float32, and bytes it packs.
_FLOPS, _BYTES = 1.5e11, 1.8e10
# Arithmetic, and bytes, that are worth a task.
_TASK_FLOPS, _TASK_BYTES = 1 << 26, 1 << 18
# Strips, and blocks of each, that a row of a packing call packs: of a factor whose
# terms follow each other in memory, and of one whose lines do.
_CHUNKS = {TERMS: (1, 16), LINES: (32, 2)}


class Factor(NamedTuple):
    """A factor, or several that are parts of the same lines; strides in bytes.

    Attributes:
        packing: the axis with stride 1.
        dtype: of its elements.
        lines, depth: extents.
        line, term: strides.
        factors, factor: how many there are, and the stride from one to the next.
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
    """The call that packs a factor.

    Args:
        factor: which one.
        is_second: whether pairs of all lines follow each other.
        source, target: where it is, and where its strips go.
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
        # The product reads pairs of strips, of which the last may be arbitrary.
        prepares=nbytes + strips % 2 * (nbytes // strips) if is_second else 0,
    )


def lower_rounded(p: Problem, body: Graph) -> Lowered | None:
    """The calls of one product; None where those of float32 are to be preferred."""
    if not _pays(p):
        return None
    slots = _deep_slots(p)
    return _deep(p, body, slots) if slots else _Lowering(p, body).lowered()


def _deep_slots(p: Problem) -> int:
    """The slots of a product of many terms; 0: it is not to be computed so."""
    cache, sums = current().cache_bytes, p.size * p.itemsize
    of_a, of_b = p.items
    factors = (p.rows * of_a + p.columns * of_b) * p.depth
    # Sums, and a part of the factors, stay in the cache; all of the factors do not.
    if p.is_frozen or 4 * sums > cache or 2 * factors < cache:
        return 0
    if p.rows % SPAN or p.columns % SPAN or p.depth % (PART * BLOCK_TERMS):
        return 0
    # Writing and reading the sums of slots takes a fourth of reading the factors.
    return min(factors // (8 * sums), TASKS, p.depth // (PART * BLOCK_TERMS))


def _deep(p: Problem, body: Graph, slots: int) -> Lowered:
    """The calls of a product of many terms: sums of slots, and their sum."""
    blocks = p.depth // BLOCK_TERMS
    slot = -(-blocks // (slots * PART)) * PART
    slots = -(-blocks // slot)
    sums = p.size * p.itemsize
    partials: Reference = ("work", 0)
    packed: Reference = ("work", aligned(slots * sums))
    scratch = (p.rows + p.columns) // BLOCK_LINES * PART * BLOCK_BYTES
    multiply = Call(
        Code(emit_deep_product, *_reads(p)),
        (("in", p.a), ("in", p.b), partials, packed),
        DeepNumbers(
            *(p.rows, p.columns, blocks),
            *(p.a_row, p.a_term, p.b_line, p.b_term),
            *(slot, scratch),
        ),
        slots,
        flops=p.flops,
        nbytes=p.nbytes,
    )
    combine = combining(p, body, slots, partials)
    return Lowered((multiply, combine), packed[1] + slots * scratch)


def _pays(p: Problem) -> bool:
    """Whether blocks are multiplied, and packing them is not the longer part."""
    if not current().rounds_factors:
        return False
    # A batch's products, and rows that have to be the same in any batch, are float32's.
    if p.batch or p.even or p.turned or p.dtype != "float32" or not p.flops:
        return False
    if any(read.packing == APART for read in _reads(p)):
        return False
    rows, columns = (-(-n // SPAN) * SPAN for n in (p.rows, p.columns))
    of_a, of_b = p.items
    packed = p.rows * of_a + (0 if p.is_frozen else p.columns * of_b)
    seconds = 2 * rows * columns * p.depth / flops_in_blocks(_FLOPS)
    seconds += packed * p.depth / _BYTES
    return seconds < p.flops / _FLOPS


def _reads(p: Problem) -> tuple[Read, Read]:
    """How both factors are read."""
    of_a, of_b = p.items
    a = packing_of(p.a_row, p.a_term, of_a)
    b = packing_of(p.b_line, p.b_term, of_b)
    return Read(a, p.a_dtype), Read(b, p.b_dtype)


class _Lowering:
    """The calls of one product."""

    def __init__(self, p: Problem, body: Graph) -> None:
        self.p, self.body = p, body
        self.blocks: int = -(-p.depth // BLOCK_TERMS)
        # Pairs of strips are multiplied; a strip that does not exist is arbitrary.
        self.tiles: int = -(-p.rows // SPAN)
        self.panels: int = -(-p.columns // SPAN)

    def lowered(self) -> Lowered:
        """All calls, in order."""
        p = self.p
        of_a, of_b = _reads(p)
        b: Reference = ("work", 0)
        a: Reference = ("work", self._bytes(self.panels))
        factor_b = Factor(*of_b, p.columns, p.depth, p.b_line, p.b_term)
        factor_a = Factor(*of_a, p.rows, p.depth, p.a_row, p.a_term)
        calls = (
            pack_call(factor_b, True, ("in", p.b), b),
            pack_call(factor_a, False, ("in", p.a), a),
            self._multiply(a, b),
        )
        return Lowered(calls, a[1] + self._bytes(self.tiles))

    def _bytes(self, pairs: int) -> int:
        return aligned(2 * pairs * self.blocks * BLOCK_BYTES)

    def _multiply(self, a: Reference, b: Reference) -> Call:
        p, body = self.p, self.body
        # The strips of a group stay in the cache for all rows of a part.
        near = current().cache_bytes // 2 // (SPAN * self.blocks * BLOCK_TERMS * 2)
        panels = max(1, min(near, PANELS))
        groups = -(-self.panels // panels)
        tiles = -(-self.tiles // min(-(-TASKS // groups), self.tiles))
        rows = groups * -(-self.tiles // tiles)
        return Call(
            Code(emit_rounded_product, Described(body)),
            (*operands_of(body), a, b),
            RoundedNumbers(
                p.rows, p.columns, self.blocks, panels * SPAN, groups, tiles * SPAN
            ),
            rows,
            partition(rows, p.flops // _TASK_FLOPS),
            flops=p.flops,
            nbytes=p.nbytes,
        )
