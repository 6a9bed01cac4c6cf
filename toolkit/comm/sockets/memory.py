"""Exchanges of a group in shared memory, for ranks of one machine.

Each rank writes its data once, and the other ranks read it from there. A rank that
waits checks the counter of its peer for a short time, if such checks were successful
before. Then it sleeps in the kernel (futex) until another rank wakes it, so it takes no
time from ranks that compute.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, NoReturn

import numpy as np

from toolkit.errors import CommunicationError, ProgramMismatchError
from toolkit.type_aliases import Array

# Bytes of a rank in one iteration: the data stays in the cache.
SLOT_SIZE = 256 << 10
# Bytes of the counters of a rank: ranks share no cache line. The first number counts
# barriers; the next two describe the last two collectives.
_LINE_SIZE = 64
OPERATIONS = ("barrier", "all_gather", "all_to_all")
_SIZE_BITS = 28  # bits of the size in the description of a collective
_MAX_SIZE = (1 << _SIZE_BITS) - 1
# Number of checks before a rank reads the clock or sleeps: a few microseconds.
_SPINS = 20
# Seconds that a rank spins before it sleeps: about the time to sleep and to wake up.
_SPIN_SECONDS = 50e-6
# A rank spins while it has credit. A spin that fails costs as much credit as this
# number of successful ones.
_FAILED_SPIN_COST = 4
_MAX_CREDIT = 2 * _FAILED_SPIN_COST
# Without credit, a rank spins once in this number of waits, to find a quiet machine.
_PROBE_INTERVAL = 64
# Seconds after which a rank that sleeps checks whether a peer is lost.
_SLEEP_SECONDS = 0.02
_FUTEX_WAIT, _FUTEX_WAKE, _ALL_WAITERS = 0, 1, (1 << 31) - 1
# The system call and the processors: these keep the order of stores, without which a
# counter could be visible before the data.
_FUTEX_CALLS = {"x86_64": 202}


class _Duration(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def is_supported() -> bool:
    """Return whether ranks can wait in shared memory on this machine."""
    return sys.platform == "linux" and platform.machine() in _FUTEX_CALLS


def memory_size(ranks: int) -> int:
    """Return the number of bytes of the memory of a group."""
    return ranks * _LINE_SIZE + 2 * ranks * SLOT_SIZE


class MemoryExchange:
    """Exchanges between ranks by shared memory.

    Each rank has a counter of the barriers that it has reached, and two slots. It fills
    one slot while peers can still read the other one. Before it fills the first slot
    again, all ranks have passed another barrier.

    Args:
        memory: zeros, `memory_size` bytes that all ranks map.
        rank: the rank of this process.
        ranks: the number of ranks.
        check: a function that raises an error if a peer is lost.
    """

    def __init__(
        self, memory: Array, rank: int, ranks: int, check: Callable[[], None]
    ) -> None:
        self._memory = memory
        self._rank, self._ranks = rank, ranks
        self._check = check
        counters = memory[: ranks * _LINE_SIZE].view(np.uint32)
        self._counters = counters.data
        self._stride = _LINE_SIZE // 4
        self._addresses = [
            ctypes.c_void_p(memory.ctypes.data + peer * _LINE_SIZE)
            for peer in range(ranks)
        ]
        self._peers = [peer for peer in range(ranks) if peer != rank]
        self._slots = memory[ranks * _LINE_SIZE :].reshape(2, ranks, SLOT_SIZE)
        self._slot = 0
        self._count = 0
        self._mismatch: ProgramMismatchError | None = None
        self._credit = _MAX_CREDIT
        self._short_waits = 0
        self._duration = ctypes.byref(_Duration(0, int(_SLEEP_SECONDS * 1e9)))
        self._futex: Any = ctypes.CDLL(None).syscall
        self._call = _FUTEX_CALLS[platform.machine()]

    def barrier(self) -> None:
        """Wait until all ranks reach the barrier."""
        self._meet(0)

    def _meet(self, description: int) -> None:
        """Wait until all ranks run the same collective.

        Raises:
            ProgramMismatchError: on all ranks, if they run different ones, and again
                in all later collectives.
        """
        if self._mismatch is not None:
            raise self._mismatch.with_traceback(None)
        count = self._count = (self._count + 1) & 0xFFFFFFFF
        counters, index = self._counters, self._rank * self._stride
        offset = 1 + (count & 1)
        counters[index + offset] = description
        counters[index] = count
        self._futex(
            self._call,
            self._addresses[self._rank],
            _FUTEX_WAKE,
            _ALL_WAITERS,
        )
        for peer in self._peers:
            self._wait(peer, count)
        # A peer that has not arrived still has the description of an older call.
        for peer in self._peers:
            if counters[peer * self._stride + offset] != description:
                self._raise_mismatch(offset)

    def _raise_mismatch(self, offset: int) -> NoReturn:
        descriptions = [
            self._counters[peer * self._stride + offset] for peer in range(self._ranks)
        ]
        texts = [
            f"rank {peer} runs {OPERATIONS[description >> _SIZE_BITS]}"
            + (f" of {size:,} bytes" if (size := description & _MAX_SIZE) else "")
            for peer, description in enumerate(descriptions)
        ]
        # Later collectives would combine data of different calls.
        self._mismatch = ProgramMismatchError(
            f"ranks run different collectives at the same time: {'; '.join(texts)}. "
            "All processes must call collective operations in the same order. The "
            "order also differs after a process handles an error that other processes "
            "do not get. Start the job again"
        )
        raise self._mismatch

    def _wait(self, peer: int, count: int) -> None:
        """Wait until the counter of a peer reaches `count`."""
        counters, index = self._counters, peer * self._stride
        for _ in range(_SPINS):
            # The counters can wrap around. No rank is two barriers ahead.
            if (counters[index] - count) & 0xFFFFFFFF < 2:
                return
        if self._spin(index, count):
            return
        while ((value := counters[index]) - count) & 0xFFFFFFFF >= 2:
            self._check()
            self._futex(
                self._call, self._addresses[peer], _FUTEX_WAIT, value, self._duration
            )

    def _spin(self, index: int, count: int) -> bool:
        """Check a counter for a limited time, and return whether it reached `count`.

        Spinning pays while the peers run on other processors. On a busy machine it
        fails, and takes time from the peers, so a rank then sleeps at once.
        """
        if not self._credit:
            self._short_waits += 1
            if self._short_waits % _PROBE_INTERVAL:
                return False
        counters = self._counters
        end = perf_counter() + _SPIN_SECONDS
        while perf_counter() < end:
            for _ in range(_SPINS):
                if (counters[index] - count) & 0xFFFFFFFF < 2:
                    self._credit = min(self._credit + 1, _MAX_CREDIT)
                    return True
        self._credit = max(self._credit - _FAILED_SPIN_COST, 0)
        return False

    def _next_slots(self) -> Array:
        """Return the slots of all ranks for the next iteration."""
        self._slot ^= 1
        slots: Array = self._slots[self._slot]
        return slots

    def all_gather_varying(
        self, target: Array, starts: Sequence[int], counts: Sequence[int]
    ) -> None:
        """Gather the parts of all ranks; this rank's part is already in `target`."""
        start, count = starts[self._rank], counts[self._rank]
        description = 1 << _SIZE_BITS | target.size & _MAX_SIZE
        for offset in range(0, max(counts), SLOT_SIZE):
            slots = self._next_slots()
            nbytes = min(SLOT_SIZE, count - offset)
            if nbytes > 0:
                slots[self._rank, :nbytes] = target[start + offset :][:nbytes]
            self._meet(description)
            for peer in self._peers:
                nbytes = min(SLOT_SIZE, counts[peer] - offset)
                if nbytes > 0:
                    target[starts[peer] + offset :][:nbytes] = slots[peer, :nbytes]

    def all_to_all(
        self, sends: Mapping[int, Array], receives: Mapping[int, Array]
    ) -> None:
        """Send to each rank and receive from each, without empty parts.

        A slot first has the total length for each rank. Its remainder is divided
        equally between the ranks.
        """
        header = 8 * self._ranks
        capacity = (SLOT_SIZE - header) // self._ranks
        lengths = np.zeros(self._ranks, np.int64)
        for peer, content in sends.items():
            lengths[peer] = content.size
        limit, offset = 1, 0
        while offset < limit:
            slots = self._next_slots()
            slots[self._rank, :header].view(np.int64)[:] = lengths
            for peer, content in sends.items():
                chunk = content[offset : offset + capacity]
                slots[self._rank, header + peer * capacity :][: chunk.size] = chunk
            self._meet(2 << _SIZE_BITS)
            if not offset:
                table = slots[:, :header].view(np.int64)
                limit = int(table.max())
                self._check_lengths(table[:, self._rank].tolist(), receives)
            for peer, content in receives.items():
                chunk = content[offset : offset + capacity]
                chunk[:] = slots[peer, header + self._rank * capacity :][: chunk.size]
            offset += capacity

    def _check_lengths(
        self, lengths: Sequence[int], receives: Mapping[int, Array]
    ) -> None:
        for peer, nbytes in enumerate(lengths):
            expected = receives[peer].size if peer in receives else 0
            if nbytes != expected:
                raise CommunicationError(
                    f"all_to_all: rank {self._rank} expected {expected} bytes from "
                    f"rank {peer}; received {nbytes}"
                )
