"""Shared harness of the smaller benchmarks: times candidates on cases.

Every candidate runs in a separate process, and they alternate. The harness prints the
medians of the runs and their ratios to the first candidate; `--json` stores every run
and describes the machine. A peer that cannot be imported is skipped with a message.
`--peer-python` is the interpreter of an environment with the peers. `--before` is
another checkout, which alternates with the candidates that are not peers. Ratios of
pairs of runs show small differences, even if the speed of the machine varies.

    CASES = ("4x4", "256x256")
    CANDIDATES = (Candidate("toolkit", ...), Candidate("torch", ..., peer=True))
    main(__doc__, CASES, CANDIDATES)
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import Any

# At the end of the path: the peers' environments contain no toolkit. Scripts import the
# modules of other folders after this module.
sys.path.append(str(Path(__file__).resolve().parents[1]))
sys.path.append(str(Path(__file__).resolve().parent / "data"))
sys.path.append(str(Path(__file__).resolve().parent / "peers"))

from toolkit.bench.measure import Sample, repeat_call
from toolkit.bench.processes import (
    ENVIRONMENT_REQUEST,
    Outcome,
    Worker,
    WorkerCommand,
    interleave_samples,
    serve,
    thread_environment,
)
from toolkit.bench.suite import describe_machine

FOLDER = Path(__file__).resolve().parent
SAMPLE = 0.02  # minimum seconds of a run, reached by repeated calls
REST = 0.25  # seconds before a run: idle threads of other candidates spin for a while


@dataclass(frozen=True)
class Candidate:
    """Measured implementation.

    name: the printed name. make: `make(case)` imports its dependencies and returns the
    function to time, or a pair of it and the number of repetitions in one call; None
    skips the case. peer: whether it runs in the interpreter given by --peer-python.
    environment: variables for its process.
    """

    name: str
    make: Callable[[str], Any]
    peer: bool = False
    environment: dict[str, str] = field(default_factory=dict)

    def prepare(self, case: str) -> Sample | None:
        """Return the sampling function of a case, in the candidate's process."""
        run = self.make(case)
        if run is None:
            return None
        call, work = run if isinstance(run, tuple) else (run, 1)
        sample = repeat_call(call, SAMPLE)

        def rested() -> float:
            time.sleep(REST)
            call()  # refill the caches after the sleep
            return sample() / work

        return rested

    def entry(self, options: argparse.Namespace) -> WorkerCommand:
        """Return the command of its process."""
        python = self.peer and options.peer_python or sys.executable
        environment = thread_environment(options.threads) | self.environment
        return WorkerCommand((python, sys.argv[0], "--worker", self.name), environment)


def before_candidate(candidate: Candidate, checkout: str = "") -> Candidate:
    """Return the same candidate in another checkout."""
    path = {"PYTHONPATH": str(Path(checkout).resolve())}
    environment = candidate.environment | path
    return replace(candidate, name=before(candidate.name), environment=environment)


def before(name: str) -> str:
    """Return the name of a candidate of another checkout."""
    return f"{name}, before"


def print_case(case: str, outcome: Outcome) -> None:
    """Print the medians, their ratios to the first, and the skipped candidates."""
    medians = outcome.medians
    first = next(iter(medians.values()), None)
    print(f"\n{case}")
    for name in outcome.values:
        if name in medians:
            ratio = medians[name] / first
            print(f"  {name:24} {medians[name] * 1e6:12.2f} us  {ratio:7.2f} x")
        else:
            reason = outcome.skipped.get(name) or outcome.failed[name]
            print(f"  {name:24} left out: {reason}")
    for name, current in outcome.values.items():
        earlier = outcome.values.get(before(name), [])
        if len(current) == len(earlier) > 1:
            ratios = [new / old for new, old in zip(current, earlier, strict=True)]
            low, middle, high = quantiles(ratios, n=4)
            half = f"half of them {low:.3f} to {high:.3f}"
            print(f"  {name} / before: {middle:.3f}, {half}")


