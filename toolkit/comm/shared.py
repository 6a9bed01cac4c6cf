"""Collectives in shared memory between the ranks of a machine, without messages.

Each rank writes its pieces once, and the other ranks read them in place.
"""

from __future__ import annotations

import mmap
import os
import secrets
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple, Protocol, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from toolkit.comm.group import (
    Group,
    exchange,
    split_range,
)
from toolkit.comm.leaves import Leaves, Step, combination_steps, pieces_of_ranks
from toolkit.type_aliases import Array

# Bytes of a rank in one round: the written data stays in the cache.
SLOT_SIZE = 1 << 20
# Up to this number of bytes, times the square of (ranks - 1), every rank combines all
# pieces itself. This needs one barrier instead of two.
_MAX_DIRECT_SIZE = 1 << 20
# Exchanges in a slot start at multiples of this number of bytes.
_ALIGNMENT = 64
# Parts with a smaller average size in bytes are combined as one.
_MIN_SEGMENT_SIZE = 32 << 10
_PAGE_SIZE = 4096
_TOKEN_SIZE = 16
# Combines two arrays into a third, `out`.
Combine: TypeAlias = Callable[..., Any]


class SharedMemory:
    """Double-buffered slots in shared memory, for each rank of a group.

    A rank fills one slot while other ranks can still read the other one. Before it
    fills the first slot again, all ranks have passed another barrier.

    Args:
        memory: a buffer of `2 * ranks * SLOT_SIZE` bytes.
        ranks: the number of ranks.
    """

    def __init__(self, memory: Array, ranks: int) -> None:
        self._slots = memory.reshape(2, ranks, SLOT_SIZE)
        self._slot = 0

    def next_slot(self) -> int:
        """Return the slot index for the next round: 0 or 1."""
        self._slot ^= 1
        return self._slot

    def slots(self, slot: int, dtype: np.dtype[Any]) -> Array:
        """Return the slots of all ranks: (ranks, elements)."""
        slots: Array = self._slots[slot].view(dtype)
        return slots


_shared_memory: WeakKeyDictionary[Group, SharedMemory | None] = WeakKeyDictionary()


def memory_of(group: Group) -> SharedMemory | None:
    """Return the shared memory of a group, or None if its ranks cannot share.

    The first call is collective.
    """
    if group not in _shared_memory:
        nbytes = 2 * group.size * SLOT_SIZE
        memory = (
            None if group.size == 1 or group.is_remote else map_memory(group, nbytes)
        )
        _shared_memory[group] = (
            memory if memory is None else SharedMemory(memory, group.size)
        )
    return _shared_memory[group]


def map_memory(group: Group, nbytes: int) -> Array | None:
    """Map the same zeros in all ranks, or return None if a rank cannot map them.

    All ranks call this. The memory has no name in a file system, so killed ranks leave
    no files.
    """
    descriptor, local_location = -1, None
    if group.rank == 0 and hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("toolkit")
        os.ftruncate(descriptor, _PAGE_SIZE + nbytes)
        # On another machine, the same PID can be another process.
        token = secrets.token_hex(_TOKEN_SIZE)
        os.pwrite(descriptor, bytes.fromhex(token), 0)
        local_location = [os.getpid(), descriptor, token]
    location = exchange(group, local_location)[0]
    memory = None if location is None else _map_peer_memory(location, nbytes)
    is_shared = all(exchange(group, memory is not None))
    if descriptor >= 0:
        os.close(descriptor)
    return memory if is_shared else None


def _map_peer_memory(location: Sequence[Any], nbytes: int) -> Array | None:
    """Return the mapped memory of another process of this machine."""
    pid, descriptor, token = location
    try:
        peer_descriptor = os.open(f"/proc/{int(pid)}/fd/{int(descriptor)}", os.O_RDWR)
    except OSError:
        return None
    try:
        if os.pread(peer_descriptor, _TOKEN_SIZE, 0) != bytes.fromhex(token):
            return None
        mapping = mmap.mmap(peer_descriptor, _PAGE_SIZE + nbytes)
    except (OSError, ValueError):
        return None
    finally:
        os.close(peer_descriptor)
    return np.frombuffer(mapping, np.uint8)[_PAGE_SIZE:]


