"""Gathers of weights that are sharded for storage: when, and how often.

A weight is gathered where it is read. If larger weights are read before its
next read, such as between the forward and the backward pass, its memory is freed, and
it is gathered again. The memory for whole weights is then that of two or three of them.
The decisions depend on the whole graph, so they are equal on all ranks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from toolkit.compiler.sharding.choices import ShardedGraph
from toolkit.compiler.sharding.layouts import Split
from toolkit.ir import Spec, Value

# Values of at most this number of bytes are gathered in one message. A copy of more
# bytes takes longer than a message.
_MAX_PACKED_SIZE = 256 << 10


def is_large(spec: Spec) -> bool:
    """Return whether a value has its own collective, close to its first reader."""
    return spec.nbytes > _MAX_PACKED_SIZE


def find_gathers(sharded: ShardedGraph) -> dict[int, list[Value]]:
    """Return the weights to gather before each choice, by its index."""
    reads = list(_reads(sharded))
    last_read: dict[Value, int] = {}
    gathers: defaultdict[int, list[Value]] = defaultdict(list)
    for number, (index, weight) in enumerate(reads):
        previous = last_read.get(weight)
        last_read[weight] = number
        if previous is not None:
            between = {other for _, other in reads[previous + 1 : number]}
            if sum(x.spec.nbytes for x in between) <= weight.spec.nbytes:
                continue
        gathers[index].append(weight)
    return dict(gathers)


def _reads(sharded: ShardedGraph) -> Iterator[tuple[int, Value]]:
    """Yield the reads of whole large weights in order: the choice, and the weight."""
    for index, choice in enumerate(sharded.choices):
        for x, layout in zip(choice.node.inputs, choice.inputs, strict=True):
            is_gathered = layout is None and isinstance(sharded.layouts.get(x), Split)
            if is_gathered and x in sharded.stored and is_large(x.spec):
                yield index, x
