"""Functions of one element, or of a vector of them, as instructions of a builder.

    y = exp(builder, x)

x is a `Value` of dtype float32 or float64 with any number of lanes; what a lane
holds never depends on the others. The results are within 2 units in the last place
(float32) or 4 (float64) everywhere, with NumPy's values at infinities, NaN, signed
zeros and denormals. `sin` and `cos` end the current basic block.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from toolkit.backends.numpy.jit.builder import Builder, Value
from toolkit.backends.numpy.jit.math import (
    error_function,
    exponential,
    integers,
    logarithm,
    powers,
    trigonometric,
)
from toolkit.backends.numpy.jit.math.vector import Vector


def _unary(function: Callable[[Vector], Vector]) -> Callable[[Builder, Value], Value]:
    """The function of a vector as a function of a builder and a value."""

    @functools.wraps(function)
    def emit(b: Builder, x: Value) -> Value:
        return function(Vector(b, x)).value

    return emit


exp = _unary(exponential.exp)
expm1 = _unary(exponential.expm1)
tanh = _unary(exponential.tanh)
sigmoid = _unary(exponential.sigmoid)
log = _unary(logarithm.log)
log1p = _unary(logarithm.log1p)
erf = _unary(error_function.erf)
sin = _unary(trigonometric.sin)
cos = _unary(trigonometric.cos)


def power(b: Builder, x: Value, y: Value) -> Value:
    """x**y, of two values of one type, with the special cases of C's pow."""
    return powers.power(Vector(b, x), Vector(b, y)).value
