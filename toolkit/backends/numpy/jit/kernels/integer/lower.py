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
from toolkit.backends.numpy.jit.kernels.amx import (
    BLOCK_LINES,
    PANELS,
    SPAN,
    TILE_ROW_BYTES,
)
from toolkit.backends.numpy.jit.kernels.integer.few_rows import (
    FewRowsNumbers,
    FewRowsPlan,
    emit_few_rows,
)
from toolkit.backends.numpy.jit.kernels.integer.pack import (
    WORD_BYTES,
    PanelNumbers,
    RowNumbers,
    emit_pack_panels,
    emit_pack_rows,
    panel_bytes,
)
from toolkit.backends.numpy.jit.kernels.integer.product import (
    IntegerNumbers,
    IntegerPlan,
    emit_integer_product,
)
from toolkit.backends.numpy.jit.kernels.integer.tiles import (
    BLOCK_WORDS,
    TileNumbers,
    emit_integer_tiles,
)
from toolkit.backends.numpy.jit.kernels.integer.words import Words, words_of
from toolkit.backends.numpy.jit.processor import CACHE_LINE, current
from toolkit.ir import Graph
from toolkit.plans.loops.planner import TASKS
from toolkit.plans.operands import Operand, align_up

# The least products of a task, the least products of a task with tiles, and the least
# bytes of a packing task.
TASK_PRODUCTS, _TASK_TILE_PRODUCTS = 1 << 22, 1 << 25
TASK_BYTES = 1 << 18
# For this number of rows or fewer, the matrix is packed only if the packing is cached.
_MAX_UNPACKED_ROWS = 4
# Terms of a row of a tile, and the speedup of tiles over vectors.
_BLOCK_TERMS, _TILE_SPEEDUP = TILE_ROW_BYTES, 3


