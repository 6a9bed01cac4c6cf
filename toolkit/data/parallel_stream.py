"""Streams whose elements threads prefetch, in source order.

One thread at a time takes the next element of the source. All threads apply the stage's
function in parallel. Each call needs one thread, because the work worth a thread waits
for I/O: files, the network, sleep.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from time import perf_counter, perf_counter_ns
from typing import Any

from toolkit.data.dataset import Dataset
from toolkit.data.errors import add_location_note, describe_location
from toolkit.data.randomness import ElementDraws, PassDraws
from toolkit.data.slot_queue import END, Slot, SlotQueue
from toolkit.data.streams import SKIPPED, ClosedError, PassContext, Stream
from toolkit.data.structure import size_of
from toolkit.data.tuning import Knob, Tuner

THREAD_THRESHOLD_NS = 200_000  # ns: cheaper elements are computed inline
CERTAIN_THRESHOLD_NS = 5_000_000  # ns: slower than an occasional refill or file open
FIRST_ELEMENT_SECONDS = 0.001  # s: limit for the first element, with thread start
SNAPSHOT_INTERVAL_RATIO = 100  # snapshots use at most 1/100 of the time


class ParallelStream(Stream):
    """Stream of elements that threads compute ahead of the consumer.

    The position is an earlier position of the source and the number of elements
    delivered since then. After a restore, elements in progress are computed again.

    The consumer computes the first elements inline. Then `_queue` is None, and the
    source itself has the position. A slow element starts the threads, which fill
    `_queue` up to the end of the pass.

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
        self._base: Any = None  # a position of the source; None: its current one
        self._since = 0  # number of elements delivered since then
        self._delivered = 0  # total number of elements delivered
        self._snapshots: deque[tuple[int, Any]] = deque()
        self._next_snapshot = 0.0  # s: time of the next snapshot
        self._queue: SlotQueue | None = None  # None: no threads run yet
        self._gate, self._news = gate, news
        if not ordered:
            context.run.unordered.append(dataset._name)
        self._tuner = Tuner(self.stage, context.run.options, workers, capacity)

    # Position

    def state(self) -> Any:
        if self._base is None:
            return [self.parent.state(), 0, self._delivered]
        return [self._base, self._since, self._delivered]

    def restore(self, state: Any) -> None:
        self._base, self._since, self._delivered = state
        self.parent.restore(self._base)

    def elements(self) -> Iterator[Any]:
        if self._queue is None:
            cheap = (
                self._compute_while_cheap
                if self._function
                else self._iterate_while_cheap
            )
            yield from cheap(self._from_position())
        if self._queue is not None:  # not all elements were cheap
            yield from self._iterate_slots(self._queue)

    @property
    def is_ready(self) -> bool:
        """Return whether the next element, or the end, is ready."""
        return self._queue is not None and not self._queue.slots.empty()

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
        waited, was_slow, start = 0, False, perf_counter_ns()
        for element in source:
            spent = perf_counter_ns() - start
            waited += spent  # the consumer waited for this element
            self._delivered += 1
            self._base, self._since = None, 0
            is_slow = spent > THREAD_THRESHOLD_NS
            if is_slow and (was_slow or spent > CERTAIN_THRESHOLD_NS):
                self._start_after(source, waited)
                yield element
                return
            was_slow = is_slow
            yield element
            start = perf_counter_ns()

    def _compute_while_cheap(self, source: Iterator[Any]) -> Iterator[Any]:
        """Compute elements inline until one is slow enough for threads."""
        waited, is_first, was_slow, draws = 0, True, False, self._draws()
        for element in source:
            slot = Slot(self._delivered, self.parent.origin())
            slot.value = element
            start = perf_counter_ns()  # excludes the source, which stays serial
            if is_first and not self._is_computed_soon(slot):
                self._start(source, slot)
                self.stage.waited += perf_counter_ns() - start
                return
            if not is_first:
                self._compute(slot, draws)
            value = self._deliver(slot)
            spent = perf_counter_ns() - start
            waited += spent
            self._base, self._since = None, 0
            is_slow = spent > THREAD_THRESHOLD_NS
            is_worth_threads = is_slow and (was_slow or spent > CERTAIN_THRESHOLD_NS)
            if is_first:  # its time includes the start of a thread
                is_first = is_worth_threads = False
            was_slow = is_slow
            if is_worth_threads:
                self._start_after(source, waited)
            if value is not SKIPPED:
                yield value
            if is_worth_threads:
                return

    def _start_after(self, source: Iterator[Any], waited: int) -> None:
        """Start the threads after elements for which the consumer waited."""
        start = perf_counter_ns()
        self._base, self._since = self.parent.state(), 0
        self._start(source)
        self.stage.waited += waited + perf_counter_ns() - start

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
        pulled = self._delivered + (first is not None)
        queue = self._queue = SlotQueue(source, pulled, self._news)
        queue.enlarge(self._max_slots())
        self.context.run.on_close(self._stop)
        if first is not None and self._ordered:
            queue.slots.put(first)
        self._start_missing_threads(queue, first)

    def _max_slots(self) -> int:
        """Return the maximum number of elements in progress or ready."""
        workers = self._workers.value
        return self._capacity.value if self._capacity else workers + workers // 2 + 1

    def _start_missing_threads(
        self, queue: SlotQueue, first: Slot | None = None
    ) -> None:
        """Start the missing threads, as many as the system allows."""
        while queue.num_threads < self._workers.value:
            number = queue.num_threads
            name = f"data-{self.dataset._name}-{number}"
            arguments = (queue, number, first if number == 0 else None)
            thread = threading.Thread(
                target=self._work, args=arguments, name=name, daemon=True
            )
            with queue.counting:
                queue.num_threads += 1
            try:
                thread.start()
            except RuntimeError:
                with queue.counting:
                    queue.num_threads -= 1
                if number == 0:
                    raise
                break
        self.stage.workers = self._workers.value

    def _stop(self) -> None:
        if self._queue is not None:
            self._queue.close()
            self.context.run.cancel_on_close(self._stop)

    def _work(self, queue: SlotQueue, number: int, first: Slot | None) -> None:
        if first is not None:
            with first.ready:  # another thread computes it
                pass
            if not self._ordered:
                queue.put(first)
        draws = self._draws()
        while True:
            queue.room.get()
            if queue.is_closed:
                queue.room.put(None)
                return
            if number >= self._workers.value:  # the tuner reduced the number of threads
                with queue.counting:
                    queue.num_threads -= 1
                queue.room.put(None)
                return
            slot = self._pull(queue)
            if slot is None:
                queue.room.put(None)  # wakes the next thread to see the end
                return
            if slot.error is None and self._function is not None:
                self._compute(slot, draws)
            slot.ready.release()
            if not self._ordered:
                queue.put(slot)

    def _pull(self, queue: SlotQueue) -> Slot | None:
        """Take the next element of the source; return None at the end."""
        with queue.pulling:
            if queue.total is not None or queue.is_closed:
                return None
            slot = Slot(queue.pulled, None)
            try:
                with self._gate or nullcontext():
                    slot.value = next(queue.source)
                if self._function is not None:
                    slot.origin = self.parent.origin()
                self._note_position(queue.pulled + 1)
            except StopIteration:
                queue.total = queue.pulled
                queue.put(END)
                return None
            except BaseException as error:
                slot.error = error
                queue.total = queue.pulled + 1
            queue.pulled += 1
            if self._ordered:
                queue.put(slot)
                if slot.error is not None:
                    queue.put(END)
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

    def _iterate_slots(self, queue: SlotQueue) -> Iterator[Any]:
        while True:
            slot = self._wait(queue)
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

    def _wait(self, queue: SlotQueue) -> Slot | None:
        """Return the next slot when it is ready, or None at the end.

        Raises:
            ClosedError: the pass was closed before the end.
        """
        empty = queue.slots.empty()
        start = perf_counter_ns()
        slot = queue.next_slot(self._delivered)
        if slot is None:
            if queue.is_closed:
                raise ClosedError(f"{self.dataset._name}: the pass is closed")
            return None
        empty = empty or slot.ready.locked()
        with slot.ready:  # another thread can wait for it too
            pass
        waited = perf_counter_ns() - start
        self.stage.buffered = queue.slots.qsize()
        queue.room.put(None)
        if self._tuner.is_due(waited, empty, self.stage.buffered == 0):
            self._tuner.adjust(lambda: size_of(slot.value))
            self._start_missing_threads(queue)
            queue.enlarge(self._max_slots())
        self.stage.waited += perf_counter_ns() - start  # with starts of threads
        return slot
