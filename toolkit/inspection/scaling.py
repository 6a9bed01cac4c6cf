"""Predicted time of a program on other numbers of cores, from its measured tasks."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

from toolkit.compiler.bound import Event, TimedUnit
from toolkit.definitions.records import record


@record
class Scaling:
    """Predicted time of a program on a number of cores.

    Attributes:
        cores: number of cores.
        seconds: time of one run.
        speed_up: speed relative to one core.
        waiting: the numbers of the kernels for which cores wait, with the lost seconds
            per core, the largest first.
    """

    cores: int
    seconds: float
    speed_up: float
    waiting: tuple[tuple[int, float], ...]


@record
class Stage:
    """Tasks between two barriers of all threads.

    Attributes:
        tasks: the duration of each, in the order of their start.
        kernels: the number of the kernel of each task.
        is_shared: whether several threads run the tasks.
    """

    tasks: tuple[float, ...]
    kernels: tuple[int, ...]
    is_shared: bool

    def seconds(self, cores: int) -> float:
        """Return the time from the first start to the last end."""
        if not self.is_shared or cores == 1:
            return sum(self.tasks)
        free = [0.0] * min(cores, len(self.tasks))
        for task in self.tasks:
            heapq.heapreplace(free, free[0] + task)
        return max(free)


def measured_stages(
    events: Iterable[Event], units: Sequence[TimedUnit], kernel_of: dict[int, int]
) -> list[Stage]:
    """Return the stages of a run, in the order of their moments."""
    by_moment: defaultdict[int, list[Event]] = defaultdict(list)
    for event in events:
        if event.thread >= 0:  # otherwise it ran in parallel with all of them
            by_moment[units[event.unit].moment].append(event)
    return [
        Stage(
            tuple(event.end - event.start for event in ran),
            tuple(kernel_of[event.unit] for event in ran),
            len(ran) > 1 and all(units[event.unit].is_shared for event in ran),
        )
        for _, ran in sorted(by_moment.items())
    ]


def time_between(events: Sequence[Event], units: Sequence[TimedUnit]) -> float:
    """Return the seconds of a run without events: starting and joining threads."""
    ran = [event for event in events if event.thread >= 0]
    if not ran:
        return 0.0
    total = max(event.end for event in ran) - min(event.start for event in ran)
    return max(0.0, total - sum(spans(ran, lambda x: units[x.unit].moment).values()))


def spans(events: Iterable[Event], key: Callable[[Event], int]) -> Counter[int]:
    """Return the time of each key's events, from the first start to the last end."""
    starts: dict[int, float] = {}
    ends: dict[int, float] = {}
    for event in events:
        group = key(event)
        starts[group] = min(event.start, starts.get(group, event.start))
        ends[group] = max(event.end, ends.get(group, event.end))
    return Counter({group: ends[group] - starts[group] for group in ends})


def predict_scaling(stages: Sequence[Stage], idle: float, cores: int) -> Scaling:
    """Predict the time of stages and of the time between them on a number of cores."""
    waiting: defaultdict[int, float] = defaultdict(float)
    seconds, work = idle, idle
    for stage in stages:
        span, tasks = stage.seconds(cores), sum(stage.tasks)
        seconds, work = seconds + span, work + tasks
        # Stages of several kernels: the lost time is divided like the work.
        for kernel, task in zip(stage.kernels, stage.tasks, strict=True):
            share = task / tasks if tasks else 0.0
            waiting[kernel] += (span - tasks / cores) * share
    by_loss = sorted(waiting.items(), key=lambda pair: -pair[1])
    lost_seconds = tuple((kernel, loss) for kernel, loss in by_loss if loss > 0.0)
    return Scaling(cores, seconds, work / seconds if seconds else 1.0, lost_seconds)
