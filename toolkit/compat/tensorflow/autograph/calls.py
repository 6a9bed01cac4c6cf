"""Calls from a rewritten function: to functions of the user and to built-ins."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from types import FunctionType, MethodType
from typing import Any

from toolkit import ops
from toolkit.compat.tensorflow import arrays
from toolkit.compat.tensorflow.autograph.loops import Range
from toolkit.compat.tensorflow.autograph.values import unknown
from toolkit.compat.tensorflow.views import convert

Convert = Callable[[Any], Any]


def called(function: Any, converted: Convert) -> Any:
    """Return the callable for `function(...)`: the function with rewritten control
    flow.

    Args:
        function: the callee in the source.
        converted: rewrites a function.
    """
    try:
        builtin = _BUILT_IN.get(function)
    except TypeError:  # not hashable
        builtin = None
    if builtin is not None:
        return builtin
    if isinstance(function, (FunctionType, MethodType)):
        return converted(function)
    if isinstance(function, type) or not callable(function):
        return function
    call = type(function).__call__
    if not isinstance(call, FunctionType):
        return function
    new = converted(call)
    return function if new is call else MethodType(new, function)


def iterated(function: Any, converted: Convert, args: Any, kwargs: Any) -> Any:
    """Return the iterable of `for ... in function(...)`; a range can have dynamic
    ends."""
    if function in (range, arrays.range) and any(
        map(unknown, (*args, *kwargs.values()))
    ):
        return _range(*args, **kwargs)
    return called(function, converted)(*args, **kwargs)


def _range(
    start: Any, limit: Any = None, delta: Any = 1, dtype: Any = None, name: Any = None
) -> Range:
    if limit is None:
        start, limit = 0, start
    ends = [convert(x) for x in (start, limit, delta)]
    kind = next(x.dtype for x in ends if unknown(x)) if dtype is None else dtype
    return Range(*(ops.cast(x, kind) for x in ends))


# --- built-in functions of numbers and tensors
# -----------------------------------------


def _of_tensors(builtin: Callable[..., Any], function: Callable[..., Any]) -> Any:
    """Return the built-in function, or its replacement for traced arguments."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if any(map(unknown, args)):
            return function(*args, **kwargs)
        return builtin(*args, **kwargs)

    return call


def _extreme(reduction: Callable[[Any], Any], two: Callable[[Any, Any], Any]) -> Any:
    def call(*args: Any) -> Any:
        return reduction(args[0]) if len(args) == 1 else reduce(two, args)

    return call


_BUILT_IN: dict[Any, Callable[..., Any]] = {
    abs: _of_tensors(abs, ops.abs),
    all: _of_tensors(all, ops.all),
    any: _of_tensors(any, ops.any),
    bool: _of_tensors(bool, lambda x: ops.cast(x, "bool")),
    float: _of_tensors(float, lambda x: ops.cast(x, "float32")),
    int: _of_tensors(int, lambda x: ops.cast(x, "int32")),
    max: _of_tensors(max, _extreme(ops.max, ops.maximum)),
    min: _of_tensors(min, _extreme(ops.min, ops.minimum)),
    sum: _of_tensors(sum, lambda x, start=0: ops.sum(x, axis=0) + start),
}
