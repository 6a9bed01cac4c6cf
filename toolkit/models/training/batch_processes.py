"""Child processes that prepare the batches of a `PyDataset`."""

from __future__ import annotations

import os
import pickle
import signal
import struct
import subprocess
import threading
from collections.abc import Callable, Sequence
from typing import IO, Any, NoReturn

from toolkit.data.pickling import picklable_error
from toolkit.errors import DatasetError
from toolkit.processes import (
    clean_environment,
    enter_user_code,
    import_main_module,
    python_command,
)

_LENGTH = struct.Struct("<Q")


class BatchProcesses:
    """Pool of processes with a copy of a data set. Leaving the context ends them.

    Args:
        dataset: a picklable data set.
    """

    def __init__(self, dataset: Any) -> None:
        self._content = pickle.dumps(dataset, 5)
        self._lock = threading.Lock()
        self._idle: list[_Process] = []
        self._all: list[_Process] = []

    def __enter__(self) -> BatchProcesses:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._all:
            process.end()

    def item(self, index: int) -> Any:
        """Return a batch that a process has prepared; thread-safe.

        Raises:
            DatasetError: if the process ended before the batch was ready.
        """
        process = self._acquire_process()
        try:
            is_ready, value = process.ask(index)
        except (EOFError, OSError) as error:
            process.end()
            raise DatasetError(
                f"PyDataset: the process that prepared batch {index} ended with exit "
                f"code {process.exit_code}"
            ) from error
        with self._lock:
            self._idle.append(process)
        if not is_ready:
            raise value
        return value

    def _acquire_process(self) -> _Process:
        with self._lock:
            if self._idle:
                return self._idle.pop()
            started = _Process(self._content)
            self._all.append(started)
            return started


class _Process:
    """One process, which prepares one batch at a time."""

    def __init__(self, content: bytes) -> None:
        command = python_command(f"{__name__}:serve", runs_user_code=True)
        self._process = subprocess.Popen(
            command,
            env=clean_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._content: bytes | None = content

    @property
    def exit_code(self) -> int:
        return self._process.returncode

    def ask(self, index: int) -> tuple[bool, Any]:
        """Request a batch; return whether it succeeded, and the batch or the error."""
        assert self._process.stdin is not None and self._process.stdout is not None
        if self._content is not None:
            _send(self._process.stdin, self._content)
            self._content = None
        _send(self._process.stdin, pickle.dumps(index))
        reply: tuple[bool, Any] = pickle.loads(_receive(self._process.stdout))
        return reply

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except OSError:
                pass  # the process has not read the rest


def _send(pipe: IO[bytes], content: bytes) -> None:
    pipe.write(_LENGTH.pack(len(content)))
    pipe.write(content)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> bytes:
    """Return the next message; raise EOFError if the other process has ended."""
    head = pipe.read(_LENGTH.size)
    if len(head) == _LENGTH.size:
        content = pipe.read(*_LENGTH.unpack(head))
        if len(content) == _LENGTH.unpack(head)[0]:
            return content
    raise EOFError("the other process has ended")


def serve(arguments: Sequence[str] = ()) -> None:
    """Serve batches in the child, from standard input to standard output.

    The data set's output goes to standard error.

    Args:
        arguments: have no effect.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the parent
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as devnull:
        os.dup2(devnull.fileno(), 0)
    os.dup2(2, 1)
    try:
        dataset = _loaded(_receive(requests))
        while True:
            index = pickle.loads(_receive(requests))
            _send(replies, _batch(dataset, index))
    except (EOFError, OSError):
        os._exit(0)  # the parent has ended


def _loaded(content: bytes) -> Callable[[int], Any]:
    """Return the method that prepares a batch; report an import error later."""
    try:
        enter_user_code()
        import_main_module()
        reply: Callable[[int], Any] = pickle.loads(content).__getitem__
        return reply
    except Exception as error:
        failure = error

    def fail(index: int) -> NoReturn:
        raise failure

    return fail


def _batch(prepare: Callable[[int], Any], index: int) -> bytes:
    try:
        return pickle.dumps((True, prepare(index)), 5)
    except Exception as error:
        return pickle.dumps((False, picklable_error(error)), 5)
