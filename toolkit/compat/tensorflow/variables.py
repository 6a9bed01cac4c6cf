"""`tf.Variable`, with TensorFlow's arguments."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np

from toolkit import ops
from toolkit.autodiff.tape import alias
from toolkit.compat.tensorflow import indexing, tensor_classes
from toolkit.compat.tensorflow.arguments import as_array, fitting
from toolkit.compat.tensorflow.modes import building_graph, mode
from toolkit.compat.tensorflow.types import TensorShape
from toolkit.core import variable as core
from toolkit.core.dialects import change_class
from toolkit.core.naming import name_scope
from toolkit.core.tensor import Tensor
from toolkit.core.trace import no_trace
from toolkit.errors import ArgumentError, ArgumentTypeError, UnsupportedError
from toolkit.type_aliases import TensorLike


class _AnyVariable(type):
    """Metaclass: the Variables of layers and optimizers are `tf.Variable`s, too."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Create a symbolic Variable in a graph, whose value is in sessions."""
        in_graph = cls is Variable and building_graph()
        return type.__call__(mode.variable if in_graph else cls, *args, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        if cls is Variable:
            kinds = (core.Variable, mode.variable or core.Variable)
            return isinstance(instance, kinds)
        return type.__instancecheck__(cls, instance)


class Variable(tensor_classes.Variable, metaclass=_AnyVariable):
    """A mutable cell that holds one tensor.

    Args:
        initial_value: the first value, or a function without arguments that returns
            it.
        trainable: whether tapes watch it; True if None.
        validate_shape: only True: the shape is fixed.
        caching_device: only None.
        name: part of its path; "Variable" if None.
        variable_def: only None.
        dtype: by default the dtype of the value.
        import_scope: only None.
        constraint: a function that optimizers apply to its value after each update.
        synchronization, aggregation: stored, without effect on one device.
        shape: of the value; no extent can be None.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> v = tf.Variable([1.0, 2.0], name="v")
        >>> v.name, v.assign_add([1.0, 1.0])[1].assign(5.0).numpy().tolist()
        ('v:0', [2.0, 5.0])
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
        unsupported = (caching_device, variable_def, import_scope)
        if not validate_shape or any(value is not None for value in unsupported):
            raise UnsupportedError(
                "Variable: validate_shape=False, caching_device, variable_def and "
                "import_scope are not supported: a Variable has one shape and device"
            )
        if shape is not None and None in (shape := tuple(TensorShape(shape))):
            raise UnsupportedError(
                f"Variable: expected a shape without None; received {shape}: a "
                "Variable keeps the shape of its initial value"
            )
        *scopes, own_name = (name or "Variable").split("/")
        with ExitStack() as opened:
            for scope in scopes:
                opened.enter_context(name_scope(scope))
            if callable(initial_value) and not isinstance(initial_value, Tensor):
                with no_trace():
                    initial_value = initial_value()
            if dtype is None and isinstance(initial_value, (list, tuple, complex)):
                dtype = "complex128" if np.iscomplexobj(initial_value) else None
            tensor_classes.Variable.__init__(
                self,
                as_array(fitting(initial_value, dtype, "Variable")),
                shape,
                dtype,
                trainable is not False,
                autocast=False,
                aggregation=_to_lower_name(aggregation),
                synchronization=_to_lower_name(synchronization),
                name=own_name,
            )
        self.constraint = constraint

    def assign(
        self,
        value: Any,
        use_locking: bool = False,
        name: str | None = None,
        read_value: Any = True,
    ) -> Any:
        """Replace the value; return the Variable.

        Args:
            value: a tensor of its shape.
            use_locking: has no effect: concurrent updates need a lock in user code.
            name: has no effect.
            read_value: whether to return the Variable; None otherwise.
        """
        tensor_classes.Variable.assign(
            self, fitting(value, self.dtype, "Variable.assign")
        )
        return self if read_value else None

    def assign_add(
        self,
        delta: Any,
        use_locking: bool = False,
        name: str | None = None,
        read_value: Any = True,
    ) -> Any:
        """Add to the value; return the Variable.

        Args:
            delta: a tensor of its shape.
            use_locking: has no effect: concurrent updates need a lock in user code.
            name: has no effect.
            read_value: whether to return the Variable; None otherwise.
        """
        return self.assign(self.read() + self._delta(delta), read_value=read_value)

    def assign_sub(
        self,
        delta: Any,
        use_locking: bool = False,
        name: str | None = None,
        read_value: Any = True,
    ) -> Any:
        """Subtract from the value; return the Variable.

        Args:
            delta: a tensor of its shape.
            use_locking: has no effect: concurrent updates need a lock in user code.
            name: has no effect.
            read_value: whether to return the Variable; None otherwise.
        """
        return self.assign(self.read() - self._delta(delta), read_value=read_value)

    def _delta(self, delta: TensorLike) -> Tensor:
        """Convert a change to a tensor of the Variable's shape and dtype."""
        return self.convert(fitting(delta, self.dtype, "Variable.assign"))

    def __getitem__(self, key: Any) -> Any:
        """Return the values at some indices; `assign` on the result updates the
        Variable."""
        value = self.value
        with tensor_classes.DIALECT.activate():
            part_value: Any = value[key]
            part_value = alias(part_value) if part_value is value else part_value
        part_value.dialect_data = self, key
        return change_class(part_value, tensor_classes.Part)

    def sparse_read(self, indices: TensorLike, name: str | None = None) -> Tensor:
        """Gather rows by their indices: `tf.gather`."""
        return indexing.gather(self.read(), indices)

    def gather_nd(self, indices: TensorLike, name: str | None = None) -> Tensor:
        """Gather slices by index vectors: `tf.gather_nd`."""
        return indexing.gather_nd(self.read(), indices)


def _scattering(how: str) -> Any:
    def scatter(
        self: Variable,
        indices: TensorLike,
        updates: TensorLike,
        name: str | None = None,
    ) -> Any:
        change = getattr(indexing, f"tensor_scatter_nd_{how}")
        return self.assign(change(self.read(), indices, updates))

    scatter.__name__ = scatter.__qualname__ = f"scatter_nd_{how}"
    scatter.__doc__ = (
        f"Assign the result of `tf.tensor_scatter_nd_{how}`, and return the Variable."
    )
    return scatter


def _scattering_rows(how: str) -> Any:
    def scatter(
        self: Variable,
        sparse_delta: Any,
        use_locking: bool = False,
        name: str | None = None,
    ) -> Any:
        if not isinstance(sparse_delta, indexing.IndexedSlices):
            raise ArgumentTypeError(
                f"Variable.scatter_{how}: expected IndexedSlices; received "
                f"{sparse_delta!r}"
            )
        old, indices = self.read(), tensor_classes.convert(sparse_delta.indices)
        values = tensor_classes.convert(sparse_delta.values, old.dtype)
        values = ops.broadcast_to(values, (*indices.shape, *old.shape[1:]))
        change = getattr(indexing, f"tensor_scatter_nd_{how}")
        return self.assign(change(old, ops.expand_dims(indices, -1), values))

    scatter.__name__ = scatter.__qualname__ = f"scatter_{how}"
    scatter.__doc__ = (
        f"Apply `scatter_nd_{how}` to rows of `tf.IndexedSlices`, and return the "
        "Variable.\n\n        `use_locking` has no effect: threads must not\n        "
        "update a Variable at the same time.\n        "
    )
    return scatter


for _how in ("add", "max", "min", "sub", "update"):
    setattr(Variable, f"scatter_nd_{_how}", _scattering(_how))
    setattr(Variable, f"scatter_{_how}", _scattering_rows(_how))


def _to_lower_name(choice: Any) -> Any:
    """TensorFlow uses members of an enumeration: VariableAggregation.SUM."""
    return choice if choice is None else str(getattr(choice, "name", choice)).lower()
