"""Errors of single ranks in operations that all ranks of a job run together.

A rank that leaves such an operation by an error would not make the calls for which the
other ranks wait. So it sends the error, and its position: the number of its calls of
each group. A rank that has made a later call, without an error at that position, raises
an error that names the rank. Errors of all ranks at one position have no effect.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from toolkit import errors
from toolkit.comm.side_channel import Request, Response
from toolkit.errors import CommunicationError, RankLostError, StalledError, ToolkitError

# Positions of earlier errors of this rank, about which other ranks can ask.
_MAX_POSITIONS = 64
# Seconds between two questions whether the other ranks have the same error.
_MIN_PAUSE, _MAX_PAUSE = 1e-3, 0.1

# Attribute of an error that was sent to the other ranks.
_IS_TOLD = "_is_told_to_other_ranks"
# Key of the number of errors in a position; the other keys are groups.
_ERRORS = ""

Position = Mapping[str, int]


class Failure(NamedTuple):
    """Error of a rank.

    Attributes:
        rank: the rank.
        name: the class of the error.
        text: its message.
        operation: the operation, such as "fit".
        position: the number of the calls of each group before it, and by `_ERRORS`
            of the earlier errors.
    """

    rank: int
    name: str
    text: str
    operation: str
    position: Position

    def __str__(self) -> str:
        text = f": {self.text}" if self.text else ""
        return f"rank {self.rank} raised {self.name}{text}"


def remote_error(failure: Failure) -> ToolkitError:
    """Return the error for the ranks that wait for a failed rank.

    It has the same class, if that is an error of this package, so that all ranks can
    handle it in the same way.
    """
    kind = getattr(errors, failure.name, None)
    if not (isinstance(kind, type) and issubclass(kind, ToolkitError)):
        kind = CommunicationError
    error: ToolkitError = kind(f"{failure}")
    error.from_rank = failure.rank
    return error


class Channel(Protocol):
    """Requests to other ranks: see `SideChannel`."""

    def send_requests(
        self, ranks: Sequence[int], request: Request
    ) -> dict[int, Response]: ...


class PeerFailures:
    """Errors of the ranks of a job, and their effect on this rank.

    Args:
        rank: this rank.
        size: the number of ranks.
        timeout: the maximum wait in seconds for an answer of the other ranks.
        position: a function that returns the current position of this rank.

    Attributes:
        channel: the connections to the other ranks.
        divergence: the error of another rank or of this one, after which the ranks are
            at different positions; or None.
    """

    def __init__(
        self, rank: int, size: int, timeout: float, position: Callable[[], Position]
    ) -> None:
        self.channel: Channel | None = None
        self.divergence: Failure | None = None
        self._rank = rank
        self._others = [other for other in range(size) if other != rank]
        self._timeout = timeout
        self._position = position
        self._lock = threading.Lock()
        self._num_errors = 0  # of this rank
        self._positions: list[Position] = []  # of these errors
        self._local: Failure | None = None  # not compared with other ranks yet
        self._remote: list[Failure] = []
        self._is_raised = False

    # --- the failed rank --------------------------------------------------------------

    @contextmanager
    def telling(self, operation: str) -> Iterator[None]:
        """Return a context of an operation of all ranks; its errors are sent to them.

        Args:
            operation: the name of the operation.
        """
        try:
            yield
        except (RankLostError, StalledError):
            raise  # the other ranks detect it, too
        except BaseException as error:
            if getattr(error, "from_rank", None) is None and self.divergence is None:
                self._tell(error, operation)
            raise

    def _tell(self, error: BaseException, operation: str) -> None:
        if _IS_TOLD in vars(error):
            return  # by an inner operation
        vars(error)[_IS_TOLD] = True
        text, name = str(error), type(error).__name__
        with self._lock:
            position = {**self._position(), _ERRORS: self._num_errors}
            failure = Failure(self._rank, name, text, operation, position)
            self._num_errors += 1
            self._positions.append(position)
            del self._positions[:-_MAX_POSITIONS]
            self._local = failure
        assert self.channel is not None
        self.channel.send_requests(
            self._others, {"ask": "failed", "failure": failure._asdict()}
        )

    def check(self) -> None:
        """Raise an error before a call if the ranks are at different positions.

        After an error of this rank, wait until the other ranks have it, too.
        """
        if self._local is not None:
            self._compare_with_others(self._local)
        if self.divergence is not None:
            self.raise_divergence()

    def _compare_with_others(self, failure: Failure) -> None:
        assert self.channel is not None
        request = {"ask": "position", "position": dict(failure.position)}
        deadline, pause = time.monotonic() + self._timeout, _MIN_PAUSE
        waits_for = self._others
        while waits_for and self.divergence is None:
            answers = self.channel.send_requests(waits_for, request)
            if "later" in answers.values():
                self._is_raised = True  # this rank has raised the error itself
                self.divergence = failure
                break
            # A lost rank is an error of the next call.
            waits_for = [x for x in waits_for if answers[x] in ("earlier", None)]
            if time.monotonic() > deadline:
                ranks = ", ".join(map(str, waits_for))
                raise StalledError(
                    f"{failure}, and has waited for {self._timeout:g} s for the same "
                    f"error of rank {ranks}"
                )
            if waits_for:
                time.sleep(pause)
                pause = min(2 * pause, _MAX_PAUSE)
        self._local = None

    def raise_divergence(self) -> None:
        """Raise the error of another rank; later, say that the job cannot continue."""
        failure = self.divergence
        if failure is None:  # it was forgotten
            return
        with self._lock:
            is_first, self._is_raised = not self._is_raised, True
        if is_first:
            raise remote_error(failure)
        error = CommunicationError(
            f"{failure} in {failure.operation}, and the other ranks did not, so the "
            "ranks do not make the same calls any more; start the job again"
        )
        error.from_rank = failure.rank
        raise error

    # --- the other ranks --------------------------------------------------------------

    def receive(self, failure: Failure) -> None:
        """Store the error of another rank."""
        with self._lock:
            self._remote.append(failure)

    def answer(self, position: Position) -> str:
        """Return the position of this rank, relative to that of another rank's error.

        It is "same" after an error of this rank at the position, "later" after a later
        call, or "earlier".
        """
        groups = position.keys()
        with self._lock:
            for local in self._positions:
                if all(local.get(x, 0) == position[x] for x in groups & local.keys()):
                    return "same"
            local = self._position()
        is_later = any(local[x] > position[x] for x in groups & local.keys())
        return "later" if is_later else "earlier"

    def update(self) -> None:
        """Find the error of another rank after which this rank cannot continue."""
        with self._lock:
            failures, self._remote = self._remote, []
        for failure in failures:
            answer = self.answer(failure.position)
            if answer == "later" and self.divergence is None:
                self.divergence = failure
            elif answer == "earlier":
                with self._lock:
                    self._remote.append(failure)

    def forget(self) -> None:
        """Forget all errors, at the end of the script."""
        with self._lock:
            self._local, self.divergence, self._remote = None, None, []
