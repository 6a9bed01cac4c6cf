"""Tests that every pass ends after a fault, without a hang or leaked resources."""

import gc
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from toolkit.data import AUTOTUNE, Dataset, TextLineDataset

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="looks into /proc"
)


def slow(x):
    time.sleep(0.001)
    return x


def slow_square(x):
    time.sleep(0.002)
    return x * x


# --- leaked resources -----------------------------------------------------------------


def is_running(pid):
    """Return whether a process exists and is not a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def eventually(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)
    return condition()


def children():
    """Return the running processes that this process has started."""
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="utf-8") as file:
        pids = file.read().split()
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            pids += (task / "children").read_text().split()
    return {int(pid) for pid in pids if is_running(pid)}


def resources():
    """Return the threads, files, processes and shared memory of this process."""
    shared = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
    toolkit_names = {
        name for name in shared if "toolkit" in name
    }  # of other processes, too
    return (
        {t.name for t in threading.enumerate() if t.name.startswith("data-")},
        len(os.listdir("/proc/self/fd")),
        children(),
        toolkit_names,
    )


def resources_at_rest():
    """Return the resources after the threads of earlier tests have ended."""
    gc.collect()
    eventually(lambda: not resources()[0])
    return resources()


# --- killed workers -------------------------------------------------------------------


def kill_at_random(num_kills, seed):
    """Read all of a data set while its workers are killed at random moments."""
    rng, finished = random.Random(seed), threading.Event()
    count, killed, received = 100 + 60 * num_kills, 0, []
    dataset = Dataset.range(count).map(
        slow_square, num_parallel_calls=2, workers="process"
    )
    iterator = iter(dataset)
    stream = iterator._stream.parents[0]

    def kill():
        nonlocal killed
        previous = -1
        while killed < num_kills and not finished.wait(rng.expovariate(50)):
            if len(received) > previous:  # the next attempt reads another element
                previous = len(received)
                rng.choice(stream._workers).process.kill()
                killed += 1

    received.append(int(next(iterator)))
    timer = threading.Timer(120, iterator.close)  # a hang becomes a wrong result
    killer = threading.Thread(target=kill)
    timer.start(), killer.start()
    try:
        received.extend(map(int, iterator))
    finally:
        finished.set(), killer.join(), timer.cancel()
    assert received == [x * x for x in range(count)]
    return killed


def test_killed_workers_do_not_change_the_order():
    before = resources_at_rest()[2]
    assert kill_at_random(3, seed=0) >= 1
    assert children() == before


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_many_killed_workers_do_not_change_the_order(seed):
    before = resources_at_rest()[2]
    assert kill_at_random(20, seed) == 20
    assert children() == before


def test_element_that_always_kills_workers_is_named(tmp_path):
    path = tmp_path / "codes.txt"
    path.write_text("7\n")
    codes = TextLineDataset(path).map(int).map(os._exit, workers="process")
    with pytest.raises(RuntimeError, match=r"map, element 0.*process \d+.*code 7"):
        list(codes)


def test_killed_idle_worker_is_replaced():
    dataset = Dataset.range(9).map(np.square, num_parallel_calls=2, workers="process")
    iterator = iter(dataset)
    received = [int(next(iterator))]
    for worker in iterator._stream.parents[0]._workers:
        os.kill(worker.process.pid, signal.SIGKILL)
    assert received + [int(x) for x in iterator] == [x * x for x in range(9)]


# --- the end of a pass ----------------------------------------------------------------

THREADS = {"num_parallel_calls": 3}
PROCESSES = {"num_parallel_calls": 2, "workers": "process"}

CHAINS = {
    "map": lambda d: d.map(slow, **THREADS),
    "tuned map": lambda d: d.map(slow, num_parallel_calls=AUTOTUNE),
    "free order": lambda d: d.map(slow, deterministic=False, **THREADS),
    "prefetch": lambda d: d.map(slow).prefetch(3),
    "interleave": lambda d: d.interleave(
        lambda x: Dataset.range(4).map(slow), num_parallel_calls=3
    ),
    "free interleave": lambda d: d.interleave(
        lambda x: Dataset.range(4).map(slow), num_parallel_calls=3, deterministic=False
    ),
    "inside": lambda d: d.map(slow, **THREADS).shuffle(5).batch(2).prefetch(2),
    "repeat": lambda d: d.take(9).map(slow, **THREADS).repeat(),
    "generator": lambda d: Dataset.from_generator(lambda: map(slow, range(50))),
}


def end_iterator(iterator, ending):
    """End a pass in one of the possible ways."""
    if ending == "closed":
        iterator.close()
    elif ending == "exhausted":
        for _ in zip(iterator, range(120), strict=False):
            pass
        iterator.close()
    elif ending == "in a cycle":
        iterator.cycle = iterator
    elif ending == "by an exception":
        with suppress(ZeroDivisionError):
            for _ in iterator:
                raise ZeroDivisionError


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.one_in(3)
def test_pass_leaks_nothing(name):
    before = resources_at_rest()
    for count in (0, 1, 2, 7):
        for ending in (
            "dropped",
            "closed",
            "in a cycle",
            "by an exception",
            "exhausted",
        ):
            iterator = iter(CHAINS[name](Dataset.range(60)))
            for _ in range(count):
                next(iterator)
            end_iterator(iterator, ending)
            del iterator
    gc.collect()
    assert eventually(lambda: resources() == before), (resources(), before)


@pytest.mark.parametrize("count", [0, 1, 5])
@pytest.mark.one_in(3)
def test_processes_leak_nothing(count):
    before = resources_at_rest()
    for ending in ("dropped", "closed", "in a cycle"):
        iterator = iter(Dataset.range(60).map(np.square, **PROCESSES))
        for _ in range(count):
            next(iterator)
        end_iterator(iterator, ending)
        del iterator
        gc.collect()
    assert eventually(lambda: resources() == before), (resources(), before)


def test_error_ends_threads_at_once():
    before = resources_at_rest()
    dataset = Dataset.range(100).map(lambda x: slow(1) // int(5 - x), **THREADS)
    iterator = iter(dataset.prefetch(2))
    with pytest.raises(ZeroDivisionError) as error:
        list(iterator)
    assert eventually(lambda: resources()[0] == before[0])  # the iterator exists
    assert "map, element 5" in error.value.__notes__[0]
    assert list(iterator) == []


def test_threads_may_share_an_iterator():
    iterator = iter(Dataset.range(600).map(slow, num_parallel_calls=3))
    elements_by_thread = [[] for _ in range(4)]
    threads = [
        threading.Thread(target=elements.extend, args=(iterator,))
        for elements in elements_by_thread
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(int(x) for elements in elements_by_thread for x in elements) == list(
        range(600)
    )


def test_inner_passes_are_released():
    dataset = Dataset.range(2).map(slow, num_parallel_calls=2).repeat(50)
    iterator = iter(dataset)
    for _ in range(99):
        next(iterator)
    assert len(iterator._run._closing) <= 2


@pytest.mark.slow
def test_many_iterators_with_processes_leak_nothing():
    before = resources_at_rest()
    for count in range(40):
        iterator = iter(Dataset.range(60).map(np.square, **PROCESSES))
        for _ in range(count):
            next(iterator)
    del iterator
    gc.collect()
    assert eventually(lambda: resources() == before), (resources(), before)


def close_chains_at_random_moments(count, seed):
    """Build chains of all parallel stages, and close them from another thread."""
    rng = random.Random(seed)

    def children(x):
        calls = rng.choice([None, 2])
        return Dataset.range(int(x) % 5).map(slow, num_parallel_calls=calls)

    stages = [
        lambda d: d.map(slow, rng.choice([1, 3, AUTOTUNE]), rng.choice([None, False])),
        lambda d: d.interleave(
            children,
            cycle_length=rng.choice([2, 5]),
            num_parallel_calls=rng.choice([None, 2, AUTOTUNE]),
            deterministic=rng.choice([None, False]),
        ),
        lambda d: d.prefetch(rng.choice([1, 3, AUTOTUNE])),
        lambda d: d.batch(3, num_parallel_calls=rng.choice([None, 2])).unbatch(),
        lambda d: d.shuffle(10, seed=1),
        lambda d: d.cache(),
        lambda d: d.repeat(2),
        lambda d: d.filter(lambda x: x % 3 != 1),
        lambda d: d.map(np.negative, **PROCESSES) if rng.random() < 0.1 else d,
    ]
    for _ in range(count):
        dataset = Dataset.range(60)
        for stage in rng.choices(stages, k=rng.randint(1, 6)):
            dataset = stage(dataset)
        iterator = iter(dataset)
        timer = threading.Timer(rng.random() * 0.1, iterator.close)
        timer.start()
        for _ in zip(iterator, range(rng.randint(0, 40)), strict=False):
            pass
        timer.join()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_chains_closed_at_random_moments_leak_nothing(seed):
    before = resources_at_rest()
    close_chains_at_random_moments(150, seed)
    gc.collect()
    assert eventually(lambda: resources() == before), (resources(), before)


def test_chains_closed_at_some_moments_leak_nothing():
    before = resources_at_rest()
    close_chains_at_random_moments(15, seed=9)
    gc.collect()
    assert eventually(lambda: resources() == before), (resources(), before)


# --- the end of a program -------------------------------------------------------------

PROGRAM = """
    import faulthandler, math, os, signal, sys, time
    import numpy as np
    from toolkit.data import Dataset

    def slow(x):
        time.sleep(0.002)
        return x

    MAPS = {
        "threads": lambda d: d.map(slow, num_parallel_calls=3).prefetch(2),
        "processes": lambda d: d.map(np.square, 2, workers="process"),
        "busy processes": lambda d: d.map(time.sleep, 2, workers="process"),
    }
    faulthandler.enable()
    kind, ending = sys.argv[1:]
    iterator = iter(MAPS[kind](Dataset.range(10**6).map(lambda x: x * (x > 5) * 0.01)))
    for _ in range(5):
        next(iterator)
    stream = iterator._stream.parents[0]
    pids = [w.process.pid for w in stream._workers] if kind != "threads" else []
    print(*pids, flush=True)
    if ending == "fork":
        child = os.fork()
        if child == 0:
            sys.exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        [next(iterator) for _ in range(50)]
        assert pids == [w.process.pid for w in stream._workers]  # they live
    if ending == "exception":
        raise ZeroDivisionError
    if ending == "exit":
        sys.exit(3)
    if ending == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if ending == "interrupt":
        for _ in iterator:
            pass
