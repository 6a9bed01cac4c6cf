"""Turns: when each stage of a pipeline computes which micro-batch, fixed beforehand.

The order is that of 1F1B, one forward, one backward: a stage that has begun enough
micro-batches goes back over one before it begins the next. It comes from a simulation
with made-up times, so it depends on the numbers of stages and micro-batches alone, and
all ranks know all of it.

Reference: https://arxiv.org/abs/1806.03377
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

# How long a stage takes to go forward and back over a micro-batch, about.
_FORWARD, _BACKWARD = 1, 2


class Turn(NamedTuple):
    """One stage computes one micro-batch, in one direction.

    Stages 0 to S-1 go forward at the positions of their numbers and back at 2S-2 minus
    them; the last one does both at once.

    Attributes:
        start, end: in units of made-up time.
        position: along the way of a micro-batch.
        micro_batch: its number.
    """

    start: int
    end: int
    position: int
    micro_batch: int


def stage_at(position: int, stages: int) -> int:
    """The stage that computes at a position."""
    return min(position, 2 * stages - 2 - position)


def turns(stages: int, micro_batches: int, backward: bool = True) -> list[Turn]:
    """All turns of a step by their start; those of one stage follow each other.

    At most S - s micro-batches have been begun by stage s, and not been gone back over,
    at any time. A turn starts when the one before it on the way of its micro-batch has
    ended.

    Args:
        stages: how many.
        micro_batches: how many.
        backward: whether the way goes back to the first stage, as in training.
    """
    walk = _Walk(stages, micro_batches, backward)
    return sorted(walk.run(), key=lambda turn: (turn.start, turn.position))


class _Walk:
    """A simulation of stages that each do one thing at a time."""

    def __init__(self, stages: int, micro_batches: int, backward: bool) -> None:
        self.stages = stages
        self.micro_batches = micro_batches
        self.positions = 2 * stages - 1 if backward else stages
        self.backward = backward
        # By position: how many micro-batches have been there; and when each left.
        self.begun = [0] * self.positions
        self.left: dict[tuple[int, int], int] = {}

    def run(self) -> Iterator[Turn]:
        free = [0] * self.stages
        now = 0
        while sum(self.begun) < self.positions * self.micro_batches:
            for stage in range(self.stages):
                position = None if free[stage] > now else self._next(stage, now)
                if position is None:
                    continue
                micro_batch = self.begun[position]
                self.begun[position] += 1
                end = free[stage] = now + self._time(position)
                self.left[position, micro_batch] = end
                yield Turn(now, end, position, micro_batch)
            now += 1

    def _next(self, stage: int, now: int) -> int | None:
        """The position where a free stage takes the next micro-batch: back first."""
        last = stage == self.stages - 1
        back = 2 * self.stages - 2 - stage
        if self.backward and not last and self._is_there(back, now):
            return back
        if self.backward and not last:
            in_flight = self.begun[stage] - self.begun[back]
            if in_flight >= self.stages - stage:
                return None
        return stage if self._is_there(stage, now) else None

    def _is_there(self, position: int, now: int) -> bool:
        """Whether the next micro-batch of a position has left the one before."""
        micro_batch = self.begun[position]
        if micro_batch == self.micro_batches:
            return False
        return (
            position == 0 or self.left.get((position - 1, micro_batch), now + 1) <= now
        )

    def _time(self, position: int) -> int:
        if not self.backward or position < self.stages - 1:
            return _FORWARD
        return _BACKWARD + _FORWARD * (position == self.stages - 1)
