"""Flight recorder: the current collective of each group in this process."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NamedTuple

from toolkit.console.frames import is_user_file
from toolkit.errors import CommunicationError, ToolkitError

# Number of innermost stack frames in a report.
_MAX_FRAMES = 12


class Step(NamedTuple):
    """Step of a run, for reports.

    Attributes:
        run: the name of the run, such as "fit".
        number: the number of the step, from 1 on.
        epoch: the number of the epoch, from 1 on; None if there are none.
    """

    run: str
    number: int
    epoch: int | None = None

    def __str__(self) -> str:
        epoch = "" if self.epoch is None else f"epoch {self.epoch} of "
        return f"in step {self.number} of {epoch}{self.run}"


class Entry(NamedTuple):
    """Call of a collective or of a point-to-point operation.

    Attributes:
        number: the sequence number of the collective in its group; 0 for `send` and
            `receive`.
        operation: the method.
        name: a label, such as a layer's path; see `named`.
        nbytes: the size of the buffer that is filled or sent; -1 if it is unknown.
        peer: the other rank of `send` and `receive`.
        step: the step in which it is called, if any; as text from another rank.
        start_time: the start, as `time.monotonic`.
    """

    number: int
    operation: str
    name: str
    nbytes: int
    peer: int | None
    step: Step | str | None
    start_time: float

    def __str__(self) -> str:
        text = self.operation
        text += f" of {self.nbytes:,} bytes" if self.nbytes >= 0 else ""
        text += "" if self.peer is None else f", rank {self.peer}"
        text += f", for {self.name}" if self.name else ""
        text += f", {self.step}" if self.step else ""
        return f"collective {self.number} ({text})" if self.number else text

    def to_json(self) -> list[Any]:
        """Return the entry as JSON data, with the elapsed seconds."""
        *fields, step, start_time = self
        return [*fields, str(step or ""), time.monotonic() - start_time]


# The current step of this process, which its threads share.
_steps: list[Step] = []


def begin_step(step: Step) -> None:
    """Record the step that this process begins."""
    _steps[:] = [step]


@contextmanager
def steps() -> Iterator[None]:
    """Return a context of steps; after it, the step before it is current again."""
    outer_steps = _steps[:]
    try:
        yield
    finally:
        _steps[:] = outer_steps


class _Names(threading.local):
    current = ""


_names = _Names()


class named:
    """Context manager that labels collectives, for example with a layer's path.

    Example:
        >>> from toolkit import comm
        >>> with comm.named("gradients of dense_1"):
        ...     comm.world().barrier()
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        self._outer_name, _names.current = _names.current, self._name

    def __exit__(self, *_: object) -> None:
        _names.current = self._outer_name


class GroupRecord:
    """Calls of one group: the current one and earlier ones.

    Args:
        key: the name of the group, equal on all of its ranks.
        members: its ranks, as world ranks.
        check: called before each call; it can raise.

    Attributes:
        is_of_device: whether a device runs the calls.
        is_concurrent: whether another thread makes the calls, at any time.
        lost_rank: a lost rank for which the device waits.
    """

    def __init__(
        self,
        key: str,
        members: Sequence[int],
        check: Callable[[], None] = lambda: None,
        is_of_device: bool = False,
    ) -> None:
        self.key = key
        self.is_of_device = is_of_device
        self.is_concurrent = False
        self.lost_rank: int | None = None
        self._check = check
        self.members = list(members)
        self.count = 0
        self.current: Entry | None = None
        self.recent: deque[Entry] = deque(maxlen=16)
        self.last_exit_time = time.monotonic()
        self.thread = threading.main_thread().ident

    def record_call(
        self, operation: str, nbytes: int, peer: int | None = None
    ) -> GroupRecord:
        """Record a call; used as `with record.record_call(...)`."""
        self._check()
        if peer is None:
            self.count += 1
        number = self.count if peer is None else 0
        return self._begin(number, operation, _names.current, nbytes, peer)

    def record_wait(self, operation: str, name: str) -> GroupRecord:
        """Record a wait for the collectives up to `count`, which a device runs."""
        return self._begin(self.count, operation, name, -1, None)

    def _begin(
        self, number: int, operation: str, name: str, nbytes: int, peer: int | None
    ) -> GroupRecord:
        self.thread = threading.get_ident()
        step = _steps[0] if _steps else None
        self.current = Entry(
            number, operation, name, nbytes, peer, step, time.monotonic()
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
            if isinstance(error, CommunicationError) or (
                isinstance(error, ToolkitError) and error.from_rank is not None
            ):
                error.args = (f"{error}; this rank was in {self.current}",)
        self.current = None
        self.last_exit_time = time.monotonic()

    def status(self) -> dict[str, Any]:
        """Return the status for other ranks, as JSON data."""
        current, last = self.current, self.recent[-1] if self.recent else None
        return {
            "count": self.count,
            "current": current.to_json() if current else None,
            "last": last.to_json() if last else None,
            "left": time.monotonic() - self.last_exit_time,
            "stack": format_stack(self.thread),
        }


def parse_entry(fields: Sequence[Any]) -> Entry:
    """Return the entry from JSON data of another rank."""
    number, operation, name, nbytes, peer, step, seconds = fields
    return Entry(
        int(number),
        str(operation),
        str(name),
        int(nbytes),
        None if peer is None else int(peer),
        str(step),
        time.monotonic() - float(seconds),
    )


def format_stack(thread: int | None) -> list[str]:
    """Return the stack of a thread as traceback lines, outermost first."""
    frame = sys._current_frames().get(thread or 0)
    if frame is None:
        return []
    frames = list(traceback.extract_stack(frame))
    launcher_frames = [
        i for i, summary in enumerate(frames) if "runpy" in summary.filename
    ]
    frames = frames[max(launcher_frames, default=-1) + 1 :]
    innermost = frames[-_MAX_FRAMES:]
    # The line of the script, which may be further out.
    user_frames = [x for x in frames if is_user_file(x.filename)]
    first = [x for x in user_frames[-1:] if x not in innermost]
    lines = traceback.format_list([*first, *innermost])
    return [line.rstrip() for entry in lines for line in entry.splitlines()]
