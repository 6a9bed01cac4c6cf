"""Copies between the host and a device that run beside the computing.

Steps are computed on one stream, `stream`; what comes from the host is copied on a
second, `copies`, and what goes there on a third, `fetches`. Events order them: a step
waits for the arrays that it reads, and memory is filled anew only when the steps that
read it are done. So the next batch arrives while a step runs, and the processor, which
starts all this ahead of time, waits only where it would run too far ahead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np

from toolkit import dtypes
from toolkit.backends.base import aligned
from toolkit.backends.pending_copy import PendingCopy

if TYPE_CHECKING:
    from toolkit.backends.cupy.device import Device

Array = Any
Host = np.ndarray[Any, Any]
# Buffers of pinned memory that are filled in turn, and the bytes of the largest: two
# for each of the two arrays of a batch. Larger arrays go in pieces.
BUFFERS = 4
PIECE = 16 << 20
# Results of no more bytes lie in one piece of memory, so that one copy moves them all.
SMALL = 64 << 10
# Pieces of free memory that are kept for the arrays to come, and those of one size of
# which none is taken at once: two for each of the two arrays of a batch.
MOST_FREE = 16
TURNS = 4


def packed(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Offsets of pieces of memory one behind the other, and the bytes of all."""
    offsets, end = [], 0
    for nbytes in sizes:
        offsets.append(end)
        end += aligned(nbytes)
    return offsets, end


class PinnedRing:
    """Buffers that arrays are put into before a device copies them, in turn.

    A buffer is filled again only when its last copy is done: with two of them, one is
    filled while the device reads the other.

    Args:
        allocate: makes a pinned buffer of a number of bytes, a uint8 array.
        make_event: makes an event, with `record(stream)` and `synchronize()`.
        count: how many buffers there are.
    """

    def __init__(
        self,
        allocate: Callable[[int], Any],
        make_event: Callable[[], Any],
        count: int = 2,
    ) -> None:
        self.allocate = allocate
        self.make_event = make_event
        # (buffer, the event behind its last copy), the least recently used first.
        self.slots: deque[tuple[Any, Any]] = deque([(None, None)] * count)

    def put(
        self, host: np.ndarray[Any, Any], copy: Callable[[Any], None], stream: Any
    ) -> None:
        """Start a copy of an array that may change as soon as this returns.

        Args:
            host: what to copy, in row-major order.
            copy: starts the copy of a uint8 array of pinned memory on the stream.
            stream: on which it runs.
        """
        buffer, event = self.slots.popleft()
        if event is not None:
            event.synchronize()
        if buffer is None or buffer.nbytes < host.nbytes:
            buffer = self.allocate(host.nbytes)
        pinned = buffer[: host.nbytes]
        np.copyto(pinned, host.reshape(-1).view(np.uint8))
        copy(pinned)
        event = event or self.make_event()
        event.record(stream)
        self.slots.append((buffer, event))


@dataclass(eq=False)
class Block:
    """Memory for arrays that come from the host, one after the other.

    Attributes:
        memory: of the device.
        arrived: the event behind the copy of the last array.
        passed: the event behind all steps that may read the array before.
        number: of the array among all that came.
        started: how many programs had been started when it became free.
    """

    memory: Array
    arrived: Any
    passed: Any
    number: int = 0
    started: int = 0


class Lease:
    """What all arrays on a block hold; when the last of them is gone, it is free.

    It knows the block by its number only: what is found to be garbage together with it
    is finalized too, even if this kept it.
    """

    __slots__ = ("dropped", "number")

    def __init__(self, number: int, dropped: deque[int]) -> None:
        self.number: int = number
        self.dropped: deque[int] = dropped

    def __del__(self) -> None:
        # At any time, in any thread: nothing is asked of the device here.
        self.dropped.append(self.number)


