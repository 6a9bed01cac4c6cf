"""The assignment of the steps of a plan to passes over a row.

A row that does not fit in registers needs one more pass for each reduction that depends
on another reduction. A later pass gets a value of an earlier pass in one of three ways.
It loads the value if it was stored, recomputes it if that is cheap, and otherwise loads
it from a buffer of the row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from toolkit.ir import PRIMITIVES
from toolkit.plans.loops.plan import (
    FULL,
    ROW,
    UPDATE_ELEMENT,
    LoopNest,
    Source,
    Step,
)

# Cost, in additions, from which loading a value is cheaper than recomputing it.
_BUFFER_COST = 5
# Cost of the selection between the old element and an update.
_UPDATE_COST = 2


def step_cost(op: str) -> int:
    """Return the approximate cost of a step for one element, in additions."""
    if op == UPDATE_ELEMENT:
        return _UPDATE_COST
    return PRIMITIVES[op].cost if op in PRIMITIVES else 1


@dataclass
class Phase:
    """One pass over a row.

    steps: full steps to compute, in order.
    reads: the reads of the plan that these steps need.
    reloads: full steps with values that an earlier pass left in memory.
    reductions: steps that this pass accumulates.
    writes: indices of the plan's writes that this pass stores or accumulates.
    buffered: full steps to store in buffers.
    row_steps_after: row steps that can be computed after this pass.
    """

    steps: list[int] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)
    reloads: list[int] = field(default_factory=list)
    reductions: list[int] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)
    buffered: list[int] = field(default_factory=list)
    row_steps_after: list[int] = field(default_factory=list)


class Phases:
    """The passes over a row of a plan.

    Attributes:
        row_steps_before: row steps that need no pass.
        buffered_steps: the full steps with a buffer, one buffer each.
    """

    def __init__(self, plan: LoopNest) -> None:
        self.plan = plan
        self.levels: list[int] = []
        for step in plan.steps:
            level = max((self._level(a) for a in step.arguments), default=0)
            self.levels.append(level + (step.role == ROW and step.reduces != ""))
        self.row_steps_before: list[int] = []
        self.phases: list[Phase] = [Phase() for _ in range(1 + self._last_level())]
        self.buffered_steps: list[int] = []
        self._assign_row_steps()
        self._assign_writes()
        self._stored = {
            w.source[1]: self.levels[w.source[1]] for w in plan.writes if w.role == FULL
        }
        self._computed: dict[int, int] = {}
        for number in range(len(self.phases)):
            self._fill_phase(number)

    def _level(self, source: Source) -> int:
        return self.levels[source[1]] if source[0] == "step" else 0

    def _last_level(self) -> int:
        """Return the last pass that computes a value of the columns."""
        levels = [0]
        for step, level in zip(self.plan.steps, self.levels, strict=True):
            if step.role == FULL:
                levels.append(level)
            elif step.reduces == FULL:
                levels.append(self._reduction_phase(step))
        return max(levels)

    def _reduction_phase(self, step: Step) -> int:
        return self._level(step.arguments[0])

    def _assign_row_steps(self) -> None:
        for i, step in enumerate(self.plan.steps):
            if step.role != ROW:
                continue
            if step.reduces == FULL:
                self.phases[self._reduction_phase(step)].reductions.append(i)
            elif self.levels[i] == 0:
                self.row_steps_before.append(i)
            else:
                self.phases[self.levels[i] - 1].row_steps_after.append(i)

    def _assign_writes(self) -> None:
        for k, write in enumerate(self.plan.writes):
            step = self.plan.steps[write.source[1]]
            if write.role == FULL:
                self.phases[self.levels[write.source[1]]].writes.append(k)
            elif write.role != ROW and step.reduces == FULL:
                self.phases[self._reduction_phase(step)].writes.append(k)

    def _roots(self, phase: Phase) -> Iterator[Source]:
        """Yield the sources of the values that a pass stores and accumulates."""
        sources = [self.plan.steps[i].arguments[0] for i in phase.reductions]
        for k in phase.writes:
            write = self.plan.writes[k]
            step = self.plan.steps[write.source[1]]
            sources.append(write.source if write.role == FULL else step.arguments[0])
        yield from sources

    def _fill_phase(self, number: int) -> None:
        phase = self.phases[number]
        stack, visited = list(self._roots(phase)), set()
        while stack:
            source = stack.pop()
            if source in visited:
                continue
            visited.add(source)
            if source[0] == "read":
                phase.reads.append(source[1])
            if not self._is_full(source):
                continue
            i = source[1]
            if self._is_reloaded(i, number):
                phase.reloads.append(i)
                continue
            phase.steps.append(i)
            self._computed.setdefault(i, number)
            stack += self.plan.steps[i].arguments
        phase.steps.sort()
        phase.reads.sort()

    def _is_full(self, source: Source) -> bool:
        return source[0] == "step" and self.plan.steps[source[1]].role == FULL

    def _is_reloaded(self, step: int, number: int) -> bool:
        """Return whether a pass loads a value instead of computing it."""
        return self._stored.get(step, number) < number or self._is_buffered(
            step, number
        )

    def _is_buffered(self, step: int, number: int) -> bool:
        """Return whether a pass takes a value from a buffer of an earlier pass."""
        earlier = self._computed.get(step, number)
        if earlier == number or self._recompute_cost(step, number) < _BUFFER_COST:
            return False
        if step not in self.buffered_steps:
            self.buffered_steps.append(step)
            self.phases[earlier].buffered.append(step)
        return True

    def _recompute_cost(self, step: int, number: int) -> int:
        """Return the cost of recomputing a full value in this pass."""
        total = step_cost(self.plan.steps[step].op)
        for source in self.plan.steps[step].arguments:
            if total >= _BUFFER_COST:
                break
            if self._is_full(source):
                i = source[1]
                is_stored = (
                    i in self.buffered_steps or self._stored.get(i, number) < number
                )
                total += 1 if is_stored else self._recompute_cost(i, number)
        return total
