"""Tests of threads and processes of data sets: order, end, and no leaks."""

import functools
import gc
import json
import operator
import os
import sys
import threading
import time
import typing

import numpy as np
import pytest

from toolkit.data import AUTOTUNE, Dataset, Options, TextLineDataset


def slow(x):
    time.sleep(0.002)
    return x


def test_calls_run_at_the_same_time_and_in_order():
    running, most = 0, 0
    lock = threading.Lock()

    def count(x):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.005)
        with lock:
            running -= 1
        return x

    dataset = Dataset.range(50).map(count, num_parallel_calls=8)
    assert [int(x) for x in dataset] == list(range(50))
    assert 1 < most <= 8


def test_unordered_elements_are_complete():
    def uneven(x):
        time.sleep(0.02 if x % 10 == 0 else 0)
        return x

    dataset = Dataset.range(60).map(uneven, num_parallel_calls=4, deterministic=False)
    given = [int(x) for x in dataset]
    assert given != sorted(given)
    assert sorted(given) == list(range(60))
    with pytest.raises(NotImplementedError, match="deterministic=False"):
        iter(dataset).get_state()
    options = Options(deterministic=False)
    by_options = (
        Dataset.range(60).with_options(options).map(uneven, num_parallel_calls=4)
    )
    assert sorted(int(x) for x in by_options) == list(range(60))


def test_interleave_reads_ahead():
    def opened(n):
        return Dataset.range(3).map(slow)

    dataset = Dataset.range(8).interleave(opened, num_parallel_calls=AUTOTUNE)
    one_by_one = Dataset.range(8).interleave(opened)
    assert [int(x) for x in dataset] == [int(x) for x in one_by_one]


def test_prefetch_works_while_the_consumer_does():
    made = []
    dataset = Dataset.range(6).map(lambda x: made.append(slow(x)) or x).prefetch(3)
    iterator = iter(dataset)
    assert [int(next(iterator)) for _ in range(2)] == [0, 1]  # two slow stages
    deadline = time.monotonic() + 5
    while len(made) < 5 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert len(made) >= 5
    assert [int(x) for x in iterator] == [2, 3, 4, 5]


def test_verdict_counts_the_first_elements_too():
    def begin(x):
        time.sleep(0.05 if x == 0 else 0)
        return x

    dataset = Dataset.range(40).map(begin).prefetch(2)
    list(dataset)
    stats = dataset.stats()
    assert stats.rows[-1]["waited"] >= 0.05
    assert "The slowest stage is" in stats.verdict


def settle(count):
    deadline = time.monotonic() + 5
    while threading.active_count() > count and time.monotonic() < deadline:
        time.sleep(0.005)
    return threading.active_count()


def test_deleted_iterators_leave_no_threads():
    before = threading.active_count()
    dataset = Dataset.range(100).map(slow, num_parallel_calls=3).batch(4).prefetch(2)
    for _ in range(100):
        next(iter(dataset))
    gc.collect()
    assert settle(before) == before


@pytest.mark.slow
def test_ten_thousand_iterators_leak_nothing():
    dataset = Dataset.range(100).map(abs, num_parallel_calls=2).batch(4)
    for _ in range(200):
        next(iter(dataset))
    gc.collect()
    threads, files = settle(1), len(os.listdir("/proc/self/fd"))
    with open("/proc/self/statm", encoding="utf-8") as file:
        pages = int(file.read().split()[1])
    for _ in range(10_000):
        next(iter(dataset))
    gc.collect()
    assert settle(threads) <= threads
    assert len(os.listdir("/proc/self/fd")) == files
    with open("/proc/self/statm", encoding="utf-8") as file:
        assert int(file.read().split()[1]) - pages < 2_000  # 8 MB


def test_closing_ends_a_pass():
    with iter(Dataset.range(1000).map(slow, num_parallel_calls=2)) as iterator:
        next(iterator)
    assert list(iterator) == []


def test_slow_consumer_limits_the_threads():
    made = []
    dataset = Dataset.range(1000).map(lambda x: made.append(x), num_parallel_calls=2)
    iterator = iter(dataset.prefetch(2))
    next(iterator)
    time.sleep(0.1)
    assert len(made) < 50


# Functions of NumPy can be imported, so these process tests need no cloudpickle.