def measure(
    workers: dict[str, Worker], cases: Sequence[str], runs: int
) -> list[dict[str, Any]]:
    """Run every case, alternating the workers; print a table and return its rows."""
    rows = []
    for case in cases:
        asks = {name: partial(worker.query, case) for name, worker in workers.items()}
        outcome = interleave_samples(asks, runs)
        print_case(case, outcome)
        rows.append(outcome.row(case))
    return rows


def time_alternately(
    calls: dict[str, Callable[[], Any]],
    seconds: float,
    rounds: Callable[[float], int],
) -> dict[str, list[float]]:
    """Return samples of the CPU seconds of a call, for calls that alternate.

    Args:
        calls: the functions, by name, in this process.
        seconds: the minimum of a sample, reached by repeated calls.
        rounds: a function from the seconds of the slowest call to the sample count.
    """
    if not calls:
        return {}
    once = {name: cpu_seconds(call, 1) for name, call in calls.items()}
    counts = {}
    for name, call in calls.items():
        few = max(1, min(20, int(seconds / once[name])))
        once[name] = cpu_seconds(call, few)
        counts[name] = max(1, int(seconds / once[name]))
    samples: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for number in range(rounds(max(once.values(), default=0.0))):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            if counts[name] > 1:
                calls[name]()  # refill the caches after the other candidates
            samples[name].append(cpu_seconds(calls[name], counts[name]))
    return samples


def cpu_seconds(call: Callable[[], Any], count: int) -> float:
    """Return the CPU seconds of one of several calls."""
    start = time.process_time()
    for _ in range(count):
        call()
    return max((time.process_time() - start) / count, 1e-8)


def save(path: str | None, rows: Any, **facts: Any) -> None:
    """Write the rows and the machine's description as JSON, if path is not None."""
    if path:
        script = Path(sys.argv[0]).resolve().relative_to(FOLDER).as_posix()
        record = {"script": script, "machine": describe_machine(), **facts}
        Path(path).write_text(json.dumps({**record, "rows": rows}, indent=1), "utf-8")


def parser(description: str) -> argparse.ArgumentParser:
    """Return a parser with the common options of these benchmarks."""
    options = argparse.ArgumentParser(description=description.splitlines()[0])
    options.add_argument("--runs", type=int, default=15)
    options.add_argument("--json", metavar="PATH", help="where to keep every run")
    options.add_argument("--only", default="", help="cases whose name has this in it")
    options.add_argument(
        "--threads", type=int, default=1, help="of each process; 0: as they like"
    )
    options.add_argument("--peer-python", metavar="PATH", help="Python with the peers")
    options.add_argument("--before", metavar="PATH", help="a checkout to compare with")
    options.add_argument("--worker", help=argparse.SUPPRESS)
    return options


def main(
    description: str, cases: Sequence[str], candidates: Sequence[Candidate]
) -> argparse.Namespace | None:
    """Run a benchmark script: measure, print, save.

    Returns:
        The options, or None in the process of a candidate.
    """
    options = parser(description).parse_args()
    if options.worker:
        versions = [*candidates, *map(before_candidate, candidates)]
        serve(next(c for c in versions if c.name == options.worker).prepare)
        return None
    if options.before:
        own_candidates = [c for c in candidates if not c.peer]
        candidates = [
            *candidates,
            *(before_candidate(c, options.before) for c in own_candidates),
        ]
    with ExitStack() as stack:
        workers = {
            candidate.name: stack.enter_context(
                closing(Worker(candidate.entry(options)))
            )
            for candidate in candidates
        }
        selected = [case for case in cases if options.only in case]
        rows = measure(workers, selected, options.runs)
        about = {
            name: worker.query(ENVIRONMENT_REQUEST) for name, worker in workers.items()
        }
    peers = [candidate.name for candidate in candidates if candidate.peer]
    save(options.json, rows, candidates=about, peers=peers, threads=options.threads)
    return options
