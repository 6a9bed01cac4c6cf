"""Calls of ops in configs. In Keras every op is a class.

Its constructor receives the static arguments, its call the tensors.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

from toolkit import ops
from toolkit.errors import ArgumentError
from toolkit.ops.keras_modules import MODULE_OF
from toolkit.ops.symbolic import FunctionOperation, any_symbolic

_CLASS_OF = {
    "allclose": "AllClose",
    "cdist": "CDist",
    "isin": "IsIn",
    "searchsorted": "SearchSorted",
    **{name: name.upper() for name in ("fft", "fft2", "ifft2", "irfft", "istft")},
    **{name: name.upper() for name in ("psnr", "rfft", "stft", "svd")},
}
# Arguments without a default that Keras's constructors receive.
_CONSTRUCTED = frozenset(
    "axes axis axis1 axis2 default_value destination dtype fft_length "
    "indices_or_sections k kth max_val newshape num_classes output_size pad_width "
    "pool_size repeats sequence_length sequence_stride shape shift source subscripts "
    "threshold x_max x_min".split()
)
# Arguments with a default that Keras's calls receive.
_CALLED = {
    "average": ("weights",),
    "dot_product_attention": ("bias", "mask", "scale"),
    "isclose": ("rtol", "atol"),
    "pad": ("constant_values",),
    "select": ("default",),
    "where": ("x1", "x2"),
}


@cache
def _parameters(function: Callable[..., Any]) -> tuple[tuple[str, bool, bool], ...]:
    """Return per parameter: name, whether a call receives it, if it is variadic."""
    called = _CALLED.get(function.__name__, ())
    rows = []
    for name, parameter in inspect.signature(function).parameters.items():
        variadic = parameter.kind is parameter.VAR_POSITIONAL
        has_default = parameter.default is not parameter.empty
        in_call = name in called or not (has_default or name in _CONSTRUCTED)
        rows.append((name, variadic or in_call, variadic))
    return tuple(rows)


def op_config(operation: FunctionOperation) -> dict[str, Any]:
    """Return the config entries that identify an op and its constructor arguments."""
    name = operation.function.__name__
    if getattr(ops, name, None) is not operation.function:
        raise ArgumentError(
            "Functional.get_config: expected a function of toolkit.ops; received "
            f"{name!r}. Put the function into a layer"
        )
    camel = "".join(word.capitalize() for word in name.split("_"))
    class_name = _CLASS_OF.get(name, camel)
    node = operation._inbound_nodes[0]
    _, setup = split_call(operation.function, *node.attrs["arguments"])
    return {
        "module": MODULE_OF.get(name, "keras.src.ops.numpy"),
        "class_name": class_name,
        "config": {"name": operation.name, **setup},
        "registered_name": class_name,
    }


def split_call(
    function: Any, args: Any, kwargs: Any
) -> tuple[list[Any], dict[str, Any]]:
    """Split the arguments into arguments of Keras's call and of the constructor."""
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    call: list[Any] = []
    setup = {}
    for name, in_call, variadic in _parameters(function):
        value = bound.arguments[name]
        if variadic:
            call += value
        elif in_call or any_symbolic(value):
            call.append(value)
        else:
            setup[name] = value
    return call, setup


def join_call(function: Any, args: Any, kwargs: Any, setup: Any) -> Any:
    """Join the arguments of Keras's call and constructor to our function's."""
    positional = list(args)
    joined = dict(kwargs)
    variadic: list[Any] = []
    for name, in_call, takes_rest in _parameters(function):
        if takes_rest:
            variadic, positional = positional, []
        elif name in setup:
            value = setup[name]
            joined[name] = tuple(value) if isinstance(value, list) else value
        elif in_call and positional:
            joined[name] = positional.pop(0)
    for (name, *_), value in zip(
        (row for row in _parameters(function) if row[0] not in joined),
        positional,
        strict=False,
    ):
        joined[name] = value  # a tensor instead of a number for Keras's constructor
    if variadic:
        first = [joined.pop(name) for name, _, r in _parameters(function) if not r]
        return (*first, *variadic), joined
    return (), joined


def op_of(class_name: str, name: str) -> FunctionOperation:
    """Return the op of a Keras class; only functions of tensors are accepted."""
    lower_name = class_name.lower()
    for candidate in dir(ops):
        if candidate.replace("_", "") == lower_name and not candidate.startswith("_"):
            function = getattr(ops, candidate)
            if hasattr(function, "__wrapped__"):  # decorated by `operation`
                return FunctionOperation(function, name)
    raise ArgumentError(f"Functional.from_config: unknown op {class_name!r}")
