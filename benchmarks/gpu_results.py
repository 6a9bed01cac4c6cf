"""A plugin of pytest for runs on a GPU: parts of a run, results as they come.

GPU_RESULTS names the file that results are written to, GPU_PART the part of the tests
that is run, such as 2/8. After an error that ends all work on a device a worker process
ends too: another one takes its place, and the tests after it are not lost.
"""

import json
import os
from collections import Counter
from pathlib import Path
from time import monotonic

import gpu_rehearsal

# Characters of a failure that are kept, and seconds between two writings of the file.
MOST_WORDS, PAUSE = 1500, 2.0


class Results:
    """Counts of outcomes, and the failures in words."""

    def __init__(self, path):
        self.path, self.written = path, 0.0
        self.counts, self.failures = Counter(), {}

    def add(self, report):
        """Take in a report of a phase of a test."""
        is_result = report.when == "call" or report.outcome != "passed"
        if is_result:
            self.counts[report.outcome] += 1
        if report.failed:
            words = str(report.longrepr)
            self.failures.setdefault(report.nodeid, words[-MOST_WORDS:])
        if is_result and monotonic() - self.written > PAUSE:
            self.write()

    def write(self):
        """Replace the file."""
        self.written = monotonic()
        found = {"counts": dict(self.counts), "failures": self.failures}
        aside = self.path.with_suffix(".aside")
        aside.write_text(json.dumps(found, indent=1), encoding="utf-8")
        aside.replace(self.path)


class Reporter:
    """In the process that hears of all results."""

    def __init__(self, path):
        self.results = Results(Path(path))

    def pytest_runtest_logreport(self, report):
        self.results.add(report)

    def pytest_sessionfinish(self):
        self.results.write()


class Guard:
    """In a worker: end with a device on which nothing can be computed any more."""

    def pytest_runtest_logfinish(self):
        if is_broken():
            os._exit(3)


def is_broken():
    """Whether a kernel has failed in this process."""
    from toolkit.backends import registry

    backend = registry._backends.get("cupy")
    return backend is not None and backend.device.broken is not None


def pytest_configure(config):
    """Begin: in a worker with the guard, elsewhere with the results."""
    gpu_rehearsal.install()
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(Guard())
    elif path := os.environ.get("GPU_RESULTS"):
        config.pluginmanager.register(Reporter(path))


def pytest_collection_modifyitems(items):
    """Leave the part of the tests that is to run."""
    part = os.environ.get("GPU_PART")
    if part:
        number, count = map(int, part.split("/"))
        # Neighbours are alike: each part gets some of all.
        items[:] = items[number - 1 :: count]
