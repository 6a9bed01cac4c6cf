"""AUTOTUNE: selection of the number of threads and the buffer size during a pass.

The tuner keeps a doubled number if it is at least a tenth faster, and a halved number
if it is hardly slower. After a few hundred elements it is near the optimum. This is
true for calls that wait, compute without the GIL, or compute with it.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter, process_time

from toolkit.data.options import Options
from toolkit.data.profiling import StageProfile
from toolkit.errors import ArgumentError

AUTOTUNE = -1
INITIAL_THREADS = 16  # initial threads: ten elements are too few for tuning
LONGEST = 64
FASTER, HARDLY_SLOWER = 1.1, 0.95
WINDOW_SECONDS = 0.02  # s: shorter measurements are too noisy
PAUSE_WINDOWS = 10  # windows before the next trial
COMPUTING_CPUS = 0.4  # processors in use per call; waiting calls use less
MAX_WAIT_FRACTION = 0.05  # fraction of time: below it, the consumer limits


def check_workers(stage: str, workers: int | None) -> None:
    """Raise an error unless this is a valid number of parallel calls."""
    if workers is not None and workers != AUTOTUNE and workers < 1:
        raise ArgumentError(
            f"{stage}: expected num_parallel_calls >= 1, AUTOTUNE or None; received "
            f"{workers}"
        )


class Knob:
    """Number that AUTOTUNE can change between `low` and `high`."""

    def __init__(self, value: int, low: int | None = None, high: int | None = None):
        self.value = value
        self.low: int = value if low is None else low
        self.high: int = value if high is None else high

    @property
    def is_free(self) -> bool:
        """Return whether AUTOTUNE can change it."""
        return self.low < self.high

    @classmethod
    def of(cls, requested: int, options: Options, is_unbounded: bool = False) -> Knob:
        """Return the knob for a number of threads; below 0 means AUTOTUNE.

        Args:
            is_unbounded: whether it can exceed the limit in the options.
        """
        maximum = options.max_threads
        if requested >= 0:
            return cls(requested if is_unbounded else min(requested, maximum))
        first = options.autotune.initial_parallelism or INITIAL_THREADS
        low = min(options.autotune.min_parallelism or 1, maximum)
        return cls(max(low, min(first, maximum)), low, max(low, min(LONGEST, maximum)))


class Tuner:
    """Tuner that observes a stage's elements and sets its knobs."""

    def __init__(
        self,
        stage: StageProfile,
        options: Options,
        workers: Knob,
        capacity: Knob | None,
    ) -> None:
        self._stage, self._options = stage, options
        self._workers, self._capacity = workers, capacity
        is_free = workers.is_free or (capacity is not None and capacity.is_free)
        self._is_on = is_free and options.autotune.enabled is not False
        self._factor = 0.5  # factor of the next trial
        self._trial_start: tuple[int, float] | None = (
            None  # value and rate before a trial
        )
        self._pause = 0
        self._start_cpu_time = process_time()
        self._is_first = True
        self._begin()

    def _begin(self) -> None:
        self._since = perf_counter()
        self._elements = self._waited = self._empty = self._full = 0

    def is_due(self, waited: int, was_empty: bool, is_empty: bool) -> bool:
        """Count an element; return whether enough were observed for an adjustment."""
        if not self._is_on:
            return False
        self._elements += 1
        self._waited += waited
        self._empty += was_empty
        self._full += not is_empty
        required = 8 if self._is_first else max(8, 2 * self._workers.value)
        is_complete = self._elements >= required
        return is_complete and perf_counter() - self._since >= WINDOW_SECONDS

    def adjust(self, size: Callable[[], int]) -> None:
        """Adjust the knobs from the observations since the last adjustment."""
        elapsed = perf_counter() - self._since
        rate = self._elements / elapsed
        waits = self._waited * 1e-9 / elapsed
        is_first, self._is_first = self._is_first, False
        if self._workers.is_free and not (is_first and self._reset_workers(elapsed)):
            self._adjust_workers(rate, waits)
        if self._capacity is not None and self._capacity.is_free:
            self._adjust_capacity(size)
        self._begin()

    def _reset_workers(self, elapsed: float) -> bool:
        """Reset to one thread per CPU if calls compute: more would slow them."""
        used = (process_time() - self._start_cpu_time) / elapsed
        maximum = max(self._workers.low, self._options.processors)
        if used < COMPUTING_CPUS or self._workers.value <= maximum:
            return False
        self._set(maximum, f"{used:.1f} processors in use")
        return True

    def _adjust_workers(self, rate: float, waits: float) -> None:
        knob = self._workers
        if self._trial_start is not None:
            number, earlier = self._trial_start
            rates = f"{knob.value}: {rate:,.0f} elements per second, "
            rates += f"{number}: {earlier:,.0f}"
            gain = rate / earlier
            is_better = gain > FASTER if knob.value > number else gain > HARDLY_SLOWER
            self._trial_start = None
            if not is_better:
                self._set(number, rates)
                self._factor = 1 / self._factor
                self._pause = PAUSE_WINDOWS if self._factor < 1 else 0
                return
        if self._pause > 0:
            self._pause -= 1
            return
        factor = 0.5 if waits < MAX_WAIT_FRACTION else self._factor
        tried = min(knob.high, max(knob.low, int(knob.value * factor)))
        if tried == knob.value:
            self._factor, self._pause = 1 / self._factor, PAUSE_WINDOWS
            return
        self._trial_start = knob.value, rate
        self._set(tried, f"{self._trial_start[0]}: {rate:,.0f} elements per second")

    def _set(self, number: int, reason: str) -> None:
        self._workers.value = number
        self._stage.choices.append(f"threads: {number} ({reason})")

    def _adjust_capacity(self, size: Callable[[], int]) -> None:
        """Increase the buffer if it was sometimes full and sometimes empty."""
        knob = self._capacity
        assert knob is not None
        self._stage.bytes = size()
        maximum = max(1, self._options.memory // max(1, self._stage.bytes))
        bursts = 0 < self._empty < self._elements and self._full > 0
        target = knob.value * 2 if bursts else knob.value
        target = max(knob.low, min(knob.high, maximum, target))
        if target > knob.value:
            knob.value = target
            self._stage.choices.append(f"buffer: {target} (empty at times)")
        self._stage.capacity = knob.value
