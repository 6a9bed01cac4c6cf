"""Optimizers that use the structure of matrices: Adafactor and Muon."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

from toolkit import ops
from toolkit.arguments import Fraction, NonNegative, Positive
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError
from toolkit.optimizers.adam import adam_update
from toolkit.optimizers.optimizer import Optimizer, Slots
from toolkit.type_aliases import OptimizerOptions, UndecayedOptimizerOptions

if TYPE_CHECKING:
    from toolkit.core.variable import Variable


class Adafactor(Optimizer):
    """Adam with little memory: row and column means replace the squares of a matrix.

    Update of the parameter p by the gradient g in step t::

        b = 1 - t ** beta_2_decay
        s = g ** 2 + epsilon_1
        r = b * r + (1 - b) * (mean of s over columns)
        c = b * c + (1 - b) * (mean of s over rows)
        v = r / mean(r) * c         # of vectors: b * v + (1 - b) * s
        u = g / sqrt(v)
        u = u / max(1, rms(u) / clip_threshold)
        p = p - max(epsilon_2, rms(p)) * min(lr, 1 / sqrt(t)) * u

    Args:
        learning_rate: the relative step size.
        beta_2_decay: how fast the decay of the means approaches 1.
        epsilon_1: prevents division by 0.
        epsilon_2: the lower bound of the parameter size that scales the steps.
        clip_threshold: the largest root mean square of a step.
        relative_step: whether the learning rate is at most 1 / sqrt(t).
        *args, **kwargs: arguments of `Optimizer`.

    Example:
        >>> import toolkit
        >>> optimizer = toolkit.optimizers.Adafactor(learning_rate=0.1)
        >>> weight = toolkit.Variable([[1.0, 2.0], [3.0, 4.0]])
        >>> optimizer.apply([toolkit.ops.ones((2, 2))], [weight])
        >>> bool(toolkit.ops.all(weight < [[1.0, 2.0], [3.0, 4.0]]))
        True

    Reference:
        [Shazeer & Stern, 2018](https://arxiv.org/abs/1804.04235)
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_2_decay: float = -0.8,
        epsilon_1: NonNegative = 1e-30,
        epsilon_2: NonNegative = 1e-3,
        clip_threshold: float = 1.0,
        relative_step: bool = True,
        *args: Any,
        **kwargs: Unpack[OptimizerOptions],
    ) -> None:
        self.beta_2_decay = beta_2_decay
        self.epsilon_1 = epsilon_1
        self.epsilon_2 = epsilon_2
        self.clip_threshold = clip_threshold
        self.relative_step = relative_step
        super().__init__(learning_rate, *args, **kwargs)

    def init_slots(self, p: Any) -> dict[str, Any]:
        rows = p.shape[:-1] if p.ndim > 1 else ()
        columns = (*p.shape[:-2], p.shape[-1]) if p.ndim > 1 else ()
        shapes = {"row": rows, "column": columns, "velocity": p.shape}
        return {name: ops.zeros(shape, p.dtype) for name, shape in shapes.items()}

    def update(
        self, g: Tensor, p: Tensor, slots: Slots, lr: Tensor, step: Tensor
    ) -> tuple[Tensor, Slots]:
        rate = ops.minimum(lr, ops.rsqrt(step)) if self.relative_step else lr
        # weight of the new square in the means
        share = ops.power(step, self.beta_2_decay)
        square = ops.square(g) + self.epsilon_1
        memory = dict(slots)
        if p.ndim > 1:
            row = _towards(slots["row"], ops.mean(square, axis=-1), share)
            column = _towards(slots["column"], ops.mean(square, axis=-2), share)
            memory["row"], memory["column"] = row, column
            row = row / ops.mean(row, axis=-1, keepdims=True)
            v = ops.expand_dims(row, -1) * ops.expand_dims(column, -2)
        else:
            v = _towards(slots["velocity"], square, share)
        memory["velocity"] = v
        u = g / ops.sqrt(v)
        u = u / ops.maximum(1.0, _rms(u) / self.clip_threshold)
        return p - ops.maximum(self.epsilon_2, _rms(p)) * rate * u, memory


def _towards(mean: Tensor, x: Tensor, share: Tensor) -> Tensor:
    return mean + (x - mean) * share


def _rms(x: Tensor) -> Tensor:
    return ops.sqrt(ops.mean(ops.square(x)))


