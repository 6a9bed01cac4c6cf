"""Lowering of products to calls: packing, multiplication, reduction of slots."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, replace
from math import prod
from typing import NamedTuple

from toolkit.backends.numpy.jit.calls import (
    ERROR,
    Call,
    Lowered,
    Reference,
    operands_of,
    partition,
)
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.epilogue import BodyStructure
from toolkit.backends.numpy.jit.kernels.gemm.call_list import CallList
from toolkit.backends.numpy.jit.kernels.gemm.combine import combine_call
from toolkit.backends.numpy.jit.kernels.matmul.dot import (
    MAX_ROWS,
    DotNumbers,
    DotPlan,
    emit_dot,
)
from toolkit.backends.numpy.jit.kernels.matmul.pack import (
    PackNumbers,
    emit_pack,
    pad_extent,
)
from toolkit.backends.numpy.jit.kernels.matmul.plan import (
    PRODUCT,
    ROW,
    ProductNumbers,
    ProductPlan,
)
from toolkit.backends.numpy.jit.kernels.matmul.problem import Axis, Problem, problem_of
from toolkit.backends.numpy.jit.kernels.matmul.product import emit_product
from toolkit.backends.numpy.jit.kernels.matmul.rounded import lower_rounded
from toolkit.backends.numpy.jit.kernels.matmul.row import (
    RowNumbers,
    RowPlan,
    emit_row,
    emit_row_panels,
    emit_row_parts,
    panel_bytes,
)
from toolkit.backends.numpy.jit.kernels.matmul.strategies import (
    EACH,
    ONCE,
    Strategy,
    choose,
)
from toolkit.backends.numpy.jit.math.narrow import WIDE, is_narrow
from toolkit.backends.numpy.jit.processor import current
from toolkit.backends.numpy.jit.products import can_round_factors
from toolkit.ir import Graph
from toolkit.ir.extents import largest, value_of
from toolkit.plans.loops.iteration_space import index_problem
from toolkit.plans.operands import Operand, align_up

# Terms of one panel in a row of a packing call: a multiple of any number of lanes.
_CHUNK_TERMS = 256
# Vectors of columns in a row of the call of a single-row product.
_VECTORS = 4
# The most bytes from rows in use to prefetched ones.
_PREFETCHED_BYTES = 1 << 18
# The least bytes of a task.
_TASK_BYTES = 1 << 18


def lower_matmul(
    body: Graph, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Lower products of matrices, and the elementwise nodes after them."""
    p = problem_of(body, inputs)
    if p is None:
        return None
    if not p.products * p.size:
        return Lowered()
    if can_round_factors(body.nodes[0]):
        rounded = lower_rounded(p, body)
        if rounded is not None:
            return rounded
    if p.is_mixed and not _can_convert(p):
        return None
    p = replace(p, is_frozen=p.is_frozen and p.is_worth_packing)
    if p.is_dot:
        return _lower_dot(p, body)
    if p.is_row:
        return _lower_row(p, body)
    return Lowering(p, choose(p), body).lower()


def _can_convert(p: Problem) -> bool:
    """Return whether a kernel converts 16-bit operands while it reads them.

    Tiles read each element of the left operand for every panel, so they do not.
    """
    stored = {p.a_dtype, p.b_dtype} - {p.dtype}
    is_supported = p.dtype == WIDE and all(map(is_narrow, stored))
    return is_supported and (p.a_dtype == WIDE or p.is_dot or p.is_row)


