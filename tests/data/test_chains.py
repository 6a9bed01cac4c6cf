"""Tests of chains of stages against a Python model, resumed anywhere, in any order."""

import json
import tempfile
import threading
import time
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from toolkit.data import AUTOTUNE, Dataset
from toolkit.data.randomness import LAST_CHUNK, Draws, generator, key_of


def plus(x):
    return x + 3


def divisible(x):
    return x % 3 == 0


def shuffle_list(items, size, seed):
    """Return the order of a shuffle buffer of this size in the first pass."""
    key, buffer, out = key_of(seed, (0,)), items[:size], []
    draws = Draws(key, max(1, len(buffer)))
    for index, item in enumerate(items[size:]):
        out.append(buffer[draws[index]])
        buffer[draws[index]] = item
    return out + [
        buffer[i] for i in generator(key, LAST_CHUNK).permutation(len(buffer))
    ]


def interleave_lists(lists, cycle, block):
    waiting, active, outputs = list(lists), [], []
    while waiting or active:
        while waiting and len(active) < cycle:
            active.append(waiting.pop(0))
        current = active.pop(0)
        outputs += current[:block]
        if len(current) >= block:  # the next iteration detects an empty one
            active.append(current[block:])
    return outputs


def group_list(items, size):
    """Return the full groups of odd and even elements, then the remainder."""
    groups, out = {}, []
    for item in items:
        groups.setdefault(item % 2, []).append(item)
        if len(groups[item % 2]) == size:
            out += groups.pop(item % 2)
    return out + [item for key in sorted(groups) for item in groups[key]]


def slow(x):
    time.sleep(0.0003)
    return x


FOLDER = tempfile.TemporaryDirectory()
FILES = count()


def new_path():
    return Path(FOLDER.name) / str(next(FILES))


def limited(x):
    return Dataset.range(x % 5)


