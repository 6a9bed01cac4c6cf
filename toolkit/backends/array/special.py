"""erf and erfinv, which NumPy lacks, as sequences of whole-array steps.

Each function computes `y` from `x` (the same memory is allowed) with temporary arrays
of the same shape: `t` of the same dtype, and for selections `mask` (bool) and `bits`
(signed integers of the floats' width).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Array = Any

# float32: Lawson-weighted minimax fits made for this file, lowest power first. erf(x) =
# x + x * P(x * x) for |x| < 1, relative error 1.3e-9.
_ERF_NEAR = (
    *(0.12837916612625122, -0.3761262595653534, 0.1128358542919159),
    *(-0.026853810995817184, 0.005188327748328447, -0.0008010192541405559),
    7.853857823647559e-05,
)
# erf(x) = 1 - exp(-x * Q(x)) for 0.9 < x < 4, relative error 3.1e-9.
_ERF_FAR = (
    *(1.1285200119018555, 0.6356993317604065, 0.10528688132762909),
    *(-0.022906050086021423, 0.003219981910660863, -0.00021459587151184678),
)

# float64: W. J. Cody, "Rational Chebyshev approximations for the error function",
# Mathematics of Computation 23 (1969), lowest power first.
_CODY_A = (
    *(3.20937758913846947e03, 3.77485237685302021e02, 1.13864154151050156e02),
    *(3.16112374387056560e00, 1.85777706184603153e-1),
)
_CODY_B = (
    *(2.84423683343917062e03, 1.28261652607737228e03, 2.44024637934444173e02),
    *(2.36012909523441209e01, 1.0),
)
_CODY_C = (
    *(1.23033935479799725e03, 2.05107837782607147e03, 1.71204761263407058e03),
    *(8.81952221241769090e02, 2.98635138197400131e02, 6.61191906371416295e01),
    *(8.88314979438837594e00, 5.64188496988670089e-1, 2.15311535474403846e-8),
)
_CODY_D = (
    *(1.23033935480374942e03, 3.43936767414372164e03, 4.36261909014324716e03),
    *(3.29079923573345963e03, 1.62138957456669019e03, 5.37181101862009858e02),
    *(1.17693950891312499e02, 1.57449261107098347e01, 1.0),
)

# A fit made for this file: erfinv(x) = x * sqrt(pi) / 2 + x**3 * P(u) / Q(u), where
# u = 0.85**2 - x**2 >= 0, relative error 7e-18; lowest power first.
CENTRE = 0.7225
CENTRE_TOP = (
    *(0.43087250673264127, 4.201820563204975, 15.394057674813292),
    *(26.386038018138105, 21.47081951508021, 7.436472890726531),
    *(0.7913529416109325, 0.0030832688853989474),
)
CENTRE_BOTTOM = (
    *(1.0, 11.257967769621638, 49.46426880880139, 107.5637111706461),
    *(121.35440562349622, 68.12152620947872, 16.559489419051967),
    1.2157854874393477,
)
HALF_SQRT_PI = 0.886226925452758

# Fits made for this file: erfinv(x) = r - P(u) / Q(u), where r = sqrt(-log(t)) for the
# tail t = (1 - |x|) / 2, relative errors 9e-18 and 1.2e-17; lowest power first.
# u = r - 1.6, for r < 5:
TAIL_TOP = (
    *(0.5934779663963121, 1.0060472855735503, 0.6542565480741156),
    *(0.20586195637808663, 0.032119186639628435, 0.00220341585560617),
    *(4.6731300572944305e-05, 4.967925683451051e-08),
)
TAIL_BOTTOM = (
    *(1.0, 2.044908207331215, 1.670960012680532, 0.6979606149518567),
    *(0.1575073998987215, 0.01844577062119559, 0.0009588649233744578),
    1.473940047569564e-05,
)
# u = r - 5, up to r = 27.5, where float64 ends:
FAR_TOP = (
    *(0.29215047808696637, 0.13899654473941425, 0.023882883502031358),
    *(0.0018326301137778736, 6.330042043090346e-05, 8.759044830628005e-07),
    *(3.470896403154704e-09, 5.579839898351035e-13),
)
FAR_BOTTOM = (
    *(1.0, 0.6111786661289466, 0.14347816146954404, 0.016296795738587028),
    *(0.0009310285546296403, 2.537849289198228e-05, 2.826774493486593e-07),
    8.696805967635657e-10,
)


def select(
    xp: Any, c: Array, a: Array, b: Array, out: Array, bits: Array, diff: Array
) -> None:
    """Compute out = a where c else b on bits, faster than a masked copy."""
    integer = bits.dtype
    selected_bits = b.view(integer)
    xp.copyto(bits, c)
    xp.negative(bits, out=bits)
    xp.bitwise_xor(a.view(integer), selected_bits, out=diff)
    xp.bitwise_and(diff, bits, out=diff)
    xp.bitwise_xor(diff, selected_bits, out=out.view(integer))


def _polynomial(xp: Any, coefficients: Sequence[float], x: Array, out: Array) -> None:
    """Evaluate a polynomial by Horner's rule; the lowest power is first."""
    *lower, next_highest, highest = coefficients
    xp.multiply(x, highest, out=out)
    xp.add(out, next_highest, out=out)
    for coefficient in reversed(lower):
        xp.multiply(out, x, out=out)
        xp.add(out, coefficient, out=out)


