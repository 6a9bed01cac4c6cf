"""sin, cos and tan.

x = n * pi/2 + r with |r| <= pi/4, in three steps (Cody and Waite). With exact products
the first step is exact, and the other steps round only the rest. r is therefore precise
even if it is small. Above `limit`, pi/2 would need more parts. Such lanes are reduced
one by one with integers, which is rare and slow (large_angle.ll).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from toolkit.backends.numpy.jit.builder import Builder, Value
from toolkit.backends.numpy.jit.math.rare_lanes import select_rare
from toolkit.backends.numpy.jit.math.tables import (
    has_tables,
    in_registers,
    reciprocal,
)
from toolkit.backends.numpy.jit.math.vector import (
    Vector,
    absolute,
    exact_fma,
    fma,
    polynomial,
)
from toolkit.definitions.records import record

TWO_OVER_PI = 0.6366197723675814


@record
class _Constants:
    """The constants of one dtype; pi/2 is the sum of its parts."""

    terms: tuple[float, float, float]
    limit: float
    sine: tuple[float, ...]  # (sin(r) / r - 1) / z, in z = r**2
    cosine: tuple[float, ...]  # (cos(r) - 1 + z / 2) / z**2, in z
    tangent: tuple[float, ...]  # (tan(r) / r - 1) / z, in z


# Minimax for the relative errors of sin, cos and tan on |r| <= pi/4, found by a Remez
# exchange in 250-bit arithmetic and rounded: 2**-27.8, 2**-32.9 and 2**-27.8 (float32),
# 2**-57.8, 2**-63.8 and 2**-55.8 (float64).
_CONSTANTS = {
    "float32": _Constants(
        terms=(1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
        limit=2.0**17,
        sine=(-0.16666654, 0.008332106, -0.0001950789),
        cosine=(0.041666646, -0.0013887305, 2.4431425e-05),
        tangent=(
            0.3333335,
            0.13332662,
            0.05406006,
            0.021281427,
            0.010837834,
            8.6910855e-05,
            0.0043776003,
        ),
    ),
    "float64": _Constants(
        terms=(1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
        limit=2.0**30,
        sine=(
            -0.1666666666666663,
            0.008333333333321745,
            -0.0001984126982923863,
            2.7557313486806197e-06,
            -2.5050725125800766e-08,
            1.5894843265477335e-10,
        ),
        cosine=(
            0.04166666666666659,
            -0.0013888888888872186,
            2.480158728829539e-05,
            -2.7557314015121823e-07,
            2.0875678084549627e-09,
            -1.135733669492127e-11,
        ),
        tangent=(
            0.33333333333332776,
            0.13333333333414582,
            0.05396825392668716,
            0.021869489608571133,
            0.008863219169809599,
            0.00359228903372066,
            0.001454758207588389,
            0.0005950638705494283,
            0.00022238204496762446,
            0.00013652143095931163,
            -2.6380849071181726e-05,
            8.944776399735044e-05,
            -4.487421899614511e-05,
            2.0862720713266357e-05,
        ),
    ),
}


def sin(x: Vector) -> Vector:
    """Return the sine of x radians."""
    # The polynomial would lose the sign of 0.
    return x.where(x.equals(0.0), _sine_of_rotated(x, 0))


def cos(x: Vector) -> Vector:
    """Return the cosine of x radians."""
    return _sine_of_rotated(x, 1)


def tan(x: Vector) -> Vector:
    """Return the tangent of x radians: an odd polynomial or its inverse."""
    r, n, low = _reduce_angle(x, is_precise=True)
    z = r * r
    tail = polynomial(z, _CONSTANTS[x.value.dtype].tangent)
    y = fma(r * z, tail, r)
    # tan(r + low): the rounding error of r would be too large in the inverse.
    y = r + fma(r * z, tail, low * fma(y, y, 1.0))
    inverse = in_registers(reciprocal, y) if has_tables(x) else 1.0 / y
    y = y.where((n & 1).equals(0), -inverse)
    # The steps of the reduction would lose the sign of 0.
    return x.where(x.equals(0.0), y)


def _sine_of_rotated(x: Vector, quarters: int) -> Vector:
    """Return sin(x + quarters * pi/2)."""
    numbers = _CONSTANTS[x.value.dtype]
    r, n, _ = _reduce_angle(x)
    z = r * r
    sine = fma(r * z, polynomial(z, numbers.sine), r)
    cosine = fma(z * z, polynomial(z, numbers.cosine), fma(z, -0.5, 1.0))
    quadrant = n + quarters
    y = sine.where((quadrant & 1).equals(0), cosine)
    # Bit 1 of the quadrant becomes the sign.
    width = 32 if x.value.dtype == "float32" else 64
    sign = (quadrant & 2) << (width - 2)
    return (y.bits() ^ sign).convert("bitcast", x.value.dtype)


def half_pi(dtype: str) -> tuple[float, float]:
    """Return pi / 2 as the nearest number and its rounding error."""
    high, low, _ = _CONSTANTS[dtype].terms
    return high, low


def _subtract_products(
    x: Vector, n: Vector, second: float, third: float
) -> tuple[Vector, Vector]:
    """Return x - n * second - n * third and its rounding error."""
    product = n * second
    product_low = exact_fma(n, second, -product)
    # The rounding error of the difference (Knuth's two-sum).
    near = x - product
    back = near - x
    error = (x - (near - back)) - (product + back)
    low = exact_fma(n, -third, error - product_low)
    r = near + low
    return r, (near - r) + low


def _reduce_angle(x: Vector, is_precise: bool = False) -> tuple[Vector, Vector, Vector]:
    """Return r, an integer n and the rounding error of r, which is 0 if not precise.

    x = n * pi/2 + r + low; n is exact modulo 4.
    """
    numbers = _CONSTANTS[x.value.dtype]
    shifted = fma(x, TWO_OVER_PI, x.format.shift)
    n = shifted - x.format.shift
    first, second, third = numbers.terms
    exact = exact_fma(n, -first, x)
    if is_precise:
        r, low = _subtract_products(exact, n, second, third)
    else:
        r = exact_fma(n, -third, exact_fma(n, -second, exact))
        low = x.constant(0.0)
    large = absolute(x) > numbers.limit

    def reduce_large_lanes() -> Sequence[Vector]:
        return _reduce_by_lane(x.where(large, 2 * numbers.limit))

    r, n, low = select_rare(large, (r, shifted.bits(), low), reduce_large_lanes)
    return r, n, low


# --- large angles ---------------------------------------------------------------------

_PAIR = "{ double, i64 }"
_WORDS = 39


def _reduce_by_lane(x: Vector) -> Sequence[Vector]:
    """Reduce numbers of at least the limit, lane by lane; see `_reduce_angle`."""
    b, value = x.builder, x.value
    b.declarations |= {
        "declare i64 @llvm.fshl.i64(i64, i64, i64)",
        "declare i64 @llvm.ctlz.i64(i64, i1)",
        _large_angle(),
    }
    if not value.lanes:
        return _reduce_large(b, value)
    result: Sequence[Vector] = Vector(b, value), x.bits(), Vector(b, value)
    for lane in range(value.lanes):
        text = f"extractelement {value.type} {value.text}, i64 {lane}"
        lane_result = _reduce_large(b, b.let(text, value.dtype))
        pairs = zip(result, lane_result, strict=True)
        result = [_insert_lane(y, one, lane) for y, one in pairs]
    return result


def _reduce_large(b: Builder, x: Value) -> Sequence[Vector]:
    """Reduce one number; see `_reduce_angle`."""
    wide = x if x.dtype == "float64" else b.convert("fpext", x, "float64")
    pair = b.let(f"call {_PAIR} @large_angle(double {wide.text})", "float64")
    r = b.let(f"extractvalue {_PAIR} {pair.text}, 0", "float64")
    n = b.let(f"extractvalue {_PAIR} {pair.text}, 1", "int64")
    if x.dtype == "float64":
        return Vector(b, r), Vector(b, n), Vector(b, b.constant(0.0, r))
    narrow = b.convert("fptrunc", r, "float32")
    low = b.binary("fsub", r, b.convert("fpext", narrow, "float64"))
    low, n = b.convert("fptrunc", low, "float32"), b.convert("trunc", n, "int32")
    return Vector(b, narrow), Vector(b, n), Vector(b, low)


def _insert_lane(x: Vector, one: Vector, lane: int) -> Vector:
    value, element = x.value, one.value
    text = f"insertelement {value.type} {value}, {element.type} {element}, i64 {lane}"
    return Vector(x.builder, x.builder.let(text, value.dtype, value.lanes))


@lru_cache(maxsize=1)
def _large_angle() -> str:
    """Return the function that reduces one number."""
    words = [0, 0, *_two_over_pi(_WORDS - 2)]
    text = Path(__file__).with_name("large_angle.ll").read_text(encoding="utf-8")
    listed = ", ".join(f"i32 {word}" for word in words)
    return text.replace("COUNT", str(_WORDS)).replace("WORDS", listed)


def _two_over_pi(count: int) -> list[int]:
    """Return the first 32-bit words of 2 / pi."""
    one = 1 << (32 * count + 64)
    # Machin's formula.
    pi = 4 * (4 * _arctangent_of_inverse(5, one) - _arctangent_of_inverse(239, one))
    bits = 2 * one * one // pi >> 64
    return [bits >> 32 * k & 0xFFFFFFFF for k in reversed(range(count))]


def _arctangent_of_inverse(n: int, one: int) -> int:
    """Return arctan(1 / n) for a fixed-point `one`, by its series."""
    power, total, k = one // n, 0, 1
    while power:
        total += power // k if k % 4 == 1 else -(power // k)
        power //= n * n
        k += 2
    return total
