"""Reductions in shared memory between the ranks of a machine, along the tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from toolkit.comm import shared
from toolkit.comm.group import Group, split_range
from toolkit.comm.leaves import (
    Leaves,
    Step as Combination,
    combination_steps,
    pieces_of_ranks,
)
from toolkit.comm.shared import SharedMemory, Step, copy_step, copy_steps
from toolkit.type_aliases import Array

# Up to this number of bytes, times the square of (ranks - 1), every rank combines all
# pieces itself. This needs one barrier instead of two.
_MAX_DIRECT_SIZE = 1 << 20
# Tensors with a smaller average size in bytes are combined as one.
_MIN_SEGMENT_SIZE = 32 << 10
# Combines two arrays into a third, `out`.
Combine: TypeAlias = Callable[..., Any]


class Span(NamedTuple):
    """Part of a tensor and its offset in a round."""

    tensor: int
    start: int
    stop: int
    offset: int


class AllReduce:
    """Reusable all-reduce of flat pieces of tensors of one dtype.

    The plan of each call is computed once, because small reductions take little time.

    Args:
        group: the group; all its ranks create one, and call it together.
        memory: the shared memory.
        pieces: for each tensor this rank's pieces, which each call reads.
        leaves: the leaves of the pieces.
        outs: the arrays for the results.
        combine: a function of two operands that writes to a third.
        identity: the identity element.

    Attributes:
        nbytes: see `SlotExchange`, if `has_one_barrier`.
        has_one_barrier: whether this is a `SlotExchange`.
    """

    def __init__(
        self,
        group: Group,
        memory: SharedMemory,
        pieces: Sequence[Sequence[Array]],
        leaves: Leaves,
        outs: Sequence[Array],
        combine: Combine,
        identity: Any,
    ) -> None:
        self.group, self.memory = group, memory
        self._pieces, self._outs = pieces, outs
        self._leaves = leaves
        self._combine, self._identity = combine, identity
        self._counts = _piece_counts(leaves, group.size)
        self._dtype = outs[0].dtype
        self._sizes = tuple(out.size for out in outs)
        total, itemsize = sum(self._sizes), self._dtype.itemsize
        max_pieces = max(*self._counts, 1)
        capacity = shared.SLOT_SIZE // (max_pieces * itemsize)
        self._is_direct = total * itemsize * (group.size - 1) ** 2 <= _MAX_DIRECT_SIZE
        self._rounds = [
            (i, min(i + capacity, total)) for i in range(0, total, capacity)
        ]
        self.has_one_barrier = self._is_direct and len(self._rounds) == 1
        self.nbytes = max_pieces * total * itemsize
        # Plans by round, slot and offset.
        self._plans: dict[tuple[int, int, int], _Plan] = {}
        # All steps of a call, by round and slot.
        self._steps: dict[tuple[int, int], list[Step]] = {}

    def __call__(self) -> None:
        for number in range(len(self._rounds)):
            slot = self.memory.next_slot()
            steps = self._steps.get((number, slot))
            if steps is None:
                plan = self._plan(number, slot, 0)
                steps = plan.steps(self.group.barrier, self._is_direct)
                self._steps[number, slot] = steps
            # Overflow and NaN appear in the result, as for other operations.
            with np.errstate(all="ignore"):
                for step in steps:
                    step()

    def write_steps(self, slot: int, offset: int) -> list[Step]:
        """See `SlotExchange`."""
        return self._plan(0, slot, offset).writes

    def read_steps(self, slot: int, offset: int) -> list[Step]:
        """See `SlotExchange`."""
        plan = self._plan(0, slot, offset)
        return plan.sums + plan.copies

    def _plan(self, number: int, slot: int, offset: int) -> _Plan:
        plan = self._plans.get((number, slot, offset))
        if plan is None:
            plan = self._plans[number, slot, offset] = self._make_plan(
                number, slot, offset
            )
        return plan

    def _make_plan(self, number: int, slot: int, offset: int) -> _Plan:
        low, high = self._rounds[number]
        size, ranks, rank = high - low, self.group.size, self.group.rank
        plan = _Plan([], [], [])
        slots = self.memory.slots(slot, self._dtype)
        slots = slots[:, offset // self._dtype.itemsize :]
        spans = _spans(self._sizes, low, high)
        for piece in range(self._counts[rank]):
            segments = [
                self._pieces[i][piece][start:stop] for i, start, stop, _ in spans
            ]
            target = slots[rank, piece * size :]
            plan.writes.extend(copy_steps(segments, target))
        if not self._is_direct:
            bounds = split_range(0, size, ranks, 64 // self._dtype.itemsize or 1)
            # No other rank reads this part of this rank's slot before the next barrier.
            self._plan_combination(plan, slots, size, *bounds[rank], slots[rank])
            for peer, (first, last) in enumerate(bounds):
                peer_spans = _spans(self._sizes, low + first, low + last)
                self._plan_copies(plan, slots[peer, first:last], peer_spans)
        # With an offset, another exchange may have written to this rank's pieces.
        elif offset or (
            len(spans) > 1
            and size * self._dtype.itemsize < len(spans) * _MIN_SEGMENT_SIZE
        ):
            packed_result = np.empty(size, self._dtype)
            self._plan_combination(plan, slots, size, 0, size, packed_result)
            self._plan_copies(plan, packed_result, spans)
        else:
            for tensor, start, stop, offset in spans:
                local_segments = [flat[start:stop] for flat in self._pieces[tensor]]
                segments = _piece_segments(
                    slots, self._counts, size, offset, stop - start, excluded_rank=rank
                )
                out = self._outs[tensor][start:stop]
                self._plan_steps(plan, [*local_segments, *segments], rank, out)
        return plan

    def _plan_combination(
        self, plan: _Plan, slots: Array, size: int, start: int, stop: int, out: Array
    ) -> None:
        """Combine a part of the data in the slots."""
        operands = _piece_segments(slots, self._counts, size, start, stop - start)
        self._plan_steps(plan, operands, None, out[start:stop])

    def _plan_steps(
        self, plan: _Plan, operands: list[Array], first_rank: int | None, out: Array
    ) -> None:
        """Combine operands; only the last step writes to `out`.

        `out` can be one of the operands."""
        if len(operands) < 2:
            value = operands[0] if operands else np.full_like(out, self._identity)
            plan.sums.append(copy_step(out, value))
            return
        steps = _rank_steps(self._leaves, self.group.size, first_rank)
        for number, (lhs, rhs, target) in enumerate(steps, 1):
            if number == len(steps):
                destination = out
            else:
                destination = np.empty_like(out) if target < 0 else operands[target]
            plan.sums.append(
                partial(self._combine, operands[lhs], operands[rhs], out=destination)
            )
            operands.append(destination)

    def _plan_copies(self, plan: _Plan, source: Array, spans: Sequence[Span]) -> None:
        """Copy combined data to its tensors."""
        for tensor, start, stop, offset in spans:
            target = self._outs[tensor][start:stop]
            segment = source[offset : offset + stop - start]
            plan.copies.append(copy_step(target, segment))


class _Plan(NamedTuple):
    """Plan of a rank for one round.

    Attributes:
        writes: the steps that write contiguously into this rank's slot.
        sums: the combinations.
        copies: the final reads.
    """

    writes: list[Step]
    sums: list[Step]
    copies: list[Step]

    def steps(self, barrier: Step, is_direct: bool) -> list[Step]:
        """Return all steps; a direct reduction needs only the first barrier."""
        barriers = [] if is_direct else [barrier]
        return [*self.writes, barrier, *self.sums, *barriers, *self.copies]


def reduce_scatter(
    group: Group,
    memory: SharedMemory,
    pieces: Sequence[Array],
    leaves: Leaves,
    out: Array,
    combine: Callable[[list[Array], Sequence[Combination], Array], None],
) -> None:
    """Combine flat pieces, and keep this rank's part: see `ordered`."""
    rank, ranks, dtype = group.rank, group.size, out.dtype
    counts = _piece_counts(leaves, ranks)
    capacity = shared.SLOT_SIZE // (max(*counts, 1) * ranks * dtype.itemsize)
    for low in range(0, out.size, capacity):
        high = min(low + capacity, out.size)
        slots, count = memory.slots(memory.next_slot(), dtype), high - low
        for number, piece in enumerate(pieces):
            offset = number * ranks * count
            target = slots[rank, offset : offset + ranks * count].reshape(ranks, count)
            target[...] = piece.reshape(ranks, out.size)[:, low:high]
        group.barrier()
        operands = _piece_segments(slots, counts, ranks * count, rank * count, count)
        combine(operands, _rank_steps(leaves, ranks), out[low:high])


