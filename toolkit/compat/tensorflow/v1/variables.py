"""Variables of graphs: their values are in Sessions, and start with an initializer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from toolkit import dtypes, tree
from toolkit.compat.tensorflow.modes import local
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.compat.tensorflow.v1.graph import get_default_graph
from toolkit.compat.tensorflow.v1.tensors import (
    GraphOperation,
    GraphStep,
    GraphTensor,
    session_of,
)
from toolkit.core.keras_tensor import KerasTensor
from toolkit.core.tensor import Tensor
from toolkit.errors import ShapeError, UnsupportedError
from toolkit.type_aliases import TensorLike

if TYPE_CHECKING:
    from toolkit.core.variable import Variable


class GraphKeys:
    """The names of the standard collections."""

    GLOBAL_VARIABLES = VARIABLES = "variables"
    TRAINABLE_VARIABLES = "trainable_variables"
    LOCAL_VARIABLES = "local_variables"
    MODEL_VARIABLES = "model_variables"
    MOVING_AVERAGE_VARIABLES = "moving_average_variables"
    METRIC_VARIABLES = "metric_variables"
    REGULARIZATION_LOSSES = "regularization_losses"
    LOSSES = "losses"
    ACTIVATIONS = "activations"
    SUMMARIES = "summaries"
    UPDATE_OPS = "update_ops"
    TRAIN_OP = "train_op"
    GLOBAL_STEP = "global_step"
    WEIGHTS, BIASES = "weights", "biases"


class GraphVariable(GraphTensor):
    """A Variable of a graph; each Session has a separate value for it.

    In sessions on a cluster, a task stores the value, by name, for all of them.

    Args:
        initial_value: an array, a tensor of the graph, or a function without arguments
            that returns one.
        trainable: whether optimizers update it.
        collections: names of its collections; by default the global variables.
        name: made unique; "Variable" if None.
        dtype: by default the dtype of the value.
        constraint: a function that optimizers apply to its value after each update.
        shape: of the value.
        use_resource, synchronization, aggregation: have no effect: there are no copies
            of Variables.
        validate_shape, caching_device, variable_def, import_scope: only their
            defaults.

    Example:
        >>> import toolkit.compat.tensorflow.v1 as tf
        >>> with tf.Graph().as_default(), tf.Session() as session:
        ...     v = tf.Variable([1.0, 2.0], name="v")
        ...     session.run(v.initializer)
        ...     v.name, session.run(v.assign_add([1.0, 1.0])).tolist()
        ('v:0', [2.0, 3.0])
    """

    initial_value: Any
    constraint: Callable[..., Any] | None

    def __init__(
        self,
        initial_value: Any,
        trainable: bool | None = None,
        *,
        collections: Any = None,
        name: str | None = None,
        dtype: Any = None,
        constraint: Callable[..., Any] | None = None,
        shape: Any = None,
        use_resource: Any = None,
        synchronization: Any = None,
        aggregation: Any = None,
        validate_shape: bool = True,
        caching_device: Any = None,
        variable_def: Any = None,
        import_scope: Any = None,
    ) -> None:
        if not validate_shape or any((caching_device, variable_def, import_scope)):
            raise UnsupportedError(
                "Variable: validate_shape=False, caching_device, variable_def and "
                "import_scope are not supported: a Variable has one shape and one "
                "device"
            )
        graph = get_default_graph()
        path = graph.unique_name(name or "Variable")
        with graph.control_dependencies(None), graph.name_scope(f"{path}/"):
            first = len(graph.operations)
            with graph.name_scope(f"{path}/Initializer/"):
                value = initial_value() if callable(initial_value) else initial_value
                if not isinstance(value, KerasTensor):
                    value = convert(value, dtype and dtypes.standardize(dtype))
            if shape is not None and tuple(value.shape) != tuple(shape):
                raise ShapeError(
                    f"variable {path}: expected an initial value of shape "
                    f"{tuple(shape)}; received shape {tuple(value.shape)}"
                )
            if None in value.shape:
                raise ShapeError(
                    f"variable {path}: expected an initial value of known shape; "
                    f"received {value!r}"
                )
            super().__init__(value.shape, dtype or value.dtype)
            graph.append(GraphStep(_no_value, "VariableV2"), (), self, name=f"{path}/")
            # the operations of its initial value
            for operation in graph.operations[first:]:
                operation.device = self.op.device
            self.initial_value, self.constraint = value, constraint
            self.trainable: bool = trainable is not False
            self.initializer: GraphOperation = _assign(self, value, "Assign", None).op
        if collections is None:
            collections = [GraphKeys.GLOBAL_VARIABLES]
        if self.trainable and GraphKeys.TRAINABLE_VARIABLES not in collections:
            collections = [*collections, GraphKeys.TRAINABLE_VARIABLES]
        graph.add_to_collections(collections, self)

    @property
    def path(self) -> str:
        """Return its name without ":0"."""
        return self.op.name

    def read_value(self) -> Any:
        """Return its value at this point in the order of operations."""
        if local.run is not None:
            return local.run.value(self)
        return self.graph.append(
            GraphStep(lambda run, v: run.value(v), "ReadVariableOp"),
            (self,),
            KerasTensor(self.shape, self.dtype),
            name=f"{self.path}/Read/ReadVariableOp",
        )

    @property
    def value(self) -> Any:
        """Return the callable `read_value`; while a session runs, the value."""
        return self.read_value if local.run is None else self.read_value()

    def initialized_value(self) -> GraphTensor:
        """Return its value, or the initial value if the session has none."""
        return self.graph.append(
            GraphStep(_known_or_initial, "cond", asks=(self,), compiles=False),
            (self, self.initial_value),
            KerasTensor(self.shape, self.dtype),
        )

    def assign(
        self,
        value: Any,
        use_locking: object = None,
        name: str | None = None,
        read_value: Any = True,
    ) -> Any:
        """Replace the value; the result is an operation, or the new value.

        `use_locking` has no effect: a run changes the Variables of a task together.
        """
        return _assign(self, value, "AssignVariableOp", name, read_value)

    def assign_add(
        self,
        delta: Any,
        use_locking: object = None,
        name: Any = None,
        read_value: Any = True,
    ) -> Any:
        """Add to the value; the result is an operation, or the new value.

        `use_locking` has no effect: a run changes the Variables of a task together.
        """
        return _change(self, "assign_add", delta, name, read_value)

    def assign_sub(
        self,
        delta: Any,
        use_locking: object = None,
        name: Any = None,
        read_value: Any = True,
    ) -> GraphTensor:
        """Subtract from the value; the result is an operation, or the new value.

        `use_locking` has no effect: a run changes the Variables of a task together.
        """
        return _change(self, "assign_sub", delta, name, read_value)

    def load(self, value: TensorLike, session: Any = None) -> None:
        """Set the value in a session, by default the session of the current `with`
        block."""
        session_of(session, f"variable {self.path}").set_value(self, value)

    def __repr__(self) -> str:
        return f"<tf.Variable {self.name!r} shape={self.shape} dtype={self.dtype}>"

    __str__ = __repr__


def colocate(v: Any) -> AbstractContextManager[None]:
    """Return a device context for operations that belong to a Variable."""
    return v.graph.colocate_with(v.op) if hasattr(v, "op") else nullcontext()


def _no_value(run: Any) -> NoReturn:
    raise AssertionError("to get the value of a Variable, use the session")


def _known_or_initial(run: Any, variable: Variable, value: TensorLike) -> Any:
    return run.value(variable if run.is_initialized(variable) else value)


def _assign(
    v: GraphVariable, value: TensorLike, kind: str, name: Any, read_value: bool = True
) -> GraphTensor:
    _check_shape(v, value)

    def assign(run: Any, variable: Any, value: Any) -> Tensor:
        return run.cell(variable).assign(run.values(value))

    # Initialization runs once, so that compilation is not worthwhile.
    step = GraphStep(assign, kind, sets=(v,), compiles=kind != "Assign")
    return _record_update(v, step, value, name, read_value)


def _change(
    v: GraphVariable, method: str, delta: Any, name: str, read_value: bool
) -> Any:
    _check_shape(v, delta)

    def change(run: Any, variable: GraphVariable, delta: TensorLike) -> Tensor:
        return getattr(run.cell(variable), method)(run.values(delta))

    kind = "AssignAddVariableOp" if method == "assign_add" else "AssignSubVariableOp"
    return _record_update(v, GraphStep(change, kind), delta, name, read_value)


def _record_update(
    v: GraphVariable, step: GraphStep, value: Any, name: str, read_value: bool
) -> GraphTensor:
    if local.run is not None:  # called by a running function
        return step.function(local.run, v, value)
    symbol = KerasTensor(v.shape, v.dtype)
    with v.graph.colocate_with(v.op):
        result = v.graph.append(step, (v, value), symbol, name=name)
    return result if read_value else result.op


def _check_shape(v: GraphVariable, value: Any) -> None:
    is_tensor = isinstance(value, KerasTensor) or hasattr(value, "shape")
    leaves = [] if is_tensor else tree.flatten(value)
    if any(isinstance(x, KerasTensor) for x in leaves):
        return  # a list that becomes a stacked tensor
    shape = tuple(value.shape) if is_tensor else np.shape(value)
    fits = not shape or (
        len(shape) == v.ndim
        and all(m is None or m == n for m, n in zip(shape, v.shape, strict=True))
    )
    if not fits:
        raise ShapeError(
            f"variable {v.path}: expected a value of shape {tuple(v.shape)}; "
            f"received shape {shape}"
        )