"""

ENDINGS = {"exception": 1, "exit": 3, "end": 0, "killed": -9, "interrupt": -2}
ENDINGS["fork"] = 0


def run_program(kind, ending):
    """Return (exit code, processes of its workers, standard error)."""
    program = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), kind, ending],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with program:
        try:
            pids = [int(pid) for pid in program.stdout.readline().split()]
            if ending == "interrupt":
                time.sleep(0.05)
                os.killpg(program.pid, signal.SIGINT)  # like a terminal
            errors = wait_for_end(program)
        finally:
            program.kill()
    return program.returncode, pids, errors


def wait_for_end(program):
    """Return the final standard error of a program, with a traceback if it hangs."""
    try:
        return program.communicate(timeout=50)[1]
    except subprocess.TimeoutExpired:
        program.send_signal(signal.SIGABRT)  # faulthandler prints the stacks of threads
        return program.communicate(timeout=10)[1]


def check_program(kind, ending):
    shared = resources()[3]
    code, pids, errors = run_program(kind, ending)
    assert code == ENDINGS[ending], errors
    assert len(pids) == (0 if kind == "threads" else 2)
    assert eventually(lambda: not any(map(is_running, pids)))
    assert eventually(lambda: resources()[3] <= shared), resources()[3] - shared
    words = {"exception": "ZeroDivisionError", "interrupt": "KeyboardInterrupt"}
    assert errors.count("Traceback") == (ending in words), errors
    assert words.get(ending, "") in errors, errors


@pytest.mark.parametrize(
    ("kind", "ending"),
    [
        ("threads", "interrupt"),
        ("threads", "end"),
        ("processes", "interrupt"),
        ("processes", "exit"),
        ("processes", "fork"),
        ("busy processes", "killed"),
    ],
)
def test_program_ends(kind, ending):
    check_program(kind, ending)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["threads", "processes", "busy processes"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_program_ends_in_any_way(kind, ending):
    if (kind, ending) == ("threads", "fork"):
        pytest.skip("has no processes of its own")
    for _ in range(3):
        check_program(kind, ending)


# --- errors in parallel ---------------------------------------------------------------


@pytest.mark.parametrize("arguments", [THREADS, PROCESSES])
def test_error_in_a_parallel_map_names_its_element(tmp_path, arguments):
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"{i if i != 12_345 else 'x'}\n" for i in range(12_400)))
    dataset = TextLineDataset(path).map(int, **arguments)
    count = 0
    with pytest.raises(ValueError, match="invalid literal") as error:
        for x in dataset:
            assert x == count
            count += 1
    assert count == 12_345
    notes = [note for note in error.value.__notes__ if note.startswith("data set")]
    assert len(notes) == 1
    for words in ("stage map", "element 12,345", "lines.txt, record 12,345", "in int"):
        assert words in notes[0]


class UnpicklableError(Exception):
    """An error that pickle cannot load: it needs two arguments and stores one."""

    def __init__(self, message, code):
        super().__init__(message)
        self.code = code


def raise_unpicklable(x):
    raise UnpicklableError("no", 7)


def test_error_of_any_class_returns_from_a_process():
    with pytest.raises(UnpicklableError, match="no") as error:
        list(Dataset.range(3).map(raise_unpicklable, **PROCESSES))
    assert error.value.code == 7
    assert "element 0" in "".join(error.value.__notes__)


def test_ignored_errors_in_processes():
    log = []
    dataset = Dataset.from_items(["1", "x", "3"]).map(int, **PROCESSES)
    assert list(dataset.ignore_errors(log=log.append)) == [1, 3]
    assert len(log) == 1 and "ValueError" in log[0]


def test_unpicklable_element_is_named():
    locks = Dataset.from_items([1, threading.Lock()])
    with pytest.raises((TypeError, NotImplementedError), match="pickle") as error:
        list(locks.map(id, **PROCESSES))
    assert "map, element 1" in "".join(error.value.__notes__)
