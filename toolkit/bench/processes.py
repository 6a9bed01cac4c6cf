"""Worker processes that take samples, and their interleaved schedule."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from statistics import median
from typing import Any, Protocol

Answer = dict[str, Any]  # {"value": ...}, {"skipped": reason} or {"failed": reason}

ENVIRONMENT_REQUEST = "about"  # request for the interpreter and its packages
PACKAGES = (
    "toolkit keras tensorflow tensorflow_cpu torch jax numpy llvmlite mkl".split()
)
THREADS = (
    *("TOOLKIT_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
    *("MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"),
    "NPROC",  # read by XLA
)
CACHES = ("TOOLKIT_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "JAX_COMPILATION_CACHE_DIR")


def thread_environment(threads: int) -> dict[str, str]:
    """Return the variables that set the number of threads; 0 sets none."""
    return dict.fromkeys(THREADS, str(threads)) if threads else {}


@dataclass(frozen=True)
class WorkerCommand:
    """Command and additional environment of a process."""

    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


class SampleWorker(Protocol):
    """Interface of a worker that answers requests until it is closed."""

    def query(self, request: str) -> Answer: ...

    def close(self) -> None: ...


class Worker:
    """Persistent process that answers each request with one line of JSON."""

    def __init__(self, worker_command: WorkerCommand) -> None:
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        # As in an installed package, Python caches the bytecode of imported modules.
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name != "PYTHONDONTWRITEBYTECODE"
        }
        self._process = subprocess.Popen(
            worker_command.command,
            env={**inherited, **worker_command.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def query(self, request: str) -> Answer:
        """Return the answer of the process; if it has ended, its last output."""
        assert self._process.stdin and self._process.stdout
        try:
            self._process.stdin.write(request + "\n")
            self._process.stdin.flush()
            if answer := self._process.stdout.readline():
                return json.loads(answer)
        except OSError:  # a broken pipe
            pass
        return {"failed": f"its process ended: {self._last_error_line()}"}

    def _last_error_line(self) -> str:
        self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()
        return lines[-1] if lines else f"exit code {self._process.returncode}"

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin and self._process.stdout
        try:
            self._process.stdin.close()
        except OSError:  # a broken pipe
            pass
        self._process.wait()
        self._process.stdout.close()
        self._errors.close()


class FreshWorker:
    """New process for each request; one before the first fills the caches.

    cache: as in `toolkit.bench.measure.Kind`.
    """

    def __init__(self, worker_command: WorkerCommand, cache: str = "") -> None:
        self._worker_command = worker_command
        self._cache = cache
        self._folder = tempfile.TemporaryDirectory() if cache else None
        self._is_cache_filled = False

    def query(self, request: str) -> Answer:
        """Return the answer of a new process."""
        if self._cache and not self._is_cache_filled:
            self._query_new_process(request)
        self._is_cache_filled = True
        return self._query_new_process(request)

    def _query_new_process(self, request: str) -> Answer:
        if self._folder is None:
            return self._query_worker(request, self._worker_command)
        if self._cache == "warm":
            return self._query_worker(request, self._with_cache(self._folder.name))
        with tempfile.TemporaryDirectory() as empty:
            return self._query_worker(request, self._with_cache(empty))

    def _with_cache(self, folder: str) -> WorkerCommand:
        caches = dict.fromkeys(CACHES, folder)
        return WorkerCommand(
            self._worker_command.command, {**self._worker_command.environment, **caches}
        )

    def _query_worker(self, request: str, worker_command: WorkerCommand) -> Answer:
        worker = Worker(worker_command)
        try:
            return worker.query(request)
        finally:
            worker.close()

    def close(self) -> None:
        """Remove the cache."""
        if self._folder is not None:
            self._folder.cleanup()


@dataclass
class Outcome:
    """Values from several workers, or the reasons for missing values."""

    values: dict[str, list[float]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def medians(self) -> dict[str, float]:
        """Return the median of each worker with values."""
        return {name: median(values) for name, values in self.values.items() if values}

    def row(self, case: str) -> dict[str, Any]:
        """Return all data for JSON."""
        return {
            "case": case,
            "median": self.medians,
            "samples": self.values,
            "skipped": self.skipped,
            "failed": self.failed,
        }


def interleave_samples(
    queries: Mapping[str, Callable[[], Answer]], rounds: int
) -> Outcome:
    """Request one sample from each worker per round, to share system noise.

    Each round starts with another worker. A worker that fails is skipped later.
    """
    outcome = Outcome({name: [] for name in queries})
    names = list(queries)
    for round_index in range(rounds):
        start = round_index % len(names)
        for name in names[start:] + names[:start]:
            if name in outcome.skipped or name in outcome.failed:
                continue
            answer = queries[name]()
            if "value" in answer:
                outcome.values[name].append(answer["value"])
            elif "skipped" in answer:
                outcome.skipped[name] = answer["skipped"]
            else:
                outcome.failed[name] = answer["failed"]
    return outcome


def serve(prepare: Callable[[str], Callable[[], float] | None]) -> None:
    """Answer the requests on standard input, in the process of a Worker.

    prepare: a function from a request to a function that takes a sample, or None.
    """
    # Reserve the pipe for answers, because libraries can also print.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    samples: dict[str, Callable[[], float] | None] = {}
    for line in sys.stdin:
        request = line.rstrip("\n")
        answer = (
            describe_environment()
            if request == ENVIRONMENT_REQUEST
            else _answer(request, samples, prepare)
        )
        print(json.dumps(answer), file=answers, flush=True)


def _answer(request: str, samples: dict[str, Any], prepare: Any) -> Answer:
    try:
        if request not in samples:
            samples[request] = prepare(request)
        sample = samples[request]
        return {"value": sample()} if sample else {"skipped": "no answer to this case"}
    except ModuleNotFoundError as error:
        return {"skipped": f"not installed ({error})"}
    except Exception as error:  # any error: later requests continue
        traceback.print_exc()
        return {"failed": f"{type(error).__name__}: {error}"}


def describe_environment() -> Answer:
    """Return the interpreter and the installed packages of this process."""
    packages = {}
    for name in PACKAGES:
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {"python": platform.python_version(), "packages": packages}
