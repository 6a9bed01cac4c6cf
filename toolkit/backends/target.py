"""Compilation target of a graph, and the passes of a backend."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from toolkit.definitions.records import record
from toolkit.ir import Graph
from toolkit.thread_state import ThreadState

if TYPE_CHECKING:
    from toolkit.backends.base import Backend
    from toolkit.backends.operands import Operand


@record
class Target:
    """Compilation target of a graph.

    Attributes:
        backend: whose kernels compute it.
        generate: whether the backend may generate code for nodes.
        inputs: the memory layouts of the inputs; None: whole arrays, in row-major
            order.
        updates: pairs of an output and the input whose new value it is, or None.
        rows_independent: whether each row of a batch has the same bits in any batch,
            where the backend can guarantee that, for some loss of speed.
        frozen: the numbers of inputs that are never written. Values that depend only on
            them are computed once, and again when a call passes another array.
        is_body: whether it is a part of another program, which computes those values.
        processor: the target of machine code, a result of `CodeGenerator.processors`;
            None: this machine's.
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
    """Rules for all computations and compilations of the current thread."""

    # Whether eager calls use array kernels only: no code is generated for values from
    # files, or during other code generation.
    array_kernels_only = False

    # As in the `Target`. Shapes do not identify the batch axis. So the order of each
    # sum depends only on the extents that it runs over, not on other extents.
    rows_independent = False
    # The processor of a code generator; None: this machine's.
    processor: Any = None


rules = Rules()

# A function that takes a graph and returns an equivalent one.
Pass = Callable[[Graph, Target], Graph]


@record
class BackendPasses:
    """Passes of a backend in addition to the passes of every backend, by their stage.

    Attributes:
        after_trace: on primitives and composites as traced.
        after_expansion: after the expansion of composites without a kernel.
        before_fusion: before fusion; this and the last stage apply only if code is
            generated.
        after_scheduling: after the nodes have an order.
        product_parts: names of composites that `before_fusion` joins with other
            nodes; the remaining ones are expanded.
    """

    after_trace: Sequence[Pass] = ()
    after_expansion: Sequence[Pass] = ()
    before_fusion: Sequence[Pass] = ()
    after_scheduling: Sequence[Pass] = ()
    product_parts: Collection[str] = ()