def test_processes_keep_order():
    dataset = Dataset.range(40).map(np.square, num_parallel_calls=2, workers="process")
    assert [int(x) for x in dataset] == [x * x for x in range(40)]


def test_large_arrays_use_shared_memory():
    wide = functools.partial(np.full, (300, 400))
    dataset = Dataset.range(6).map(wide, num_parallel_calls=2, workers="process")
    for i, array in enumerate(dataset):
        assert array.shape == (300, 400)
        assert (array == i).all()
        array += 1  # the memory is private


def test_error_in_a_process_keeps_its_type():
    pairs = Dataset.range(10).map(lambda x: (int(x), int(x) - 7))
    shares = pairs.map(operator.floordiv, num_parallel_calls=2, workers="process")
    with pytest.raises(ZeroDivisionError) as error:
        list(shares)
    notes = "\n".join(error.value.__notes__)
    assert "element 7" in notes
    assert "worker.py" in notes  # the traceback of the process


def test_element_that_kills_processes_is_an_error():
    codes = Dataset.from_tensor_slices([3]).map(
        os._exit, num_parallel_calls=1, workers="process"
    )
    with pytest.raises(RuntimeError, match="exit code 3"):
        list(codes)


def test_position_among_processes():
    make = lambda: Dataset.range(30).map(  # noqa: E731
        np.square, num_parallel_calls=2, workers="process"
    )
    iterator = iter(make())
    taken = [int(next(iterator)) for _ in range(7)]
    again = iter(make())
    again.set_state(iterator.get_state())
    assert taken + [int(x) for x in again] == [x * x for x in range(30)]


def test_position_among_processes_is_near_the_source(tmp_path, monkeypatch):
    monkeypatch.setattr("toolkit.data.processes.POSITION_INTERVAL", 0.0)
    path = tmp_path / "numbers.txt"
    path.write_text("".join(f"{i}\n" for i in range(3000)))
    make = lambda: TextLineDataset(path).map(  # noqa: E731
        int, num_parallel_calls=2, workers="process"
    )
    iterator = iter(make())
    taken = [next(iterator) for _ in range(2500)]
    # The position of a worker arrives when the system lets the worker run.
    since = 3000
    while since > 99:
        taken.append(next(iterator))
        state = json.loads(json.dumps(iterator.get_state()))
        ((_, _, record), _), since, given = state["position"][0]
    assert len(taken) < 2900 and record == given - since
    again = iter(make())
    again.set_state(state)
    assert taken + list(again) == list(range(3000))
    path.write_text(path.read_text().replace("2900", "x"))
    again = iter(make())
    again.set_state(state)
    with pytest.raises(ValueError, match="x") as error:
        list(again)
    assert "element 2,900, from " in error.value.__notes__[-1]
    assert "numbers.txt, record 2,900" in error.value.__notes__[-1]


def test_unpicklable_functions_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)  # simulate its absence
    dataset = Dataset.range(3).map(lambda x: x, workers="process")
    with pytest.raises(NotImplementedError, match=r"map: .*lambda.* cloudpickle"):
        list(dataset)
    lock = threading.Lock()
    dataset = Dataset.range(3).map(functools.partial(max, lock), workers="process")
    with pytest.raises(NotImplementedError, match="map: .*lock"):
        list(dataset)


def test_functions_and_results_use_cloudpickle():
    pytest.importorskip("cloudpickle")

    class Point(typing.NamedTuple):
        x: int
        y: int

    class Bad(Exception):
        def __init__(self, point, reason):
            super().__init__(reason)
            self.point = point

    def moved(point):
        if point.x == 4:
            raise Bad(Point(point.x, point.y), "four")
        return Point(point.x + 1, point.y)

    points = Dataset.range(4).map(lambda x: Point(int(x), 0))
    made = list(points.map(moved, num_parallel_calls=2, workers="process"))
    assert made == [Point(x + 1, 0) for x in range(4)]
    assert all(type(point) is Point for point in made)
    more = Dataset.range(6).map(lambda x: Point(int(x), 1))
    with pytest.raises(Bad, match="four") as error:
        list(more.map(moved, num_parallel_calls=2, workers="process"))
    assert error.value.point == Point(4, 1)
    assert "element 4" in "".join(error.value.__notes__)
