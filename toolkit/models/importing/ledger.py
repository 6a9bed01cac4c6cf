"""Budget of an imported graph: live bytes and steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from toolkit.core.trace import Trace
from toolkit.dtypes import numpy_dtype
from toolkit.errors import LoadBudgetError, ModelFileError

MAX_STATIC_SIZE = 1 << 16  # elements of an array that is computed before the graph runs
MAX_WORK = 1 << 28  # multiplications of all computations before the graph runs
MAX_REPEATS = 1_000_000  # of a node, by all enclosing loops


class StaticLimitExceeded(Exception):
    """A static array would be large or slow to compute: it is deferred to run time."""


class Ledger:
    """Counter of live bytes and steps while a graph is run or checked.

    Args:
        limit: the maximum of live bytes, without weights.
        steps: the maximum number of nodes, counting each iteration of unrolled loops.
    """

    def __init__(self, limit: int, steps: int) -> None:
        self._limit, self._steps = limit, steps
        self._live_bytes = 0
        self._repeats = 1
        self._work = MAX_WORK
        self._num_counted: dict[Any, int] = {}  # nodes of each trace
        self._counted_constants: set[Any] = set()

    @contextmanager
    def loop(self, times: int) -> Iterator[None]:
        """Return the context of a loop with this number of steps."""
        outer = self._repeats
        self._repeats = outer * max(times, 1)
        if self._repeats > MAX_REPEATS:
            raise ModelFileError(
                f"the loops have {self._repeats:,} iterations in total; expected at "
                f"most {MAX_REPEATS:,}"
            )
        try:
            yield
        finally:
            self._repeats = outer

    def step(self, count: int = 1) -> None:
        """Count nodes that run."""
        self._steps -= count
        if self._steps < 0:
            raise ModelFileError(
                "the loops repeat more nodes than the limit of unrolled loops"
            )

    def work(self, count: int) -> None:
        """Count computations before the graph runs; raise above the limit."""
        if count > self._work:
            raise StaticLimitExceeded
        self._work -= count

    def check(self, nbytes: int) -> None:
        """Raise before an allocation of `nbytes` that would exceed the limit."""
        if self._live_bytes + nbytes > self._limit:
            raise LoadBudgetError(
                f"a value needs {nbytes:,} bytes in addition to {self._live_bytes:,} "
                f"live bytes; expected at most {self._limit:,} bytes in total. To "
                "change the limit, call toolkit.saving.set_load_budget"
            )

    def count_values(self, values: Any) -> None:
        """Count values that have been created."""
        for value in values:
            self.check(value.nbytes)
            self._live_bytes += value.nbytes

    def count_constants(self, trace: Trace | None) -> None:
        """Count the arrays that new nodes of a trace read: its graph stores them."""
        if trace is None:
            return
        start = self._num_counted.get(trace, 0)
        self._num_counted[trace] = len(trace.nodes)
        for node in trace.nodes[start:]:
            constants = {
                x for x in node.inputs if x.constant is not None
            } - self._counted_constants
            self._counted_constants |= constants
            for x in constants:
                nbytes = x.spec.size * numpy_dtype(x.spec.dtype).itemsize
                self.check(nbytes)
                self._live_bytes += nbytes

    def free(self, values: Any) -> None:
        """Release values without further users."""
        self._live_bytes -= sum(value.nbytes for value in values)
