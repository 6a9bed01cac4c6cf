"""sin and cos.

x = n * pi/2 + r with |r| <= pi/4, in three steps (Cody and Waite): with exact products
the first is exact and the others round what they leave, so r is precise
also where it is small. Beyond `limit`, where pi/2 would need more parts, the lanes
concerned take the C library's function: rare, and as slow as it is there.
"""

from __future__ import annotations

from dataclasses import dataclass

from toolkit.backends.numpy.jit.builder import Value
from toolkit.backends.numpy.jit.math.vector import (
    Vector,
    absolute,
    exact_fma,
    fma,
    polynomial,
)

TWO_OVER_PI = 0.6366197723675814


@dataclass(frozen=True)
class _Constants:
    """The numbers of one dtype; pi/2 is the sum of its parts."""

    parts: tuple[float, float, float]
    limit: float
    sine: tuple[float, ...]  # (sin(r) / r - 1) / z, in z = r**2
    cosine: tuple[float, ...]  # (cos(r) - 1 + z / 2) / z**2, in z


# Minimax for the relative errors of sin and cos on |r| <= pi/4, found by a Remez
# exchange in 250-bit arithmetic and rounded: 2**-27.8 and 2**-32.9 (float32),
# 2**-57.8 and 2**-63.8 (float64).
_CONSTANTS = {
    "float32": _Constants(
        parts=(1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
        limit=2.0**17,
        sine=(-0.16666654, 0.008332106, -0.0001950789),
        cosine=(0.041666646, -0.0013887305, 2.4431425e-05),
    ),
    "float64": _Constants(
        parts=(1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
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
    ),
}


def sin(x: Vector) -> Vector:
    """The sine of x radians."""
    # The polynomial would lose the sign of 0.
    return _with_library("sin", x, x.where(x.equals(0.0), _rotated(x, 0)))


def cos(x: Vector) -> Vector:
    """The cosine of x radians."""
    return _with_library("cos", x, _rotated(x, 1))


def _rotated(x: Vector, quarters: int) -> Vector:
    """sin(x + quarters * pi/2) for |x| up to the limit."""
    numbers = _CONSTANTS[x.value.dtype]
    shifted = fma(x, TWO_OVER_PI, x.format.shift)
    n = shifted - x.format.shift
    r = x
    for part in numbers.parts:
        r = exact_fma(n, -part, r)
    z = r * r
    sine = fma(r * z, polynomial(z, numbers.sine), r)
    cosine = fma(z * z, polynomial(z, numbers.cosine), fma(z, -0.5, 1.0))
    quadrant = shifted.bits() + quarters
    y = sine.where((quadrant & 1).equals(0), cosine)
    # Bit 1 of the quadrant becomes the sign.
    width = 32 if x.value.dtype == "float32" else 64
    sign = (quadrant & 2) << (width - 2)
    return (y.bits() ^ sign).convert("bitcast", x.value.dtype)


def _with_library(name: str, x: Vector, fast: Vector) -> Vector:
    """`fast`, and where |x| is beyond the limit, the C library's function."""
    b = x.builder
    large = absolute(x) > _CONSTANTS[x.value.dtype].limit
    slow_block, done, before = b.fresh("large"), b.fresh("done"), b.block
    b.emit(f"br i1 {_any(large).text}, label %{slow_block}, label %{done}")
    b.label(slow_block)
    mixed = x.intrinsic(name).where(large, fast).value
    after = b.block
    b.emit(f"br label %{done}")
    b.label(done)
    phi = f"phi {mixed.type} [ {fast.value.text}, %{before} ], "
    phi += f"[ {mixed.text}, %{after} ]"
    return Vector(b, b.let(phi, mixed.dtype, mixed.lanes))


def _any(condition: Vector) -> Value:
    """Whether a condition holds in any lane."""
    b, value = condition.builder, condition.value
    if not value.lanes:
        return value
    function = f"i1 @llvm.vector.reduce.or.v{value.lanes}i1"
    b.declarations.add(f"declare {function}({value.type})")
    return b.let(f"call {function}({value.type} {value.text})", "bool")
