"""Functions of toolkit with TensorFlow's names for them and their arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import update_wrapper
from typing import Any

from toolkit.compat.tensorflow.boundary import make_recordable
from toolkit.errors import ArgumentTypeError


def rename_functions(
    rows: Mapping[str, tuple[Any, ...]],
) -> dict[str, Callable[..., Any]]:
    """Wrap functions of toolkit with other names for them and their arguments.

    Args:
        rows: TensorFlow's name -> the function, and TensorFlow's names of its first
            arguments, separated by blanks. The other arguments of the function are not
            accepted. `name` is accepted, and has no effect outside of a graph.

    Example:
        >>> from toolkit import ops
        >>> from toolkit.compat.tensorflow.parameter_names import rename_functions
        >>> rows = {"reduce_sum": (ops.sum, "input_tensor axis keepdims")}
        >>> float(rename_functions(rows)["reduce_sum"](input_tensor=[1.0, 2.0]))
        3.0
    """
    return {
        name: make_recordable(_wrap_function(name, *row)) for name, row in rows.items()
    }


def _wrap_function(
    name: str, function: Callable[..., Any], names: str
) -> Callable[..., Any]:
    parameter_names = names.split()
    parameters = list(inspect.signature(function).parameters.values())[
        : len(parameter_names)
    ]
    core_names = dict(zip(parameter_names, (p.name for p in parameters), strict=True))
    limit = len(parameter_names)

    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            kwargs.pop("name", None)
            kwargs = {
                _core_parameter(name, core_names, k): v for k, v in kwargs.items()
            }
        if len(args) > limit:
            args = _drop_name(name, args, limit)
        return function(*args, **kwargs)

    wrapper: Any = update_wrapper(call, function)
    del wrapper.__wrapped__
    wrapper.__name__ = wrapper.__qualname__ = name
    wrapper.__doc__ = f"`ops.{function.__name__}`: {function.__doc__}".partition("\n")[
        0
    ]
    wrapper.__signature__ = inspect.Signature(
        [p.replace(name=n) for p, n in zip(parameters, parameter_names, strict=True)]
    )
    return wrapper


def _core_parameter(function: str, core_names: dict[str, str], key: str) -> str:
    if key in core_names:
        return core_names[key]
    raise ArgumentTypeError(
        f"{function}: expected arguments among {', '.join(core_names)} and name; "
        f"received {key!r}"
    )


def _drop_name(function: str, args: Any, limit: int) -> Any:
    if len(args) == limit + 1 and (args[-1] is None or isinstance(args[-1], str)):
        return args[:-1]
    raise ArgumentTypeError(
        f"{function}: expected at most {limit} arguments and a name; received "
        f"{len(args)}"
    )