def _piece_segments(
    slots: Array,
    counts: Sequence[int],
    stride: int,
    offset: int,
    size: int,
    excluded_rank: int | None = None,
) -> list[Array]:
    """Return a segment of each piece; `stride` is the distance between pieces."""
    return [
        slots[rank, number * stride + offset : number * stride + offset + size]
        for rank, count in enumerate(counts)
        if rank != excluded_rank
        for number in range(count)
    ]


@lru_cache(maxsize=4096)
def _spans(sizes: tuple[int, ...], low: int, high: int) -> tuple[Span, ...]:
    """Return the spans of concatenated tensors that cover elements low..high."""
    spans, first = [], 0
    for tensor, size in enumerate(sizes):
        start, stop = max(low, first), min(high, first + size)
        if start < stop:
            spans.append(Span(tensor, start - first, stop - first, start - low))
        first += size
    return tuple(spans)


@lru_cache(maxsize=256)
def _piece_counts(leaves: Leaves, ranks: int) -> tuple[int, ...]:
    """Return the number of pieces of each rank."""
    return tuple(len(pieces) for pieces in pieces_of_ranks(leaves, ranks))


@lru_cache(maxsize=256)
def _rank_steps(
    leaves: Leaves, ranks: int, first_rank: int | None = None
) -> tuple[Combination, ...]:
    """Return the combinations of all pieces, without overwriting them.

    Args:
        leaves: the leaves of the tree.
        ranks: the ranks, in the order of their pieces.
        first_rank: a rank whose pieces precede those from other ranks, if any.
    """
    pieces = pieces_of_ranks(leaves, ranks)
    order = sorted(range(ranks), key=lambda rank: rank != first_rank)
    keys = [key for rank in order for key in pieces[rank]]
    return combination_steps(leaves, keys, len(keys))