def _lower_dot(p: Problem, body: Graph) -> Lowered:
    """Lower a product with few columns."""
    rows = p.products if p.batch else p.rows
    grain = partition(rows, p.nbytes // _TASK_BYTES)
    is_gathered = p.depth > 0 and p.b_term != p.items[1]
    scratch = align_up(p.columns * p.depth * p.itemsize) if is_gathered else 0
    operands = (*operands_of(body), *([("work", 0)] if is_gathered else []))
    dtypes = p.dtype, p.a_dtype, p.b_dtype
    extents = 1 if p.rows == 1 else MAX_ROWS, p.columns, len(p.batch)
    plan = DotPlan(*dtypes, p.lanes, *extents, p.a, p.b, is_gathered)
    numbers = DotNumbers(p.rows, p.depth, p.a_row, p.b_term, p.b_line, scratch)
    call = Call(
        Code(emit_dot, plan, BodyStructure(body)),
        operands,
        (*numbers, *_numbers(p.batch)),
        rows,
        grain,
        _row_operands(p, body, PRODUCT if p.batch else ROW),
        p.flops,
        p.nbytes,
    )
    return Lowered([call], scratch * call.tasks)


def _lower_row(p: Problem, body: Graph) -> Lowered:
    """Lower a product of one row with many columns."""
    step = p.invariant_step if p.is_batch_invariant else max(1, p.depth)
    is_chained = step < p.depth
    width = _VECTORS * p.lanes
    panel = panel_bytes(p.depth, width, p.items[1])
    rows = -(-p.columns // width)
    packed = p.is_frozen
    part_terms = partition(p.depth, p.nbytes // _TASK_BYTES)
    if not packed and not p.is_batch_invariant and part_terms < p.depth:
        return _lower_row_parts(p, body, part_terms)
    sums = align_up((1 + is_chained) * p.columns * p.itemsize)
    panels: list[Reference] = [("work", sums)] if packed else []
    calls = []
    if packed:
        calls.append(
            Call(
                Code(emit_row_panels, p.b_dtype, p.lanes, width),
                (("in", p.b), *panels),
                (p.columns, p.depth, p.b_term, panel),
                rows,
                prepares=rows * panel,
            )
        )
    terms = current().registers // 2
    dtypes = p.dtype, p.a_dtype, p.b_dtype
    plan = RowPlan(
        *(*dtypes, p.lanes, _VECTORS, terms, p.a, p.b, is_chained, packed),
        _prefetches_rows(p, terms),
    )
    calls.append(
        Call(
            Code(emit_row, plan, BodyStructure(body)),
            (*operands_of(body), *panels, ("work", 0)),
            RowNumbers(p.depth, p.columns, p.a_term, p.b_term, step, panel),
            rows,
            partition(rows, p.nbytes // _TASK_BYTES),
            flops=p.flops,
            nbytes=p.nbytes,
            is_stream=True,
        )
    )
    return Lowered(calls, sums + packed * align_up(rows * panel))


def _prefetches_rows(p: Problem, terms: int) -> bool:
    """Return whether to prefetch rows of 16-bit floats, `terms` rows ahead.

    Measured: rows of 1.5 KB are read at 12.3 instead of 8.5 GB/s, and rows of 100 KB at
    11.1 instead of 15.7 GB/s.
    """
    return p.b_dtype != p.dtype and terms * p.b_term <= _PREFETCHED_BYTES


def _lower_row_parts(p: Problem, body: Graph, part_terms: int) -> Lowered:
    """Lower a product of one row with partial sums of `part_terms` terms each."""
    part_count = -(-p.depth // part_terms)
    sums = part_count * p.columns * p.itemsize
    dtypes = p.dtype, p.a_dtype, p.b_dtype
    terms = current().registers // 2
    prefetches = _prefetches_rows(p, terms)
    plan = RowPlan(*dtypes, p.lanes, _VECTORS, terms, prefetches=prefetches)
    call = Call(
        Code(emit_row_parts, plan),
        (("in", p.a), ("in", p.b), ("work", 0)),
        RowNumbers(p.depth, p.columns, p.a_term, p.b_term, part_terms, 0),
        part_count,
        1,
        flops=p.flops,
        nbytes=p.nbytes,
        is_stream=True,
    )
    return Lowered(
        [call, combine_call(p, body, part_count, ("work", 0))], align_up(sums)
    )


def _numbers(batch: Iterable[Axis]) -> list[int]:
    return [number for axis in batch for number in astuple(axis)]


def _row_operands(p: Problem, body: Graph, unit: str) -> frozenset[Reference]:
    """Return the operands of which each row of a call accesses only its part."""
    if p.is_transposed or unit not in (ROW, PRODUCT):
        return frozenset()
    result = body.nodes[0].outputs[0].spec
    shared = -1 if unit == ROW else -2
    operands: set[Reference] = {("out", i) for i in range(len(body.outputs))}
    for i, value in enumerate(body.inputs):
        # An input that is both operands is read as a whole.
        is_factor = unit == PRODUCT or i == p.a != p.b
        if i not in (p.a, p.b):
            is_shared = value.spec.size == result.size
        else:
            is_shared = is_factor and value.spec.shape[:shared] == result.shape[:shared]
        if is_shared:
            operands.add(("in", i))
    return frozenset(operands)


class _Lines(NamedTuple):
    """The lines of an operand: their number, byte strides, and the lines of a panel."""

    factor: Reference
    dtype: str
    packing: str
    number: int
    line: int
    term: int
    panel: int


class Lowering:
    """The calls of one product by a chosen strategy."""

    def __init__(self, p: Problem, strategy: Strategy, body: Graph) -> None:
        self.p = p
        self.strategy = strategy
        self.tiling = strategy.tiling
        self.body = body
        self.steps = CallList()
        self.panels: int = -(-p.columns // self.tiling.width)
        self.row_blocks: int = -(-p.rows // strategy.rows)
        self.panel_blocks: int = -(-self.panels // strategy.panels)
        self.slots: int = largest(1, -(-p.depth // strategy.depth))
        self.axes = list(p.batch)
        self.a_row: int = p.a_row
        self.a_term: int = p.a_term
        self.b_term: int = p.b_term
        self.b_panel: int = self.tiling.width * p.b_line

    def lower(self) -> Lowered:
        """Return all calls, in order."""
        tiles = self._pack_tiles() if self.strategy.pack_a == ONCE else None
        panels = self._pack_panels() if self.strategy.pack_b == ONCE else None
        # Partial sums of one slot are right too, but only a divided product has them.
        if value_of(self.slots) > 1 or self.slots > 1:
            self._multiply_slots(tiles, panels)
        else:
            self._multiply(tiles, panels)
        return self.steps.lower()

    def _packed_bytes(self, lines: int, depth: int) -> int:
        return lines * pad_extent(depth, self.p.lanes) * self.p.itemsize

    def _pack_tiles(self) -> Reference:
        """Pack the left operand of a single product into tiles."""
        p, tiling = self.p, self.tiling
        x = ("in", p.a), p.a_dtype, p.packings[0]
        lines = _Lines(*x, p.rows, p.a_row, p.a_term, tiling.rows)
        size = self._packed_bytes(tiling.padded_rows, p.depth)
        self.a_row, self.a_term = size, tiling.padded_rows * p.itemsize
        return self._pack(lines, size, ())

    def _pack_panels(self) -> Reference:
        """Pack the right operand into panels."""
        p, width = self.p, self.tiling.width
        x = ("in", p.b), p.b_dtype, p.packings[1]
        lines = _Lines(*x, p.columns, p.b_line, p.b_term, width)
        size = self._packed_bytes(width, p.depth)
        self.b_term, self.b_panel = width * p.itemsize, size
        step = 0 if p.is_shared else size * self.panels
        for i, axis in reversed(list(enumerate(self.axes))):
            self.axes[i] = replace(axis, b=step)
            step *= axis.extent
        return self._pack(lines, size, () if p.is_shared else p.batch)

    def _pack(self, x: _Lines, size: int, batch: Sequence[Axis]) -> Reference:
        """Pack an operand of each product of a batch, in panels of `size` bytes."""
        p = self.p
        products, panels = prod(axis.extent for axis in batch), -(-x.number // x.panel)
        reference = self.steps.allocate(size * panels * products)
        chunks = largest(1, -(-p.depth // _CHUNK_TERMS))
        rows = products * panels * chunks
        numbers = PackNumbers(
            x.number, p.depth, x.line, x.term, _CHUNK_TERMS, chunks, panels
        )
        nbytes = 2 * products * p.depth * x.number * p.itemsize
        self.steps.append(
            Call(
                Code(
                    *(emit_pack, p.dtype, p.lanes, x.packing, x.panel, len(batch)),
                    x.dtype,
                ),
                (x.factor, reference),
                (*numbers, *_numbers(batch)),
                rows,
                partition(rows, nbytes // _TASK_BYTES),
                nbytes=nbytes,
                prepares=size * panels * products,
            )
        )
        return reference

    def _multiply(self, tiles: Reference | None, panels: Reference | None) -> None:
        """Append the call that multiplies into the result."""
        plan, body = self._plan(), BodyStructure(self.body)
        plan = replace(plan, has_panels=panels is not None)
        operands = (*operands_of(self.body), *filter(None, (tiles, panels)))
        if plan.is_chained and len(self.body.nodes) > 1:
            sums = self.steps.allocate(self.p.products * self.p.size * self.p.itemsize)
            operands = (*operands, sums)
        self._append(plan, body, operands)

    def _multiply_slots(
        self, tiles: Reference | None, panels: Reference | None
    ) -> None:
        """Append the calls that multiply slots, and add their partial sums."""
        p = self.p
        partials = self.steps.allocate(self.slots * p.size * p.itemsize)
        factors = (tiles or ("in", p.a), panels or ("in", p.b))
        plan = replace(self._plan(), a=0, b=1)
        self._append(plan, None, (*factors, partials))
        self.steps.append(combine_call(p, self.body, self.slots, partials))

    def _plan(self) -> ProductPlan:
        p, strategy = self.p, self.strategy
        a, b = p.packings
        return ProductPlan(
            self.tiling,
            strategy.unit,
            len(p.batch),
            p.a,
            p.b,
            is_across=p.is_across,
            has_contiguous_terms=not strategy.pack_a and p.a_term == p.itemsize,
            is_chained=strategy.step < strategy.depth,
            has_tiles=strategy.pack_a == ONCE,
            pack_a=a if strategy.pack_a == EACH else "",
            pack_b=b if strategy.pack_b == EACH and not p.unpack_source else "",
            b_dtype="" if p.b_dtype == p.dtype else p.b_dtype,
            unpack_source=p.unpack_source,
        )

    def _append(
        self,
        plan: ProductPlan,
        body: BodyStructure | None,
        operands: tuple[Reference, ...],
    ) -> None:
        """Append the call that multiplies."""
        p, strategy = self.p, self.strategy
        units = {ROW: p.rows, PRODUCT: p.products}
        rows = units.get(strategy.unit, strategy.blocks(p))
        is_packed = plan.pack_b or plan.unpack_source
        lines = strategy.panels * self.tiling.width if is_packed else 0
        scratch_a = align_up(self._packed_bytes(lines, strategy.step))
        scratch = scratch_a
        if plan.pack_a:
            padded_rows = self.tiling.padded_rows
            scratch += align_up(self._packed_bytes(padded_rows, strategy.step))
        if scratch:
            operands = (
                *operands,
                self.steps.allocate(scratch * -(-rows // strategy.grain)),
            )
        operands = (*operands, ERROR) if p.unpack_source else operands
        numbers = ProductNumbers(
            rows=p.rows,
            depth=p.depth,
            columns=p.columns,
            a_row=self.a_row,
            a_term=self.a_term,
            b_line=p.b_line,
            b_term=self.b_term,
            b_panel=self.b_panel,
            block_rows=strategy.rows,
            block_depth=strategy.depth,
            block_panels=strategy.panels,
            step_depth=strategy.step,
            row_blocks=self.row_blocks,
            slots=self.slots,
            panel_blocks=self.panel_blocks,
            scratch=scratch,
            scratch_a=scratch_a,
            blocks=p.blocks,
        )
        self.steps.append(
            Call(
                Code(emit_product, plan, body),
                operands,
                (*numbers, *_numbers(self.axes)),
                rows,
                strategy.grain,
                _row_operands(p, self.body, strategy.unit),
                p.flops,
                p.nbytes,
                problem=index_problem("take", 0),
            )
        )
