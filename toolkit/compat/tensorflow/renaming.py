"""Functions of toolkit with TensorFlow's names for them and their arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import update_wrapper
from typing import Any

from toolkit.compat.tensorflow.boundary import recorded
from toolkit.errors import ArgumentTypeError


def functions(rows: Mapping[str, tuple[Any, ...]]) -> dict[str, Callable[..., Any]]:
    """Wrap functions of toolkit with other names for them and their arguments.

    Args:
        rows: TensorFlow's name -> the function, and TensorFlow's names of its first
            arguments, separated by blanks. The other arguments of the function are not
            accepted. `name` is accepted, and has no effect outside of a graph.

    Example:
        >>> from toolkit import ops
        >>> from toolkit.compat.tensorflow.renaming import functions
        >>> rows = {"reduce_sum": (ops.sum, "input_tensor axis keepdims")}
        >>> float(functions(rows)["reduce_sum"](input_tensor=[1.0, 2.0]))
        3.0
    """
    return {name: recorded(_renamed(name, *row)) for name, row in rows.items()}


def _renamed(name: str, function: Callable[..., Any], names: str) -> Callable[..., Any]:
    wanted = names.split()
    parameters = list(inspect.signature(function).parameters.values())[: len(wanted)]
    core_names = dict(zip(wanted, (p.name for p in parameters), strict=True))
    most = len(wanted)

    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            kwargs.pop("name", None)
            kwargs = {_known(name, core_names, k): v for k, v in kwargs.items()}
        if len(args) > most:
            args = _without_name(name, args, most)
        return function(*args, **kwargs)

    made: Any = update_wrapper(call, function)
    del made.__wrapped__
    made.__name__ = made.__qualname__ = name
    made.__doc__ = f"`ops.{function.__name__}`: {function.__doc__}".partition("\n")[0]
    made.__signature__ = inspect.Signature(
        [p.replace(name=n) for p, n in zip(parameters, wanted, strict=True)]
    )
    return made


def _known(function: str, core_names: dict[str, str], key: str) -> str:
    if key in core_names:
        return core_names[key]
    raise ArgumentTypeError(
        f"{function}: expected arguments among {', '.join(core_names)} and name; "
        f"received {key!r}"
    )


def _without_name(function: str, args: Any, most: int) -> Any:
    if len(args) == most + 1 and (args[-1] is None or isinstance(args[-1], str)):
        return args[:-1]
    raise ArgumentTypeError(
        f"{function}: expected at most {most} arguments and a name; received "
        f"{len(args)}"
    )
