"""LossScaleOptimizer: prevents the underflow of small float16 gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolkit import ops, serialization
from toolkit.arguments import Positive
from toolkit.core.convert import convert
from toolkit.core.slices import scale_slices, slices_of
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError
from toolkit.optimizers.accumulators import exchange_each_step
from toolkit.optimizers.optimizer import Optimizer

# Arguments of other optimizers, with the value that disables them.
_NEUTRAL = {
    "dynamic": True,
    "use_ema": False,
    "ema_momentum": 0.99,
    **dict.fromkeys(("weight_decay", "clipnorm", "global_clipnorm", "clipvalue")),
    **dict.fromkeys(("ema_overwrite_frequency", "gradient_accumulation_steps")),
    "loss_scale_factor": None,
}


class LossScaleOptimizer(Optimizer):
    """Optimizer that multiplies the loss by a scale and divides the gradients by it.

    The scale doubles after `dynamic_growth_steps` consecutive steps with finite
    gradients. A step with a non-finite gradient changes no variable and halves the
    scale.

    Args:
        inner_optimizer: the optimizer that applies the gradients; its
            `loss_scale_factor` is removed.
        initial_scale: the first scale.
        dynamic_growth_steps: the number of finite steps before the scale doubles.
        name: the name; the class name if None.

    Reference:
        [Micikevicius et al., 2017](https://arxiv.org/abs/1710.03740)

    Example:
        >>> import toolkit
        >>> inner = toolkit.optimizers.SGD(0.1)
        >>> optimizer = toolkit.optimizers.LossScaleOptimizer(inner)
        >>> float(optimizer.scale_loss(1.0))
        32768.0
    """

    def __init__(
        self,
        inner_optimizer: Optimizer,
        initial_scale: float = 2.0**15,
        dynamic_growth_steps: Positive = 2000,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        if not isinstance(inner_optimizer, Optimizer):
            raise ArgumentError(
                "LossScaleOptimizer: expected an optimizer; "
                f"received {inner_optimizer!r}"
            )
        for argument, value in kwargs.items():
            # Keras configs contain the arguments of all optimizers.
            if value != _NEUTRAL.get(argument, ...):
                raise ArgumentError(
                    f"LossScaleOptimizer does not support `{argument}`: set it on the "
                    "`inner_optimizer`"
                )
        super().__init__(learning_rate=0.0, name=name)
        self.inner_optimizer = inner_optimizer
        inner_optimizer.loss_scale_factor = None  # this scale replaces it
        self.initial_scale = initial_scale
        self.dynamic_growth_steps = dynamic_growth_steps
        self.step_counter: Variable = self.add_variable(
            (), "zeros", "int32", name="step_counter"
        )
        self.dynamic_scale: Variable = self.add_variable(
            (), lambda shape, dtype: initial_scale, "float32", name="dynamic_scale"
        )

    @property
    def variables(self) -> list[Variable]:
        return [*self._variables, *self.inner_optimizer.variables]

    @property
    def learning_rate(self) -> Any:
        return self.inner_optimizer.learning_rate

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        self.inner_optimizer.learning_rate = value

    @property
    def iterations(self) -> Any:
        return self.inner_optimizer.iterations

    def build(self, variables: Any) -> None:
        variables = list(variables)
        self._trainable_variables = variables
        with exchange_each_step():  # `check_finite` reads the gradients
            self.inner_optimizer.build(variables)
        self.built = True

    def scale_loss(self, loss: Any) -> Any:
        """Return the loss times the scale.

        Args:
            loss: a scalar.
        """
        loss = convert(loss)
        return loss * convert(self.dynamic_scale, loss.dtype)

    def apply(
        self,
        grads: Sequence[Any],
        trainable_variables: Sequence[Variable] | None = None,
    ) -> None:
        grads = [None if g is None else convert(g) for g in grads]
        if not self.built:
            if trainable_variables is None:
                raise ArgumentError(
                    f"{self.name}.apply: the first call needs trainable_variables, "
                    "or a previous call of `build`"
                )
            self.build(trainable_variables)
        finite = self.check_finite(grads)
        scale = self.dynamic_scale.read()
        variables = trainable_variables or self._trainable_variables
        unscaled = [
            g
            if g is None or v.overwrite_with_gradient
            else scale_slices(g, lambda x: x / convert(scale, x.dtype))
            for g, v in zip(grads, variables, strict=True)
        ]

        def good() -> None:
            self.inner_optimizer.apply(unscaled, trainable_variables)
            grown = ops.equal(self.step_counter.read(), self.dynamic_growth_steps - 1)
            self.dynamic_scale.assign(ops.where(grown, scale * 2.0, scale))
            self.step_counter.assign(ops.where(grown, 0, self.step_counter.read() + 1))

        def bad() -> None:
            self.step_counter.assign(0)
            self.dynamic_scale.assign(scale / 2.0)

        ops.cond(finite, good, bad)

    def check_finite(self, grads: Sequence[Any]) -> Any:
        """Return whether all gradients are finite, as a scalar.

        Args:
            grads: gradients; None is ignored.
        """
        finite = convert(True)
        for g in grads:
            if g is not None:
                # Divide the rows before the rows of one index are summed.
                for values in [s.values for s in slices_of(g)] or [g]:
                    finite = ops.logical_and(finite, ops.all(ops.isfinite(values)))
        return finite

    def finalize_variable_values(self, var_list: Any) -> None:
        self.inner_optimizer.finalize_variable_values(var_list)

    def get_config(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "initial_scale": self.initial_scale,
            "dynamic_growth_steps": self.dynamic_growth_steps,
            "inner_optimizer": serialization.serialize_keras_object(
                self.inner_optimizer
            ),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        inner = serialization.deserialize_keras_object(
            config["inner_optimizer"], custom_objects
        )
        return cls(**{**config, "inner_optimizer": inner})
