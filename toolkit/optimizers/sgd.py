"""Stochastic gradient descent, and Lion, which uses the sign of the gradient."""

from __future__ import annotations

from typing import Any, Unpack

from toolkit import ops
from toolkit.arguments import Fraction, is_real
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError
from toolkit.optimizers.optimizer import Optimizer, Slots
from toolkit.optimizers.rows import accepts_rows
from toolkit.type_aliases import OptimizerOptions


class SGD(Optimizer):
    """Gradient descent with optional momentum.

    Update of the parameter p by the gradient g::

        velocity = momentum * velocity - lr * g
        p = p + velocity          # nesterov: p + momentum * velocity - lr * g

    Args:
        learning_rate: the step size.
        momentum: in [0, 1].
        nesterov: whether to use Nesterov momentum.
        *args, **kwargs: arguments of `Optimizer`.

    Example:
        >>> import toolkit
        >>> optimizer = toolkit.optimizers.SGD(0.1, momentum=0.9)
    """

    def __init__(
        self,
        learning_rate: Any = 0.01,
        momentum: Fraction = 0.0,
        nesterov: bool = False,
        *args: Any,
        **kwargs: Unpack[OptimizerOptions],
    ) -> None:
        if not is_real(momentum) or not 0 <= momentum <= 1:
            raise ArgumentError(
                "SGD: `momentum` must be a float between [0, 1]. Received: "
                f"momentum={momentum!r}"
            )
        self.momentum = momentum
        self.nesterov = nesterov
        self.slots: tuple[str, ...] = ("momentum",) if momentum else ()
        super().__init__(learning_rate, *args, **kwargs)

    @accepts_rows(lambda self: not self.momentum, additive=True)
    def update(
        self, g: Tensor, p: Tensor, slots: Slots, lr: Tensor, step: Tensor
    ) -> tuple[Tensor, Slots]:
        if not self.momentum:
            return p - lr * g, {}
        velocity = self.momentum * slots["momentum"] - lr * g
        if self.nesterov:
            return p + self.momentum * velocity - lr * g, {"momentum": velocity}
        return p + velocity, {"momentum": velocity}


class Lion(Optimizer):
    """Lion: steps of one size in the direction of the sign of an averaged gradient.

    Update of the parameter p by the gradient g::

        p = p - lr * sign(beta_1 * m + (1 - beta_1) * g)
        m = beta_2 * m + (1 - beta_2) * g

    Args:
        learning_rate: the step size; a third to a tenth of Adam's.
        beta_1: the weight of the average in the direction, in (0, 1].
        beta_2: the decay of the average, in (0, 1).
        *args, **kwargs: arguments of `Optimizer`.

    Example:
        >>> import toolkit
        >>> optimizer = toolkit.optimizers.Lion(learning_rate=0.01)
        >>> weight = toolkit.Variable([1.0, 2.0])
        >>> optimizer.apply([toolkit.ops.array([0.5, -0.5])], [weight])
        >>> [round(x, 4) for x in weight.numpy().tolist()]
        [0.99, 2.01]

    Reference:
        [Chen et al., 2023](https://arxiv.org/abs/2302.06675)
    """

    slots: tuple[str, ...] = ("momentum",)

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: Fraction = 0.9,
        beta_2: Fraction = 0.99,
        *args: Any,
        **kwargs: Unpack[OptimizerOptions],
    ) -> None:
        if not 0 < beta_1 <= 1:
            raise ArgumentError(
                f"Lion: `beta_1` must be in (0, 1]; received beta_1={beta_1}"
            )
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        super().__init__(learning_rate, *args, **kwargs)

    def update(
        self, g: Tensor, p: Tensor, slots: Slots, lr: Tensor, step: Tensor
    ) -> tuple[Tensor, Slots]:
        m = slots["momentum"]
        direction = ops.sign(self.beta_1 * m + (1 - self.beta_1) * g)
        m = self.beta_2 * m + (1 - self.beta_2) * g
        return p - lr * direction, {"momentum": m}
