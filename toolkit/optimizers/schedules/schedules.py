"""Learning rates as functions of the step, computed in the graph."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import Any

from toolkit import ops
from toolkit.arguments import Checked, Finite
from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError


class LearningRateSchedule(Checked):
    """Base of schedules: `schedule(step)` is the learning rate of that step.

    A subclass defines `__call__`; its constructor's arguments, stored under their own
    names, are its config.
    """

    def __call__(self, step: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not define `__call__`")

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        names = inspect.signature(type(self).__init__).parameters
        return {name: getattr(self, name) for name in names if name != "self"}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """A schedule from what `get_config` returned."""
        return cls(**config)


def _number(x: Any) -> Tensor:
    return convert(x, "float32")


class ExponentialDecay(LearningRateSchedule):
    """initial_learning_rate * decay_rate ** (step / decay_steps).

    Args:
        initial_learning_rate: the rate of step 0.
        decay_steps: after how many steps the rate is multiplied by `decay_rate`.
        decay_rate: the factor.
        staircase: whether the rate changes only every `decay_steps` steps.
        name: not used in computing.

    Example:
        >>> import toolkit
        >>> schedule = toolkit.optimizers.schedules.ExponentialDecay(0.5, 10, 0.5)
        >>> float(schedule(20))
        0.125
    """

    def __init__(
        self,
        initial_learning_rate: Finite,
        decay_steps: float,
        decay_rate: Finite,
        staircase: bool = False,
        name: str = "ExponentialDecay",
    ) -> None:
        _check_positive(type(self).__name__, decay_steps)
        self.initial_learning_rate = initial_learning_rate
        self.decay_steps = decay_steps
        self.decay_rate = decay_rate
        self.staircase = staircase
        self.name = name

    def __call__(self, step: Any) -> Tensor:
        periods = _number(step) / self.decay_steps
        periods = ops.floor(periods) if self.staircase else periods
        return self.initial_learning_rate * ops.power(_number(self.decay_rate), periods)


class PiecewiseConstantDecay(LearningRateSchedule):
    """values[i] up to and including step boundaries[i], values[-1] after the last.

    Args:
        boundaries: increasing step numbers.
        values: one more than boundaries.
        name: not used in computing.
    """

    def __init__(
        self,
        boundaries: Sequence[float],
        values: Sequence[float],
        name: str = "PiecewiseConstant",
    ) -> None:
        if len(boundaries) != len(values) - 1:
            raise ArgumentError(
                "PiecewiseConstantDecay: expected one more value than boundaries; "
                f"received {len(values)} values and {len(boundaries)} boundaries"
            )
        self.boundaries = boundaries
        self.values = values
        self.name = name

    def __call__(self, step: Any) -> Tensor:
        step, rate = _number(step), _number(self.values[-1])
        pairs = list(zip(self.boundaries, self.values, strict=False))
        for boundary, value in reversed(pairs):
            rate = ops.where(step <= boundary, _number(value), rate)
        return rate


class PolynomialDecay(LearningRateSchedule):
    """(initial - end) * (1 - step / decay_steps) ** power + end.

    Args:
        initial_learning_rate: the rate of step 0.
        decay_steps: when `end_learning_rate` is reached.
        end_learning_rate: the last rate.
        power: 1 is linear.
        cycle: whether to start again over a longer stretch when the end is reached.
        name: not used in computing.
    """

    def __init__(
        self,
        initial_learning_rate: Finite,
        decay_steps: float,
        end_learning_rate: Finite = 0.0001,
        power: Finite = 1.0,
        cycle: bool = False,
        name: str = "PolynomialDecay",
    ) -> None:
        _check_positive(type(self).__name__, decay_steps)
        self.initial_learning_rate = initial_learning_rate
        self.decay_steps = decay_steps
        self.end_learning_rate = end_learning_rate
        self.power = power
        self.cycle = cycle
        self.name = name

    def __call__(self, step: Any) -> Tensor:
        step, length = _number(step), _number(self.decay_steps)
        if self.cycle:
            length = length * ops.maximum(ops.ceil(step / length), 1.0)
        else:
            step = ops.minimum(step, length)
        rest = ops.power(1.0 - step / length, _number(self.power))
        drop = self.initial_learning_rate - self.end_learning_rate
        return drop * rest + self.end_learning_rate


class InverseTimeDecay(LearningRateSchedule):
    """initial_learning_rate / (1 + decay_rate * step / decay_steps).

    Args:
        initial_learning_rate: the rate of step 0.
        decay_steps: the unit of the steps.
        decay_rate: the factor.
        staircase: whether the rate changes only every `decay_steps` steps.
        name: not used in computing.
    """

    def __init__(
        self,
        initial_learning_rate: Finite,
        decay_steps: float,
        decay_rate: Finite,
        staircase: bool = False,
        name: str = "InverseTimeDecay",
    ) -> None:
        _check_positive(type(self).__name__, decay_steps)
        self.initial_learning_rate = initial_learning_rate
        self.decay_steps = decay_steps
        self.decay_rate = decay_rate
        self.staircase = staircase
        self.name = name

    def __call__(self, step: Any) -> Tensor:
        periods = _number(step) / self.decay_steps
        periods = ops.floor(periods) if self.staircase else periods
        return self.initial_learning_rate / (1.0 + self.decay_rate * periods)


class CosineDecay(LearningRateSchedule):
    """Half a cosine from the initial rate to `alpha` times it, after a linear warm-up.

    initial * ((1 - alpha) * (1 + cos(pi * step / decay_steps)) / 2 + alpha)

    Args:
        initial_learning_rate: the rate at the start; with a warm-up, at its start.
        decay_steps: the length of the decay, the warm-up not counted.
        alpha: the last rate as a fraction of the first.
        name: not used in computing.
        warmup_target: the rate that the warm-up reaches; None for no warm-up.
        warmup_steps: the length of the warm-up.

    Reference:
        [Loshchilov & Hutter, 2016](https://arxiv.org/abs/1608.03983)
    """

    def __init__(
        self,
        initial_learning_rate: Finite,
        decay_steps: float,
        alpha: Finite = 0.0,
        name: str = "CosineDecay",
        warmup_target: Finite | None = None,
        warmup_steps: float = 0,
    ) -> None:
        _check_positive(type(self).__name__, decay_steps)
        self.initial_learning_rate = initial_learning_rate
        self.decay_steps = decay_steps
        self.alpha = alpha
        self.name = name
        self.warmup_target = warmup_target
        self.warmup_steps = warmup_steps

    def __call__(self, step: Any) -> Tensor:
        step, start = _number(step), self.initial_learning_rate
        if self.warmup_target is None:
            return self._decayed(step, start)
        warm = start + (self.warmup_target - start) * step / max(self.warmup_steps, 1)
        decayed = self._decayed(step - self.warmup_steps, self.warmup_target)
        return ops.where(step < self.warmup_steps, warm, decayed)

    def _decayed(self, step: Tensor, start: float) -> Tensor:
        done = ops.minimum(step, float(self.decay_steps)) / self.decay_steps
        wave = 0.5 * (1.0 + ops.cos(math.pi * done))
        return start * ((1 - self.alpha) * wave + self.alpha)


class CosineDecayRestarts(LearningRateSchedule):
    """Cosine decays, one after the other, each `t_mul` times as long as the last.

    Args:
        initial_learning_rate: the rate at the start of the first.
        first_decay_steps: the length of the first.
        t_mul: the factor of the lengths.
        m_mul: the factor of the rates at the starts.
        alpha: the least rate as a fraction of the initial one.
        name: not used in computing.

    Reference:
        [Loshchilov & Hutter, 2016](https://arxiv.org/abs/1608.03983)
    """

    def __init__(
        self,
        initial_learning_rate: Finite,
        first_decay_steps: float,
        t_mul: Finite = 2.0,
        m_mul: Finite = 1.0,
        alpha: Finite = 0.0,
        name: str = "SGDRDecay",
    ) -> None:
        _check_positive(type(self).__name__, first_decay_steps)
        self.initial_learning_rate = initial_learning_rate
        self.first_decay_steps = first_decay_steps
        self.t_mul = t_mul
        self.m_mul = m_mul
        self.alpha = alpha
        self.name = name

    def __call__(self, step: Any) -> Tensor:
        done = _number(step) / self.first_decay_steps
        if self.t_mul == 1.0:
            period = ops.floor(done)
            fraction = done - period
        else:
            # The periods' lengths are a geometric series.
            grown = 1.0 - done * (1.0 - self.t_mul)
            period = ops.floor(ops.log(grown) / math.log(self.t_mul))
            length = ops.power(_number(self.t_mul), period)
            fraction = (done - (1.0 - length) / (1.0 - self.t_mul)) / length
        peak = ops.power(_number(self.m_mul), period)
        wave = 0.5 * peak * (1.0 + ops.cos(math.pi * fraction))
        return self.initial_learning_rate * ((1 - self.alpha) * wave + self.alpha)


def _check_positive(schedule: str, steps: float) -> None:
    if steps <= 0:
        raise ArgumentError(f"{schedule}: expected a number of steps > 0; got {steps}")
