"""Overlap of communication and computation: network collectives run in a thread.

On one machine, the thread would take a core from the computation, and memory is fast.
Collectives run there when their results are needed.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from time import perf_counter
from typing import TypeAlias
from weakref import WeakKeyDictionary

from toolkit import settings
from toolkit.comm.group import Group
from toolkit.comm.slow_link import SlowGroup
from toolkit.comm.watchdog import WatchedGroup
from toolkit.errors import unknown_choice

# Bytes of the first gradient bucket and of later ones, as in torch's
# DistributedDataParallel.
FIRST_BUCKET, MAX_BUCKET = 1 << 20, 25 << 20
# For a known link, latency takes about this fraction of an exchange.
_LATENCY_FRACTION = 0.1
_MIN_BUCKET = 64 << 10

Run: TypeAlias = Callable[[], None]


def can_overlap(group: Group, has_stream: bool = False) -> bool:
    """Return whether the collectives of a group overlap with computation.

    They do over a network, and between GPUs. TOOLKIT_OVERLAP ("on" or "off", equal on
    all ranks) overrides this.

    Args:
        group: the ranks.
        has_stream: whether the devices of all ranks have a stream for them.
    """
    override = settings.environment("OVERLAP")
    if override not in (None, "on", "off"):
        raise unknown_choice("TOOLKIT_OVERLAP", override, ("on", "off"))
    return group.size > 1 and (
        has_stream or group.is_remote if override is None else override == "on"
    )


def bucket_bytes(group: Group) -> tuple[int, int]:
    """Return the bucket size in bytes: of the first bucket, and of later ones."""
    base_group = group
    while isinstance(base_group, WatchedGroup):
        base_group = base_group.wrapped_group
    if not isinstance(base_group, SlowGroup):
        return FIRST_BUCKET, MAX_BUCKET
    nbytes = int(base_group.latency * base_group.bandwidth / _LATENCY_FRACTION)
    nbytes = max(_MIN_BUCKET, min(MAX_BUCKET, nbytes))
    return nbytes, nbytes


class PendingCollective:
    """Collective in progress.

    Attributes:
        start_time, end_time: the `time.perf_counter` of its start and end.
        error: the exception that it raised.
    """

    def __init__(self, run: Run) -> None:
        self._run: Run | None = run
        self._finished = threading.Event()
        self.start_time = self.end_time = 0.0
        self.error: BaseException | None = None

    def run(self, error: BaseException | None) -> BaseException | None:
        """Run the collective unless an earlier one failed; return the error."""
        self.start_time = perf_counter()
        self.error = error
        if error is None and self._run is not None:
            try:
                self._run()
            except BaseException as exception:  # raised by `wait`
                self.error = exception
        self.end_time = perf_counter()
        self._run = None
        self._finished.set()
        return self.error

    def join(self) -> None:
        """Wait for the end, successful or not."""
        self._finished.wait()

    def wait(self) -> None:
        """Wait for the results; raise the error of the collective."""
        self._finished.wait()
        if self.error is not None:
            raise self.error


class BackgroundThread:
    """Thread that runs the collectives of a group sequentially.

    If one fails, later ones fail too, because other ranks do not take part in them.
    """

    def __init__(self) -> None:
        self._queue: SimpleQueue[PendingCollective | None] = SimpleQueue()
        threading.Thread(
            target=_work, args=(self._queue,), name="toolkit exchange", daemon=True
        ).start()
        weakref.finalize(self, self._queue.put, None)

    def start(self, run: Run) -> PendingCollective:
        """Enqueue a collective after the earlier ones."""
        pending = PendingCollective(run)
        self._queue.put(pending)
        return pending


def _work(queue: SimpleQueue[PendingCollective | None]) -> None:
    error: BaseException | None = None
    while True:
        pending = queue.get()
        if pending is None:
            return
        error = pending.run(error)
        del pending  # it can hold the last reference to memory


_backgrounds: WeakKeyDictionary[Group, BackgroundThread] = WeakKeyDictionary()


def background_of(group: Group) -> BackgroundThread | None:
    """Return the background thread of a group, or None if calls run inline."""
    if not can_overlap(group):
        return None
    if group not in _backgrounds:
        _backgrounds[group] = BackgroundThread()
    return _backgrounds[group]
