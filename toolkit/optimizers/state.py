"""Optimizer state: variables, slots and the learning rate."""

from __future__ import annotations

from collections.abc import Iterable
from functools import wraps
from typing import Any

import numpy as np

from toolkit import ops, serialization, settings
from toolkit.arguments import Checked, is_real
from toolkit.console.frames import warn
from toolkit.core.hooks import notify_new_variables
from toolkit.core.naming import name_scope
from toolkit.core.trace import no_trace
from toolkit.core.variable import Variable, assign_all
from toolkit.definitions.representations import config_repr
from toolkit.errors import (
    ArgumentError,
    ArgumentTypeError,
    ModelFileError,
    NotBuiltError,
)
from toolkit.optimizers.accumulators import Accumulator, saved_value
from toolkit.optimizers.schedules import LearningRateSchedule
from toolkit.serialization.recording import constructor_signature
from toolkit.thread_state import restore_on_error
from toolkit.type_aliases import DTypeLike, InitializerLike, Shape


def _all_or_nothing(build: Any) -> Any:
    """Wrap `build` so that a failure or an interrupt leaves no variables."""

    @wraps(build)
    def wrapper(self: OptimizerState, variables: Any) -> None:
        before, built = len(self._variables), self.built
        try:
            with restore_on_error():
                build(self, variables)
        except BaseException:
            del self._variables[before:]
            self.built = built
            raise

    return wrapper


