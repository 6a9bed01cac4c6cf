"""Selection of the strategy of a product, from its shapes and strides alone.

The constants were measured on processors with 1 to 2 MiB of L2 cache. Costs are
fractions of the time of the arithmetic. Only their order matters, and the choice must
be deterministic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from toolkit import dtypes
from toolkit.backends.numpy.jit.calls import partition
from toolkit.backends.numpy.jit.kernels.gemm.problem import LINES, TERMS
from toolkit.backends.numpy.jit.kernels.gemm.tiling import FLAT_ROWS, Tiling, tiling
from toolkit.backends.numpy.jit.kernels.matmul.plan import BLOCK, PRODUCT, ROW
from toolkit.backends.numpy.jit.kernels.matmul.problem import (
    RESIDENT_BYTES,
    Problem,
)
from toolkit.backends.numpy.jit.kernels.matmul.unpack import PANELS
from toolkit.backends.numpy.jit.processor import CACHE_LINE
from toolkit.definitions.records import record
from toolkit.ir.extents import at_example
from toolkit.plans.loops.planner import TASKS

# When an operand is packed: once by an earlier call, or by each block.
ONCE, EACH = "once", "each"
# The throughput of a core in FLOP/s and bytes/s. The duration of a task in seconds, for
# the first few tasks and for more.
_FLOP_PER_SECOND, _BYTES_PER_SECOND = 1.2e11, 1.5e10
_TASK_SECONDS, _LONG_TASK_SECONDS, _SHORT_TASK_COUNT = 30e-6, 1e-3, 8
# The seconds below which a second thread does not pay.
_SINGLE_THREAD_SECONDS = 15e-6
# Bytes of a right operand that may be read again for a few rows. Bytes of a tile of the
# left operand with strided terms that stays in the L1 cache.
_REREAD_BYTES, _L1_TILE_BYTES = 1 << 18, 20_000
# The fewest terms of a slot.
_MIN_SLOT_TERMS = 512
# The byte strides of terms from which on an unpacked panel, or an unpacked tile, misses
# the caches.
_FAR_STRIDE_BYTES, _FAR_TERM_BYTES = 3072, 512
# Bytes of panels that a block packs for a step, and the fewest terms of a step.
_PACKED_STEP_BYTES, _MIN_STEP_TERMS = 1 << 17, 128
# The cost of unpacked narrow panels for byte strides of terms that are a multiple of
# these: all terms map to a few sets of the L1 cache. The panel has more terms than fit
# these sets.
_SET_CONFLICT_COSTS = ((2048, 0.15), (1024, 0.05), (512, 0.04), (256, 0.01))
_L1_WAY_BYTES, _L1_WAYS = 4096, 8
# Bytes of narrow panels that are read in place for a few rows, and the tiles of a task
# that justify more bytes.
_IN_PLACE_BYTES, _TALL_TASK_TILES = 1 << 15, 3
# The most bytes of a left operand that is packed as a whole, which takes the same
# amount of memory.
_MAX_PACKED_BYTES = 1 << 24
# The threads for which blocks are divided, and the cost of one idle thread of these.
_THREADS, _IDLE_THREAD_COST = 4, 0.25


@record
class CostModel:
    """Costs of a strategy beyond the arithmetic, as fractions of its time.

    A rate is divided by the rows or panels of a block, the columns of the product, or
    the terms of a slot. All figures are measurements, as described for the module.

    Attributes:
        row_conflict: reads of unpacked rows of the left operand, if all rows of a tile
            map to one set of the L1 cache.
        conflict_packing_by_panels: rate of the packing of such rows.
        tile_packing_by_panels: rate of the packing of other tiles in each block.
        cached_tile_packing_by_columns: rate of the packing of tiles by an earlier call.
        cached_tile_by_panels: rate of the reads of these tiles.
        far_term, far_term_by_panels: cost and rate of the reads of unpacked tiles with
            far terms.
        panel_packing_by_rows, transposed_packing_by_rows: rates of the packing of
            panels in each block, for contiguous and transposed right operands.
        block_by_panels: rate of other work for a block, unless an earlier call packed
            the panels.
        cached_panel_by_rows, cached_block_by_panels: rates of the reads of panels from
            an earlier call, and of other work for a block with these.
        cached_packing_by_rows, large_packing_by_rows: rates of the packing by an
            earlier call, for right operands that stay in the L2 cache and for larger
            ones. The rows are those of all products that read the panels.
        short_step: partial sums between steps with panels from an earlier call.
        panel_by_rows: rate of the reads of unpacked panels.
        memory_panel: reads of unpacked panels from memory: each term stalls, because
            the prefetcher does not follow the terms.
        far_stride: reads of unpacked panels with far strides from the caches.
        slot_by_terms, frozen_slot_by_terms: rates of the sum over slots, without and
            with a right operand that is packed for all runs.
        large_slot_by_terms: rate of the sum over slots for large results.
    """

    row_conflict: float = 0.09
    conflict_packing_by_panels: float = 0.3
    tile_packing_by_panels: float = 0.8
    cached_tile_packing_by_columns: float = 14
    cached_tile_by_panels: float = 0.3
    far_term: float = 0.12
    far_term_by_panels: float = 0.6
    panel_packing_by_rows: float = 22
    transposed_packing_by_rows: float = 24
    block_by_panels: float = 0.3
    cached_panel_by_rows: float = 4
    cached_block_by_panels: float = 0.15
    cached_packing_by_rows: float = 40
    large_packing_by_rows: float = 60
    short_step: float = 0.03
    panel_by_rows: float = 14
    memory_panel: float = 0.4
    far_stride: float = 0.15
    slot_by_terms: float = 19
    frozen_slot_by_terms: float = 30
    large_slot_by_terms: float = 90


_COSTS = CostModel()


@record
class Strategy:
    """The strategy of a product.

    Attributes:
        tiling: the register blocking.
        unit: see `ProductPlan`.
        rows, panels, depth: the extents of a block, or of the product for other units.
        step: the terms of a step.
        pack_a, pack_b: when an operand is packed: ONCE, for EACH block (left operand:
        for each tile), or "".
        grain: the units of a task.
    """

    tiling: Tiling
    unit: str
    rows: int
    panels: int
    depth: int
    step: int
    pack_a: str
    pack_b: str
    grain: int

    def blocks(self, p: Problem) -> int:
        """Return the number of blocks of all products."""
        panels = -(-p.columns // self.tiling.width)
        slots = -(-max(1, p.depth) // self.depth)
        blocks = -(-p.rows // self.rows) * -(-panels // self.panels)
        return p.products * slots * blocks


def choose(p: Problem) -> Strategy:
    """Return the strategy for a product.

    For free extents it is the strategy of the example, which is the largest product.
    """
    example = at_example(p)
    t = tiling(p.rows, p.columns, p.dtype, p.is_across)
    panels, depth = -(-example.columns // t.width), max(1, example.depth)
    pack_b = "" if p.packings[1] == LINES else EACH
    step = p.invariant_step if p.is_batch_invariant else depth
    base = Strategy(t, PRODUCT, example.rows, panels, depth, step, "", pack_b, 1)
    is_small = depth * example.columns * p.itemsize <= _REREAD_BYTES
    is_quick = _seconds(example) < _SINGLE_THREAD_SECONDS
    if p.batch and is_small and (is_quick or example.products >= TASKS):
        packs_once = p.is_shared and is_narrow(t) and not is_quick
        grain = p.products if is_quick else partition(p.products)
        return replace(base, pack_b=ONCE if packs_once else pack_b, grain=grain)
    has_row_units = (
        not p.unpack_source
        and example.rows > FLAT_ROWS
        and p.a_term == p.items[0]
        and not p.is_across
    )
    is_near = depth * example.columns * p.itemsize <= _IN_PLACE_BYTES
    can_share_panels = p.is_frozen or is_near or not is_narrow(t)
    can_share_panels = (
        can_share_panels or partition(example.rows) >= _TALL_TASK_TILES * t.rows
    )
    if not p.batch and is_small and has_row_units and (can_share_panels or is_quick):
        # A panel that is packed for all runs is read in memory order at no cost.
        pack_once = (
            pack_b
            or p.is_frozen
            or (_set_conflict_cost(example, t) and can_share_panels)
        )
        grain = p.rows if is_quick else partition(p.rows)
        # Tiles much flatter than the largest read the panels too often.
        grain *= -(-2 * t.rows // (3 * grain))
        return replace(base, unit=ROW, pack_b=ONCE if pack_once else "", grain=grain)
    conflict_cost = _set_conflict_cost(example, t)
    divisions = _divisions(example, replace(base, unit=BLOCK))
    return min(divisions, key=lambda strategy: _cost(example, strategy, conflict_cost))


def is_narrow(tiling: Tiling) -> bool:
    """Return whether a term of a panel is at most one cache line."""
    return tiling.vectors * tiling.lanes * dtypes.itemsize(tiling.dtype) <= CACHE_LINE


def _set_conflict_cost(p: Problem, tiling: Tiling) -> float:
    """Return the slowdown of reading panels whose terms exceed their cache sets."""
    if not is_narrow(tiling) or p.packings[1] != LINES:
        return 0.0
    for step, cost in _SET_CONFLICT_COSTS:
        if p.b_term % step == 0 and p.depth > _L1_WAYS * _L1_WAY_BYTES // step:
            return cost
    return 0.0


def _has_row_conflicts(p: Problem, tiling: Tiling) -> bool:
    """Return whether a tile's rows exceed their cache set, with contiguous terms."""
    in_a_set = p.a_row % _L1_WAY_BYTES == 0 and min(p.rows, tiling.rows) > _L1_WAYS
    return in_a_set and _is_read_by_terms(p)