class Uploads:
    """Arrays from the host, each copied to a block of its own.

    The batches of a loop take two blocks in turn: one arrives while the steps of the
    other run.

    Args:
        device: which gets them.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.ring: PinnedRing = PinnedRing(device.pin, device.event, BUFFERS)
        self.lent: dict[int, Block] = {}
        self.dropped: deque[int] = deque()  # since `mark` was called
        self.free: list[Block] = []  # the longest free one first
        self.count: int = 0
        self.lock: RLock = RLock()

    def put(self, host: np.ndarray[Any, Any], returns: bool = True) -> Array:
        """An array of the device with a copy of one of the host, row-major.

        Args:
            host: the array.
            returns: whether others like it will come when it is gone, as batches do;
                what a program keeps takes no turns with them.
        """
        device, copies = self.device, self.device.copies
        with self.lock:
            block = self._block(host.nbytes) if returns else self._made(host.nbytes)
            copies.wait_event(block.passed)
            flat = host.reshape(-1).view(np.uint8)
            target = device.address(block.memory)
            for start in range(0, flat.size, PIECE):
                send = partial(self._send, target + start)
                self.ring.put(flat[start : start + PIECE], send, copies)
            block.arrived.record(copies)
            device.stream.wait_event(block.arrived)
        lease = Lease(block.number, self.dropped) if returns else block
        return device.lend(block.memory, host.shape, dtypes.name_of(host.dtype), lease)

    def _send(self, target: int, pinned: Any) -> None:
        source = pinned.ctypes.data
        self.device.transfer(target, source, pinned.nbytes, self.device.copies)

    def mark(self) -> None:
        """What nobody holds is free once all that was started until now is done."""
        if not self.dropped:
            return
        with self.lock:
            numbers = [self.dropped.popleft() for _ in range(len(self.dropped))]
            found = [self.lent.pop(number) for number in numbers]
            # In the order in which they were filled, so that the parts of a batch of
            # equal size find their places again.
            for block in sorted(found, key=lambda block: block.number):
                block.passed.record(self.device.stream)
                block.started = self.device.started
                self.free.append(block)
            # The pool may give the rest to later steps: they run after its copies.
            del self.free[:-MOST_FREE]

    def clear(self) -> None:
        """Give all free blocks back to the pool."""
        with self.lock:
            self.mark()
            self.free.clear()

    def _block(self, nbytes: int) -> Block:
        self.mark()
        self.count += 1
        found = [block for block in self.free if block.memory.nbytes == nbytes]
        # What only just became free may be read by the last step, which would have to
        # end first: a loop that holds no batch needs two places too.
        is_late = found and found[0].started == self.device.started
        if not found or (is_late and len(found) < TURNS):
            block = self._made(nbytes)
        else:
            block = found[0]
            self.free.remove(block)
        block.number = self.count
        self.lent[block.number] = block
        return block

    def _made(self, nbytes: int) -> Block:
        memory = self.device.allocate((nbytes,), "uint8", "an array from the host")
        block = Block(memory, self.device.event(), self.device.event())
        block.passed.record(self.device.stream)  # of what had this memory before
        return block


class Fetches:
    """Copies of arrays to the host.

    Args:
        device: where the arrays are.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        # Arrays and pinned memory of copies that may still run, each with its event.
        self.running: deque[tuple[Any, Any]] = deque()

    def start(
        self, arrays: Sequence[Array], check: Callable[[list[Host]], list[Host]]
    ) -> PendingCopy:
        """Copy row-major arrays once all that was started until now is done.

        Args:
            arrays: of the device.
            check: raises what kernels have reported in the first of them, and returns
                the others.
        """
        device = self.device
        computed = device.event()
        computed.record(device.stream)
        device.fetches.wait_event(computed)
        pinned = [device.pin(max(1, x.nbytes))[: x.nbytes] for x in arrays]
        for array, target in zip(arrays, pinned, strict=True):
            source = device.address(array)
            where = target.ctypes.data, source, array.nbytes
            device.transfer(*where, device.fetches)
        done = device.event()
        done.record(device.fetches)
        while self.running and self.running[0][0].done:
            self.running.popleft()
        self.running.append((done, (list(arrays), pinned)))
        views = [
            p.view(x.dtype).reshape(x.shape)
            for p, x in zip(pinned, arrays, strict=True)
        ]

        def get() -> list[Host]:
            with device.failing():
                done.synchronize()
            with device.scope():
                return check([view.copy() for view in views])

        return PendingCopy(get, lambda: bool(done.done))