def lower_matmul_integer(
    body: Graph, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Lower a product of rows and one matrix, and the elementwise nodes after it."""
    factors = operand_indices(body, inputs)
    if factors is None or inputs[factors[1]].spec.ndim != 2:
        return None
    if not body.nodes[0].outputs[0].spec.size:
        return Lowered()
    a, b = factors
    if _can_fill_tiles(body.inputs[a].spec.shape, inputs[b].spec.shape[-1]):
        return _TiledLowering(body, a, b).lower()
    lowering = Lowering(body, a, b)
    is_few = lowering.rows <= _MAX_UNPACKED_ROWS and not inputs[b].is_frozen
    return lowering.lower_few_rows() if is_few else lowering.lower()


def operand_indices(body: Graph, inputs: Sequence[Operand]) -> tuple[int, int] | None:
    """Return the inputs that are the operands, if all inputs are contiguous."""
    indices = {v: i for i, v in enumerate(body.inputs)}
    first, second = body.nodes[0].inputs
    if not {first, second} <= indices.keys():
        return None
    if not all(x.is_contiguous for x in inputs):
        return None
    return indices[first], indices[second]


def _can_fill_tiles(shape: Sequence[int], columns: int) -> bool:
    """Return whether AMX tiles are available and enough of each is filled."""
    *batch, depth = shape
    processor, rows = current(), prod(batch)
    if not (processor.tiles and processor.has("amx-int8")):
        return False
    if processor.lanes != BLOCK_LINES:
        return False
    extents = zip((rows, columns, depth), (SPAN, SPAN, _BLOCK_TERMS), strict=True)
    filled = prod(-(-n // size) * size for n, size in extents)
    return filled < _TILE_SPEEDUP * rows * columns * depth


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
        self.count: int = -(-self.depth // self.words.terms)
        lanes = processor.lanes
        rows, vectors = (6, 4) if processor.registers >= 32 else (4, 2)
        vectors = min(vectors, -(-self.columns // lanes))
        full, remainder = divmod(self.columns, vectors * lanes)
        self.plan = IntegerPlan(
            self.words,
            lanes,
            rows,
            vectors,
            full > 0,
            -(-remainder // lanes),
            remainder % lanes > 0,
            a if self.is_plain else None,
        )
        self.panels: int = full + (remainder > 0)
        self.packed_rows: int = self.rows

    @property
    def panel_bytes(self) -> int:
        """Return the bytes of a panel."""
        return panel_bytes(self.count, self.plan.width)

    @property
    def is_plain(self) -> bool:
        """Return whether the bytes of the left operand are words without packing."""
        is_added_to = self.words.offset != 0
        return self.words.terms == 4 and not is_added_to and self.depth % 4 == 0

    def lower(self) -> Lowered:
        """Return all calls, in order."""
        panels = self.panel_bytes
        of_rows: Reference = ("work", align_up(panels * self.panels))
        calls = [self._pack_panels(panels)]
        if self.plan.a is None:
            calls.append(self._pack_rows(of_rows))
        calls.append(self._multiply(of_rows, panels))
        work = align_up(self.packed_rows * self.count * WORD_BYTES)
        return Lowered(calls, of_rows[1] + (work if self.plan.a is None else 0))

    def _pack_panels(self, size: int) -> Call:
        words = replace(self.words, offset=self.offset)
        code = Code(emit_pack_panels, words, self.plan.lanes, self.plan.vectors)
        nbytes = self.depth * self.columns + size * self.panels
        return Call(
            code,
            (("in", self.b), ("work", 0)),
            PanelNumbers(self.columns, self.depth, self.count, size),
            self.panels,
            partition(self.panels, nbytes // TASK_BYTES),
            nbytes=nbytes,
            prepares=size * self.panels,
        )

    def lower_few_rows(self) -> Lowered:
        """Return the calls for few rows: a packed matrix would be read only once."""
        words = replace(self.words, offset=0)
        size = align_up(self.rows * self.count * WORD_BYTES)
        tasks = max(1, min(TASKS, self.depth * self.columns // TASK_BYTES))
        # Tasks read whole cache lines.
        width = -(-self.columns // (tasks * CACHE_LINE)) * CACHE_LINE
        plan = FewRowsPlan(self.words, self.plan.lanes, self.rows, self.a, self.b)
        products = self.rows * self.depth * self.columns
        multiply = Call(
            Code(emit_few_rows, plan, BodyStructure(self.body)),
            (*operands_of(self.body), ("work", 0), ("work", size)),
            FewRowsNumbers(self.columns, self.depth, self.count * WORD_BYTES, width),
            -(-self.columns // width),
            flops=2 * products,
            nbytes=self.depth * self.columns,
        )
        sums = align_up(self.rows * self.columns * WORD_BYTES)
        return Lowered([self._pack_rows(("work", 0), words), multiply], size + sums)

    def _pack_rows(self, destination: Reference, words: Words | None = None) -> Call:
        words = words or self.words
        nbytes = self.rows * (self.depth + self.count * WORD_BYTES)
        return Call(
            Code(emit_pack_rows, words, self.plan.lanes),
            (("in", self.a), destination),
            RowNumbers(self.depth, self.count * WORD_BYTES),
            self.rows,
            partition(self.rows, nbytes // TASK_BYTES),
            nbytes=nbytes,
        )

    def _multiply(self, of_rows: Reference, panel: int) -> Call:
        body, plan = self.body, self.plan
        tiles = -(-self.rows // plan.rows)
        block = -(-tiles // TASKS) * plan.rows
        blocks = -(-self.rows // block)
        products = self.rows * self.depth * self.columns
        packed = [] if plan.a is not None else [of_rows]
        row = self.depth if plan.a is not None else self.count * WORD_BYTES
        nbytes = sum(v.spec.nbytes for v in (*body.inputs, *body.outputs))
        return Call(
            Code(emit_integer_product, plan, BodyStructure(body)),
            (*operands_of(body), *packed, ("work", 0)),
            IntegerNumbers(
                self.rows, self.columns, self.count, row, panel, block, blocks
            ),
            blocks * self.panels,
            partition(blocks * self.panels, products // TASK_PRODUCTS),
            flops=2 * products,
            nbytes=nbytes,
        )


class _TiledLowering(Lowering):
    """The calls of a product with AMX tiles."""

    def __init__(self, body: Graph, a: int, b: int) -> None:
        super().__init__(body, a, b)
        self.words = Words(4)
        self.blocks: int = -(-self.depth // _BLOCK_TERMS)
        self.count = self.blocks * BLOCK_WORDS
        self.panels = -(-self.columns // SPAN)
        self.packed_rows = -(-self.rows // SPAN) * SPAN
        # Tile loads read rows past the end unless the rows are packed.
        is_whole = self.packed_rows == self.rows and self.depth % _BLOCK_TERMS == 0
        self.plan = replace(
            self.plan, words=self.words, vectors=2, a=a if is_whole else None
        )

    def _multiply(self, of_rows: Reference, panel: int) -> Call:
        body, a = self.body, self.plan.a
        panels_in_cache = current().cache_bytes // 2 // panel
        group = max(1, min(panels_in_cache, PANELS))
        groups, tiles = -(-self.panels // group), self.packed_rows // SPAN
        part_rows = -(-tiles // min(-(-TASKS // groups), tiles)) * SPAN
        units = groups * -(-self.rows // part_rows)
        products = self.rows * self.depth * self.columns
        row = self.depth if a is not None else self.count * WORD_BYTES
        packed = [] if a is not None else [of_rows]
        return Call(
            Code(emit_integer_tiles, a, BodyStructure(body)),
            (*operands_of(self.body), *packed, ("work", 0)),
            TileNumbers(
                *(self.rows, self.columns, self.blocks),
                *(row, panel, group * SPAN, part_rows),
            ),
            units,
            partition(units, products // _TASK_TILE_PRODUCTS),
            flops=2 * products,
            nbytes=sum(v.spec.nbytes for v in (*body.inputs, *body.outputs)),
        )