def _is_read_by_terms(p: Problem) -> bool:
    """Return whether the terms of a row of the left operand are contiguous."""
    return p.packings[0] == TERMS


def _seconds(p: Problem) -> float:
    """Return the estimated seconds of one thread."""
    return max(p.flops / _FLOP_PER_SECOND, p.nbytes / _BYTES_PER_SECOND)


def _divisions(p: Problem, base: Strategy) -> Iterator[Strategy]:
    """Yield divisions with a block for each worthwhile task, or the most possible."""
    seconds = _seconds(p)
    tasks = min(TASKS, max(_SHORT_TASK_COUNT, int(seconds / _LONG_TASK_SECONDS)))
    tasks = max(1, min(tasks, int(seconds / _TASK_SECONDS)))
    divisions = list(_all_divisions(p, base, 2 * tasks))
    min_blocks = min(tasks, max(division.blocks(p) for division in divisions))
    return (division for division in divisions if division.blocks(p) >= min_blocks)


def _all_divisions(p: Problem, base: Strategy, max_blocks: int) -> Iterator[Strategy]:
    tiles = -(-p.rows // base.tiling.rows)
    step = p.rows if p.is_across else max(1, base.tiling.rows // 3)
    # Blocks of columns are as wide as the cache allows, or narrower for more tasks.
    min_panel_blocks = -(-base.panels // PANELS)
    for slots in (1, 2, 4, 8):
        if slots > 1 and not _can_split(p, slots):
            return
        depth = -(-base.depth // slots)
        for panel_blocks in _part_counts(min_panel_blocks, base.panels, max_blocks):
            panels = -(-base.panels // panel_blocks)
            for row_blocks in _part_counts(1, tiles, max_blocks // panel_blocks):
                is_once = (
                    row_blocks > 1 or p.is_frozen or _is_worth_packing_once(p, base)
                )
                is_once = is_once and not p.unpack_source
                packing = ONCE if is_once else EACH
                b_packings = (packing,) if base.pack_b else ("", packing)
                packings = _packings_of_a(p, base.tiling, panels)
                for pack_a, pack_b in product(packings, b_packings):
                    # An earlier call packs full tiles, except for the last one.
                    row_unit = base.tiling.rows if pack_a == ONCE else step
                    rows = -(-p.rows // row_blocks // row_unit) * row_unit
                    step_terms = _step_terms(
                        p, base.tiling, depth, panels, pack_a, pack_b
                    )
                    yield replace(
                        base,
                        rows=rows,
                        panels=panels,
                        depth=depth,
                        step=step_terms,
                        pack_a=pack_a,
                        pack_b=pack_b,
                    )


def _is_worth_packing_once(p: Problem, base: Strategy) -> bool:
    """Return whether products share panels that are slow to read in place."""
    return p.is_shared and is_narrow(base.tiling)


def _can_split(p: Problem, slots: int) -> bool:
    """Return whether a product may be summed in slots."""
    if p.batch or p.is_across or p.is_batch_invariant or p.unpack_source:
        return False
    return p.depth >= slots * _MIN_SLOT_TERMS


def _part_counts(minimum: int, all_parts: int, maximum: int) -> Iterator[int]:
    """Yield the possible numbers of parts."""
    for factor in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32):
        count = minimum * factor
        if factor > 1 and (count > maximum or count > all_parts):
            return
        yield count


def _packings_of_a(p: Problem, tiling: Tiling, panels: int) -> tuple[str, ...]:
    """Return how the left operand may be packed. Few reads of a tile do not pay."""
    if p.is_across:
        return ("",)
    if _is_read_by_terms(p):
        return ("", EACH) if _has_row_conflicts(p, tiling) else ("",)
    if panels <= 2 or (panels <= 4 and p.a_term < _FAR_TERM_BYTES):
        return ("",)
    is_large = p.rows * p.depth * p.itemsize > _MAX_PACKED_BYTES
    return (EACH,) if p.batch or p.unpack_source or is_large else (EACH, ONCE)


def _step_terms(
    p: Problem, tiling: Tiling, depth: int, panels: int, pack_a: str, pack_b: str
) -> int:
    """Return the terms of a step whose working set stays in the caches."""
    if p.is_batch_invariant or p.unpack_source:
        return p.invariant_step
    is_read_by_terms = _is_read_by_terms(p)
    if pack_a and not is_read_by_terms and depth > 2 * p.packed_step:
        return p.step(depth, p.packed_step)
    width = tiling.width * p.itemsize
    if pack_b == EACH and not p.is_across:
        return p.step(
            depth, max(_MIN_STEP_TERMS, _PACKED_STEP_BYTES // (panels * width))
        )
    is_long = depth * max(CACHE_LINE, tiling.rows * p.itemsize) > _L1_TILE_BYTES
    is_long = is_long and not is_read_by_terms
    # A cached packing has the same step as an operand that is read in place: a single
    # sum of very many terms has larger errors.
    is_near = pack_b and not p.is_frozen
    working_set = depth * (panels * width if is_near else max(p.b_term, panels * width))
    if p.is_across or (working_set <= RESIDENT_BYTES and not is_long):
        return depth
    return p.step(depth)


def _cost(p: Problem, strategy: Strategy, conflict_cost: float) -> float:
    """Return the cost of a strategy beyond the arithmetic, as a fraction of that."""
    rows, panels = min(strategy.rows, p.rows), strategy.panels
    is_transposed = p.packings[1] != LINES
    is_large = p.depth * max(p.b_term, p.columns * p.itemsize) > RESIDENT_BYTES
    cost = _left_cost(p, strategy)
    if strategy.pack_b == EACH:
        packing_rate = (
            _COSTS.transposed_packing_by_rows
            if is_transposed
            else _COSTS.panel_packing_by_rows
        )
        cost += packing_rate / rows + _COSTS.block_by_panels / panels
    elif strategy.pack_b == ONCE:
        cost += (
            _COSTS.cached_panel_by_rows / rows + _COSTS.cached_block_by_panels / panels
        )
        # Packed data leave the L2 cache before they are read.
        readers = p.rows * (p.products if p.is_shared else 1)
        packing_rate = (
            _COSTS.large_packing_by_rows if is_large else _COSTS.cached_packing_by_rows
        )
        cost += 0 if p.is_frozen else packing_rate / readers
        cost += _COSTS.short_step if strategy.step < strategy.depth else 0
    else:
        block_cost = _COSTS.panel_by_rows / rows + _COSTS.block_by_panels / panels
        cost += block_cost + conflict_cost
        if p.depth * p.columns * p.itemsize > 2 * RESIDENT_BYTES:
            cost += _COSTS.memory_panel
        elif is_large and p.b_term >= _FAR_STRIDE_BYTES:
            cost += _COSTS.far_stride
    # Threads are idle while others compute the last blocks.
    blocks = strategy.blocks(p)
    cost += _IDLE_THREAD_COST * (-blocks % _THREADS) / blocks
    if strategy.depth < p.depth:
        slot_rate = _COSTS.frozen_slot_by_terms if p.is_frozen else _COSTS.slot_by_terms
        if p.size * p.itemsize > RESIDENT_BYTES:
            slot_rate = _COSTS.large_slot_by_terms
        cost += slot_rate / strategy.depth
    return cost


def _left_cost(p: Problem, strategy: Strategy) -> float:
    """Return the cost of the reads and the packing of the left operand."""
    panels = strategy.panels
    if _has_row_conflicts(p, strategy.tiling):
        packing_cost = _COSTS.conflict_packing_by_panels / panels
        return packing_cost if strategy.pack_a else _COSTS.row_conflict
    if strategy.pack_a == EACH:
        return _COSTS.tile_packing_by_panels / panels
    if strategy.pack_a == ONCE:
        packing_cost = _COSTS.cached_tile_packing_by_columns / p.columns
        return packing_cost + _COSTS.cached_tile_by_panels / panels
    if p.a_term >= _FAR_TERM_BYTES:
        return _COSTS.far_term + _COSTS.far_term_by_panels / panels
    return 0.0
