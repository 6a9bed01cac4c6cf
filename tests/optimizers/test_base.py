"""Test the base class of optimizers: arguments, missing gradients, averages."""

import numpy as np
import pytest

import toolkit
from tests.helpers import assert_close
from toolkit import ops, optimizers
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError
from toolkit.optimizers.optimizer import Optimizer

SGD = optimizers.SGD


def ones(*shape):
    return ops.ones(shape)


@pytest.mark.parametrize(
    "arguments",
    [
        {"ema_momentum": 0, "use_ema": True},
        {"ema_momentum": 1, "use_ema": True},
        {"ema_overwrite_frequency": 1},
        {"gradient_accumulation_steps": 2},
        {"gradient_accumulation_steps": np.int64(2)},
        {"clipnorm": 1e-9},
        {"clipvalue": 0.5, "clipnorm": None},
        {"global_clipnorm": 0.5},
        {"decay": None},
    ],
)
def test_boundary_arguments_are_accepted(arguments):
    optimizer = SGD(0.5, **arguments)
    v = Variable([4.0])
    optimizer.apply([ones(1)], [v])
    assert np.isfinite(v.numpy()).all()


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"ema_momentum": -0.1, "use_ema": True}, "ema_momentum"),
        ({"ema_momentum": 1.1, "use_ema": True}, "ema_momentum"),
        ({"ema_overwrite_frequency": 0}, "ema_overwrite_frequency.*integer >= 1"),
        ({"ema_overwrite_frequency": 1.5}, "ema_overwrite_frequency"),
        ({"gradient_accumulation_steps": 1}, "gradient_accumulation_steps.*>= 2"),
        ({"gradient_accumulation_steps": 2.0}, "gradient_accumulation_steps"),
        ({"clipnorm": 0.0}, "expected clipnorm > 0; received 0.0"),
        ({"clipvalue": -1.0}, "expected clipvalue > 0; received -1.0"),
        ({"global_clipnorm": float("nan")}, "expected global_clipnorm > 0"),
        ({"clipnorm": 1.0, "clipvalue": 1.0}, "Only one of.*clipnorm and clipvalue"),
        ({"speed": 3}, "speed"),
    ],
)
def test_invalid_arguments_are_refused(arguments, message):
    with pytest.raises((ArgumentError, TypeError), match=message):
        SGD(0.5, **arguments)


@pytest.mark.parametrize(
    "momentum, fits", [(0, True), (1, True), (-1, False), (2, False)]
)
def test_subclass_arguments_of_averages_are_checked(momentum, fits):
    class Mine(Optimizer):
        def __init__(self, **kwargs):
            super().__init__(0.5, ema_momentum=momentum, **kwargs)

    assert Mine().ema_momentum == momentum
    if fits:
        assert Mine(use_ema=True).use_ema
        return
    with pytest.raises(ArgumentError, match=r"ema_momentum in \[0, 1\]; received"):
        Mine(use_ema=True)


def test_unsupported_decay_warns_for_any_value():
    with pytest.warns(UserWarning, match="`decay` is no longer supported"):
        SGD(0.5, decay=0.0)


def test_names():
    toolkit.core.naming.reset_names()
    assert [SGD().name, SGD().name, SGD(name="mine").name] == ["sgd", "sgd_1", "mine"]


# --- gradients ------------------------------------------------------------------------


def test_missing_gradients_change_no_variable():
    optimizer = SGD(0.5)
    optimizer.apply([])
    optimizer.apply([], [])
    assert not optimizer.built and int(optimizer.iterations) == 0


def test_first_call_determines_the_variables():
    with pytest.raises(ArgumentError, match="first call needs trainable_variables"):
        SGD(0.5).apply([ones(1)])
    optimizer, v = SGD(0.5), Variable([4.0])
    optimizer.build([v])
    optimizer.apply([ones(1)])
    assert v.numpy().tolist() == [3.5]
    assert optimizer.apply_gradients([(ones(1), v)]) is optimizer.iterations
    assert v.numpy().tolist() == [3.0]


def test_gradients_must_match_the_variables():
    optimizer, a, b = SGD(0.5), Variable([4.0]), Variable([6.0])
    with pytest.raises(ArgumentError, match="received 1 gradients and 2 variables"):
        optimizer.apply([ones(1)], [a, b])
    optimizer = SGD(0.5)
    optimizer.build([a, b])
    optimizer.apply([ones(1)], [b])
    assert (a.numpy()[0], b.numpy()[0]) == (4.0, 5.5)
    with pytest.raises(ArgumentError, match="variable .* is unknown"):
        optimizer.apply([ones(1)], [Variable([1.0])])


def test_variable_without_a_gradient_is_named_and_unchanged():
    optimizer, a, b = SGD(0.5), Variable([4.0], name="a"), Variable([6.0], name="b")
    with pytest.warns(UserWarning, match="no gradient for the variables a;"):
        optimizer.apply([None, ones(1)], [a, b])
    assert (a.numpy()[0], b.numpy()[0]) == (4.0, 5.5)
    with pytest.raises(ArgumentError, match="No gradients provided for any"):
        optimizer.apply([None, None], [a, b])
    assert int(optimizer.iterations) == 1


