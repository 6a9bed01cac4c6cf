"""The flight record: which collective each group of this process is in, since when."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NamedTuple

# Innermost frames that are told of a rank's stack.
_FRAMES = 12


class Entry(NamedTuple):
    """One call of a group.

    Attributes:
        number: of the collective among those of its group, 0 for `send` and `receive`.
        operation: the method.
        name: what it is for, such as a layer's path; see `named`.
        nbytes: the size of what is filled or sent.
        peer: the other rank of `send` and `receive`.
        since: `time.monotonic` when it began.
    """

    number: int
    operation: str
    name: str
    nbytes: int
    peer: int | None
    since: float

    def __str__(self) -> str:
        said = f"{self.operation} of {self.nbytes:,} bytes"
        said += "" if self.peer is None else f", rank {self.peer}"
        said += f", for {self.name}" if self.name else ""
        return f"collective {self.number} ({said})" if self.number else said

    def told(self) -> list[Any]:
        """The same as data, with the seconds that have passed."""
        return [*self[:5], time.monotonic() - self.since]


class _Names(threading.local):
    current = ""


_names = _Names()


class named:
    """Say what the collectives inside of a `with` are for, such as a layer's path.

    Example:
        >>> from toolkit import comm
        >>> with comm.named("gradients of dense_1"):
        ...     comm.world().barrier()
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        self._before, _names.current = _names.current, self._name

    def __exit__(self, *_: object) -> None:
        _names.current = self._before


class GroupRecord:
    """The calls of one group: the one that is running, and those before it.

    Args:
        key: the group's name, the same on all of its ranks.
        members: its ranks, as ranks of the job.
    """

    def __init__(self, key: str, members: Sequence[int]) -> None:
        self.key = key
        self.members = list(members)
        self.count = 0
        self.current: Entry | None = None
        self.recent: deque[Entry] = deque(maxlen=16)
        self.left = time.monotonic()
        self.thread = threading.main_thread().ident

    def entered(
        self, operation: str, nbytes: int, peer: int | None = None
    ) -> GroupRecord:
        """Note a call that begins; used as `with record.entered(...)`."""
        if peer is None:
            self.count += 1
        number = self.count if peer is None else 0
        self.thread = threading.get_ident()
        self.current = Entry(
            number, operation, _names.current, nbytes, peer, time.monotonic()
        )
        return self

    def __enter__(self) -> None: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.current is not None:
            self.recent.append(self.current)
        self.current = None
        self.left = time.monotonic()

    def status(self) -> dict[str, Any]:
        """What another rank is told, as JSON."""
        current, last = self.current, self.recent[-1] if self.recent else None
        return {
            "count": self.count,
            "current": current.told() if current else None,
            "last": last.told() if last else None,
            "left": time.monotonic() - self.left,
            "stack": stack_of(self.thread),
        }


def entry_of(told: Sequence[Any]) -> Entry:
    """The entry that another rank told."""
    number, operation, name, nbytes, peer, seconds = told
    return Entry(
        int(number),
        str(operation),
        str(name),
        int(nbytes),
        None if peer is None else int(peer),
        time.monotonic() - float(seconds),
    )


def stack_of(thread: int | None) -> list[str]:
    """Where a thread stands, outermost first, as lines of a traceback."""
    frame = sys._current_frames().get(thread or 0)
    if frame is None:
        return []
    frames = list(traceback.extract_stack(frame))
    started = [i for i, each in enumerate(frames) if "runpy" in each.filename]
    listed = traceback.format_list(frames[max(started, default=-1) + 1 :][-_FRAMES:])
    return [line.rstrip() for entry in listed for line in entry.splitlines()]
