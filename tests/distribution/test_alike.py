"""Test that differences between the processes of a job raise errors."""

import numpy as np
import pytest

from tests.distribution.jobs import run
from toolkit.comm import exchange, exchange_number, local
from toolkit.core.variable import Variable
from toolkit.distribution import (
    DataParallel,
    DeviceMesh,
    LayoutMap,
    TensorLayout,
    set_distribution,
)
from toolkit.distribution.placements import placement_of_layout
from toolkit.errors import ArgumentError, ProgramMismatchError

REFUSED = """
    def refused(call):
        try:
            call()
        except ValueError as error:
            return str(error)
        return ""

    def identity(shape, dtype="float32"):
        return tk.Sequential([tk.Input(shape, dtype=dtype), layers.Identity()])
"""


def refused(folder, text):
    """Return the error of each of two processes."""
    reports = run(folder, 2, REFUSED + text)
    assert len(reports) == 2 and reports[0] == reports[1]
    return reports[0]


def test_rows_in_another_order_are_refused(tmp_path):
    unseeded, seeded, passed, arrays, shuffled = refused(
        tmp_path,
        """
    early = tk.data.Dataset.range(8).shuffle(8).batch(8)
    distribution.set_distribution(distribution.DataParallel())
    late = tk.data.Dataset.range(8).shuffle(8).batch(8)
    model = identity((), "int64")
    found = [refused(lambda: model.predict(early, verbose=0))]
    found.append(sorted(model.predict(late, verbose=0).ravel().tolist()))
    if rank:
        list(late)
    found.append(refused(lambda: model.predict(late, verbose=0)))
    rows = np.arange(8, dtype="float32")[:, None]
    other = rows[::-1] if rank else rows
    model = identity((1,))
    found.append(refused(lambda: model.predict(other, verbose=0)))
    mixed = rows[np.random.permutation(8)]
    found.append(sorted(model.predict(mixed, verbose=0).ravel().tolist()))
    tell(found)
    """,
    )
    assert "predict: expected the same rows in the same order" in unseeded
    assert seeded == shuffled == list(range(8))
    assert "pass 1" in passed and "pass 2" in passed
    assert "checksum" in arrays


def test_different_weights_and_settings_are_refused(tmp_path):
    before, batch, repeated, setting = refused(
        tmp_path,
        """
    first = tk.Sequential([tk.Input((2,)), layers.Dense(1)])
    distribution.set_distribution(distribution.DataParallel())
    x, y = np.ones((8, 2), "float32"), np.ones((8, 1), "float32")
    found = [refused(lambda: first.predict(x, verbose=0))]
    found.append(refused(lambda: first.predict_on_batch(x)))
    model = tk.Sequential([tk.Input((2,)), layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(x, y, verbose=0)
    own = model.get_weights()
    model.set_weights([w + rank for w in own])
    found.append(refused(lambda: model.fit(x, y, verbose=0)))
    model.set_weights(own)

    def drop(epoch, logs):
        if not rank and epoch == 1:
            model.optimizer.learning_rate = 1e-5

    dropping = tk.callbacks.LambdaCallback(on_epoch_begin=drop)
    train = lambda: model.fit(x, y, epochs=4, verbose=0, callbacks=[dropping])
    found.append(refused(train))
    tell(found)
    """,
    )
    for text, method in ((before, "predict"), (batch, "predict_on_batch")):
        assert text.startswith(f"{method}: expected the same weights")
    assert repeated.startswith("fit: expected the same weights")
    assert setting.startswith("fit: after an epoch") and "learning_rate" in setting


def test_actions_of_a_single_process_are_refused(tmp_path):
    result = run(
        tmp_path,
        2,
        """
    distribution.set_distribution(distribution.DataParallel())
    x, y = np.ones((8, 6), "float32"), np.ones((8, 1), "float32")
    model = network()

    def look(epoch, logs):
        if not rank:
            model.evaluate(x, y, verbose=0)

    looking = tk.callbacks.LambdaCallback(on_epoch_end=look)
    model.fit(x, y, epochs=3, verbose=0, callbacks=[looking])
    """,
        code=1,
    )
    text = result.out + result.errors
    assert (
        "ranks run different operations at the same time: rank 0 exchanges values"
        in text
    )
    assert "rank 1 agrees on a stop" in text


def test_random_functions_of_map_are_refused(tmp_path):
    text = """
    tk.utils.set_random_seed(0)
    distribution.set_distribution(distribution.DataParallel(shards=2))
    noise = layers.GaussianNoise(1.0, seed=3)
    own = np.random.default_rng(5)
    functions = {
        "layer": lambda x: noise(x, training=True),
        "numpy": lambda x: x + np.random.rand(1).astype("float32"),
        "python": lambda x: x + float(np.float32(__import__("random").random())),
        "global": lambda x: x + tk.random.uniform((1,)),
        "own": lambda x: x + own.random(1, "float32"),
        "none": lambda x: x + 1,
    }
    model = tk.Sequential([tk.Input((1,)), layers.Identity()])
    found = {}
    for name, function in functions.items():
        made = []
        def count(x, function=function):
            made.append(1)
            return function(x)
        rows = tk.data.Dataset.from_tensor_slices(np.zeros((8, 1), "float32"))
        for kind, batches in {
            "rows": rows.map(function).batch(8),
            "threads": rows.map(function, num_parallel_calls=1).batch(8),
        }.items():
            again = distribution.distribution().distribute_dataset(batches)
            parts = [float(x) for batch in again for x in np.asarray(batch).ravel()]
            values = model.predict(batches, verbose=0).ravel().tolist()
            found[f"{name} {kind}"] = values, parts
    tell(found)
    """
    (one,) = run(tmp_path, 1, text)
    two = run(tmp_path, 2, text)
    for name, (values, pieces) in one.items():
        assert two[0][name][0] == two[1][name][0] == values, name
        assert [*two[0][name][1], *two[1][name][1]] == pieces, name
        assert len(set(values)) == (1 if name.startswith("none") else 8), name


def test_inconsistent_metrics_are_refused():
    def of(group):
        with pytest.raises(ProgramMismatchError, match="rank 0 .*rank 1 compares"):
            if group.rank:
                exchange_number(group, "batches", 3)
            else:
                exchange(group, "a")
        return exchange_number(group, "stops", group.rank)

    assert local.run(2, of) == [[0, 1]] * 2


def test_missing_devices_are_refused():
    with pytest.raises(ArgumentError, match=r"received \['tpu:0'\]"):
        set_distribution(DataParallel(devices=["tpu:0"]))


def test_invalid_layouts_are_refused():
    with pytest.raises(ArgumentError, match="at most once"):
        TensorLayout(("model", "model"))
    layouts = LayoutMap(DeviceMesh((1,), ["model"], ["cpu:0"]))
    layouts["w"] = (None, None, "model")
    with pytest.raises(ArgumentError, match="has 3 axes, its shape"):
        placement_of_layout(
            Variable(np.zeros((2, 2), "float32"), name="w"), layouts["w"], []
        )
