"""Queue from the threads that compute elements to the consumer of a stream."""

from __future__ import annotations

import threading
from _thread import allocate_lock
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any


class Slot:
    """Slot of an element that a thread computes."""

    __slots__ = ("error", "index", "origin", "ready", "value")

    def __init__(self, index: int, origin: str | None) -> None:
        self.index: int = index
        self.origin: str | None = origin
        self.value: Any = None
        self.error: BaseException | None = None
        self.ready: Any = allocate_lock()
        self.ready.acquire()


END = None  # wakes the consumer: there are no more slots, or the pass is closed
CLOSED: Iterator[Any] = iter(())  # replaces the source of a closed pass


class SlotQueue:
    """Queue of slots from the threads of a stream to its consumer, with their source.

    The source is open until a thread finds its end or gets an error, which sets
    `total`. `close` replaces the source, at any time. In these two cases, which can
    follow each other, no thread takes another element.

    Args:
        source: the elements that no thread has taken yet.
        pulled: the number of elements that were taken before.
        news: an event to set when an element is ready or the source ends.

    Attributes:
        total: the number of elements after the last one was taken; None before.
        slots: the slots in the order of delivery, and END.
        room: the free slots.
        num_slots: the number of slots, free or in use.
        num_threads: the number of threads that run.
    """

    def __init__(
        self, source: Iterator[Any], pulled: int, news: threading.Event | None
    ) -> None:
        self.source, self.pulled, self._news = source, pulled, news
        self.total: int | None = None
        self.pulling, self.counting = allocate_lock(), allocate_lock()
        self.slots: SimpleQueue[Slot | None] = SimpleQueue()
        # A SimpleQueue takes a tenth of the time of a semaphore.
        self.room: SimpleQueue[None] = SimpleQueue()
        self.num_slots = self.num_threads = 0

    @property
    def is_closed(self) -> bool:
        """Return whether the pass was closed."""
        return self.source is CLOSED

    def put(self, slot: Slot | None) -> None:
        """Append a slot, or END."""
        self.slots.put(slot)
        if self._news is not None:
            self._news.set()

    def next_slot(self, delivered: int) -> Slot | None:
        """Return the next slot, or None after all elements or after `close`."""
        # Without a fixed order, END can arrive before elements in progress.
        while self.total is None or delivered < self.total:
            slot = self.slots.get()
            if slot is not END or self.is_closed:
                return slot
        return None

    def enlarge(self, num_slots: int) -> None:
        """Add free slots, up to a total number of slots."""
        for _ in range(num_slots - self.num_slots):
            self.room.put(None)
        self.num_slots = max(self.num_slots, num_slots)

    def close(self) -> None:
        """End all threads, and the wait of the consumer."""
        source, self.source = self.source, CLOSED
        self.put(END)
        self.room.put(None)  # wakes one thread, which wakes the next
        del source  # last, because this closes its files