class Muon(Optimizer):
    """Momentum with orthogonalized steps for matrices; other variables use Adam.

    Update of the parameter p by the gradient g::

        m = momentum * m + g
        d = g + momentum * m        # m without nesterov
        p = p - lr * rms_rate * sqrt(max(rows, columns)) * orthogonal(d)

    A few iterations of `orthogonal` move the singular values of d close to 1. They
    start from x = d / |d|::

        y = x @ x.T
        x = a * x + (b * y + c * y @ y) @ x

    Args:
        learning_rate: the step size.
        adam_beta_1: beta_1 of Adam.
        adam_beta_2: beta_2 of Adam.
        adam_weight_decay: the weight decay of variables that use Adam.
        epsilon: epsilon of Adam.
        weight_decay: the weight decay of all other variables.
        exclude_layers: regular expressions; variables with matching paths use Adam.
        exclude_embeddings: whether variables with "embedding" in their paths use Adam.
        muon_a: a.
        muon_b: b.
        muon_c: c.
        adam_lr_ratio: the ratio of Adam's learning rate to `learning_rate`.
        momentum: in [0, 1).
        ns_steps: the number of iterations of `orthogonal`.
        nesterov: whether to use Nesterov momentum.
        rms_rate: the root mean square of a step of rate 1; None: the step is
            lr * orthogonal(d).
        **kwargs: arguments of `Optimizer`.

    Example:
        >>> import toolkit
        >>> model = toolkit.Sequential([toolkit.Input((4,)), toolkit.layers.Dense(3)])
        >>> model.compile(toolkit.optimizers.Muon(exclude_layers=["bias"]), "mse")
        >>> model.optimizer.exclude_layers
        ['bias']

    Reference:
        [Jordan, 2024](https://kellerjordan.github.io/posts/muon/),
        [Liu et al., 2025](https://arxiv.org/abs/2502.16982)
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        adam_beta_1: Fraction = 0.9,
        adam_beta_2: Fraction = 0.999,
        adam_weight_decay: NonNegative | None = 0.004,
        epsilon: NonNegative = 1e-7,
        weight_decay: NonNegative | None = 0.004,
        exclude_layers: Sequence[str] | None = None,
        exclude_embeddings: bool = True,
        muon_a: float = 3.4445,
        muon_b: float = -4.7750,
        muon_c: float = 2.0315,
        adam_lr_ratio: float = 1,
        momentum: Fraction = 0.95,
        ns_steps: Positive = 5,
        nesterov: bool = True,
        rms_rate: float | None = 0.2,
        **kwargs: Unpack[UndecayedOptimizerOptions],
    ) -> None:
        if not 0 <= momentum < 1:
            raise ArgumentError(
                f"Muon: expected momentum in [0, 1); received {momentum!r}"
            )
        self.adam_beta_1 = adam_beta_1
        self.adam_beta_2 = adam_beta_2
        self.adam_weight_decay = adam_weight_decay
        self.epsilon = epsilon
        self.exclude_layers: list[str] = list(exclude_layers or ())
        self.exclude_embeddings = exclude_embeddings
        self.muon_a = muon_a
        self.muon_b = muon_b
        self.muon_c = muon_c
        self.adam_lr_ratio = adam_lr_ratio
        self.momentum = momentum
        self.ns_steps = ns_steps
        self.nesterov = nesterov
        self.rms_rate = rms_rate
        super().__init__(learning_rate, weight_decay=weight_decay, **kwargs)

    def _takes_adam(self, p: Variable) -> bool:
        if p.ndim != 2 or (self.exclude_embeddings and "embedding" in p.path.lower()):
            return True
        return any(re.search(pattern, p.path) for pattern in self.exclude_layers)

    def _weight_decay_of(self, variable: Variable) -> float | None:
        return (
            self.adam_weight_decay if self._takes_adam(variable) else self.weight_decay
        )

    def init_slots(self, p: Any) -> dict[str, Any]:
        names = ("momentum", "velocity") if self._takes_adam(p) else ("momentum",)
        return {name: ops.zeros(p.shape, p.dtype) for name in names}

    def update(
        self, g: Tensor, p: Tensor, slots: Slots, lr: Tensor, step: Tensor
    ) -> tuple[Tensor, Slots]:
        if "velocity" in slots:
            betas = self.adam_beta_1, self.adam_beta_2
            lr = lr * self.adam_lr_ratio
            return adam_update(g, p, slots, lr, step, *betas, self.epsilon)
        m = self.momentum * slots["momentum"] + g
        ahead = g + self.momentum * m if self.nesterov else m
        direction = self.zeropower_via_newtonschulz5(ahead, self.ns_steps)
        return p - self.lr_adjust(lr * direction), {"momentum": m}

    def lr_adjust(self, x: Tensor) -> Tensor:
        """Scale a step to the root mean square `rms_rate`.

        Args:
            x: the learning rate times an orthogonal matrix.

        Returns:
            The scaled step, in the shape of x.
        """
        if self.rms_rate is None:
            return x
        return x * (self.rms_rate * math.sqrt(max(x.shape)))

    def transpose_last_axis(self, x: Tensor) -> Tensor:
        """Swap the last two axes of `x`.

        Args:
            x: (..., rows, columns).

        Returns:
            (..., columns, rows).
        """
        return ops.swapaxes(x, -1, -2)

    def zeropower_via_newtonschulz5(self, x: Tensor, steps: int) -> Tensor:
        """Return a matrix with the singular vectors of x and singular values near 1.

        Args:
            x: (rows, columns).
            steps: the number of iterations.
        """
        tall = x.shape[0] > x.shape[1]
        x = self.transpose_last_axis(x) if tall else x
        x = x / (ops.sqrt(ops.sum(ops.square(x))) + 1e-7)
        for _ in range(steps):
            y = ops.matmul(x, self.transpose_last_axis(x))
            mixed = self.muon_b * y + self.muon_c * ops.matmul(y, y)
            x = self.muon_a * x + ops.matmul(mixed, x)
        return self.transpose_last_axis(x) if tall else x
