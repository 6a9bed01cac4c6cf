"""Test the state of optimizers: variables, learning rate and config."""

import copy

import numpy as np
import pytest

import toolkit
from tests.helpers import assert_close
from toolkit import ops, optimizers
from toolkit.core.variable import Variable
from toolkit.errors import (
    ArgumentError,
    ArgumentTypeError,
    ModelFileError,
    NotBuiltError,
    ShapeError,
)
from toolkit.optimizers import schedules


def variables():
    return [Variable(np.ones((2, 3), "float32"), name="a"), Variable(2.0, name="b")]


def built(make=optimizers.Adam, *arguments, **options):
    optimizer = make(*arguments, **options)
    optimizer.build(variables())
    return optimizer


class Constant(schedules.LearningRateSchedule):
    def __init__(self, rate):
        self.rate = rate

    def __call__(self, step):
        return ops.cast(step, "float32") * 0.0 + self.rate

    def get_config(self):
        return {"rate": self.rate}


# --- the rate -------------------------------------------------------------------------

RATES = {
    "float": 0.5,
    "int": 1,
    "array": np.float32(0.5),
    "array of one": np.array(0.5),
    "tensor": ops.convert_to_tensor(0.5),
    "variable": Variable(0.5),
}


@pytest.mark.parametrize("kind", RATES)
def test_numbers_of_any_kind_become_a_variable(kind):
    rate = RATES[kind]
    optimizer = optimizers.SGD(rate)
    variable = optimizer.learning_rate
    assert isinstance(variable, Variable) and variable is not rate
    assert (float(variable), variable.dtype) == (float(rate), "float32")
    assert variable.name == "learning_rate" and not variable.trainable
    assert variable.path == f"{optimizer.name}/learning_rate"
    assert optimizer.get_config()["learning_rate"] == float(rate)


@pytest.mark.parametrize("wrong", ["fast", None, [0.5], object()])
def test_rate_is_a_number_a_schedule_or_a_function(wrong):
    with pytest.raises((ArgumentError, ArgumentTypeError), match="learning_rate"):
        optimizers.SGD(wrong)


@pytest.mark.parametrize(
    "wrong", [float("nan"), float("inf"), *np.float32(["nan", "-inf"])]
)
def test_non_finite_rate_is_refused(wrong):
    with pytest.raises(ArgumentError, match="a finite learning_rate; received"):
        optimizers.SGD(wrong)
    optimizer = optimizers.SGD(0.5)
    with pytest.raises(ArgumentError, match="a finite learning_rate; received"):
        optimizer.learning_rate = wrong
    assert float(optimizer.learning_rate) == 0.5


def test_negative_rate_warns_and_zero_does_not():
    with pytest.warns(UserWarning, match="learning_rate -0.5 is negative"):
        optimizer = optimizers.SGD(-0.5)
    assert float(optimizer.learning_rate) == -0.5
    optimizer = optimizers.SGD(0.0)
    optimizer.learning_rate = 0.5
    with pytest.warns(UserWarning, match="learning_rate -2.0 is negative"):
        optimizer.learning_rate = -2.0
    rate = optimizer.learning_rate
    for small in (0.0, 0.25, np.array(0.25), np.float64(0.25)):
        optimizer.learning_rate = small  # a warning would be an error here
        assert float(rate) == small and optimizer.learning_rate is rate


def test_values_of_tensor_rates_are_not_checked():
    optimizer = optimizers.SGD(0.5)
    optimizer.learning_rate = ops.convert_to_tensor(-1.0)
    assert float(optimizer.learning_rate) == -1.0


def test_schedule_gives_the_rate_of_the_next_step():
    decay = schedules.ExponentialDecay(1.0, 1, 0.5)
    optimizer = built(optimizers.SGD, decay)
    rates = []
    for _ in range(3):
        rates.append(float(optimizer.learning_rate))
        optimizer.apply([ops.zeros((2, 3)), ops.zeros(())])
    assert rates == [1.0, 0.5, 0.25]
    assert len(optimizer.variables) == 1  # no rate among the variables
    with pytest.raises(ArgumentTypeError, match="so its learning rate cannot be set"):
        optimizer.learning_rate = 0.5
    with pytest.raises(ArgumentTypeError, match="so its learning rate cannot be set"):
        optimizer.learning_rate = lambda: 0.5
    optimizer.learning_rate = Constant(0.125)
    assert float(optimizer.learning_rate) == 0.125


def test_function_gives_the_rate_and_may_replace_a_number():
    optimizer = optimizers.SGD(0.5)
    before = optimizer.learning_rate
    assert any(v is before for v in optimizer.variables)
    optimizer.learning_rate = lambda: 0.25
    assert optimizer.learning_rate == 0.25
    assert [v.name for v in optimizer.variables] == ["iteration"]
    optimizer.learning_rate = 0.125
    assert float(optimizer.learning_rate) == 0.125
    assert optimizers.SGD(lambda: 2.0).learning_rate == 2.0


