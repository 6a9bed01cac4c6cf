"""Compilation target of a graph, and the passes of a backend."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from toolkit.definitions.records import record
from toolkit.ir import Graph
from toolkit.plans.operands import Operand

if TYPE_CHECKING:
    from toolkit.backends.base import Backend


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
        keeps_bits: whether no pass may change a bit of a result, as an identity of real
            numbers can.
    """

    backend: Backend
    generate: bool = True
    inputs: Sequence[Operand] | None = None
    updates: Sequence[tuple[int, int | None]] = ()
    rows_independent: bool = False
    frozen: Collection[int] = ()
    is_body: bool = False
    processor: Any = None
    keeps_bits: bool = False


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
