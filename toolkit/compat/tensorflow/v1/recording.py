"""TensorFlow 2's functions in graphs: each call becomes one operation.

Their own modules know nothing of graphs: once the first graph is used, the functions in
them are replaced by ones that ask for the mode first.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import cache, wraps
from importlib import import_module
from types import FunctionType
from typing import Any

from toolkit import dtypes, tree
from toolkit.compat.tensorflow import (
    control,
    debugging,
    namespaces,
    printing,
    renaming,
    scopes,
)
from toolkit.compat.tensorflow.modes import building_graph
from toolkit.compat.tensorflow.v1 import basics, operations
from toolkit.compat.tensorflow.v1.graph import get_default_graph
from toolkit.compat.tensorflow.v1.names import kind_of
from toolkit.compat.tensorflow.v1.plan import FailedPreconditionError
from toolkit.compat.tensorflow.v1.seeds import GraphSeed
from toolkit.compat.tensorflow.v1.tensors import GraphStep, GraphTensor
from toolkit.core.convert import convert
from toolkit.core.keras_tensor import KerasTensor
from toolkit.core.tensor import Tensor, state
from toolkit.core.variable import Variable
from toolkit.errors import TraceError

_PACKAGE = "toolkit.compat.tensorflow"
# Functions that make no tensors.
_PLAIN = ("is_tensor", "recompute_grad")
_MODULES = "arrays control indexing linalg math nn random image".split()


@cache
def recorded(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of tensors that in a graph is recorded, whatever its arguments."""
    function = inspect.unwrap(function)
    code = function.__code__
    takes_seed = "seed" in code.co_varnames[: code.co_argcount]
    takes_seed &= not function.__name__.startswith("stateless_")
    kind = kind_of(function.__name__)

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not building_graph():
            return function(*args, **kwargs)
        leaves = tree.flatten((args, kwargs))
        symbols = [x for x in leaves if isinstance(x, KerasTensor)]
        if not all(isinstance(x, GraphTensor) for x in symbols) or (
            not symbols and _is_eager(leaves)
        ):
            return function(*args, **kwargs)
        graph = symbols[0].graph if symbols else get_default_graph()
        name = kwargs.pop("name", None)
        if takes_seed:
            bound = inspect.signature(function).bind(*args, **kwargs)
            seed = GraphSeed(graph, bound.arguments.pop("seed", None))
            args, kwargs = bound.args, {**bound.kwargs, "seed": seed}
        try:
            return graph.record(function, args, kwargs, name, kind)
        except TraceError:
            if function.__name__ not in _BY_VALUES:
                raise
        outputs = _BY_VALUES[function.__name__](*args, **kwargs)
        step = GraphStep(_called(function), kind, compiles=False)
        return graph.append(step, args, outputs, kwargs, name)

    return wrapper


def _is_eager(leaves: list[Any]) -> bool:
    """Whether a call without symbols is that of a model that runs eagerly."""
    kinds = set(map(type, leaves))
    calls = sys.modules.get("toolkit.layers.call")  # if there are layers yet
    in_layer = calls is not None and calls.context.layer is not None
    of_tensors = Tensor in kinds and Variable not in kinds
    return in_layer or of_tensors or bool(state.tapes)


def _called(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as one of a step."""
    return lambda run, *args, **kwargs: function(
        *run.values(args), **run.values(kwargs)
    )


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that raises for some values: in a graph, an operation that does."""

    def record(*args: Any, name: str | None = None, **kwargs: Any) -> Any:
        step = GraphStep(_called(function), "Assert", compiles=False)
        return get_default_graph().append(step, args, None, kwargs, name)

    return _either(function, record)


def _symbol(shape: Any, x: Any) -> KerasTensor:
    return KerasTensor(shape, dtypes.standardize(x.dtype))


def _masked(tensor: Any, mask: Any, axis: int | None = None) -> KerasTensor:
    start = axis or 0
    rest = tensor.shape[start + len(mask.shape) :]
    return _symbol((*tensor.shape[:start], None, *rest), tensor)


# Functions whose results have extents that depend on values: name -> their symbols.
_BY_VALUES: dict[str, Callable[..., Any]] = {
    "boolean_mask": _masked,
    "unique": lambda x, out_idx="int32": (
        _symbol((None,), x),
        KerasTensor(x.shape, out_idx),
    ),
    "where": lambda condition: KerasTensor((None, len(condition.shape)), "int64"),
}


def _is_ours(function: Any, module: Any) -> bool:
    """Whether a member of a module is a function that it defines, or renames."""
    if not isinstance(function, FunctionType):
        return False
    renames = function.__code__.co_filename == renaming.__file__
    return renames or function.__module__ == module.__name__


def _either(eager: Callable[..., Any], own: Callable[..., Any]) -> Callable[..., Any]:
    """What a name means without a graph, and with one."""

    @wraps(eager)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return (own if building_graph() else eager)(*args, **kwargs)

    return wrapper


def _of_tensors(func: Any, inp: Any, Tout: Any, name: Any = None) -> Any:
    """`operations.py_func` of a function that takes tensors."""
    return operations.py_func(lambda *xs: func(*map(convert, xs)), inp, Tout, name=name)


@cache
def install() -> None:
    """Replace the functions of TensorFlow 2, once."""
    modules = [import_module(f"{_PACKAGE}.{name}") for name in _MODULES]
    replaced: dict[Any, Any] = {
        control.control_dependencies: basics.control_dependencies,
        scopes.name_scope: basics.name_scope,
        control.group: _either(control.group, operations.group),
        control.no_op: _either(control.no_op, operations.no_op),
        control.numpy_function: _either(control.numpy_function, operations.py_func),
        control.py_function: _either(control.py_function, _of_tensors),
        printing.print: _either(printing.print, operations.print_op),
    }
    replaced |= {
        member: checked(member)
        for key, member in vars(debugging).items()
        if key == "Assert" or key.startswith("assert_")
    }
    for module in modules:
        for key, member in vars(module).items():
            if key[0] != "_" and key not in _PLAIN and _is_ours(member, module):
                replaced.setdefault(member, recorded(member))
    for module in (import_module(_PACKAGE), debugging, scopes, printing, *modules):
        for key, member in list(vars(module).items()):
            if isinstance(member, (type, FunctionType)) and member in replaced:
                setattr(module, key, replaced[member])
    namespaces.errors.FailedPreconditionError = FailedPreconditionError
