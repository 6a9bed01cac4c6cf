"""Elements made by worker processes, for functions that keep Python itself busy.

A worker is a fresh Python. The function travels to it as a pickle, or by cloudpickle
what pickle cannot hold; elements travel through a pipe, and the arrays in them through
memory that both share. That memory has no name in the file system, so nothing of it can
be left behind, however a process ends.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, Pipe, wait
from time import perf_counter_ns
from typing import Any

from toolkit.data.dataset import Dataset
from toolkit.data.errors import name_of, note, place
from toolkit.data.shared_memory import Exchange
from toolkit.data.streams import Pass, Stream
from toolkit.data.tuning import Knob
from toolkit.errors import DatasetError, UnsupportedError

DEATHS = 3  # of workers at one element before it is given up


def packed(function: Callable[..., Any], stage: str) -> bytes:
    """A function for another process.

    Raises:
        UnsupportedError: neither pickle nor cloudpickle can hold it.
    """
    is_importable = getattr(function, "__module__", "__main__") != "__main__"
    if is_importable:
        try:
            return pickle.dumps(function)
        except (pickle.PicklingError, AttributeError, TypeError):
            pass
    try:
        import cloudpickle
    except ImportError as error:
        raise UnsupportedError(
            f"{stage}: {name_of(function)} cannot be sent to a worker process without "
            "cloudpickle (pip install 'toolkit[workers]'), because it cannot be "
            "imported from a module"
        ) from error
    try:
        return bytes(cloudpickle.dumps(function))
    except Exception as error:
        raise UnsupportedError(
            f"{stage}: {name_of(function)} cannot be sent to a worker process: {error}"
        ) from error


class Worker:
    """A process that makes elements, one after the other.

    Attributes:
        connection: readable when an element is ready, or the process has ended.
    """

    def __init__(self, function: bytes) -> None:
        self.connection, theirs = Pipe()
        self._exchange = Exchange()
        fds = (theirs.fileno(), *self._exchange.fds)
        command = [sys.executable, "-m", "toolkit.data.worker", *map(str, fds)]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        self.process = subprocess.Popen(command, pass_fds=fds, env=environment)
        theirs.close()
        self.connection.send_bytes(function)
        self.element: Any = None
        self.index = -1  # of the element in the making; -1: none

    def send(self, index: int, element: Any) -> None:
        """Have an element made."""
        self.index, self.element = index, element
        self.connection.send(self._exchange.put(0, element))

    def receive(self) -> tuple[bool, Any]:
        """(whether it was made, the element or the error)."""
        is_made, message = self.connection.recv()
        self.index, self.element = -1, None
        return is_made, self._exchange.get(1, message)

    def end(self) -> None:
        """Kill the process, if it still runs, and let go of what was shared."""
        self.process.kill()
        self.process.wait()
        self.connection.close()
        self._exchange.close()


class ProcessStream(Stream):
    """Elements that worker processes make, in the order of the source.

    A worker that dies is replaced, and its element made again.
    """

    def __init__(
        self,
        dataset: Dataset,
        here: Pass,
        parent: Stream,
        function: Callable[..., Any],
        workers: Knob,
        ordered: bool,
    ) -> None:
        super().__init__(dataset, here, parent)
        if sys.platform == "win32":
            raise UnsupportedError('map: workers="process" needs Linux or macOS')
        self._function = packed(function, dataset._name)
        free = here.run.options.processors
        self._count = min(workers.value, free) if workers.is_free else workers.value
        self._ordered = ordered
        self._base: Any = None  # a position of the source
        self._given = 0  # elements given out since then
        self._workers: list[Worker] = []
        self._deaths: dict[int, int] = {}
        self.stage.workers = self._count

    def state(self) -> Any:
        if not self._ordered:
            raise UnsupportedError(
                "get_state: the stage map gives out elements as they become ready "
                "(deterministic=False): there is no position to go back to"
            )
        return [self.parent.state() if self._base is None else self._base, self._given]

    def restore(self, state: Any) -> None:
        self._base, self._given = state
        self.parent.restore(self._base)

    def elements(self) -> Iterator[Any]:
        if self._base is None:
            self._base = self.parent.state()
        source = self.parent.skip(self._given) if self._given else iter(self.parent)
        self.here.run.at_close(self._end)
        self._workers = [Worker(self._function) for _ in range(self._count)]
        try:
            yield from self._made(source)
        finally:
            self._end()

    def _end(self) -> None:
        while self._workers:
            self._workers.pop().end()

    def _made(self, source: Iterator[Any]) -> Iterator[Any]:
        taken = self._given  # of the source
        order: deque[int] = deque()  # in the making or made, in their order
        made: dict[int, Any] = {}
        while True:
            for worker in self._workers:
                if worker.index < 0 and len(order) < 2 * self._count + 2:
                    element = next(source, self)
                    if element is self:
                        break
                    order.append(taken)
                    self._send(worker, taken, element)
                    taken += 1
            if not order:
                return
            self._collect(made)
            while made and (order[0] in made or not self._ordered):
                index = order[0] if self._ordered else next(iter(made))
                order.remove(index)
                self._given += 1
                yield self._checked(index, made.pop(index))

    def _checked(self, index: int, result: tuple[bool, Any]) -> Any:
        is_made, value = result
        if not is_made:
            where = place(self.dataset._name, index, None)
            note(value, f"{where}, in {self.dataset._detail()}")
            raise value
        return value

    def _collect(self, made: dict[int, Any]) -> None:
        """Wait for an element, and take all that are ready."""
        working = {w.connection: w for w in self._workers if w.index >= 0}
        start = perf_counter_ns()
        ready: list[Connection] = wait(list(working))  # type: ignore[assignment]
        self.stage.waited += perf_counter_ns() - start
        for connection in ready:
            worker = working[connection]
            index = worker.index
            try:
                made[index] = worker.receive()
            except (EOFError, OSError):
                self._replace(worker)

    def _send(self, worker: Worker, index: int, element: Any) -> None:
        try:
            worker.send(index, element)
        except OSError:
            self._replace(worker)

    def _replace(self, dead: Worker) -> None:
        """A new worker for one that has died, with its element."""
        index, element = dead.index, dead.element
        dead.end()
        self._deaths[index] = self._deaths.get(index, 0) + 1
        if self._deaths[index] >= DEATHS:
            raise DatasetError(
                f"map: {DEATHS} worker processes ended while {self.dataset._detail()} "
                f"made element {index:,}; the last was process {dead.process.pid}, "
                f"with exit code {dead.process.returncode}"
            )
        fresh = Worker(self._function)
        self._workers[self._workers.index(dead)] = fresh
        self._send(fresh, index, element)
