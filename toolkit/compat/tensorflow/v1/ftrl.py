"""FtrlOptimizer: follow the regularized leader."""

from __future__ import annotations

from typing import Any

from toolkit import ops
from toolkit.compat.tensorflow.v1.optimizers import Optimizer


class FtrlOptimizer(Optimizer):
    """Follow the regularized leader: n = n + g², z = z + g - (n_new^-k - n^-k)/lr * p.

    With k = learning_rate_power; p = 0 if |z| <= l1, else (sign(z) * l1 - z) / (n^-k /
    lr + 2 * l2).

    Args:
        learning_rate, use_locking, name: as in `Optimizer`.
        learning_rate_power: at most 0.
        initial_accumulator_value: the initial value of n.
        l1_regularization_strength, l2_regularization_strength: l1 and l2.
    """

    slots: tuple[str, ...] = ("accum", "linear")

    def __init__(
        self,
        learning_rate: Any,
        learning_rate_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        use_locking: bool = False,
        name: str = "Ftrl",
    ) -> None:
        super().__init__(learning_rate, use_locking, name)
        self._power, self._start = learning_rate_power, initial_accumulator_value
        self._l1, self._l2 = l1_regularization_strength, l2_regularization_strength

    def first(self, slot: str) -> float:
        return self._start if slot == "accum" else 0.0

    def update(self, p, g, lr, slots, shared):
        n = slots[0] + ops.square(g)
        new, old = (ops.power(x, -self._power) for x in (n, slots[0]))
        z = slots[1] + g - (new - old) / lr * p
        p = (ops.sign(z) * self._l1 - z) / (new / lr + 2.0 * self._l2)
        return ops.where(ops.abs(z) > self._l1, p, ops.zeros_like(p)), n, z
