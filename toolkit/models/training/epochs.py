"""The steps of epochs, from a source of batches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from math import ceil
from typing import Any

from toolkit.arguments import is_int
from toolkit.console.frames import warn
from toolkit.errors import ArgumentError
from toolkit.models.training.empty_data import empty_data_error
from toolkit.models.training.sources import Source, make_source
from toolkit.settings import max_steps_per_epoch


class EpochBatches:
    """Steps of each epoch, from a source and a requested number of steps.

    If an epoch has fewer steps than the source has batches, the next epoch continues at
    the next batch. An epoch after the last batch restarts at the first.

    Attributes:
        exhausted: whether there are no more batches.
        num_yielded: the number of batches that the current epoch has returned.
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
        self._is_epoch_started = False  # whether the source was notified of the epoch
        self.num_yielded: int = 0

    @property
    def num_batches(self) -> int | None:
        """Return the number of steps of an epoch, or None if unknown."""
        steps = self.steps or self.source.num_batches
        return min(steps, self._limit) if steps and self._limit else steps

    def peek(self) -> Any:
        """Return the first batch, which the first epoch still returns."""
        if not self._peeked:
            self._begin()
            batch = self._next(1)
            if batch is None:
                raise empty_data_error(getattr(self.source, "_batches", None))
            self._peeked.append(batch)
        return self._peeked[0]

    def _begin(self) -> None:
        """Notify the source of the start of an epoch, before its first batch."""
        if not self._is_epoch_started:
            self._is_epoch_started = True
            self.source.notify("on_epoch_begin")

    def _end(self) -> None:
        self._is_epoch_started = False
        self.source.notify("on_epoch_end")

    def restart(self) -> None:
        """Start the next epoch at the first batch, if batches are repeatable."""
        if self.source.num_taken > len(self._peeked) and not self.source.is_iterator:
            self._pass = None
            self._peeked.clear()

    def state(self) -> dict[str, Any]:
        """Return the positions in the epoch and in the pass over the source."""
        # The number of steps ends the epoch and, with the last batch, also the pass.
        at_end = self.source.num_taken == self.source.num_batches
        within = self._pass is not None and not (at_end and self.steps is not None)
        return {"done": self.num_yielded, "source": self.source.state(within)}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a `state` of this or another process."""
        if not self.source.is_iterator or state["source"] is not None:
            self._pass = None
            self._peeked.clear()
        self.source.restore(state["source"])
        self.num_yielded = state["done"]

    def _next(self, steps: int | None = None) -> Any:
        """Return the next batch of an epoch of at most `steps` steps, or None."""
        if self._peeked:
            return self._peeked.pop()
        if self._pass is None:
            self._pass = self.source.epoch(steps)
        return next(self._pass, None)

    def groups(self, size: int) -> Iterator[tuple[int, int, list[Any]]]:
        """Yield (first step, last step, batches) of each group of the next epoch.

        As in Keras, a requested number of steps is rounded up to full groups.
        """
        steps = self.steps and ceil(self.steps / size) * size
        if self._limit:
            if self.steps is None:
                self.restart()
            steps = min(steps or self._limit, self._limit)
        first = self.num_yielded  # 0, unless the epoch continues
        batches = self._epoch(steps)
        while group := list(islice(batches, size)):
            yield first, first + size - 1, group
            first += size

    def _epoch(self, steps: int | None) -> Iterator[Any]:
        if self.source.is_iterator:
            self._pass = None  # a pass takes exactly the batches of an epoch from it
        self._begin()
        try:
            while steps is None or self.num_yielded < steps:
                remaining = steps and steps - self.num_yielded
                batch = self._next(remaining)
                if batch is None and self._can_repeat():
                    batch = self._next(remaining)
                if batch is None:
                    self._handle_exhaustion()
                    self._end()
                    return
                self.num_yielded += 1
                yield batch
            if (
                self._pass is not None
                and self.source.num_taken == self.source.num_batches
            ):
                next(self._pass, None)  # let the source end its epoch
                self._pass = None
            self._end()
        finally:
            self.num_yielded = 0

    def _can_repeat(self) -> bool:
        """Start a new pass if the last one ended exactly at the start of this epoch.

        If the number of batches is unknown, only a missing batch shows it.
        """
        if self.source.is_iterator or self.num_yielded or not self.source.num_taken:
            return False
        self._pass = None
        return True

    def _handle_exhaustion(self) -> None:
        self._pass = None
        finished = self.num_yielded
        if self.steps is not None and finished >= self.steps:
            return
        self.exhausted = self.source.is_iterator and (
            finished == 0 or self.steps is not None
        )
        if self.steps is not None or self.exhausted:
            expected = self.steps or "an unknown number of"
            warn(f"the data ran out after {finished} of {expected} steps{self._fix()}")

    def _fix(self) -> str:
        """Return the fix for data with too few batches, for a message."""
        source = self.source
        if source.samples is not None and source.batch_size is not None:
            return (
                f": {source.samples} samples in batches of {source.batch_size} are "
                f"{source.num_batches} steps; omit the number of steps"
            )
        return (
            "; it must return at least steps * epochs batches: add .repeat() to a "
            "data set, or omit the number of steps"
        )


def make_batches(
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    batch_size: int | None = None,
    steps: int | None = None,
) -> EpochBatches:
    """Return the steps of one pass over data, in its order."""
    source = make_source(x, y, sample_weight, batch_size, steps)
    return EpochBatches(source, steps)


def is_due(epoch: int, validation_freq: Any) -> bool:
    """Return whether to validate after this epoch."""
    if is_int(validation_freq):
        return (epoch + 1) % validation_freq == 0
    return epoch + 1 in validation_freq
