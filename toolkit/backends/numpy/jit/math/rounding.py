"""Rounding to integers, for processors without instructions for it.

Adding 2**mantissa to a smaller number rounds it to an integer, ties to even. Larger
numbers are integers.
"""

from __future__ import annotations

from collections.abc import Callable

from toolkit.backends.numpy.jit.math.vector import Vector, absolute, copysign
from toolkit.backends.numpy.jit.processor import current


def _nearest(x: Vector) -> Vector:
    """Return the nearest integer, ties to even."""
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
    """Return x rounded by the intrinsic of this name, or by equivalent code."""
    if current().has_rounding:
        return x.intrinsic(name)
    return _FUNCTIONS[name](x)


def is_rounding(name: str) -> bool:
    """Return whether an intrinsic rounds to integers."""
    return name in _FUNCTIONS
