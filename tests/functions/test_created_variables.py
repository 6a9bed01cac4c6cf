"""Test that a traced function stores the variables that it creates, or is refused."""

import numpy as np
import pytest

import toolkit
from toolkit import layers, metrics, ops, optimizers
from toolkit.core.variable import Variable
from toolkit.errors import TraceError, VariableCreationError


def variable(x):
    v = Variable(1.0)
    v.assign_add(x)
    return v.value


def layer(x):
    return layers.Dense(2, kernel_initializer="ones")(ops.reshape(x, (1, 1)))


def metric(x):
    mean = metrics.Mean()
    mean.update_state(x)
    return mean.result()


def optimizer(x):
    variable = KEPT[0]
    optimizers.SGD(0.1, momentum=0.9).apply([x], [variable])
    return variable.value


def seeds(x):
    return toolkit.random.normal((), seed=toolkit.random.SeedGenerator(1)) + x


def in_cond(x):
    return ops.cond(x > 0, lambda: variable(x), lambda: x)


def in_while(x):
    return ops.while_loop(lambda i: i < 3.0, lambda i: (i + variable(x),), (x,))[0]


def in_scan(x):
    return ops.scan(lambda c, _: (c + variable(x), c), x, length=3)[0]


KEPT = [Variable(1.0)]
CREATORS = [variable, layer, metric, optimizer, seeds, in_cond, in_while, in_scan]


@pytest.mark.parametrize("creates", CREATORS)
def test_variable_creation_in_each_call_is_refused(creates):
    check_creation_is_refused(creates, toolkit.function)


def check_creation_is_refused(creates, function):
    x = ops.ones(())
    np.asarray(creates(x))
    traced = function(creates)
    for _ in range(2):
        with pytest.raises(VariableCreationError, match=creates.__name__):
            traced(x)


class Keeps:
    """An object that creates its state in its first call."""

    def __init__(self, create):
        self.create, self.stored_value, self.runs = create, None, 0

    def __call__(self, x):
        self.runs += 1
        if self.stored_value is None:
            self.stored_value = self.create()
        return self.stored_value(x)


def counter():
    v = Variable(1.0)
    return lambda x: v.assign_add(x)


def test_stored_variables_of_the_first_call_are_allowed():
    check_stored_variables_are_allowed(toolkit.function)


def check_stored_variables_are_allowed(function):
    keeps = Keeps(counter)
    traced = function(keeps.__call__)
    assert [float(traced(ops.ones(()))) for _ in range(3)] == [2.0, 3.0, 4.0]
    assert keeps.runs == 2
    dense = Keeps(lambda: layers.Dense(2, kernel_initializer="ones"))
    traced = function(dense.__call__)
    assert np.asarray(traced(ops.ones((1, 3)))).tolist() == [[3.0, 3.0]]
    assert np.asarray(traced(ops.ones((2, 3)))).shape == (2, 2)


class Model(toolkit.Model):
    def __init__(self, method, creates):
        super().__init__()
        self.dense = layers.Dense(1)
        self.method, self.creates = method, creates

    def run(self, name, result):
        if self.method == name:
            self.creates(ops.ones(()))
        return result

    def call(self, x):
        return self.run("call", self.dense(x))

    def train_step(self, data):
        return self.run("train_step", super().train_step(data))

    def test_step(self, data):
        return self.run("test_step", super().test_step(data))

    def predict_step(self, data):
        return self.run("predict_step", super().predict_step(data))


STEPS = {
    "train_step": "fit",
    "test_step": "evaluate",
    "predict_step": "predict",
    "call": "predict",
}


@pytest.mark.parametrize("creates", [variable, metric, layer])
@pytest.mark.parametrize("step", STEPS)
def test_variable_creation_in_a_step_needs_eager_mode(step, creates):
    x, y = np.ones((4, 2)), np.ones((4, 1))
    data = (x,) if STEPS[step] == "predict" else (x, y)
    model = Model(step, creates)
    model.compile("sgd", "mse")
    with pytest.raises(VariableCreationError, match="creates a Variable again"):
        getattr(model, STEPS[step])(*data, verbose=0)
    model.compile("sgd", "mse", run_eagerly=True)
    getattr(model, STEPS[step])(*data, verbose=0)


def test_step_may_store_the_variables_of_its_first_call():
    class Lazy(toolkit.Model):
        mean = None

        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(1)

        def call(self, x):
            return self.dense(x)

        def test_step(self, data):
            if self.mean is None:
                self.mean = metrics.Mean()
            self.mean.update_state(data[0])
            return {"mean": self.mean.result()}

    model = Lazy()
    model.compile("sgd", "mse")
    x = np.arange(8.0).reshape(4, 2)
    logs = model.evaluate(x, x[:, :1], batch_size=2, return_dict=True, verbose=0)
    assert logs["mean"] == 3.5


@pytest.mark.parametrize("first", [ops.ones, ops.zeros, lambda s: ops.full(s, 2.0) + 1])
def test_initial_value_may_be_a_constant_of_the_trace(first):
    stored = []

    @toolkit.function
    def scale(x):
        if not stored:
            stored.append(Variable(first((x.shape[-1], 2))))
        stored[0].assign_add(ops.ones_like(stored[0]))
        return x @ stored[0]

    x = ops.ones((3, 4))
    start = first((4, 2)).numpy()
    for count in (1, 2):
        np.testing.assert_array_equal(scale(x), np.ones((3, 4)) @ (start + count))


def test_initial_value_that_depends_on_arguments_is_refused():
    stored = []

    @toolkit.function
    def scale(x):
        stored.append(Variable(x * 2.0))
        return stored[0] * x

    with pytest.raises(TraceError, match="initial value must not depend"):
        scale(ops.ones(()))
