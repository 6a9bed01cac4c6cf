"""Integer division, divisors and shifts with the results of NumPy, without traps.

Quotients are rounded down, and are 0 for a divisor of 0. A shift by a negative number
of bits, or by at least the width of the dtype, keeps only the sign.
"""

from __future__ import annotations

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import Builder, Value
from toolkit.backends.numpy.jit.math.rare_lanes import loop_over_lanes
from toolkit.backends.numpy.jit.math.vector import Vector


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


def gcd(b: Builder, x: Value, y: Value) -> Value:
    """Return the greatest common divisor, by Stein's algorithm.

    A step subtracts the smaller odd number from the larger one, and removes all factors
    of 2 from the difference. Processors have no division of integer vectors.
    """
    # Processors shift lanes of at least 32 bits by different counts.
    dtype = x.dtype
    wide = dtype if dtypes.itemsize(dtype) >= 4 else "int32"
    u, v = (_magnitude(b, z, wide) for z in (x, y))
    common = _trailing_zeros(u | v)
    is_zero = u.equals(0)
    u, v = v.where(is_zero, u), u.where(is_zero, v)

    def step(u: Vector, v: Vector) -> tuple[list[Vector], Vector]:
        v = _shifted("lshr", v, _trailing_zeros(v))
        smaller, larger = u.intrinsic("umin", v), u.intrinsic("umax", v)
        is_zero = v.equals(0)
        return [u.where(is_zero, smaller), v.where(is_zero, larger - smaller)], ~is_zero

    odd = _shifted("lshr", u, _trailing_zeros(u))
    divisor = _shifted("shl", loop_over_lanes([odd, v], step)[0], common).value
    return divisor if wide == dtype else b.convert("trunc", divisor, dtype)


def _magnitude(b: Builder, x: Value, dtype: str) -> Vector:
    """Return the absolute value as a number without a sign, in a wider dtype."""
    is_unsigned = x.dtype.startswith("u")
    if dtype != x.dtype:
        x = b.convert("zext" if is_unsigned else "sext", x, dtype)
    vector = Vector(b, x)
    if is_unsigned:
        return vector
    return vector.intrinsic("smax", vector.constant(0) - vector)


def _trailing_zeros(x: Vector) -> Vector:
    """Return the number of zero bits below the lowest one; 0 of 0."""
    # x - 1 and not x contain these bits only, without an instruction that counts them.
    ones = ((x - 1) & ~x).intrinsic("ctpop")
    return ones & (8 * dtypes.itemsize(x.value.dtype) - 1)


def _shifted(instruction: str, x: Vector, count: Vector) -> Vector:
    return Vector(x.builder, x.builder.binary(instruction, x.value, count.value))


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
