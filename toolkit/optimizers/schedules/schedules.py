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
from toolkit.definitions.representations import config_repr
from toolkit.errors import ArgumentError


class LearningRateSchedule(Checked):
    """Base class of schedules: `schedule(step)` is the learning rate of that step.

    A subclass defines `__call__`. Its config consists of the constructor's arguments,
    stored in attributes of the same names.

    Example:
        >>> import toolkit
        >>> class Linear(toolkit.optimizers.schedules.LearningRateSchedule):
        ...     def __init__(self, rate):
        ...         self.rate = rate
        ...
        ...     def __call__(self, step):
        ...         return self.rate * step
        ...
        >>> schedule = Linear(0.1)
        >>> schedule(2), schedule.get_config()
        (0.2, {'rate': 0.1})
    """

    def __call__(self, step: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not define `__call__`")

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        names = inspect.signature(type(self).__init__).parameters
        return {name: getattr(self, name) for name in names if name != "self"}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Build a schedule from the result of `get_config`.

        Args:
            config: the constructor's arguments.

        Returns:
            The schedule.
        """
        return cls(**config)

    def __repr__(self) -> str:
        return config_repr(self)


def _number(x: Any) -> Tensor:
    return convert(x, "float32")


class ExponentialDecay(LearningRateSchedule):
    """Exponential decay: initial_learning_rate * decay_rate ** (step / decay_steps).

    Args:
        initial_learning_rate: the rate of step 0.
        decay_steps: the number of steps per factor of `decay_rate`.
        decay_rate: the factor.
        staircase: whether the rate changes only every `decay_steps` steps.
        name: for identification only.

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
    """Piecewise constant rate: values[i] up to step boundaries[i], then values[-1].

    Args:
        boundaries: increasing step numbers; values[i] includes step boundaries[i].
        values: one more element than boundaries.
        name: for identification only.

    Example:
        >>> from toolkit.optimizers.schedules import PiecewiseConstantDecay
        >>> schedule = PiecewiseConstantDecay([10, 20], [0.5, 0.1, 0.01])
        >>> [round(float(schedule(step)), 4) for step in (0, 10, 15, 30)]
        [0.5, 0.5, 0.1, 0.01]
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
    """Polynomial decay: (initial - end) * (1 - step / decay_steps) ** power + end.

    Args:
        initial_learning_rate: the rate of step 0.
        decay_steps: the step that reaches `end_learning_rate`.
        end_learning_rate: the last rate.
        power: 1 is linear.
        cycle: whether to restart with a longer period at the end.
        name: for identification only.

    Example:
        >>> import toolkit
        >>> schedule = toolkit.optimizers.schedules.PolynomialDecay(0.1, 100)
        >>> [round(float(schedule(step)), 4) for step in (0, 50, 100)]
        [0.1, 0.0501, 0.0001]
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
        remaining = ops.power(1.0 - step / length, _number(self.power))
        drop = self.initial_learning_rate - self.end_learning_rate
        return drop * remaining + self.end_learning_rate


class InverseTimeDecay(LearningRateSchedule):
    """Inverse time decay: initial_learning_rate / (1 + decay_rate * step / steps).

    `steps` is `decay_steps`.

    Args:
        initial_learning_rate: the rate of step 0.
        decay_steps: the unit of the steps.
        decay_rate: the factor.
        staircase: whether the rate changes only every `decay_steps` steps.
        name: for identification only.

    Example:
        >>> import toolkit
        >>> schedule = toolkit.optimizers.schedules.InverseTimeDecay(0.5, 10, 1.0)
        >>> [round(float(schedule(step)), 4) for step in (0, 10, 30)]
        [0.5, 0.25, 0.125]
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
    """Cosine decay from the initial rate to `alpha` times it, after a linear warm-up.

    initial * ((1 - alpha) * (1 + cos(pi * step / decay_steps)) / 2 + alpha)

    Args:
        initial_learning_rate: the rate at the start (with a warm-up, at the start of
            the warm-up).
        decay_steps: the length of the decay, without the warm-up.
        alpha: the last rate as a fraction of the first.
        name: for identification only.
        warmup_target: the rate at the end of the warm-up; None for no warm-up.
        warmup_steps: the length of the warm-up.

    Example:
        >>> from toolkit.optimizers.schedules import CosineDecay
        >>> schedule = CosineDecay(0.0, 100, warmup_target=0.1, warmup_steps=10)
        >>> [round(float(schedule(step)), 4) for step in (0, 5, 10, 60, 110)]
        [0.0, 0.05, 0.1, 0.05, 0.0]

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
        progress = ops.minimum(step, float(self.decay_steps)) / self.decay_steps
        wave = 0.5 * (1.0 + ops.cos(math.pi * progress))
        return start * ((1 - self.alpha) * wave + self.alpha)


class CosineDecayRestarts(LearningRateSchedule):
    """Cosine decays with restarts; each is `t_mul` times as long as the one before.

    Args:
        initial_learning_rate: the rate at the start of the first decay.
        first_decay_steps: the length of the first decay.
        t_mul: the factor of the lengths.
        m_mul: the factor of the rates at the starts.
        alpha: the minimum rate as a fraction of the initial rate.
        name: for identification only.

    Example:
        >>> import toolkit
        >>> schedule = toolkit.optimizers.schedules.CosineDecayRestarts(0.1, 10)
        >>> [round(float(schedule(step)), 4) for step in (0, 5, 10, 20, 30)]
        [0.1, 0.05, 0.1, 0.05, 0.1]

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
        progress = _number(step) / self.first_decay_steps
        if self.t_mul == 1.0:
            period = ops.floor(progress)
            fraction = progress - period
        else:
            # The periods' lengths are a geometric series.
            grown = 1.0 - progress * (1.0 - self.t_mul)
            period = ops.floor(ops.log(grown) / math.log(self.t_mul))
            length = ops.power(_number(self.t_mul), period)
            fraction = (progress - (1.0 - length) / (1.0 - self.t_mul)) / length
        peak = ops.power(_number(self.m_mul), period)
        wave = 0.5 * peak * (1.0 + ops.cos(math.pi * fraction))
        return self.initial_learning_rate * ((1 - self.alpha) * wave + self.alpha)


def _check_positive(schedule: str, steps: float) -> None:
    if steps <= 0:
        raise ArgumentError(f"{schedule}: expected a number of steps > 0; got {steps}")
