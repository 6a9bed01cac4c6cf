"""Updates of an optimizer outside of traced functions, as one compiled program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_
from typing import TYPE_CHECKING, Any, TypeAlias

from toolkit.core.slices import slices_of
from toolkit.core.tensor import Tensor, state
from toolkit.core.variable import Variable
from toolkit.functions.function import Function
from toolkit.optimizers.schedules import LearningRateSchedule

if TYPE_CHECKING:
    from toolkit.optimizers.optimizer import Optimizer

# Sets of variables with a program, and programs for one set. An optimizer whose
# attributes change more often is not compiled again.
_MAX_SETS, _MAX_COMPILATIONS = 16, 16
_PACKAGE = __name__.partition(".")[0] + "."


# The method of an optimizer that applies gradients to variables.
Apply: TypeAlias = Callable[[Sequence[Any], Sequence[Variable]], None]


class CompiledUpdates:
    """Programs that update the variables of an optimizer.

    The first update of a set of variables compiles the program. All updates then have
    the same rounding, so a loop that is resumed gets the same bits. The program
    contains the values of the optimizer's attributes: a new value needs a new program.
    """

    def __init__(self) -> None:
        self._updates: dict[tuple[int, ...], _Update] = {}

    def __reduce__(self) -> tuple[type[CompiledUpdates], tuple[()]]:
        """Copies start without programs."""
        return CompiledUpdates, ()

    def run(
        self,
        optimizer: Optimizer,
        grads: Sequence[Any],
        variables: Sequence[Variable],
        apply: Apply,
    ) -> bool:
        """Apply gradients by a program, and return whether there is one.

        Args:
            optimizer: the optimizer.
            grads: one for each variable.
            variables: the variables.
            apply: the method of the optimizer to compile.
        """
        if state.trace is not None or state.overlay is not None:
            return False
        key = tuple(map(id, variables))
        update = self._updates.get(key)
        if update is None:
            if len(self._updates) >= _MAX_SETS:
                del self._updates[next(iter(self._updates))]
            update = self._updates[key] = _Update(variables)
        if not update.is_possible or any(map(slices_of, grads)):
            return False
        if any(type(g) is not Tensor for g in grads):
            return False
        return update.run(optimizer, grads, apply)


class _Update:
    """Program for one set of variables."""

    def __init__(self, variables: Sequence[Variable]) -> None:
        self.variables = list(variables)
        self.is_possible = True
        self._num_compilations = 0
        self._attributes: list[object] = []
        self._function: Function | None = None

    def run(
        self,
        optimizer: Optimizer,
        grads: Sequence[object],
        apply: Apply,
    ) -> bool:
        attributes = self._attributes_of(optimizer)
        function = self._function
        if (
            function is not None
            and len(attributes) == len(self._attributes)
            and all(map(is_, attributes, self._attributes))
        ):
            function(*grads)
            return True
        self.is_possible = (
            self._num_compilations < _MAX_COMPILATIONS
            and _has_only_package_code(optimizer, self.variables)
        )
        if not self.is_possible:
            self._function = None
            return False
        self._num_compilations += 1

        def update(*grads: object) -> None:
            apply(grads, self.variables)

        update.__name__ = f"{optimizer.name}.apply"
        self._function = Function(update)
        self._function(*grads)
        self._attributes = self._attributes_of(optimizer)
        return True

    def _attributes_of(self, optimizer: Optimizer) -> list[object]:
        """Return the values in the program, which are compared by identity."""
        values: list[object] = list(vars(optimizer).values())
        schedule = optimizer._learning_rate
        if isinstance(schedule, LearningRateSchedule):
            values += vars(schedule).values()
        values += [v.constraint for v in self.variables]
        values += [v.overwrite_with_gradient for v in self.variables]
        return values


def _has_only_package_code(optimizer: Optimizer, variables: Sequence[Variable]) -> bool:
    """Return whether an update runs no code of the user, with its side effects."""
    objects: list[Any] = [optimizer]
    if not isinstance(optimizer._learning_rate, Variable):
        objects.append(optimizer._learning_rate)
    objects += [v.constraint for v in variables if v.constraint is not None]
    return all(type(item).__module__.startswith(_PACKAGE) for item in objects)
