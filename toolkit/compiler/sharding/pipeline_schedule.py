"""Schedule of a pipeline: the order in which each stage runs micro-batches, static.

The order is 1F1B (one forward, one backward): a stage with enough micro-batches in
flight runs a backward pass before the next forward pass. A simulation with nominal
durations computes it. So it depends only on the numbers of stages and micro-batches,
and all ranks compute the same schedule.

Reference: https://arxiv.org/abs/1806.03377
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

# Nominal durations of the forward and the backward pass of a stage over a micro-batch.
_FORWARD, _BACKWARD = 1, 2


class ScheduledStep(NamedTuple):
    """Computation of one micro-batch by one stage, in one direction.

    Stages 0 to S-1 run forward at positions equal to their indices, and backward at
    2S-2 minus the index. The last stage runs both at once.

    Attributes:
        start, end: in units of nominal time.
        position: index on the path of a micro-batch.
        micro_batch: its index.
    """

    start: int
    end: int
    position: int
    micro_batch: int


def stage_at(position: int, stages: int) -> int:
    """Return the stage that computes at a position."""
    return min(position, 2 * stages - 2 - position)


def schedule_pipeline(
    stages: int, micro_batches: int, backward: bool = True
) -> list[ScheduledStep]:
    """Return the schedule of a step, by start; entries of a stage do not overlap.

    Stage s has at most S - s micro-batches in flight (forward complete, backward not)
    at any time. An entry starts when the entry before it on the path of its micro-batch
    has ended.

    Args:
        stages: number of stages.
        micro_batches: number of micro-batches.
        backward: whether the path returns to the first stage, as in training.
    """
    walk = _Walk(stages, micro_batches, backward)
    return sorted(walk.run(), key=lambda step: (step.start, step.position))


class _Walk:
    """Simulation of stages that each run one entry at a time."""

    def __init__(self, stages: int, micro_batches: int, backward: bool) -> None:
        self.stages = stages
        self.micro_batches = micro_batches
        self.positions = 2 * stages - 1 if backward else stages
        self.backward = backward
        # By position: the number of micro-batches that started; and the end time of
        # each.
        self.started = [0] * self.positions
        self.end_times: dict[tuple[int, int], int] = {}

    def run(self) -> Iterator[ScheduledStep]:
        free = [0] * self.stages
        time = 0
        while sum(self.started) < self.positions * self.micro_batches:
            for stage in range(self.stages):
                position = None if free[stage] > time else self._next(stage, time)
                if position is None:
                    continue
                micro_batch = self.started[position]
                self.started[position] += 1
                end = free[stage] = time + self._time(position)
                self.end_times[position, micro_batch] = end
                yield ScheduledStep(time, end, position, micro_batch)
            time += 1

    def _next(self, stage: int, time: int) -> int | None:
        """Return the position of a free stage's next micro-batch: backward first."""
        last = stage == self.stages - 1
        back = 2 * self.stages - 2 - stage
        if self.backward and not last and self._is_available(back, time):
            return back
        if self.backward and not last:
            in_flight = self.started[stage] - self.started[back]
            if in_flight >= self.stages - stage:
                return None
        return stage if self._is_available(stage, time) else None

    def _is_available(self, position: int, time: int) -> bool:
        """Return whether the next micro-batch of a position is available."""
        micro_batch = self.started[position]
        if micro_batch == self.micro_batches:
            return False
        return (
            position == 0
            or self.end_times.get((position - 1, micro_batch), time + 1) <= time
        )

    def _time(self, position: int) -> int:
        if not self.backward or position < self.stages - 1:
            return _FORWARD
        return _BACKWARD + _FORWARD * (position == self.stages - 1)
