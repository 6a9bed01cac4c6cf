"""Wrappers of public functions: they take and return `tf.Tensor`s, and record
graphs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from inspect import isfunction
from typing import Any

import numpy as np

from toolkit import tree
from toolkit.compat.tensorflow.dtype_matching import match_operand_dtypes
from toolkit.compat.tensorflow.modes import building_graph, mode
from toolkit.compat.tensorflow.string_operations import accept_strings
from toolkit.compat.tensorflow.tensor_classes import DIALECT, wrap_tensors
from toolkit.core.composites import Composite
from toolkit.core.tensor import Tensor, state
from toolkit.core.variable import Variable
from toolkit.ops.symbolic import operation


def wrap_results(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that its results are `tf.Tensor`s."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if state.dialect is DIALECT:
            return function(*args, **kwargs)
        with DIALECT.activate():
            return wrap_tensors(function(*args, **kwargs))

    return call


def make_recordable(
    function: Callable[..., Any], eager: Any = None
) -> Callable[..., Any]:
    """Wrap a function of tensors so that a TensorFlow 1 graph records it.

    Args:
        function: the function to record.
        eager: the function to call without a graph; `function` if None.
    """
    computed = wrap_results(function if eager is None else eager)
    eager = accept_strings(match_operand_dtypes(computed))

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        composite = _find_composite_class(args, kwargs)
        if composite is not None:
            return wrap_results(composite.dispatch)(call, args, kwargs)
        args = convert_float64_scalars(args)
        if building_graph():
            return mode.record(function, eager, args, kwargs)
        return eager(*args, **kwargs)

    return call


def _find_composite_class(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the class of the first ragged or sparse tensor among arguments, or
    None."""
    for arg in (*args, *kwargs.values()) if kwargs else args:
        for item in arg if type(arg) in (list, tuple) else (arg,):
            if isinstance(item, Composite):
                return type(item)
    return None


def convert_float64_scalars(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Convert NumPy's float64 scalars, which are Python floats, to arrays.

    As in TensorFlow, a tensor among the arguments, or an earlier float, sets the dtype
    instead.
    """
    for arg in args:
        first = arg
        while type(first) in (list, tuple) and first:
            first = first[0]
        if type(first) is np.float64:
            break
        if type(first) is float:
            return args
    else:
        return args
    if any(isinstance(leaf, (Tensor, Variable)) for leaf in tree.flatten(args)):
        return args
    return tuple(map(_scalars_to_arrays, args))


def _scalars_to_arrays(arg: Any) -> Any:
    """Convert a float64 scalar, or the scalars in a list, to arrays."""
    if not isinstance(arg, (list, tuple, np.float64)):
        return arg
    return tree.map_structure(
        lambda x: np.asarray(x) if type(x) is np.float64 else x, arg
    )


def wrap_module_results(module: str) -> None:
    """Make the public functions of a module return `tf.Tensor`s."""
    members = vars(sys.modules[module])
    for name, member in list(members.items()):
        if isfunction(member) and member.__module__ == module and name[0] != "_":
            members[name] = wrap_results(member)


def make_operations(module: str, besides: str = "") -> None:
    """Make the public functions of a module operations.

    Operations accept symbolic tensors, as toolkit's functions do, return `tf.Tensor`s
    and are recorded by graphs.

    Args:
        module: its name.
        besides: names of functions to skip, separated by blanks.
    """
    members = vars(sys.modules[module])
    for name, member in list(members.items()):
        is_public = isfunction(member) and member.__module__ == module
        if is_public and name[0] != "_" and name not in besides.split():
            members[name] = make_recordable(member, operation(member))
