"""TensorFlow 2's functions in graphs: each call is one operation.

In graph mode, functions with `boundary.make_recordable` call `record`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

from toolkit import dtypes, tree
from toolkit.compat.tensorflow import control, debugging, printing, tensor_classes
from toolkit.compat.tensorflow.modes import mode
from toolkit.compat.tensorflow.type_aliases import ShapeLike
from toolkit.compat.tensorflow.v1 import operations
from toolkit.compat.tensorflow.v1.graph import get_default_graph
from toolkit.compat.tensorflow.v1.operation_types import operation_kind
from toolkit.compat.tensorflow.v1.seeds import GraphSeed
from toolkit.compat.tensorflow.v1.tensors import GraphStep, GraphTensor
from toolkit.compat.tensorflow.v1.variables import GraphVariable
from toolkit.core.keras_tensor import KerasTensor
from toolkit.core.tensor import Tensor, state
from toolkit.core.variable import Variable
from toolkit.errors import TraceError
from toolkit.layers.call import context
from toolkit.type_aliases import DTypeLike


def record(
    function: Callable[..., Any],
    eager: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Record a call, or call eagerly if no argument belongs to a graph.

    Args:
        function: the function to record.
        eager: the function to call otherwise.
        args, kwargs: the arguments; a seed becomes the seed of the operation.
    """
    if function in _OWN:
        return _OWN[function](*args, **kwargs)
    if function.__module__ == debugging.__name__:
        return _check(function, *args, **kwargs)
    leaves = tree.flatten((args, kwargs))
    symbols = [x for x in leaves if isinstance(x, KerasTensor)]
    if not all(isinstance(x, GraphTensor) for x in symbols) or (
        not symbols and _is_eager(leaves)
    ):
        return eager(*args, **kwargs)
    graph = symbols[0].graph if symbols else get_default_graph()
    name = kwargs.pop("name", None)
    kind = operation_kind(function.__name__)
    if _takes_seed(function):
        bound = inspect.signature(function).bind(*args, **kwargs)
        seed = GraphSeed(graph, bound.arguments.pop("seed", None))
        args, kwargs = bound.args, {**bound.kwargs, "seed": seed}
    try:
        return graph.record(function, args, kwargs, name, kind)
    except TraceError:
        if function.__name__ not in _BY_VALUES:
            raise
    outputs = _BY_VALUES[function.__name__](*args, **kwargs)
    step = GraphStep(_wrap_step(function), kind, compiles=False)
    return graph.append(step, args, outputs, kwargs, name)


@cache
def _takes_seed(function: Callable[..., Any]) -> bool:
    """Return whether a function draws numbers from a separate sequence."""
    code = function.__code__
    takes_seed = "seed" in code.co_varnames[: code.co_argcount]
    return takes_seed and not function.__name__.startswith("stateless_")


def _is_eager(leaves: list[Any]) -> bool:
    """Return whether a call without symbols is part of an eager model."""
    of_layers = any(type(x) in (Variable, tensor_classes.Variable) for x in leaves)
    of_tensors = any(isinstance(x, Tensor) for x in leaves) and not of_layers
    return context.layer is not None or of_tensors or bool(state.tapes)


def _wrap_step(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function as the function of a step."""
    return lambda run, *args, **kwargs: function(
        *run.values(args), **run.values(kwargs)
    )


def _check(
    function: Callable[..., Any], *args: Any, name: str | None = None, **kwargs: Any
) -> Any:
    """Record the call of a function that raises for some values."""
    step = GraphStep(_wrap_step(function), "Assert", compiles=False)
    return get_default_graph().append(step, args, None, kwargs, name)


def _symbol(shape: ShapeLike, x: GraphTensor) -> KerasTensor:
    return KerasTensor(shape, dtypes.standardize(x.dtype))


def _masked_symbol(
    tensor: GraphTensor, mask: GraphTensor, axis: int | None = None
) -> KerasTensor:
    start = axis or 0
    inner_shape = tensor.shape[start + len(mask.shape) :]
    return _symbol((*tensor.shape[:start], None, *inner_shape), tensor)


# Functions with value-dependent extents: name -> their output symbols.
_BY_VALUES: dict[str, Callable[..., Any]] = {
    "boolean_mask": _masked_symbol,
    "unique": lambda x, out_idx="int32": (
        _symbol((None,), x),
        KerasTensor(x.shape, out_idx),
    ),
    "where": lambda condition: KerasTensor((None, len(condition.shape)), "int64"),
}


def _py_function(func: Any, inp: Any, Tout: DTypeLike, name: str | None = None) -> Any:
    """Call `operations.py_func` with a function of tensors."""
    called = lambda *xs: func(*map(tensor_classes.convert, xs))  # noqa: E731
    return operations.py_func(called, inp, Tout, name=name)


# Functions with a different implementation in graphs.
_OWN: dict[Any, Callable[..., Any]] = {
    inspect.unwrap(function): replacement
    for function, replacement in (
        (control.group, operations.group),
        (control.no_op, operations.no_op),
        (control.numpy_function, operations.py_func),
        (control.py_function, _py_function),
        (printing.print, operations.print_op),
    )
}

mode.graph, mode.record, mode.variable = get_default_graph, record, GraphVariable
