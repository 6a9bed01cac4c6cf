"""Test gradient accumulation: all counts of steps are counts of updates."""

import numpy as np
import pytest

from toolkit import Input, Sequential, callbacks, constraints, layers, ops, optimizers
from toolkit.core.variable import Variable
from toolkit.optimizers import schedules

RATES = {
    "exponential": lambda: schedules.ExponentialDecay(0.1, 1, 0.5),
    "pieces": lambda: schedules.PiecewiseConstantDecay([1, 2], [0.1, 0.05, 0.2]),
    "warmup": lambda: schedules.CosineDecay(0.0, 4, warmup_target=0.1, warmup_steps=2),
}
OPTIONS = [
    {},
    {"weight_decay": 0.2},
    {"clipnorm": 0.1},
    {"use_ema": True, "ema_momentum": 0.5},
    {"use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": 2},
]


def updated(optimizer, gradients):
    """Return the variable after the gradients and at the end of training."""
    v = Variable([1.0, -2.0])
    for g in gradients:
        optimizer.apply([ops.convert_to_tensor(np.float32(g))], [v])
    values = [v.numpy().copy()]
    optimizer.finalize_variable_values([v])
    return [*values, v.numpy()]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("rate", RATES)
def test_accumulated_steps_equal_an_update_with_the_mean(rate, options):
    small = np.random.default_rng(0).normal(size=(12, 2))
    means = small.reshape(4, 3, 2).mean(1)
    single = optimizers.Adam(RATES[rate](), **options)
    accumulating = optimizers.Adam(
        RATES[rate](), gradient_accumulation_steps=3, **options
    )
    np.testing.assert_allclose(
        updated(accumulating, small), updated(single, means), rtol=1e-5, atol=1e-6
    )
    assert int(accumulating.iterations) == int(single.iterations) == 4
    assert float(accumulating.learning_rate) == float(single.learning_rate)


def test_constraint_is_applied_once_per_update():
    class Halve(constraints.Constraint):
        def __call__(self, w):
            return w / 2

    v = Variable([4.0])
    v.constraint = Halve()
    optimizer = optimizers.SGD(0.0, gradient_accumulation_steps=3)
    for _ in range(6):
        optimizer.apply([ops.ones((1,))], [v])
    assert v.numpy().tolist() == [1.0]


@pytest.mark.parametrize("calls", [0, 1])
def test_variables_keep_their_values_before_the_first_update(calls):
    v = Variable([4.0])
    optimizer = optimizers.SGD(use_ema=True, gradient_accumulation_steps=2)
    optimizer.build([v])
    for _ in range(calls):
        optimizer.apply([ops.ones((1,))], [v])
    optimizer.finalize_variable_values([v])
    assert v.numpy().tolist() == [4.0]


def test_averages_are_swapped_in_only_after_the_first_update():
    model = Sequential([Input((2,)), layers.Dense(1, kernel_initializer="ones")])
    optimizer = optimizers.SGD(0.0, use_ema=True, gradient_accumulation_steps=4)
    model.compile(optimizer, "mse")
    x, y = np.ones((4, 2)), np.full((4, 1), 2.0)
    optimizer.build(model.trainable_variables)
    swap = callbacks.SwapEMAWeights(swap_on_epoch=True)
    model.fit(x, y, batch_size=4, callbacks=[swap], verbose=0)
    assert model.evaluate(x, y, callbacks=[swap], verbose=0) == 0.0


def test_several_optimizers_count_the_updates_of_the_fastest():
    slow = optimizers.SGD(1.0, gradient_accumulation_steps=4)
    quick = optimizers.SGD(1.0, gradient_accumulation_steps=2)
    a, b = Variable([0.0], name="a"), Variable([0.0], name="b")
    combined = optimizers.MultiOptimizer(lambda v: slow if v is a else quick)
    assert int(combined.iterations) == 0
    for _ in range(4):
        combined.apply([ops.ones((1,)), ops.ones((1,))], [a, b])
    assert [int(x.iterations) for x in (slow, quick, combined)] == [1, 2, 2]
    assert [float(x.value[0]) for x in (a, b)] == [-1.0, -2.0]
