"""Functions of the core under TensorFlow's names for their arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import update_wrapper
from typing import Any

from toolkit.errors import ArgumentTypeError


def renamed(function: Callable[..., Any], names: str) -> Callable[..., Any]:
    """A function of the core whose arguments have other names, in its own order.

    Args:
        function: of the core.
        names: TensorFlow's names of its first arguments, with blanks in between; the
            others cannot be given. `name`, which means nothing without a graph to
            look at, may be given after them.

    Example:
        >>> from toolkit import ops
        >>> from toolkit.compat.tensorflow.renaming import renamed
        >>> reduce_sum = renamed(ops.sum, "input_tensor axis keepdims")
        >>> float(reduce_sum(input_tensor=[1.0, 2.0]))
        3.0
    """
    wanted = names.split()
    parameters = list(inspect.signature(function).parameters.values())[: len(wanted)]
    core_names = dict(zip(wanted, (p.name for p in parameters), strict=True))
    most = len(wanted)

    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            kwargs.pop("name", None)
            kwargs = {_known(call, core_names, k): v for k, v in kwargs.items()}
        if len(args) > most:
            args = _without_name(call, args, most)
        return function(*args, **kwargs)

    update_wrapper(call, function)
    call.__doc__ = f"`{function.__name__}` of `toolkit.ops`: {function.__doc__}"
    call.__signature__ = _signature(wanted, parameters)  # type: ignore[attr-defined]
    del call.__wrapped__  # type: ignore[attr-defined]
    return call


def _signature(wanted: list[str], parameters: Any) -> inspect.Signature:
    renamed = [p.replace(name=n) for p, n in zip(parameters, wanted, strict=True)]
    name = inspect.Parameter(
        "name", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None
    )
    return inspect.Signature([*renamed, name])


def _known(call: Callable[..., Any], core_names: dict[str, str], key: str) -> str:
    if key in core_names:
        return core_names[key]
    raise ArgumentTypeError(
        f"{call.__name__}: expected arguments among {', '.join(core_names)} and name; "
        f"received {key!r}"
    )


def _without_name(call: Callable[..., Any], args: Any, most: int) -> Any:
    if len(args) == most + 1 and (args[-1] is None or isinstance(args[-1], str)):
        return args[:-1]
    raise ArgumentTypeError(
        f"{call.__name__}: expected at most {most} arguments and a name; received "
        f"{len(args)}"
    )
