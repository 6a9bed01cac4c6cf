"""How long each stage of a pass takes, measured while it runs.

Reading the clock for each of many cheap elements would cost more than the elements: so
it is read for some of them, the more seldom the cheaper they are.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from itertools import islice
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, NamedTuple

from toolkit.data.errors import note

if TYPE_CHECKING:
    from toolkit.data.dataset import Dataset

OFTEN = 25_000  # ns: elements at least as long as this are all measured
EVENTS = 20_000  # kept of each stage, the last ones


class Event(NamedTuple):
    """One element, or several at once, in the making: when, in which thread; ns."""

    start: int
    end: int
    thread: int


class Stage:
    """What is measured of one stage.

    Attributes:
        name, detail: of the stage, and what it was given.
        elements: how many it has made.
        spent: how long they took with what the stages before did for them, ns; for
            those that the clock was not read for, as long as the one before them.
        waited: how long it waited for threads or processes of its own, ns.
        workers: how many threads or processes it has; 0: it runs where it is needed.
        bytes: of an element, about.
        buffered, capacity: how many elements wait in it, and may; None: it has no
            buffer.
        choices: what AUTOTUNE has chosen, in words.
        events: the last elements.
    """

    def __init__(self, name: str, detail: str, parents: list[Stage]) -> None:
        self.name: str = name
        self.detail: str = detail
        self.parents: list[Stage] = parents
        self.elements: int = 0
        self.spent: int = 0
        self.waited: int = 0
        self.bytes: int = 0
        self.workers: int = 0
        self.buffered: int | None = None
        self.capacity: int | None = None
        self.makes = True  # something out of elements, rather than just hand them on
        self.alone = False  # its times leave out what the stages before did
        self.choices: list[str] = []
        self.events: deque[Event] = deque(maxlen=EVENTS)

    def timed(self, iterator: Iterator[Any]) -> Iterator[Any]:
        """The same elements, with the time that some of them take."""
        following = iterator.__next__
        try:
            while True:
                start = perf_counter_ns()
                try:
                    element = following()
                except StopIteration:
                    return
                end = perf_counter_ns()
                self.record(start, end)
                yield element
                took = end - start
                if took < OFTEN:
                    before = self.elements
                    for element in islice(iterator, OFTEN // (took + 1)):
                        self.elements += 1
                        yield element
                    # Those in between took as long; only them: the first element
                    # of a shuffle fills its buffer, and stands for itself.
                    self.spent += took * (self.elements - before)
        except Exception as error:  # for stages that do not say it more exactly
            note(error, f"stage {self.name}, after {self.elements:,} elements")
            raise

    def record(self, start: int, end: int, count: int = 1) -> None:
        """Count elements that were made in this time."""
        self.elements += count
        self.spent += end - start
        self.events.append(Event(start, end, threading.get_ident()))

    @property
    def total(self) -> float:
        """Seconds for all elements, with what the stages before did for them."""
        return self.spent * 1e-9


class Watch:
    """The stages of one pass."""

    def __init__(self) -> None:
        self.stages: list[Stage] = []
        self.began: int = perf_counter_ns()
        self.ended: int | None = None
        self._by_key: dict[Any, Stage] = {}

    def timed(self, elements: Iterator[Any]) -> Iterator[Any]:
        """The same elements, between the beginning and the end of the pass."""
        self.began = perf_counter_ns()
        try:
            yield from elements
        finally:
            self.ended = perf_counter_ns()

    def stage(
        self, key: Any, name: str, dataset: Dataset, parents: list[Stage]
    ) -> Stage:
        """The record of a stage: one, however often the stage is opened."""
        found = self._by_key.get(key)
        if found is None:
            found = self._by_key[key] = Stage(name, dataset._detail(), parents)
            self.stages.append(found)
        return found
