"""Tests that a pass that is closed early leaves no cache that counts as complete."""

import json
import operator
import time

import numpy as np
import pytest

from toolkit.data import Dataset
from toolkit.data.profiling import PassProfile
from toolkit.data.streams import ClosedError, PassContext, Run

COUNT = 24


def slow_identity(x):
    time.sleep(0.0004)
    return x


def pair(x):
    return Dataset.range(2 * x, 2 * x + 2).map(slow_identity)


def numbers(count=COUNT):
    return Dataset.range(count).filter(lambda x: True)


PARALLEL = {  # name: 24 elements, some produced by threads or processes
    "interleave": lambda: numbers(12).interleave(pair, 3, num_parallel_calls=2),
    "interleave as ready": lambda: numbers(12).interleave(
        pair, 3, num_parallel_calls=2, deterministic=False
    ),
    "flat_map of parallel maps": lambda: numbers(12).flat_map(
        lambda x: Dataset.range(2 * x, 2 * x + 2).map(
            slow_identity, num_parallel_calls=2
        )
    ),
    "map": lambda: numbers().map(slow_identity, num_parallel_calls=2),
    "map as ready": lambda: numbers().map(
        slow_identity, num_parallel_calls=2, deterministic=False
    ),
    "prefetch": lambda: numbers().map(slow_identity).prefetch(2),
    "batch": lambda: (
        numbers(48)
        .map(slow_identity)
        .batch(2, num_parallel_calls=2)
        .map(lambda x: x[0] // 2)
    ),
    "zip": lambda: Dataset.zip(
        numbers().map(slow_identity, num_parallel_calls=2),
        numbers().map(slow_identity).prefetch(1),
    ).map(lambda x, _: x),
    "concatenate": lambda: (
        numbers(12)
        .map(slow_identity, num_parallel_calls=2)
        .concatenate(numbers(12).map(slow_identity).prefetch(1).map(lambda x: x + 12))
    ),
    "sample": lambda: Dataset.sample_from_datasets(
        [
            numbers(12).map(slow_identity, num_parallel_calls=2),
            numbers(12).map(lambda x: slow_identity(x) + 12).prefetch(1),
        ],
        seed=3,
    ),
    "shuffle": lambda: (
        numbers().map(slow_identity, num_parallel_calls=2).shuffle(5, seed=1)
    ),
    "windows": lambda: (
        numbers()
        .map(slow_identity, num_parallel_calls=2)
        .window(3)
        .flat_map(lambda window: window)
    ),
    "groups": lambda: (
        numbers()
        .map(slow_identity, num_parallel_calls=2)
        .group_by_window(lambda x: x % 2, lambda _, group: group, window_size=3)
    ),
    "rebatch": lambda: (
        numbers()
        .map(slow_identity, num_parallel_calls=2)
        .batch(4)
        .rebatch(5)
        .unbatch()
        .prefetch(2)
    ),
}


def stop_early(dataset, count):
    for number, _ in enumerate(dataset, 1):
        if number == count:
            break


def close(dataset, count):
    with iter(dataset) as iterator:
        for _ in range(count):
            next(iterator)


def restore_position(dataset, count):
    iterator = iter(dataset)
    state = json.loads(json.dumps(iterator.get_state()))
    for _ in range(count):
        next(iterator)
    iterator.set_state(state)
    next(iterator)
    iterator.close()


ENDINGS = {"break": stop_early, "close": close, "set_state": restore_position}


def caching_stages(path):
    return {
        "in memory": lambda dataset: dataset.cache(),
        "in a file": lambda dataset: dataset.cache(path / "cache"),
        "in a snapshot": lambda dataset: dataset.snapshot(path / "snapshot"),
    }


@pytest.mark.parametrize("storage", ("in memory", "in a file", "in a snapshot"))
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("name", PARALLEL)
@pytest.mark.one_in(3)
def test_closed_pass_leaves_no_complete_cache(name, ending, storage, tmp_path):
    if ending == "set_state" and "as ready" in name:
        pytest.skip("has no positions")
    for count in (1, 2, 5):
        path = tmp_path / str(count)
        dataset = caching_stages(path)[storage](PARALLEL[name]())
        ENDINGS[ending](dataset, count)
        time.sleep(0.01)  # wait for running work
        for _ in range(2):
            assert sorted(int(x) for x in dataset) == list(range(COUNT))


def test_closed_pass_ends_its_processes():
    codes = numbers().map(np.negative, num_parallel_calls=2, workers="process")
    dataset = codes.map(operator.neg).cache()
    stop_early(dataset, 2)
    assert [int(x) for x in dataset] == list(range(COUNT))


@pytest.mark.parametrize("name", PARALLEL)
def test_position_after_closing_is_unchanged(name):
    if "as ready" in name:
        pytest.skip("has no positions")
    dataset = PARALLEL[name]()
    iterator = iter(dataset)
    head = [int(next(iterator)) for _ in range(3)]
    iterator.close()
    time.sleep(0.01)
    resumed = iter(PARALLEL[name]())
    resumed.set_state(json.loads(json.dumps(iterator.get_state())))
    assert sorted(head + [int(x) for x in resumed]) == list(range(COUNT))


@pytest.mark.parametrize("name", PARALLEL)
def test_closed_streams_are_not_exhausted(name):
    dataset = PARALLEL[name]().prefetch(2)
    run = Run(PassProfile(), dataset.options())
    elements = iter(PassContext(run, (0,)).open(dataset))
    first = [next(elements)]
    run.close()
    try:
        first.extend(elements)
    except ClosedError:
        return
    assert len(first) == COUNT  # closed after all elements were produced
