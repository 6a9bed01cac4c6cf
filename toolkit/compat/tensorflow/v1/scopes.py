"""Variable scopes, and `get_variable`: Variables by name, created or shared."""

from __future__ import annotations

import inspect
from typing import Any

from toolkit import dtypes, initializers
from toolkit.compat.tensorflow.modes import building_graph
from toolkit.compat.tensorflow.type_aliases import ShapeLike
from toolkit.compat.tensorflow.v1.graph import Graph, get_default_graph
from toolkit.compat.tensorflow.v1.graph_initializers import glorot_uniform_initializer
from toolkit.compat.tensorflow.v1.variables import GraphKeys, GraphVariable
from toolkit.compat.tensorflow.variables import Variable
from toolkit.core.keras_tensor import KerasTensor, standardize_shape
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, TraceError, UnsupportedError
from toolkit.type_aliases import DTypeLike, Shape


class _AutoReuse:
    """Value of `reuse` that creates Variables on first use and shares them
    afterwards."""

    def __repr__(self) -> str:
        return "AUTO_REUSE"


AUTO_REUSE = _AutoReuse()


class VariableScope:
    """The settings of the open scopes for `get_variable`.

    Args:
        reuse: True: Variables must exist; None or False: they must not; AUTO_REUSE:
            missing Variables are created.
        name: the path that is the prefix of names.
        initializer, regularizer, constraint, dtype: default arguments.
    """

    name: str
    reuse: Any
    original_name_scope: str
    initializer: Any
    regularizer: Any
    constraint: Any
    dtype: Any

    def __init__(
        self,
        reuse: Any,
        name: str = "",
        initializer: Any = None,
        regularizer: Any = None,
        constraint: Any = None,
        dtype: Any = "float32",
    ) -> None:
        self.reuse, self.name, self.original_name_scope = reuse, name, ""
        self.initializer, self.regularizer = initializer, regularizer
        self.constraint, self.dtype = constraint, dtype

    def reuse_variables(self) -> None:
        """Share Variables from now on."""
        self.reuse = True

    def global_variables(self) -> list[Any]:
        """Return the global variables of this scope."""
        return get_default_graph().get_collection("variables", f"{self.name}/")

    def trainable_variables(self) -> list[Any]:
        """Return the trainable variables of this scope."""
        return get_default_graph().get_collection(
            "trainable_variables", f"{self.name}/"
        )


def get_variable_scope() -> VariableScope:
    """Return the current scope."""
    graph = get_default_graph()
    if graph.variable_scope is None:
        graph.variable_scope = VariableScope(None)
    return graph.variable_scope


class variable_scope:
    """A scope for the names and the reuse of Variables.

    Args:
        name_or_scope: a name, a VariableScope to open again, or None.
        default_name: used if name_or_scope is None; made unique.
        values: has no effect, as in TensorFlow for graphs built in order.
        initializer, regularizer, constraint, dtype: defaults of `get_variable`.
        reuse: True, AUTO_REUSE, or None: as the outer scope.
        auxiliary_name_scope: whether the name also applies to operations.

    Example:
        >>> import toolkit.compat.tensorflow.v1 as tf
        >>> with tf.Graph().as_default():
        ...     with tf.variable_scope("a"):
        ...         v = tf.get_variable("v", (2,))
        ...     with tf.variable_scope("a", reuse=True):
        ...         again = tf.get_variable("v")
        >>> v.name, v is again
        ('a/v:0', True)
    """

    def __init__(
        self,
        name_or_scope: Any,
        default_name: str | None = None,
        values: Any = None,
        initializer: Any = None,
        regularizer: Any = None,
        constraint: Any = None,
        reuse: Any = None,
        dtype: Any = None,
        auxiliary_name_scope: bool = True,
    ) -> None:
        if name_or_scope is None and default_name is None:
            raise ArgumentError(
                "variable_scope: expected name_or_scope or default_name; received None"
            )
        self._scope_or_name, self._default_name = name_or_scope, default_name
        self._options = {
            "initializer": initializer,
            "regularizer": regularizer,
            "constraint": constraint,
            "dtype": dtype,
        }
        self._reuse, self._auxiliary = reuse, auxiliary_name_scope

    def __enter__(self) -> VariableScope:
        graph = get_default_graph()
        outer = get_variable_scope()
        scope_or_name, default = self._scope_or_name, outer
        if isinstance(scope_or_name, VariableScope):
            path, default = scope_or_name.name, scope_or_name
            name = path.rpartition("/")[2]
        else:
            name = (
                scope_or_name
                if scope_or_name is not None
                else _find_unused_name(graph, self._default_name)
            )
            path = f"{outer.name}/{name}" if outer.name and name else outer.name or name
        options = {k: v for k, v in self._options.items() if v is not None}
        inherited = {k: getattr(default, k) for k in self._options if k not in options}
        reuse = outer.reuse or default.reuse if self._reuse is None else self._reuse
        scope = VariableScope(reuse, path, **options, **inherited)
        self._names = graph.name_scope(name) if name and self._auxiliary else None
        if self._names is not None:
            scope.original_name_scope = self._names.__enter__()
        self._outer, graph.variable_scope = (graph, outer), scope
        return scope

    def __exit__(self, *exception: Any) -> None:
        graph, graph.variable_scope = self._outer[0], self._outer[1]
        if self._names is not None:
            self._names.__exit__(*exception)


def _find_unused_name(graph: Graph, name: Any) -> str:
    """Return the name with a number, if a scope of this name has Variables."""
    outer = get_variable_scope().name
    prefix = f"{outer}/" if outer else ""
    count, unique_name = 0, name
    while any(path.startswith(f"{prefix}{unique_name}/") for path in graph.variables):
        count += 1
        unique_name = f"{name}_{count}"
    return unique_name


