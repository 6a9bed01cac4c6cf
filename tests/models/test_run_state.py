"""Test Progress: the saved state of a run other than the weights."""

import json

import numpy as np
import pytest

import toolkit
from toolkit import callbacks, layers, metrics
from toolkit.errors import ArgumentError
from toolkit.models.callbacks.callback_list import CallbackList
from toolkit.models.training.resuming import Progress
from toolkit.random import global_seed_generator


class Batches:
    """A stand-in for the batches of a run."""

    def __init__(self, done=0):
        self.num_yielded, self.restored = done, None

    def state(self):
        return {"done": self.num_yielded}

    def restore(self, state):
        self.restored, self.num_yielded = state, state["done"]


class Counted(metrics.Metric):
    """A counter with a custom shape and dtype."""

    def __init__(self, shape, dtype, name):
        super().__init__(name=name)
        self.counts = self.add_variable(shape, "zeros", dtype=dtype, name="counts")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.counts.assign_add(np.ones(self.counts.shape))

    def result(self):
        return self.counts.value[0]


class Remembers(callbacks.Callback):
    """A callback with state that records its restored state."""

    def __init__(self, value=0):
        super().__init__()
        self.value, self.resumed = value, []

    def state_dict(self):
        return {"value": self.value}

    def load_state_dict(self, state):
        self.value = state["value"]

    def _is_resumed(self):
        self.resumed.append(self.value)
        return super()._is_resumed()


class Other(Remembers):
    """Another callback with state."""


def make(seed=1):
    toolkit.utils.set_random_seed(seed)
    inner = [toolkit.Input((4,)), layers.Dropout(0.5, seed=seed), layers.Dense(2)]
    model = toolkit.Sequential(inner)
    counters = [Counted((3,), "uint32", "a"), Counted((2,), "float32", "b")]
    model.compile("sgd", "mse", metrics=["mae", *counters])
    model.train_on_batch(np.ones((2, 4)), np.ones((2, 2)))
    return model


def progress_of(model, *objects, num_yielded=0, batches=None):
    batches = batches or Batches(num_yielded)
    return Progress(model, batches, CallbackList([*objects], add_history=True))


def saved(*objects, num_yielded=0):
    """Return the state of a run, through JSON, and its model."""
    model = make()
    state = progress_of(model, *objects, num_yielded=num_yielded).state()
    return json.loads(json.dumps(state)), model


def seeds(model):
    seed_states = [
        v for v in model.variables if v.dtype == "uint32" and v.shape == (2,)
    ]
    return [v.numpy().tolist() for v in [*seed_states, global_seed_generator().state]]


def measured(model):
    return [v.numpy().tolist() for metric in model.metrics for v in metric.variables]


def test_seeds_are_from_the_layers_and_the_global_seed():
    state, model = saved()
    assert state["seeds"] == seeds(model) and len(state["seeds"]) == 2


def test_run_continues_within_an_epoch():
    state, model = saved(Remembers(7), num_yielded=3)
    expected, totals = seeds(model), measured(model)
    other, callback = make(2), Remembers()
    other.reset_metrics()
    assert seeds(other) != expected
    batches = Batches()
    progress = progress_of(other, callback, batches=batches)
    assert progress.epoch is None
    progress.restore(state, 4)
    assert progress.epoch == 4 and callback.value == 0  # not before it starts
    progress.begin()
    assert seeds(other) == expected
    assert batches.restored == {"done": 3}
    assert (callback.value, callback.resumed) == (7, [7])
    progress.begin_epoch(4)
    assert measured(other) == totals
    progress.begin_epoch(5)
    assert not np.any([np.sum(x) for x in measured(other)])


def test_metrics_are_reset_at_the_start_of_an_epoch():
    state, model = saved(num_yielded=0)
    progress = progress_of(model)
    progress.restore(state, 1)
    progress.begin()
    progress.begin_epoch(1)
    assert not np.any([np.sum(x) for x in measured(model)])


