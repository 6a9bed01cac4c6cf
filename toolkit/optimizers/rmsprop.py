"""Optimizers that divide by a running size of the gradient: RMSprop and Ada*."""

from __future__ import annotations

from typing import Any, Unpack

from toolkit import ops
from toolkit.arguments import Fraction, NonNegative
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError
from toolkit.optimizers.optimizer import Optimizer, Slots
from toolkit.optimizers.rows import accepts_rows
from toolkit.type_aliases import OptimizerOptions


class RMSprop(Optimizer):
    """RMSprop: divides the gradient by the root of its running mean square.

    Update of the parameter p by the gradient g::

        v = rho * v + (1 - rho) * g ** 2
        b = momentum * b + lr * g / sqrt(v + epsilon)
        p = p - b

    Args:
        learning_rate: the step size.
        rho: the decay of the running mean.
        momentum: the momentum of the steps.
        epsilon: prevents division by 0.
        centered: whether to use the variance, v - (running mean of g) ** 2, instead of
            v.
        *args, **kwargs: arguments of `Optimizer`.

    Reference:
        [Hinton, 2012](https://www.cs.toronto.edu/~tijmen/csc321/slides/lecture_slides_lec6.pdf)

    Example:
        >>> import toolkit
        >>> optimizer = toolkit.optimizers.RMSprop(0.001, rho=0.9)
    """

    late_slots: tuple[str, ...] = ("momentum", "average_gradient")

    def __init__(
        self,
        learning_rate: Any = 0.001,
        rho: Fraction = 0.9,
        momentum: Fraction = 0.0,
        epsilon: NonNegative = 1e-7,
        centered: bool = False,
        *args: Any,
        **kwargs: Unpack[OptimizerOptions],
    ) -> None:
        self.rho = rho
        self.momentum = momentum
        self.epsilon = epsilon
        self.centered = centered
        self.slots: tuple[str, ...] = (
            "velocity",
            *(["momentum"] if momentum > 0 else []),
            *(["average_gradient"] if centered else []),
        )
        super().__init__(learning_rate, *args, **kwargs)

    def update(
        self, g: Tensor, p: Tensor, slots: Slots, lr: Tensor, step: Tensor
    ) -> tuple[Tensor, Slots]:
        memory = {}
        v = memory["velocity"] = self.rho * slots["velocity"] + (
            1 - self.rho
        ) * ops.square(g)
        if self.centered:
            mean = self.rho * slots["average_gradient"] + (1 - self.rho) * g
            memory["average_gradient"] = mean
            v = v - ops.square(mean)
        increment = lr * g / ops.sqrt(v + self.epsilon)
        if self.momentum > 0:
            increment = self.momentum * slots["momentum"] + increment
            memory["momentum"] = increment
        return p - increment, memory


