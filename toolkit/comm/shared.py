"""Collectives in shared memory between the ranks of a machine, without messages.

Each rank writes its pieces once, and the other ranks read them in place.
"""

from __future__ import annotations

import mmap
import os
import secrets
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, Protocol, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from toolkit.comm.group import Group, exchange
from toolkit.type_aliases import Array

# Bytes of a rank in one round: the written data stays in the cache.
SLOT_SIZE = 1 << 20
# Exchanges in a slot start at multiples of this number of bytes.
_ALIGNMENT = 64
_PAGE_SIZE = 4096
_TOKEN_SIZE = 16
# A call on fixed arrays, mostly without Python code: small exchanges take little time.
Step: TypeAlias = Callable[[], object]


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

    def write_steps(self, slot: int, offset: int) -> list[Step]:
        """Return the steps that write to this rank's slot, from a byte offset."""

    def read_steps(self, slot: int, offset: int) -> list[Step]:
        """Return the steps that read from the slots of all ranks."""


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
        self._steps: dict[int, list[Step]] = {}  # by slot

    @staticmethod
    def fits(exchanges: Sequence[SlotExchange]) -> bool:
        """Return whether one barrier is enough for these exchanges."""
        return (
            all(x.memory is exchanges[0].memory for x in exchanges)
            and sum(_aligned(x.nbytes) for x in exchanges) <= SLOT_SIZE
        )

    def __call__(self) -> None:
        slot = self._memory.next_slot()
        steps = self._steps.get(slot)
        if steps is None:
            steps = self._steps[slot] = self._plan_steps(slot)
        # Overflow and NaN appear in sums, as for other operations.
        with np.errstate(all="ignore"):
            for step in steps:
                step()

    def _plan_steps(self, slot: int) -> list[Step]:
        steps: list[Step] = []
        for member, offset in self._exchanges:
            steps += member.write_steps(slot, offset)
        steps.append(self._group.barrier)
        for member, offset in self._exchanges:
            steps += member.read_steps(slot, offset)
        return steps


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
        self._message = [x.reshape(-1).view(np.uint8) for x in message if x.size]
        self._copies = [copy for copy in copies if copy[0].size]

    def write_steps(self, slot: int, offset: int) -> list[Step]:
        """See `SlotExchange`."""
        target = self.memory.slots(slot, np.dtype(np.uint8))[self.group.rank, offset:]
        return copy_steps(self._message, target)

    def read_steps(self, slot: int, offset: int) -> list[Step]:
        """See `SlotExchange`."""
        slots = self.memory.slots(slot, np.dtype(np.uint8))[:, offset:]
        return [
            copy_step(
                target, slots[rank, span].view(target.dtype).reshape(target.shape)
            )
            for target, rank, span in self._copies
        ]


def copy_step(target: Array, source: Array) -> Step:
    """Return a step that copies an array to another one of the same shape.

    Args:
        target: the destination.
        source: the source.
    """
    return partial(target.__setitem__, Ellipsis, source)


def copy_steps(sources: Sequence[Array], target: Array) -> list[Step]:
    """Return steps that copy flat arrays to the start of another one, contiguously.

    Args:
        sources: the arrays.
        target: the destination.
    """
    ends = list(accumulate(x.size for x in sources))
    return [
        copy_step(target[end - x.size : end], x)
        for x, end in zip(sources, ends, strict=True)
    ]