def test_schedule_may_replace_a_number():
    optimizer = built(optimizers.SGD, 0.5, momentum=0.9)
    names = [v.name for v in optimizer.variables]
    optimizer.learning_rate = Constant(0.25)
    assert float(optimizer.learning_rate) == 0.25
    names.remove("learning_rate")
    assert [v.name for v in optimizer.variables] == names


def test_rates_of_configs():
    optimizer = optimizers.SGD.from_config({"learning_rate": 0.5})
    assert optimizer.get_config()["learning_rate"] == 0.5
    config = optimizers.SGD(schedules.ExponentialDecay(1.0, 2, 0.5)).get_config()
    config_before = copy.deepcopy(config)
    restored = optimizers.SGD.from_config(config)
    assert config == config_before
    assert restored.get_config() == config_before
    direct = optimizers.SGD(config["learning_rate"])
    for optimizer in (restored, direct):
        optimizer.iterations.assign(2)
        assert float(optimizer.learning_rate) == 0.5
    config_of_rate = optimizers.SGD(Constant(0.5)).get_config()
    restored = optimizers.SGD.from_config(config_of_rate, {"Constant": Constant})
    assert float(restored.learning_rate) == 0.5


def test_config_contains_each_argument_once():
    class Mine(optimizers.SGD):
        def __init__(self, learning_rate=0.5, secret=3, shown=4, **kwargs):
            super().__init__(learning_rate, **kwargs)
            self.shown = shown

    config = Mine(momentum=0.5, nesterov=True).get_config()
    assert (config["shown"], config["momentum"], config["nesterov"]) == (4, 0.5, True)
    assert "secret" not in config and list(config)[0] == "learning_rate"
    assert Mine.from_config(config).get_config() == config


# --- variables ------------------------------------------------------------------------


def test_list_of_variables_is_a_copy():
    optimizer = built()
    count = len(optimizer.variables)
    optimizer.variables.clear()
    assert len(optimizer.variables) == count == 6
    assert not any(v.trainable for v in optimizer.variables)


def test_optimizer_is_built_once():
    optimizer = built()
    before = optimizer.variables
    optimizer.build([Variable(1.0)])
    assert all(a is b for a, b in zip(before, optimizer.variables, strict=True))
    assert optimizer.built and not optimizers.Adam().built


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy])
def test_copy_continues_with_its_variables(copied):
    optimizer, model = optimizers.SGD(0.5, momentum=0.5), variables()
    optimizer.build(model)
    copies = copy.deepcopy((optimizer, model)) if copied is copy.deepcopy else None
    other, values = copies or (copy.copy(optimizer), model)
    other.apply([ops.ones((2, 3)), ops.ones(())], values)
    assert float(values[1]) == 1.5
    assert float(model[1]) == (2.0 if copies else 1.5)


def test_iterations_count_updates():
    optimizer = built(optimizers.SGD, gradient_accumulation_steps=2)
    plain = built(optimizers.SGD)
    assert plain.iterations is plain.variables[0]
    counts = []
    for _ in range(5):
        for updated in (optimizer, plain):
            updated.apply([ops.ones((2, 3)), ops.ones(())])
        counts.append((int(optimizer.iterations), int(plain.iterations)))
    assert counts == [(0, 1), (1, 2), (1, 3), (2, 4), (2, 5)]


@pytest.mark.parametrize(
    "options, names",
    [
        ({}, ""),
        ({"use_ema": True}, "a_average b_average"),
        (
            {"gradient_accumulation_steps": 2},
            "a_gradient_accumulator b_gradient_accumulator",
        ),
        ({"momentum": 0.5}, "a_momentum b_momentum"),
    ],
)
def test_slot_variables_are_named_after_their_variables(options, names):
    optimizer = built(optimizers.SGD, 0.5, **options)
    assert [v.name for v in optimizer.variables[2:]] == names.split()
    assert {v.path.split("/")[0] for v in optimizer.variables} == {optimizer.name}


def test_overwritten_variables_have_no_slots():
    a, b = variables()
    a.overwrite_with_gradient = True
    optimizer = optimizers.Adam(use_ema=True)
    optimizer.build([a, b])
    names = [v.name for v in optimizer.variables[2:]]
    assert names == ["b_average", "b_momentum", "b_velocity"]


