"""Dynamic batching: waiting requests are computed together.

All code runs in the thread of the server's event loop, except for the computation of
batches.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread
from typing import Any

from toolkit.errors import OutOfRangeError
from toolkit.serving.limits import check_count, check_seconds
from toolkit.serving.messages import RequestError
from toolkit.serving.metrics import ModelMetrics
from toolkit.serving.servable import Buffers, Servable
from toolkit.serving.threads import NAME

_log = logging.getLogger("toolkit.serving")

# Additional seconds for a shutdown after the request timeout.
GRACE = 0.5


@dataclass(frozen=True)
class Batching:
    """Options of dynamic batching.

    Args:
        size: the maximum number of rows in a batch.
        wait: the seconds that a batch waits for more requests, if a worker is free.
        workers: the number of batches computed in parallel, each in a thread.
        queue: the maximum number of waiting requests; more get status 429.
        timeout: the seconds until a request gets status 504.
        one_size: whether all batches are padded to `size`.

    Raises:
        ArgumentError: a value is invalid.
    """

    size: int = 32
    wait: float = 0.0
    workers: int = 1
    queue: int = 1024
    timeout: float = 30.0
    one_size: bool = False

    def __post_init__(self) -> None:
        for name, least in (("size", 1), ("workers", 1), ("queue", 1)):
            check_count("Batching", name, getattr(self, name), least)
        check_seconds("Batching", "wait", self.wait, or_zero=True)
        check_seconds("Batching", "timeout", self.timeout)


class Item:
    """Tensors of one request, and the callback for its outputs.

    Args:
        arrays: one array for each input.
        rows: the length of their first axis.
        seconds: the timeout.
        done: a callback that is called once with the outputs or the error.
        most: the maximum size of the outputs in bytes; None means no limit.
    """

    __slots__ = (
        *("arrays", "batcher", "deadline", "done", "key", "most", "rows", "seconds"),
        "since",
    )

    def __init__(
        self,
        arrays: Sequence[Any],
        rows: int,
        seconds: float | None,
        done: Callable[[list[Any] | RequestError], None],
        most: int | None = None,
    ) -> None:
        self.arrays = arrays
        self.rows = rows
        self.seconds = seconds
        self.most = most
        self.done: Callable[[list[Any] | RequestError], None] | None = done
        self.key: Any = None
        self.batcher: Batcher | None = None
        self.since = self.deadline = 0.0

    def cancel(self) -> None:
        """Remove the request from the queue, because the client has disconnected."""
        self.done = None
        if self.batcher is not None:
            self.batcher.remove(self)

    def finish(self, result: list[Any] | RequestError) -> None:
        """Pass the result to the callback, unless the request was cancelled."""
        done, self.done = self.done, None
        if done is not None:
            done(result)

    def check(self, nbytes: int) -> None:
        """Raise an error unless the computation should continue.

        Raises:
            RequestError: the request was cancelled, or its outputs exceed the limit.
        """
        if self.done is None:
            raise _late()
        if self.most is not None and nbytes > self.most:
            raise RequestError(413, f"expected an answer of <= {self.most} bytes")


class Batcher:
    """Queue and worker threads of one version of a model.

    Args:
        servable: the servable that computes batches.
        options: the batching options.
        metrics: the metrics to update.
        loop: the event loop; all methods are called in its thread.
    """

    def __init__(
        self,
        servable: Servable,
        options: Batching,
        metrics: ModelMetrics,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.servable, self.options, self.metrics = servable, options, metrics
        self.loop = loop
        # Waiting requests by their extents after the batch axis, in arrival order.
        # No queue is empty.
        self._waiting: dict[Any, deque[Item]] = {}
        self._count = 0  # number of waiting items
        self._running: list[list[Item]] = []
        self._free = options.workers
        self._inline_rows = servable.quick_rows if options.workers == 1 else 0
        self._is_due = False  # whether a call of `_pump` is scheduled
        self._expiry: asyncio.TimerHandle | None = None
        self._wait: asyncio.TimerHandle | None = None
        self._idle: asyncio.Future[None] | None = None
        self._buffers: Buffers = {}
        self._jobs: SimpleQueue[list[Item] | None] = SimpleQueue()
        self._threads: list[Thread] = []

    @property
    def waiting(self) -> int:
        """The number of requests in the queue."""
        return self._count

    def add(self, item: Item) -> None:
        """Add a request to the queue; it waits until a call of `begin`.

        Raises:
            RequestError: the queue is full.
        """
        if self._count >= self.options.queue:
            raise RequestError(
                429, "too many requests wait for this model", ("Retry-After", "1")
            )
        arrays = item.arrays
        if len(arrays) == 1:
            item.key = arrays[0].shape[1:]
        else:
            item.key = tuple([x.shape[1:] for x in arrays])
        item.batcher = self
        item.since = now = self.loop.time()
        seconds, most = item.seconds, self.options.timeout
        item.deadline = now + (most if seconds is None or seconds > most else seconds)
        queue = self._waiting.get(item.key)
        if queue is None:
            queue = self._waiting[item.key] = deque()
        queue.append(item)
        self._count += 1
        if self._expiry is None or item.deadline < self._expiry.when():
            self._expire_at(item.deadline)

    def begin(self, at_once: bool = False) -> None:
        """Compute waiting requests, after all received data is parsed or at once."""
        if at_once:
            self._pump()
        elif self._free and not self._is_due:
            self._is_due = True
            self.loop.call_soon(self._pump)

    def remove(self, item: Item) -> None:
        """Remove a request from the queue, if it is still in it."""
        queue = self._waiting.get(item.key)
        if queue is None or item not in queue:
            return
        queue.remove(item)
        self._count -= 1
        if not queue:
            del self._waiting[item.key]
        self._check_idle()

    async def close(self) -> None:
        """Compute all accepted requests, then stop the threads.

        A computation that exceeds the request timeout is left to its thread.
        """
        if self._count or self._running:
            self._idle = self.loop.create_future()
            self._pump()  # batches do not wait for more requests now
            await asyncio.wait((self._idle,), timeout=self.options.timeout + GRACE)
        for timer in (self._expiry, self._wait):
            if timer is not None:
                timer.cancel()
        for _ in self._threads:
            self._jobs.put(None)
        if not self._running:
            for thread in self._threads:
                await asyncio.to_thread(thread.join)

    # --- making batches ---------------------------------------------------------------

    def _pump(self) -> None:
        """Start batches while there are requests and free workers."""
        self._is_due = False
        while self._count and self._free:
            batch = self._take()
            if batch is None:  # the batch waits for more requests
                return
            if not batch:
                continue
            self._running.append(batch)
            if sum([x.rows for x in batch]) <= self._inline_rows:
                self._finish(batch, self._compute(batch, self._buffers))
                break  # received data is parsed first
            self._free -= 1
            if len(self._threads) < self.options.workers:
                self._start_thread()
            self._jobs.put(batch)
        if self._count:
            self.begin()
        self._check_idle()

    def _take(self) -> list[Item] | None:
        """Return the requests of the next batch, compatible with the oldest one."""
        waiting = self._waiting
        if len(waiting) == 1:
            ((key, queue),) = waiting.items()
        else:
            key = min(waiting, key=lambda key: waiting[key][0].since)
            queue = waiting[key]
        if self.options.wait and self._idle is None:
            ready_at = queue[0].since + self.options.wait
            rows = sum(item.rows for item in queue)
            if rows < self.servable.sizes[-1] and self.loop.time() < ready_at:
                if self._wait is not None:
                    self._wait.cancel()
                self._wait = self.loop.call_at(ready_at, self._pump)
                return None
        batch: list[Item] = []
        rows, most, now = 0, self.servable.sizes[-1], self.loop.time()
        if self.servable.takes_whole_batches:
            most = 0  # the first request is then computed alone
        while queue and (not batch or rows + queue[0].rows <= most):
            item = queue.popleft()
            self._count -= 1
            if item.deadline <= now:
                item.finish(_late())
                continue
            rows += item.rows
            batch.append(item)
        if not queue:
            del waiting[key]
        if batch:
            self.metrics.batch_rows.observe(rows)
        return batch

    def _start_thread(self) -> None:
        thread = Thread(
            target=self._work, name=f"{NAME} {len(self._threads)}", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        """Compute batches in a worker thread until a stop signal."""
        buffers: Buffers = {}
        while (batch := self._jobs.get()) is not None:
            found = self._compute(batch, buffers)
            try:
                self.loop.call_soon_threadsafe(self._finish_threaded, batch, found)
            except RuntimeError:  # the loop is closed: the server did not wait
                return

    def _finish_threaded(self, batch: list[Item], found: list[Any]) -> None:
        self._free += 1
        self._finish(batch, found)
        self._pump()

    def _finish(self, batch: list[Item], found: list[Any]) -> None:
        self._running.remove(batch)
        for item, result in zip(batch, found, strict=True):
            item.finish(result)
        self._check_idle()

    def _check_idle(self) -> None:
        """Notify a waiting `close` if no work is left."""
        if self._idle is None or self._count or self._running:
            return
        if not self._idle.done():
            self._idle.set_result(None)

    def _compute(self, batch: list[Item], buffers: Buffers) -> list[Any]:
        """Return the result for each request; an error affects only its request."""
        try:
            arrays = [item.arrays for item in batch]
            rows = [item.rows for item in batch]
            # Only a batch of one request can be split into several computations.
            check = batch[0].check if len(batch) == 1 else None
            return self.servable.compute(arrays, rows, buffers, check)
        except RequestError as error:
            return [error] * len(batch)
        except Exception as error:
            if len(batch) > 1:
                return [self._compute([item], buffers)[0] for item in batch]
            return [self._refusal(error)]

    def _refusal(self, error: Exception) -> RequestError:
        if isinstance(error, OutOfRangeError):
            return RequestError(400, "an index among the inputs is out of range")
        if isinstance(error, MemoryError):
            _log.error("%s: out of memory", self.metrics.name)
            return RequestError(503, "there is too little memory for this request")
        _log.error("%s: a batch failed", self.metrics.name, exc_info=error)
        return RequestError(500, "the model failed")

    # --- deadlines --------------------------------------------------------------------

    def _expire_at(self, deadline: float) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = self.loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        """Fail the requests whose timeout expired, in the queue or in a batch."""
        self._expiry = None
        now = self.loop.time()
        waiting = [item for queue in self._waiting.values() for item in queue]
        items = [*waiting, *(item for batch in self._running for item in batch)]
        left = [item for item in items if item.done is not None]
        for item in left:
            if item.deadline <= now:
                self.remove(item)
                item.finish(_late())
        later = [item.deadline for item in left if item.done is not None]
        if later:
            self._expire_at(min(later))


def _late() -> RequestError:
    return RequestError(504, "the answer was not there in time")
