"""pytest plugin for GPU runs: parts of the tests, and incremental results.

GPU_RESULTS is the result file. GPU_PART is the part of the tests to run, for example
2/8. After an error that ends all work on a device, the worker process exits. A new
worker replaces it, so that later tests still run.
"""

import json
import os
from collections import Counter
from pathlib import Path
from time import monotonic

import gpu_rehearsal

# Maximum characters of a failure, and minimum seconds between writes of the file.
MAX_WORDS, PAUSE = 1500, 2.0


class Results:
    """Counts of outcomes, and the texts of failures."""

    def __init__(self, path):
        self.path, self.written = path, 0.0
        self.counts, self.failures = Counter(), {}

    def add(self, report):
        """Add a report of a phase of a test."""
        is_result = report.when == "call" or report.outcome != "passed"
        if is_result:
            self.counts[report.outcome] += 1
        if report.failed:
            words = str(report.longrepr)
            self.failures.setdefault(report.nodeid, words[-MAX_WORDS:])
        if is_result and monotonic() - self.written > PAUSE:
            self.write()

    def write(self):
        """Replace the file."""
        self.written = monotonic()
        record = {"counts": dict(self.counts), "failures": self.failures}
        aside = self.path.with_suffix(".aside")
        aside.write_text(json.dumps(record, indent=1), encoding="utf-8")
        aside.replace(self.path)


class Reporter:
    """Plugin of the process that receives all results."""

    def __init__(self, path):
        self.results = Results(Path(path))

    def pytest_runtest_logreport(self, report):
        self.results.add(report)

    def pytest_sessionfinish(self):
        self.results.write()


class Guard:
    """Plugin of a worker: exit when the device is broken."""

    def pytest_runtest_logfinish(self):
        if is_broken():
            os._exit(3)


def is_broken():
    """Return whether a kernel has failed in this process."""
    from toolkit.backends import registry

    backend = registry._backends.get("cupy")
    return backend is not None and backend.device.broken is not None


def pytest_configure(config):
    """Register the guard in a worker, and the reporter elsewhere."""
    gpu_rehearsal.install()
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(Guard())
    elif path := os.environ.get("GPU_RESULTS"):
        config.pluginmanager.register(Reporter(path))


def pytest_collection_modifyitems(items):
    """Select the part of the tests to run."""
    part_text = os.environ.get("GPU_PART")
    if part_text:
        number, count = map(int, part_text.split("/"))
        # Adjacent tests are similar: each part gets some of all.
        items[:] = items[number - 1 :: count]
