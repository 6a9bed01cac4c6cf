"""Server metrics in the Prometheus text format."""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate

# Seconds, from the time of a small model to a usual request timeout.
LATENCY_BOUNDS = (
    *(1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
ROW_BOUNDS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Histogram:
    """Histogram with cumulative buckets."""

    def __init__(self, bounds: Iterable[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def lines(self, name: str, labels: str) -> Iterator[str]:
        """Return its samples."""
        totals = list(accumulate(self.counts))
        for bound, total in zip((*self.bounds, "+Inf"), totals, strict=True):
            text = bound if isinstance(bound, str) else f"{bound:g}"
            yield f'{name}_bucket{{{labels},le="{text}"}} {total}'
        yield f"{name}_sum{{{labels}}} {self.sum:.9g}"
        yield f"{name}_count{{{labels}}} {totals[-1]}"


class ModelMetrics:
    """Metrics of one model, over all of its versions.

    Args:
        name: the name of the model.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.requests: dict[int, int] = {}  # number of requests by status
        self.latencies = Histogram(LATENCY_BOUNDS)
        self.batch_rows = Histogram(ROW_BOUNDS)
        self.reloads = {"success": 0, "failure": 0}
        # Called when the metrics are read.
        self.queue_length: Callable[[], int] = lambda: 0
        self.version: Callable[[], int] = lambda: 0

    def count_response(self, status: int, seconds: float) -> None:
        """Count a response to an inference request."""
        self.requests[status] = self.requests.get(status, 0) + 1
        self.latencies.observe(seconds)


class Metrics:
    """Metrics of a server.

    Attributes:
        models: the metrics of each model by name.
        unrouted_requests: the status counts of responses without a model.
        connections: a function that returns the number of connections.
    """

    def __init__(self) -> None:
        self.models: dict[str, ModelMetrics] = {}
        self.unrouted_requests: dict[int, int] = {}
        self.connections: Callable[[], int] = lambda: 0
        self._start_time = time.time()

    def count_response(self, status: int) -> None:
        """Count a response without a model, or to an invalid request."""
        self.unrouted_requests[status] = self.unrouted_requests.get(status, 0) + 1

    def text(self) -> bytes:
        """Return all metrics in the Prometheus text format, version 0.0.4."""
        return ("\n".join(self._lines()) + "\n").encode()

    def _lines(self) -> Iterator[str]:
        models = [
            (f'model="{_escape(m.name)}"', m) for _, m in sorted(self.models.items())
        ]
        name = "toolkit_requests_total"
        yield from _header_lines(
            name, "counter", "Answered requests by model and status."
        )
        for labels, model in models:
            for status, count in sorted(model.requests.items()):
                yield f'{name}{{{labels},code="{status}"}} {count}'
        for status, count in sorted(self.unrouted_requests.items()):
            yield f'{name}{{model="",code="{status}"}} {count}'
        name = "toolkit_request_duration_seconds"
        yield from _header_lines(
            name, "histogram", "Seconds from a request to its response."
        )
        for labels, model in models:
            yield from model.latencies.lines(name, labels)
        name = "toolkit_batch_rows"
        yield from _header_lines(name, "histogram", "Rows of each computed batch.")
        for labels, model in models:
            yield from model.batch_rows.lines(name, labels)
        name = "toolkit_queue_length"
        yield from _header_lines(name, "gauge", "Requests that wait for a batch.")
        for labels, model in models:
            yield f"{name}{{{labels}}} {model.queue_length()}"
        name = "toolkit_model_version"
        yield from _header_lines(name, "gauge", "The version that serves requests.")
        for labels, model in models:
            yield f"{name}{{{labels}}} {model.version()}"
        name = "toolkit_reloads_total"
        yield from _header_lines(name, "counter", "New versions of files, by result.")
        for labels, model in models:
            for result, count in model.reloads.items():
                yield f'{name}{{{labels},result="{result}"}} {count}'
        yield from self._process_lines()

    def _process_lines(self) -> Iterator[str]:
        yield from _header_lines("toolkit_connections", "gauge", "Open connections.")
        yield f"toolkit_connections {self.connections()}"
        times = os.times()
        name = "process_cpu_seconds_total"
        yield from _header_lines(
            name, "counter", "User and system time of the process."
        )
        yield f"{name} {times.user + times.system:.2f}"
        name = "process_start_time_seconds"
        yield from _header_lines(
            name, "gauge", "Start time of the process, in seconds since 1970."
        )
        yield f"{name} {self._start_time:.2f}"


def _header_lines(name: str, kind: str, text: str) -> tuple[str, str]:
    return f"# HELP {name} {text}", f"# TYPE {name} {kind}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
