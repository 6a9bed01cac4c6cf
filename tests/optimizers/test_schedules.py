"""Test schedules against their formulas, eager and traced."""

import math

import numpy as np
import pytest

from tests.helpers import assert_close
from toolkit import ops
from toolkit.errors import ArgumentError
from toolkit.functions.decorator import function
from toolkit.optimizers import schedules


def polynomial(step, cycle):
    length = 10 * max(math.ceil(step / 10), 1) if cycle else 10
    return (0.5 - 0.1) * (1 - min(step, length) / length) ** 2 + 0.1


def cosine(step, start=0.5, length=10, alpha=0.2):
    wave = (1 + math.cos(math.pi * min(step, length) / length)) / 2
    return start * ((1 - alpha) * wave + alpha)


def warm(step):
    return 0.1 + 0.4 * step / 4 if step < 4 else cosine(step - 4)


def restarts(step, grow=2.0, shrink=0.5):
    start, length, peak = 0, 5, 0.5
    while step >= start + length:
        start, length, peak = start + length, length * grow, peak * shrink
    wave = (1 + math.cos(math.pi * (step - start) / length)) / 2
    return 0.8 * peak * wave + 0.2 * 0.5


ROWS = [
    (
        schedules.ExponentialDecay(0.5, 4, 0.25),
        lambda step: 0.5 * 0.25 ** (step / 4),
    ),
    (
        schedules.ExponentialDecay(0.5, 4, 0.25, staircase=True),
        lambda step: 0.5 * 0.25 ** (step // 4),
    ),
    (
        schedules.PiecewiseConstantDecay([3, 8], [1.0, 0.5, 0.25]),
        lambda step: 1.0 if step <= 3 else 0.5 if step <= 8 else 0.25,
    ),
    (
        schedules.PolynomialDecay(0.5, 10, 0.1, power=2.0),
        lambda step: polynomial(step, cycle=False),
    ),
    (
        schedules.PolynomialDecay(0.5, 10, 0.1, power=2.0, cycle=True),
        lambda step: polynomial(step, cycle=True),
    ),
    (
        schedules.InverseTimeDecay(0.5, 4, 0.25),
        lambda step: 0.5 / (1 + 0.25 * step / 4),
    ),
    (
        schedules.InverseTimeDecay(0.5, 4, 0.25, staircase=True),
        lambda step: 0.5 / (1 + 0.25 * (step // 4)),
    ),
    (schedules.CosineDecay(0.5, 10, alpha=0.2), cosine),
    (
        schedules.CosineDecay(0.1, 10, alpha=0.2, warmup_target=0.5, warmup_steps=4),
        warm,
    ),
    (
        schedules.CosineDecayRestarts(0.5, 5, m_mul=0.5, alpha=0.2),
        restarts,
    ),
    (
        schedules.CosineDecayRestarts(0.5, 5, t_mul=1.0, m_mul=0.5, alpha=0.2),
        lambda step: restarts(step, grow=1.0),
    ),
]


@pytest.mark.parametrize("schedule, formula", ROWS)
def test_against_the_formula(schedule, formula):
    traced = function(schedule)
    for step in range(24):
        rate = schedule(step)
        assert (rate.dtype, rate.shape) == ("float32", ())
        assert_close(rate, formula(step), factor=5)
        assert_close(traced(ops.convert_to_tensor(step, "int32")), rate)


@pytest.mark.parametrize("schedule, formula", ROWS)
def test_config_round_trip(schedule, formula):
    config = schedules.serialize(schedule)
    assert config["module"] == "keras.optimizers.schedules"
    restored = schedules.deserialize(config)
    assert type(restored) is type(schedule)
    assert restored.get_config() == schedule.get_config()
    assert_close(restored(7), schedule(7))


def test_custom_schedules():
    class Linear(schedules.LearningRateSchedule):
        def __init__(self, slope):
            self.slope = slope

        def __call__(self, step):
            return self.slope * ops.cast(step, "float32")

    restored = Linear.from_config(Linear(0.5).get_config())
    assert_close(restored(3), np.float32(1.5))


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: schedules.CosineDecay(0.5, 0), "CosineDecay: .* > 0"),
        (lambda: schedules.ExponentialDecay(0.5, -1, 0.5), "> 0"),
        (lambda: schedules.PiecewiseConstantDecay([1], [1.0]), "one more value"),
    ],
)
def test_errors(call, words):
    with pytest.raises(ArgumentError, match=words):
        call()


def test_base_class_has_no_rate():
    with pytest.raises(NotImplementedError):
        schedules.LearningRateSchedule()(0)
