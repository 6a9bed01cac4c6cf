"""Metric: a state that accumulates over batches, and a result."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

from toolkit import dtype_policies, initializers, ops, settings
from toolkit.core.naming import auto_name, name_scope
from toolkit.core.tensor import Tensor
from toolkit.core.trace import StatelessScope
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError
from toolkit.serialization.recording import Recorded


class Metric(Recorded):
    """Base class of metrics: `update_state` accumulates a batch, `result` reduces.

    Subclasses create variables with `add_variable` in `__init__`, change them in
    `update_state` and compute the result in `result`.

    Args:
        dtype: the dtype of the computation, a name or a policy; None is floatx.
        name: the name; None derives it from the class name.

    Example:
        >>> from toolkit import metrics, ops
        >>> class Largest(metrics.Metric):
        ...     def __init__(self, **kwargs):
        ...         super().__init__(**kwargs)
        ...         self.value = self.add_variable((), "zeros", name="value")
        ...     def update_state(self, values):
        ...         self.value.assign(ops.maximum(self.value, ops.max(values)))
        ...     def result(self):
        ...         return self.value.read()
        >>> metric = Largest()
        >>> metric.update_state([1.0, 5.0])
        >>> float(metric([2.0, 3.0]))
        5.0
    """

    # "up" if a higher value is better, "down" if a lower value is better; callbacks
    # with mode "auto" use it.
    _direction: str | None = None
    name: str
    _variables: list[Variable]
    _metrics: list[Metric]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        instance = super().__new__(cls, *args, **kwargs)
        instance.__dict__.update(_variables=[], _metrics=[])
        return instance

    def __init__(self, dtype: Any = None, name: str | None = None) -> None:
        self.name = name or auto_name(type(self).__name__)
        self._dtype = dtype_policies.get(dtype or settings.floatx()).compute_dtype

    def __setattr__(self, name: str, value: Any) -> None:
        self._track(value)
        super().__setattr__(name, value)

    def _track(self, value: Any) -> None:
        """Register the variables and metrics in an attribute's value."""
        if isinstance(value, Variable):
            _append_once(self._variables, value)
        elif isinstance(value, (list, tuple, dict)):
            for item in value.values() if isinstance(value, dict) else value:
                self._track(item)
        elif isinstance(value, Metric):
            _append_once(self._metrics, value)

    @property
    def dtype(self) -> str:
        """Return the dtype of the computation."""
        return self._dtype

    @property
    def variables(self) -> list[Variable]:
        """Return the variables of the state, including nested metrics."""
        variables = list(self._variables)
        return variables + [v for metric in self._metrics for v in metric.variables]

    def add_variable(
        self,
        shape: Any,
        initializer: Any,
        dtype: Any = None,
        aggregation: str | None = "sum",
        name: str | None = None,
    ) -> Variable:
        """Create a variable of the state.

        Args:
            shape: its shape.
            initializer: its first value, any argument of `initializers.get`.
            dtype: floatx if None.
            aggregation: the aggregation over replicas.
            name: the last component of its path.

        Returns:
            The variable.
        """
        if not hasattr(self, "name"):
            raise ArgumentError(
                f"{type(self).__name__}: call `super().__init__()` before adding "
                "variables"
            )
        with name_scope(self.name.replace("/", ">")):
            variable = Variable(
                initializers.get("zeros" if initializer is None else initializer),
                shape=tuple(shape),
                dtype=dtype or settings.floatx(),
                trainable=False,
                aggregation=aggregation,
                synchronization="on_read",
                name=name,
            )
        _append_once(self._variables, variable)
        return variable

    def add_weight(
        self,
        shape: Any = (),
        initializer: Any = None,
        dtype: Any = None,
        name: str | None = None,
    ) -> Variable:
        """Create a variable of the state, zeros without an initializer.

        Args:
            shape: its shape.
            initializer: its first value; zeros if None.
            dtype: floatx if None.
            name: the last component of its path.

        Returns:
            The variable.
        """
        return self.add_variable(shape, initializer, dtype=dtype, name=name)

    def update_state(self, *args: Any, **kwargs: Any) -> Any:
        """Accumulate a batch.

        Returns:
            None, or a value that the caller ignores.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not define `update_state`"
        )

    def result(self) -> Any:
        """Return the metric over all batches since the last reset."""
        raise NotImplementedError(f"{type(self).__name__} does not define `result`")

    def reset_state(self) -> None:
        """Reset the state: set every variable to 0."""
        for variable in self.variables:
            variable.assign(ops.zeros(variable.shape, variable.dtype))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Accumulate a batch and return the result.

        Returns:
            The result.
        """
        self.update_state(*args, **kwargs)
        return self.result()

    def stateless_update_state(
        self, metric_variables: Iterable[Any], *args: Any, **kwargs: Any
    ) -> list[Tensor]:
        """Return the state after a batch, from a given state; no variable changes.

        Args:
            metric_variables: one value for each of `variables`.
            *args, **kwargs: as for `update_state`.
        """
        with StatelessScope(self._pairs(metric_variables)) as scope:
            self.update_state(*args, **kwargs)
        return self._values(scope)

    def stateless_result(self, metric_variables: Iterable[Any]) -> Any:
        """Return the result for a given state: one value for each of `variables`.

        Args:
            metric_variables: one value for each of `variables`.
        """
        with StatelessScope(self._pairs(metric_variables)):
            return self.result()

    def stateless_reset_state(self) -> list[Tensor]:
        """Return the state after a reset; no variable changes."""
        with StatelessScope() as scope:
            self.reset_state()
        return self._values(scope)

    def _pairs(self, values: Iterable[Any]) -> list[tuple[Variable, Any]]:
        values = list(values)
        if len(values) != len(self.variables):
            raise ArgumentError(
                f"metric {self.name!r}: expected {len(self.variables)} values, one for "
                f"each of its variables; received {len(values)}"
            )
        return list(zip(self.variables, values, strict=True))

    def _values(self, scope: StatelessScope) -> list[Tensor]:
        values = [(v, scope.get_current_value(v)) for v in self.variables]
        return [v.read() if value is None else value for v, value in values]

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments as plain values."""
        base = {"name": self.name, "dtype": self.dtype}
        if type(self).get_config is Metric.get_config:
            config = self._recorded_config(strict=True)
            return {name: base.get(name, value) for name, value in config.items()}
        return {**base, **self._recorded_config(strict=False)}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} name={self.name}>"


def _append_once(items: list[Any], item: Any) -> None:
    """Append an item unless the list contains it."""
    if not any(member is item for member in items):
        items.append(item)