def _quotient(
    xp: Any, top: Sequence[float], bottom: Sequence[float], x: Array, out: Array, t: Any
) -> None:
    _polynomial(xp, top, x, out)
    _polynomial(xp, bottom, x, t)
    xp.divide(out, t, out=out)


def erf32(xp: Any, x: Array, y: Array, mask: Array, bits: Array, *t: Array) -> None:
    """Compute erf in float32, within 2 units in the last place."""
    size, near, far = t
    xp.multiply(x, x, out=size)
    _polynomial(xp, _ERF_NEAR, size, near)
    xp.multiply(near, x, out=near)
    xp.add(near, x, out=near)
    xp.absolute(x, out=size)
    xp.less(size, 1.0, out=mask)
    xp.minimum(size, 4.0, out=size)
    _polynomial(xp, _ERF_FAR, size, far)
    xp.multiply(far, size, out=far)
    xp.negative(far, out=far)
    xp.exp(far, out=far)
    xp.subtract(1.0, far, out=far)
    xp.copysign(far, x, out=far)
    select(xp, mask, near, far, y, bits, size.view(bits.dtype))


def erf64(xp: Any, x: Array, y: Array, mask: Array, bits: Array, *t: Array) -> None:
    """Compute erf in float64, within 4 units in the last place."""
    size, near, far, spare = t
    xp.multiply(x, x, out=size)
    _quotient(xp, _CODY_A, _CODY_B, size, near, spare)
    xp.multiply(near, x, out=near)
    xp.absolute(x, out=size)
    xp.less(size, 0.5, out=mask)
    xp.minimum(size, 6.0, out=size)
    _quotient(xp, _CODY_C, _CODY_D, size, far, spare)
    xp.multiply(size, size, out=size)
    xp.negative(size, out=size)
    xp.exp(size, out=size)
    xp.multiply(far, size, out=far)
    xp.subtract(1.0, far, out=far)
    xp.copysign(far, x, out=far)
    select(xp, mask, near, far, y, bits, size.view(bits.dtype))


def erfinv64(xp: Any, x: Array, y: Array, mask: Array, bits: Array, *t: Array) -> None:
    """Compute the inverse of erf in float64, within 4 units in the last place."""
    r, near, far, spare, u, v = t
    xp.multiply(x, x, out=u)
    xp.subtract(CENTRE, u, out=r)
    _quotient(xp, CENTRE_TOP, CENTRE_BOTTOM, r, near, spare)
    xp.multiply(near, u, out=near)
    xp.multiply(near, x, out=near)
    xp.multiply(x, HALF_SQRT_PI, out=r)
    xp.add(near, r, out=near)
    xp.absolute(x, out=r)
    xp.subtract(1.0, r, out=r)
    xp.multiply(r, 0.5, out=r)
    xp.log(r, out=r)
    xp.negative(r, out=r)
    xp.sqrt(r, out=r)
    _tail(xp, r, far, mask, bits, spare, u, v)
    xp.copysign(far, x, out=far)
    xp.absolute(x, out=r)
    xp.less_equal(r, 0.85, out=mask)
    select(xp, mask, near, far, y, bits, spare.view(bits.dtype))


def _tail(
    xp: Any, r: Array, y: Array, mask: Array, bits: Array, u: Array, v: Array, w: Array
) -> None:
    """Compute y = erfinv where the tail is exp(-r * r); u, v, w are temporaries."""
    xp.subtract(r, 1.6, out=u)
    _quotient(xp, TAIL_TOP, TAIL_BOTTOM, u, y, v)
    xp.greater(r, 5.0, out=mask)
    if mask.any():
        xp.minimum(r, 28.0, out=u)
        xp.subtract(u, 5.0, out=u)
        _quotient(xp, FAR_TOP, FAR_BOTTOM, u, w, v)
        select(xp, mask, w, y, y, bits, u.view(bits.dtype))
        # Where r is infinite, the result is infinite.
        xp.isinf(r, out=mask)
        xp.copyto(y, 0.0, where=mask)
    xp.subtract(r, y, out=y)
