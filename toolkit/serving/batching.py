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
from toolkit.serving.threads import THREAD_NAME

_log = logging.getLogger("toolkit.serving")

# Additional seconds for a shutdown after the request timeout.
GRACE_SECONDS = 0.5


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

    Example:
        >>> from toolkit import serving
        >>> serving.Batching(size=16, wait=0.002).queue
        1024
    """

    size: int = 32
    wait: float = 0.0
    workers: int = 1
    queue: int = 1024
    timeout: float = 30.0
    one_size: bool = False

    def __post_init__(self) -> None:
        for name, minimum in (("size", 1), ("workers", 1), ("queue", 1)):
            check_count("Batching", name, getattr(self, name), minimum)
        check_seconds("Batching", "wait", self.wait, or_zero=True)
        check_seconds("Batching", "timeout", self.timeout)


class Item:
    """Tensors of one request, and the callback for its outputs.

    Args:
        arrays: one array for each input.
        rows: the length of their first axis.
        timeout: the seconds until the request fails.
        callback: a function that is called once with the outputs or the error.
        max_nbytes: the maximum size of the outputs in bytes; None means no limit.
    """

    __slots__ = (
        *(
            "arrays",
            "batcher",
            "deadline",
            "callback",
            "key",
            "max_nbytes",
            "rows",
            "timeout",
        ),
        "arrival_time",
    )

    def __init__(
        self,
        arrays: Sequence[Any],
        rows: int,
        timeout: float | None,
        callback: Callable[[list[Any] | RequestError], None],
        max_nbytes: int | None = None,
    ) -> None:
        self.arrays = arrays
        self.rows = rows
        self.timeout = timeout
        self.max_nbytes = max_nbytes
        self.callback: Callable[[list[Any] | RequestError], None] | None = callback
        self.key: Any = None
        self.batcher: Batcher | None = None
        self.arrival_time = self.deadline = 0.0

    def cancel(self) -> None:
        """Remove the request from the queue, because the client has disconnected."""
        self.callback = None
        if self.batcher is not None:
            self.batcher.remove(self)

    def finish(self, result: list[Any] | RequestError) -> None:
        """Pass the result to the callback, unless the request was cancelled."""
        callback, self.callback = self.callback, None
        if callback is not None:
            callback(result)

    def check(self, nbytes: int) -> None:
        """Raise an error unless the computation should continue.

        Raises:
            RequestError: the request was cancelled, or its outputs exceed the limit.
        """
        if self.callback is None:
            raise _timeout_error()
        if self.max_nbytes is not None and nbytes > self.max_nbytes:
            raise RequestError(
                413, f"expected a response of <= {self.max_nbytes} bytes"
            )


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
        self._queues: dict[Any, deque[Item]] = {}
        self._num_waiting = 0  # number of waiting items
        self._running_batches: list[list[Item]] = []
        self._num_free_workers = options.workers
        self._inline_rows = servable.quick_rows if options.workers == 1 else 0
        self._is_start_scheduled = False  # whether `_start_batches` is scheduled
        self._expiry_timer: asyncio.TimerHandle | None = None
        self._batch_timer: asyncio.TimerHandle | None = None
        self._idle_future: asyncio.Future[None] | None = None
        self._buffers: Buffers = {}
        self._jobs: SimpleQueue[list[Item] | None] = SimpleQueue()
        self._threads: list[Thread] = []

    @property
    def waiting(self) -> int:
        """The number of requests in the queue."""
        return self._num_waiting

    def add(self, item: Item) -> None:
        """Add a request to the queue; it waits for `schedule_batches`.

        Raises:
            RequestError: the queue is full.
        """
        if self._num_waiting >= self.options.queue:
            raise RequestError(
                429, "too many requests wait for this model", ("Retry-After", "1")
            )
        arrays = item.arrays
        if len(arrays) == 1:
            item.key = arrays[0].shape[1:]
        else:
            item.key = tuple([x.shape[1:] for x in arrays])
        item.batcher = self
        item.arrival_time = current_time = self.loop.time()
        timeout, maximum = item.timeout, self.options.timeout
        item.deadline = current_time + (
            maximum if timeout is None or timeout > maximum else timeout
        )
        queue = self._queues.get(item.key)
        if queue is None:
            queue = self._queues[item.key] = deque()
        queue.append(item)
        self._num_waiting += 1
        if self._expiry_timer is None or item.deadline < self._expiry_timer.when():
            self._expire_at(item.deadline)

    def schedule_batches(self, is_immediate: bool = False) -> None:
        """Compute waiting requests, after all received data is parsed or at once."""
        if is_immediate:
            self._start_batches()
        elif self._num_free_workers and not self._is_start_scheduled:
            self._is_start_scheduled = True
            self.loop.call_soon(self._start_batches)

    def remove(self, item: Item) -> None:
        """Remove a request from the queue, if it is still in it."""
        queue = self._queues.get(item.key)
        if queue is None or item not in queue:
            return
        queue.remove(item)
        self._num_waiting -= 1
        if not queue:
            del self._queues[item.key]
        self._check_idle()

    async def close(self) -> None:
        """Compute all accepted requests, then stop the threads.

        A computation that exceeds the request timeout is left to its thread.
        """
        if self._num_waiting or self._running_batches:
            self._idle_future = self.loop.create_future()
            self._start_batches()  # batches do not wait for more requests now
            await asyncio.wait(
                (self._idle_future,), timeout=self.options.timeout + GRACE_SECONDS
            )
        for timer in (self._expiry_timer, self._batch_timer):
            if timer is not None:
                timer.cancel()
        for _ in self._threads:
            self._jobs.put(None)
        if not self._running_batches:
            for thread in self._threads:
                await asyncio.to_thread(thread.join)

    # --- making batches ---------------------------------------------------------------

    def _start_batches(self) -> None:
        """Start batches while there are requests and free workers."""
        self._is_start_scheduled = False
        while self._num_waiting and self._num_free_workers:
            batch = self._take_batch()
            if batch is None:  # the batch waits for more requests
                return
            if not batch:
                continue
            self._running_batches.append(batch)
            if sum([x.rows for x in batch]) <= self._inline_rows:
                self._finish(batch, self._compute(batch, self._buffers))
                break  # received data is parsed first
            self._num_free_workers -= 1
            if len(self._threads) < self.options.workers:
                self._start_thread()
            self._jobs.put(batch)
        if self._num_waiting:
            self.schedule_batches()
        self._check_idle()

    def _take_batch(self) -> list[Item] | None:
        """Return the requests of the next batch, compatible with the oldest one."""
        queues = self._queues
        if len(queues) == 1:
            ((key, queue),) = queues.items()
        else:
            key = min(queues, key=lambda key: queues[key][0].arrival_time)
            queue = queues[key]
        if self.options.wait and self._idle_future is None:
            ready_at = queue[0].arrival_time + self.options.wait
            rows = sum(item.rows for item in queue)
            if rows < self.servable.sizes[-1] and self.loop.time() < ready_at:
                if self._batch_timer is not None:
                    self._batch_timer.cancel()
                self._batch_timer = self.loop.call_at(ready_at, self._start_batches)
                return None
        batch: list[Item] = []
        rows, max_rows, current_time = 0, self.servable.sizes[-1], self.loop.time()
        if self.servable.takes_whole_batches:
            max_rows = 0  # the first request is then computed alone
        while queue and (not batch or rows + queue[0].rows <= max_rows):
            item = queue.popleft()
            self._num_waiting -= 1
            if item.deadline <= current_time:
                item.finish(_timeout_error())
                continue
            rows += item.rows
            batch.append(item)
        if not queue:
            del queues[key]
        if batch:
            self.metrics.batch_rows.observe(rows)
        return batch

    def _start_thread(self) -> None:
        thread = Thread(
            target=self._run_worker,
            name=f"{THREAD_NAME} {len(self._threads)}",
            daemon=True,
        )
        self._threads.append(thread)
        thread.start()

    def _run_worker(self) -> None:
        """Compute batches in a worker thread until a stop signal."""
        buffers: Buffers = {}
        while (batch := self._jobs.get()) is not None:
            results = self._compute(batch, buffers)
            try:
                self.loop.call_soon_threadsafe(self._finish_threaded, batch, results)
            except RuntimeError:  # the loop is closed: the server did not wait
                return

    def _finish_threaded(self, batch: list[Item], results: list[Any]) -> None:
        self._num_free_workers += 1
        self._finish(batch, results)
        self._start_batches()

    def _finish(self, batch: list[Item], results: list[Any]) -> None:
        self._running_batches.remove(batch)
        for item, result in zip(batch, results, strict=True):
            item.finish(result)
        self._check_idle()

    def _check_idle(self) -> None:
        """Notify a waiting `close` if no work is left."""
        if self._idle_future is None or self._num_waiting or self._running_batches:
            return
        if not self._idle_future.done():
            self._idle_future.set_result(None)

    def _compute(self, batch: list[Item], buffers: Buffers) -> list[Any]:
        """Return the result for each request; an error affects only its request."""
        try:
            arrays = [item.arrays for item in batch]
            rows = [item.rows for item in batch]
            # Only a batch of one request can be split into several computations.
            check = batch[0].check if len(batch) == 1 else None
            return self.servable.compute(arrays, rows, buffers, check)
        except Exception as error:
            if len(batch) > 1:
                return [self._compute([item], buffers)[0] for item in batch]
            return [self._request_error(error)]

    def _request_error(self, error: Exception) -> RequestError:
        if isinstance(error, RequestError):
            return error
        if isinstance(error, OutOfRangeError):
            return RequestError(400, "an index among the inputs is out of range")
        if isinstance(error, MemoryError):
            _log.error("%s: out of memory", self.metrics.name)
            return RequestError(
                503, "the server has too little memory for this request"
            )
        _log.error("%s: a batch failed", self.metrics.name, exc_info=error)
        return RequestError(500, "the model failed")

    # --- deadlines --------------------------------------------------------------------

    def _expire_at(self, deadline: float) -> None:
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        self._expiry_timer = self.loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        """Fail the requests whose timeout expired, in the queue or in a batch."""
        self._expiry_timer = None
        current_time = self.loop.time()
        waiting = [item for queue in self._queues.values() for item in queue]
        items = [*waiting, *(item for batch in self._running_batches for item in batch)]
        active = [item for item in items if item.callback is not None]
        for item in active:
            if item.deadline <= current_time:
                self.remove(item)
                item.finish(_timeout_error())
        deadlines = [item.deadline for item in active if item.callback is not None]
        if deadlines:
            self._expire_at(min(deadlines))


def _timeout_error() -> RequestError:
    return RequestError(504, "the response was not ready in time")
