"""Adam and related optimizers: running means of the gradient and of its square."""

from __future__ import annotations

from typing import Any, Unpack

from toolkit import ops
from toolkit.arguments import Fraction, NonNegative
from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError
from toolkit.optimizers.optimizer import Optimizer, Slots
from toolkit.type_aliases import OptimizerOptions, UndecayedOptimizerOptions


class Adam(Optimizer):
    """Adam: bias-corrected running means of the gradient and of its square.

    Update of the parameter p by the gradient g in step t::

        m = beta_1 * m + (1 - beta_1) * g
        v = beta_2 * v + (1 - beta_2) * g ** 2
        alpha = lr * sqrt(1 - beta_2 ** t) / (1 - beta_1 ** t)
        p = p - alpha * m / (sqrt(v) + epsilon)

    Args:
        learning_rate: the step size.
        beta_1: the decay of m, in [0, 1).
        beta_2: the decay of v, in [0, 1).
        epsilon: prevents division by 0.
        amsgrad: whether to use the maximum of v over all steps.
        *args, **kwargs: arguments of `Optimizer`.

    Reference:
        [Kingma & Ba, 2014](https://arxiv.org/abs/1412.6980), amsgrad:
        [Reddi et al., 2018](https://openreview.net/pdf?id=ryQu7f-RZ)

    Example:
        >>> import toolkit
        >>> optimizer = toolkit.optimizers.Adam(learning_rate=3e-4)
    """

    late_slots: tuple[str, ...] = ("velocity_hat",)

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: Fraction = 0.9,
        beta_2: Fraction = 0.999,
        epsilon: NonNegative = 1e-7,
        amsgrad: bool = False,
        *args: Any,
        **kwargs: Unpack[OptimizerOptions],
    ) -> None:
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.amsgrad = amsgrad
        self.slots: tuple[str, ...] = (
            "momentum",
            "velocity",
            *(["velocity_hat"] if amsgrad else []),
        )
        super().__init__(learning_rate, *args, **kwargs)

    def update(
        self, g: Tensor, p: Tensor, slots: Slots, lr: Tensor, step: Tensor
    ) -> tuple[Tensor, Slots]:
        return adam_update(
            g, p, slots, lr, step, self.beta_1, self.beta_2, self.epsilon
        )


def adam_update(
    g: Tensor,
    p: Tensor,
    slots: Slots,
    lr: Tensor,
    step: Tensor,
    beta_1: float,
    beta_2: float,
    epsilon: float,
) -> tuple[Tensor, Slots]:
    """Compute Adam's step; use amsgrad if there is a slot for the maximum of v."""
    m, v = slots["momentum"], slots["velocity"]
    m = m + (g - m) * (1 - beta_1)
    v = v + (ops.square(g) - v) * (1 - beta_2)
    memory = {"momentum": m, "velocity": v}
    if "velocity_hat" in slots:
        v = memory["velocity_hat"] = ops.maximum(slots["velocity_hat"], v)
    alpha = lr * ops.sqrt(1 - _power(beta_2, step)) / (1 - _power(beta_1, step))
    return p - m * alpha / (ops.sqrt(v) + epsilon), memory


def _power(base: float, exponent: Tensor) -> Tensor:
    return ops.power(convert(base, exponent.dtype), exponent)


