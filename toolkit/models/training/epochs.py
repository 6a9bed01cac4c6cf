"""The steps of epochs, from a source of batches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from math import ceil
from typing import Any

from toolkit.console.frames import warn
from toolkit.errors import ArgumentError
from toolkit.models.training.sources import Source, make_source
from toolkit.settings import max_steps_per_epoch


class EpochBatches:
    """The steps of each epoch, from a source and a wanted number of steps.

    With fewer steps than the source has batches, the next epoch goes on where this one
    has stopped. One that begins after the last batch begins at the first again.

    Attributes:
        exhausted: whether there will be no more batches.
        done: how many batches of the epoch that goes on were returned.
    """

    def __init__(self, source: Source, steps: int | None) -> None:
        if steps is not None and steps < 1:
            raise ArgumentError(f"expected a number of steps >= 1; received {steps}")
        self.source = source
        self.steps = steps
        self._limit = max_steps_per_epoch()
        self.exhausted: bool = False
        self._pass: Iterator[Any] | None = None  # over all batches of the source
        self._peeked: list[Any] = []
        self._begun = False  # whether the source was told of the epoch
        self.done: int = 0

    @property
    def num_batches(self) -> int | None:
        """The number of steps of an epoch, None where it is unknown."""
        steps = self.steps or self.source.num_batches
        return min(steps, self._limit) if steps and self._limit else steps

    def peek(self) -> Any:
        """The first batch, which the first epoch will still return."""
        if not self._peeked:
            self._begin()
            batch = self._next(1)
            if batch is None:
                raise ArgumentError("expected at least one batch; the data is empty")
            self._peeked.append(batch)
        return self._peeked[0]

    def _begin(self) -> None:
        """Tell the source that an epoch begins: before its first batch is made."""
        if not self._begun:
            self._begun = True
            self.source.tell("on_epoch_begin")

    def _end(self) -> None:
        self._begun = False
        self.source.tell("on_epoch_end")

    def restart(self) -> None:
        """Begin the next epoch at the first batch, unless batches cannot come again."""
        if self.source.taken > len(self._peeked) and not self.source.is_iterator:
            self._pass = None
            self._peeked.clear()

    def state(self) -> dict[str, Any]:
        """Where the epoch, and the pass over the source, have come to."""
        # A number of steps ends the epoch and, with the last batch, the pass too.
        at_end = self.source.taken == self.source.num_batches
        within = self._pass is not None and not (at_end and self.steps is not None)
        return {"done": self.done, "source": self.source.state(within)}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on where `state` was asked for, here or in another process."""
        if not self.source.is_iterator or state["source"] is not None:
            self._pass = None
            self._peeked.clear()
        self.source.restore(state["source"])
        self.done = state["done"]

    def _next(self, steps: int | None = None) -> Any:
        """The next batch, of an epoch of at most so many steps; None at the end."""
        if self._peeked:
            return self._peeked.pop()
        if self._pass is None:
            self._pass = self.source.epoch(steps)
        return next(self._pass, None)

    def groups(self, size: int) -> Iterator[tuple[int, int, list[Any]]]:
        """(first step, last step, batches) of each group of steps of the next epoch.

        As in Keras, a number of steps that was asked for is rounded up to whole groups.
        """
        steps = self.steps and ceil(self.steps / size) * size
        if self._limit:
            if self.steps is None:
                self.restart()
            steps = min(steps or self._limit, self._limit)
        first = self.done  # 0, unless the epoch goes on
        batches = self._epoch(steps)
        while group := list(islice(batches, size)):
            yield first, first + size - 1, group
            first += size

    def _epoch(self, steps: int | None) -> Iterator[Any]:
        if self.source.is_iterator:
            self._pass = None  # a pass takes from it what one epoch needs, and no more
        self._begin()
        try:
            while steps is None or self.done < steps:
                left = steps and steps - self.done
                batch = self._next(left)
                if batch is None and self._can_repeat():
                    batch = self._next(left)
                if batch is None:
                    self._run_out()
                    self._end()
                    return
                self.done += 1
                yield batch
            if self._pass is not None and self.source.taken == self.source.num_batches:
                next(self._pass, None)  # let the source end its epoch
                self._pass = None
            self._end()
        finally:
            self.done = 0

    def _can_repeat(self) -> bool:
        """Begin a new pass if the last one ended exactly where this epoch begins.

        Where the number of batches is unknown, only the missing batch shows that.
        """
        if self.source.is_iterator or self.done or not self.source.taken:
            return False
        self._pass = None
        return True

    def _run_out(self) -> None:
        self._pass = None
        done = self.done
        if self.steps is not None and done >= self.steps:
            return
        self.exhausted = self.source.is_iterator and (
            done == 0 or self.steps is not None
        )
        if self.steps is not None or self.exhausted:
            wanted = self.steps or "an unknown number of"
            warn(
                f"the data ran out after {done} of {wanted} steps; it must return at "
                "least steps * epochs batches"
            )


def make_batches(
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    batch_size: int | None = None,
    steps: int | None = None,
) -> EpochBatches:
    """The steps of one pass over data, in its own order."""
    source = make_source(x, y, sample_weight, batch_size, steps)
    return EpochBatches(source, steps)
