"""What an optimizer remembers: its variables, and its learning rate."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from toolkit import initializers, ops, serialization
from toolkit.errors import ArgumentError, ModelFileError
from toolkit.naming import name_scope
from toolkit.optimizers.schedules import LearningRateSchedule
from toolkit.tensor import Tensor
from toolkit.trace import no_trace
from toolkit.variable import Variable


class OptimizerState:
    """The part of an optimizer that holds variables; see `Optimizer`."""

    # What is remembered of each variable: tensors of its shape, zeros at first.
    slots: tuple[str, ...] = ()

    name: str
    use_ema: bool
    gradient_accumulation_steps: int | None
    built: bool
    _variables: list[Variable]
    _trainable_variables: list[Variable]
    _indices: dict[int, int]
    _iterations: Variable
    _learning_rate: Any

    # --- variables --------------------------------------------------------------------

    @property
    def variables(self) -> list[Variable]:
        """The iteration, the rate, then what is remembered of each variable."""
        return list(self._variables)

    @property
    def iterations(self) -> Any:
        """How many updates have been made."""
        if self.gradient_accumulation_steps:
            return ops.floor_divide(self._iterations, self.gradient_accumulation_steps)
        return self._iterations

    def build(self, variables: Iterable[Variable]) -> None:
        """Create what is remembered of each variable."""
        if self.built:
            return
        self._trainable_variables = list(variables)
        self._indices = {id(v): i for i, v in enumerate(self._trainable_variables)}
        if self.use_ema:
            self._averages = [
                self.add_variable_from_reference(v, "average", initializer=v)
                for v in self._trainable_variables
            ]
        if self.gradient_accumulation_steps:
            self._accumulators = [
                self.add_variable_from_reference(v, "gradient_accumulator")
                for v in self._trainable_variables
            ]
        self._slots = [self._make_slots(v) for v in self._trainable_variables]
        self.built = True

    def _make_slots(self, variable: Variable) -> dict[str, Variable]:
        if variable.overwrite_with_gradient:
            return {}
        with no_trace():  # the first step may be a traced one
            initial = self.init_slots(variable)
        return {
            name: self.add_variable_from_reference(variable, name, value)
            for name, value in initial.items()
        }

    def init_slots(self, p: Any) -> dict[str, Any]:
        """What to remember of a variable at first, by name."""
        return {name: ops.zeros(p.shape, p.dtype) for name in self.slots}

    def add_variable(
        self,
        shape: Any,
        initializer: Any = "zeros",
        dtype: Any = None,
        name: str | None = None,
    ) -> Variable:
        """A variable of the optimizer itself, saved with it."""
        with name_scope(self.name):
            variable = Variable(
                _initial(initializer),
                shape=tuple(shape),
                dtype=dtype,
                trainable=False,
                name=name,
            )
        self._variables.append(variable)
        return variable

    def add_variable_from_reference(
        self,
        reference_variable: Any,
        name: str | None = None,
        initializer: Any = "zeros",
    ) -> Variable:
        """A variable like another one: of its shape and dtype unless given a value."""
        path = reference_variable.path.replace("/", "_")
        name = f"{path}_{name or 'slot'}"
        dtype = reference_variable.dtype
        if isinstance(initializer, str) or callable(initializer):
            return self.add_variable(reference_variable.shape, initializer, dtype, name)
        with no_trace():
            value = initializer.numpy().copy()
        return self.add_variable(value.shape, value, None, name)

    def add_optimizer_variables(
        self, trainable_variables: Any, name: Any, initializer: Any = "zeros"
    ) -> Any:
        """One variable like each of those given; a tuple of lists for several names."""
        names = [name] if isinstance(name, str) else list(name)
        made = [
            [self.add_variable_from_reference(v, n, initializer) for n in names]
            for v in trainable_variables
        ]
        columns = tuple([list(column) for column in zip(*made, strict=True)])
        return columns[0] if isinstance(name, str) else columns

    def _get_variable_index(self, variable: Variable) -> int:
        return self._indices[id(variable)]

    # --- the learning rate ------------------------------------------------------------

    def _rate_from(self, value: Any) -> Any:
        if isinstance(value, dict):
            value = serialization.deserialize_keras_object(value)
        if callable(value) and not isinstance(value, Variable):
            return value
        if not isinstance(value, (int, float, Variable, Tensor)) and not hasattr(
            value, "dtype"
        ):
            raise ArgumentError(
                f"{self.name}: expected learning_rate to be a number, a schedule or a "
                f"function; received {value!r}"
            )
        with name_scope(self.name):
            return Variable(
                float(value), dtype="float32", trainable=False, name="learning_rate"
            )

    @property
    def learning_rate(self) -> Any:
        """The rate of the coming step; set it to a number or a schedule."""
        if isinstance(self._learning_rate, LearningRateSchedule):
            return self._learning_rate(self._iterations)
        if isinstance(self._learning_rate, Variable):
            return self._learning_rate
        return self._learning_rate()

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        if isinstance(self._learning_rate, Variable) and not callable(value):
            self._learning_rate.assign(value)
            return
        if isinstance(self._learning_rate, LearningRateSchedule) and not isinstance(
            value, LearningRateSchedule
        ):
            raise ArgumentError(
                f"{self.name}: the learning rate follows a schedule and cannot be set "
                "to a number; create the optimizer with a number to set it later"
            )
        if isinstance(self._learning_rate, Variable):
            self._variables = [
                v for v in self._variables if v is not self._learning_rate
            ]
        self._learning_rate = self._rate_from(value)

    # --- saving -----------------------------------------------------------------------

    def save_own_variables(self, store: Any) -> None:
        """Put every variable's value into a dict-like store, under its index."""
        for i, variable in enumerate(self.variables):
            store[str(i)] = variable.numpy()

    def load_own_variables(self, store: Any) -> None:
        """Take every variable's value from a store."""
        if len(store) != len(self.variables):
            raise ModelFileError(
                f"{self.name}: expected {len(self.variables)} values; "
                f"the file holds {len(store)}"
            )
        values = [v.convert(store[str(i)]) for i, v in enumerate(self.variables)]
        for variable, value in zip(self.variables, values, strict=True):
            variable.assign(value)


def _initial(initializer: Any) -> Callable[..., Any] | Any:
    return (
        initializers.get(initializer) if isinstance(initializer, str) else initializer
    )
