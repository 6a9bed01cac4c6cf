"""What an imported graph may take: bytes that exist at once, and steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from toolkit.core.trace import Trace
from toolkit.dtypes import numpy_dtype
from toolkit.errors import LoadBudgetError, ModelFileError

MAX_KNOWN = 1 << 16  # elements of an array that is computed before the graph runs
MAX_WORK = 1 << 28  # multiplications of all that is computed before
MAX_REPEATS = 1_000_000  # of a node, by all loops around it


class TooLargeToKnow(Exception):
    """A known array would be large or take long: it is made when the graph runs."""


class Ledger:
    """Counts what exists while a graph is run or looked at.

    Args:
        limit: bytes that may exist at once, weights not counted.
        steps: how many nodes may be run, those of unrolled loops each time.
    """

    def __init__(self, limit: int, steps: int) -> None:
        self._limit, self._steps = limit, steps
        self._held = 0
        self._repeats = 1
        self._work = MAX_WORK
        self._looked_at: dict[Any, int] = {}  # nodes of each trace
        self._kept: set[Any] = set()

    @contextmanager
    def repeated(self, times: int) -> Iterator[None]:
        """Inside of a loop of so many steps."""
        outer = self._repeats
        self._repeats = outer * max(times, 1)
        if self._repeats > MAX_REPEATS:
            raise ModelFileError(
                f"loops of {self._repeats:,} steps in all; expected at most "
                f"{MAX_REPEATS:,}"
            )
        try:
            yield
        finally:
            self._repeats = outer

    def step(self, count: int = 1) -> None:
        """Count nodes that are run."""
        self._steps -= count
        if self._steps < 0:
            raise ModelFileError("its loops repeat more nodes than may be unrolled")

    def work(self, count: int) -> None:
        """Count what is computed before the graph runs; raise if it is too much."""
        if count > self._work:
            raise TooLargeToKnow
        self._work -= count

    def check(self, nbytes: int) -> None:
        """Raise if so many bytes more would be too many; before they are made."""
        if self._held + nbytes > self._limit:
            raise LoadBudgetError(
                f"a value of {nbytes:,} bytes, beside {self._held:,} that exist then; "
                f"expected at most {self._limit:,} in all. "
                "toolkit.saving.set_load_budget sets that"
            )

    def take(self, values: Any) -> None:
        """Count values that have been made."""
        for value in values:
            self.check(value.nbytes)
            self._held += value.nbytes

    def keep(self, trace: Trace | None) -> None:
        """Count the arrays that new nodes of a trace read: its graph holds them."""
        if trace is None:
            return
        start = self._looked_at.get(trace, 0)
        self._looked_at[trace] = len(trace.nodes)
        for node in trace.nodes[start:]:
            held = {x for x in node.inputs if x.constant is not None} - self._kept
            self._kept |= held
            for x in held:
                nbytes = x.spec.size * numpy_dtype(x.spec.dtype).itemsize
                self.check(nbytes)
                self._held += nbytes

    def free(self, values: Any) -> None:
        """Count values that nothing needs any more."""
        self._held -= sum(value.nbytes for value in values)
