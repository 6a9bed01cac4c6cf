"""Streams whose elements threads make ahead, in source order.

Each thread takes the next element of the source, one at a time, and makes of it what
the stage's function says, at the same time as the others. A thread is started for each
call, since what is worth making ahead waits: for files, for the network, for sleep.
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
from toolkit.data.errors import note, place
from toolkit.data.randomness import ElementDraws, Elements
from toolkit.data.streams import SKIPPED, ClosedError, Pass, Stream
from toolkit.data.structure import size_of
from toolkit.data.tuning import Knob, Tuner

WORTH_A_THREAD = 200_000  # ns: cheaper elements are made when they are asked for
FAR_WORTH_A_THREAD = 5_000_000  # ns: more than what is done once in a while
SOON = 0.001  # s: so long may the first element take, with the start of a thread
SHARE_OF_SNAPSHOTS = 100  # at most one part in so many of the time is spent on them


class Slot:
    """An element in the making."""

    __slots__ = ("error", "index", "origin", "ready", "value")

    def __init__(self, index: int, origin: str | None) -> None:
        self.index: int = index
        self.origin: str | None = origin
        self.value: Any = None
        self.error: BaseException | None = None
        self.ready: Any = allocate_lock()
        self.ready.acquire()


END = None  # what follows the last slot


class AheadStream(Stream):
    """Elements that threads make ahead.

    Its position is one of the source, some way back, and how many elements have been
    given out since: those in the making are made again.

    Args:
        function: what is made of an element; None: nothing.
        workers: how many threads there are.
        capacity: how many elements may be in the making or wait; None: a few more than
            there are threads.
        ordered: whether elements are given out in the order of the source.
        elements: each with random numbers of its own, whichever thread makes it.
        gate: what a thread must hold while it takes an element of the source.
        news: set when an element is ready, or the end has come.
    """

    def __init__(
        self,
        dataset: Dataset,
        here: Pass,
        parent: Stream,
        function: Callable[[Any], Any] | None,
        workers: Knob,
        capacity: Knob | None = None,
        ordered: bool = True,
        elements: Elements | None = None,
        gate: threading.Semaphore | None = None,
        news: threading.Event | None = None,
    ) -> None:
        super().__init__(dataset, here, parent)
        self._function, self._ordered, self._elements = function, ordered, elements
        self.stage.makes = self.stage.alone = function is not None
        self._workers = workers
        self._capacity = capacity
        self._base: Any = None  # a position of the source
        self._since = 0  # elements given out since then
        self._given = 0  # elements given out in all
        self._snapshots: deque[tuple[int, Any]] = deque()
        self._is_inline = True  # no threads have been started so far
        self._has_begun_inline = False
        self._was_slow = False  # the last element that was made inline
        self._gate, self._news = gate, news
        if not ordered:
            here.run.unordered.append(dataset._name)
        self._tuner = Tuner(self.stage, here.run.options, workers, capacity)

    # The position

    def state(self) -> Any:
        if self._base is None or self._has_begun_inline:
            return [self.parent.state(), 0, self._given]
        return [self._base, self._since, self._given]

    def restore(self, state: Any) -> None:
        self._base, self._since, self._given = state
        self.parent.restore(self._base)

    def elements(self) -> Iterator[Any]:
        if self._is_inline:
            cheap = self._made_while_cheap if self._function else self._while_cheap
            yield from cheap(self._from_position())
            if self._is_inline:
                return  # cheap to the end
        yield from self._taken()

    @property
    def is_ready(self) -> bool:
        """Whether the next element, or the end, has come already."""
        return not self._slots.empty()

    def begin(self) -> None:
        """Start the threads now, not when the first element is asked for."""
        self._start(self._from_position())

    def _from_position(self) -> Iterator[Any]:
        """The source's elements after those that were given out."""
        if self._base is None:
            self._base = self.parent.state()
        return self.parent.skip(self._since) if self._since else iter(self.parent)

    def _while_cheap(self, source: Iterator[Any]) -> Iterator[Any]:
        """The source's elements, until one takes so long that a thread is worth it."""
        waited, start = 0, perf_counter_ns()
        for element in source:
            spent = perf_counter_ns() - start
            waited += spent  # who takes the elements has waited for this one
            self._given += 1
            self._has_begun_inline = True
            if spent <= WORTH_A_THREAD:
                self._was_slow = False
            elif self._is_worth_threads(spent):
                self._start_behind(source, waited)
                yield element
                return
            yield element
            start = perf_counter_ns()

    def _made_while_cheap(self, source: Iterator[Any]) -> Iterator[Any]:
        """Elements made here, until one takes so long that threads are worth it."""
        waited, draws = 0, self._draws()
        for element in source:
            slot = Slot(self._given, self.parent.origin())
            slot.value = element
            is_first = not self._has_begun_inline
            start = perf_counter_ns()  # the source is not what threads would share
            if is_first and not self._is_soon_made(slot):
                self._start(source, slot)
                return
            if not is_first:
                self._make(slot, draws)
            value = self._given_out(slot)
            spent = perf_counter_ns() - start
            waited += spent
            # The first is made by a thread, which takes its time.
            is_worth_threads = self._is_worth_threads(spent) and not is_first
            self._has_begun_inline = True
            if is_worth_threads:
                self._start_behind(source, waited)
            if value is not SKIPPED:
                yield value
            if is_worth_threads:
                return

    def _is_worth_threads(self, spent: int) -> bool:
        """Whether elements take long: this one far too long, or it and the last one."""
        was_slow, self._was_slow = self._was_slow, spent > WORTH_A_THREAD
        return spent > FAR_WORTH_A_THREAD or (self._was_slow and was_slow)

    def _start_behind(self, source: Iterator[Any], waited: int) -> None:
        """Start the threads behind elements for which their taker has waited."""
        self.stage.waited += waited
        self._base, self._since = self.parent.state(), 0
        self._start(source)

    def _is_soon_made(self, slot: Slot) -> bool:
        """Whether a thread makes the first element so fast that none was needed."""
        threading.Thread(target=self._scout, args=(slot,), daemon=True).start()
        is_made = slot.ready.acquire(timeout=SOON)
        if is_made:
            slot.ready.release()
        return is_made

    def _scout(self, slot: Slot) -> None:
        self._make(slot, self._draws())
        slot.ready.release()

    def _given_out(self, slot: Slot) -> Any:
        """The value of an element that is made; raises its error."""
        if slot.error is not None:
            self._stop()
            stage = self.dataset
            where = place(stage._name, slot.index, slot.origin, stage._detail())
            note(slot.error, where)
            raise slot.error
        self._given += 1
        return slot.value

    # The threads

    def _start(self, source: Iterator[Any], first: Slot | None = None) -> None:
        """Start the threads; the first element may be in the making already."""
        self._is_inline = self._has_begun_inline = False
        self._source = source
        self._pulling, self._counting = allocate_lock(), allocate_lock()
        self._pulled = self._given + (first is not None)
        self._is_over = self._is_closed = self._is_ending = False
        self._slots: SimpleQueue[Slot | None] = SimpleQueue()
        # Places that are free: a queue takes a tenth of the time of a semaphore.
        self._room: SimpleQueue[None] = SimpleQueue()
        for _ in range(self._most()):
            self._room.put(None)
        self._allowed = self._most()
        self._threads = 0
        self._next_snapshot = perf_counter()
        self.here.run.at_close(self._stop)
        self._first = first
        if first is not None and self._ordered:
            self._slots.put(first)
        self._hire()

    def _most(self) -> int:
        """How many elements may be in the making or wait."""
        workers = self._workers.value
        return self._capacity.value if self._capacity else workers + workers // 2 + 1

    def _hire(self) -> None:
        """Start the threads that are missing, as many as the system allows."""
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
        self._source = iter(())  # its files are closed
        self.here.run.has_ended(self._stop)

    def _work(self, number: int) -> None:
        if number == 0 and self._first is not None:
            with self._first.ready:  # it has a thread of its own
                pass
            if not self._ordered:
                self._put(self._first)
        draws = self._draws()
        while True:
            self._room.get()
            if self._is_closed:
                self._room.put(None)
                return
            if number >= self._workers.value:  # there are too many of us
                with self._counting:
                    self._threads -= 1
                self._room.put(None)
                return
            slot = self._pull()
            if slot is None:
                self._room.put(None)  # so that the others see it, too
                return
            if slot.error is None and self._function is not None:
                self._make(slot, draws)
            slot.ready.release()
            if not self._ordered:
                self._put(slot)

    def _put(self, slot: Slot | None) -> None:
        self._slots.put(slot)
        if self._news is not None:
            self._news.set()

    def _pull(self) -> Slot | None:
        """The next element of the source, to be made; None after the last."""
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
        """Write down where the source is, now and then: little is to be made again."""
        now = perf_counter()
        if now < self._next_snapshot or self.here.run.unordered:
            return
        self._snapshots.append((pulled, self.parent.state()))
        spent = perf_counter() - now
        self._next_snapshot = now + max(0.05, spent * SHARE_OF_SNAPSHOTS)

    def _draws(self) -> ElementDraws | None:
        """What a thread needs for the elements that it makes."""
        return None if self._elements is None else self._elements.draws()

    def _make(self, slot: Slot, draws: ElementDraws | None) -> None:
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

    # What is given out

    def __iter__(self) -> Iterator[Any]:
        # The threads measure what they make; who takes it is measured here.
        return self.elements() if self._function else super().__iter__()

    def _taken(self) -> Iterator[Any]:
        while True:
            slot = self._wait()
            if slot is None:
                self.here.run.has_ended(self._stop)
                return
            value = self._given_out(slot)
            self._since += 1
            while self._snapshots and self._snapshots[0][0] <= self._given:
                pulled, self._base = self._snapshots.popleft()
                self._since = self._given - pulled
            if value is not SKIPPED:
                yield value

    def _wait(self) -> Slot | None:
        """The next slot that is ready; None at the end.

        Raises:
            ClosedError: the pass is over, and the end has not come.
        """
        empty = self._slots.empty()
        start = perf_counter_ns()
        slot = self._next_slot()
        if slot is None:
            return None
        empty = empty or slot.ready.locked()
        with slot.ready:  # others may wait for it, too
            pass
        waited = perf_counter_ns() - start
        self.stage.waited += waited
        self.stage.buffered = self._slots.qsize()
        self._make_room(waited, empty, slot)
        return slot

    def _next_slot(self) -> Slot | None:
        # Where the order is free, the end may come before those in the making.
        while not self._is_ending or self._given < self._pulled:
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
            self._hire()
            for _ in range(self._most() - self._allowed):
                self._room.put(None)
            self._allowed = max(self._allowed, self._most())
