"""Asynchronous copies between the host and a device.

Steps except collectives run on one stream, `stream`. Copies from the host run on a
second, `copies`, and copies to the host on a third, `fetches`. Events order them: a
step waits for the arrays that it reads, and memory is reused only after the steps that
read it. So the next batch is prefetched during a step. The host launches ahead of the
device, and waits only to limit this lead.
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
from toolkit.backends.pending_copy import PendingCopy
from toolkit.plans.operands import align_up

if TYPE_CHECKING:
    from toolkit.backends.cupy.device import Device

Array = Any
Host = np.ndarray[Any, Any]
# Number of pinned buffers in a ring, and the maximum bytes of one: two for each of the
# two arrays of a batch. Larger arrays are copied in pieces.
BUFFERS = 4
PIECE = 16 << 20
# Results up to this size share one block of memory, so that one copy moves them all.
SMALL = 64 << 10
# Number of free blocks that are kept for later arrays, and the free blocks of one size
# that stay unused: two for each of the two arrays of a batch.
MAX_FREE_BLOCKS = 16
TURNS = 4


def pack_offsets(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Return the offsets of contiguous pieces of memory, and their total bytes."""
    offsets, end = [], 0
    for nbytes in sizes:
        offsets.append(end)
        end += align_up(nbytes)
    return offsets, end


class PinnedRing:
    """Ring of pinned staging buffers.

    A buffer is reused only after its last copy. With two buffers, the host fills one
    while the device reads the other.

    Args:
        allocate: a function that allocates a pinned buffer of a number of bytes, as
            uint8.
        make_event: a function that returns an event with `record(stream)` and
            `synchronize()`.
        count: the number of buffers.
    """

    def __init__(
        self,
        allocate: Callable[[int], Any],
        make_event: Callable[[], Any],
        count: int = 2,
    ) -> None:
        self.allocate = allocate
        self.make_event = make_event
        # (buffer, the event after its last copy), least recently used first.
        self.slots: deque[tuple[Any, Any]] = deque([(None, None)] * count)

    def upload(
        self, host: np.ndarray[Any, Any], copy: Callable[[Any], None], stream: Any
    ) -> None:
        """Start a copy of an array that can change as soon as this returns.

        Args:
            host: the source, in row-major order.
            copy: starts the copy of a uint8 array of pinned memory on the stream.
            stream: the stream of the copy.
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
    """Block of device memory that successive host arrays reuse.

    Attributes:
        memory: the memory on the device.
        arrived: the event after the copy of the last array.
        passed: the event after all steps that can read the previous array.
        number: the sequence number of the array.
        started: the number of launched programs when it became free.
    """

    memory: Array
    arrived: Any
    passed: Any
    number: int = 0
    started: int = 0


class Lease:
    """Reference that all arrays on a block hold; the block is free after the last one.

    It stores only the number of the block: the garbage collector finalizes all objects
    of a cycle, even if this object refers to them.
    """

    __slots__ = ("dropped", "number")

    def __init__(self, number: int, dropped: deque[int]) -> None:
        self.number: int = number
        self.dropped: deque[int] = dropped

    def __del__(self) -> None:
        # This can run at any time in any thread, so it makes no device call.
        self.dropped.append(self.number)


class Uploads:
    """Allocator of device blocks for arrays from the host.

    The batches of a loop alternate between two blocks: one is copied while the steps of
    the other run.

    Args:
        device: the destination device.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.ring: PinnedRing = PinnedRing(device.pin, device.event, BUFFERS)
        self.leased: dict[int, Block] = {}
        self.dropped: deque[int] = deque()  # since the last `mark`
        self.free: list[Block] = []  # least recently freed first
        self.count: int = 0
        self.lock: RLock = RLock()

    def upload(self, host: np.ndarray[Any, Any], is_recurring: bool = True) -> Array:
        """Return a device array with a copy of a row-major host array.

        Args:
            host: the array.
            is_recurring: whether similar arrays follow after its release, as batches
                do; arrays that a program keeps get separate memory.
        """
        device, copies = self.device, self.device.copies
        with self.lock:
            block = (
                self._block(host.nbytes)
                if is_recurring
                else self._new_block(host.nbytes)
            )
            copies.wait_event(block.passed)
            flat = host.reshape(-1).view(np.uint8)
            target = device.address(block.memory)
            for start in range(0, flat.size, PIECE):
                send = partial(self._send, target + start)
                self.ring.upload(flat[start : start + PIECE], send, copies)
            block.arrived.record(copies)
            device.stream.wait_event(block.arrived)
        lease = Lease(block.number, self.dropped) if is_recurring else block
        return device.lend(block.memory, host.shape, dtypes.name_of(host.dtype), lease)

    def _send(self, target: int, pinned: Any) -> None:
        source = pinned.ctypes.data
        self.device.transfer(target, source, pinned.nbytes, self.device.copies)

    def mark(self) -> None:
        """Free the blocks without references, for use after all earlier launches."""
        if not self.dropped:
            return
        with self.lock:
            numbers = [self.dropped.popleft() for _ in range(len(self.dropped))]
            blocks = [self.leased.pop(number) for number in numbers]
            # In fill order, so that arrays of equal size in a batch get the same blocks
            # again.
            for block in sorted(blocks, key=lambda block: block.number):
                block.passed.record(self.device.stream)
                block.started = self.device.started
                self.free.append(block)
            # The pool can give the other blocks to later steps, which run after its
            # copies.
            del self.free[:-MAX_FREE_BLOCKS]

    def clear(self) -> None:
        """Return all free blocks to the pool."""
        with self.lock:
            self.mark()
            self.free.clear()

    def _block(self, nbytes: int) -> Block:
        self.mark()
        self.count += 1
        blocks = [block for block in self.free if block.memory.nbytes == nbytes]
        # The last step can still read a block that became free just now, and a wait for
        # it would stall. A loop that keeps no batch needs two blocks too.
        is_late = blocks and blocks[0].started == self.device.started
        if not blocks or (is_late and len(blocks) < TURNS):
            block = self._new_block(nbytes)
        else:
            block = blocks[0]
            self.free.remove(block)
        block.number = self.count
        self.leased[block.number] = block
        return block

    def _new_block(self, nbytes: int) -> Block:
        memory = self.device.allocate((nbytes,), "uint8", "an array from the host")
        block = Block(memory, self.device.event(), self.device.event())
        block.passed.record(self.device.stream)  # of the previous array in this memory
        return block


class Fetches:
    """Copies of arrays to the host.

    Args:
        device: the source device.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        # The arrays and pinned memory of active copies, each with its event.
        self.running: deque[tuple[Any, Any]] = deque()

    def start(
        self, arrays: Sequence[Array], check: Callable[[list[Host]], list[Host]]
    ) -> PendingCopy:
        """Copy row-major arrays to the host after all earlier launches.

        Args:
            arrays: on the device.
            check: raises the errors that kernels reported in the first arrays, and
                returns the other arrays.
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
        event = device.event()
        event.record(device.fetches)
        while self.running and self.running[0][0].done:
            self.running.popleft()
        self.running.append((event, (list(arrays), pinned)))
        views = [
            p.view(x.dtype).reshape(x.shape)
            for p, x in zip(pinned, arrays, strict=True)
        ]

        def get() -> list[Host]:
            with device.failing():
                device.wait_for(event)
            with device.scope():
                return check([view.copy() for view in views])

        return PendingCopy(get, lambda: bool(event.done))
