"""Rules for the computations of a thread: which kernels and orders a plan may use."""

from __future__ import annotations

from typing import Any

from toolkit.thread_state import ThreadState


class Rules(ThreadState):
    """Rules for all computations and compilations of the current thread."""

    # Whether eager calls use array kernels only: no code is generated for values from
    # files, or during other code generation.
    array_kernels_only = False

    # As in the `Target`. Shapes do not identify the batch axis. So the order of each
    # sum depends only on the extents that it runs over, not on other extents.
    rows_independent = False
    # As in the `Target`. The number of accumulators of a sum then does not depend on
    # the operations before it.
    keeps_bits = False
    # The processor of a code generator; None: this machine's.
    processor: Any = None


rules = Rules()
