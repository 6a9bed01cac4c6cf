"""Simulation of links, collectives and steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2
from statistics import NormalDist
from typing import NamedTuple

from toolkit.errors import ArgumentError


@dataclass(frozen=True)
class Link:
    """Network of nodes: a message of b bytes takes latency + b / bandwidth.

    Args:
        latency: the seconds of a message between nodes.
        bandwidth: the send bandwidth of a node, in bytes per second.
        ranks_per_node: the number of ranks on a node.
        node_latency, node_bandwidth: the same inside a node.

    Example:
        >>> from toolkit import distribution
        >>> link = distribution.Link(latency=1e-6, bandwidth=1e9)
        >>> link.seconds("all_gather", 1e9, 2)
        0.500001
    """

    latency: float = 5e-6
    bandwidth: float = 10e9
    ranks_per_node: int = 1
    node_latency: float = 5e-6
    node_bandwidth: float = 5e9

    def __post_init__(self) -> None:
        if min(self.latency, self.node_latency) < 0:
            raise ArgumentError(f"Link: expected latencies >= 0; received {self}")
        if not (min(self.bandwidth, self.node_bandwidth) > 0 < self.ranks_per_node):
            raise ArgumentError(
                f"Link: expected bandwidths and ranks_per_node above 0; received {self}"
            )

    def seconds(self, kind: str, nbytes: float, ranks: int) -> float:
        """Return the time of a collective.

        Args:
            kind: "all_reduce", "all_gather" or "reduce_scatter".
            nbytes: the size of the full value.
            ranks: the number of ranks.
        """
        inner = min(ranks, self.ranks_per_node)
        levels = (
            (inner, self.node_latency, self.node_bandwidth),
            (ceil(ranks / inner), self.latency, self.bandwidth),
        )
        total = 0.0
        for count, latency, bandwidth in levels:
            sent_nbytes = (count - 1) / count * nbytes
            total += sent_nbytes / bandwidth + ceil(log2(count)) * latency
        return total * (2 if kind == "all_reduce" else 1)


class Work(NamedTuple):
    """Kernel or collective of a rank's program.

    Attributes:
        seconds: the compute time; for a collective, the time of its additions.
        dependencies: the indices of its dependencies.
        kind: the kind of collective, "" for a kernel.
        nbytes: the size of the collective's full value; for a gather, of this rank's
            part.
    """

    seconds: float
    dependencies: tuple[int, ...] = ()
    kind: str = ""
    nbytes: int = 0

    def total_nbytes(self, ranks: int) -> int:
        """Return the size of the full value in bytes."""
        return self.nbytes * ranks if self.kind == "all_gather" else self.nbytes


class SimulatedStep(NamedTuple):
    """Simulated step: its time, its kernel time, and bytes by collective."""

    seconds: float
    compute: float
    exchanged: dict[str, int]


def simulate_step(
    work: Sequence[Work],
    ranks: int,
    link: Link,
    overlap: bool = False,
    jitter: float = 0.0,
) -> SimulatedStep:
    """Simulate a program that all ranks run with equal shapes.

    Kernels and collectives have separate in-order queues.

    Args:
        work: the program in order.
        ranks: the number of ranks.
        link: the link between ranks.
        overlap: whether kernels run during a collective.
        jitter: the standard deviation of a rank's compute time, as a fraction.
            Collectives wait for the slowest rank.
    """
    slowdown = 1 + jitter * expected_maximum(ranks)
    ends: list[float] = []
    # End times of the kernel and collective queues.
    queue_ends = {False: 0.0, True: 0.0}
    compute = 0.0
    exchanged: Counter[str] = Counter()
    for item in work:
        queue = bool(item.kind) and overlap
        start = max([queue_ends[queue], *(ends[i] for i in item.dependencies)])
        seconds = item.seconds * slowdown
        compute += seconds
        if item.kind and ranks > 1:
            seconds += link.seconds(item.kind, item.total_nbytes(ranks), ranks)
            exchanged[item.kind] += item.total_nbytes(ranks)
        ends.append(start + seconds)
        queue_ends[queue] = ends[-1]
    return SimulatedStep(max(ends, default=0.0), compute, dict(exchanged))


def expected_maximum(count: int) -> float:
    """Return the expected maximum of `count` standard normal variables.

    Reference: Blom, Statistical estimates and transformed beta-variables (1958).
    """
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25))