@pytest.mark.parametrize("state", [None, {}])
def test_unsaved_run_restores_nothing(state):
    model, callback = make(), Remembers(3)
    before = seeds(model)
    batches = Batches(2)
    progress = progress_of(model, callback, batches=batches)
    if state is not None:
        progress.restore(state, 1)
    progress.begin()
    assert batches.restored is None
    assert (seeds(model), callback.value, callback.resumed) == (before, 3, [])
    progress.begin_epoch(1)
    assert not np.any([np.sum(x) for x in measured(model)])


@pytest.mark.parametrize(
    "current, values",
    [
        ([Remembers(1), Other(2)], [7, 8]),
        ([callbacks.Callback(), Remembers(1), callbacks.History(), Other(2)], [7, 8]),
        ([Other(2), Remembers(1)], [2, 1]),
        ([Remembers(1)], [1]),
        ([Remembers(1), Other(2), Remembers(3)], [1, 2, 3]),
    ],
)
def test_callbacks_are_restored_only_if_all_match(current, values):
    state, _ = saved(Remembers(7), Other(8), num_yielded=1)
    batches = Batches()
    progress = progress_of(make(), *current, batches=batches)
    progress.restore(state, 1)
    progress.begin()
    resumed = [c for c in current if isinstance(c, Remembers)]
    assert [c.value for c in resumed] == values
    back = values == [7, 8]
    assert all(bool(c.resumed) == back for c in resumed)
    assert batches.restored == {"done": 1}


def test_only_callbacks_with_state_are_saved_except_history():
    history = callbacks.History()
    history.history = {"loss": [1.0]}
    assert history.state_dict()
    state, _ = saved(callbacks.Callback(), history, Remembers(7))
    assert [name for name, _ in state["callbacks"]] == ["Remembers"]


def test_unserializable_state_is_reported():
    with pytest.raises(
        ArgumentError, match=r"Remembers.state_dict: .*expected numbers"
    ):
        saved(Remembers(object()))


class Positives(metrics.Metric):
    """A metric that returns its counters, alone or in a dict."""

    def __init__(self, nested):
        super().__init__(name="positives")
        self.nested = nested
        self.total = self.add_weight(shape=(), initializer="zeros", name="total")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.total.assign_add(toolkit.ops.sum(toolkit.ops.abs(y_true)))

    def result(self):
        return {"positives": self.total} if self.nested else self.total


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("run_eagerly", [False, True])
def test_metric_may_return_its_state(nested, run_eagerly, tmp_path):
    model = toolkit.Sequential([toolkit.Input((2,)), layers.Dense(1)])
    model.compile("sgd", "mse", metrics=[Positives(nested)], run_eagerly=run_eagerly)
    sizes = iter([1.0, 2.0, 3.0, 4.0])

    def batches():
        while True:
            y = np.full((4, 1), next(sizes), "float32")
            yield np.ones((4, 2), "float32"), y

    log = callbacks.CSVLogger(str(tmp_path / "log.csv"))
    fitted = model.fit(
        batches(), steps_per_epoch=1, epochs=3, verbose=0, callbacks=[log]
    )
    assert fitted.history["positives"] == [4.0, 8.0, 12.0]
    rows = (tmp_path / "log.csv").read_text("utf-8").splitlines()
    column = rows[0].split(",").index("positives")
    assert [float(row.split(",")[column]) for row in rows[1:]] == [4.0, 8.0, 12.0]
    x, y = np.ones((4, 2), "float32"), np.ones((4, 1), "float32")
    results = model.evaluate(x, y, verbose=0, return_dict=True)["positives"]
    assert isinstance(results, float) and results == 4.0
    (before,) = toolkit.tree.flatten(model.get_metrics_result()["positives"])
    model.evaluate(x, 2 * y, verbose=0)
    assert float(before) == 4.0