class OptimizerState(Checked):
    """Part of an optimizer that holds variables; see `Optimizer`."""

    # Names of the state tensors of each variable: same shape, initially zero.
    slots: tuple[str, ...] = ()
    # Slots whose variables follow all other slots in `variables`, as in Keras's files.
    late_slots: tuple[str, ...] = ()
    # Whether rows without a lookup stay unchanged, with their slots, even if `update`
    # would change them for a zero gradient.
    lazy: bool = False

    name: str
    use_ema: bool
    gradient_accumulation_steps: int | None
    built: bool
    _variables: list[Variable]
    _trainable_variables: list[Variable]
    _indices: dict[int, int]
    _iterations: Variable
    _learning_rate: Any

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "build" in vars(cls):
            cls.build = _all_or_nothing(cls.build)  # type: ignore[method-assign]

    # --- variables --------------------------------------------------------------------

    @property
    def variables(self) -> list[Variable]:
        """Return the iteration, the rate, then the slots of each variable."""
        return list(self._variables)

    @property
    def iterations(self) -> Any:
        """Return the number of updates."""
        if self.gradient_accumulation_steps:
            return ops.floor_divide(self._iterations, self.gradient_accumulation_steps)
        return self._iterations

    @_all_or_nothing
    def build(self, variables: Iterable[Variable]) -> None:
        """Create the slots of each variable.

        Args:
            variables: the variables that the optimizer updates.
        """
        if self.built:
            return
        self._trainable_variables = list(variables)
        self._index()
        if self.use_ema:
            self._model_variables_moving_average = self.add_optimizer_variables(
                self._trainable_variables, "average"
            )
        if self.gradient_accumulation_steps:
            self._accumulated_gradients = [
                self._add_accumulator(v) for v in self._trainable_variables
            ]
        self._make_slots()
        self.built = True
        notify_new_variables()

    def _add_accumulator(self, variable: Variable) -> Accumulator:
        """Create the sum of the gradients of a variable, saved with the optimizer."""
        name = f"{variable.path.replace('/', '_')}_gradient_accumulator"
        with name_scope(self.name):
            accumulator = Accumulator(variable, name)
        self._variables.append(accumulator)
        return accumulator

    def _index(self) -> None:
        self._indices = {id(v): i for i, v in enumerate(self._trainable_variables)}

    def __setstate__(self, members: dict[str, Any]) -> None:
        """Restore a copy, which has different variables."""
        self.__dict__.update(members)
        self._index()

    def _make_slots(self) -> None:
        with no_trace():
            initial = [
                {} if v.overwrite_with_gradient else self.init_slots(v)
                for v in self._trainable_variables
            ]
        self._slots: list[dict[str, Variable]] = [{} for _ in initial]
        early = {name for slots in initial for name in slots} - {*self.late_slots}
        for names in (early, *({name} for name in self.late_slots)):
            rows = zip(self._trainable_variables, initial, self._slots, strict=True)
            for variable, values, slot in rows:
                for name in filter(names.__contains__, values):
                    slot[name] = self.add_variable_from_reference(
                        variable, name, values[name]
                    )

    def init_slots(self, p: Any) -> dict[str, Any]:
        """Return the initial slots of a variable, by name.

        Args:
            p: the variable.
        """
        return {name: ops.zeros(p.shape, p.dtype) for name in self.slots}

    def add_variable(
        self,
        shape: Shape,
        initializer: InitializerLike = "zeros",
        dtype: DTypeLike | None = None,
        aggregation: str = "none",
        layout: Any = None,
        name: str | None = None,
    ) -> Variable:
        """Create a variable of the optimizer, saved with it.

        Args:
            shape: its shape.
            initializer: its first value.
            dtype: floatx if None.
            aggregation: the aggregation over replicas.
            layout: the layout over devices, or None.
            name: the last component of its path.

        Returns:
            The variable.
        """
        if layout is not None:
            raise ArgumentError(
                f"{self.name}.add_variable: expected layout=None, because slot "
                f"variables are never distributed; received {layout!r}"
            )
        with name_scope(self.name):
            variable = Variable(
                initializer,
                shape=tuple(shape),
                dtype=dtype,
                trainable=False,
                aggregation=aggregation,
                name=name,
            )
        self._variables.append(variable)
        return variable

    def add_variable_from_reference(
        self,
        reference_variable: Any,
        name: str | None = None,
        initializer: InitializerLike = "zeros",
    ) -> Variable:
        """Create a variable like another one, or like a value.

        Args:
            reference_variable: a variable, or a value with a path, a shape and a dtype.
            name: the suffix of the name.
            initializer: its first value.

        Returns:
            The variable.
        """
        path = reference_variable.path.replace("/", "_")
        name = f"{path}_{name or 'slot'}"
        dtype = reference_variable.dtype
        shape = reference_variable.shape
        if isinstance(initializer, str) or callable(initializer):
            slot = self.add_variable(shape, initializer, dtype, name=name)
        else:
            with no_trace():
                value = ops.convert_to_tensor(initializer)
            slot = self.add_variable(value.shape, value, name=name)
        if slot.shape == shape:
            slot.place_like(reference_variable)
        return slot

    def add_optimizer_variables(
        self, trainable_variables: Any, name: Any, initializer: Any = "zeros"
    ) -> Any:
        """Create a variable for each given one; several names return a tuple of lists.

        Args:
            trainable_variables: the variables; the lists contain None for variables
                that are overwritten by their gradients.
            name: a name, or a list of them.
            initializer: one for all, or a list with one for each name.

        Returns:
            A list of variables, or a tuple with a list for each name.
        """
        names = [name] if isinstance(name, str) else list(name)
        starts = initializer
        if not isinstance(initializer, (list, tuple)):
            starts = [initializer] * len(names)
        if len(starts) != len(names):
            raise ArgumentError(
                f"{self.name}.add_optimizer_variables: expected {len(names)} "
                f"initializers, one for each name; received {len(starts)}"
            )
        columns: tuple[list[Any], ...] = tuple([] for _ in names)
        for v in trainable_variables:
            for column, slot_name, start in zip(columns, names, starts, strict=True):
                slot = None
                if not v.overwrite_with_gradient:
                    slot = self.add_variable_from_reference(v, slot_name, start)
                column.append(slot)
        return columns[0] if isinstance(name, str) else columns

    def _get_variable_index(self, variable: Variable) -> int:
        return self._indices[id(variable)]

    # --- the learning rate ------------------------------------------------------------

    def _rate_from(self, value: Any) -> Any:
        if isinstance(value, dict):
            value = serialization.deserialize_keras_object(value)
        if callable(value):
            return value
        if not is_real(value) and not hasattr(value, "dtype"):
            raise ArgumentError(
                f"{self.name}: expected learning_rate to be a number, a schedule or a "
                f"function; received {value!r}"
            )
        self._check_rate(value)
        with name_scope(self.name):
            return Variable(
                float(value),
                dtype=settings.floatx(),
                trainable=False,
                name="learning_rate",
            )

    def _check_rate(self, value: object) -> None:
        """Raise for a rate that is not a finite number; tensors are not checked."""
        if not is_real(value) and not isinstance(value, np.ndarray):
            return
        rate = np.asarray(value, dtype=float)
        if not np.all(np.isfinite(rate)):
            raise ArgumentError(
                f"{self.name}: expected a finite learning_rate; received {value}"
            )
        if np.any(rate < 0):
            warn(
                f"{self.name}: the learning_rate {value} is negative, so the loss "
                "increases"
            )

    @property
    def learning_rate(self) -> Any:
        """Return the rate of the next step; assign a number or a schedule to set it."""
        if isinstance(self._learning_rate, LearningRateSchedule):
            return self._learning_rate(self.iterations)
        if isinstance(self._learning_rate, Variable):
            return self._learning_rate
        return self._learning_rate()

    @learning_rate.setter
    def learning_rate(self, value: Any) -> Any:
        if isinstance(self._learning_rate, Variable) and not callable(value):
            self._check_rate(value)
            self._learning_rate.assign(value)
            return
        if isinstance(self._learning_rate, LearningRateSchedule) and not isinstance(
            value, LearningRateSchedule
        ):
            raise ArgumentTypeError(
                f"{self.name}: This optimizer was created with a "
                "`LearningRateSchedule`, so its learning rate cannot be set; create "
                "the optimizer with a number to set the rate later"
            )
        self._variables = [v for v in self._variables if v is not self._learning_rate]
        self._learning_rate = self._rate_from(value)

    def set_weights(self, weights: Iterable[Any]) -> None:
        """Assign a value to each of `variables`.

        Args:
            weights: one value for each of `variables`.
        """
        if not self.built:
            raise NotBuiltError(
                f"{self.name}: You are calling `set_weights` on an optimizer that is "
                "not built; call `build(trainable_variables)` first"
            )
        weights = list(weights)
        if len(weights) != len(self.variables):
            raise ArgumentError(
                f"{self.name}.set_weights: expected {len(self.variables)} values, one "
                f"for each variable; received {len(weights)}"
            )
        assign_all(zip(self.variables, weights, strict=True))

    # --- configs, saving --------------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        names = [
            name
            for cls in type(self).__mro__
            for name in constructor_signature(cls).parameters
        ]
        config = {"learning_rate": self._rate_config()}
        for name in dict.fromkeys(names):
            # A subclass that does not store an argument adds it to the config.
            if name not in config and hasattr(self, name):
                config[name] = serialization.serialize_keras_object(getattr(self, name))
        return config

    def __repr__(self) -> str:
        return config_repr(self, always=("learning_rate",), never=("name",))

    def _rate_config(self) -> float | dict[str, Any]:
        if isinstance(self._learning_rate, Variable):
            return float(self._learning_rate.numpy())
        return serialization.serialize_keras_object(self._learning_rate)

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        """Build an optimizer from the result of `get_config`.

        Args:
            config: the result of `get_config`.
            custom_objects: a dict from names to classes that the config contains.

        Returns:
            The optimizer.
        """
        config = dict(config)
        rate = config.get("learning_rate")
        if isinstance(rate, dict):
            config["learning_rate"] = serialization.deserialize_keras_object(
                rate, custom_objects
            )
        return cls(**config)

    def save_own_variables(self, store: Any) -> None:
        """Save the value of every variable in a dict-like store, under its index.

        Args:
            store: a mapping of arrays: "0", "1", ... in order.
        """
        for i, variable in enumerate(self.variables):
            store[str(i)] = saved_value(variable)

    def load_own_variables(self, store: Any) -> None:
        """Load the value of every variable from a store.

        Args:
            store: a mapping of arrays: "0", "1", ... in order.
        """
        if len(store) != len(self.variables):
            raise ModelFileError(
                f"{self.name}: expected {len(self.variables)} values; the file "
                f"contains {len(store)}"
            )
        self.set_weights([store[str(i)] for i in range(len(self.variables))])


def build_optimizer(model: Any) -> None:
    """Create the optimizer state of a model, if it has an optimizer."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and not optimizer.built:
        optimizer.build(model.trainable_variables)
