"""What a graph is compiled for, and the rewrites that a backend wants."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from toolkit.definitions.records import record
from toolkit.ir import Graph
from toolkit.thread_state import ThreadState

if TYPE_CHECKING:
    from toolkit.backends.base import Backend, Operand


@record
class Target:
    """What a graph is compiled for.

    Attributes:
        backend: whose kernels compute it.
        generate: whether the backend may generate code for nodes.
        inputs: how the inputs lie in memory; None: whole arrays, in row-major order.
        updates: pairs of an output and the input that it is the new value of, or None.
        rows_independent: whether each row of a batch has the same bits in any batch,
            where the backend can promise that, for some loss of speed.
        frozen: the numbers of inputs whose arrays nobody writes to. What follows from
            them alone is made once, and again when a call gives another array.
        is_body: whether it is a part of another program, which makes that for it.
        processor: what machine code is written for, one that
            `Backend.processors` returned; None: this machine's.
    """

    backend: Backend
    generate: bool = True
    inputs: Sequence[Operand] | None = None
    updates: Sequence[tuple[int, int | None]] = ()
    rows_independent: bool = False
    frozen: Collection[int] = ()
    is_body: bool = False
    processor: Any = None


class Rules(ThreadState):
    """What holds for all that a thread computes or compiles at the moment."""

    # Whether what runs eagerly takes kernels of arrays alone: no code is generated for
    # what files say, nor while other code is.
    plain = False

    # As in the `Target`. Shapes do not tell which axis is the batch. So each sum is
    # added in an order that follows from the extents it runs over, not from the others.
    rows_independent = False
    # A code generator's, None: this machine's.
    processor: Any = None


rules = Rules()

# Takes a graph and returns one that computes the same.
Pass = Callable[[Graph, Target], Graph]


@record
class BackendPasses:
    """The rewrites that a backend wants beside those of every backend, by their place.

    Attributes:
        traced: of primitives and composites as they were traced.
        expanded: once composites that the backend has no kernel for are taken apart.
        simplified: before nodes are fused; only where code is generated, as are the
            last.
        scheduled: once the order of the nodes is known.
        parts: names of composites that `simplified` makes part of other nodes; those
            that it leaves are taken apart.
    """

    traced: Sequence[Pass] = ()
    expanded: Sequence[Pass] = ()
    simplified: Sequence[Pass] = ()
    scheduled: Sequence[Pass] = ()
    parts: Collection[str] = ()
