"""Streams whose elements threads prefetch, in source order.

One thread at a time takes the next element of the source. All threads apply the stage's
function in parallel. Each call needs one thread, because the work worth a thread waits
for I/O: files, the network, sleep.
"""

from __future__ import annotations

import threading
from _thread import allocate_lock
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from queue import SimpleQueue
from time import perf_counter, perf_counter_ns
from typing import Any

from toolkit.data.dataset import Dataset
from toolkit.data.errors import add_location_note, describe_location
from toolkit.data.randomness import ElementDraws, PassDraws
from toolkit.data.streams import SKIPPED, ClosedError, PassContext, Stream
from toolkit.data.structure import size_of
from toolkit.data.tuning import Knob, Tuner

THREAD_THRESHOLD_NS = 200_000  # ns: cheaper elements are computed inline
CERTAIN_THRESHOLD_NS = 5_000_000  # ns: slower than an occasional refill or file open
FIRST_ELEMENT_SECONDS = 0.001  # s: limit for the first element, with thread start
SNAPSHOT_INTERVAL_RATIO = 100  # snapshots use at most 1/100 of the time


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


END = None  # marks the end of the slots


class ParallelStream(Stream):
    """Stream of elements that threads compute ahead of the consumer.

    The position is an earlier position of the source and the number of elements
    delivered since then. After a restore, elements in progress are computed again.

    Args:
        function: the function to apply to each element, or None for no function.
        workers: the number of threads.
        capacity: the maximum number of elements in progress or ready. None allows a few
            more than the number of threads.
        ordered: whether to keep the order of the source.
        elements: the random state for each element, independent of the thread.
        gate: a semaphore that a thread holds while it takes an element of the source.
        news: an event to set when an element is ready or the source ends.
    """

    def __init__(
        self,
        dataset: Dataset,
        context: PassContext,
        parent: Stream,
        function: Callable[[Any], Any] | None,
        workers: Knob,
        capacity: Knob | None = None,
        ordered: bool = True,
        elements: PassDraws | None = None,
        gate: threading.Semaphore | None = None,
        news: threading.Event | None = None,
    ) -> None:
        super().__init__(dataset, context, parent)
        self._function, self._ordered, self._elements = function, ordered, elements
        self.stage.computes_elements = self.stage.excludes_inputs = function is not None
        self._workers = workers
        self._capacity = capacity
        self._base: Any = None  # a position of the source
        self._since = 0  # number of elements delivered since then
        self._delivered = 0  # total number of elements delivered
        self._snapshots: deque[tuple[int, Any]] = deque()
        self._is_inline = True  # whether no threads run yet
        self._has_started_inline = False
        self._was_slow = False  # whether the last inline element was slow
        self._gate, self._news = gate, news
        if not ordered:
            context.run.unordered.append(dataset._name)
        self._tuner = Tuner(self.stage, context.run.options, workers, capacity)

    # Position

    def state(self) -> Any:
        if self._base is None or self._has_started_inline:
            return [self.parent.state(), 0, self._delivered]
        return [self._base, self._since, self._delivered]

    def restore(self, state: Any) -> None:
        self._base, self._since, self._delivered = state
        self.parent.restore(self._base)

    def elements(self) -> Iterator[Any]:
        if self._is_inline:
            cheap = (
                self._compute_while_cheap
                if self._function
                else self._iterate_while_cheap
            )
            yield from cheap(self._from_position())
            if self._is_inline:
                return  # all elements were cheap
        yield from self._iterate_slots()

    @property
    def is_ready(self) -> bool:
        """Return whether the next element, or the end, is ready."""
        return not self._slots.empty()

    def start_threads(self) -> None:
        """Start the threads now, before the first request for an element."""
        self._start(self._from_position())

    def _from_position(self) -> Iterator[Any]:
        """Return an iterator over the source after the delivered elements."""
        if self._base is None:
            self._base = self.parent.state()
        return self.parent.skip(self._since) if self._since else iter(self.parent)

    def _iterate_while_cheap(self, source: Iterator[Any]) -> Iterator[Any]:
        """Yield elements of the source until one is slow enough for a thread."""
        waited, start = 0, perf_counter_ns()
        for element in source:
            spent = perf_counter_ns() - start
            waited += spent  # the consumer waited for this element
            self._delivered += 1
            self._has_started_inline = True
            if spent <= THREAD_THRESHOLD_NS:
                self._was_slow = False
            elif self._is_worth_threads(spent):
                self._start_after(source, waited)
                yield element
                return
            yield element
            start = perf_counter_ns()

    def _compute_while_cheap(self, source: Iterator[Any]) -> Iterator[Any]:
        """Compute elements inline until one is slow enough for threads."""
        waited, draws = 0, self._draws()
        for element in source:
            slot = Slot(self._delivered, self.parent.origin())
            slot.value = element
            is_first = not self._has_started_inline
            start = perf_counter_ns()  # excludes the source, which stays serial
            if is_first and not self._is_computed_soon(slot):
                self._start(source, slot)
                return
            if not is_first:
                self._compute(slot, draws)
            value = self._deliver(slot)
            spent = perf_counter_ns() - start
            waited += spent
            # A new thread computes the first element, so its time is not
            # representative.
            is_worth_threads = self._is_worth_threads(spent) and not is_first
            self._has_started_inline = True
            if is_worth_threads:
                self._start_after(source, waited)
            if value is not SKIPPED:
                yield value
            if is_worth_threads:
                return

    def _is_worth_threads(self, spent: int) -> bool:
        """Return whether this element, or this one and the last, are slow."""
        was_slow, self._was_slow = self._was_slow, spent > THREAD_THRESHOLD_NS
        return spent > CERTAIN_THRESHOLD_NS or (self._was_slow and was_slow)

    def _start_after(self, source: Iterator[Any], waited: int) -> None:
        """Start the threads after elements for which the consumer waited."""
        self.stage.waited += waited
        self._base, self._since = self.parent.state(), 0
        self._start(source)

    def _is_computed_soon(self, slot: Slot) -> bool:
        """Return whether the first element is fast enough to need no threads."""
        threading.Thread(target=self._compute_first, args=(slot,), daemon=True).start()
        is_made = slot.ready.acquire(timeout=FIRST_ELEMENT_SECONDS)
        if is_made:
            slot.ready.release()
        return is_made

    def _compute_first(self, slot: Slot) -> None:
        self._compute(slot, self._draws())
        slot.ready.release()

    def _deliver(self, slot: Slot) -> Any:
        """Return the value of a computed element or raise its error."""
        if slot.error is not None:
            self._stop()
            stage = self.dataset
            where = describe_location(
                stage._name, slot.index, slot.origin, stage._detail()
            )
            add_location_note(slot.error, where)
            raise slot.error
        self._delivered += 1
        return slot.value

    # Threads

    def _start(self, source: Iterator[Any], first: Slot | None = None) -> None:
        """Start the threads; one thread can already compute the first element."""
        self._is_inline = self._has_started_inline = False
        self._source = source
        self._pulling, self._counting = allocate_lock(), allocate_lock()
        self._pulled = self._delivered + (first is not None)
        self._is_over = self._is_closed = self._is_ending = False
        self._slots: SimpleQueue[Slot | None] = SimpleQueue()
        # Free slots. A SimpleQueue takes a tenth of the time of a semaphore.
        self._room: SimpleQueue[None] = SimpleQueue()
        for _ in range(self._max_slots()):
            self._room.put(None)
        self._allowed = self._max_slots()
        self._threads = 0
        self._next_snapshot = perf_counter()
        self.context.run.on_close(self._stop)
        self._first = first
        if first is not None and self._ordered:
            self._slots.put(first)
        self._start_missing_threads()

    def _max_slots(self) -> int:
        """Return the maximum number of elements in progress or ready."""
        workers = self._workers.value
        return self._capacity.value if self._capacity else workers + workers // 2 + 1

    def _start_missing_threads(self) -> None:
        """Start the missing threads, as many as the system allows."""
        while self._threads < self._workers.value:
            number = self._threads
            name = f"data-{self.dataset._name}-{number}"
            thread = threading.Thread(
                target=self._work, args=(number,), name=name, daemon=True
            )
            with self._counting:
                self._threads += 1
            try:
                thread.start()
            except RuntimeError:
                with self._counting:
                    self._threads -= 1
                if number == 0:
                    raise
                break
        self.stage.workers = self._workers.value

    def _stop(self) -> None:
        if self._is_inline:
            return
        self._is_closed = True
        self._put(END)
        self._room.put(None)  # wakes one thread, which wakes the next
        self._source = iter(())  # closes its files
        self.context.run.cancel_on_close(self._stop)

    def _work(self, number: int) -> None:
        if number == 0 and self._first is not None:
            with self._first.ready:  # another thread computes it
                pass
            if not self._ordered:
                self._put(self._first)
        draws = self._draws()
        while True:
            self._room.get()
            if self._is_closed:
                self._room.put(None)
                return
            if number >= self._workers.value:  # the tuner reduced the number of threads
                with self._counting:
                    self._threads -= 1
                self._room.put(None)
                return
            slot = self._pull()
            if slot is None:
                self._room.put(None)  # wakes the next thread to see the end
                return
            if slot.error is None and self._function is not None:
                self._compute(slot, draws)
            slot.ready.release()
            if not self._ordered:
                self._put(slot)

    def _put(self, slot: Slot | None) -> None:
        self._slots.put(slot)
        if self._news is not None:
            self._news.set()

    def _pull(self) -> Slot | None:
        """Take the next element of the source; return None at the end."""
        with self._pulling:
            if self._is_over or self._is_closed:
                return None
            slot = Slot(self._pulled, None)
            try:
                with self._gate or nullcontext():
                    slot.value = next(self._source)
                if self._function is not None:
                    slot.origin = self.parent.origin()
                self._note_position(self._pulled + 1)
            except StopIteration:
                self._is_over = True
                self._put(END)
                return None
            except BaseException as error:
                slot.error = error
                self._is_over = True
            self._pulled += 1
            if self._ordered:
                self._put(slot)
                if slot.error is not None:
                    self._put(END)
            return slot

    def _note_position(self, pulled: int) -> None:
        """Record the source position periodically, to shorten a restore."""
        current_time = perf_counter()
        if current_time < self._next_snapshot or self.context.run.unordered:
            return
        self._snapshots.append((pulled, self.parent.state()))
        spent = perf_counter() - current_time
        self._next_snapshot = current_time + max(0.05, spent * SNAPSHOT_INTERVAL_RATIO)

    def _draws(self) -> ElementDraws | None:
        """Return the random state for the elements of one thread."""
        return None if self._elements is None else self._elements.draws()

    def _compute(self, slot: Slot, draws: ElementDraws | None) -> None:
        start = perf_counter_ns()
        try:
            assert self._function is not None
            if draws is None:
                slot.value = self._function(slot.value)
            else:
                with draws.of(slot.index):
                    slot.value = self._function(slot.value)
        except BaseException as error:
            slot.error = error
        self.stage.record(start, perf_counter_ns())

    # Delivery

    def __iter__(self) -> Iterator[Any]:
        # The threads record the time of the function. The base class would record the
        # consumer.
        return self.elements() if self._function else super().__iter__()

    def _iterate_slots(self) -> Iterator[Any]:
        while True:
            slot = self._wait()
            if slot is None:
                self.context.run.cancel_on_close(self._stop)
                return
            value = self._deliver(slot)
            self._since += 1
            while self._snapshots and self._snapshots[0][0] <= self._delivered:
                pulled, self._base = self._snapshots.popleft()
                self._since = self._delivered - pulled
            if value is not SKIPPED:
                yield value

    def _wait(self) -> Slot | None:
        """Return the next slot when it is ready, or None at the end.

        Raises:
            ClosedError: the pass was closed before the end.
        """
        empty = self._slots.empty()
        start = perf_counter_ns()
        slot = self._next_slot()
        if slot is None:
            return None
        empty = empty or slot.ready.locked()
        with slot.ready:  # another thread can wait for it too
            pass
        waited = perf_counter_ns() - start
        self.stage.waited += waited
        self.stage.buffered = self._slots.qsize()
        self._make_room(waited, empty, slot)
        return slot

    def _next_slot(self) -> Slot | None:
        # Without a fixed order, END can arrive before elements in progress.
        while not self._is_ending or self._delivered < self._pulled:
            slot = self._slots.get()
            if slot is not END:
                return slot
            self._is_ending = True
            if self._is_closed:
                raise ClosedError(f"{self.dataset._name}: the pass is closed")
        return None

    def _make_room(self, waited: int, was_empty: bool, slot: Slot) -> None:
        self._room.put(None)
        if self._tuner.is_due(waited, was_empty, self.stage.buffered == 0):
            self._tuner.adjust(lambda: size_of(slot.value))
            self._start_missing_threads()
            for _ in range(self._max_slots() - self._allowed):
                self._room.put(None)
            self._allowed = max(self._allowed, self._max_slots())
