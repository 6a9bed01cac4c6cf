"""Integer division and shifts with the results of NumPy, without traps.

Quotients are rounded down, and are 0 for a divisor of 0. A shift by a negative number
of bits, or by at least the width of the dtype, keeps only the sign.
"""

from __future__ import annotations

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import Builder, Value


def floor_divide(b: Builder, x: Value, y: Value) -> Value:
    """Return x // y."""
    return _divide(b, x, y)[0]


def remainder(b: Builder, x: Value, y: Value) -> Value:
    """Return x - x // y * y, with the sign of y; 0 if y is 0."""
    return _divide(b, x, y)[1]


def _divide(b: Builder, x: Value, y: Value) -> tuple[Value, Value]:
    """Return the quotient and the remainder."""
    zero, one = b.constant(0, x), b.constant(1, x)
    none = _compare(b, "eq", y, zero)
    divisor = b.select(none, one, y)
    if x.dtype.startswith("u"):
        quotient = b.binary("udiv", x, divisor)
        remainder = b.binary("urem", x, divisor)
    else:
        # The smallest integer divided by -1 would overflow and trap.
        negated = _compare(b, "eq", y, b.constant(-1, y))
        divisor = b.select(negated, one, divisor)
        quotient = b.binary("sdiv", x, divisor)
        remainder = b.binary("srem", x, divisor)
        differs = _compare(b, "slt", b.binary("xor", remainder, divisor), zero)
        below = b.binary("and", differs, _compare(b, "ne", remainder, zero))
        quotient = b.select(below, b.binary("sub", quotient, one), quotient)
        remainder = b.select(below, b.binary("add", remainder, divisor), remainder)
        quotient = b.select(negated, b.binary("sub", zero, x), quotient)
        remainder = b.select(negated, zero, remainder)
    return b.select(none, zero, quotient), b.select(none, zero, remainder)


def left_shift(b: Builder, x: Value, y: Value) -> Value:
    """Return x << y."""
    within, count = _shift_count(b, x, y)
    return b.select(within, b.binary("shl", x, count), b.constant(0, x))


def right_shift(b: Builder, x: Value, y: Value) -> Value:
    """Return x >> y."""
    within, count = _shift_count(b, x, y)
    if x.dtype.startswith("u"):
        return b.select(within, b.binary("lshr", x, count), b.constant(0, x))
    last = b.constant(8 * dtypes.itemsize(x.dtype) - 1, x)
    return b.binary("ashr", x, b.select(within, count, last))


def _shift_count(b: Builder, x: Value, y: Value) -> tuple[Value, Value]:
    """Return whether a shift count is in range, and a count that is in range."""
    within = _compare(b, "ult", y, b.constant(8 * dtypes.itemsize(x.dtype), y))
    return within, b.select(within, y, b.constant(0, y))


def _compare(b: Builder, predicate: str, x: Value, y: Value) -> Value:
    return b.binary(f"icmp {predicate}", x, y, "bool")
