"""Test data that each process provides a part of, and single batches."""

import re

import numpy as np
import pytest

from tests.distribution.jobs import run
from toolkit import distribution
from toolkit.data import Dataset
from toolkit.data.batch_shards import BatchShard
from toolkit.distribution import DataParallel
from toolkit.errors import ArgumentError

PARTS = """
random = np.random.default_rng(0)
x = random.random((48, 6), "float32")
y = x[:, :1].copy()

def part(array, size=8):  # rows of this process of each batch
    batches = array.reshape(-1, size, *array.shape[1:])
    count = size // parts
    mine = batches[:, place * count : (place + 1) * count]
    return mine.reshape(-1, *array.shape[1:])

def use(kind):
    if kind == "arrays":
        return dict(x=part(x), y=part(y), batch_size=8 // parts)
    mine = tk.data.Dataset.from_tensor_slices((part(x), part(y))).batch(8 // parts)
    if kind == "dataset":
        return dict(x=mine)
    return dict(x=iter(list(mine)))

def set_parallel(**options):
    global place, parts
    parallel = distribution.DataParallel(shards=4, **options)
    distribution.set_distribution(parallel)
    place, parts = parallel.data_shard_id, size
    if parallel.auto_shard_dataset: place, parts = 0, 1
"""


def test_processes_with_local_data(tmp_path):
    script = (
        PARTS
        + """
set_parallel(auto_shard_dataset=sys.argv[1] == "whole")
found = []
for kind in ("arrays", "dataset", "iterator"):
    model = network()
    options = dict(shuffle=False) if kind == "arrays" else {}
    history = model.fit(**use(kind), verbose=0, **options).history
    loss = model.evaluate(**use(kind), verbose=0)
    single = model.train_on_batch(part(x)[: 8 // parts], part(y)[: 8 // parts])
    tested = model.test_on_batch(part(x)[: 8 // parts], part(y)[: 8 // parts])
    predicted = model.predict(part(x), batch_size=8 // parts, verbose=0)
    alone = model.predict_on_batch(part(x)[: 8 // parts])
    assert len(predicted) == len(part(x)) and len(alone) == 8 // parts
    assert digest(predicted[: len(alone)]) == digest(alone)
    found.append([history, loss, single, tested, state_of(model)])
tell([found, [digest(row) for row in predicted]])
"""
    )
    expected_rows = run(tmp_path, 1, script, "whole")[0]
    reports = run(tmp_path, 2, script, "parts")
    assert all(logs == expected_rows[0] for logs, _ in reports)
    rows_of_ranks = [rows for _, rows in reports]
    joined = [
        r for at in range(0, 24, 4) for rows in rows_of_ranks for r in rows[at : at + 4]
    ]
    assert joined == expected_rows[1]


DIFFERING = {
    "model.fit(x[: 32 + rank], y[: 32 + rank], 8)": "fit: .*32 samples",
    "model.fit((pair for pair in [(x[:8], y[:8])] * (3 + rank)))": (
        r"after 3 batches: .*no more batches on rank 0; \(8, 6\) float32, .* on rank 1"
    ),
    "model.fit((p for p in [(x[:8], y[:8])] * 2 + [(x[rank:8], y[rank:8])]))": (
        r"after 2 batches: .*\(8, 6\) .* on rank 0; \(7, 6\) .* on rank 1"
    ),
    "model.train_on_batch(x[rank:8], y[rank:8])": "train_on_batch: .*rank 1",
    "model.test_on_batch(x[rank:8], y[rank:8])": "test_on_batch: .*rank 1",
    "model.predict_on_batch(x[rank:8])": "predict_on_batch: .*rank 1",
}