STAGES = {  # name: (the stage, its model on a list)
    "map": (lambda d: d.map(plus), lambda x: [plus(v) for v in x]),
    "parallel map": (
        lambda d: d.map(plus, num_parallel_calls=3),
        lambda x: [plus(v) for v in x],
    ),
    "tuned map": (
        lambda d: d.map(plus, num_parallel_calls=AUTOTUNE),
        lambda x: [plus(v) for v in x],
    ),
    "filter": (lambda d: d.filter(divisible), lambda x: [v for v in x if v % 3 == 0]),
    "shuffle": (lambda d: d.shuffle(4, seed=5), lambda x: shuffle_list(x, 4, 5)),
    "shuffle all": (
        lambda d: d.shuffle(200, seed=6),
        lambda x: shuffle_list(x, 200, 6),
    ),
    "take": (lambda d: d.take(11), lambda x: x[:11]),
    "skip": (lambda d: d.skip(2), lambda x: x[2:]),
    "shard": (lambda d: d.shard(3, 1), lambda x: x[1::3]),
    "batch": (lambda d: d.batch(4).unbatch(), lambda x: x),
    "rebatch": (lambda d: d.batch(3).rebatch(2).unbatch(), lambda x: x),
    "dropping batch": (
        lambda d: d.batch(4, drop_remainder=True).unbatch(),
        lambda x: x[: len(x) // 4 * 4],
    ),
    "enumerate": (
        lambda d: d.enumerate().map(lambda i, v: i * v),
        lambda x: [i * v for i, v in enumerate(x)],
    ),
    "concatenate": (
        lambda d: d.concatenate(Dataset.range(5)),
        lambda x: [*x, *range(5)],
    ),
    "zip": (
        lambda d: Dataset.zip(d, Dataset.range(9)).map(lambda a, b: a + b),
        lambda x: [a + b for a, b in zip(x, range(9), strict=False)],
    ),
    "interleave": (
        lambda d: d.interleave(limited, cycle_length=3, block_length=2),
        lambda x: interleave_lists([list(range(v % 5)) for v in x], 3, 2),
    ),
    "parallel interleave": (
        lambda d: d.interleave(limited, cycle_length=3, num_parallel_calls=2),
        lambda x: interleave_lists([list(range(v % 5)) for v in x], 3, 1),
    ),
    "flat_map": (
        lambda d: d.flat_map(limited),
        lambda x: [i for v in x for i in range(v % 5)],
    ),
    "window": (
        lambda d: d.window(3, shift=2).flat_map(lambda w: w),
        lambda x: [v for i in range(0, len(x), 2) for v in x[i : i + 3]],
    ),
    "scan": (
        lambda d: d.scan(0, lambda total, v: (total + v, total + v)),
        lambda x: np.cumsum(x).tolist(),
    ),
    "take_while": (
        lambda d: d.take_while(lambda v: v < 40),
        lambda x: x[: next((i for i, v in enumerate(x) if v >= 40), len(x))],
    ),
    "unique": (lambda d: d.unique(), lambda x: list(dict.fromkeys(x))),
    "prefetch": (lambda d: d.prefetch(2), lambda x: x),
    "cache": (lambda d: d.cache(), lambda x: x),
    "cache of a stream": (
        lambda d: d.filter(bool).cache(),
        lambda x: [*filter(bool, x)],
    ),
    "cache in a file": (lambda d: d.cache(new_path()), lambda x: x),
    "snapshot": (lambda d: d.snapshot(new_path()), lambda x: x),
    "slow prefetch": (lambda d: d.map(slow).prefetch(AUTOTUNE), lambda x: x),
    "tuned interleave": (
        lambda d: d.interleave(
            limited, cycle_length=2, block_length=3, num_parallel_calls=AUTOTUNE
        ),
        lambda x: interleave_lists([list(range(v % 5)) for v in x], 2, 3),
    ),
    "group_by_window": (
        lambda d: d.group_by_window(
            lambda v: v % 2, lambda key, group: group.map(plus), window_size=3
        ),
        lambda x: [plus(v) for v in group_list(x, 3)],
    ),
    "choose": (
        lambda d: Dataset.choose_from_datasets(
            [d, Dataset.range(40)], Dataset.range(300).map(lambda i: i % 2)
        ),
        lambda x: (
            [v for pair in zip(x, range(40), strict=False) for v in pair] + x[40:41]
        ),
    ),
    "plain repeat": (lambda d: d.repeat(1), lambda x: x),
}

chains = st.lists(st.sampled_from(sorted(STAGES)), max_size=6)


def build(names, count):
    dataset, model = Dataset.range(count), list(range(count))
    for name in names:
        stage, rule = STAGES[name]
        if name.startswith("shuffle") and "plain repeat" in names:
            continue  # the model covers only the first pass
        dataset, model = stage(dataset), rule(model)
        model = model[:200]
        dataset = dataset.take(200)
    return dataset, model


def values(iterator):
    return [int(x) for x in iterator]


@settings(max_examples=120, deadline=None)
@given(chains, st.integers(0, 30))
def test_chain_equals_its_model(names, count):
    dataset, model = build(names, count)
    assert values(dataset) == model
    if dataset.cardinality() >= 0:
        assert len(dataset) == len(model)


@settings(max_examples=120, deadline=None)
@given(chains, st.integers(0, 30), st.integers(0, 40))
@example(["shuffle", "batch", "concatenate", "flat_map"], 0, 0)
def test_chain_is_resumed_at_any_element(names, count, position):
    dataset, model = build(names, count)
    original = iter(dataset)
    elements = [int(x) for x, _ in zip(original, range(position), strict=False)][
        :position
    ]
    if len(elements) < position:
        position = len(elements)
    iterator = iter(build(names, count)[0])
    resumed = iter(build(names, count)[0])
    elements = [int(next(iterator)) for _ in range(position)]
    resumed.set_state(json.loads(json.dumps(iterator.get_state())))
    assert elements + values(resumed) == model
    assert elements + values(iterator) == model


@pytest.mark.parametrize("name", STAGES)
def test_stage_between_streams(name):
    names = ["filter", name, "filter", "prefetch"]
    dataset, model = build(names, 60)
    assert values(dataset) == model


def test_every_pass_has_its_order_and_seeds_repeat_them():
    make = lambda: Dataset.range(50).shuffle(50, seed=1)  # noqa: E731
    first, second = make(), make()
    passes = [values(first) for _ in range(3)]
    assert passes == [values(second) for _ in range(3)]
    assert len({tuple(p) for p in passes}) == 3
    same = Dataset.range(50).shuffle(50, seed=1, reshuffle_each_iteration=False)
    assert values(same) == values(same)
    repeated = values(make().repeat(2))
    assert repeated[:50] != repeated[50:]


def test_unseeded_shuffles_differ():
    assert values(Dataset.range(50).shuffle(50)) != values(
        Dataset.range(50).shuffle(50)
    )


def test_large_permutations_are_permutations_and_even():
    dataset = Dataset.range(100_000).shuffle(None, seed=2)
    order = next(iter(dataset.batch(100_000)))
    assert np.array_equal(np.sort(order), np.arange(100_000))
    assert abs(np.corrcoef(order, np.arange(100_000))[0, 1]) < 0.02
    first_elements = [next(iter(dataset)) for _ in range(300)]
    assert 30_000 < np.mean(first_elements) < 70_000


def test_position_in_arrays_is_small():
    arrays = np.zeros((1_000_000, 1)), np.arange(1_000_000)
    dataset = Dataset.from_tensor_slices(arrays).shuffle(None, seed=1).batch(64)
    iterator = iter(dataset.prefetch(2))
    for _ in range(9):
        next(iterator)
    state = json.dumps(iterator.get_state())
    assert len(state) < 4096
    expected = next(iterator)[1]
    resumed = iter(dataset.prefetch(2))
    resumed.set_state(json.loads(state))
    assert np.array_equal(next(resumed)[1], expected)


def test_position_of_other_stages_is_refused():
    state = iter(Dataset.range(3).batch(2)).get_state()
    with pytest.raises(ValueError, match="range > batch"):
        iter(Dataset.range(3)).set_state(state)


def test_position_includes_its_pass():
    dataset = Dataset.range(20).shuffle(20, seed=1)
    list(dataset)
    iterator = iter(dataset)
    elements = [int(next(iterator)) for _ in range(5)]
    restored = Dataset.range(20).shuffle(20, seed=1)
    resumed = iter(restored)
    resumed.set_state(iterator.get_state())
    assert elements + values(resumed) == elements + values(iterator)
    assert values(restored) == values(dataset)  # the later passes are equal, too


# --- cached elements ------------------------------------------------------------------


def cached(count=12, path="", visited=None):
    """Return shuffled numbers that are cached in this order, and shuffled again."""
    numbers = Dataset.range(count).shuffle(count, seed=3).filter(lambda x: x != 5)
    recorded = numbers.map(lambda x: x if visited is None else visited.append(x) or x)
    return recorded.cache(path).shuffle(4, seed=8)


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("repeated", [False, True])
def test_position_is_valid_before_and_after_the_cache_is_full(
    tmp_path, stored, repeated
):
    def make(name):
        dataset = cached(path=tmp_path / name if stored else "")
        return dataset.repeat(3) if repeated else dataset

    full = make("whole")
    passes = [values(full) for _ in range(1 if repeated else 3)]
    for number, expected in enumerate(passes):
        for position in (0, 1, 10, 11, 12, 25, 33):
            partial = make(f"{number}-{position}")
            for _ in range(number):
                list(partial)  # the cache is full, or not
            iterator = iter(partial)
            elements = [
                int(next(iterator)) for _ in range(min(position, len(expected)))
            ]
            state = json.loads(json.dumps(iterator.get_state()))
            for cache in (make(f"again-{number}-{position}"), partial, full):
                resumed = iter(cache)
                resumed.set_state(state)
                assert elements + values(resumed) == expected


def test_cache_keeps_the_order_of_its_first_pass():
    for make in (lambda d: d, lambda d: d.map(plus), lambda d: d.filter(bool)):
        dataset = make(Dataset.range(20).shuffle(20, seed=1)).cache()
        for _, _ in zip(dataset, range(3), strict=False):
            pass  # an incomplete pass does not count
        passes = [values(dataset) for _ in range(3)]
        assert passes[0] == passes[1] == passes[2]
        assert sorted(passes[0]) == sorted(values(make(Dataset.range(20))))


def test_data_sets_of_weight_zero_do_not_block():
    datasets = [Dataset.range(3), Dataset.range(10, 12)]
    make = lambda **kw: Dataset.sample_from_datasets(datasets, [1, 0], 7, **kw)  # noqa: E731
    assert values(make()) == values(make(stop_on_empty_dataset=True)) == [0, 1, 2]
    with pytest.raises(ValueError, match="a weight above 0"):
        Dataset.sample_from_datasets(datasets, [0, 0])


def test_cached_elements_are_produced_once_after_a_resume():
    visited = []
    iterator = iter(cached(visited=visited))
    for _ in range(3):
        next(iterator)
    resumed_dataset = cached(visited=visited)
    resumed = iter(resumed_dataset)
    resumed.set_state(iterator.get_state())
    list(resumed)
    list(resumed_dataset)
    del visited[:]
    list(resumed_dataset)
    assert visited == []


# --- any number of threads, processes and shards --------------------------------------


@settings(max_examples=40, deadline=None)
@given(chains, st.integers(0, 30), st.sampled_from([1, 2, 5, AUTOTUNE]), st.booleans())
def test_order_is_the_same_for_any_number_of_threads(names, count, workers, prefetched):
    def build_with(calls):
        dataset = build(names, count)[0].map(plus, num_parallel_calls=calls)
        dataset = dataset.interleave(limited, cycle_length=3, num_parallel_calls=calls)
        return dataset.shuffle(7, seed=2).prefetch(3 if prefetched else 0)

    assert values(build_with(workers)) == values(build_with(None))


@settings(max_examples=40, deadline=None)
@given(chains, st.integers(0, 30), st.integers(1, 4))
def test_shards_cover_the_data_set(names, count, shards):
    dataset, model = build(names, count)
    dataset = dataset.shuffle(9, seed=4)
    shard_elements = [
        values(build(names, count)[0].shuffle(9, seed=4).shard(shards, i))
        for i in range(shards)
    ]
    merged = [
        elements.pop(0)
        for i in range(len(model))
        for elements in [shard_elements[i % shards]]
    ]
    assert merged == values(dataset)
    assert sorted(merged) == sorted(model)


def check_processes(names, count, position):
    def make():
        dataset, model = build(names, count)
        mapped = dataset.map(np.negative, num_parallel_calls=2, workers="process")
        return mapped, [-v for v in model]

    dataset, model = make()
    iterator = iter(dataset)
    elements = [int(next(iterator)) for _ in range(min(position, len(model)))]
    resumed = iter(make()[0])
    resumed.set_state(json.loads(json.dumps(iterator.get_state())))
    assert elements + values(resumed) == model
    assert elements + values(iterator) == model


@settings(max_examples=3, deadline=None)
@given(chains, st.integers(0, 30), st.integers(0, 20))
def test_processes_keep_order_and_position(names, count, position):
    check_processes(names, count, position)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(chains, st.integers(0, 30), st.integers(0, 20))
def test_processes_keep_order_and_position_in_many_chains(names, count, position):
    check_processes(names, count, position)


@pytest.mark.parametrize("slow", [0, 1, 4])
@pytest.mark.parametrize("kind", ["map", "batch", "interleave"])
def test_unordered_calls_do_not_wait_for_slow_elements(kind, slow):
    fast_elements_arrived = threading.Event()

    def wait(x):
        time.sleep(0.05)  # starts a thread at once, even on a busy machine
        if x == slow:
            assert fast_elements_arrived.wait(20)
        return x

    options = {"num_parallel_calls": 2, "deterministic": False}
    dataset = {
        "map": lambda: Dataset.range(6).map(wait, **options),
        "batch": lambda: Dataset.range(6).map(wait).batch(1, **options).unbatch(),
        "interleave": lambda: Dataset.range(6).interleave(
            lambda x: Dataset.range(x, x + 1).map(wait), cycle_length=2, **options
        ),
    }[kind]()
    elements = []
    for x in dataset:
        elements.append(int(x))
        if len(elements) == 5:
            fast_elements_arrived.set()
    assert elements[-1] == slow and sorted(elements) == list(range(6))


@settings(max_examples=40, deadline=None)
@given(chains, st.integers(0, 30), st.sampled_from(["map", "interleave", "both"]))
def test_unordered_calls_lose_no_element(names, count, kind):
    dataset, model = build(names, count)
    if kind != "interleave":
        dataset = dataset.map(plus, num_parallel_calls=3, deterministic=False)
        model = [plus(v) for v in model]
    if kind != "map":
        dataset = dataset.interleave(
            limited, cycle_length=3, num_parallel_calls=2, deterministic=False
        )
        model = [i for v in model for i in range(v % 5)]
    assert sorted(values(dataset)) == sorted(model)
    with pytest.raises(NotImplementedError, match="deterministic=False"):
        iter(dataset).get_state()
