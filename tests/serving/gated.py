"""A servable that waits for permission, and requests to its batcher."""

import asyncio
import threading

import numpy as np

from toolkit.errors import OutOfRangeError
from toolkit.serving import Batching, Servable, TensorSpec
from toolkit.serving.batching import Batcher, Item
from toolkit.serving.metrics import ModelMetrics


class Gated(Servable):
    """A servable that doubles its inputs after permission and records its batches."""

    inputs = (TensorSpec("x", "float32", (None, None)),)
    outputs = (TensorSpec("y", "float32", (None, None)),)

    def __init__(self, sizes=(1, 2, 4), is_open=False):
        super().__init__(sizes)
        self.batches, self.aligned = [], set()
        self.started, self.gate = threading.Semaphore(0), threading.Event()
        if is_open:
            self.gate.set()

    def warm(self):
        pass

    def run(self, arrays):
        (x,) = arrays
        self.batches.append(x.copy())
        self.aligned.add(x.flags.aligned)
        self.started.release()
        assert self.gate.wait(30)
        if (x < 0).any():
            raise OutOfRangeError("x is below 0")
        if np.isnan(x).any():
            raise ZeroDivisionError("/secret/path")
        return [x * 2]


class BatcherClient:
    """Requests of one row to a Batcher."""

    def __init__(self, servable, **options):
        self.servable = servable
        metrics = ModelMetrics("m")
        loop = asyncio.get_running_loop()
        self.batcher = Batcher(servable, Batching(**options), metrics, loop)

    def ask(self, *values, width=1, seconds=None, at_once=False):
        future = asyncio.get_running_loop().create_future()
        x = np.repeat(np.array(values, "float32")[:, None], width, axis=1)
        item = Item([x], len(x), seconds, future.set_result)
        self.batcher.add(item)
        self.batcher.schedule_batches(at_once)
        future.item = item
        return future

    async def started(self):
        await asyncio.to_thread(self.servable.started.acquire)


def values(result):
    return result[0][:, 0].tolist()
