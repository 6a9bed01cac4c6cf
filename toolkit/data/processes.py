"""Streams of elements from worker processes, for functions that hold the GIL.

A worker is a new Python process. The function is sent as a pickle, with cloudpickle if
necessary. Elements use a pipe, and their arrays use shared memory. The memory has no
name in the file system, so that no process can leak it. A worker ends when its pipe
closes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe, wait
from time import perf_counter, perf_counter_ns
from typing import Any, NamedTuple

from toolkit.data.batch_shards import ABSENT
from toolkit.data.dataset import Dataset
from toolkit.data.errors import add_location_note, describe_location
from toolkit.data.pickling import pickle_function
from toolkit.data.shared_memory import Exchange
from toolkit.data.streams import SKIPPED, ClosedError, PassContext, Stream
from toolkit.data.tuning import Knob
from toolkit.errors import DatasetError, UnsupportedError
from toolkit.processes import clean_environment, python_command

MAX_DEATHS = 3  # maximum number of worker deaths at one element
MAX_START_DEATHS = 10  # maximum number of consecutive worker deaths at startup


POSITION_INTERVAL = 0.05  # s: minimum time between recorded positions
START_KEY = -1  # key for worker deaths at startup


class Task(NamedTuple):
    """Element of the source that a worker receives.

    Attributes:
        number: its index.
        element: the element.
        origin: its origin, such as a file and a line.
    """

    number: int
    element: Any
    origin: str | None


class Worker:
    """Process that computes elements sequentially.

    Attributes:
        connection: readable when an element is ready, or when the process has ended.
        task: the current task, or None.
        has_started: whether the process has started and accepts elements.
    """

    def __init__(self, function: bytes, words: Sequence[int]) -> None:
        self.connection: Connection[Any, Any]
        self.connection, theirs = Pipe()
        self._exchange = Exchange()
        its_life, self._life = os.pipe()  # also closes when this process ends
        self.task: Task | None = None
        self.has_started: bool = False
        fds = (theirs.fileno(), its_life, *self._exchange.fds)
        try:
            # The separate process group protects workers from Ctrl-C in the terminal.
            self.process: subprocess.Popen[bytes] = subprocess.Popen(
                python_command(
                    f"{__package__}.worker:main",
                    *map(str, fds),
                    runs_user_code=True,
                    options=("-u",),
                ),
                pass_fds=fds,
                env=clean_environment(),
                stdin=subprocess.DEVNULL,
                process_group=0,
            )
        except BaseException:
            self._close()
            raise
        finally:
            theirs.close()
            os.close(its_life)
        with suppress(OSError):  # a dead worker: the first `send` reports it
            self.connection.send_bytes(function)
            self.connection.send(words)

    def send(self, task: Task) -> None:
        """Send an element to the process; raise OSError if the process is dead."""
        self.task = task
        self.connection.send((task.number, self._exchange.put(0, task.element)))

    def receive(self) -> tuple[bool, Any] | None:
        """Return (success, the element or the error); raise OSError as `send` does.

        The first message is None: the worker has started.
        """
        try:
            is_made, message = self.connection.recv()
        except EOFError as error:
            raise OSError("the process has ended") from error
        if not self.has_started:
            self.has_started = True
            return None
        self.task = None
        try:
            return is_made, self._exchange.get(1, message)
        except Exception as error:
            return False, error

    def end(self) -> None:
        """Kill the process if it still runs, and release its shared memory."""
        self.process.kill()
        self.process.wait()
        self._close()

    def _close(self) -> None:
        self.connection.close()
        self._exchange.close()
        life, self._life = self._life, -1
        if life >= 0:
            os.close(life)


class ProcessStream(Stream):
    """Stream of elements that worker processes compute, in source order.

    A dead worker is replaced, and its element is computed again.

    Args:
        function: the function to apply to each element.
        words: numbers that identify this pass, for random draws in the function.
        workers: the number of processes.
        ordered: whether to keep the order of the source.
    """

    def __init__(
        self,
        dataset: Dataset,
        context: PassContext,
        parent: Stream,
        function: Callable[..., Any],
        words: Sequence[int],
        workers: Knob,
        ordered: bool,
    ) -> None:
        super().__init__(dataset, context, parent)
        if sys.platform == "win32":
            raise UnsupportedError('map: workers="process" needs Linux or macOS')
        self._function, self._pass_key = pickle_function(function, dataset._name), words
        free = context.run.options.processors
        self._max_workers = (
            min(workers.value, free) if workers.is_free else workers.value
        )
        self._ordered = ordered
        if not ordered:
            context.run.unordered.append(dataset._name)
        self._base: Any = None  # a position of the source
        self._since = 0  # number of elements delivered since then
        self._delivered = 0  # total number of elements delivered
        self._recorded_positions: deque[tuple[int, Any]] = (
            deque()
        )  # later positions of the source
        self._next_note = 0.0
        self._workers: list[Worker] = []
        self._deaths: dict[int, int] = {}
        self._is_ended = False
        self._owner = os.getpid()
        # Guards the use of workers: the end of the pass waits for it. Reentrant,
        # because Python can collect the iterator of this pass in the thread that holds
        # the lock.
        self._using = threading.RLock()
        self.stage.workers = self._max_workers

    def state(self) -> Any:
        base = self.parent.state() if self._base is None else self._base
        return [base, self._since, self._delivered]

    def restore(self, state: Any) -> None:
        self._base, self._since, self._delivered = state
        self.parent.restore(self._base)

    def _note_position(self, pulled: int) -> None:
        """Record the source position periodically, to shorten a restore."""
        current_time = perf_counter()
        if self._ordered and current_time >= self._next_note:
            self._recorded_positions.append((pulled, self.parent.state()))
            self._next_note = (
                current_time + POSITION_INTERVAL + 100 * (perf_counter() - current_time)
            )

    def _count(self) -> None:
        """Count a delivered element."""
        self._delivered += 1
        self._since += 1
        while (
            self._recorded_positions
            and self._recorded_positions[0][0] <= self._delivered
        ):
            pulled, self._base = self._recorded_positions.popleft()
            self._since = self._delivered - pulled

    def elements(self) -> Iterator[Any]:
        if self._base is None:
            self._base = self.parent.state()
        source = self.parent.skip(self._since) if self._since else iter(self.parent)
        self.context.run.on_close(self._end)
        try:
            yield from self._iterate_results(source)
        finally:
            self._end()

    def _end(self) -> None:
        if os.getpid() != self._owner:  # after a fork: not our workers
            return
        self._is_ended = True
        for worker in tuple(self._workers):
            worker.process.kill()  # wakes the thread that waits for it
        with self._using:
            while self._workers:
                self._workers.pop().end()
        self.context.run.cancel_on_close(self._end)

    def _iterate_results(self, source: Iterator[Any]) -> Iterator[Any]:
        pulled = self._delivered  # number of elements taken from the source
        order: dict[int, Task] = {}  # in progress or complete, in source order
        results: dict[int, tuple[bool, Any]] = {}
        with self._using:
            while len(self._workers) < self._max_workers and not self._is_ended:
                self._workers.append(Worker(self._function, self._pass_key))
        while not self._is_ended:
            for slot in range(self._max_workers):
                if self._is_free(slot) and len(order) < 2 * self._max_workers + 2:
                    element = next(source, self)
                    if element is self:
                        break
                    order[pulled] = Task(pulled, element, self.parent.origin())
                    if element is ABSENT:
                        results[pulled] = True, ABSENT
                    else:
                        self._send(slot, order[pulled])
                    pulled += 1
                    self._note_position(pulled)
            if not order:
                return
            if next(iter(order)) not in results:
                self._collect(results)
            while results and (next(iter(order)) in results or not self._ordered):
                first = next(iter(order if self._ordered else results))
                self._count()
                value = self._checked(order.pop(first), *results.pop(first))
                if value is not SKIPPED:
                    yield value
        raise ClosedError(f"{self.dataset._name}: the pass is closed")

    def _checked(self, task: Task, is_made: bool, value: Any) -> Any:
        if is_made:
            return value
        stage = self.dataset
        if self.context.on_error is not None:
            self.context.on_error(value, stage._name)
            return SKIPPED
        add_location_note(
            value,
            describe_location(stage._name, task.number, task.origin, stage._detail()),
        )
        raise value

    def _is_free(self, slot: int) -> bool:
        with self._using:
            return not self._is_ended and self._workers[slot].task is None

    def _send(self, slot: int, task: Task) -> None:
        """Send an element to a worker, or to its replacement if it is dead."""
        with self._using:
            while not self._is_ended:
                try:
                    return self._workers[slot].send(task)
                except OSError:
                    self._replace(slot)
                except Exception as error:
                    stage = self.dataset
                    number, _, origin = task
                    add_location_note(
                        error,
                        describe_location(stage._name, number, origin, stage._detail()),
                    )
                    raise

    def _collect(self, results: dict[int, tuple[bool, Any]]) -> None:
        """Wait for an element, then take all that are ready."""
        with self._using:
            if self._is_ended:  # no workers are active: the wait would not end
                return
            working = {
                worker.connection: slot
                for slot, worker in enumerate(self._workers)
                if worker.task is not None
            }
            start = perf_counter_ns()
            ready: list[Connection] = wait(list(working))  # type: ignore[assignment]
            self.stage.waited += perf_counter_ns() - start
            for connection in ready:
                if self._is_ended:
                    return
                slot = working[connection]
                task = self._workers[slot].task
                assert task is not None
                try:
                    result = self._workers[slot].receive()
                except OSError:
                    self._replace(slot)
                    self._send(slot, task)
                    continue
                if result is None:
                    self._deaths.pop(START_KEY, None)
                else:
                    results[task.number] = result

    def _replace(self, slot: int) -> None:
        """Replace a dead worker; the number of retries for one element is limited."""
        dead = self._workers[slot]
        task = dead.task
        assert task is not None
        dead.end()
        key, limit = (
            (task.number, MAX_DEATHS)
            if dead.has_started
            else (START_KEY, MAX_START_DEATHS)
        )
        deaths = self._deaths[key] = self._deaths.get(key, 0) + 1
        if deaths >= limit:
            detail = self.dataset._detail()
            where = describe_location(self.dataset._name, task.number, task.origin)
            when = (
                f"while {detail} created it"
                if dead.has_started
                else "before they started"
            )
            raise DatasetError(
                f"{where}: {deaths} worker processes ended {when}; the last was "
                f"process {dead.process.pid}, with exit code {dead.process.returncode}"
            )
        self._workers[slot] = Worker(self._function, self._pass_key)
