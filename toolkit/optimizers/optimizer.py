"""Optimizer: the common part of all optimizers.

A subclass defines `slots`, the names of its state per parameter, and `update`, a pure
function that returns the new value and the new state. Clipping, weight decay,
schedules, averaging and accumulation are implemented here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from toolkit import ops
from toolkit.arguments import Fraction, NonNegative, unknown_argument_error
from toolkit.compiler.shared_steps import check_update
from toolkit.console.frames import warn
from toolkit.core.convert import convert
from toolkit.core.naming import auto_name, name_scope
from toolkit.core.tensor import Tensor, no_tapes
from toolkit.core.trace import StatelessScope
from toolkit.core.variable import Variable
from toolkit.definitions import foreign_names, hints
from toolkit.errors import ArgumentError
from toolkit.optimizers.compiled_updates import CompiledUpdates
from toolkit.optimizers.gradients import clip_by_global_norm, clip_by_norm, fit_shape
from toolkit.optimizers.rows import (
    PARTS,
    accepts_rows,
    as_rows,
    on_values,
    update_parts,
)
from toolkit.optimizers.state import OptimizerState

Slots = dict[str, Tensor]


class Optimizer(OptimizerState):
    """Base class of optimizers.

    Args:
        learning_rate: a number, a `LearningRateSchedule`, or a function without
            arguments that returns the rate.
        weight_decay: each step first decreases a variable by this factor times the
            rate.
        clipnorm: the largest norm of each gradient.
        clipvalue: the largest absolute value of a gradient's elements.
        global_clipnorm: the largest norm of all gradients together.
        use_ema: whether to keep moving averages of the variables, which start at the
            first update: `average = momentum * average + (1 - momentum) * variable`.
        ema_momentum: in [0, 1], the decay of the averages.
        ema_overwrite_frequency: the number of updates after which the averages
            overwrite the variables. None: only in `finalize_variable_values`.
        loss_scale_factor: the factor of the loss; gradients are divided by it.
        gradient_accumulation_steps: the number of steps whose gradients are averaged
            before the variables change. Schedules, averages and `iterations` count
            these updates, not the steps. The processes of a job exchange gradients once
            for each update; see `toolkit.distribution.DataParallel`.
        name: the name; the class name if None.

    A subclass can override `build` and `update_step` instead, as in Keras.

    Example:
        >>> import toolkit
        >>> v = toolkit.Variable([1.0, 2.0])
        >>> optimizer = toolkit.optimizers.SGD(learning_rate=0.5)
        >>> _ = optimizer.apply_gradients([(toolkit.ops.ones((2,)), v)])
        >>> v.numpy().tolist()
        [0.5, 1.5]
    """

    _has_updated = False

    def __init__(
        self,
        learning_rate: Any,
        weight_decay: NonNegative | None = None,
        clipnorm: float | None = None,
        clipvalue: float | None = None,
        global_clipnorm: float | None = None,
        use_ema: bool = False,
        ema_momentum: Fraction = 0.99,
        ema_overwrite_frequency: int | None = None,
        loss_scale_factor: float | None = None,
        gradient_accumulation_steps: int | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        if kwargs.pop("decay", None) is not None:
            warn(
                f"{type(self).__name__}: `decay` is no longer supported and is "
                "ignored; use a schedule, such as schedules.InverseTimeDecay"
            )
        if kwargs:
            raise unknown_argument_error(self, kwargs)
        self.name: str = name or auto_name(type(self).__name__)
        self.weight_decay = weight_decay
        self.clipnorm = clipnorm
        self.clipvalue = clipvalue
        self.global_clipnorm = global_clipnorm
        self.use_ema = use_ema
        self.ema_momentum = ema_momentum
        self.ema_overwrite_frequency = ema_overwrite_frequency
        self.loss_scale_factor = loss_scale_factor
        self.gradient_accumulation_steps = gradient_accumulation_steps
        self._check_arguments()
        self.built = False
        self._compiled_updates = CompiledUpdates()
        self._variables: list[Variable] = []
        self._trainable_variables: list[Variable] = []
        self._indices: dict[int, int] = {}
        self._excluded: tuple[list[Variable], list[str]] = ([], [])
        with name_scope(self.name):
            self._iterations = Variable(
                0, dtype="int32", trainable=False, name="iteration"
            )
        self._variables.append(self._iterations)
        self._learning_rate = self._rate_from(learning_rate)
        if isinstance(self._learning_rate, Variable):
            self._variables.append(self._learning_rate)

    def _check_arguments(self) -> None:
        clips = [
            name
            for name in ("clipnorm", "clipvalue", "global_clipnorm")
            if getattr(self, name) is not None
        ]
        if len(clips) > 1:
            raise ArgumentError(
                f"{self.name}: Only one of `clipnorm`, `clipvalue` and "
                f"`global_clipnorm` can be given; received {' and '.join(clips)}"
            )
        for name in clips:
            if not getattr(self, name) > 0:
                raise ArgumentError(
                    f"{self.name}: expected {name} > 0; received {getattr(self, name)}"
                )
        if self.use_ema and not 0 <= self.ema_momentum <= 1:
            raise ArgumentError(
                f"{self.name}: expected ema_momentum in [0, 1]; "
                f"received {self.ema_momentum}"
            )
        for name in ("ema_overwrite_frequency", "gradient_accumulation_steps"):
            value, minimum = getattr(self, name), 1 if name.startswith("ema") else 2
            if value is not None and value < minimum:
                raise ArgumentError(
                    f"{self.name}: expected {name} to be an integer >= {minimum} or "
                    f"None; received {value!r}"
                )

    # --- applying gradients -----------------------------------------------------------

    def apply_gradients(self, grads_and_vars: Iterable[tuple[Any, Variable]]) -> Any:
        """Update variables by pairs of (gradient, variable); return the iteration.

        Args:
            grads_and_vars: pairs of a gradient and its variable.

        Returns:
            The number of updates.
        """
        pairs = list(grads_and_vars)
        self.apply([g for g, _ in pairs], [v for _, v in pairs])
        return self._iterations

    def apply(
        self,
        grads: Sequence[Any],
        trainable_variables: Sequence[Variable] | None = None,
    ) -> None:
        """Update variables by their gradients.

        Args:
            grads: one for each variable; None for no gradient.
            trainable_variables: by default the variables of `build`.
        """
        check_update(f"{self.name}.apply", is_first=not self._has_updated)
        self._has_updated = True
        grads, variables = self._matched(grads, trainable_variables)
        if not grads:
            return
        with no_tapes():
            program = self._compiled_updates
            if not program.run(self, grads, variables, self._apply_matched):
                self._apply_matched(grads, variables)

    def _apply_matched(
        self, grads: Sequence[Any], variables: Sequence[Variable]
    ) -> None:
        overwriting: list[Any] = []
        ordinary: list[Any] = []
        for g, v in zip(grads, variables, strict=True):
            (overwriting if v.overwrite_with_gradient else ordinary).append((g, v))
        pairs = self._present(ordinary)
        self._overwrite(overwriting)
        self._apply_present([g for g, _ in pairs], [v for _, v in pairs])
        self._iterations.assign_add(1)

    def _matched(
        self, grads: Sequence[Any], trainable_variables: Sequence[Variable] | None
    ) -> tuple[list[Any], list[Variable]]:
        """Return the gradients with their variables; build at the first call.

        No variable changes until all gradients are valid.
        """
        grads = list(grads)
        if not grads:
            return [], []
        if trainable_variables is None:
            if not self.built:
                raise ArgumentError(
                    f"{self.name}.apply: the first call needs trainable_variables, "
                    "or a previous call of `build`"
                )
            variables = self._trainable_variables
        else:
            variables = list(trainable_variables)
        if len(grads) != len(variables):
            raise ArgumentError(
                f"{self.name}.apply: expected a gradient for each variable; received "
                f"{len(grads)} gradients and {len(variables)} variables"
            )
        where, pairs = f"{self.name}.apply", zip(grads, variables, strict=True)
        grads = [None if g is None else fit_shape(where, g, v) for g, v in pairs]
        if not self.built:
            self.build(variables)
        self._check_known(variables)
        return grads, variables

    def _check_known(self, variables: list[Variable]) -> None:
        for v in variables:
            if id(v) not in self._indices:
                raise ArgumentError(
                    f"{self.name}.apply: variable {v.path!r} is unknown; the "
                    "optimizer only updates the variables of its `build`. Create a "
                    "new optimizer for other variables"
                )

    def _overwrite(self, pairs: list[tuple[Any, Variable]]) -> None:
        """Assign gradients to variables that are marked to be overwritten by them."""
        for g, v in pairs:
            if g is not None and self.gradient_accumulation_steps:
                self._overwrite_with_largest(g, v)
            elif g is not None:
                v.assign(g)

    def _overwrite_with_largest(self, g: Tensor, variable: Variable) -> None:
        """With accumulation, the value is the maximum of the gradients of all steps."""
        so_far = self._accumulated_gradients[self._get_variable_index(variable)]
        largest, due = ops.maximum(g, so_far.read()), self._is_due()
        variable.assign(ops.where(due, largest, variable.read()))
        so_far.assign(ops.where(due, ops.zeros_like(largest), largest))

    def _is_due(self) -> Tensor:
        """Return whether this step is the last of an accumulation."""
        steps = self.gradient_accumulation_steps
        return ops.equal((self._iterations.read() + 1) % steps, 0)

    def _present(self, pairs: list[tuple[Any, Variable]]) -> list[tuple[Any, Variable]]:
        """Return the pairs that have a gradient; warn about the rest."""
        paths = [v.path for g, v in pairs if g is None]
        if paths and len(paths) == len(pairs):
            raise ArgumentError(
                f"{self.name}.apply: No gradients provided for any variable. Compute "
                "the loss inside `with GradientTape() as tape:`, from these variables "
                "and with functions of toolkit.ops"
            )
        if paths:
            warn(
                f"{self.name}: no gradient for the variables {', '.join(paths)}; "
                "the loss does not depend on them"
            )
        return [(g, v) for g, v in pairs if g is not None]

    def _apply_present(self, grads: list[Any], variables: list[Variable]) -> None:
        grads = as_rows(self, grads, variables)
        if (factor := self.loss_scale_factor) is not None:
            grads = on_values(lambda gs: [g / factor for g in gs], grads)
        if self.gradient_accumulation_steps:
            self._accumulate(grads, variables)
        else:
            self._update_all(grads, variables)

    def _update_all(self, grads: list[Any], variables: list[Variable]) -> None:
        """Update all variables, then their averages; then apply the constraints."""
        grads = on_values(self._clip_gradients, grads)
        self._apply_weight_decay(variables)
        rate = self.learning_rate
        self.begin_step(rate)
        for g, v in zip(grads, variables, strict=True):
            self.update_step(g, v, rate)
        if self.use_ema:
            self._update_averages()
        for v in variables:
            if v.constraint is not None:
                v.assign(v.constraint(v.read()))

    def begin_step(self, learning_rate: Any) -> None:
        """Prepare a step before its variables are updated.

        Args:
            learning_rate: the rate of the step.
        """

    @accepts_rows()
    def update_step(
        self, gradient: Any, variable: Variable, learning_rate: Any
    ) -> None:
        """Update one variable by its gradient; subclasses can override it.

        Args:
            gradient: the gradient of the variable.
            variable: the variable.
            learning_rate: the rate of the step.
        """
        slots = self._slots[self._get_variable_index(variable)]
        dtype = variable.dtype
        rate = convert(learning_rate, dtype)
        step = convert(self.iterations, dtype) + 1
        if isinstance(gradient, PARTS):
            update_parts(self.update, gradient, variable, slots, rate, step)
            return
        memory = {name: slot.read() for name, slot in slots.items()}
        gradient = convert(gradient, dtype)
        value, memory = self.update(gradient, variable.read(), memory, rate, step)
        variable.assign(value)
        for name, slot in slots.items():
            slot.assign(memory[name])

    def update(
        self, g: Tensor, p: Tensor, slots: Slots, lr: Tensor, step: Tensor
    ) -> tuple[Tensor, Slots]:
        """Return the new value of a parameter and of its slots.

        Args:
            g: the gradient.
            p: the parameter.
            slots: the state of the parameter, by name.
            lr: the learning rate, a scalar.
            step: 1 in the first update, a scalar.
        """
        raise NotImplementedError(
            f"{type(self).__name__} defines neither `update` nor `update_step`"
        )

    def assign(self, variable: Variable, value: Any) -> None:
        """Replace a variable's value.

        Args:
            variable: a variable.
            value: the new value.
        """
        variable.assign(value)

    def assign_add(self, variable: Variable, value: Any) -> None:
        """Add to a variable.

        Args:
            variable: a variable.
            value: the summand.
        """
        variable.assign_add(value)

    def assign_sub(self, variable: Variable, value: Any) -> None:
        """Subtract from a variable.

        Args:
            variable: a variable.
            value: the number to subtract.
        """
        variable.assign_sub(value)

    # --- clipping, decay, averages, accumulation --------------------------------------

    def _clip_gradients(self, grads: list[Any]) -> list[Any]:
        if self.clipnorm is not None:
            return [clip_by_norm(g, self.clipnorm) for g in grads]
        if self.global_clipnorm is not None:
            return clip_by_global_norm(grads, self.global_clipnorm)
        if self.clipvalue is not None:
            return [ops.clip(g, -self.clipvalue, self.clipvalue) for g in grads]
        return grads

    def exclude_from_weight_decay(
        self,
        var_list: Iterable[Variable] | None = None,
        var_names: Iterable[str] | None = None,
    ) -> None:
        """Exempt variables from weight decay; call it before `build`.

        Args:
            var_list: variables.
            var_names: regular expressions, searched for in the variables' names.
        """
        if self.built:
            raise ArgumentError(
                f"{self.name}: call exclude_from_weight_decay before the optimizer "
                "is built"
            )
        self._excluded = list(var_list or ()), list(var_names or ())

    def _use_weight_decay(self, variable: Variable) -> bool:
        excluded, patterns = self._excluded
        if any(v is variable for v in excluded):
            return False
        return not any(re.search(p, variable.name) for p in patterns)

    def _apply_weight_decay(self, variables: Iterable[Variable]) -> None:
        rate = self.learning_rate
        for v in variables:
            decay = self._weight_decay_of(v)
            if decay is not None and self._use_weight_decay(v):
                shrink = convert(rate, v.dtype) * decay
                v.assign(v.read() - v.read() * shrink)

    def _weight_decay_of(self, variable: Variable) -> float | None:
        """Return the weight decay of a variable that is not exempt."""
        return self.weight_decay

    def averaged(self) -> list[tuple[Variable, Variable]]:
        """Return pairs of a variable and its average."""
        pairs = zip(
            self._trainable_variables, self._model_variables_moving_average, strict=True
        )
        return [(v, average) for v, average in pairs if average is not None]

    def _update_averages(self) -> None:
        updates = convert(self.iterations)
        first = ops.equal(updates, 0)
        for v, average in self.averaged():
            past = average.read()
            share = ops.where(first, 1.0, convert(1 - self.ema_momentum, v.dtype))
            average.assign(past + (v.read() - past) * share)
        if self.ema_overwrite_frequency:
            due = ops.equal((updates + 1) % self.ema_overwrite_frequency, 0)
            ops.cond(due, self._overwrite_with_averages, lambda: None)

    def _overwrite_with_averages(self) -> None:
        for v, average in self.averaged():
            v.assign(average.read())

    def finalize_variable_values(self, var_list: Iterable[Variable]) -> None:
        """Overwrite variables with their averages at the end of training.

        Args:
            var_list: the variables to overwrite.
        """
        if self.use_ema and self.built:
            selected = {id(v) for v in var_list}
            has_averages = ops.greater(self.iterations, 0)
            for v, average in self.averaged():
                if id(v) in selected:
                    v.assign(ops.where(has_averages, average.read(), v.read()))

    def _accumulate(self, grads: list[Any], variables: list[Variable]) -> None:
        accumulators = [
            self._accumulated_gradients[self._get_variable_index(v)] for v in variables
        ]
        is_due = self._is_due()
        # Outside of the branches: the processes of a job exchange the due sums.
        pairs = zip(accumulators, grads, strict=True)
        results = [accumulator.add(g, is_due) for accumulator, g in pairs]

        def update() -> None:
            steps = self.gradient_accumulation_steps
            self._update_all([total / steps for _, total in results], variables)
            for accumulator in self._accumulated_gradients:
                if not accumulator.overwrite_with_gradient:
                    accumulator.assign(ops.zeros_like(accumulator.read()))

        def store() -> None:
            for accumulator, (sums, _) in zip(accumulators, results, strict=True):
                accumulator.assign(sums)

        ops.cond(is_due, update, store)

    # --- loss scaling -----------------------------------------------------------------

    def scale_loss(self, loss: Any) -> Any:
        """Return the loss times `loss_scale_factor`.

        Args:
            loss: a scalar.
        """
        factor = self.loss_scale_factor
        return loss if factor is None else loss * factor

    def stateless_apply(
        self, optimizer_variables: Any, grads: Any, trainable_variables: Any
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return (new trainable values, new optimizer values); change no variable.

        Args:
            optimizer_variables: values of `variables`.
            grads: one gradient for each trainable variable.
            trainable_variables: values of the trainable variables.
        """
        if not self.built:
            raise ArgumentError(f"{self.name}.stateless_apply: call `build` first")
        mapping = [
            *zip(self._trainable_variables, trainable_variables, strict=True),
            *zip(self.variables, optimizer_variables, strict=True),
        ]
        with StatelessScope(mapping) as scope:
            self.apply(grads)
        values = (self._trainable_variables, self.variables)
        results = [[_after(scope, v) for v in variables] for variables in values]
        return results[0], results[1]


def _after(scope: Any, variable: Variable) -> Tensor:
    value = scope.get_current_value(variable)
    return variable.read() if value is None else value


hints.explain_missing(Optimizer, foreign_names.OPTIMIZERS)
