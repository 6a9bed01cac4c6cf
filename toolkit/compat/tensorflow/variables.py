"""`tf.Variable`, with TensorFlow's arguments."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from toolkit.compat.tensorflow import indexing, views
from toolkit.compat.tensorflow.arguments import as_array
from toolkit.compat.tensorflow.modes import building_graph, mode
from toolkit.core import variable as core
from toolkit.core.naming import name_scope
from toolkit.core.tensor import Tensor
from toolkit.core.trace import no_trace
from toolkit.errors import ArgumentError, UnsupportedError


class _AnyVariable(type):
    """Variables that layers and optimizers make are `tf.Variable`s too."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """In a graph, Variables are symbols: their values are in sessions."""
        in_graph = cls is Variable and building_graph()
        return type.__call__(mode.variable if in_graph else cls, *args, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        if cls is Variable:
            kinds = (core.Variable, mode.variable or core.Variable)
            return isinstance(instance, kinds)
        return type.__instancecheck__(cls, instance)


class Variable(views.Variable, metaclass=_AnyVariable):
    """A mutable cell that holds one tensor.

    Args:
        initial_value: the first value, or a function without arguments that returns
            it.
        trainable: whether tapes watch it; True if None.
        validate_shape: only True: the shape is fixed.
        caching_device: only None.
        name: part of its path; "Variable" if None.
        variable_def: only None.
        dtype: by default that of the value.
        import_scope: only None.
        constraint: what optimizers apply to its value after each update.
        synchronization, aggregation: as the core's; kept, for one device needs none.
        shape: that of the value.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> v = tf.Variable([1.0, 2.0], name="v")
        >>> v.name, v.assign_add([1.0, 1.0]).numpy().tolist()
        ('v:0', [2.0, 3.0])
    """

    def __init__(
        self,
        initial_value: Any = None,
        trainable: bool | None = None,
        validate_shape: bool = True,
        caching_device: Any = None,
        name: str | None = None,
        variable_def: Any = None,
        dtype: Any = None,
        import_scope: Any = None,
        constraint: Any = None,
        synchronization: Any = None,
        aggregation: Any = None,
        shape: Any = None,
    ) -> None:
        if initial_value is None:
            raise ArgumentError("Variable: expected an initial_value; received None")
        given = (caching_device, variable_def, import_scope)
        if not validate_shape or any(value is not None for value in given):
            raise UnsupportedError(
                "Variable: validate_shape=False, caching_device, variable_def and "
                "import_scope are not supported: a Variable has one shape and device"
            )
        *scopes, own = (name or "Variable").split("/")
        with ExitStack() as opened:
            for scope in scopes:
                opened.enter_context(name_scope(scope))
            if callable(initial_value):
                with no_trace():
                    initial_value = initial_value()
            views.Variable.__init__(
                self,
                as_array(initial_value),
                shape,
                dtype,
                trainable is not False,
                autocast=False,
                aggregation=_lower(aggregation),
                synchronization=_lower(synchronization),
                name=own,
            )
        self.constraint = constraint

    def assign(
        self,
        value: Any,
        use_locking: bool = False,
        name: Any = None,
        read_value: Any = True,
    ) -> Any:
        """Replace the value.

        Args:
            value: a tensor of its shape.
            use_locking: has no effect: updates are locked in any case.
            name: as everywhere here, has no effect.
            read_value: whether to return the new value; None otherwise.
        """
        value = views.Variable.assign(self, value)
        return value if read_value else None

    def assign_add(
        self,
        delta: Any,
        use_locking: bool = False,
        name: Any = None,
        read_value: Any = True,
    ) -> Any:
        """Add to the value.

        Args:
            delta: a tensor of its shape.
            use_locking: has no effect: updates are locked in any case.
            name: as everywhere here, has no effect.
            read_value: whether to return the new value; None otherwise.
        """
        value = views.Variable.assign_add(self, delta)
        return value if read_value else None

    def assign_sub(
        self,
        delta: Any,
        use_locking: bool = False,
        name: Any = None,
        read_value: Any = True,
    ) -> Any:
        """Subtract from the value.

        Args:
            delta: a tensor of its shape.
            use_locking: has no effect: updates are locked in any case.
            name: as everywhere here, has no effect.
            read_value: whether to return the new value; None otherwise.
        """
        value = views.Variable.assign_sub(self, delta)
        return value if read_value else None


def _scattering(how: str) -> Any:
    def scatter(self: Variable, indices: Any, updates: Any, name: Any = None) -> Tensor:
        change = getattr(indexing, f"tensor_scatter_nd_{how}")
        return self.assign(change(self.read(), indices, updates))

    scatter.__name__ = scatter.__qualname__ = f"scatter_nd_{how}"
    scatter.__doc__ = f"Assign what `tf.tensor_scatter_nd_{how}` makes of the value."
    return scatter


for _how in ("add", "max", "min", "sub", "update"):
    setattr(Variable, f"scatter_nd_{_how}", _scattering(_how))


def _lower(choice: Any) -> Any:
    """TensorFlow spells these as members of an enumeration: VariableAggregation.SUM."""
    return choice if choice is None else str(getattr(choice, "name", choice)).lower()
