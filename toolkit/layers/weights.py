"""Helpers for layer arguments: validation, and creation of weights."""

from __future__ import annotations

from collections.abc import Iterable
from operator import index
from typing import Any, TypeVar

from toolkit import constraints, initializers, regularizers
from toolkit.arguments import is_real
from toolkit.core.variable import Variable
from toolkit.errors import (
    ArgumentError,
    ArgumentTypeError,
    OutOfRangeError,
    unknown_choice,
)
from toolkit.type_aliases import InitializerLike, Shape

T = TypeVar("T")


def declare_weight(
    layer: Any, name: str, initializer: Any, regularizer: Any, constraint: Any
) -> None:
    """Store initializer, regularizer and constraint of the weight `name`."""
    setattr(layer, f"{name}_initializer", initializers.get(initializer))
    setattr(layer, f"{name}_regularizer", regularizers.get(regularizer))
    setattr(layer, f"{name}_constraint", constraints.get(constraint))


def declare_weights(layer: Any, arguments: dict[str, Any], *names: str) -> None:
    """Declare several weights from the constructor's arguments, by name."""
    for name in names:
        roles = ("initializer", "regularizer", "constraint")
        declare_weight(layer, name, *(arguments[f"{name}_{role}"] for role in roles))


def create_weight(
    layer: Any,
    name: str,
    shape: Shape,
    declared: str | None = None,
    initializer: InitializerLike | None = None,
    **options: Any,
) -> Variable:
    """Create the weight `name` as declared, possibly under another name.

    Args:
        layer: the layer.
        name: the name of the weight.
        shape: the shape of the weight.
        declared: the declared name, if it differs.
        initializer: an initializer that replaces the declared one.
        options: arguments of `add_weight`.
    """
    declared = declared or name
    return layer.add_weight(
        shape=shape,
        initializer=initializer or getattr(layer, f"{declared}_initializer"),
        regularizer=getattr(layer, f"{declared}_regularizer"),
        constraint=getattr(layer, f"{declared}_constraint"),
        name=name,
        **options,
    )


def positive(layer: Any, argument: str, value: Any) -> int:
    """Check that `value` is an integer > 0, and return it."""
    is_integer = hasattr(value, "__index__") and not isinstance(value, bool)
    if not is_integer or value <= 0:
        kind = ArgumentError if is_integer else ArgumentTypeError
        raise kind(
            f"{type(layer).__name__}: the argument `{argument}` must be a positive "
            f"integer; received {value!r}"
        )
    return int(value)


def choice(layer: Any, argument: str, value: T, choices: Iterable[Any]) -> T:
    """Check that `value` is one of `choices`, and return it."""
    if value not in choices:
        raise unknown_choice(f"{type(layer).__name__}: {argument}", value, choices)
    return value


def fraction(layer: Any, argument: str, value: Any) -> float:
    """Check that `value` is in [0, 1], and return it."""
    if not is_real(value) or not 0 <= value <= 1:
        percent = is_real(value) and 1 < value <= 100
        raise ArgumentError(
            f"{type(layer).__name__}: Invalid value received for argument "
            f"`{argument}`. Expected a float value between 0 and 1; received {value!r}"
            f"{f'; did you mean {value / 100:g}?' if percent else ''}"
        )
    return value


_KINDS = ("a non-negative", "a positive")


def extents(
    layer: Any, argument: str, value: Any, rank: int, minimum: int = 1
) -> tuple[int, ...]:
    """Check `value`, an integer or one for each of `rank` axes; return a tuple."""
    values = (value,) * rank if hasattr(value, "__index__") else value
    try:
        values = tuple(map(index, values))
    except TypeError as error:
        raise ArgumentTypeError(
            f"{type(layer).__name__}: {argument} should be {_KINDS[minimum]} integer "
            f"or {rank} of them; received {value!r}"
        ) from error
    if len(values) != rank or min(values) < minimum:
        raise ArgumentError(
            f"{type(layer).__name__}: {argument} should be {_KINDS[minimum]} integer "
            f"or {rank} of them; received {value!r}"
        )
    return values


def static_extent(layer: Any, shape: Any, axis: int = -1) -> int:
    """Return the extent of `shape` along `axis`; raise if it is unknown."""
    if not -len(shape) <= axis < len(shape) or shape[axis] is None:
        raise OutOfRangeError(
            f"{type(layer).__name__} {layer.name!r}: axis {axis} of the input tensor "
            "should have a defined dimension but the layer received an input with "
            f"shape {tuple(shape)}"
        )
    return int(shape[axis])
