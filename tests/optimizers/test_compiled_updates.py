"""Test that `apply` outside of a function gives the same results as separate steps."""

import copy
import threading

import numpy as np
import pytest

import toolkit as tk
from toolkit import ops, optimizers
from toolkit.errors import ArgumentError


def make_variables(count=3):
    rng = np.random.default_rng(0)
    return [
        tk.Variable(rng.normal(size=(2, 3)).astype("float32")) for _ in range(count)
    ]


def gradients(step, count=3):
    rng = np.random.default_rng(step)
    return [ops.convert_to_tensor(rng.normal(size=(2, 3)), "float32")] * count


class Eager(optimizers.Adam):
    """An optimizer with code of a user, which no program contains."""

    def update_step(self, gradient, variable, learning_rate):
        super().update_step(gradient, variable, learning_rate)
        self.updates = getattr(self, "updates", 0) + 1


def trained(optimizer, change=lambda optimizer, step: None):
    variables = make_variables()
    for step in range(5):
        change(optimizer, step)
        optimizer.apply(gradients(step), variables)
    return [v.numpy() for v in variables]


def set_attribute(name, value):
    def change(optimizer, step):
        if step == 3:
            setattr(optimizer, name, value)

    return change


@pytest.mark.parametrize(
    "change",
    [
        lambda optimizer, step: None,
        set_attribute("learning_rate", 0.5),
        set_attribute("beta_1", 0.1),
        set_attribute("global_clipnorm", 0.01),
        set_attribute("weight_decay", 0.1),
    ],
)
def test_changed_attributes_have_an_effect(change):
    compiled = trained(optimizers.Adam(0.1), change)
    for actual, expected in zip(compiled, trained(Eager(0.1), change), strict=True):
        np.testing.assert_allclose(actual, expected, 1e-5, 1e-6)


def test_changed_schedule_has_an_effect():
    results = []
    for kind in (optimizers.Adam, Eager):
        schedule = optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)

        def change(optimizer, step, schedule=schedule):
            if step == 3:
                schedule.decay_rate = 2.0

        results.append(trained(kind(schedule), change))
    for actual, expected in zip(*results, strict=True):
        np.testing.assert_allclose(actual, expected, 1e-5, 1e-6)


def test_code_of_a_user_runs_in_each_update():
    optimizer = Eager(0.1)
    trained(optimizer)
    assert optimizer.updates == 15


def test_constraint_of_a_user_runs_in_each_update():
    calls = []
    variable = tk.Variable([1.0, 2.0])
    variable.constraint = lambda value: calls.append(1) or ops.clip(value, 0, 1)
    optimizer = optimizers.SGD(0.1)
    for _ in range(3):
        optimizer.apply([ops.ones((2,))], [variable])
    assert len(calls) == 3 and variable.numpy().max() <= 1


def test_sets_of_variables_alternate():
    variables, optimizer = make_variables(), optimizers.SGD(1.0)
    optimizer.build(variables)
    start = [v.numpy() for v in variables]
    for step in range(4):
        part = variables[:2] if step % 2 else variables[1:]
        optimizer.apply([ops.ones((2, 3))] * 2, part)
    counts = [2, 4, 2]
    for v, first, count in zip(variables, start, counts, strict=True):
        np.testing.assert_allclose(v.numpy(), first - count, rtol=1e-6)


def test_missing_gradients_are_reported_in_each_update():
    variables, optimizer = make_variables(2), optimizers.SGD(1.0)
    for _ in range(3):
        with pytest.warns(UserWarning, match="no gradient for the variables"):
            optimizer.apply([ops.ones((2, 3)), None], variables)
    with pytest.raises(ArgumentError, match="No gradients provided"):
        optimizer.apply([None, None], variables)


def test_wrong_gradient_changes_no_variable():
    variables, optimizer = make_variables(2), optimizers.SGD(1.0)
    optimizer.apply([ops.ones((2, 3))] * 2, variables)
    before = [v.numpy() for v in variables]
    with pytest.raises(ValueError, match="apply"):
        optimizer.apply([ops.ones((2, 3)), ops.ones((3, 3))], variables)
    for v, expected in zip(variables, before, strict=True):
        np.testing.assert_array_equal(v.numpy(), expected)


def test_copies_update_separate_variables():
    variables, optimizer = make_variables(), optimizers.Adam(0.1)
    optimizer.apply(gradients(0), variables)
    pair = copy.deepcopy((variables, optimizer))
    pair[1].apply(gradients(1), pair[0])
    optimizer.apply(gradients(1), variables)
    for v, w in zip(variables, pair[0], strict=True):
        np.testing.assert_array_equal(v.numpy(), w.numpy())


def test_threads_update_separate_variables():
    results = {}

    def train(number):
        results[number] = trained(optimizers.Adam(0.1))

    threads = [threading.Thread(target=train, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in (1, 2):
        np.testing.assert_array_equal(results[number], results[0])


def test_rows_of_tables_are_updated():
    table = tk.Variable(np.zeros((50, 2), "float32"))
    optimizer = optimizers.SGD(1.0)
    for _ in range(3):
        with tk.GradientTape() as tape:
            loss = ops.sum(ops.take(table, [3, 3, 7], axis=0))
        optimizer.apply(tape.gradient(loss, [table]), [table])
    expected = np.zeros((50, 2))
    expected[3], expected[7] = -6, -3
    np.testing.assert_allclose(table.numpy(), expected)


def test_changed_constraint_has_an_effect():
    variable, optimizer = tk.Variable([1.0, 2.0]), optimizers.SGD(0.0)
    optimizer.apply([ops.ones((2,))], [variable])
    variable.constraint = tk.constraints.MaxNorm(1.0)
    optimizer.apply([ops.ones((2,))], [variable])
    assert np.linalg.norm(variable.numpy()) <= 1.001
    calls = []
    variable.constraint = lambda value: calls.append(1) or value * 2
    for _ in range(3):
        optimizer.apply([ops.ones((2,))], [variable])
    assert len(calls) == 3 and 7 < np.linalg.norm(variable.numpy()) < 9
