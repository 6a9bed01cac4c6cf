"""Tests of workers: they answer, isolate failures, and run in rotation."""

import os
import sys
from contextlib import closing

import pytest

from toolkit.bench.busy import busy_processes
from toolkit.bench.processes import (
    CACHES,
    ENVIRONMENT_REQUEST,
    THREADS,
    FreshWorker,
    Worker,
    WorkerCommand,
    interleave_samples,
    thread_environment,
)

SCRIPT = """
import os, sys
from toolkit.bench.processes import serve

def prepare(question):
    print("libraries may print")
    if question == "missing":
        import no_such_package
    if question == "wrong":
        raise ValueError("seven")
    if question == "end":
        print("last words", file=sys.stderr)
        os._exit(3)
    if question == "none":
        return None
    count = iter(range(10))
    return lambda: float(next(count)) + float(os.environ.get("OFFSET", 0))

serve(prepare)
"""


@pytest.fixture(autouse=True)
def add_benchmarks_to_path(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))


def entry(**environment):
    return WorkerCommand((sys.executable, "-c", SCRIPT), environment)


def test_worker_prepares_once_and_samples_each_time():
    with closing(Worker(entry(OFFSET="0.5"))) as worker:
        assert [worker.query("x") for _ in range(2)] == [{"value": 0.5}, {"value": 1.5}]
        assert worker.query("y") == {"value": 0.5}
        assert worker.query(ENVIRONMENT_REQUEST)["python"].startswith("3.")
        assert "numpy" in worker.query(ENVIRONMENT_REQUEST)["packages"]


def test_failures_are_answers():
    with closing(Worker(entry())) as worker:
        assert "no_such_package" in worker.query("missing")["skipped"]
        assert worker.query("none") == {"skipped": "no answer to this case"}
        assert worker.query("wrong") == {"failed": "ValueError: seven"}
        assert worker.query("x") == {"value": 0.0}
        for _ in range(2):
            assert worker.query("end") == {"failed": "its process ended: last words"}


def test_fresh_worker_starts_a_new_process():
    with closing(FreshWorker(entry())) as worker:
        assert [worker.query("x") for _ in range(2)] == [{"value": 0.0}] * 2


# A process that returns the number of files in its caches and adds one.
CACHE_SCRIPT = """
import os
from pathlib import Path
from toolkit.bench.processes import CACHES, serve

def prepare(question):
    folders = {os.environ[name] for name in CACHES}
    found = [len(list(Path(folder).iterdir())) for folder in folders]
    (Path(folders.pop()) / str(found[0])).touch()
    return lambda: found[0]

serve(prepare)
"""


@pytest.mark.parametrize("cache, expected", [("cold", [0, 0]), ("warm", [1, 2])])
def test_fresh_worker_has_a_cold_or_a_warm_cache(cache, expected):
    worker = FreshWorker(WorkerCommand((sys.executable, "-c", CACHE_SCRIPT)), cache)
    with closing(worker):
        assert [worker.query("x")["value"] for _ in range(2)] == expected


def test_rotation_skips_failed_workers():
    order = []

    def answer(name, answers):
        answers = iter(answers)

        def ask():
            order.append(name)
            return next(answers)

        return ask

    outcome = interleave_samples(
        {
            "a": answer("a", [{"value": 1.0}, {"value": 9.0}, {"value": 2.0}]),
            "b": answer("b", [{"skipped": "why"}]),
            "c": answer("c", [{"value": 5.0}, {"failed": "because"}]),
        },
        rounds=3,
    )
    assert "".join(order) == "abc" + "ca" + "a"
    assert outcome.medians == {"a": 2.0, "c": 5.0}
    assert outcome.skipped == {"b": "why"} and outcome.failed == {"c": "because"}
    assert outcome.row("case")["samples"]["a"] == [1.0, 9.0, 2.0]


def test_threads_are_set_for_every_library():
    assert thread_environment(0) == {}
    assert set(thread_environment(2)) == set(THREADS)
    assert set(thread_environment(2).values()) == {"2"}
    assert len(set(CACHES)) == 3


def test_busy_processes_run_while_their_context_is_active():
    with busy_processes(2) as processes:
        assert [process.poll() for process in processes] == [None, None]
    assert all(process.poll() is not None for process in processes)
