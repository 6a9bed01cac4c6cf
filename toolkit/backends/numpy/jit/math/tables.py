"""Tables in registers, for processors with AVX-512: exp, exp2 and reciprocals.

A permutation of the 16 lanes of a register is a lookup in a table of 16 floats. Then
a shorter polynomial is precise enough. `scalef` multiplies by a power of two, also if
the result is denormal, infinite or 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from toolkit.backends.numpy.jit.builder import TYPES, literal, vector_type
from toolkit.backends.numpy.jit.math.vector import Vector, fma
from toolkit.backends.numpy.jit.processor import current

_LANES = 16
# The table has 2**(j / 16). exp(r) - 1 = r + r**2 * (c0 + c1 * r) for
# |r| <= log(2) / 32, and 2**f - 1 = f * (c0 + ...) for |f| <= 1/32. Minimax for the
# relative errors of the exponentials: 2**-29.2 for both, with coefficients in float32.
_POWERS = tuple(2.0 ** (j / _LANES) for j in range(_LANES))
_POWERS_LOW = tuple(x - float(np.float32(x)) for x in _POWERS)
_EXP = (0.5000161528587341, 0.1666681468486786)
_EXP2 = (0.6931471824645996, 0.24023428559303284, 0.055502135306596756)
# Adding it rounds a number to a multiple of 1/16, whose numerator is in the low bits.
_SHIFT = 1.5 * 2.0**23 / _LANES
_INVERSE_LOG_2 = 1.4426950408889634
# log(2) as the nearest float32 and its rounding error.
_LOG_2, _LOG_2_LOW = 0.6931471824645996, -1.9046542121259336e-09


def has_tables(x: Vector) -> bool:
    """Return whether registers with a permutation of 16 floats exist for a dtype."""
    return x.value.dtype == "float32" and current().has("avx512f")


def in_registers(function: Callable[..., Vector], *xs: Vector) -> Vector:
    """Apply a function of whole registers to vectors of any number of lanes.

    So a function has the same bits in vectors of any length.
    """
    lanes = xs[0].value.lanes
    if lanes == _LANES:
        return function(*xs)
    if lanes > _LANES:
        halves = (range(lanes // 2), range(lanes // 2, lanes))
        first, second = (
            in_registers(function, *(_shuffled(x, x, half) for x in xs))
            for half in halves
        )
        return _shuffled(first, second, range(lanes))
    padded = [_padded(x) for x in xs]
    y = function(*padded)
    if lanes:
        return _shuffled(y, y, range(lanes))
    b, value = y.builder, y.value
    text = f"extractelement {value.type} {value}, i64 0"
    return Vector(b, b.let(text, value.dtype))


def _padded(x: Vector) -> Vector:
    """Return a register whose first lanes are a vector."""
    if x.value.lanes:
        lanes = [min(lane, x.value.lanes - 1) for lane in range(_LANES)]
        return _shuffled(x, x, lanes)
    b, kind = x.builder, vector_type(TYPES[x.value.dtype], _LANES)
    text = f"insertelement {kind} poison, {x.value.type} {x.value}, i64 0"
    first = Vector(b, b.let(text, x.value.dtype, _LANES))
    return _shuffled(first, first, [0] * _LANES)


def _shuffled(x: Vector, y: Vector, lanes: Sequence[int]) -> Vector:
    """Return lanes of x, followed by y."""
    numbers = ", ".join(f"i32 {lane}" for lane in lanes)
    kind = x.value.type
    text = f"shufflevector {kind} {x.value}, {kind} {y.value}, "
    text += f"<{len(lanes)} x i32> <{numbers}>"
    return Vector(x.builder, x.builder.let(text, x.value.dtype, len(lanes)))


def lookup(index: Vector, table: Sequence[float]) -> Vector:
    """Return the elements of a table of 16 floats at the low 4 bits of an index."""
    b, kind = index.builder, index.value.type.replace("i32", "float")
    function = "@llvm.x86.avx512.permvar.sf.512"
    b.declarations.add(f"declare {kind} {function}({kind}, {index.value.type})")
    elements = ", ".join(f"float {literal(x, 'float32')}" for x in table)
    arguments = f"{kind} <{elements}>, {index.value.type} {index.value}"
    return Vector(b, b.let(f"call {kind} {function}({arguments})", "float32", _LANES))


def scaled(x: Vector, exponent: Vector, mask: Vector | None = None) -> Vector:
    """Return x * 2**floor(exponent), rounded once; 0 where a mask is false."""
    b, kind = x.builder, x.value.type
    function = "@llvm.x86.avx512.mask.scalef.ps.512"
    types = ", ".join([kind] * 3)
    b.declarations.add(f"declare {kind} {function}({types}, i16, i32)")
    bits = "-1"
    if mask is not None:
        text = f"bitcast {mask.value.type} {mask.value} to i16"
        bits = b.let(text, "int16").text
    operands = ", ".join(f"{kind} {v}" for v in (x.value, exponent.value))
    # The current rounding mode.
    text = (
        f"call {kind} {function}({operands}, {kind} zeroinitializer, i16 {bits}, i32 4)"
    )
    return Vector(b, b.let(text, "float32", _LANES))


def precise_exp(x: Vector, offset: float = 0.0) -> Vector:
    """Return e**x * 2**offset, with an error of 0.6 units in the last place."""
    shifted, n, r = _reduced(x)
    power, power_low = (
        lookup(shifted.bits(), table) for table in (_POWERS, _POWERS_LOW)
    )
    y = power + fma(power, _exp_minus_1(r), power_low)
    return scaled(y, n + offset if offset else n)


def exp_parts(x: Vector, low: Vector | None = None) -> tuple[Vector, Vector]:
    """Return y and n with e**(x + low) = y * 2**floor(n)."""
    shifted, n, r = _reduced(x, low)
    return _times_power(_exp_minus_1(r), shifted), n


def _reduced(x: Vector, low: Vector | None = None) -> tuple[Vector, Vector, Vector]:
    """Return n, with its numerator in the low bits and as a number, and r.

    x + low = n * log(2) + r, with multiples n of 1/16.
    """
    shifted = fma(x, _INVERSE_LOG_2, _SHIFT)
    n = shifted - _SHIFT
    r = fma(n, -_LOG_2, x)
    return shifted, n, fma(n, -_LOG_2_LOW, r if low is None else r + low)


def _exp_minus_1(r: Vector) -> Vector:
    return fma(r * r, fma(r, _EXP[1], _EXP[0]), r)


def exp2_parts(x: Vector) -> tuple[Vector, Vector]:
    """Return y and n with 2**x = y * 2**floor(n)."""
    shifted = x + _SHIFT
    n = shifted - _SHIFT
    f = x - n
    y = f * fma(f, fma(f, _EXP2[2], _EXP2[1]), _EXP2[0])
    return _times_power(y, shifted), n


def _times_power(y: Vector, shifted: Vector) -> Vector:
    """Return (1 + y) * 2**(j / 16), for j in the low bits of a shifted number."""
    power = lookup(shifted.bits(), _POWERS)
    return fma(power, y, power)


def reaches(x: Vector, limit: float) -> Vector:
    """Return whether x >= limit or x is NaN."""
    operand = x.constant(limit).value
    return Vector(x.builder, x.builder.binary("fcmp uge", x.value, operand, "bool"))


def reciprocal(x: Vector) -> Vector:
    """Return 1 / x for finite normal numbers, by a step of Newton's method.

    Results that are denormal can be 0. A division takes three times as long.
    """
    y = estimate("rcp14", x)
    return fma(fma(-x, y, 1.0), y, y)


def square_root(x: Vector) -> Vector:
    """Return the square root of finite normal numbers, by a step of Newton's method."""
    inverse = estimate("rsqrt14", x)
    y = x * inverse
    return fma(fma(-y, inverse * 0.5, 0.5), y, y)


def estimate(name: str, x: Vector) -> Vector:
    """Return the result of an instruction with a relative error of 2**-14."""
    b, kind = x.builder, x.value.type
    function = f"@llvm.x86.avx512.{name}.ps.512"
    b.declarations.add(f"declare {kind} {function}({kind}, {kind}, i16)")
    text = f"call {kind} {function}({kind} {x.value}, {kind} zeroinitializer, i16 -1)"
    return Vector(b, b.let(text, "float32", _LANES))
