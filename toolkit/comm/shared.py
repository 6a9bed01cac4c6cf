"""Sums in memory that all ranks of a machine see, in place of messages.

Each rank writes its pieces once, and the others read them where they lie.
"""

from __future__ import annotations

import mmap
import os
import secrets
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from toolkit.comm.group import Array, Group, cut, exchange
from toolkit.comm.leaves import Leaves, Step, pieces_of_ranks, steps

# Bytes of a rank in one round: what is written stays in the cache.
SLOT = 1 << 20
# Up to so many bytes, times the square of the others, every rank combines all itself:
# one meeting, not two.
_DIRECT = 1 << 20
# Parts of fewer bytes on average are combined as one.
_SMALL = 32 << 10
_PAGE = 4096
_TOKEN = 16
# Combines two arrays into a third, `out`.
Combine: TypeAlias = Callable[..., Any]


class SharedMemory:
    """Two slots for each rank of a group, used in turn.

    A rank fills one while others may still read the other: before it fills that again,
    all have met once more.

    Args:
        memory: of `2 * ranks * SLOT` bytes.
        ranks: of the group.
    """

    def __init__(self, memory: Array, ranks: int) -> None:
        self._slots = memory.reshape(2, ranks, SLOT)
        self._turn = 0

    def next_turn(self) -> int:
        """Which slots are for the next round: 0 or 1."""
        self._turn ^= 1
        return self._turn

    def slots(self, turn: int, dtype: np.dtype[Any]) -> Array:
        """The slots of all ranks: (ranks, elements)."""
        slots: Array = self._slots[turn].view(dtype)
        return slots


_opened: WeakKeyDictionary[Group, SharedMemory | None] = WeakKeyDictionary()


def memory_of(group: Group) -> SharedMemory | None:
    """The memory that a group shares; None if its ranks cannot.

    The first time, all ranks ask for it together.
    """
    if group not in _opened:
        nbytes = 2 * group.size * SLOT
        memory = None if group.size == 1 or group.is_remote else _open(group, nbytes)
        _opened[group] = memory if memory is None else SharedMemory(memory, group.size)
    return _opened[group]


def _open(group: Group, nbytes: int) -> Array | None:
    """Map the same bytes in all ranks, if that works in each of them.

    The memory has no name in a file system: nothing is left when ranks are killed.
    """
    descriptor, mine = -1, None
    if group.rank == 0 and hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("toolkit")
        os.ftruncate(descriptor, _PAGE + nbytes)
        # Elsewhere the process of that number may be another one.
        token = secrets.token_hex(_TOKEN)
        os.pwrite(descriptor, bytes.fromhex(token), 0)
        mine = [os.getpid(), descriptor, token]
    told = exchange(group, mine)[0]
    memory = None if told is None else _mapped(told, nbytes)
    is_shared = all(exchange(group, memory is not None))
    if descriptor >= 0:
        os.close(descriptor)
    return memory if is_shared else None


def _mapped(told: Sequence[Any], nbytes: int) -> Array | None:
    """The memory that a process of this machine holds open."""
    pid, descriptor, token = told
    try:
        opened = os.open(f"/proc/{int(pid)}/fd/{int(descriptor)}", os.O_RDWR)
    except OSError:
        return None
    try:
        if os.pread(opened, _TOKEN, 0) != bytes.fromhex(token):
            return None
        mapped = mmap.mmap(opened, _PAGE + nbytes)
    except (OSError, ValueError):
        return None
    finally:
        os.close(opened)
    return np.frombuffer(mapped, np.uint8)[_PAGE:]


class Span(NamedTuple):
    """A part of a tensor, and where it is in a round."""

    tensor: int
    start: int
    stop: int
    at: int


