"""Calls from a rewritten function: to functions of the user and to built-ins."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from types import FunctionType, MethodType
from typing import Any

from toolkit import ops
from toolkit.compat.tensorflow import arrays
from toolkit.compat.tensorflow.autograph.loops import Range
from toolkit.compat.tensorflow.autograph.values import is_dynamic
from toolkit.compat.tensorflow.tensor_classes import convert

Convert = Callable[[Any], Any]


def resolve_call(function: Any, converted: Convert) -> Any:
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


def resolve_iterable(function: Any, converted: Convert, args: Any, kwargs: Any) -> Any:
    """Return the iterable of `for ... in function(...)`; a range can have dynamic
    ends."""
    if function in (range, arrays.range) and any(
        map(is_dynamic, (*args, *kwargs.values()))
    ):
        return _range(*args, **kwargs)
    return resolve_call(function, converted)(*args, **kwargs)


def _range(
    start: Any,
    limit: Any = None,
    delta: Any = 1,
    dtype: Any = None,
    name: str | None = None,
) -> Range:
    if limit is None:
        start, limit = 0, start
    ends = [convert(x) for x in (start, limit, delta)]
    kind = next(x.dtype for x in ends if is_dynamic(x)) if dtype is None else dtype
    return Range(*(ops.cast(x, kind) for x in ends))


# --- built-in functions of numbers and tensors
# -----------------------------------------


def _dispatch_to_tensors(
    builtin: Callable[..., Any], function: Callable[..., Any]
) -> Any:
    """Return the built-in function, or its replacement for traced arguments."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if any(map(is_dynamic, args)):
            return function(*args, **kwargs)
        return builtin(*args, **kwargs)

    return call


def _extreme(reduction: Callable[[Any], Any], two: Callable[[Any, Any], Any]) -> Any:
    def call(*args: Any) -> Any:
        return reduction(args[0]) if len(args) == 1 else reduce(two, args)

    return call


_BUILT_IN: dict[Any, Callable[..., Any]] = {
    abs: _dispatch_to_tensors(abs, ops.abs),
    all: _dispatch_to_tensors(all, ops.all),
    any: _dispatch_to_tensors(any, ops.any),
    bool: _dispatch_to_tensors(bool, lambda x: ops.cast(x, "bool")),
    float: _dispatch_to_tensors(float, lambda x: ops.cast(x, "float32")),
    int: _dispatch_to_tensors(int, lambda x: ops.cast(x, "int32")),
    max: _dispatch_to_tensors(max, _extreme(ops.max, ops.maximum)),
    min: _dispatch_to_tensors(min, _extreme(ops.min, ops.minimum)),
    sum: _dispatch_to_tensors(sum, lambda x, start=0: ops.sum(x, axis=0) + start),
}