class AdamW(Adam):
    """Adam with decoupled weight decay: first p = p - p * decay * lr.

    Args:
        learning_rate: the step size.
        weight_decay: the decay.
        beta_1: the decay of m, in [0, 1).
        beta_2: the decay of v, in [0, 1).
        epsilon: prevents division by 0.
        amsgrad: whether to use the maximum of v over all steps.
        *args, **kwargs: arguments of `Optimizer`.

    Example:
        >>> import toolkit
        >>> optimizer = toolkit.optimizers.AdamW(learning_rate=0.1, weight_decay=0.01)
        >>> weight = toolkit.Variable([1.0, 2.0])
        >>> optimizer.apply([toolkit.ops.array([0.5, -0.5])], [weight])
        >>> [round(x, 4) for x in weight.numpy().tolist()]
        [0.899, 2.098]

    Reference:
        [Loshchilov & Hutter, 2017](https://arxiv.org/abs/1711.05101)
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        weight_decay: NonNegative = 0.004,
        beta_1: Fraction = 0.9,
        beta_2: Fraction = 0.999,
        epsilon: NonNegative = 1e-7,
        amsgrad: bool = False,
        *args: Any,
        **kwargs: Unpack[UndecayedOptimizerOptions],
    ) -> None:
        super().__init__(
            learning_rate,
            beta_1,
            beta_2,
            epsilon,
            amsgrad,
            weight_decay,
            *args,
            **kwargs,
        )


class LazyAdam(Adam):
    """Adam that updates only the embedding rows that a step has looked up.

    This applies if a loss only takes rows of a variable, by `ops.take(v, i, axis=0)` or
    `Embedding`. A step then changes these rows, and m and v of these rows, by Adam's
    formulas; t counts all steps. `Adam` also moves all other rows by their decaying
    means, which reads and writes the whole table. All other variables are updated as by
    `Adam`. So is a table whose gradient is dense, for example from a regularizer or
    from a product with the whole table.

    Weight decay, constraints and averages still apply to the whole variable.

    Args:
        learning_rate: the step size.
        beta_1: the decay of m, in [0, 1).
        beta_2: the decay of v, in [0, 1).
        epsilon: prevents division by 0.
        amsgrad: whether to use the maximum of v over all steps.
        *args, **kwargs: arguments of `Optimizer`, except `gradient_accumulation_steps`:
            a sum over several steps has no record of their rows.

    Example:
        >>> import toolkit
        >>> table = toolkit.Variable([[1.0], [1.0]])
        >>> optimizer = toolkit.optimizers.LazyAdam(0.5)
        >>> with toolkit.GradientTape() as tape:
        ...     loss = toolkit.ops.sum(toolkit.ops.take(table, [1], axis=0))
        >>> _ = optimizer.apply_gradients([(tape.gradient(loss, table), table)])
        >>> table.numpy().round(3).tolist()
        [[1.0], [0.5]]
    """

    lazy = True

    def _check_arguments(self) -> None:
        super()._check_arguments()
        if self.gradient_accumulation_steps is not None:
            raise ArgumentError(
                f"{self.name}: expected gradient_accumulation_steps=None, because "
                "accumulated gradients have no row indices; received "
                f"{self.gradient_accumulation_steps}. Use Adam"
            )


class Adamax(Optimizer):
    """Adam with the largest gradient instead of the mean square.

    Update of the parameter p by the gradient g in step t::

        m = beta_1 * m + (1 - beta_1) * g
        u = max(beta_2 * u, |g|)
        p = p - lr / (1 - beta_1 ** t) * m / (u + epsilon)

    Args:
        learning_rate: the step size.
        beta_1: the decay of m.
        beta_2: the decay of u.
        epsilon: prevents division by 0.
        *args, **kwargs: arguments of `Optimizer`.

    Example:
        >>> import toolkit
        >>> optimizer = toolkit.optimizers.Adamax(learning_rate=0.1)
        >>> weight = toolkit.Variable([1.0, 2.0])
        >>> optimizer.apply([toolkit.ops.array([0.5, -0.5])], [weight])
        >>> [round(x, 4) for x in weight.numpy().tolist()]
        [0.9, 2.1]

    Reference:
        [Kingma & Ba, 2014](https://arxiv.org/abs/1412.6980), section 7.1
    """

    slots: tuple[str, ...] = ("momentum", "norm")

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: Fraction = 0.9,
        beta_2: Fraction = 0.999,
        epsilon: NonNegative = 1e-7,
        *args: Any,
        **kwargs: Unpack[OptimizerOptions],
    ) -> None:
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        super().__init__(learning_rate, *args, **kwargs)

    def update(
        self, g: Tensor, p: Tensor, slots: Slots, lr: Tensor, step: Tensor
    ) -> tuple[Tensor, Slots]:
        m = slots["momentum"] + (g - slots["momentum"]) * (1 - self.beta_1)
        u = ops.maximum(self.beta_2 * slots["norm"], ops.abs(g))
        rate = lr / (1 - _power(self.beta_1, step))
        return p - rate * m / (u + self.epsilon), {"momentum": m, "norm": u}


class Nadam(Optimizer):
    """Adam with Nesterov momentum.

    Update of the parameter p by the gradient g in step t::

        u_t = beta_1 * (1 - 0.5 * 0.96 ** t)
        U_t = u_1 * ... * u_t
        m_hat = u_{t+1} * m / (1 - U_{t+1}) + (1 - u_t) * g / (1 - U_t)
        p = p - lr * m_hat / (sqrt(v / (1 - beta_2 ** t)) + epsilon)

    Args:
        learning_rate: the step size.
        beta_1: the decay of m.
        beta_2: the decay of v.
        epsilon: prevents division by 0.
        *args, **kwargs: arguments of `Optimizer`.

    Example:
        >>> import toolkit
        >>> optimizer = toolkit.optimizers.Nadam(learning_rate=0.1)
        >>> weight = toolkit.Variable([1.0, 2.0])
        >>> optimizer.apply([toolkit.ops.array([0.5, -0.5])], [weight])
        >>> [round(x, 4) for x in weight.numpy().tolist()]
        [0.8937, 2.1063]

    Reference:
        [Dozat, 2015](http://cs229.stanford.edu/proj2015/054_report.pdf)
    """

    slots: tuple[str, ...] = ("momentum", "velocity")

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: Fraction = 0.9,
        beta_2: Fraction = 0.999,
        epsilon: NonNegative = 1e-7,
        *args: Any,
        **kwargs: Unpack[OptimizerOptions],
    ) -> None:
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        super().__init__(learning_rate, *args, **kwargs)

    def build(self, variables: Any) -> None:
        if self.built:
            return
        variables = list(variables)
        dtype = variables[0].dtype if variables else None
        super().build(variables)
        self._u_product = self.add_variable((), "ones", dtype, name="u_product")

    def begin_step(self, learning_rate: Any) -> None:
        step = convert(self.iterations, self._u_product.dtype) + 1
        self._u_product.assign(self._u_product.read() * self._u(step))

    def _u(self, step: Tensor) -> Tensor:
        return self.beta_1 * (1 - 0.5 * _power(0.96, step))

    def update(
        self, g: Tensor, p: Tensor, slots: Slots, lr: Tensor, step: Tensor
    ) -> tuple[Tensor, Slots]:
        u, following = self._u(step), self._u(step + 1)
        product = convert(self._u_product, p.dtype)
        m = slots["momentum"] + (g - slots["momentum"]) * (1 - self.beta_1)
        v = slots["velocity"]
        v = v + (ops.square(g) - v) * (1 - self.beta_2)
        m_hat = following * m / (1 - product * following) + (1 - u) * g / (1 - product)
        v_hat = v / (1 - _power(self.beta_2, step))
        p = p - m_hat * lr / (ops.sqrt(v_hat) + self.epsilon)
        return p, {"momentum": m, "velocity": v}


class Lamb(Optimizer):
    """Adam with a step size for each variable, proportional to its norm.

    Update of the parameter p by the gradient g::

        d = m_hat / (sqrt(v_hat) + epsilon)
        p = p - lr * |p| / |d| * d

    Args:
        learning_rate: the step size.
        beta_1: the decay of m.
        beta_2: the decay of v.
        epsilon: prevents division by 0.
        *args, **kwargs: arguments of `Optimizer`.

    Example:
        >>> import toolkit
        >>> optimizer = toolkit.optimizers.Lamb(learning_rate=0.1)
        >>> weight = toolkit.Variable([1.0, 2.0])
        >>> optimizer.apply([toolkit.ops.array([0.5, -0.5])], [weight])
        >>> [round(x, 4) for x in weight.numpy().tolist()]
        [0.8419, 2.1581]

    Reference:
        [You et al., 2019](https://arxiv.org/abs/1904.00962)
    """

    slots: tuple[str, ...] = ("momentum", "velocity")

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: Fraction = 0.9,
        beta_2: Fraction = 0.999,
        epsilon: NonNegative = 1e-7,
        *args: Any,
        **kwargs: Unpack[OptimizerOptions],
    ) -> None:
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        super().__init__(learning_rate, *args, **kwargs)

    def update(
        self, g: Tensor, p: Tensor, slots: Slots, lr: Tensor, step: Tensor
    ) -> tuple[Tensor, Slots]:
        m = slots["momentum"] + (g - slots["momentum"]) * (1 - self.beta_1)
        v = slots["velocity"]
        v = v + (ops.square(g) - v) * (1 - self.beta_2)
        m_hat = m / (1 - _power(self.beta_1, step))
        v_hat = v / (1 - _power(self.beta_2, step))
        d = m_hat / (ops.sqrt(v_hat) + self.epsilon)
        length, size = (ops.sqrt(ops.sum(ops.square(x))) for x in (p, d))
        usable = ops.logical_and(length > 0, size > 0)
        ratio = ops.where(usable, length / ops.where(usable, size, 1.0), 1.0)
        return p - ratio * d * lr, {"momentum": m, "velocity": v}
