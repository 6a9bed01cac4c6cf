"""Exchange beside computation: collectives over a network run in a thread.

Inside of one machine the thread would take a core from what is computed, and memory is
fast: there collectives run where their results are needed.
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
from toolkit.comm.slow import SlowGroup
from toolkit.comm.watch import WatchedGroup
from toolkit.errors import unknown_choice

# Bytes of the first sum that goes while others are computed, and of those after it, as
# torch's DistributedDataParallel has them.
FIRST, MOST = 1 << 20, 25 << 20
# Where the link is known, waiting takes about so small a part of an exchange.
_WAITING = 0.1
_LEAST = 64 << 10

Run: TypeAlias = Callable[[], None]


def overlaps(group: Group) -> bool:
    """Whether what a group exchanges runs beside what is computed.

    It does over a network; TOOLKIT_OVERLAP says otherwise: "on" or "off", in all ranks.
    """
    forced = settings.environment("OVERLAP")
    if forced not in (None, "on", "off"):
        raise unknown_choice("TOOLKIT_OVERLAP", forced, ("on", "off"))
    return group.size > 1 and (group.is_remote if forced is None else forced == "on")


def bucket_bytes(group: Group) -> tuple[int, int]:
    """How many bytes of sums go together: of those ready first, and of others."""
    plain = group
    while isinstance(plain, WatchedGroup):
        plain = plain.plain
    if not isinstance(plain, SlowGroup):
        return FIRST, MOST
    each = int(plain.latency * plain.bandwidth / _WAITING)
    each = max(_LEAST, min(MOST, each))
    return each, each


class Pending:
    """A collective that was started.

    Attributes:
        began, ended: `time.perf_counter` of when it ran.
        error: what it raised.
    """

    def __init__(self, run: Run) -> None:
        self._run: Run | None = run
        self._done = threading.Event()
        self.began = self.ended = 0.0
        self.error: BaseException | None = None

    def run(self, error: BaseException | None) -> BaseException | None:
        """Run, unless one before has failed; what has failed."""
        self.began = perf_counter()
        self.error = error
        if error is None and self._run is not None:
            try:
                self._run()
            except BaseException as raised:  # it is raised where it is waited for
                self.error = raised
        self.ended = perf_counter()
        self._run = None
        self._done.set()
        return self.error

    def settle(self) -> None:
        """Wait for its end, however that is."""
        self._done.wait()

    def wait(self) -> None:
        """Wait for its results; it raises what it raised."""
        self._done.wait()
        if self.error is not None:
            raise self.error


class Background:
    """A thread that runs the collectives of a group one after the other.

    After one that fails the others fail, too: other ranks do not take part in them.
    """

    def __init__(self) -> None:
        self._queue: SimpleQueue[Pending | None] = SimpleQueue()
        threading.Thread(
            target=_work, args=(self._queue,), name="toolkit exchange", daemon=True
        ).start()
        weakref.finalize(self, self._queue.put, None)

    def start(self, run: Run) -> Pending:
        """Have a collective run when those before it are done."""
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
        del pending  # it may be the last to hold memory


_backgrounds: WeakKeyDictionary[Group, Background] = WeakKeyDictionary()


def background_of(group: Group) -> Background | None:
    """What runs the collectives of a group; None: who needs their results does."""
    if not overlaps(group):
        return None
    if group not in _backgrounds:
        _backgrounds[group] = Background()
    return _backgrounds[group]