def test_variables_of_a_custom_optimizer():
    optimizer = optimizers.SGD(0.5)
    reference = Variable(np.ones((2, 3), "float16"), name="w")
    created = [
        optimizer.add_variable((2,), "ones", "int32", name="counts"),
        optimizer.add_variable((), lambda shape, dtype: ops.full(shape, 3.0, dtype)),
        optimizer.add_variable_from_reference(reference),
        optimizer.add_variable_from_reference(reference, "slot", "ones"),
        optimizer.add_variable_from_reference(
            reference, "made", lambda shape, dtype: ops.full(shape, 3.0, dtype)
        ),
        optimizer.add_variable_from_reference(reference, "given", ops.ones((4,))),
    ]
    assert all(a is b for a, b in zip(optimizer.variables[2:], created, strict=True))
    assert [v.numpy().ravel()[0] for v in created] == [1, 3, 0, 1, 3, 1]
    assert [v.shape for v in created] == [(2,), (), *[(2, 3)] * 3, (4,)]
    dtypes = [v.dtype for v in created]
    assert dtypes == ["int32", "float32", *["float16"] * 3, "float32"]
    names = [v.name for v in created]
    assert names[0] == "counts"
    assert names[2:] == ["w_slot", "w_slot", "w_made", "w_given"]
    assert not any(v.trainable for v in created)
    assert optimizer.add_variable((), aggregation="mean").aggregation == "mean"
    with pytest.raises(ArgumentError, match="expected layout=None.*received 'x'"):
        optimizer.add_variable((), layout="x")


def test_one_slot_per_variable():
    optimizer, parameters = optimizers.SGD(0.5), variables()
    slots = optimizer.add_optimizer_variables(parameters, "m")
    assert [v.name for v in slots] == ["a_m", "b_m"]
    m, v = optimizer.add_optimizer_variables(parameters, ["m", "v"], ["zeros", "ones"])
    assert [x.numpy().ravel()[0] for x in (*m, *v)] == [0, 0, 1, 1]
    m, v = optimizer.add_optimizer_variables(parameters, ("m", "v"), "ones")
    assert [x.numpy().ravel()[0] for x in (*m, *v)] == [1, 1, 1, 1]
    (only,) = optimizer.add_optimizer_variables(parameters, ["m"])
    assert [x.shape for x in only] == [(2, 3), ()]
    parameters[0].overwrite_with_gradient = True
    slots = optimizer.add_optimizer_variables(parameters, "m")
    assert slots[0] is None and slots[1].shape == ()
    with pytest.raises(ArgumentError, match="expected 2 initializers.*received 1"):
        optimizer.add_optimizer_variables(parameters, ["m", "v"], ["zeros"])


# --- values of all variables ----------------------------------------------------------


def test_weights_are_set_all_or_none():
    optimizer, other = built(), built()
    values = [np.full(v.shape, i + 1) for i, v in enumerate(other.variables)]
    other.set_weights(iter(values))
    assert [v.numpy().ravel()[0] for v in other.variables] == [1, 2, 3, 4, 5, 6]
    with pytest.raises(ArgumentError, match="expected 6 values.*received 5"):
        optimizer.set_weights(values[:-1])
    with pytest.raises(ShapeError, match="expected a value of shape"):
        optimizer.set_weights([*values[:-1], np.ones(7)])
    assert int(optimizer.iterations) == 0  # no variable was changed
    with pytest.raises(NotBuiltError, match="set_weights.*not built"):
        optimizers.Adam().set_weights(values)


def test_variables_are_stored_by_their_index():
    optimizer, store = built(), {}
    optimizer.apply([ops.ones((2, 3)), ops.ones(())])
    optimizer.save_own_variables(store)
    assert list(store) == list("012345")
    other = built()
    other.load_own_variables(store)
    for a, b in zip(optimizer.variables, other.variables, strict=True):
        assert_close(a.numpy(), b.numpy())
    assert int(other.iterations) == 1
    for wrong in (dict(list(store.items())[:-1]), {**store, "6": 1.0}):
        with pytest.raises(ModelFileError, match=rf"6 values.*contains {len(wrong)}"):
            other.load_own_variables(wrong)


def test_lazily_created_variables_are_outside_of_a_trace():
    optimizer, v = optimizers.Adam(0.5), Variable([1.0, 2.0])

    @toolkit.function
    def step(g):
        optimizer.apply([g], [v])

    step(ops.ones((2,)))
    step(ops.ones((2,)))
    assert int(optimizer.iterations) == 2
    assert_close(v.numpy(), np.array([0.0, 1.0], "float32"), factor=10)


class Fails(optimizers.SGD):
    def build(self, variables):
        super().build(variables)
        self.variable = self.add_variable((2,))
        if self.fails:
            raise KeyboardInterrupt


def test_interrupted_build_leaves_no_variables():
    optimizer = Fails(momentum=0.9)
    optimizer.fails = True
    first = optimizer.variables
    with pytest.raises(KeyboardInterrupt):
        optimizer.build(variables())
    assert not optimizer.built
    assert optimizer.variables == first
    optimizer.fails = False
    optimizer.build(variables())
    assert len(optimizer.variables) == len(first) + 3
