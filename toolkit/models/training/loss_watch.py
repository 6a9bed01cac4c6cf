"""LossWatch: the warning about a loss that is not finite."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter
from typing import Any

from toolkit.backends.memory import device_memories
from toolkit.console.frames import warn
from toolkit.models.callbacks.logs import LazyLogs
from toolkit.models.training.nonfinite import Search, describe_nonfinite
from toolkit.models.training.nonfinite_steps import find_nonfinite
from toolkit.models.training.steps import Steps

_WATCH = 0.1  # seconds between two checks of the loss
_ADVICE = (
    "look for a logarithm, division or square root of 0, and for very large values; "
    "`find_nonfinite(x, y)` of a new model names the operation"
)


class LossWatch:
    """Monitor that warns once if the loss is not finite.

    It checks the newest loss on the host at intervals: reading each loss immediately
    would block the next step. Earlier losses can be non-finite, too.

    Args:
        model: the trained model.
        find_nonfinite: a function that searches the data of the run for NaN.
    """

    def __init__(self, model: Steps, find_nonfinite: Callable[[], Search]) -> None:
        self._model = model
        self._find_nonfinite = find_nonfinite
        self._batch: object = None  # the newest one
        # A reference would prevent the reuse of its memory on an accelerator.
        self._stores_batch = not device_memories
        self.warned = False
        self._step = 0  # the last step that was checked
        self._losses: list[Any] = []  # of the steps since
        self._pending: tuple[int, LazyLogs] | None = None
        self._last_check = perf_counter()

    def add(self, logs: object, batch: object) -> None:
        """Record the logs of a step, and its batch."""
        if self._stores_batch:
            self._batch = batch
        self._losses.append(logs.get("loss", 0.0) if isinstance(logs, dict) else 0.0)

    def is_due(self) -> bool:
        """Return whether a check is due."""
        return perf_counter() - self._last_check >= _WATCH

    def check(self, wait: bool = False) -> None:
        """Warn if the newest loss is not finite.

        Args:
            wait: whether to wait for the value.
        """
        self._last_check = perf_counter()
        while self._losses:
            if self._pending is None:
                self._pending = len(self._losses), LazyLogs({"loss": self._losses[-1]})
                self._pending[1].begin()
            count, newest = self._pending
            if not (wait or newest.is_available):
                return
            checked, self._losses = self._losses[:count], self._losses[count:]
            self._pending = None
            if not self.warned and not math.isfinite(newest["loss"]):
                self._warn(checked)
            self._step += count
        if wait:
            self._batch = None

    def _warn(self, losses: list[Any]) -> None:
        self.warned = True
        nonfinite = (i for i, loss in enumerate(losses) if not math.isfinite(loss))
        first = next(nonfinite)
        location, checked = self._find_nonfinite()
        if not location and self._batch is not None:
            if rows := describe_nonfinite(self._batch):
                location = f"in the last batch, {rows}"
            checked = checked or "Only the last batch was checked, and it is finite."
        step = self._step + first + 1
        advice = (
            f"{location}; remove these samples, or replace the values by np.nan_to_num"
            if location
            else f"{self._describe_step(step)}. "
            f"{checked or 'The data cannot be read again, so it was not checked.'}"
        )
        warn(f"fit: the loss is {float(losses[first])} since step {step}; {advice}")

    def _describe_step(self, step: int) -> str:
        """Return the cause if the weights still show it; else advice for a step."""
        if self._batch is not None:
            with suppress(Exception):  # a warning must not end the training
                if cause := find_nonfinite(self._model, self._batch):
                    return cause
        if step == 1:
            return f"the first loss does not depend on the learning rate: {_ADVICE}"
        return f"try a lower learning rate or clip the gradients; or {_ADVICE}"
