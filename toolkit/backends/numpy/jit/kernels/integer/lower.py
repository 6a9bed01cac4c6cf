"""Lowering of integer products: pack both operands into words, then multiply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from toolkit.backends.numpy.jit.calls import (
    Call,
    Lowered,
    Reference,
    operands_of,
    partition,
)
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.epilogue import BodyStructure
from toolkit.backends.numpy.jit.kernels.gemm.amx import (
    BLOCK_LINES,
    INT8,
    SPAN,
    TILE_ROW_BYTES,
)
from toolkit.backends.numpy.jit.kernels.gemm.call_list import CallList, body_call
from toolkit.backends.numpy.jit.kernels.gemm.problem import (
    contiguous_factors,
    is_small_packing,
)
from toolkit.backends.numpy.jit.kernels.gemm.tiled_product import (
    TiledNumbers,
    divide_into_parts,
    emit_tiled_product,
)
from toolkit.backends.numpy.jit.kernels.gemm.tiling import Tiling
from toolkit.backends.numpy.jit.kernels.integer.few_rows import (
    FewRowsNumbers,
    FewRowsPlan,
    SpreadNumbers,
    divide_matrix,
    emit_few_rows,
    emit_few_sums,
    emit_spread_rows,
)
from toolkit.backends.numpy.jit.kernels.integer.pack import (
    TASK_BYTES,
    WORD_BYTES,
    PanelNumbers,
    RowNumbers,
    emit_pack_rows,
    pack_panels,
    panel_bytes,
)
from toolkit.backends.numpy.jit.kernels.integer.product import (
    IntegerNumbers,
    IntegerPlan,
    emit_integer_product,
)
from toolkit.backends.numpy.jit.kernels.integer.words import Words, words_of
from toolkit.backends.numpy.jit.processor import CACHE_LINE, current
from toolkit.ir import Graph
from toolkit.ir.extents import value_of
from toolkit.plans.loops.planner import TASKS
from toolkit.plans.operands import Operand

# The least FLOPs of a task.
TASK_FLOPS = 1 << 23
# For this number of rows or fewer, the matrix is packed only if the packing is cached.
# Reading a cached packing takes 3/4 to 19/20 of the time.
_MAX_UNPACKED_ROWS = 4
# From this number of rows on, a large packing of 16-bit terms is not cached: it takes
# twice the bytes of the matrix. The packing of 768 x 3072 terms takes 15 % of the time
# of 128 rows, and 5 % of 512 rows, on a Zen 3.
_MIN_HIDING_ROWS = 128
# Terms of a row of a tile, and the speedup of tiles over vectors.
_BLOCK_TERMS, TILE_SPEEDUP = TILE_ROW_BYTES, 3
_BLOCK_WORDS = TILE_ROW_BYTES // WORD_BYTES


def lower_matmul_integer(
    body: Graph, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Lower a product of rows and one matrix, and the elementwise nodes after it."""
    factors = contiguous_factors(body, inputs)
    if factors is None or inputs[factors[1]].spec.ndim != 2:
        return None
    if not body.nodes[0].outputs[0].spec.size:
        return Lowered()
    a, b = factors
    if _can_fill_tiles(body.inputs[a].spec.shape, inputs[b].spec.shape[-1]):
        return _TiledLowering(body, a, b).lower()
    lowering = Lowering(body, a, b)
    # Words of 16-bit terms take twice the bytes of the matrix.
    is_packed = inputs[b].is_frozen and lowering.words.terms == WORD_BYTES
    if lowering.rows <= _MAX_UNPACKED_ROWS and not is_packed:
        return lowering.lower_few_rows()
    return lowering.lower()


