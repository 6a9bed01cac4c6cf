"""Logarithms by tables in registers, for processors with AVX-512.

x = 2**e * m with m in [3/4, 3/2), and f = m * r - 1 is small for a short r near 1 / m
from a table: log(x) = e * log(2) - log(r) + log(1 + f). Near 1, r is 1, so that small
results are precise. The instructions that return e and m give the results of 0, of
infinities and of negative numbers.
"""

from __future__ import annotations

from toolkit.backends.numpy.jit.math.tables import has_tables, lookup
from toolkit.backends.numpy.jit.math.vector import Vector, fma, polynomial
from toolkit.definitions.records import record

# The factors r for 16 intervals of m, in the order of the upper bits of its mantissa.
# They are chosen so that their logarithms are within 2**-28.9 of a float32.
_FACTORS = (
    *(1.0, 0.918212890625, 0.869384765625, 0.81494140625),
    *(0.7825927734375, 0.7442626953125, 0.7110595703125, 0.6793212890625),
    *(1.302734375, 1.26025390625, 1.2017822265625, 1.166748046875),
    *(1.1162109375, 1.0821533203125, 1.0433349609375, 1.0),
)
_INDEX_BITS = 4
# The interval [3/4, 3/2) of a mantissa, and NaN for negative numbers.
_THREE_QUARTERS = 0b1011


@record
class _Base:
    """The constants of a logarithm."""

    of_2: float  # the logarithm of 2
    of_factors: tuple[float, ...]  # the logarithms of 1 / r
    coefficients: tuple[float, ...]  # of log(1 + f) / f


# Minimax for the relative error, with coefficients in float32: 2**-28.3 and 2**-26.1.
_NATURAL = _Base(
    of_2=0.6931471805599453,
    of_factors=(
        *(0.0, 0.08532600849866867, 0.13996948301792145, 0.20463906228542328),
        *(0.24514280259609222, 0.2953612208366394, 0.3409990668296814),
        *(0.3866610825061798, -0.26446542143821716, -0.23131321370601654),
        *(-0.1838056445121765, -0.15422043204307556, -0.10993985831737518),
        *(-0.07895287126302719, -0.042422275990247726, 0.0),
    ),
    coefficients=(
        *(1.0, -0.5, 0.3333447575569153, -0.25009334087371826),
        0.18886692821979523,
    ),
)
_BINARY = _Base(
    of_2=1.0,
    of_factors=(
        *(0.0, 0.12309940904378891, 0.20193327963352203, 0.29523175954818726),
        *(0.3536663055419922, 0.4261161684989929, 0.4919576644897461),
        *(0.5578340291976929, -0.38154295086860657, -0.33371442556381226),
        *(-0.2651754915714264, -0.22249305248260498, -0.15860968828201294),
        *(-0.1139049157500267, -0.061202406883239746, 0.0),
    ),
    coefficients=(
        *(1.4426950216293335, -0.7213475108146667, 0.4809192419052124),
        *(-0.3608143925666809, 0.2716611921787262),
    ),
)


def has_log_tables(x: Vector) -> bool:
    """Return whether logarithms of a vector are computed by tables."""
    return x.value.dtype == "float32" and has_tables(x)


def natural_log(x: Vector) -> Vector:
    """Return the natural logarithm of a register."""
    return _log(x, _NATURAL)


def binary_log(x: Vector) -> Vector:
    """Return the logarithm to base 2 of a register."""
    return _log(x, _BINARY)


def _log(x: Vector, base: _Base) -> Vector:
    m = _call("getmant", x, _THREE_QUARTERS)
    # The exponent of m is 0 or -1.
    e = _call("getexp", x) - _call("getexp", m)
    index = m.bits() >> (m.format.mantissa - _INDEX_BITS)
    f = fma(m, lookup(index, _FACTORS), -1.0)
    start = fma(e, base.of_2, lookup(index, base.of_factors))
    return fma(f, polynomial(f, base.coefficients), start)


def _call(name: str, x: Vector, selection: int | None = None) -> Vector:
    """Call an instruction on one register."""
    b, kind = x.builder, x.value.type
    function = f"@llvm.x86.avx512.mask.{name}.ps.512"
    middle, given = ("", "") if selection is None else ("i32, ", f"i32 {selection}, ")
    b.declarations.add(f"declare {kind} {function}({kind}, {middle}{kind}, i16, i32)")
    # All lanes, without exceptions.
    text = f"call {kind} {function}({kind} {x.value}, {given}"
    text += f"{kind} zeroinitializer, i16 -1, i32 4)"
    return Vector(b, b.let(text, x.value.dtype, x.value.lanes))
