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
    running, maximum = 0, 0
    lock = threading.Lock()

    def identity(x):
        nonlocal running, maximum
        with lock:
            running += 1
            maximum = max(maximum, running)
        time.sleep(0.005)
        with lock:
            running -= 1
        return x

    dataset = Dataset.range(50).map(identity, num_parallel_calls=8)
    assert [int(x) for x in dataset] == list(range(50))
    assert 1 < maximum <= 8


def test_unordered_elements_are_complete():
    def sleep_unevenly(x):
        time.sleep(0.02 if x % 10 == 0 else 0)
        return x

    dataset = Dataset.range(60).map(
        sleep_unevenly, num_parallel_calls=4, deterministic=False
    )
    elements = [int(x) for x in dataset]
    assert elements != sorted(elements)
    assert sorted(elements) == list(range(60))
    with pytest.raises(NotImplementedError, match="deterministic=False"):
        iter(dataset).get_state()
    options = Options(deterministic=False)
    by_options = (
        Dataset.range(60)
        .with_options(options)
        .map(sleep_unevenly, num_parallel_calls=4)
    )
    assert sorted(int(x) for x in by_options) == list(range(60))


def test_interleave_reads_ahead():
    def open_range(n):
        return Dataset.range(3).map(slow)

    dataset = Dataset.range(8).interleave(open_range, num_parallel_calls=AUTOTUNE)
    sequential = Dataset.range(8).interleave(open_range)
    assert [int(x) for x in dataset] == [int(x) for x in sequential]


def test_prefetch_overlaps_with_the_consumer():
    produced = []
    dataset = Dataset.range(6).map(lambda x: produced.append(slow(x)) or x).prefetch(3)
    iterator = iter(dataset)
    assert [int(next(iterator)) for _ in range(2)] == [0, 1]  # two slow stages
    deadline = time.monotonic() + 5
    while len(produced) < 5 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert len(produced) >= 5
    assert [int(x) for x in iterator] == [2, 3, 4, 5]


def test_verdict_counts_the_first_elements_too():
    def slow_start(x):
        time.sleep(0.05 if x == 0 else 0)
        return x

    dataset = Dataset.range(40).map(slow_start).prefetch(2)
    list(dataset)
    stats = dataset.stats()
    assert stats.rows[-1]["waited"] >= 0.05
    assert "The slowest stage is" in stats.verdict


def test_verdict_does_not_advise_a_stage_that_is_there():
    dataset = Dataset.from_generator(lambda: range(3000)).prefetch(2)
    list(dataset)
    verdict = dataset.stats().verdict
    assert ".prefetch(AUTOTUNE)" not in verdict
    assert "less than 0.2 ms, so prefetch computes it on demand" in verdict


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
    produced = []
    dataset = Dataset.range(1000).map(
        lambda x: produced.append(x), num_parallel_calls=2
    )
    iterator = iter(dataset.prefetch(2))
    next(iterator)
    time.sleep(0.1)
    assert len(produced) < 50


# Functions of NumPy can be imported, so these process tests need no cloudpickle.


def test_processes_keep_order():
    dataset = Dataset.range(40).map(np.square, num_parallel_calls=2, workers="process")
    assert [int(x) for x in dataset] == [x * x for x in range(40)]


def test_large_arrays_use_shared_memory():
    make_array = functools.partial(np.full, (300, 400))
    dataset = Dataset.range(6).map(make_array, num_parallel_calls=2, workers="process")
    for i, array in enumerate(dataset):
        assert array.shape == (300, 400)
        assert (array == i).all()
        array += 1  # the memory is private


def test_error_in_a_process_keeps_its_type():
    pairs = Dataset.range(10).map(lambda x: (int(x), int(x) - 7))
    quotients = pairs.map(operator.floordiv, num_parallel_calls=2, workers="process")
    with pytest.raises(ZeroDivisionError) as error:
        list(quotients)
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
    elements = [int(next(iterator)) for _ in range(7)]
    resumed = iter(make())
    resumed.set_state(iterator.get_state())
    assert elements + [int(x) for x in resumed] == [x * x for x in range(30)]


def test_position_among_processes_is_near_the_source(tmp_path, monkeypatch):
    monkeypatch.setattr("toolkit.data.processes.POSITION_INTERVAL", 0.0)
    path = tmp_path / "numbers.txt"
    path.write_text("".join(f"{i}\n" for i in range(3000)))
    make = lambda: TextLineDataset(path).map(  # noqa: E731
        int, num_parallel_calls=2, workers="process"
    )
    iterator = iter(make())
    elements = [next(iterator) for _ in range(2500)]
    # The position of a worker arrives when the system lets the worker run.
    start = 3000
    while start > 99:
        elements.append(next(iterator))
        state = json.loads(json.dumps(iterator.get_state()))
        ((_, _, record), _), start, produced = state["position"][0]
    assert len(elements) < 2900 and record == produced - start
    resumed = iter(make())
    resumed.set_state(state)
    assert elements + list(resumed) == list(range(3000))
    path.write_text(path.read_text().replace("2900", "x"))
    resumed = iter(make())
    resumed.set_state(state)
    with pytest.raises(ValueError, match="x") as error:
        list(resumed)
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

    def move(point):
        if point.x == 4:
            raise Bad(Point(point.x, point.y), "four")
        return Point(point.x + 1, point.y)

    points = Dataset.range(4).map(lambda x: Point(int(x), 0))
    points_moved = list(points.map(move, num_parallel_calls=2, workers="process"))
    assert points_moved == [Point(x + 1, 0) for x in range(4)]
    assert all(type(point) is Point for point in points_moved)
    other_points = Dataset.range(6).map(lambda x: Point(int(x), 1))
    with pytest.raises(Bad, match="four") as error:
        list(other_points.map(move, num_parallel_calls=2, workers="process"))
    assert error.value.point == Point(4, 1)
    assert "element 4" in "".join(error.value.__notes__)
