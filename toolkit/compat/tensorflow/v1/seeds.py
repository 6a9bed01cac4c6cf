"""Random numbers of graphs: each operation has a seed, each session separate
sequences."""

from __future__ import annotations

from typing import Any

from toolkit.compat.tensorflow.v1.graph import Graph
from toolkit.random import SeedGenerator, make_default_seed

# Separates the seeds of operations that differ by 1 in seed or number.
_STRIDE = 1_000_003


class GraphSeed(SeedGenerator):
    """The seed of one operation; each session starts a separate sequence from it.

    As in TensorFlow, with a graph seed or an operation seed each session has the same
    sequence; without a seed, each session has a new one.

    Args:
        graph: the graph of the operation.
        seed: of the operation, or None.
    """

    def __init__(self, graph: Graph, seed: int | None) -> None:
        operation_seed = len(graph.operations) if seed is None else seed
        self._fixed = None
        if seed is not None or graph.seed is not None:
            self._fixed = ((graph.seed or 0) * _STRIDE + operation_seed) % 2**32
        super().__init__(self.first_seed)

    @property
    def first_seed(self) -> int:
        """Return the initial seed of a session."""
        return make_default_seed() if self._fixed is None else self._fixed

    def get_config(self) -> dict[str, Any]:
        """Raise: the seed belongs to a graph."""
        raise NotImplementedError("the seed of a graph's operation has no config")
