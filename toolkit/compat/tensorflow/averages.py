"""`tf.train.ExponentialMovingAverage`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from toolkit import dtypes, ops
from toolkit.compat.tensorflow.variables import Variable
from toolkit.core.trace import no_trace
from toolkit.core.variable import Variable as CoreVariable
from toolkit.errors import ArgumentTypeError


class ExponentialMovingAverage:
    """Exponential moving averages of Variables.

    Each `apply` assigns decay * average + (1 - decay) * value. The first average is the
    value.

    Args:
        decay: in [0, 1], for example 0.999.
        num_updates: a number of steps, or a Variable of it, that limits the decay to
            (1 + num_updates) / (10 + num_updates) at the start; None for no limit.
        zero_debias: has no effect: averages of Variables do not start at 0.
        name: part of the names of the averages.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> weight = tf.Variable(0.0)
        >>> averages = tf.train.ExponentialMovingAverage(0.5)
        >>> averages.apply([weight])
        >>> _ = weight.assign(1.0)
        >>> averages.apply([weight])
        >>> float(averages.average(weight))
        0.5
    """

    def __init__(
        self,
        decay: Any,
        num_updates: Any = None,
        zero_debias: bool = False,
        name: str = "ExponentialMovingAverage",
    ) -> None:
        self._decay, self._num_updates = decay, num_updates
        self._name = name
        self._averages: dict[int, tuple[CoreVariable, Variable]] = {}

    @property
    def name(self) -> str:
        """Return the name of the averages."""
        return self._name

    def apply(self, var_list: Iterable[Any]) -> None:
        """Update the averages of Variables.

        Args:
            var_list: Variables of floating dtypes.

        Raises:
            ArgumentTypeError: a value is not a Variable, or not of a floating dtype.
        """
        variables = list(var_list)
        for variable in variables:
            self._add(variable)
        decay = self._decay
        if self._num_updates is not None:
            steps = ops.cast(self._num_updates, "float32")
            decay = ops.minimum(decay, (1 + steps) / (10 + steps))
        for variable in variables:
            average = self._averages[id(variable)][1]
            value = ops.convert_to_tensor(variable)
            rate = ops.cast(1 - decay, value.dtype)
            average.assign_sub((average.read() - value) * rate)

    def _add(self, variable: Variable) -> None:
        """Create the average of a Variable, if it does not exist."""
        if not isinstance(variable, CoreVariable):
            raise ArgumentTypeError(
                "ExponentialMovingAverage: expected Variables; received "
                f"{variable!r:.60}"
            )
        if not dtypes.is_float(variable.dtype):
            raise ArgumentTypeError(
                "ExponentialMovingAverage: expected Variables of floating dtypes; "
                f"received {variable.name} of {variable.dtype}"
            )
        if id(variable) in self._averages:
            return
        with no_trace():  # the average outlives the function that creates it
            value = np.asarray(variable.numpy())
            average = Variable(value, trainable=False, name=self._name_of(variable))
        self._averages[id(variable)] = variable, average

    def _name_of(self, variable: Variable) -> str:
        return f"{str(variable.name).partition(':')[0]}/{self._name}"

    def average(self, var: Any) -> Variable | None:
        """Return the Variable that holds an average; None if there is none."""
        average = self._averages.get(id(var))
        return None if average is None else average[1]

    def average_name(self, var: Any) -> str:
        """Return the name of the average of a Variable."""
        average = self.average(var)
        name = self._name_of(var) if average is None else str(average.name)
        return name.partition(":")[0]

    def variables_to_restore(self, moving_avg_variables: Any = None) -> dict[str, Any]:
        """Return names and Variables; a Variable with an average has the name of the
        average.

        Args:
            moving_avg_variables: the Variables to restore from their averages; the
                default
                is all Variables with an average.
        """
        variables = moving_avg_variables
        if variables is None:
            variables = [variable for variable, _ in self._averages.values()]
        return {self.average_name(variable): variable for variable in variables}