class AllReduce:
    """Combines flat pieces of tensors of one dtype, as often as it is called.

    What each call does with which memory is found once, as small sums take little time.

    Args:
        group: all of whose ranks make one, and call it together.
        memory: that they share.
        pieces: for each tensor this rank's; they are read in each call.
        leaves: what the pieces are of.
        outs: for the results.
        combine: of two operands, into a third.
        nothing: the combination of no operands.
    """

    def __init__(
        self,
        group: Group,
        memory: SharedMemory,
        pieces: Sequence[Sequence[Array]],
        leaves: Leaves,
        outs: Sequence[Array],
        combine: Combine,
        nothing: Any,
    ) -> None:
        self.memory = memory
        self._group = group
        self._pieces, self._outs = pieces, outs
        self._leaves = leaves
        self._combine, self._nothing = combine, nothing
        self._counts = _counts(leaves, group.size)
        self._dtype = outs[0].dtype
        self._sizes = tuple(out.size for out in outs)
        total, itemsize = sum(self._sizes), self._dtype.itemsize
        room = SLOT // (max(*self._counts, 1) * itemsize)
        self._is_direct = total * itemsize * (group.size - 1) ** 2 <= _DIRECT
        self._rounds = [(i, min(i + room, total)) for i in range(0, total, room)]
        # For each round what is done in the first slots, and in the others.
        self._plans: list[list[_Plan | None]] = [[None, None] for _ in self._rounds]

    def __call__(self) -> None:
        combine, barrier, memory = self._combine, self._group.barrier, self.memory
        # What overflows or is not a number shows in the result, as it does elsewhere.
        with np.errstate(all="ignore"):
            for number, plans in enumerate(self._plans):
                turn = memory.next_turn()
                plan = plans[turn]
                if plan is None:
                    plan = plans[turn] = self._plan(number, turn)
                for parts, target in plan.writes:
                    np.concatenate(parts, out=target)
                barrier()
                for left, right, into in plan.sums:
                    combine(left, right, out=into)
                for target, source in plan.moves:
                    np.copyto(target, source)
                if not self._is_direct:
                    barrier()
                for target, source in plan.copies:
                    np.copyto(target, source)

    def _plan(self, number: int, turn: int) -> _Plan:
        low, high = self._rounds[number]
        size, ranks, rank = high - low, self._group.size, self._group.rank
        plan = _Plan([], [], [], [])
        slots = self.memory.slots(turn, self._dtype)
        spans = _spans(self._sizes, low, high)
        for piece in range(self._counts[rank]):
            parts = [self._pieces[i][piece][start:stop] for i, start, stop, _ in spans]
            plan.writes.append((parts, slots[rank, piece * size : (piece + 1) * size]))
        if not self._is_direct:
            bounds = cut(0, size, ranks, 64 // self._dtype.itemsize or 1)
            # Nobody else reads this part of this rank's slot before all meet again.
            self._sum(plan, slots, size, *bounds[rank], slots[rank])
            for other, (first, last) in enumerate(bounds):
                there = _spans(self._sizes, low + first, low + last)
                self._read(plan, slots[other, first:last], there)
        elif len(spans) > 1 and size * self._dtype.itemsize < len(spans) * _SMALL:
            joined = np.empty(size, self._dtype)
            self._sum(plan, slots, size, 0, size, joined)
            self._read(plan, joined, spans)
        else:
            for tensor, start, stop, at in spans:
                mine = [flat[start:stop] for flat in self._pieces[tensor]]
                parts = _parts(slots, self._counts, size, at, stop - start, but=rank)
                out = self._outs[tensor][start:stop]
                self._steps(plan, [*mine, *parts], rank, out)
        return plan

    def _sum(
        self, plan: _Plan, slots: Array, size: int, start: int, stop: int, out: Array
    ) -> None:
        """Combine a part of what is in the slots."""
        operands = _parts(slots, self._counts, size, start, stop - start)
        self._steps(plan, operands, None, out[start:stop])

    def _steps(
        self, plan: _Plan, operands: list[Array], first: int | None, out: Array
    ) -> None:
        """Combine operands; only the last step writes to `out`, which may be one."""
        if len(operands) < 2:
            whole = operands[0] if operands else np.full_like(out, self._nothing)
            plan.moves.append((out, whole))
            return
        for left, right, target in _order(self._leaves, self._group.size, first):
            into = np.empty_like(out) if target < 0 else operands[target]
            plan.sums.append((operands[left], operands[right], into))
            operands.append(into)
        plan.sums[-1] = (*plan.sums[-1][:2], out)

    def _read(self, plan: _Plan, source: Array, spans: Sequence[Span]) -> None:
        """Copy what is joined to the tensors that it is of."""
        for tensor, start, stop, at in spans:
            target = self._outs[tensor][start:stop]
            plan.copies.append((target, source[at : at + stop - start]))


class _Plan(NamedTuple):
    """What a rank does in one round.

    Attributes:
        writes: parts that are put one after the other into this rank's slot.
        sums: left and right operands, and where their combination goes.
        moves: targets and sources, where there is nothing to combine.
        copies: targets and sources of what is read in the end.
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
    counts = _counts(leaves, ranks)
    room = SLOT // (max(*counts, 1) * ranks * dtype.itemsize)
    for low in range(0, out.size, room):
        high = min(low + room, out.size)
        slots, count = memory.slots(memory.next_turn(), dtype), high - low
        for number, piece in enumerate(pieces):
            at = number * ranks * count
            target = slots[rank, at : at + ranks * count].reshape(ranks, count)
            target[...] = piece.reshape(ranks, out.size)[:, low:high]
        group.barrier()
        operands = _parts(slots, counts, ranks * count, rank * count, count)
        combine(operands, _order(leaves, ranks), out[low:high])


def _parts(
    slots: Array,
    counts: Sequence[int],
    apart: int,
    at: int,
    size: int,
    but: int | None = None,
) -> list[Array]:
    """A part of every piece of all ranks, or of all but one; pieces are `apart`."""
    return [
        slots[rank, number * apart + at : number * apart + at + size]
        for rank, count in enumerate(counts)
        if rank != but
        for number in range(count)
    ]


@lru_cache(maxsize=4096)
def _spans(sizes: tuple[int, ...], low: int, high: int) -> tuple[Span, ...]:
    """The parts of tensors, one after the other, that are elements low..high."""
    found, first = [], 0
    for tensor, size in enumerate(sizes):
        start, stop = max(low, first), min(high, first + size)
        if start < stop:
            found.append(Span(tensor, start - first, stop - first, start - low))
        first += size
    return tuple(found)


@lru_cache(maxsize=256)
def _counts(leaves: Leaves, ranks: int) -> tuple[int, ...]:
    """How many pieces each rank brings."""
    return tuple(len(pieces) for pieces in pieces_of_ranks(leaves, ranks))


@lru_cache(maxsize=256)
def _order(leaves: Leaves, ranks: int, first: int | None = None) -> tuple[Step, ...]:
    """The combinations of all pieces, none of which may be overwritten.

    Args:
        leaves: of the tree.
        ranks: whose pieces follow each other.
        first: the rank whose pieces come before those of the others, if any.
    """
    pieces = pieces_of_ranks(leaves, ranks)
    order = sorted(range(ranks), key=lambda rank: rank != first)
    keys = [key for rank in order for key in pieces[rank]]
    return steps(leaves, keys, len(keys))