class Span(NamedTuple):
    """Part of a tensor and its offset in a round."""

    tensor: int
    start: int
    stop: int
    offset: int


class SlotExchange(Protocol):
    """An exchange with one barrier: a rank writes to its slot, then reads all slots.

    Attributes:
        group: the group.
        memory: the shared memory of the group.
        nbytes: the bytes in the slot of each rank, equal on all ranks.
    """

    group: Group
    memory: SharedMemory
    nbytes: int

    def write(self, slot: int, offset: int) -> None:
        """Write to this rank's slot, from a byte offset."""

    def read(self, slot: int, offset: int) -> None:
        """Read from the slots of all ranks, after the barrier."""


class JointExchange:
    """Several exchanges of a group with one barrier.

    Args:
        exchanges: one or more exchanges of a group, in the same order on all ranks.
            No exchange reads the result of another one. See also `fits`.
    """

    def __init__(self, exchanges: Sequence[SlotExchange]) -> None:
        self._group, self._memory = exchanges[0].group, exchanges[0].memory
        ends = list(accumulate(_aligned(x.nbytes) for x in exchanges))
        self._exchanges = list(zip(exchanges, [0, *ends[:-1]], strict=True))

    @staticmethod
    def fits(exchanges: Sequence[SlotExchange]) -> bool:
        """Return whether one barrier is enough for these exchanges."""
        return (
            all(x.memory is exchanges[0].memory for x in exchanges)
            and sum(_aligned(x.nbytes) for x in exchanges) <= SLOT_SIZE
        )

    def __call__(self) -> None:
        slot = self._memory.next_slot()
        for member, offset in self._exchanges:
            member.write(slot, offset)
        self._group.barrier()
        for member, offset in self._exchanges:
            member.read(slot, offset)


def _aligned(nbytes: int) -> int:
    """Return the bytes up to the start of the next exchange."""
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


