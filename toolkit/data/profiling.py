"""Measurement of the time of each stage during a pass.

Reading the clock for each of many cheap elements would cost more than the elements. The
profiler samples some elements, and fewer of them if they are cheap.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, NamedTuple

from toolkit.data.errors import add_location_note

if TYPE_CHECKING:
    from toolkit.data.dataset import Dataset

ALWAYS_TIMED_NS = 25_000  # ns: all elements that take at least this are measured
MAX_EVENTS = 20_000  # number of latest events kept for each stage


class Event(NamedTuple):
    """Computation of one element, or of several: thread, start and end in ns."""

    start: int
    end: int
    thread: int


class FunctionProfile:
    """Measurements of a function that a stage of several transformations calls.

    Attributes:
        name: its transformation and its name, such as "map(parse)".
        calls: the number of its calls in the pass.
        spent: their total time in ns. Calls without a measurement count as long as the
            previous measured one.
    """

    def __init__(self, name: str) -> None:
        self.name: str = name
        self.calls: int = 0
        self.spent: int = 0

    def record(self, start: int, end: int, count: int) -> None:
        """Record calls that were made in this time."""
        self.calls += count
        self.spent += end - start

    def apply(
        self, function: Callable[[object], object], elements: Iterator[object]
    ) -> Iterator[object]:
        """Yield the results of a function, and measure the time of some calls."""
        for element in elements:
            start = perf_counter_ns()
            result = function(element)
            end = perf_counter_ns()
            self.record(start, end, 1)
            yield result
            took = end - start
            if took < ALWAYS_TIMED_NS:
                before = self.calls
                unmeasured = islice(elements, ALWAYS_TIMED_NS // (took + 1))
                for result in map(function, unmeasured):
                    self.calls += 1
                    yield result
                self.spent += took * (self.calls - before)


class StageProfile:
    """Measurements of one stage.

    Attributes:
        name, detail: the name of the stage and a description of its arguments.
        elements: the number of elements that it has produced.
        spent: their total time, with the time of earlier stages, in ns. Elements
            without a measurement count as long as the previous measured one.
        waited: the time that it waited for its threads or processes, in ns.
        workers: the number of threads or processes; 0 means inline.
        bytes: the approximate size of an element.
        buffered, capacity: the current and maximum number of ready elements; None means
            that there is no buffer.
        choices: a description of the AUTOTUNE choices.
        events: the latest elements.
        inputs: the stages before it, also those of data sets that it opens.
        copies: the number of threads that run it at the same time, each for another
            data set.
        functions: for a stage of several transformations, the functions of its maps.
    """

    def __init__(self, name: str, detail: str, inputs: list[StageProfile]) -> None:
        self.name: str = name
        self.detail: str = detail
        self.inputs: list[StageProfile] = inputs
        self.copies: int = 1
        self.functions: list[FunctionProfile] = []
        self.elements: int = 0
        self.spent: int = 0
        self.waited: int = 0
        self.bytes: int = 0
        self.workers: int = 0
        self.buffered: int | None = None
        self.capacity: int | None = None
        self.computes_elements = (
            True  # whether it computes elements, not only forwards them
        )
        self.excludes_inputs = False  # whether its times exclude earlier stages
        self.choices: list[str] = []
        self.events: deque[Event] = deque(maxlen=MAX_EVENTS)

    def timed(self, iterator: Iterator[Any]) -> Iterator[Any]:
        """Yield the same elements, and measure the time of some."""
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
                if took < ALWAYS_TIMED_NS:
                    before = self.elements
                    for element in islice(iterator, ALWAYS_TIMED_NS // (took + 1)):
                        self.elements += 1
                        yield element
                    # The unmeasured elements count the same. The first one counts only
                    # itself, because it fills the buffer of a shuffle.
                    self.spent += took * (self.elements - before)
        except Exception as error:  # for stages without a more exact note
            add_location_note(
                error, f"stage {self.name}, after {self.elements:,} elements"
            )
            raise

    def record(self, start: int, end: int, count: int = 1) -> None:
        """Record elements that were produced in this time."""
        self.elements += count
        self.spent += end - start
        self.events.append(Event(start, end, threading.get_ident()))

    @property
    def delay(self) -> float:
        """Return the seconds for which the next stage, or the consumer, waits for it.

        The measured elements of a stage are a sample, which can miss rare waits. The
        waits for threads are measured completely.
        """
        if self.workers:
            return self.waited * 1e-9
        total, inputs = self.spent * 1e-9, sum(stage.delay for stage in self.inputs)
        return total + inputs if self.excludes_inputs else max(total, inputs)

    @property
    def busy(self) -> float:
        """Return the seconds of its own work, summed over its threads."""
        if self.excludes_inputs:
            return self.spent * 1e-9
        if self.workers:  # other threads run and measure earlier stages
            return self.spent * 1e-9 if self.computes_elements else 0.0
        return max(0.0, self.delay - sum(stage.delay for stage in self.inputs))

    @property
    def load(self) -> float:
        """Return the seconds of its own work in each of its threads."""
        return self.busy / max(1, self.workers, self.copies)

    @property
    def slowest_function(self) -> FunctionProfile | None:
        """Return the function that takes most of the time of the stage, if any."""
        slowest = max(self.functions, key=lambda f: f.spent, default=None)
        if slowest is None or slowest.spent * 1e-9 < 0.5 * self.busy:
            return None
        return slowest

    def add_input(self, stage: StageProfile, copies: int) -> None:
        """Add a data set that this stage opens.

        Args:
            stage: the last stage of the data set.
            copies: the number of such data sets that threads read at the same time.
        """
        if stage not in self.inputs:
            self.inputs.append(stage)
            stage.set_copies(copies)

    def set_copies(self, copies: int) -> None:
        """Set the number of copies of this stage and of the stages before it."""
        self.copies = copies
        for stage in self.inputs:
            stage.set_copies(copies)


class PassProfile:
    """Measurements of the stages of one pass.

    Attributes:
        output: the last stage, whose elements the consumer takes.
    """

    output: StageProfile

    def __init__(self) -> None:
        self.started: int = perf_counter_ns()
        self.ended: int | None = None
        self._by_key: dict[Any, StageProfile] = {}

    def timed(self, elements: Iterator[Any]) -> Iterator[Any]:
        """Yield the same elements, between the start and the end of the pass."""
        self.started = perf_counter_ns()
        try:
            yield from elements
        finally:
            self.ended = perf_counter_ns()

    def stage(
        self, key: Any, name: str, dataset: Dataset, inputs: list[StageProfile]
    ) -> StageProfile:
        """Return the record of a stage; all openings of a stage share one."""
        profile = self._by_key.get(key)
        if profile is None:
            profile = self._by_key[key] = StageProfile(name, dataset._detail(), inputs)
        return profile

    @property
    def stages(self) -> list[StageProfile]:
        """Return the stages, each after its inputs."""
        ordered: dict[StageProfile, None] = {}

        def add(stage: StageProfile) -> None:
            for before in stage.inputs:
                add(before)
            ordered[stage] = None

        add(self.output)
        return list(ordered)
