"""LossWatch: the warning about a loss that is not finite."""

from __future__ import annotations

import math
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from toolkit import tree
from toolkit.backends.memory import device_memories
from toolkit.console.frames import warn
from toolkit.core.convert import is_strings
from toolkit.models.callbacks.logs import LazyLogs
from toolkit.models.training.arrays import FIELDS
from toolkit.type_aliases import Array

_WATCH = 0.1  # seconds between two checks of the loss


class LossWatch:
    """Monitor that warns once if the loss is not finite.

    It checks the newest loss on the host at intervals: reading each loss immediately
    would block the next step. Earlier losses can be non-finite, too.

    Args:
        find_nonfinite: a function that describes NaN in the data of the run: a text,
            "" if there is none, or None if that is unknown.
    """

    def __init__(self, find_nonfinite: Callable[[], str | None]) -> None:
        self._find_nonfinite = find_nonfinite
        self._batch: object = None  # the newest one
        # A reference would prevent the reuse of its memory on an accelerator.
        self._stores_batch = not device_memories
        self.warned = False
        self._step = 0  # the last step that was checked
        self._losses: list[Any] = []  # of the steps since
        self._pending: tuple[int, LazyLogs] | None = None
        self._last_check = perf_counter()

    def add(self, logs: Any, batch: object) -> None:
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
        data = self._find_nonfinite()
        if data is None and (rows := describe_nonfinite(self._batch)):
            data = f"in the last batch, {rows}"
        checked = " The data is finite." if data == "" else ""
        advice = (
            f"{data}; remove these samples, or replace the values by np.nan_to_num"
            if data
            else f"try a lower learning rate or clip the gradients.{checked}"
        )
        warn(
            f"fit: the loss is {float(losses[first])} since step "
            f"{self._step + first + 1}; {advice}"
        )


def describe_nonfinite(batch: object) -> str | None:
    """Return the number and the first row of NaN and infinities in a batch, or None.

    Example:
        >>> import numpy as np
        >>> describe_nonfinite((np.array([[1.0], [np.nan]]), np.array([0.0, 1.0])))
        'x contains NaN or infinity in 1 of 2 rows, first in row 1'
    """
    components = batch if isinstance(batch, tuple) else (batch,)
    for name, component in zip(FIELDS, components, strict=False):
        for path, leaf in tree.flatten_with_path(component):
            rows = _nonfinite_rows(leaf)
            if rows.any():
                label = "".join([name, *(f"[{key!r}]" for key in path)])
                return (
                    f"{label} contains NaN or infinity in {rows.sum()} of {len(rows)} "
                    f"rows, first in row {rows.argmax()}"
                )
    return None


def _nonfinite_rows(leaf: Any) -> Array:
    """Return for each row whether it contains NaN or infinity."""
    if leaf is None or is_strings(leaf):
        return np.zeros(0, bool)
    array = np.asarray(leaf)
    if array.dtype.kind not in "fc" or not array.ndim:
        return np.zeros(0, bool)
    return ~np.isfinite(array).reshape(len(array), -1).all(axis=1)
