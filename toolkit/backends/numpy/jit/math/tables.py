"""Tables in registers, for processors with AVX-512: exp, exp2 and reciprocals.

A permutation of the lanes of a register is a lookup in a table of 16 floats, or of 8
doubles. Then a shorter polynomial is precise enough. `scalef` multiplies by a power of
two, also if the result is denormal, infinite or 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from toolkit.backends.numpy.jit.builder import TYPES, literal, vector_type
from toolkit.backends.numpy.jit.math.vector import Vector, fma, polynomial
from toolkit.backends.numpy.jit.processor import current
from toolkit.definitions.records import record


@record
class _Constants:
    """The constants of one dtype.

    The table has 2**(j / count). exp(r) - 1 = r + r**2 * (e0 + e1 * r + ...) for
    |r| <= log(2) / (2 * count), and 2**f - 1 = f * (b0 + ...) for |f| up to half of
    1 / count.
    """

    count: int  # lanes of a register, and elements of the table
    suffix: str  # of instructions
    table_suffix: str
    exp: tuple[float, ...]
    exp2: tuple[float, ...]
    log_2: tuple[float, float]  # log(2) and its rounding error
    steps: int  # of Newton's method after an estimate with 14 bits

    @property
    def powers(self) -> tuple[float, ...]:
        """The powers of two in the table."""
        return tuple(2.0 ** (j / self.count) for j in range(self.count))


# Nearly minimax for the relative errors of the exponentials: 2**-29.2 with coefficients
# in float32, and 2**-56.5 and 2**-59.2.
_CONSTANTS = {
    "float32": _Constants(
        count=16,
        suffix="ps",
        table_suffix="sf",
        exp=(0.5000161528587341, 0.1666681468486786),
        exp2=(0.6931471824645996, 0.24023428559303284, 0.055502135306596756),
        log_2=(0.6931471824645996, -1.9046542121259336e-09),
        steps=1,
    ),
    "float64": _Constants(
        count=8,
        suffix="pd",
        table_suffix="df",
        exp=(
            *(0.5000000000000051, 0.16666666666666724, 0.0416666666175068),
            *(0.008333333327871156, 0.0013889587247893672, 0.0001984204579240919),
        ),
        exp2=(
            *(0.6931471805599453, 0.24022650695910072, 0.055504108664823096),
            *(0.009618129107628583, 0.0013333558127006922, 0.00015403530379919707),
            *(1.5253529144731806e-05, 1.3216038076132734e-06),
        ),
        log_2=(0.6931471805599453, 2.3190468138462996e-17),
        steps=2,
    ),
}
_INVERSE_LOG_2 = 1.4426950408889634


def has_tables(x: Vector) -> bool:
    """Return whether registers with a permutation of a table exist."""
    return x.value.dtype in _CONSTANTS and current().has("avx512f")


def constants_of(x: Vector) -> _Constants:
    """Return the constants of a vector of floats, or of the bits of floats."""
    is_wide = x.value.dtype in ("float64", "int64")
    return _CONSTANTS["float64" if is_wide else "float32"]


def in_registers(function: Callable[..., Vector], *xs: Vector) -> Vector:
    """Apply a function of whole registers to vectors of any number of lanes.

    So a function has the same bits in vectors of any length.
    """
    lanes, count = xs[0].value.lanes, constants_of(xs[0]).count
    if lanes == count:
        return function(*xs)
    if lanes > count:
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
    count = constants_of(x).count
    if x.value.lanes:
        lanes = [min(lane, x.value.lanes - 1) for lane in range(count)]
        return _shuffled(x, x, lanes)
    b, kind = x.builder, vector_type(TYPES[x.value.dtype], count)
    text = f"insertelement {kind} poison, {x.value.type} {x.value}, i64 0"
    first = Vector(b, b.let(text, x.value.dtype, count))
    return _shuffled(first, first, [0] * count)


def _shuffled(x: Vector, y: Vector, lanes: Sequence[int]) -> Vector:
    """Return lanes of x, followed by y."""
    numbers = ", ".join(f"i32 {lane}" for lane in lanes)
    kind = x.value.type
    text = f"shufflevector {kind} {x.value}, {kind} {y.value}, "
    text += f"<{len(lanes)} x i32> <{numbers}>"
    return Vector(x.builder, x.builder.let(text, x.value.dtype, len(lanes)))


def lookup(index: Vector, table: Sequence[float]) -> Vector:
    """Return the elements of a table at the low bits of an index."""
    b, numbers = index.builder, constants_of(index)
    dtype = "float64" if numbers.suffix == "pd" else "float32"
    kind = vector_type(TYPES[dtype], numbers.count)
    function = f"@llvm.x86.avx512.permvar.{numbers.table_suffix}.512"
    b.declarations.add(f"declare {kind} {function}({kind}, {index.value.type})")
    elements = ", ".join(f"{TYPES[dtype]} {literal(x, dtype)}" for x in table)
    arguments = f"{kind} <{elements}>, {index.value.type} {index.value}"
    text = f"call {kind} {function}({arguments})"
    return Vector(b, b.let(text, dtype, numbers.count))


def scaled(x: Vector, exponent: Vector, mask: Vector | None = None) -> Vector:
    """Return x * 2**floor(exponent), rounded once; 0 where a mask is false."""
    b, kind, numbers = x.builder, x.value.type, constants_of(x)
    function = f"@llvm.x86.avx512.mask.scalef.{numbers.suffix}.512"
    types, bits_type = ", ".join([kind] * 3), f"i{numbers.count}"
    b.declarations.add(f"declare {kind} {function}({types}, {bits_type}, i32)")
    bits = "-1"
    if mask is not None:
        text = f"bitcast {mask.value.type} {mask.value} to {bits_type}"
        bits = b.let(text, f"int{numbers.count}").text
    operands = ", ".join(f"{kind} {v}" for v in (x.value, exponent.value))
    # The current rounding mode.
    text = f"call {kind} {function}({operands}, {kind} zeroinitializer, "
    text += f"{bits_type} {bits}, i32 4)"
    return Vector(b, b.let(text, x.value.dtype, x.value.lanes))


def precise_exp(x: Vector, offset: float = 0.0) -> Vector:
    """Return e**x * 2**offset, with an error of 0.6 units in the last place in float32.

    In float64 the error is 1.1 units.
    """
    shifted, n, r = _reduced(x)
    y = _exp_minus_1(r)
    if x.value.dtype == "float64":
        y = _times_power(y, shifted)
    else:
        powers = constants_of(x).powers
        low = tuple(power - float(np.float32(power)) for power in powers)
        tables = powers, low
        power, power_low = (lookup(shifted.bits(), table) for table in tables)
        y = power + fma(power, y, power_low)
    return scaled(y, n + offset if offset else n)


def exp_parts(x: Vector, low: Vector | None = None) -> tuple[Vector, Vector]:
    """Return y and n with e**(x + low) = y * 2**floor(n)."""
    shifted, n, r = _reduced(x, low)
    return _times_power(_exp_minus_1(r), shifted), n


def _shift_of(x: Vector) -> float:
    """Return a number: adding it to a number rounds it to a multiple of 1 / count.

    The low bits of the sum are the numerator.
    """
    return x.format.shift / constants_of(x).count


def _reduced(x: Vector, low: Vector | None = None) -> tuple[Vector, Vector, Vector]:
    """Return n, with its numerator in the low bits and as a number, and r.

    x + low = n * log(2) + r, with multiples n of 1 / count.
    """
    shift = _shift_of(x)
    shifted = fma(x, _INVERSE_LOG_2, shift)
    n = shifted - shift
    log_2, log_2_low = constants_of(x).log_2
    r = fma(n, -log_2, x)
    return shifted, n, fma(n, -log_2_low, r if low is None else r + low)


def _exp_minus_1(r: Vector) -> Vector:
    return fma(r * r, polynomial(r, constants_of(r).exp), r)


def exp2_parts(x: Vector) -> tuple[Vector, Vector]:
    """Return y and n with 2**x = y * 2**floor(n)."""
    shift = _shift_of(x)
    shifted = x + shift
    n = shifted - shift
    f = x - n
    return _times_power(f * polynomial(f, constants_of(x).exp2), shifted), n


def _times_power(y: Vector, shifted: Vector) -> Vector:
    """Return (1 + y) * 2**(j / count), for j in the low bits of a shifted number."""
    power = lookup(shifted.bits(), constants_of(y).powers)
    return fma(power, y, power)


def reaches(x: Vector, limit: float) -> Vector:
    """Return whether x >= limit or x is NaN."""
    operand = x.constant(limit).value
    return Vector(x.builder, x.builder.binary("fcmp uge", x.value, operand, "bool"))


def reciprocal(x: Vector) -> Vector:
    """Return 1 / x for finite normal numbers, by Newton's method.

    Results that are denormal can be 0. A division takes three times as long.
    """
    y = estimate("rcp14", x)
    for _ in range(constants_of(x).steps):
        y = fma(fma(-x, y, 1.0), y, y)
    return y


def square_root(x: Vector) -> Vector:
    """Return the square root of finite normal numbers, by Newton's method."""
    inverse = estimate("rsqrt14", x)
    y, half = x * inverse, inverse * 0.5
    for step in range(constants_of(x).steps):
        error = fma(-y, half, 0.5)
        y = fma(y, error, y)
        if step + 1 < constants_of(x).steps:
            half = fma(half, error, half)
    return y


def estimate(name: str, x: Vector) -> Vector:
    """Return the result of an instruction with a relative error of 2**-14."""
    b, kind, numbers = x.builder, x.value.type, constants_of(x)
    function = f"@llvm.x86.avx512.{name}.{numbers.suffix}.512"
    mask = f"i{numbers.count}"
    b.declarations.add(f"declare {kind} {function}({kind}, {kind}, {mask})")
    text = (
        f"call {kind} {function}({kind} {x.value}, {kind} zeroinitializer, {mask} -1)"
    )
    return Vector(b, b.let(text, x.value.dtype, x.value.lanes))