def get_variable(
    name: str,
    shape: Shape | None = None,
    dtype: DTypeLike | None = None,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool | None = None,
    collections: Any = None,
    caching_device: Any = None,
    partitioner: Any = None,
    validate_shape: bool = True,
    use_resource: bool | None = None,
    custom_getter: Any = None,
    constraint: Any = None,
    synchronization: object = None,
    aggregation: object = None,
) -> Any:
    """Create or share the Variable with this name in the open scope.

    Args:
        name: after the path of the scope.
        shape: required unless the initializer has one.
        dtype: by default the dtype of the scope, float32.
        initializer: an array or tensor, or a function (shape, dtype=...) that returns
            one; if None, the initializer of the scope, or glorot uniform.
        regularizer: a function of the Variable; its result is a regularization loss.
        trainable: whether optimizers update it.
        collections: names of its collections.
        constraint: a function that optimizers apply to its value after each update.
        use_resource: has no effect: all Variables are resource variables.
        synchronization, aggregation: have no effect: there are no copies.
        caching_device, partitioner, validate_shape, custom_getter: only their defaults.

    In eager mode each call creates a new Variable, as in TensorFlow.

    Raises:
        ArgumentError: if it exists and `reuse` is false, or vice versa.
    """
    if not validate_shape or any((caching_device, partitioner, custom_getter)):
        raise UnsupportedError(
            "get_variable: validate_shape=False, caching_device, partitioner and "
            "custom_getter are not supported: a Variable has one shape and one device"
        )
    graph, scope = get_default_graph(), get_variable_scope()
    regularizer = scope.regularizer if regularizer is None else regularizer
    path = f"{scope.name}/{name}" if scope.name else name
    if path in graph.variables and scope.reuse:
        return _shared(graph.variables[path], path, shape, dtype)
    if path in graph.variables:
        raise ArgumentError(
            f"Variable {path} already exists, disallowed. Did you mean to set "
            "reuse=True or reuse=tf.AUTO_REUSE in VarScope?"
        )
    if scope.reuse is True:
        raise ArgumentError(
            f"Variable {path} does not exist, or was not created with "
            "tf.get_variable(). Did you mean to set reuse=tf.AUTO_REUSE in VarScope?"
        )
    initializer = scope.initializer if initializer is None else initializer
    dtype = dtypes.standardize(dtype or getattr(initializer, "dtype", 0) or scope.dtype)
    if not building_graph():
        return _create_eager(path, initializer, shape, dtype, trainable, regularizer)
    with graph.name_scope(None):  # the path of Variables, not of operations
        v = GraphVariable(
            _first_value(path, initializer, shape, dtype),
            trainable,
            collections=collections,
            name=path,
            dtype=dtype,
            constraint=scope.constraint if constraint is None else constraint,
            shape=None if shape is None else _as_shape(shape),
        )
        graph.variables[path] = v
        if regularizer is not None:
            with graph.name_scope(f"{path}/Regularizer/"):
                loss = regularizer(v)
            if loss is not None:
                graph.add_to_collection(GraphKeys.REGULARIZATION_LOSSES, loss)
    return v


def _as_shape(shape: Shape) -> tuple[int | None, ...]:
    return standardize_shape((shape,) if isinstance(shape, int) else shape)


def _create_eager(
    path: str,
    initializer: Any,
    shape: ShapeLike | None,
    dtype: str,
    trainable: bool | None,
    penalty: Any,
) -> Any:
    """Create a Variable with an immediate value."""
    if penalty is not None:
        raise TraceError(
            f"get_variable: the regularizer of {path} needs a graph; with eager "
            "execution, add penalties to the loss"
        )
    value = _first_value(path, initializer, shape, dtype)
    return Variable(value, trainable, name=path, dtype=dtype)


def _shared(
    v: GraphVariable, path: str, shape: Shape | None, dtype: DTypeLike | None
) -> GraphVariable:
    if shape is not None and _as_shape(shape) != tuple(v.shape):
        raise ArgumentError(
            f"Trying to share variable {path}, but specified shape {_as_shape(shape)} "
            f"and found shape {tuple(v.shape)}."
        )
    if dtype is not None and dtypes.standardize(dtype) != v.dtype:
        raise ArgumentError(
            f"Trying to share variable {path}, but specified dtype "
            f"{dtypes.standardize(dtype)} and found dtype {v.dtype}."
        )
    return v


def _first_value(path: str, initializer: Any, shape: Any, dtype: str) -> Any:
    """Return the value of a new Variable, or a function that records it."""
    if isinstance(initializer, type):
        initializer = initializer()
    if isinstance(initializer, str):
        initializer = initializers.get(initializer)
    if initializer is None:
        is_float = dtypes.is_float(dtype)
        initializer = glorot_uniform_initializer() if is_float else initializers.Zeros()
    if not callable(initializer) or isinstance(initializer, (Tensor, KerasTensor)):
        return initializer
    if shape is None:
        if not inspect.signature(initializer).parameters:
            return initializer
        raise ArgumentError(
            f"Shape of a new variable ({path}) must be fully defined, but instead was "
            "None."
        )
    extents = _as_shape(shape)
    if None in extents:
        raise ArgumentError(
            f"Shape of a new variable ({path}) must be fully defined, but instead was "
            f"{extents}."
        )
    return lambda: initializer(extents, dtype=dtype)


def get_local_variable(name: str, *args: Any, **kwargs: Any) -> GraphVariable:
    """Call `get_variable` for a Variable that is neither saved nor trained."""
    local_ones = [GraphKeys.LOCAL_VARIABLES]
    return get_variable(
        name, *args, **{"trainable": False, "collections": local_ones, **kwargs}
    )
