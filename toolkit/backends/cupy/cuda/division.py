"""How threads divide the rows and columns of a body, a function of its shapes only."""

from __future__ import annotations

from dataclasses import dataclass

from toolkit.backends.bodies.phases import Phases
from toolkit.backends.bodies.plan import COLUMN, ONE, ROW, Plan
from toolkit.backends.cupy.cuda.body import Body
from toolkit.backends.cupy.cuda.reduction import power_of_two

# Registers of a thread that hold elements of its row.
MOST_HELD = 48
# The most threads of a row.
LONGEST = 512
# Blocks that share sums over rows: a few for each processor of a large device.
MOST_BLOCKS = 1024
# The fewest rows of a thread, so that parts of sums are few beside what is summed.
LEAST_ROWS = 4


class Recomputed(Phases):
    """Passes of which each computes all that it needs."""

    def _reads_back(self, step: int, number: int) -> bool:
        return False


class Held(Phases):
    """Passes that keep every value that a later one needs."""

    def _reads_back(self, step: int, number: int) -> bool:
        earlier = self._computed.get(step, number)
        if earlier == number:
            return False
        if step not in self.kept:
            self.kept.append(step)
            self.phases[earlier].keeps.append(step)
        return True


@dataclass(frozen=True)
class Division:
    """How threads divide the work.

    Attributes:
        tx, ty: threads of a block along the columns, and rows of a block.
        items: packs of columns that a thread handles in each row.
        tiles: parts of the columns that different blocks have.
        blocks: parts of the rows that different blocks have.
        turns: how many times a block takes `ty` more rows.
        held: whether the items of a row are variables of a thread.
    """

    tx: int
    ty: int
    items: int
    tiles: int
    blocks: int
    turns: int
    held: bool


def division_of(body: Body) -> Division:
    """The division of a body's work."""
    plan, packs = body.plan, body.columns // body.lanes
    columns = sum(w.role == COLUMN for w in plan.writes)
    collects = columns or any(w.role == ONE for w in plan.writes)
    tiles = 1
    if _is_along_rows(plan):
        kept = len(Held(plan).kept) + len(read_again(Held(plan))) + columns
        tx, held = _threads_of_row(packs, body.lanes * max(1, kept))
        items = -(-packs // tx)
        ty = max(1, 128 // tx) if held or not columns else 1
    elif columns:
        tx, items, held = min(32, power_of_two(packs)), 1, True
        ty, tiles = 256 // tx, -(-packs // tx)
    else:
        tx, held = min(256, power_of_two(packs)), False
        ty = 256 // tx
        tiles = min(-(-packs // tx), MOST_BLOCKS)
        items = -(-packs // (tx * tiles))
    groups = -(-body.rows // ty)
    turns = 1
    if collects:
        most = max(1, MOST_BLOCKS // tiles)
        turns = max(-(-groups // most), min(LEAST_ROWS, groups))
    return Division(tx, ty, items, tiles, -(-groups // turns), turns, held)


def _threads_of_row(packs: int, kept: int) -> tuple[int, bool]:
    """The threads of a row, and whether they can hold `kept` values for each pack."""
    tx = power_of_two(packs)
    if packs > 32:
        tx = min(LONGEST, max(32, power_of_two(-(-packs // 4))))
    while tx < LONGEST and -(-packs // tx) * kept > MOST_HELD:
        tx *= 2
    return tx, -(-packs // tx) * kept <= MOST_HELD


def _is_along_rows(plan: Plan) -> bool:
    """Whether something needs a whole row."""
    return plan.picks or any(s.role == ROW and s.reduces for s in plan.steps)


def read_again(phases: Phases) -> list[int]:
    """The reads that more than one pass uses."""
    found = [k for phase in phases.phases for k in phase.reads]
    return sorted({k for k in found if found.count(k) > 1})
