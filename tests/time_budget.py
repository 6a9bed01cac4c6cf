"""A plugin of pytest: --time-budget S skips the tests that start after S seconds.

The summary names the number of skipped tests, because they prove nothing.
"""

from __future__ import annotations

import time

import pytest

REASON = "not run: the time budget is used up"


def pytest_addoption(parser):
    parser.addoption("--time-budget", type=float, help="seconds, for all tests")


def pytest_configure(config):
    config.stash[_START] = time.monotonic()


def pytest_runtest_setup(item):
    budget = item.config.getoption("--time-budget")
    if budget is not None and time.monotonic() - item.config.stash[_START] > budget:
        pytest.skip(REASON)


def pytest_terminal_summary(terminalreporter):
    skipped = terminalreporter.stats.get("skipped", ())
    late = [report for report in skipped if REASON in str(report.longrepr)]
    if late:
        terminalreporter.write_line(f"{len(late)} tests were {REASON}", yellow=True)


_START = pytest.StashKey[float]()