def _can_fill_tiles(shape: Sequence[int], columns: int) -> bool:
    """Return whether AMX tiles are available and enough of each is filled."""
    *batch, depth = shape
    rows = prod(batch)
    if not _has_tiles():
        return False
    extents = zip((rows, columns, depth), (SPAN, SPAN, _BLOCK_TERMS), strict=True)
    filled = prod(-(-n // size) * size for n, size in extents)
    return filled < TILE_SPEEDUP * rows * columns * depth


def _has_tiles() -> bool:
    """Return whether there are AMX tiles of int8, and vectors of the same width."""
    processor = current()
    has_instructions = processor.tiles and processor.has("amx-int8")
    return bool(has_instructions) and processor.lanes == BLOCK_LINES


class Lowering:
    """The calls of one product.

    Args:
        body: its first node is the product.
        a, b: the inputs that are the operands.
        rows, depth: the extents of the left operand, if they differ from the input's.
    """

    def __init__(
        self, body: Graph, a: int, b: int, rows: int = 0, depth: int | None = None
    ) -> None:
        self.body, self.a, self.b = body, a, b
        first = body.inputs[a].spec
        self.rows: int = rows or prod(first.shape[:-1])
        self.depth: int = first.shape[-1] if depth is None else depth
        self.columns: int = body.inputs[b].spec.shape[-1]
        processor = current()
        attrs = body.nodes[0].attrs
        self.words = words_of(processor, first.dtype, attrs.get("bits", 8))
        self.offset: int = self.words.offset + attrs.get("offset", 0)
        self.panel_words: Words = replace(self.words, offset=self.offset)
        self.count: int = -(-self.depth // self.words.terms)
        lanes = processor.lanes
        rows, vectors = (6, 4) if processor.registers >= 32 else (4, 2)
        if self._shares_panels():
            vectors = SPAN // lanes
            self.count = -(-self.depth // _BLOCK_TERMS) * _BLOCK_WORDS
        vectors = min(vectors, -(-self.columns // lanes))
        self.plan = IntegerPlan(
            self.words,
            Tiling.of("int32", rows, vectors, self.columns),
            self.columns % lanes > 0,
            a if self.is_plain else None,
        )
        self.panels: int = -(-self.columns // self.plan.tiling.width)
        self.packed_rows: int = self.rows
        self.steps = CallList()

    @property
    def panel_bytes(self) -> int:
        """Return the bytes of a panel."""
        return panel_bytes(self.count, self.plan.tiling.width)

    @property
    def is_plain(self) -> bool:
        """Return whether the bytes of the left operand are words without packing."""
        is_added_to = self.words.offset != 0
        return self.words.terms == 4 and not is_added_to and self.depth % 4 == 0

    @property
    def row_bytes(self) -> int:
        """Return the bytes of a row of words."""
        return self.depth if self.plan.a is not None else self.count * WORD_BYTES

    @property
    def flops(self) -> int:
        """Return the FLOPs of the product."""
        return 2 * self.rows * self.depth * self.columns

    def lower(self) -> Lowered:
        """Return all calls, in order."""
        panels = self._pack_panels()
        rows = []
        if self.plan.a is None:
            nbytes = self.packed_rows * self.row_bytes
            rows.append(self.steps.allocate(nbytes))
            self.steps.append(self._pack_rows(rows[0]))
        self.steps.append(self._multiply((*rows, panels)))
        return self.steps.lower()

    def _shares_panels(self) -> bool:
        """Return whether the panels have the layout of tiles, for a large matrix.

        Calls of few and of many rows then read one cached packing. Its panels are half
        as wide, which takes no time where memory limits the product.
        """
        is_packed = self.words.terms == WORD_BYTES and not self.is_plain
        is_large = not is_small_packing(self.depth * self.columns)
        return _has_tiles() and is_packed and is_large

    def _caches_packing(self, nbytes: int) -> bool:
        """Return whether the packing of a frozen matrix is worth its memory.

        Args:
            nbytes: the bytes of the packing.
        """
        has_few_rows = value_of(self.rows) < _MIN_HIDING_ROWS
        is_compact = self.words.terms == WORD_BYTES
        return has_few_rows or is_compact or is_small_packing(nbytes)

    def _pack_panels(self) -> Reference:
        """Append the call that packs the panels, and return their destination."""
        words, tiling = self.panel_words, self.plan.tiling
        nbytes = self.panel_bytes * self.panels
        packed = self.steps.allocate(nbytes)
        numbers = PanelNumbers(self.columns, self.depth, self.count, self.panel_bytes)
        operands = ("in", self.b), packed
        prepares = nbytes if self._caches_packing(nbytes) else 0
        call = pack_panels(
            words, tiling.lanes, tiling.vectors, numbers, operands, prepares
        )
        self.steps.append(call)
        return packed

    def lower_few_rows(self) -> Lowered:
        """Return the calls for few rows: a packed matrix would be read only once."""
        plan = FewRowsPlan(self.words, self.plan.tiling.lanes, self.rows, self.a)
        padded = -(-self.columns // CACHE_LINE) * CACHE_LINE
        segment = (
            -(-self.depth // plan.segments) | 1
        )  # segments do not share cache sets
        nbytes = self.rows * segment * plan.segments * plan.term_bytes
        words = self.steps.allocate(nbytes)
        spread = Call(
            Code(emit_spread_rows, plan),
            (("in", self.a), words),
            SpreadNumbers(self.depth, segment),
            self.rows,
            self.rows,
            nbytes=self.rows * self.depth + nbytes,
        )
        panels, sections = divide_matrix(self.columns, self.depth * self.columns)
        width = -(-self.columns // (panels * CACHE_LINE)) * CACHE_LINE
        panels = -(-self.columns // width)
        sums = self.steps.allocate(sections * self.rows * padded * WORD_BYTES)
        extents = self.columns, self.depth, segment
        numbers = FewRowsNumbers(*extents, width, padded, sections)
        multiply = Call(
            Code(emit_few_sums, plan),
            (("in", self.b), words, sums),
            numbers,
            panels * sections,
            flops=self.flops,
            nbytes=self.depth * self.columns,
        )
        finish = Call(
            Code(emit_few_rows, plan, BodyStructure(self.body)),
            (*operands_of(self.body), sums),
            numbers,
            panels,
            nbytes=sections * self.rows * padded * WORD_BYTES,
        )
        for call in (spread, multiply, finish):
            self.steps.append(call)
        return self.steps.lower()

    def _pack_rows(self, destination: Reference) -> Call:
        nbytes = self.rows * (self.depth + self.count * WORD_BYTES)
        return Call(
            Code(emit_pack_rows, self.words, self.plan.tiling.lanes),
            (("in", self.a), destination),
            RowNumbers(self.depth, self.count * WORD_BYTES),
            self.rows,
            partition(self.rows, nbytes // TASK_BYTES),
            nbytes=nbytes,
        )

    def _multiply(self, factors: Sequence[Reference]) -> Call:
        """Return the call that multiplies packed operands."""
        tiles = -(-self.rows // self.plan.tiling.rows)
        return self._multiply_blocks(self.plan, factors, -(-tiles // TASKS))

    def _multiply_blocks(
        self,
        plan: IntegerPlan,
        factors: Sequence[Reference],
        tiles: int,
        numbers: Sequence[int] = (),
    ) -> Call:
        """Return the call that multiplies blocks of `tiles` register blocks of rows.

        Args:
            plan: of the product.
            factors: the packed operands.
            tiles: the register blocks of a block.
            numbers: of the packing of rows.
        """
        block = tiles * plan.tiling.rows
        blocks = -(-self.rows // block)
        units = blocks if plan.by_rows else blocks * self.panels
        extents = self.rows, self.columns, self.count
        strides = self.row_bytes, self.panel_bytes
        return body_call(
            Code(emit_integer_product, plan, BodyStructure(self.body)),
            self.body,
            factors,
            (*IntegerNumbers(*extents, *strides, block, blocks), *numbers),
            units,
            partition(units, self.flops // TASK_FLOPS),
            self.flops,
        )


class _TiledLowering(Lowering):
    """The calls of a product with AMX tiles."""

    def __init__(self, body: Graph, a: int, b: int) -> None:
        super().__init__(body, a, b)
        self.words = Words(WORD_BYTES)
        self.panel_words = replace(self.panel_words, terms=WORD_BYTES)
        self.blocks: int = -(-self.depth // _BLOCK_TERMS)
        self.count = self.blocks * _BLOCK_WORDS
        self.panels = -(-self.columns // SPAN)
        self.packed_rows = -(-self.rows // SPAN) * SPAN
        # Tile loads read rows past the end unless the rows are packed.
        is_whole = self.packed_rows == self.rows and self.depth % _BLOCK_TERMS == 0
        self.plan = replace(
            self.plan,
            words=self.words,
            tiling=replace(self.plan.tiling, vectors=2),
            a=a if is_whole else None,
        )

    def _multiply(self, factors: Sequence[Reference]) -> Call:
        """Return the call that multiplies groups of panels."""
        panel_bytes = self.panel_bytes
        division = divide_into_parts(self.rows, self.columns, panel_bytes)
        extents = self.rows, self.columns, self.blocks
        strides = self.row_bytes, panel_bytes
        sizes = division.group_columns, division.part_rows
        return body_call(
            Code(emit_tiled_product, INT8, BodyStructure(self.body), self.plan.a),
            self.body,
            factors,
            TiledNumbers(*extents, *strides, *sizes),
            division.rows,
            division.grain(self.flops),
            self.flops,
        )