@pytest.mark.parametrize("auto", [True, False])
@pytest.mark.one_in(2)
def test_differences_are_named(tmp_path, auto):
    script = f"""
    distribution.set_distribution(distribution.DataParallel(auto_shard_dataset={auto}))
    x = np.ones((40, 6), "float32")
    y = x[:, :1]
    model = network()
    told = []
    for what in {list(DIFFERING)}:
        try:
            exec(what)
        except ValueError as error:
            told.append(str(error))
    tell(told)
    """
    first, second = run(tmp_path, 2, script)
    assert first == second and len(first) == len(DIFFERING)
    for message, words in zip(first, DIFFERING.values(), strict=True):
        assert re.search(words, message), message


ARGUMENTS = {
    "model.fit(x, y, 8, epochs=2 + rank)": r"epochs=.0, 2.,.*rank 0; epochs=.0, 3.",
    "model.fit(x, y, 8, validation_freq=1 + rank)": "validation_freq=2, .*rank 1",
    "model.fit(x, y, 8, initial_epoch=rank)": "epochs=.1, 1., .* on rank 1",
    "model.evaluate(x, y, 8, callbacks=[Saves()] if rank else [])": "save: Saves on",
    "set(steps_per_execution=1 + rank); model.predict(x)": "_execution=2, .*rank 1",
    "set(optimizer=tk.optimizers.SGD(0.1 + rank)); model.fit(x, y)": (
        r"/learning_rate with the first values \[0.1.*rank 0; .*\[1.1.* on rank 1"
    ),
    "tk.utils.set_random_seed(rank); model.fit(x, y)": "fit: expected .*rank 0; .*rank",
    "tk.utils.set_random_seed(rank); built().fit(x, y)": (
        "dense.*/kernel with the first values"
    ),
}


def test_different_arguments_and_weights_are_named(tmp_path):
    script = f"""
    distribution.set_distribution(distribution.DataParallel())
    x = np.ones((40, 6), "float32")
    y = x[:, :1]

    class Saves(tk.callbacks.Callback):
        _needs_all = True

    def set(**options):
        model.compile(**dict(dict(loss="mse"), **options))

    def built():
        model = tk.Sequential([tk.Input((6,)), layers.Dense(1)])
        model.compile("sgd", "mse")
        return model

    told = []
    for what in {list(ARGUMENTS)}:
        model = network()
        try:
            exec(what)
        except ValueError as error:
            told.append(str(error))
    tell(told)
    """
    first, second = run(tmp_path, 2, script)
    assert first == second and len(first) == len(ARGUMENTS), first
    for message, words in zip(first, ARGUMENTS.values(), strict=True):
        assert re.search(words, message), message


def test_local_rows_outside_of_fit(tmp_path):
    script = """
    parallel = distribution.DataParallel()
    distribution.set_distribution(parallel)
    read = []
    def row(number):
        read.append(int(number))
        return np.full(6, number, "float32"), np.ones(1, "float32")
    whole = tk.data.Dataset.range(10).map(row).batch(4)
    mine = parallel.distribute_dataset(whole)
    rows = [batch[0][:, 0].tolist() for batch in mine]
    count = len(read)
    losses = [network().fit(d, verbose=0).history for d in (whole, mine)]
    assert losses[0] == losses[1]
    try:
        parallel.distribute_dataset([1])
    except ValueError as error:
        tell([rows, count, str(error)])
    """
    reports = run(tmp_path, 2, script)
    assert [rows for rows, _, _ in reports] == [
        [[0, 1], [4, 5], [8]],
        [[2, 3], [6, 7], [9]],
    ]
    assert [count for _, count, _ in reports] == [
        6,
        6,
    ]  # once to check whether it draws
    assert all("expected a Dataset" in error for _, _, error in reports)


def test_distribute_dataset_of_one_process():
    batches = Dataset.range(4).batch(2)
    assert DataParallel().distribute_dataset(batches) is batches
    strategy = DataParallel(auto_shard_dataset=False)
    assert strategy.distribute_dataset(batches) is batches