class Adagrad(Optimizer):
    """Adagrad: divides the gradient by the root of the sum of its squares.

    Update of the parameter p by the gradient g::

        a = a + g ** 2
        p = p - lr * g / sqrt(a + epsilon)

    Args:
        learning_rate: the step size.
        initial_accumulator_value: the initial value of `a`.
        epsilon: prevents division by 0.
        *args, **kwargs: arguments of `Optimizer`.

    Example:
        >>> import toolkit
        >>> optimizer = toolkit.optimizers.Adagrad(learning_rate=0.1)
        >>> weight = toolkit.Variable([1.0, 2.0])
        >>> optimizer.apply([toolkit.ops.array([0.5, -0.5])], [weight])
        >>> [round(x, 4) for x in weight.numpy().tolist()]
        [0.9155, 2.0845]

    Reference:
        [Duchi et al., 2011](http://www.jmlr.org/papers/volume12/duchi11a/duchi11a.pdf)
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        initial_accumulator_value: NonNegative = 0.1,
        epsilon: NonNegative = 1e-7,
        *args: Any,
        **kwargs: Unpack[OptimizerOptions],
    ) -> None:
        self.initial_accumulator_value = initial_accumulator_value
        self.epsilon = epsilon
        super().__init__(learning_rate, *args, **kwargs)

    def init_slots(self, p: Any) -> dict[str, Any]:
        start = ops.full(p.shape, self.initial_accumulator_value, p.dtype)
        return {"accumulator": start}

    @accepts_rows()
    def update(
        self, g: Tensor, p: Tensor, slots: Slots, lr: Tensor, step: Tensor
    ) -> tuple[Tensor, Slots]:
        a = slots["accumulator"] + ops.square(g)
        return p - lr * g / ops.sqrt(a + self.epsilon), {"accumulator": a}


class Adadelta(Optimizer):
    """Adagrad with running means, and steps in the unit of the parameter.

    Update of the parameter p by the gradient g::

        a = rho * a + (1 - rho) * g ** 2
        d = -sqrt(s + epsilon) / sqrt(a + epsilon) * g
        s = rho * s + (1 - rho) * d ** 2
        p = p + lr * d

    Args:
        learning_rate: the step size; 1 in the paper.
        rho: the decay of the running means.
        epsilon: prevents division by 0.
        *args, **kwargs: arguments of `Optimizer`.

    Example:
        >>> import toolkit
        >>> optimizer = toolkit.optimizers.Adadelta(learning_rate=1.0)
        >>> weight = toolkit.Variable([1.0, 2.0])
        >>> optimizer.apply([toolkit.ops.array([0.5, -0.5])], [weight])
        >>> [round(x, 4) for x in weight.numpy().tolist()]
        [0.9986, 2.0014]

    Reference:
        [Zeiler, 2012](https://arxiv.org/abs/1212.5701)
    """

    slots: tuple[str, ...] = ("accumulated_grad", "accumulated_delta_var")

    def __init__(
        self,
        learning_rate: Any = 0.001,
        rho: Fraction = 0.95,
        epsilon: NonNegative = 1e-7,
        *args: Any,
        **kwargs: Unpack[OptimizerOptions],
    ) -> None:
        self.rho = rho
        self.epsilon = epsilon
        super().__init__(learning_rate, *args, **kwargs)

    def update(
        self, g: Tensor, p: Tensor, slots: Slots, lr: Tensor, step: Tensor
    ) -> tuple[Tensor, Slots]:
        a = self.rho * slots["accumulated_grad"] + (1 - self.rho) * ops.square(g)
        s = slots["accumulated_delta_var"]
        d = -ops.sqrt(s + self.epsilon) / ops.sqrt(a + self.epsilon) * g
        s = self.rho * s + (1 - self.rho) * ops.square(d)
        return p + lr * d, {"accumulated_grad": a, "accumulated_delta_var": s}


class Ftrl(Optimizer):
    """Follow the regularized leader, for sparse models.

    Update of the parameter p by the gradient g, with q = learning_rate_power and
    l2 = l2_regularization_strength + beta / (2 * lr)::

        n' = n + g ** 2
        z = z + g - (n' ** -q - n ** -q) / lr * p
        p = (clip(z, -l1, l1) - z) / (n' ** -q / lr + 2 * l2)

    Args:
        learning_rate: the step size.
        learning_rate_power: <= 0; -0.5 is the paper's square root.
        initial_accumulator_value: the initial value of `n`, >= 0.
        l1_regularization_strength: >= 0.
        l2_regularization_strength: >= 0.
        l2_shrinkage_regularization_strength: >= 0; added to the gradient as 2 * s * p.
        beta: the paper's beta.
        *args, **kwargs: arguments of `Optimizer`.

    Example:
        >>> import toolkit
        >>> optimizer = toolkit.optimizers.Ftrl(learning_rate=0.1)
        >>> weight = toolkit.Variable([1.0, 2.0])
        >>> optimizer.apply([toolkit.ops.array([0.5, -0.5])], [weight])
        >>> [round(x, 4) for x in weight.numpy().tolist()]
        [0.381, 1.0155]

    Reference:
        [McMahan et al., 2013](https://research.google.com/pubs/archive/41159.pdf)
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        learning_rate_power: float = -0.5,
        initial_accumulator_value: NonNegative = 0.1,
        l1_regularization_strength: NonNegative = 0.0,
        l2_regularization_strength: NonNegative = 0.0,
        l2_shrinkage_regularization_strength: NonNegative = 0.0,
        beta: float = 0.0,
        *args: Any,
        **kwargs: Unpack[OptimizerOptions],
    ) -> None:
        if learning_rate_power > 0:
            raise ArgumentError(
                "Ftrl: `learning_rate_power` needs to be negative or zero; received "
                f"{learning_rate_power}"
            )
        self.learning_rate_power = learning_rate_power
        self.initial_accumulator_value = initial_accumulator_value
        self.l1_regularization_strength = l1_regularization_strength
        self.l2_regularization_strength = l2_regularization_strength
        self.l2_shrinkage_regularization_strength = l2_shrinkage_regularization_strength
        self.beta = beta
        super().__init__(learning_rate, *args, **kwargs)

    def init_slots(self, p: Any) -> dict[str, Any]:
        start = ops.full(p.shape, self.initial_accumulator_value, p.dtype)
        return {"accumulator": start, "linear": ops.zeros(p.shape, p.dtype)}

    def update(
        self, g: Tensor, p: Tensor, slots: Slots, lr: Tensor, step: Tensor
    ) -> tuple[Tensor, Slots]:
        l1, power = self.l1_regularization_strength, -self.learning_rate_power
        l2 = self.l2_regularization_strength + self.beta / (2 * lr)
        shrunk = g + 2 * self.l2_shrinkage_regularization_strength * p
        n = slots["accumulator"] + ops.square(g)
        size, past = ops.power(n, power), ops.power(slots["accumulator"], power)
        z = slots["linear"] + shrunk - (size - past) / lr * p
        p = (ops.clip(z, -l1, l1) - z) / (size / lr + 2 * l2)
        return p, {"accumulator": n, "linear": z}
