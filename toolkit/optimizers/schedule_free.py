"""Optimizers that use averaging instead of a schedule."""

from __future__ import annotations

from typing import Any, Unpack

from toolkit import ops
from toolkit.arguments import Fraction, NonNegative
from toolkit.core.tensor import Tensor
from toolkit.optimizers.optimizer import Optimizer, Slots
from toolkit.type_aliases import OptimizerOptions


class ScheduleFreeAdamW(Optimizer):
    """AdamW on a sequence z, with the mean of its values instead of a schedule.

    Update of the parameter p by the gradient g in step t::

        v = beta_2 * v + (1 - beta_2) * g ** 2
        z = z - lr * g / (sqrt(v / (1 - beta_2 ** t)) + epsilon)
        x = x + (z - x) / t
        p = beta_1 * x + (1 - beta_1) * z

    Training evaluates p, an interpolation between the newest value z and the mean x.

    Args:
        learning_rate: the step size; larger than AdamW's.
        beta_1: the weight of the mean in p, in (0, 1).
        beta_2: the decay of v, in [0, 1).
        epsilon: prevents division by 0.
        warmup_steps: the number of steps in which the rate grows from 0.
        *args, **kwargs: arguments of `Optimizer`.

    Reference:
        [Defazio et al., 2024](https://arxiv.org/abs/2405.15682)

    Example:
        >>> from toolkit import optimizers
        >>> optimizer = optimizers.ScheduleFreeAdamW(warmup_steps=100)
    """

    slots: tuple[str, ...] = ("momentum", "velocity")

    def __init__(
        self,
        learning_rate: Any = 0.0025,
        beta_1: Fraction = 0.9,
        beta_2: Fraction = 0.999,
        epsilon: NonNegative = 1e-8,
        warmup_steps: NonNegative = 0,
        *args: Any,
        **kwargs: Unpack[OptimizerOptions],
    ) -> None:
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.warmup_steps = warmup_steps
        super().__init__(learning_rate, *args, **kwargs)

    def init_slots(self, p: Any) -> dict[str, Any]:
        return {"momentum": p.value, "velocity": ops.zeros(p.shape, p.dtype)}

    def update(
        self, g: Tensor, p: Tensor, slots: Slots, lr: Tensor, step: Tensor
    ) -> tuple[Tensor, Slots]:
        if self.warmup_steps:
            lr = lr * ops.minimum(step / self.warmup_steps, 1.0)
        z, v = slots["momentum"], slots["velocity"]
        mean = (p - (1 - self.beta_1) * z) / self.beta_1
        v = v + (ops.square(g) - v) * (1 - self.beta_2)
        correction = 1 - ops.power(ops.cast(self.beta_2, step.dtype), step)
        z = z - lr * g / (ops.sqrt(v / correction) + self.epsilon)
        mean = mean + (z - mean) / step
        p = self.beta_1 * mean + (1 - self.beta_1) * z
        return p, {"momentum": z, "velocity": v}
