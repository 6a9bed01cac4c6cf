"""Worker process that measures toolkit, for `toolkit bench`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from toolkit.bench.measure import KINDS
from toolkit.bench.processes import serve
from toolkit.bench.workloads import ALL

QUICK = "--quick"


def prepare(name: str) -> Callable[[], float]:
    """Return the function that takes a sample of a workload."""
    workload = ALL[name].shorten() if QUICK in sys.argv else ALL[name]
    return KINDS[workload.kind].prepare(workload, "toolkit")


def main(arguments: Sequence[str]) -> None:
    """Answer the requests on standard input; `--quick` shortens the workloads."""
    serve(prepare)
