"""Test single steps of a model: their compilation and their results."""

import copy

import numpy as np
import pytest

import toolkit
from tests.helpers import assert_close
from toolkit import layers, metrics, ops
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError
from toolkit.models.training import compile_checks, steps
from toolkit.models.training.steps import (
    CompiledStep,
    EagerStep,
    Steps,
    batch_size,
    overrides,
)

X, Y = np.arange(6, dtype="float32").reshape(2, 3), np.ones((2, 1), "float32")
T = ops.convert_to_tensor(X)


class RecordingModel(toolkit.Model):
    """A model that records its calls and the arguments of its losses."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.inner = layers.Dense(1)
        self.calls, self.loss_calls = [], []

    def call(self, x, training=None):
        self.calls.append(training)
        return self.inner(x)

    def compute_loss(self, x, y, y_pred, sample_weight=None, training=True):
        self.loss_calls.append(training)
        return super().compute_loss(x, y, y_pred, sample_weight, training)


class Plain(toolkit.Model):
    """A model without the argument `training`, also in its loss."""

    def __init__(self):
        super().__init__()
        self.inner = layers.Dense(1)

    def call(self, x):
        return self.inner(x)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None):
        return ops.sum(y_pred) * 0.0 + 5.0


def compiled(model, **options):
    model.compile(**{"optimizer": "sgd", "loss": "mse", **options})
    model.build((None, 3))
    return model


def single(**options):
    return compiled(toolkit.Sequential([layers.Dense(1)]), **options)


# --- one step -------------------------------------------------------------------------

STEPS = {"train": True, "test": False, "predict": False}


@pytest.mark.parametrize("name", STEPS)
def test_each_step_passes_training_to_the_model(name):
    model = compiled(RecordingModel())
    model.calls.clear()
    data = (T, ops.convert_to_tensor(Y))
    with toolkit.StatelessScope():
        getattr(model, f"{name}_step")(data)
    assert model.calls == [STEPS[name]]
    assert model.loss_calls == ([] if name == "predict" else [STEPS[name]])


def test_training_is_not_passed_if_unsupported():
    model = compiled(Plain())
    for step in (model.train_step, model.test_step):
        assert float(step((T, ops.convert_to_tensor(Y)))["loss"]) == 5.0
    assert model.predict_step((T,)).shape == (2, 1)
    assert model.predict_step((T, T)).shape == (2, 1)


@pytest.mark.parametrize("name", ["train_step", "test_step"])
def test_loss_of_all_batches_is_weighted_by_samples(name):
    model = single(optimizer=toolkit.optimizers.SGD(0.0), weighted_metrics=["mae"])
    errors = np.abs(model.predict_on_batch(X) - Y)[:, 0]
    for rows in (slice(0, 2), slice(0, 1)):
        weights = ops.convert_to_tensor(X[rows, 0] + 1)
        data = (T[rows], ops.convert_to_tensor(Y[rows]), weights)
        logs = getattr(model, name)(data)
    first, second = (errors**2 * [1, 4]).mean(), errors[0] ** 2
    assert float(logs["loss"]) == pytest.approx((2 * first + second) / 3, rel=1e-5)
    expected = np.average(errors[[0, 1, 0]], weights=[1, 4, 1])
    assert float(logs["mae"]) == pytest.approx(expected, rel=1e-5)


def test_train_step_scales_its_loss():
    model = single(optimizer=toolkit.optimizers.SGD(0.5, loss_scale_factor=8.0))
    twin = single(optimizer=toolkit.optimizers.SGD(0.5))
    twin.set_weights(model.get_weights())
    logs = [m.train_step((T, ops.convert_to_tensor(Y)))["loss"] for m in (model, twin)]
    assert_close(logs[0], logs[1].numpy())
    for a, b in zip(model.get_weights(), twin.get_weights(), strict=True):
        assert_close(a, b)


def test_model_without_weights_warns():
    model = toolkit.Sequential([toolkit.Input((3,)), layers.Activation("relu")])
    model.compile("sgd", "mse")
    with pytest.warns(UserWarning, match="no trainable weights"):
        model.train_step((T, T))


# --- losses ---------------------------------------------------------------------------


def test_all_losses_are_added():
    model = single(loss=None)
    with pytest.raises(ArgumentError, match="no loss to compute; pass `loss`"):
        model.compute_loss(T, None, T)
    model.add_loss(ops.ones((3,)))
    assert float(model.compute_loss(T, None, T)) == 3.0
    model = single()
    model.add_loss(ops.ones(()))
    model.add_loss(ops.full((), 10.0))
    assert float(model.compute_loss(T, T + 2.0, T)) == 4.0 + 1.0 + 10.0


def test_outputs_without_a_loss_add_zero():
    model = single(loss=[None])
    model.add_loss(ops.ones(()))
    assert float(model.compute_loss(T, [T], [T])) == 1.0


def test_loss_without_state_changes_no_variable():
    model = single()
    trainable = [ops.full(v.shape, 2.0) for v in model.trainable_variables]
    before = model.get_weights()
    metric = [v.value for v in model.metrics_variables]
    loss, state = model.stateless_compute_loss(trainable, [], metric, T, T[:, :1], T)
    assert state[0] is trainable and [len(s) for s in state[1:]] == [0, len(metric)]
    for a, b in zip(before, model.get_weights(), strict=True):
        assert_close(a, b)
    regular = toolkit.Sequential([layers.Dense(1, kernel_regularizer="l2")])
    compiled(regular)
    twos = [ops.full(v.shape, 2.0) for v in regular.trainable_variables]
    y = T[:, :1]
    loss, _ = regular.stateless_compute_loss(twos, [], [], T, y, y)
    assert float(loss) == pytest.approx(0.01 * 3 * 4.0, rel=1e-5)
    with pytest.raises(ValueError):
        regular.stateless_compute_loss(twos[:1], [], [], T, y, y)


# --- metrics --------------------------------------------------------------------------


class WithMetric(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seen = metrics.Mean(name="seen")

    def call(self, x):
        return x


class Two(metrics.Mean):
    """A metric of two results."""

    def result(self):
        return {"one": super().result(), "two": super().result() + 1.0}


def test_metrics_exclude_metrics_of_inner_models():
    inner = toolkit.Sequential([layers.Dense(3), WithMetric()])
    inner.compile("sgd", "mse", metrics=["mae"])
    inner.own = metrics.Mean(name="inner_own")

    class Outer(toolkit.Model):
        def __init__(self):
            super().__init__()
            self.own = metrics.Mean(name="own")
            self.inner, self.other = inner, WithMetric()
            self.other.seen.name = "other"

        def call(self, x):
            return self.other(self.inner(x))

    model = Outer()
    assert sorted(model.metrics_names) == ["other", "own", "seen"]
    model.compile("sgd", "mse", metrics=["mae"])
    names = ["loss", "compile_metrics"]
    assert model.metrics_names[:2] == names
    assert sorted(model.metrics_names[2:]) == ["other", "own", "seen"]
    model.compile("sgd", "mse")
    assert model.metrics_names[:1] == ["loss"]
    assert "compile_metrics" not in model.metrics_names
    metrics_of_model = model.metrics
    for metric in metrics_of_model:
        if hasattr(metric, "total"):
            metric.update_state(3.0)
    results = model.get_metrics_result()
    assert {name: float(v) for name, v in results.items()} == dict.fromkeys(
        [m.name for m in metrics_of_model], 3.0
    )
    model.reset_metrics()
    assert not any(float(m.result()) for m in metrics_of_model)


def test_parts_of_several_losses_are_metrics():
    x = toolkit.Input((3,))
    model = toolkit.Model(
        x, [layers.Dense(1, name="a")(x), layers.Dense(1, name="b")(x)]
    )
    model.compile("sgd", ["mse", "mae"])
    model.train_on_batch(X, [Y, Y])
    assert model.metrics_names == ["loss", "a_loss", "b_loss"]


def test_model_without_a_loss_has_metrics():
    assert single(loss=None, metrics=["mae"]).metrics_names == [
        "loss",
        "compile_metrics",
    ]


def test_metric_may_have_several_results():
    model = single()
    model.two = Two(name="two_of_them")
    model.two.update_state(3.0)
    results = model.get_metrics_result()
    assert (float(results["one"]), float(results["two"])) == (3.0, 4.0)
    assert "two_of_them" not in results


def test_compute_metrics_updates_and_returns_all():
    y, weights = ops.convert_to_tensor(Y), ops.convert_to_tensor([1.0, 3.0])
    model = single(metrics=["mae"], weighted_metrics=["mse"])
    logs = model.compute_metrics(T, y, y + T[:, :1], weights)
    assert float(logs["mae"]) == 1.5
    assert float(logs["mse"]) == pytest.approx(9 * 3 / 4)
    assert set(single().compute_metrics(T, y, y)) == {"loss"}


def test_old_names_warn_and_work():
    model, y = single(metrics=["mae"]), ops.convert_to_tensor(Y)
    with pytest.warns(DeprecationWarning, match="`compiled_loss` is deprecated"):
        assert float(model.compiled_loss(y, y + 2.0)) == 4.0
    with pytest.warns(DeprecationWarning, match="`compiled_metrics` is deprecated"):
        model.compiled_metrics.update_state(y, y + 2.0)
    assert float(model.get_metrics_result()["mae"]) == 2.0
    with pytest.warns(DeprecationWarning, match="`compiled_metrics` is deprecated"):
        assert single().compiled_metrics.update_state(y, y) is None


# --- modes of steps -------------------------------------------------------------------


@pytest.mark.parametrize("name", STEPS)
def test_functions_are_created_once_unless_forced(name):
    model = single()
    make = getattr(model, f"make_{name}_function")
    setattr(model, f"{name}_function", None)
    function = make()
    assert isinstance(function, CompiledStep) and function is make()
    assert getattr(model, f"{name}_function") is function
    other_function = make(force=True)
    assert other_function is not function and other_function is make()


class Eager(layers.Layer):
    def __init__(self):
        super().__init__()
        self.supports_jit = False

    def call(self, x):
        return x


@pytest.mark.filterwarnings("ignore:.*steps run as Python code")
@pytest.mark.parametrize(
    "layer, run_eagerly, kind",
    [
        (layers.Identity, False, CompiledStep),
        (layers.Identity, True, EagerStep),
        (Eager, False, EagerStep),
        (Eager, True, EagerStep),
    ],
)
def test_uncompilable_step_runs_as_python_code(layer, run_eagerly, kind):
    model = toolkit.Sequential([layer()])
    model.compile("sgd", "mse", run_eagerly=run_eagerly, jit_compile=False)
    function = model.make_predict_function(force=True)
    assert type(function) is kind
    assert kind is EagerStep or function.jit_compile is False
    assert_close(function(T), X)


def test_custom_steps_are_detected():
    class Own(toolkit.Model):
        def train_step(self, data):
            return {}

    model = Own()
    results = [overrides(model, f"{name}_step") for name in STEPS]
    assert results == [True, False, False]
    assert not overrides(single(), "train_step")
    assert Own.test_step is Steps.test_step


# --- CompiledStep ---------------------------------------------------------------------


def total(batch):
    leaves = [x for x in toolkit.tree.flatten(batch) if x is not None]
    return sum(ops.sum(x) for x in leaves[1:]) + ops.sum(leaves[0])


BATCHES = {
    "a tensor": T,
    "a tuple": (T, T),
    "a list": [T, T],
    "a tuple with none": (T, None, T),
    "nested": ({"a": T, "b": [T]}, T),
    "a dict": {"a": T},
}


def test_step_is_traced_once_per_structure():
    step = CompiledStep(total, False)
    assert step.trace_count == 0
    for count, (name, batch) in enumerate(BATCHES.items(), 1):
        for _ in range(2):
            expected = X.sum() * len(
                [x for x in toolkit.tree.flatten(batch) if x is not None]
            )
            assert float(step(batch)) == expected, name
        assert step.trace_count == count


def test_first_batch_can_be_inspected_again():
    step = CompiledStep(total, False)
    assert step.inspect() is None
    step((T, None))
    step((T[:1], None))
    step((T[:1], T))  # of another structure
    assert step.inspect().graph.inputs[0].spec.shape == (2, 3)
    assert step.inspect((T[:1], None)).graph.inputs[0].spec.shape == (1, 3)
    assert EagerStep(total).inspect((T,)) is None


def test_copy_of_a_step_has_separate_traces():
    step = CompiledStep(total, False)
    step(T)
    other = copy.copy(step)
    assert (step.trace_count, other.trace_count) == (1, 0)
    assert float(other(T)) == X.sum()
    assert (step.trace_count, other.trace_count) == (1, 1)


def test_step_has_the_name_of_its_function():
    step = CompiledStep(total, False)
    step(T)
    assert step.inspect().name == "total"

    class Callable:
        def __call__(self, batch):
            return ops.sum(batch)

    step = CompiledStep(Callable(), False)
    step(T)
    assert step.inspect().name == "step"


@pytest.mark.parametrize(
    "batch, words",
    [
        ((np.array([0, 9]), np.array([0.5])), "in this batch x has values from 0 to 9"),
        (
            (np.array([0.5]), np.array([3.0, -2.0])),
            "in this batch y has values from -2 to 3",
        ),
        (np.array([1, 7]), "in this batch x has values from 1 to 7"),
        (
            ([np.array([1]), np.array([2])],),
            "x has values from 1 to 1, x has values from 2 to 2",
        ),
        ((np.array([0.5]), np.zeros(0)), "no array contains integers"),
        ((np.array(["a"]), np.array([True])), "no array contains integers"),
        ((np.array([1.5]), np.array([2.5]), np.array([1])), "no array contains int"),
    ],
)
def test_possible_indices_are_reported(batch, words):
    assert words in compile_checks.describe_indices(batch)
    if words.startswith("in this batch"):
        assert compile_checks.describe_indices(batch) == words


# --- EagerStep ------------------------------------------------------------------------


def test_variables_change_together_at_the_end():
    a, b = Variable(1.0), Variable(2.0)

    def step(batch):
        a.assign(b + 10.0)
        b.assign(a + 10.0)
        if batch is None:
            raise ValueError("no batch")
        return a.value

    run = EagerStep(step)
    with pytest.raises(ValueError, match="no batch"):
        run(None)
    assert (float(a), float(b)) == (1.0, 2.0)
    assert float(run(T)) == 12.0
    assert (float(a), float(b)) == (12.0, 22.0)


def test_interrupt_at_the_end_finishes_the_step(monkeypatch):
    a, b, calls = Variable(1.0), Variable(2.0), []
    assign = Variable.assign

    def interrupted(variable, value):
        calls.append(variable)
        if len(calls) == 4:  # two in the step itself, and the first at its end
            raise KeyboardInterrupt
        return assign(variable, value)

    def step(batch):
        a.assign(5.0)
        b.assign(6.0)

    monkeypatch.setattr(Variable, "assign", interrupted)
    with pytest.raises(KeyboardInterrupt):
        EagerStep(step)(T)
    assert (float(a), float(b)) == (5.0, 6.0)


# --- sizes ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "x, size",
    [
        (X, 2),
        ([None, X], 2),
        ({"a": np.ones((5, 1)), "b": X}, 5),
        (np.array(["a", "b", "c"]), 3),
        ([1.0, 2.0], None),
    ],
)
def test_number_of_samples_in_a_batch(x, size):
    if size is None:
        with pytest.raises(IndexError):
            batch_size(x)
        return
    assert batch_size(x) == float(steps.samples(x)) == size
