"""Partition of a body's rows and columns over threads, a function of shapes only."""

from __future__ import annotations

from toolkit import dtypes
from toolkit.backends.cupy.cuda.body import Body
from toolkit.backends.cupy.cuda.reduction import power_of_two
from toolkit.definitions.records import record
from toolkit.plans.loops.phases import Phases
from toolkit.plans.loops.plan import COLUMN, ONE, ROW, LoopNest

# Registers of a thread that hold elements of its row.
MAX_ROW_REGISTERS = 56
# Registers of a multiprocessor, for all threads of a block.
REGISTERS = 1 << 16
# The maximum number of threads per row.
MAX_ROW_THREADS = 512
# Maximum number of blocks that share sums over rows: a large device runs this many at
# once, so only a few partial sums remain to combine.
MAX_BLOCKS = 512
# With fewer rows than `MIN_ROWS`, multiprocessors are idle unless several blocks share
# a row of more packs than `MIN_SPLIT_PACKS`.
MIN_ROWS, MIN_SPLIT_PACKS = 128, 2048
# The minimum number of rows per thread if there are more blocks than `MIN_GROUPS`, so
# that partial sums are few compared to the summed elements. With fewer blocks, most
# multiprocessors are idle.
MIN_THREAD_ROWS, MIN_GROUPS = 4, 32


class RecomputedPhases(Phases):
    """Passes that each recompute their inputs."""

    def _is_reloaded(self, step: int, number: int) -> bool:
        return False


class RegisterPhases(Phases):
    """Passes that keep values that are expensive to recompute."""

    def _is_reloaded(self, step: int, number: int) -> bool:
        return self._is_buffered(step, number)


@record
class Division:
    """Partition of the work over threads and blocks.

    Attributes:
        tx, ty: threads of a block along the columns, and rows per block.
        items: packs of columns that a thread handles in each row.
        tiles: column partitions over blocks.
        blocks: row partitions over blocks.
        iterations: the number of iterations in which a block takes `ty` more rows.
        is_in_registers: whether the items of a row are variables of a thread.
        phases: the passes over a row.
        needs_barrier: whether the threads of a row synchronize.
    """

    tx: int
    ty: int
    items: int
    tiles: int
    blocks: int
    iterations: int
    is_in_registers: bool
    phases: Phases
    needs_barrier: bool

    @property
    def register_reads(self) -> list[int]:
        """Return the reads that several passes use; a thread keeps their items."""
        return repeated_reads(self.phases) if self.is_in_registers else []


def divide_work(body: Body) -> Division:
    """Return the partition of a body's work."""
    plan, packs = body.plan, body.packs
    columns = any(w.role == COLUMN for w in plan.writes)
    collects = columns or any(w.role == ONE for w in plan.writes)
    phases: Phases = RegisterPhases(plan)
    tiles = 1
    waits = _needs_full_rows(plan)
    if (
        waits
        and body.rows < MIN_ROWS
        and packs > MIN_SPLIT_PACKS
        and only_reduces_rows(plan)
    ):
        tx, ty, is_in_registers, phases = 256, 1, False, RecomputedPhases(plan)
        tiles = min(MAX_BLOCKS // body.rows, -(-packs // MIN_SPLIT_PACKS))
        items = -(-packs // (tx * tiles))
    elif waits:
        tx, is_in_registers = _row_threads(plan, packs, _register_words(body, phases))
        if not is_in_registers:
            phases = RecomputedPhases(plan)
            tx, is_in_registers = _row_threads(
                plan, packs, _register_words(body, phases)
            )
        items = -(-packs // tx)
        ty = max(1, 128 // tx) if is_in_registers or not columns else 1
    elif columns:
        tx, items, is_in_registers = min(32, power_of_two(packs)), 1, True
        ty, tiles = 256 // tx, -(-packs // tx)
    else:
        tx, is_in_registers = min(256, power_of_two(packs)), False
        ty = 256 // tx
        tiles = min(-(-packs // tx), MAX_BLOCKS)
        items = -(-packs // (tx * tiles))
    groups = -(-body.rows // ty)
    iterations = 1
    if collects:
        max_groups = max(1, MAX_BLOCKS // tiles)
        min_rows = MIN_THREAD_ROWS if groups > MIN_GROUPS else 1
        iterations = max(-(-groups // max_groups), min_rows)
    blocks = -(-groups // iterations)
    return Division(
        tx, ty, items, tiles, blocks, iterations, is_in_registers, phases, waits
    )


def _register_words(body: Body, phases: Phases) -> int:
    """Return the registers that a thread holds per pack of columns."""
    plan, words = body.plan, 0
    for k in repeated_reads(phases):
        nbytes = dtypes.itemsize(plan.reads[k].dtype)
        words += max(body.lanes * nbytes, 4) if body.has_packs(k) else 4 * body.lanes
    values = [plan.steps[i].dtype for i in phases.buffered_steps]
    values += [w.dtype for w in plan.writes if w.role == COLUMN]
    words += sum(body.lanes * max(4, dtypes.itemsize(dtype)) for dtype in values)
    return max(1, words // 4)


def _row_threads(plan: LoopNest, packs: int, words: int) -> tuple[int, bool]:
    """Return the threads of a row, and whether they can hold `words` per pack."""
    arrays = len(plan.reads) + len(plan.writes)

    def fits(tx: int) -> bool:
        # In addition, a thread needs a pack of each array, and some indices.
        room = REGISTERS // max(tx, 256) - 4 * arrays - 40
        return -(-packs // tx) * words <= min(MAX_ROW_REGISTERS, room)

    tx = power_of_two(packs)
    if packs > 32:
        tx = min(MAX_ROW_THREADS, max(32, power_of_two(-(-packs // 4))))
    while tx < MAX_ROW_THREADS and not fits(tx):
        tx *= 2
    return tx, fits(tx)


def only_reduces_rows(plan: LoopNest) -> bool:
    """Return whether rows only produce reductions that are mutually independent."""
    reductions = [i for i, s in enumerate(plan.steps) if s.role == ROW and s.reduces]
    return (
        not plan.accesses_elements
        and sorted(w.source[1] for w in plan.writes) == reductions
        and not any(plan.steps[i].op.startswith("arg") for i in reductions)
        and max(RecomputedPhases(plan).levels) == 1
    )


def _needs_full_rows(plan: LoopNest) -> bool:
    """Return whether a step needs a complete row."""
    return plan.accesses_elements or any(
        s.role == ROW and s.reduces for s in plan.steps
    )


def repeated_reads(phases: Phases) -> list[int]:
    """Return the reads of more than one pass, except reads that all rows share."""
    phase_reads = [k for phase in phases.phases for k in phase.reads]
    repeated = {k for k in phase_reads if phase_reads.count(k) > 1}
    reads = phases.plan.reads
    return sorted(k for k in repeated if reads[k].by_row and reads[k].by_column)