class Gather:
    """Reusable gather of a message from each rank, of which parts are copied.

    Args:
        group: the group; all its ranks create one, and call it together.
        memory: the shared memory.
        message: contiguous arrays, the parts of this rank's message.
        nbytes: the bytes of the largest message, at most `SLOT_SIZE`.
        copies: destinations, the rank whose message they receive, and its bytes.
    """

    def __init__(
        self,
        group: Group,
        memory: SharedMemory,
        message: Sequence[Array],
        nbytes: int,
        copies: Sequence[tuple[Array, int, slice]],
    ) -> None:
        self.group, self.memory, self.nbytes = group, memory, nbytes
        self._message = [part.reshape(-1).view(np.uint8) for part in message]
        self._copies = [copy for copy in copies if copy[0].size]
        # Destinations and sources, by slot and offset.
        self._moves: dict[tuple[int, int], list[tuple[Array, Array]]] = {}

    def write(self, slot: int, offset: int) -> None:
        """See `SlotExchange`."""
        target = self.memory.slots(slot, np.dtype(np.uint8))[self.group.rank, offset:]
        size = sum(part.size for part in self._message)
        np.concatenate(self._message, out=target[:size])

    def read(self, slot: int, offset: int) -> None:
        """See `SlotExchange`."""
        moves = self._moves.get((slot, offset))
        if moves is None:
            moves = self._moves[slot, offset] = self._plan_moves(slot, offset)
        for target, source in moves:
            np.copyto(target, source)

    def _plan_moves(self, slot: int, offset: int) -> list[tuple[Array, Array]]:
        slots = self.memory.slots(slot, np.dtype(np.uint8))[:, offset:]
        return [
            (target, slots[rank, span].view(target.dtype).reshape(target.shape))
            for target, rank, span in self._copies
        ]


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
        capacity = SLOT_SIZE // (max_pieces * itemsize)
        self._is_direct = total * itemsize * (group.size - 1) ** 2 <= _MAX_DIRECT_SIZE
        self._rounds = [
            (i, min(i + capacity, total)) for i in range(0, total, capacity)
        ]
        self.has_one_barrier = self._is_direct and len(self._rounds) == 1
        self.nbytes = max_pieces * total * itemsize
        # Plans by round, slot and offset.
        self._plans: dict[tuple[int, int, int], _Plan] = {}

    def __call__(self) -> None:
        for number in range(len(self._rounds)):
            slot = self.memory.next_slot()
            plan = self._plan(number, slot, 0)
            self._write(plan)
            self.group.barrier()
            self._combine_parts(plan)
            if not self._is_direct:
                self.group.barrier()
            for target, source in plan.copies:
                np.copyto(target, source)

    def write(self, slot: int, offset: int) -> None:
        """See `SlotExchange`."""
        self._write(self._plan(0, slot, offset))

    def read(self, slot: int, offset: int) -> None:
        """See `SlotExchange`."""
        plan = self._plan(0, slot, offset)
        self._combine_parts(plan)
        for target, source in plan.copies:
            np.copyto(target, source)

    def _write(self, plan: _Plan) -> None:
        for segments, target in plan.writes:
            np.concatenate(segments, out=target)

    def _combine_parts(self, plan: _Plan) -> None:
        combine = self._combine
        # Overflow and NaN appear in the result, as for other operations.
        with np.errstate(all="ignore"):
            for lhs, rhs, destination in plan.sums:
                combine(lhs, rhs, out=destination)
        for target, source in plan.moves:
            np.copyto(target, source)

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
        plan = _Plan([], [], [], [])
        slots = self.memory.slots(slot, self._dtype)
        slots = slots[:, offset // self._dtype.itemsize :]
        spans = _spans(self._sizes, low, high)
        for piece in range(self._counts[rank]):
            segments = [
                self._pieces[i][piece][start:stop] for i, start, stop, _ in spans
            ]
            plan.writes.append(
                (segments, slots[rank, piece * size : (piece + 1) * size])
            )
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
            plan.moves.append((out, value))
            return
        for lhs, rhs, target in _rank_steps(self._leaves, self.group.size, first_rank):
            destination = np.empty_like(out) if target < 0 else operands[target]
            plan.sums.append((operands[lhs], operands[rhs], destination))
            operands.append(destination)
        plan.sums[-1] = (*plan.sums[-1][:2], out)

    def _plan_copies(self, plan: _Plan, source: Array, spans: Sequence[Span]) -> None:
        """Copy combined data to its tensors."""
        for tensor, start, stop, offset in spans:
            target = self._outs[tensor][start:stop]
            plan.copies.append((target, source[offset : offset + stop - start]))


class _Plan(NamedTuple):
    """Plan of a rank for one round.

    Attributes:
        writes: the parts to write contiguously into this rank's slot.
        sums: left and right operands and the destination of their combination.
        moves: destinations and sources, if no combination is necessary.
        copies: destinations and sources of the final reads.
    """

    writes: list[tuple[list[Array], Array]]
    sums: list[tuple[Array, Array, Array]]
    moves: list[tuple[Array, Array]]
    copies: list[tuple[Array, Array]]


def reduce_scatter(
    group: Group,
    memory: SharedMemory,
    pieces: Sequence[Array],
    leaves: Leaves,
    out: Array,
    combine: Callable[[list[Array], Sequence[Step], Array], None],
) -> None:
    """Combine flat pieces, and keep this rank's part: see `ordered`."""
    rank, ranks, dtype = group.rank, group.size, out.dtype
    counts = _piece_counts(leaves, ranks)
    capacity = SLOT_SIZE // (max(*counts, 1) * ranks * dtype.itemsize)
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
) -> tuple[Step, ...]:
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
