"""Collectives on a second stream, in parallel with the steps of a program.

An event before a collective makes it wait for the steps before it. Another event after
it makes the first step that reads its results wait. Both become edges of a captured
graph. The stream runs collectives in the order of the program, which is equal on all
ranks. The points of the waits only affect this rank.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from toolkit.backends.cupy.device import Device
from toolkit.backends.cupy.steps import Exchange, Lowered
from toolkit.plans.locations import NodeOperands, Shares
from toolkit.plans.operands import OperandMemory


def is_exchange(node: Lowered) -> bool:
    """Return whether a node runs on the stream of collectives."""
    return any(isinstance(step, Exchange) for step in node.steps)


def find_joins(nodes: Sequence[Lowered], shares: Shares) -> dict[int, int]:
    """Return the node before which the steps wait for each collective.

    This is the first node that reads its results, or writes to its memory. A collective
    whose operands are larger than its results ends before the next one of this kind
    starts, so that their memory is free.

    Args:
        nodes: in execution order.
        shares: the memory of their operands.

    Returns:
        The index of the node, by the index of the collective; the number of nodes
        means the end of the program.
    """
    exchanges = [i for i, node in enumerate(nodes) if is_exchange(node)]
    readers: defaultdict[Any, list[int]] = defaultdict(list)
    writers: defaultdict[Any, list[int]] = defaultdict(list)
    on_stream = set(exchanges)
    for i, operands in enumerate(shares.nodes):
        if i not in on_stream:
            for memory in operands.inputs:
                readers[memory.owner].append(i)
            for memory in operands.outputs:
                writers[memory.owner].append(i)
    reducing = [i for i in exchanges if _is_reducing(shares.nodes[i])]
    limits = dict(pairwise(reducing))
    joins: dict[int, int] = {}
    end = len(nodes)
    # The stream runs in order: a wait for a collective includes all earlier ones.
    for i in reversed(exchanges):
        read, written = (
            {memory.owner for memory in memories}
            for memories in (shares.nodes[i].inputs, shares.nodes[i].outputs)
        )
        users = [j for owner in written for j in readers[owner] if j > i]
        users += [j for owner in read | written for j in writers[owner] if j > i]
        end = min([end, limits.get(i, end), *users])
        joins[i] = end
    return joins


def _is_reducing(operands: NodeOperands[OperandMemory]) -> bool:
    """Return whether the operands of a node are larger than its results."""
    inputs, outputs = (
        sum(memory.nbytes for memory in memories)
        for memories in (operands.inputs, operands.outputs)
    )
    return inputs > outputs


class ExchangeCall:
    """Call that starts a collective on the stream of collectives.

    Args:
        device: the device.
        calls: enqueue the collective.
    """

    def __init__(self, device: Device, calls: Sequence[Callable[[], None]]) -> None:
        self._device = device
        self._calls = calls
        self._ready, self._done = device.event(), device.event()

    def __call__(self) -> None:
        """Start the collective after all steps so far."""
        device = self._device
        self._ready.record(device.stream)
        device.exchanges.wait_event(self._ready)
        with device.exchanging():
            for call in self._calls:
                call()
        self._done.record(device.exchanges)

    def join(self) -> None:
        """Let later steps wait for the collective."""
        self._device.stream.wait_event(self._done)
