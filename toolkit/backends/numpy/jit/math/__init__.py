"""Elementary functions of scalars or vectors, as instructions of a builder.

    y = of_vectors(FLOATS["exp"], builder, x)

x is a `Value` of dtype float32 or float64 with any number of lanes. Lanes are
independent. All results have an error of at most 2 units in the last place (float32) or
4 (float64). The exception is `sigmoid`, which can be 0 instead of a denormal number.
Infinities, NaN, signed zeros and denormals have the results of NumPy. `floor_divide`
and `remainder` are exact. Functions with code for rare lanes end the current basic
block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolkit.backends.numpy.jit.builder import Builder, Value
from toolkit.backends.numpy.jit.math import (
    division,
    error_function,
    exponential,
    hyperbolic,
    incomplete_gamma,
    integers,
    inverse_trigonometric,
    logarithm,
    powers,
    trigonometric,
)
from toolkit.backends.numpy.jit.math.vector import Vector
from toolkit.ir.scalars import SCALARS

_MODULES = (
    *(division, error_function, exponential, hyperbolic, incomplete_gamma),
    *(inverse_trigonometric, logarithm, powers, trigonometric),
)
# By the name of the scalar operation: functions of float vectors, and functions of a
# builder and integers.
FLOATS: dict[str, Callable[..., Vector]] = {
    name: getattr(module, name)
    for module in _MODULES
    for name in SCALARS
    if hasattr(module, name)
}
INTEGERS: dict[str, Callable[[Builder, Value, Value], Value]] = {
    name: getattr(integers, name) for name in SCALARS if hasattr(integers, name)
}


def of_vectors(function: Callable[..., Any], b: Builder, *xs: Value) -> Value:
    """Apply a function of vectors to values of a builder."""
    result: Vector = function(*(Vector(b, x) for x in xs))
    return result.value
