"""Which steps of a plan each pass over a row computes.

A row that does not fit in registers is visited once for every reduction that waits for
another one. What an earlier pass computed is read back if it was stored, computed again
if that is cheap, and else kept in a buffer of the row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from toolkit.backends.loops.plan import FULL, PUT, ROW, LoopNest, Source, Step
from toolkit.ir import PRIMITIVES

# Reading back costs about as much.
_KEPT_FROM = 5
# To choose between what is there and an update.
_PUT_COST = 2


def cost(op: str) -> int:
    """What a step costs for one element, roughly, in additions."""
    if op == PUT:
        return _PUT_COST
    return PRIMITIVES[op].cost if op in PRIMITIVES else 1


@dataclass
class Phase:
    """One pass over a row.

    steps: full steps to compute, in order.
    reads: which of the plan's reads that takes.
    reads_back: full steps whose values an earlier pass left in memory.
    reductions: steps that this pass accumulates.
    writes: indices of the plan's writes that it stores or adds to.
    keeps: full steps to put into buffers.
    after: steps of rows that can be computed after it.
    """

    steps: list[int] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)
    reads_back: list[int] = field(default_factory=list)
    reductions: list[int] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)
    keeps: list[int] = field(default_factory=list)
    after: list[int] = field(default_factory=list)


class Phases:
    """The passes over a row of a plan.

    Attributes:
        before: steps of rows that need no pass.
        kept: the buffers, each for the values of one full step.
    """

    def __init__(self, plan: LoopNest) -> None:
        self.plan = plan
        self.levels: list[int] = []
        for step in plan.steps:
            level = max((self._level(a) for a in step.arguments), default=0)
            self.levels.append(level + (step.role == ROW and step.reduces != ""))
        self.before: list[int] = []
        self.phases: list[Phase] = [Phase() for _ in range(1 + self._last_level())]
        self.kept: list[int] = []
        self._place_rows()
        self._place_writes()
        self._stored = {
            w.source[1]: self.levels[w.source[1]] for w in plan.writes if w.role == FULL
        }
        self._computed: dict[int, int] = {}
        for number in range(len(self.phases)):
            self._fill(number)

    def _level(self, source: Source) -> int:
        return self.levels[source[1]] if source[0] == "step" else 0

    def _last_level(self) -> int:
        """The last pass that computes something of the columns."""
        levels = [0]
        for step, level in zip(self.plan.steps, self.levels, strict=True):
            if step.role == FULL:
                levels.append(level)
            elif step.reduces == FULL:
                levels.append(self._reduced_in(step))
        return max(levels)

    def _reduced_in(self, step: Step) -> int:
        return self._level(step.arguments[0])

    def _place_rows(self) -> None:
        for i, step in enumerate(self.plan.steps):
            if step.role != ROW:
                continue
            if step.reduces == FULL:
                self.phases[self._reduced_in(step)].reductions.append(i)
            elif self.levels[i] == 0:
                self.before.append(i)
            else:
                self.phases[self.levels[i] - 1].after.append(i)

    def _place_writes(self) -> None:
        for k, write in enumerate(self.plan.writes):
            step = self.plan.steps[write.source[1]]
            if write.role == FULL:
                self.phases[self.levels[write.source[1]]].writes.append(k)
            elif write.role != ROW and step.reduces == FULL:
                self.phases[self._reduced_in(step)].writes.append(k)

    def _roots(self, phase: Phase) -> Iterator[Source]:
        """What a pass needs for what it stores and accumulates."""
        sources = [self.plan.steps[i].arguments[0] for i in phase.reductions]
        for k in phase.writes:
            write = self.plan.writes[k]
            step = self.plan.steps[write.source[1]]
            sources.append(write.source if write.role == FULL else step.arguments[0])
        yield from sources

    def _fill(self, number: int) -> None:
        phase = self.phases[number]
        stack, seen = list(self._roots(phase)), set()
        while stack:
            source = stack.pop()
            if source in seen:
                continue
            seen.add(source)
            if source[0] == "read":
                phase.reads.append(source[1])
            if not self._is_full(source):
                continue
            i = source[1]
            if self._reads_back(i, number):
                phase.reads_back.append(i)
                continue
            phase.steps.append(i)
            self._computed.setdefault(i, number)
            stack += self.plan.steps[i].arguments
        phase.steps.sort()
        phase.reads.sort()

    def _is_full(self, source: Source) -> bool:
        return source[0] == "step" and self.plan.steps[source[1]].role == FULL

    def _reads_back(self, step: int, number: int) -> bool:
        """Whether a pass takes a value from memory, or from an earlier one."""
        return self._stored.get(step, number) < number or self._keeps(step, number)

    def _keeps(self, step: int, number: int) -> bool:
        """Whether a pass takes a value from an earlier one, which then keeps it."""
        earlier = self._computed.get(step, number)
        if earlier == number or self._cost(step, number) < _KEPT_FROM:
            return False
        if step not in self.kept:
            self.kept.append(step)
            self.phases[earlier].keeps.append(step)
        return True

    def _cost(self, step: int, number: int) -> int:
        """The cost of computing a full value again in this pass."""
        own = cost(self.plan.steps[step].op)
        for source in self.plan.steps[step].arguments:
            if own >= _KEPT_FROM:
                break
            if self._is_full(source):
                i = source[1]
                back = i in self.kept or self._stored.get(i, number) < number
                own += 1 if back else self._cost(i, number)
        return own
