"""What a graph is compiled for, and the rewrites that a backend wants."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit.ir import Graph

if TYPE_CHECKING:
    from toolkit.backends.base import Backend, Operand


@dataclass(frozen=True)
class Target:
    """What a graph is compiled for.

    Attributes:
        backend: whose kernels compute it.
        generate: whether the backend may generate code for nodes.
        inputs: how the inputs lie in memory; None: whole arrays, in row-major order.
        updates: pairs of an output and the input that it is the new value of, or None.
    """

    backend: Backend
    generate: bool = True
    inputs: Sequence[Operand] | None = None
    updates: Sequence[tuple[int, int | None]] = ()


# Takes a graph and returns one that computes the same.
Pass = Callable[[Graph, Target], Graph]


@dataclass(frozen=True)
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
