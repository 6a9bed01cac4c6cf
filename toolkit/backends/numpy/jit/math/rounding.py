"""Rounding to integers, where the processor has no instruction for it.

Adding 2**mantissa to a number that is smaller rounds it to an integer, ties to even;
larger ones are integers.
"""

from __future__ import annotations

from collections.abc import Callable

from toolkit.backends.numpy.jit.math.vector import Vector, absolute, copysign
from toolkit.backends.numpy.jit.processor import current


def _nearest(x: Vector) -> Vector:
    """The nearest integer, the even one of two."""
    large = 2.0**x.format.mantissa
    a = absolute(x)
    return copysign(((a + large) - large).where(a < large, a), x)


def _down(x: Vector) -> Vector:
    near = _nearest(x)
    return copysign((near - 1.0).where(near > x, near), x)


def _up(x: Vector) -> Vector:
    near = _nearest(x)
    return copysign((near + 1.0).where(near < x, near), x)


def _towards_zero(x: Vector) -> Vector:
    return copysign(_down(absolute(x)), x)


_FUNCTIONS: dict[str, Callable[[Vector], Vector]] = {
    "roundeven": _nearest,
    "floor": _down,
    "ceil": _up,
    "trunc": _towards_zero,
}


def rounded(name: str, x: Vector) -> Vector:
    """x rounded by the intrinsic of this name, or by what does the same."""
    if current().has_rounding:
        return x.intrinsic(name)
    return _FUNCTIONS[name](x)


def is_rounding(name: str) -> bool:
    """Whether an intrinsic rounds to integers."""
    return name in _FUNCTIONS
