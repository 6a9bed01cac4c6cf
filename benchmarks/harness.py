"""One harness for the benchmarks: who answers a case how fast, beside the first.

Every candidate lives in a process of its own, and they take turns, so that a busy
moment of the machine falls on all. What is printed are medians of the runs and their
ratios to the first candidate; `--json` keeps every run and describes the machine.
A peer that cannot be imported is left out with a word; `--peer-python` names the
interpreter of an environment that has them.

    CASES = ("4x4", "256x256")
    CANDIDATES = (Candidate("toolkit", ...), Candidate("torch", ..., peer=True))
    main(__doc__, CASES, CANDIDATES)
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

SAMPLE = 0.02  # seconds that one run takes at least, by calling often enough
WARM_UP = 3  # calls before the first run
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
PACKAGES = ("toolkit", "numpy", "torch", "keras", "jax", "llvmlite", "mkl")


@dataclass(frozen=True)
class Candidate:
    """Something to measure.

    name: as it is printed.
    make: `make(case)` imports what it needs and returns the function to time, or a
        pair of it and of how often one call does the work; None leaves the case out.
    peer: whether it runs in the interpreter given by --peer-python.
    environment: variables for its process.
    """

    name: str
    make: Callable[[str], Any]
    peer: bool = False
    environment: dict[str, str] = field(default_factory=dict)


class Worker:
    """The process of a candidate: asked for a case, it answers with seconds."""

    def __init__(self, candidate: Candidate, options: argparse.Namespace) -> None:
        self.name = candidate.name
        python = candidate.peer and options.peer_python or sys.executable
        self.process = subprocess.Popen(
            [python, sys.argv[0], "--worker", candidate.name],
            env=os.environ | candidate.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, question: str) -> dict[str, Any]:
        """What the worker says: `{"seconds": ...}`, or `{"skipped": why}`."""
        assert self.process.stdin and self.process.stdout
        try:
            self.process.stdin.write(question + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return {"skipped": "its process ended"}
        answer = self.process.stdout.readline()
        return json.loads(answer) if answer else {"skipped": "its process ended"}

    def close(self) -> None:
        """Let the process end."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def serve(candidate: Candidate) -> None:
    """Answer questions until there are no more; runs in the candidate's process."""
    # Only answers go to the pipe, whatever else libraries may print.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    prepared: dict[str, Any] = {}
    for line in sys.stdin:
        question = line.rstrip("\n")
        if question == "python":
            answer = describe_python()
        else:
            try:
                if question not in prepared:
                    prepared[question] = prepare(candidate.make(question))
                answer = sample(*prepared[question])
            except ImportError as error:
                answer = {"skipped": f"not installed ({error})"}
        print(json.dumps(answer), file=answers, flush=True)


def prepare(made: Any) -> tuple[Any, int, int]:
    """(function, work per call, calls per run), after a warm-up."""
    call, work = made if isinstance(made, tuple) else (made, 1)
    if call is None:
        return None, 1, 1
    for _ in range(WARM_UP):
        call()
    calls = 1
    while (seconds := timed(call, calls)) < SAMPLE:
        calls *= max(2, int(SAMPLE / max(seconds, 1e-9)))
    return call, work, calls


def timed(call: Callable[[], Any], calls: int) -> float:
    """Seconds for so many calls."""
    start = perf_counter()
    for _ in range(calls):
        call()
    return perf_counter() - start


def sample(call: Any, work: int, calls: int) -> dict[str, Any]:
    """One run: seconds per unit of work."""
    if call is None:
        return {"skipped": "no answer to this case"}
    return {"seconds": timed(call, calls) / calls / work}


def describe_python() -> dict[str, Any]:
    """The interpreter and the packages that this process sees."""
    found = {name: find_spec(name) for name in PACKAGES}
    return {
        "python": platform.python_version(),
        "packages": {name: version(name) for name, spec in found.items() if spec},
    }


def version(package: str) -> str:
    """The version of an installed distribution, or a word for a mere checkout."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed, on the path"


def describe() -> dict[str, Any]:
    """The machine and the time."""
    cpu = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        models = [
            line.split(":", 1)[1].strip() for line in lines if "model name" in line
        ]
        cpu = models[0] if models else cpu
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def measure(
    workers: Sequence[Worker], cases: Sequence[str], runs: int
) -> list[dict[str, Any]]:
    """Run every case, the workers in turn; prints a table and returns its rows."""
    rows = []
    for case in cases:
        seconds: dict[str, list[float]] = {worker.name: [] for worker in workers}
        skipped: dict[str, str] = {}
        for _ in range(runs):
            for worker in workers:
                if worker.name in skipped:
                    continue
                answer = worker.ask(case)
                if "skipped" in answer:
                    skipped[worker.name] = answer["skipped"]
                else:
                    seconds[worker.name].append(answer["seconds"])
        medians = {name: median(found) for name, found in seconds.items() if found}
        first = next(iter(medians.values()), None)
        print(f"\n{case}")
        for name in seconds:
            if name in medians:
                ratio = medians[name] / first
                print(f"  {name:24} {medians[name] * 1e6:12.2f} us  {ratio:7.2f} x")
            else:
                print(f"  {name:24} left out: {skipped[name]}")
        rows.append({"case": case, "median": medians, "runs": seconds, **_if(skipped)})
    return rows


def _if(skipped: dict[str, str]) -> dict[str, Any]:
    return {"skipped": skipped} if skipped else {}


def save(path: str | None, rows: Any, **facts: Any) -> None:
    """Write the rows and the machine's description as JSON, if there is a path."""
    if path:
        record = {"script": Path(sys.argv[0]).name, "machine": describe(), **facts}
        Path(path).write_text(json.dumps({**record, "rows": rows}, indent=1), "utf-8")


def parser(description: str) -> argparse.ArgumentParser:
    """The options that all benchmarks have."""
    options = argparse.ArgumentParser(description=description.splitlines()[0])
    options.add_argument("--runs", type=int, default=15)
    options.add_argument("--json", metavar="PATH", help="where to keep every run")
    options.add_argument("--only", default="", help="cases whose name has this in it")
    options.add_argument(
        "--threads", type=int, default=1, help="of BLAS and OpenMP; 0: as they like"
    )
    options.add_argument("--peer-python", metavar="PATH", help="Python with the peers")
    options.add_argument("--worker", help=argparse.SUPPRESS)
    return options


def main(
    description: str, cases: Sequence[str], candidates: Sequence[Candidate]
) -> argparse.Namespace | None:
    """The whole of a benchmark script: measure, print, save.

    Returns:
        The options, or None in the process of a candidate.
    """
    options = parser(description).parse_args()
    if options.worker:
        serve(next(c for c in candidates if c.name == options.worker))
        return None
    if options.threads:
        os.environ.update(dict.fromkeys(THREADS, str(options.threads)))
    workers = [Worker(candidate, options) for candidate in candidates]
    try:
        chosen = [case for case in cases if options.only in case]
        rows = measure(workers, chosen, options.runs)
        pythons = {worker.name: worker.ask("python") for worker in workers}
    finally:
        for worker in workers:
            worker.close()
    save(options.json, rows, candidates=pythons, threads=options.threads)
    return options
