"""Random numbers of graphs: each operation has a seed, each session its sequences."""

from __future__ import annotations

from typing import Any

from toolkit.compat.tensorflow.v1.graph import Graph
from toolkit.random import SeedGenerator, make_default_seed

# Keeps the seeds of operations apart that differ by one in seed or number.
_STRIDE = 1_000_003


class GraphSeed(SeedGenerator):
    """The seed of one operation; a session begins its own sequence from it.

    As in TensorFlow, with the graph's seed or one of its own the sequence is the same
    in each session, and without either it is new.

    Args:
        graph: whose operation it is.
        seed: that of the operation, or None.
    """

    def __init__(self, graph: Graph, seed: int | None) -> None:
        own = len(graph.operations) if seed is None else seed
        self._fixed = None
        if seed is not None or graph.seed is not None:
            self._fixed = ((graph.seed or 0) * _STRIDE + own) % 2**32
        super().__init__(self.first_seed)

    @property
    def first_seed(self) -> int:
        """The seed that a session begins with."""
        return make_default_seed() if self._fixed is None else self._fixed

    def get_config(self) -> dict[str, Any]:
        """Not possible: it belongs to a graph."""
        raise NotImplementedError("the seed of a graph's operation has no config")
