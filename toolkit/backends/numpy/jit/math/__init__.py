"""Functions of one element, or of a vector of them, as instructions of a builder.

    y = of_vectors(FLOATS["exp"], builder, x)

x is a `Value` of dtype float32 or float64 with any number of lanes; what a lane
holds never depends on the others. The results are within 2 units in the last place
(float32) or 4 (float64) everywhere, but that `sigmoid` may be 0 where it would be
denormal, with NumPy's values at infinities, NaN, signed zeros and denormals;
`floor_divide` and `remainder` are exact. What has code for rare lanes ends the current
basic block.
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
    integers,
    inverse_trigonometric,
    logarithm,
    powers,
    trigonometric,
)
from toolkit.backends.numpy.jit.math.vector import Vector
from toolkit.ir.scalars import SCALARS

_MODULES = (
    *(division, error_function, exponential, hyperbolic, inverse_trigonometric),
    *(logarithm, powers, trigonometric),
)
# By the word of the scalar vocabulary: functions of vectors of floats, and those of a
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
    """A function of vectors, applied to values of a builder."""
    result: Vector = function(*(Vector(b, x) for x in xs))
    return result.value