def test_local_rows_of_batches_of_a_generator():
    batches = Dataset.range(8).batch(4).map(lambda x: (x, np.float32(1)))
    local_rows = batches._local_shard(lambda count: range(1, count - 1))
    assert [x.tolist() for x, _ in local_rows] == [[1, 2], [5, 6]]
    assert len(local_rows) == 2 and repr(local_rows).endswith("own rows>")
    iterator = iter(local_rows)
    next(iterator)
    resumed = iter(local_rows)
    resumed.set_state(iterator.get_state())
    assert next(resumed)[0].tolist() == [5, 6]
    assert not any(type(batch) is BatchShard for batch in local_rows)


def test_inconsistent_shards_are_refused(monkeypatch):
    strategy = DataParallel(auto_shard_dataset=False, shards=3)
    (axis,) = strategy.axes

    class Two:
        size, rank = 2, 0

    import dataclasses

    strategy.__dict__["axes"] = [dataclasses.replace(axis, group=Two())]
    with pytest.raises(ArgumentError, match="shards that divide by the 2 parts"):
        strategy.check()
    distribution.set_distribution(None)


RESUMED = """
random = np.random.default_rng(0)
x = random.random((44, 6), "float32")
y = x[:, :1].copy()
distribution.set_distribution(distribution.DataParallel(shards=6))
folder, kind, until = sys.argv[1], sys.argv[2], int(sys.argv[3])

class Stop(tk.callbacks.Callback):
    steps = 0
    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1
        if self.steps == until: raise KeyError("stop")

def data():
    if kind == "arrays":
        return dict(x=x, y=y, batch_size=8)
    rows = tk.data.Dataset.range(44).shuffle(None, seed=3)
    rows = rows.map(lambda n: (x[n], y[n]), num_parallel_calls=2)
    return dict(x=rows.batch(8).prefetch(2))

model = network()
model.build((None, 6))
calls = [Stop(), tk.callbacks.CSVLogger("log.csv", append=True)]
if folder != "none":
    calls = [tk.callbacks.BackupAndRestore(folder, save_freq=1), *calls]
calls = calls[-2:-1] if folder == "none" else calls
try:
    history = model.fit(**data(), epochs=3, verbose=0, callbacks=calls).history
    tell([{k: v[-1] for k, v in history.items()}, state_of(model)])
except KeyError:
    tell("stopped")
"""


@pytest.mark.parametrize("kind", ["arrays", "dataset"])
@pytest.mark.one_in(2)
def test_two_processes_continue_a_run_of_three(tmp_path, kind):
    folder = str(tmp_path / "backup")
    assert run(tmp_path, 3, RESUMED, folder, kind, "9") == ["stopped"] * 3
    reports = run(tmp_path, 2, RESUMED, folder, kind, "-1")
    (expected,) = run(tmp_path, 1, RESUMED, "none", kind, "-1")
    assert reports == [expected] * 2


def test_a_process_of_a_job_has_one_device(tmp_path):
    script = """
    tk.config.set_logical_devices("cpu", 2)
    distribution.set_distribution(distribution.DataParallel())
    tell([distribution.list_devices(), distribution.get_device_count("cpu")])
    """
    assert run(tmp_path, 2, script) == [[["cpu:0", "cpu:1"], 2]] * 2


def test_layouts_of_outputs_are_hints(tmp_path):
    script = """
    mesh = distribution.DeviceMesh((1, 2), ["batch", "model"])
    states = []
    for has_hint in (False, True):
        layouts = distribution.LayoutMap(mesh)
        layouts["d1/kernel"] = (None, "model")
        if has_hint:
            layouts["d1/output"] = ("batch", None)
        strategy = distribution.ModelParallel(layout_map=layouts)
        with strategy.scope():
            tk.utils.set_random_seed(0)
            model = tk.Sequential([
                tk.Input((4,)), layers.Dense(6, name="d1"), layers.Dense(1)
            ])
            model.compile("adam", "mse")
            x = np.arange(32, dtype="float32").reshape(8, 4)
            model.fit(x, x[:, :1], verbose=0)
            states.append(digest(*model.get_weights()))
    tell(states)
    """
    first, second = run(tmp_path, 2, script)
    assert first == second and first[0] == first[1]
