"""Functions as users call them: they take and return `tf.Tensor`s, and make graphs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from inspect import isfunction
from typing import Any

from toolkit.compat.tensorflow.modes import building_graph, mode
from toolkit.compat.tensorflow.views import DIALECT, viewed
from toolkit.core.tensor import state
from toolkit.ops.symbolic import operation


def of_tensors(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose results are `tf.Tensor`s, whatever its arguments."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if state.dialect is DIALECT:
            return function(*args, **kwargs)
        with DIALECT.inside():
            return viewed(function(*args, **kwargs))

    return call


def recorded(function: Callable[..., Any], eager: Any = None) -> Callable[..., Any]:
    """A function of tensors that a graph of TensorFlow 1 records.

    Args:
        function: what is recorded.
        eager: what is called where there is no graph; `function` if None.
    """
    eager = of_tensors(function if eager is None else eager)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if building_graph():
            return mode.record(function, eager, args, kwargs)
        return eager(*args, **kwargs)

    return call


def operations(module: str, besides: str = "") -> None:
    """Make the public functions of a module those that users call.

    They accept symbols, as those of the core do, return `tf.Tensor`s and are recorded
    by graphs.

    Args:
        module: its name.
        besides: names of functions that stay as they are, with blanks in between.
    """
    members = vars(sys.modules[module])
    for name, member in list(members.items()):
        own = isfunction(member) and member.__module__ == module
        if own and name[0] != "_" and name not in besides.split():
            members[name] = recorded(member, operation(member))
