"""Chains of stages equal a model in plain Python, resumed anywhere, in any order."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.data import AUTOTUNE, Dataset
from toolkit.data.randomness import LAST, Draws, generator, key_of


def plus(x):
    return x + 3


def divisible(x):
    return x % 3 == 0


def shuffled(items, size, seed):
    """What a buffer of this size gives out in the first pass."""
    key, buffer, out = key_of(seed, (0,)), items[:size], []
    draws = Draws(key, max(1, len(buffer)))
    for place, item in enumerate(items[size:]):
        out.append(buffer[draws[place]])
        buffer[draws[place]] = item
    return out + [buffer[i] for i in generator(key, LAST).permutation(len(buffer))]


def by_turns(lists, cycle, block):
    waiting, active, out = list(lists), [], []
    while waiting or active:
        while waiting and len(active) < cycle:
            active.append(waiting.pop(0))
        now = active.pop(0)
        out += now[:block]
        if len(now) >= block:  # an empty one is found out in its next turn
            active.append(now[block:])
    return out


def upto(x):
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
    "shuffle": (lambda d: d.shuffle(4, seed=5), lambda x: shuffled(x, 4, 5)),
    "shuffle all": (lambda d: d.shuffle(200, seed=6), lambda x: shuffled(x, 200, 6)),
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
        lambda d: d.interleave(upto, cycle_length=3, block_length=2),
        lambda x: by_turns([list(range(v % 5)) for v in x], 3, 2),
    ),
    "parallel interleave": (
        lambda d: d.interleave(upto, cycle_length=3, num_parallel_calls=2),
        lambda x: by_turns([list(range(v % 5)) for v in x], 3, 1),
    ),
    "flat_map": (
        lambda d: d.flat_map(upto),
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
    "plain repeat": (lambda d: d.repeat(1), lambda x: x),
}

chains = st.lists(st.sampled_from(sorted(STAGES)), max_size=6)


def build(names, count):
    dataset, model = Dataset.range(count), list(range(count))
    for name in names:
        stage, rule = STAGES[name]
        if name.startswith("shuffle") and "plain repeat" in names:
            continue  # the model knows the first pass only
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
def test_chain_is_resumed_at_any_element(names, count, place):
    dataset, model = build(names, count)
    first = iter(dataset)
    taken = [int(x) for x, _ in zip(first, range(place), strict=False)][:place]
    if len(taken) < place:
        place = len(taken)
    iterator = iter(build(names, count)[0])
    again = iter(build(names, count)[0])
    taken = [int(next(iterator)) for _ in range(place)]
    again.set_state(json.loads(json.dumps(iterator.get_state())))
    assert taken + values(again) == model
    assert taken + values(iterator) == model


@pytest.mark.parametrize("name", STAGES)
def test_stage_after_a_stream_and_before_one(name):
    names = ["filter", name, "filter", "prefetch"]
    dataset, model = build(names, 60)
    assert values(dataset) == model


def test_every_pass_has_its_order_and_seeds_repeat_them():
    make = lambda: Dataset.range(50).shuffle(50, seed=1)  # noqa: E731
    one, two = make(), make()
    passes = [values(one) for _ in range(3)]
    assert passes == [values(two) for _ in range(3)]
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
    firsts = [next(iter(dataset)) for _ in range(300)]
    assert 30_000 < np.mean(firsts) < 70_000


def test_position_in_arrays_is_small():
    arrays = np.zeros((1_000_000, 1)), np.arange(1_000_000)
    dataset = Dataset.from_tensor_slices(arrays).shuffle(None, seed=1).batch(64)
    iterator = iter(dataset.prefetch(2))
    for _ in range(9):
        next(iterator)
    state = json.dumps(iterator.get_state())
    assert len(state) < 4096
    expected = next(iterator)[1]
    again = iter(dataset.prefetch(2))
    again.set_state(json.loads(state))
    assert np.array_equal(next(again)[1], expected)


def test_position_of_other_stages_is_refused():
    state = iter(Dataset.range(3).batch(2)).get_state()
    with pytest.raises(ValueError, match="range > batch"):
        iter(Dataset.range(3)).set_state(state)


def test_position_knows_its_pass():
    dataset = Dataset.range(20).shuffle(20, seed=1)
    list(dataset)
    iterator = iter(dataset)
    taken = [int(next(iterator)) for _ in range(5)]
    fresh = Dataset.range(20).shuffle(20, seed=1)
    again = iter(fresh)
    again.set_state(iterator.get_state())
    assert taken + values(again) == taken + values(iterator)
    assert values(fresh) == values(dataset)  # the passes after are the same, too
