"""Test `fit` on data sets and iterables, which are prefetched."""

import threading
import time

import numpy as np
import pytest

import toolkit as tk
from toolkit import callbacks, layers
from toolkit.data import Dataset
from toolkit.errors import DTypeError


@pytest.fixture
def model():
    tk.utils.set_random_seed(1)
    model = tk.Sequential([tk.Input((3,)), layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def pairs(count=12):
    rng = np.random.default_rng(0)
    return rng.normal(size=(count, 3)).astype("float32"), np.arange(count) / count


def test_each_epoch_has_a_different_order(model):
    targets = []
    dataset = Dataset.from_tensor_slices(pairs()).shuffle(12, seed=1)
    recorded = dataset.map(lambda x, y: targets.append(float(y)) or (x, y))
    model.fit(recorded.batch(4), epochs=3, verbose=0)
    orders = [tuple(targets[i : i + 12]) for i in (0, 12, 24)]
    assert len(set(orders)) == 3
    assert all(sorted(order) == sorted(orders[0]) for order in orders)


def test_equal_seeds_have_equal_bits_with_any_parallelism():
    weights = []
    for arguments in ({}, {"num_parallel_calls": 3}):
        tk.utils.set_random_seed(1)
        model = tk.Sequential([tk.Input((3,)), layers.Dense(1)])
        model.compile("adam", "mse")
        dataset = Dataset.from_tensor_slices(pairs()).shuffle(12, seed=1)
        doubled = dataset.map(lambda x, y: (2 * x, y), **arguments)
        model.fit(doubled.batch(4), epochs=2, verbose=0)
        weights.append(model.get_weights())
    for first, second in zip(*weights, strict=True):
        assert np.array_equal(first, second)


def test_stats_describe_the_last_epoch(model):
    dataset = Dataset.from_tensor_slices(pairs()).batch(4)
    model.fit(dataset, verbose=0)
    assert dataset.stats().rows[0]["elements"] == 3
    assert "prefetch" in str(dataset.stats())


def test_slow_batches_are_prefetched_in_order(model):
    threads = set()

    def slow(x, y):
        threads.add(threading.current_thread().name)
        time.sleep(0.002)
        return x, y

    dataset = Dataset.from_tensor_slices(pairs(40)).batch(4).map(slow)
    model.fit(dataset, epochs=2, verbose=0)
    assert len(threads) > 1


def test_iterator_is_read_only_as_needed(model):
    produced = []

    def endless():
        x, y = pairs(4)
        while True:
            produced.append(1)
            time.sleep(0.001)
            yield x, y

    batches = endless()
    model.fit(batches, steps_per_epoch=5, epochs=2, verbose=0)
    assert len(produced) == 10
    model.evaluate(batches, steps=3, verbose=0)
    assert len(produced) == 13


def test_infinite_data_set_needs_steps(model):
    dataset = Dataset.from_tensor_slices(pairs()).repeat().batch(4)
    history = model.fit(dataset, steps_per_epoch=2, epochs=3, verbose=0)
    assert len(history.history["loss"]) == 3


@pytest.mark.parametrize(
    "count, steps, expected",
    [
        (2, 2, [2, 2, 2]),
        (2, 1, [1, 1, 1]),
        (3, 2, [2, 1, 2]),
        (2, None, [2, 2, 2]),
        (2, 3, [2, 2, 2]),
    ],
)
@pytest.mark.filterwarnings("ignore:the data ran out")
def test_data_of_unknown_length_is_repeated(model, count, steps, expected):
    class Steps(callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            counts.append(0)

        def on_train_batch_end(self, batch, logs=None):
            counts[-1] += 1

    counts = []
    dataset = Dataset.from_tensor_slices(pairs(4 * count)).batch(4)
    dataset = dataset.filter(lambda x, y: True)
    assert dataset.cardinality() is None or dataset.cardinality() < 0
    history = model.fit(
        dataset, steps_per_epoch=steps, epochs=3, callbacks=[Steps()], verbose=0
    )
    assert counts == expected
    assert len(history.history["loss"]) == 3


def test_error_of_a_stage_keeps_its_type(model):
    def fail(x, y):
        raise KeyError("label")

    with pytest.raises(KeyError, match="label"):
        model.fit(Dataset.from_tensor_slices(pairs()).map(fail).batch(4), verbose=0)


@pytest.mark.parametrize("batches", [False, True])
def test_data_sets_of_data_sets_are_refused(batches):
    data = Dataset.range(8).window(3, shift=1, drop_remainder=True)
    data = data.batch(2) if batches else data
    model = tk.Sequential([tk.layers.Dense(1)])
    model.compile("sgd", "mse")
    for run in (model.fit, model.evaluate, model.predict):
        with pytest.raises(DTypeError, match=r"is a data set.*\.flat_map\(lambda w: "):
            run(data, verbose=0)