def test_variable_may_be_overwritten_by_its_gradient_or_skipped():
    optimizer, a, b = SGD(0.5), Variable([4.0]), Variable([6.0])
    a.overwrite_with_gradient = True
    optimizer.apply([ones(1) * 9, ones(1)], [a, b])
    assert (a.numpy()[0], b.numpy()[0]) == (9.0, 5.5)
    optimizer.apply([None, ones(1)], [a, b])
    assert (a.numpy()[0], b.numpy()[0]) == (9.0, 5.0)


# --- averages, decay ------------------------------------------------------------------


def averages(optimizer, values, **finalized):
    v = Variable([0.0])
    optimizer.build([v])
    averages_over_time = []
    for value in values:
        v.assign([value])
        optimizer.apply([ops.zeros((1,))])
        averages_over_time.append(float(optimizer.averaged()[0][1].numpy()[0]))
    return v, averages_over_time


def test_averages_start_with_the_first_value():
    optimizer = SGD(0.5, use_ema=True, ema_momentum=0.75)
    v, history = averages(optimizer, [8.0, 4.0, 0.0])
    assert history == [8.0, 7.0, 5.25]
    assert v.numpy()[0] == 0.0
    optimizer.finalize_variable_values([Variable([1.0])])
    assert v.numpy()[0] == 0.0  # not among the excluded variables
    optimizer.finalize_variable_values([v])
    assert v.numpy()[0] == 5.25


@pytest.mark.parametrize(
    "frequency, last", [(None, 0.0), (3, 5.25), (2, 0.0), (1, 0.0)]
)
def test_averages_overwrite_at_their_frequency(frequency, last):
    optimizer = SGD(
        0.5, use_ema=True, ema_momentum=0.75, ema_overwrite_frequency=frequency
    )
    v, history = averages(optimizer, [8.0, 4.0, 0.0])
    expected = history[-1] if frequency in (1, 3) else last
    assert v.numpy()[0] == expected


def test_variables_without_averages_are_unchanged():
    optimizer, v = SGD(0.5), Variable([1.0])
    optimizer.build([v])
    optimizer.finalize_variable_values([v])
    SGD(0.5, use_ema=True).finalize_variable_values([v])  # not built
    assert v.numpy()[0] == 1.0


@pytest.mark.parametrize(
    "excluded, decayed",
    [
        ({}, "kernel bias"),
        ({"var_names": ["bias"]}, "kernel"),
        ({"var_names": ["^k", "x"]}, "bias"),
        ({"var_list": "kernel"}, "bias"),
        ({"var_list": "kernel", "var_names": ["bias"]}, ""),
    ],
)
def test_weights_decay_unless_they_are_excluded(excluded, decayed):
    variables = {name: Variable([4.0], name=name) for name in ("kernel", "bias")}
    optimizer = SGD(0.5, weight_decay=0.5)
    if "var_list" in excluded:
        excluded = {**excluded, "var_list": [variables[excluded["var_list"]]]}
    if excluded:
        optimizer.exclude_from_weight_decay(**excluded)
    optimizer.apply([ops.zeros((1,))] * 2, list(variables.values()))
    names = {name for name, v in variables.items() if v.numpy()[0] == 3.0}
    assert names == set(decayed.split())
    assert all(v.numpy()[0] in (3.0, 4.0) for v in variables.values())
    with pytest.raises(ArgumentError, match="before the optimizer is built"):
        optimizer.exclude_from_weight_decay()


# --- methods for subclasses -----------------------------------------------------------


def test_values_are_assigned_by_name():
    optimizer, v = SGD(0.5), Variable(4.0)
    for method, expected in (("assign", 2.0), ("assign_add", 4.0), ("assign_sub", 2.0)):
        getattr(optimizer, method)(v, 2.0)
        assert float(v) == expected


def test_subclass_receives_rate_and_step():
    class Told(Optimizer):
        slots = ("count",)
        calls = []

        def begin_step(self, learning_rate):
            self.calls.append(("begin", float(learning_rate)))

        def update(self, g, p, slots, lr, step):
            self.calls.append((float(lr), float(step)))
            return p - g, {"count": slots["count"] + 1.0}

    optimizer, v = Told(0.25), Variable([4.0])
    for _ in range(2):
        optimizer.apply([ones(1)], [v])
    assert Told.calls == [("begin", 0.25), (0.25, 1.0), ("begin", 0.25), (0.25, 2.0)]
    assert optimizer.variables[-1].numpy().tolist() == [2.0]
    assert_close(v, np.array([2.0]))


def test_stateless_step_returns_all_values_and_changes_none():
    optimizer, v = SGD(0.5, momentum=0.5), Variable([4.0])
    with pytest.raises(ArgumentError, match="call `build` first"):
        optimizer.stateless_apply([], [], [])
    optimizer.build([v])
    state = [x.value for x in optimizer.variables]
    values, after = optimizer.stateless_apply(state, [ones(1)], [v.value])
    assert [x.numpy().tolist() for x in values] == [[3.5]]
    assert [x.numpy().tolist() for x in after] == [1, 0.5, [-0.5]]
    assert v.numpy()[0] == 4.0 and int(optimizer.iterations) == 0


def test_loss_is_scaled_only_on_request():
    assert SGD(0.5).scale_loss(3.0) == 3.0
    assert SGD(0.5, loss_scale_factor=4.0).scale_loss(3.0) == 12.0
