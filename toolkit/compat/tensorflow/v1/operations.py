"""Operations that exist only in graphs: groups, assignments, prints, Python code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from toolkit import dtypes, ops, random as random_numbers, tree
from toolkit.compat.tensorflow import indexing
from toolkit.compat.tensorflow.modes import building_graph, compute_eagerly
from toolkit.compat.tensorflow.printing import print as printing
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.compat.tensorflow.v1.basics import global_variables, local_variables
from toolkit.compat.tensorflow.v1.graph import get_default_graph
from toolkit.compat.tensorflow.v1.tensors import (
    GraphOperation,
    GraphStep,
    GraphTensor,
    operation_of,
)
from toolkit.compat.tensorflow.v1.variables import GraphVariable
from toolkit.core.keras_tensor import KerasTensor
from toolkit.core.tensor import Tensor
from toolkit.errors import UnsupportedError
from toolkit.type_aliases import Array, TensorLike


def group(*inputs: Any, name: str | None = None) -> GraphOperation:
    """Return the operation that runs all inputs.

    Args:
        inputs: tensors and operations, or nests of them.
        name: generated if None.
    """
    graph = get_default_graph()
    controls = [operation_of(x, graph) for x in tree.flatten(inputs) if x is not None]
    step = GraphStep(lambda run: None, "NoOp")
    return graph.append(step, (), None, name=name or "group_deps", controls=controls)


def no_op(name: str | None = None) -> GraphOperation:
    """Return an operation without effect, as a target of control dependencies."""
    return group(name=name or "NoOp")


def variables_initializer(var_list: Any, name: str = "init") -> GraphOperation:
    """Return the operation that initializes Variables.

    The Variables of layers are always initialized, in every session.
    """
    return group(
        *(v.initializer for v in var_list if isinstance(v, GraphVariable)), name=name
    )


def global_variables_initializer() -> GraphOperation:
    """Return the operation that initializes the global variables."""
    return variables_initializer(global_variables())


def local_variables_initializer() -> GraphOperation:
    """Return the operation that initializes the local variables."""
    return variables_initializer(local_variables())


initialize_all_variables = global_variables_initializer


def tables_initializer(name: str = "init_all_tables") -> GraphOperation:
    """Return an operation without effect, because there are no tables."""
    return no_op(name)


def is_variable_initialized(variable: GraphVariable) -> GraphTensor:
    """Return whether a Variable had a value in the session before the run."""

    def check(run: Any, v: Any) -> Tensor:
        return convert(run.is_initialized(v))

    step = GraphStep(check, "IsVariableInitialized", asks=(variable,), compiles=False)
    return variable.graph.append(step, (variable,), KerasTensor((), "bool"))


def report_uninitialized_variables(
    var_list: Any = None, name: str = "report_uninitialized_variables"
) -> GraphTensor:
    """Return the names, as bytes, of the Variables without a value in the session.

    Args:
        var_list: by default the global and the local Variables.
        name: of the operation.
    """
    variables = global_variables() + local_variables() if var_list is None else var_list
    graph_variables = tuple(v for v in variables if isinstance(v, GraphVariable))

    def report(run: Any) -> Array:
        names = [v.path.encode() for v in graph_variables if not run.is_initialized(v)]
        return np.array(names, object)

    step = GraphStep(
        report, "ReportUninitialized", asks=graph_variables, compiles=False
    )
    symbol = KerasTensor((None,), dtypes.STRING)
    return get_default_graph().append(step, (), symbol, name=name)


def assign(
    ref: GraphVariable,
    value: Any,
    validate_shape: Any = None,
    use_locking: bool | None = None,
    name: str | None = None,
) -> Any:
    """Assign a value to a Variable; the result is an operation, or the new value.

    `validate_shape` can be None or True: the shape of a Variable is fixed.
    `use_locking` has no effect: a run changes the Variables of a task together.
    """
    if validate_shape is False:
        raise UnsupportedError("assign: validate_shape=False is not supported")
    return ref.assign(value, name=name)


def assign_add(
    ref: GraphVariable,
    value: Any,
    use_locking: bool | None = None,
    name: str | None = None,
) -> Any:
    """Add to a Variable; the result is an operation, or the new value.

    `use_locking` has no effect: a run changes the Variables of a task together.
    """
    return ref.assign_add(value, name=name)


def assign_sub(
    ref: GraphVariable,
    value: Any,
    use_locking: bool | None = None,
    name: str | None = None,
) -> Any:
    """Subtract from a Variable; the result is an operation, or the new value.

    `use_locking` has no effect: a run changes the Variables of a task together.
    """
    return ref.assign_sub(value, name=name)


def set_random_seed(seed: int) -> None:
    """Set the seed of the default graph, or of eager mode."""
    if building_graph():
        get_default_graph().seed = seed
    else:
        random_numbers.set_random_seed(seed)


def print_op(*inputs: Any, name: str | None = None, **options: Any) -> GraphOperation:
    """Return the operation that prints values after the run that computed them.

    Args:
        inputs, options: as in `tf.print`.
        name: generated if None.
    """

    def show(*values: Any) -> None:
        with compute_eagerly():
            arrays = tree.map_structure(
                lambda x: convert(x) if isinstance(x, (np.ndarray, np.generic)) else x,
                values,
            )
            printing(*arrays, **options)

    step = GraphStep(lambda run, *inputs: None, "PrintV2", sink=show)
    return get_default_graph().append(step, inputs, None, name=name)


def py_func(
    func: Callable[..., Any],
    inp: Any,
    Tout: Any,
    stateful: bool = True,
    name: str | None = None,
) -> Any:
    """Return the operation that calls a Python function; its run is not compiled.

    Args:
        func: takes NumPy arrays, returns one or several.
        inp: a list of tensors.
        Tout: the dtype of the result, or a list of dtypes.
        stateful: has no effect: each run calls the function.
        name: generated if None.

    Returns:
        A tensor, or a list of tensors, with unknown shapes until `set_shape`. Functions
        that compute shapes treat them as numbers.
    """
    has_list = isinstance(Tout, (list, tuple))
    kinds = [dtypes.standardize(t) for t in (Tout if has_list else [Tout])]

    def call(run: Any, *values: Any) -> Any:
        results = func(*(np.asarray(run.value(x)) for x in values))
        results = results if has_list else [results]
        tensors = [
            convert(np.asarray(y), t) for y, t in zip(results, kinds, strict=True)
        ]
        return tensors if has_list else tensors[0]

    symbols: list[Any] = [KerasTensor((), t) for t in kinds]
    outputs: Any = symbols if has_list else symbols[0]
    step = GraphStep(call, "PyFunc", compiles=False)
    output = get_default_graph().append(step, tuple(inp), outputs, name=name)
    for symbol in symbols:
        symbol.any_shape = True
    return output


def _scatter(name: str, method: str) -> Callable[..., Any]:
    def scatter(
        ref: GraphVariable,
        indices: TensorLike,
        updates: Any,
        use_locking: bool = True,
        name: str | None = None,
    ) -> GraphTensor:
        def change(
            run: Any, v: Any, indices: TensorLike, updates: TensorLike
        ) -> Tensor:
            with run.at(v):
                return changed(run, v, indices, updates)

        def changed(run: Any, v: Any, indices: TensorLike, updates: Any) -> Tensor:
            old, rows = run.cell(v).read(), convert(run.value(indices))
            new = convert(run.values(updates), old.dtype)
            new = ops.broadcast_to(new, (*rows.shape, *old.shape[1:]))
            rows = ops.expand_dims(rows, -1)
            return run.cell(v).assign(getattr(indexing, method)(old, rows, new))

        step = GraphStep(change, "ResourceScatter")
        symbol = KerasTensor(ref.shape, ref.dtype)
        return ref.graph.append(step, (ref, indices, updates), symbol, name=name)

    scatter.__name__ = scatter.__qualname__ = name
    scatter.__doc__ = f"`{method}` of rows of a Variable; as a tensor, its new value."
    return scatter


scatter_add: Callable[..., Any] = _scatter("scatter_add", "tensor_scatter_nd_add")
scatter_sub: Callable[..., Any] = _scatter("scatter_sub", "tensor_scatter_nd_sub")
scatter_update: Callable[..., Any] = _scatter(
    "scatter_update", "tensor_scatter_nd_update"
)
