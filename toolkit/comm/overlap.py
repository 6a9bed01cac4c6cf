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
FIRST, MOST = 1 << 20, 25 << 20
# For a known link, latency takes about this fraction of an exchange.
_LATENCY_FRACTION = 0.1
_MIN_BUCKET = 64 << 10

Run: TypeAlias = Callable[[], None]


def overlaps(group: Group) -> bool:
    """Return whether the collectives of a group overlap with computation.

    They do over a network. TOOLKIT_OVERLAP ("on" or "off", equal on all ranks)
    overrides this.
    """
    forced = settings.environment("OVERLAP")
    if forced not in (None, "on", "off"):
        raise unknown_choice("TOOLKIT_OVERLAP", forced, ("on", "off"))
    return group.size > 1 and (group.is_remote if forced is None else forced == "on")


def bucket_bytes(group: Group) -> tuple[int, int]:
    """Return the bucket size in bytes: of the first bucket, and of later ones."""
    plain = group
    while isinstance(plain, WatchedGroup):
        plain = plain.plain
    if not isinstance(plain, SlowGroup):
        return FIRST, MOST
    each = int(plain.latency * plain.bandwidth / _LATENCY_FRACTION)
    each = max(_MIN_BUCKET, min(MOST, each))
    return each, each


class Pending:
    """Collective in progress.

    Attributes:
        began, ended: the `time.perf_counter` of its start and end.
        error: the exception that it raised.
    """

    def __init__(self, run: Run) -> None:
        self._run: Run | None = run
        self._done = threading.Event()
        self.began = self.ended = 0.0
        self.error: BaseException | None = None

    def run(self, error: BaseException | None) -> BaseException | None:
        """Run the collective unless an earlier one failed; return the error."""
        self.began = perf_counter()
        self.error = error
        if error is None and self._run is not None:
            try:
                self._run()
            except BaseException as raised:  # raised by `wait`
                self.error = raised
        self.ended = perf_counter()
        self._run = None
        self._done.set()
        return self.error

    def settle(self) -> None:
        """Wait for the end, successful or not."""
        self._done.wait()

    def wait(self) -> None:
        """Wait for the results; raise the error of the collective."""
        self._done.wait()
        if self.error is not None:
            raise self.error


class Background:
    """Thread that runs the collectives of a group sequentially.

    If one fails, later ones fail too, because other ranks do not take part in them.
    """

    def __init__(self) -> None:
        self._queue: SimpleQueue[Pending | None] = SimpleQueue()
        threading.Thread(
            target=_work, args=(self._queue,), name="toolkit exchange", daemon=True
        ).start()
        weakref.finalize(self, self._queue.put, None)

    def start(self, run: Run) -> Pending:
        """Enqueue a collective after the earlier ones."""
        pending = Pending(run)
        self._queue.put(pending)
        return pending


def _work(queue: SimpleQueue[Pending | None]) -> None:
    error: BaseException | None = None
    while True:
        pending = queue.get()
        if pending is None:
            return
        error = pending.run(error)
        del pending  # it can hold the last reference to memory


_backgrounds: WeakKeyDictionary[Group, Background] = WeakKeyDictionary()


def background_of(group: Group) -> Background | None:
    """Return the background thread of a group, or None if calls run inline."""
    if not overlaps(group):
        return None
    if group not in _backgrounds:
        _backgrounds[group] = Background()
    return _backgrounds[group]
