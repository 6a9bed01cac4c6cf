"""Non-blocking NCCL communicator: calls, polling, failures and shutdown."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any, TypeAlias

from toolkit.comm.nccl_library import SUCCESS, Library, configuration
from toolkit.errors import CommunicationError, StalledError

# An NCCL function, and its arguments before the communicator and the stream.
Call: TypeAlias = tuple[str, tuple[int, ...]]
# Seconds between two polls: initial and maximum.
MIN_PAUSE, MAX_PAUSE = 20e-6, 2e-3


class Communicator:
    """NCCL communicator of one rank.

    Args:
        library: the library that created it.
        pointer: the communicator, or a cell that the library fills later.
        timeout: seconds until a wait for other ranks times out.
        check: called during waits; it raises an error if another rank is lost, which
            NCCL may not detect.

    Attributes:
        failure: the reason why it is unusable; "" while it is usable.
    """

    def __init__(
        self,
        library: Library,
        pointer: Any,
        timeout: float,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.library = library
        self.timeout = timeout
        self.failure = ""
        self.check = check
        self._pointer: Any = pointer
        # NCCL allows one thread at a time in a communicator, and none during an abort.
        self._lock = Lock()
        self._is_closed = False

    def enqueue(self, operation: str, calls: Sequence[Call], stream: int) -> None:
        """Enqueue calls on a stream, in one group call if there are several."""
        with self._lock:
            self.check_usable(operation)
            if not calls:
                return
            try:
                self._enqueue(calls, stream)
            except CommunicationError as error:
                self.failure = f"{operation}: {error}"
                raise
        self.wait_for_pending(operation)

    def _enqueue(self, calls: Sequence[Call], stream: int) -> None:
        is_group = len(calls) > 1
        if is_group:
            self.library.call("GroupStart")
        try:
            for name, arguments in calls:
                self.library.call(name, *arguments, self._pointer, stream)
        except CommunicationError:
            with suppress(CommunicationError):  # it repeats the same error
                if is_group:
                    self.library.call("GroupEnd")
            raise
        if is_group:
            self.library.call("GroupEnd")

    def query(self, name: str) -> int:
        """Return the value of nccl<name> for the communicator."""
        value = ctypes.c_int()
        with self._lock:
            self.check_usable(name)
            self.library.call(name, self._pointer, ctypes.byref(value))
        return value.value

    def split(self, color: int, key: int) -> Communicator:
        """Split the communicator: ranks with the same color, ordered by key."""
        pointer = ctypes.c_void_p()
        # NCCL fills the cell when it is done, and reads the configuration before that.
        options = configuration(self.library.version, blocking=0)
        with self._lock:
            self.check_usable("split")
            arguments = ctypes.byref(pointer), ctypes.byref(options)
            self.library.call("CommSplit", self._pointer, color, key, *arguments)
        self.wait_for_pending("split")
        communicator = Communicator(self.library, pointer, self.timeout, self.check)
        communicator.wait_for_pending("split")
        return communicator

    def wait_for_pending(self, operation: str) -> None:
        """Wait until pending operations are complete or enqueued on the stream."""
        self.wait(lambda: self.poll(operation) == SUCCESS, operation)

    def poll(self, operation: str) -> int:
        """Return the status of pending operations: `SUCCESS` or `IN_PROGRESS`.

        Raises:
            CommunicationError: an operation failed on this rank or another.
        """
        status = ctypes.c_int()
        with self._lock:
            self.check_usable(operation)
            status_pointer = ctypes.byref(status)
            self.library.call("CommGetAsyncError", self._pointer, status_pointer)
            try:
                return self.library.check(status.value, f" {operation}")
            except CommunicationError as error:
                self.failure = str(error)
                raise

    def wait(self, is_done: Callable[[], bool], operation: str) -> None:
        """Wait until a function returns True.

        Raises:
            StalledError: the wait exceeds `timeout`.
        """
        deadline, pause = time.monotonic() + self.timeout, MIN_PAUSE
        while not is_done():
            self.check()
            if time.monotonic() > deadline:
                self.failure = (
                    f"nccl {operation}: not done after {self.timeout:g} s; another "
                    "rank is late, lost, or in another call"
                )
                raise StalledError(self.failure)
            time.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE)

    def check_usable(self, operation: str) -> None:
        """Raise an error if it was destroyed, or has failed."""
        if self._is_closed:
            raise CommunicationError(
                f"nccl {operation}: the communicator was destroyed"
            )
        if self.failure:
            raise CommunicationError(
                f"nccl {operation}: the communicator failed earlier "
                f"({self.failure}); abort it on every rank, and connect again"
            )

    def abort(self) -> None:
        """Abort all operations and free it; another waiting thread gets an error."""
        with self._lock:
            is_closed, self._is_closed = self._is_closed, True
            if not is_closed and self._pointer:
                self.library.call("CommAbort", self._pointer)

    def close(self) -> None:
        """Finish all operations and free it; abort it if it has failed."""
        if self._is_closed:
            return
        if self.failure:
            self.abort()
            return
        with self._lock:
            self.library.call("CommFinalize", self._pointer)
        try:
            self.wait_for_pending("close")
        except CommunicationError:
            self.abort()
            raise
        with self._lock:
            self._is_closed = True
            self.library.call("CommDestroy", self._pointer)
