"""Approximations of the Bessel functions of orders 0 and 1, in float64.

Each function has one polynomial near 0 and one for large arguments. The coefficients
are for powers of a number t in [-1, 1]. They come from the Chebyshev interpolants with
48 nodes, computed with 40 digits and truncated to an error below 1e-17. In powers of t
the sums of their absolute values are below 6, so that a sum does not lose digits.
"""

from __future__ import annotations

import math

import numpy as np

from toolkit.core.tensor import Tensor
from toolkit.ops.elementwise import equal, greater, isinf, sign, where
from toolkit.ops.numeric import absolute, logical_not
from toolkit.ops.quadrature import EULER, polynomial
from toolkit.ops.transcendental import cos, exp, log, sin, sqrt

_I_BORDER, _K_BORDER, _J_BORDER = 12.0, 2.0, 8.0

# I by its power series for x <= 12. All terms are positive, and 30 of them suffice.
_I_SERIES = [
    [36.0**k / math.factorial(k) / math.factorial(k + order) for k in range(30)]
    for order in (0, 1)
]
# exp(-x) * sqrt(x) * I(x) for x >= 12, with t = 24 / x - 1.
_I0_FAR = [
    *(0.4010710650668474, 0.0021821681721169296, 5.5984825333679287e-05),
    *(2.7977070193488197e-06, 2.1716050262093787e-07, 2.3688428428626313e-08),
    *(3.4434342412327306e-09, 6.481139334578011e-10, 1.5622948046722945e-10),
    *(4.7753461886795666e-11, 1.872202365227829e-11, 1.1907965227895717e-11),
    *(8.680917765051384e-12, 7.948350488698664e-13, -4.7455346212162745e-12),
    *(-2.4352128812532804e-12, 6.437657654024621e-13, 5.162440450149281e-13),
]
_I1_FAR = [
    *(0.39262449420411655, -0.00640545360348236, -9.124755355077838e-05),
    *(-3.827951355402915e-06, -2.7268454764371704e-07, -2.825369682259333e-08),
    *(-3.9675520981862666e-09, -7.282300843285604e-10, -1.721609330414059e-10),
    *(-5.182321204418164e-11, -2.0004618836565967e-11, -1.2526608533937155e-11),
    *(-9.188721633813206e-12, -9.871777657121598e-13, 4.916657558094203e-12),
    *(2.582594599389331e-12, -6.550828692280591e-13, -5.402701745690131e-13),
]
# exp(x) * sqrt(x) * K(x) for x >= 2, with t = 4 / x - 1.
_K0_FAR = [
    *(1.2185953385133905, -0.03107146182488952, 0.0030328918102753206),
    *(-0.0004797690567662314, 9.95605474202942e-05, -2.4735204561466906e-05),
    *(7.002245645755651e-06, -2.191177788015528e-06, 7.427801232190096e-07),
    *(-2.6890662472901614e-07, 1.02954317593912e-07, -4.133923052104385e-08),
    *(1.7047535884249698e-08, -7.286380907337665e-09, 3.808399859919043e-09),
    *(-1.9309444875845705e-09, 4.757544705776374e-11, 1.7887095838476482e-10),
    *(8.133913205464114e-10, -5.541051446065683e-10, -3.119936129682105e-10),
    *(2.213758097591008e-10, 1.0926983537268735e-10, -6.910453875670571e-11),
]
_K1_FAR = [
    *(1.363151890371342, 0.10334973775386523, -0.005566729880074588),
    *(0.0007357241549081501, -0.00013959021956272223, 3.284386555825453e-05),
    *(-8.961207387750025e-06, 2.730041433569803e-06, -9.067087633371393e-07),
    *(3.2298119177151824e-07, -1.2203186351938403e-07, 4.8461952200091865e-08),
    *(-1.9817577141591116e-08, 8.40938756536177e-09, -4.331939985658629e-09),
    *(2.1757782025837176e-09, -8.336227195991456e-11, -1.7982138496175016e-10),
    *(-8.908596710923906e-10, 6.042482293782838e-10, 3.3867804167808003e-10),
    *(-2.399376595899464e-10, -1.1931668393112158e-10, 7.52479548635394e-11),
]
# J0(x) and J1(x) / x for x <= 8, with t = x ** 2 / 32 - 1.
_J0_NEAR = [
    *(0.04582966485981377, 0.9303012472958572, -0.6484692830871837),
    *(-0.8080888076696872, 1.0383794611437211, -0.5074680458471),
    *(0.14598884856759264, -0.028472718610882047, 0.004058078989140991),
    *(-0.0004435459224311503, 3.8473197855944365e-05, -2.717749223632098e-06),
    *(1.5956109104549218e-07, -7.91532308295207e-09, 3.3634475788173604e-10),
    *(-1.243301171273326e-11, 4.0037632815796753e-13),
]
_J1_NEAR = [
    *(-0.05814382795599107, 0.08105866038589796, 0.15151665143806636),
    *(-0.2595948652859303, 0.15858376432721838, -0.05474581821284722),
    *(0.012456814392263375, -0.0020290394945705996, 0.0002494945813597261),
    *(-2.404574865968694e-05, 1.8684526037206013e-06, -1.196708186787801e-07),
    *(6.431190177265836e-09, -2.943013798001659e-10, 1.1658972367678622e-11),
    -4.0045728425886457e-13,
]
# The parts of Y0(x) and Y1(x) / x without log(x) and 1 / x, with the same t.
_Y0_NEAR = [
    *(-0.382250654459425, -0.8284358903604587, 1.6470964788745466),
    *(0.14412632369302475, -1.0775477338215995, 0.6721770783431679),
    *(-0.21895747096171628, 0.046367047681375125, -0.00702574105727097),
    *(0.000806158605961636, -7.279541882454115e-05, 5.3213188103997145e-06),
    *(-3.2185078445935923e-07, 1.6390875014077404e-08, -7.13046146536789e-10),
    *(2.6926938054524057e-11, -8.840112096073101e-13),
]
_Y1_NEAR = [
    *(0.07075985882118005, -0.24337743079193114, 0.02336757172099348),
    *(0.23507209206669755, -0.19639839859930203, 0.07854786922242532),
    *(-0.01962875683311711, 0.0034224907399188495, -0.0004438173434420147),
    *(4.467433012646365e-05, -3.601000022590458e-06, 2.3804930420514178e-07),
    *(-1.3153147367094951e-08, 6.169688029066965e-10, -2.499531546171249e-11),
    8.760001143977853e-13,
]
# The amplitudes P and x / 8 * Q for x >= 8, with t = 128 / x ** 2 - 1. The function J
# is sqrt(2 / (pi * x)) * (P * cos(phase) - Q * sin(phase)).
_P0_FAR = [
    *(0.9994572757882519, -0.0005363673192129672, 6.137416080109497e-06),
    *(-2.0527448261170675e-07, 1.280376144080092e-08, -1.2121098178951377e-09),
    *(1.5500565496632596e-10, -2.491146535471666e-11, 4.786995821368028e-12),
    *(-1.0157485021065676e-12, 2.4531772967345006e-13, -1.0251790052831013e-13),
    3.339452259070809e-14,
]
_Q0_FAR = [
    *(-0.01555511387951352, 6.833149099340043e-05, -1.477138832589449e-06),
    *(7.106214965332309e-08, -5.668717017471248e-09, 6.432698991315309e-10),
    *(-9.469830663448226e-11, 1.7060404730873274e-11, -3.605043103124562e-12),
    *(8.172520584990984e-13, -2.0979723806283122e-13, 9.894020065590535e-14),
    -3.417306155904644e-14,
]
_P1_FAR = [
    *(1.0009070262780821, 0.0008988049416705183, -7.9596946984383e-06),
    *(2.453676633366693e-07, -1.4708512991275258e-08, 1.3602969253877949e-09),
    *(-1.713107485294131e-10, 2.72345126828134e-11, -5.191158004646548e-12),
    *(1.0954826479277623e-12, -2.6335760672461096e-13, 1.0923713653079462e-13),
    -3.5455617466606254e-14,
]
_Q1_FAR = [
    *(0.04677687402744898, -9.621458822050365e-05, 1.8212018511674905e-06),
    *(-8.29196082083117e-08, 6.420133519314915e-09, -7.1510179969292e-10),
    *(1.0394482901993273e-10, -1.855351813063018e-11, 3.8929927766683146e-12),
    *(-8.785014186436455e-13, 2.2462055932168237e-13, -1.0515607072587001e-13),
    3.620117603894229e-14,
]

_I_FAR, _K_FAR = (_I0_FAR, _I1_FAR), (_K0_FAR, _K1_FAR)
_AMPLITUDES = (_P0_FAR, _Q0_FAR), (_P1_FAR, _Q1_FAR)


def _split(x: Tensor, border: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return where abs(x) is above a border, x up to there, and abs(x) above it."""
    size = absolute(x)
    is_far = greater(size, border)
    return is_far, where(is_far, border, x), where(is_far, size, border)


# --- modified functions I and K -------------------------------------------------------


def scaled_i(order: int, x: Tensor) -> Tensor:
    """Return exp(-abs(x)) * I(x)."""
    is_far, near, far = _split(x, _I_BORDER)
    ratio = near / _I_BORDER
    series = polynomial(_I_SERIES[order], ratio * ratio) * exp(-absolute(near))
    tail = polynomial(_I_FAR[order], 2 * _I_BORDER / far - 1) / sqrt(far)
    if order == 1:
        series, tail = near / 2 * series, sign(x) * tail
    return where(is_far, tail, series)


def i1_of(x: Tensor) -> Tensor:
    """Return I(x) of order 1."""
    is_infinite = isinf(x)
    finite = where(is_infinite, 1.0, x)
    is_far, near, far = _split(finite, _I_BORDER)
    ratio = near / _I_BORDER
    series = near / 2 * polynomial(_I_SERIES[1], ratio * ratio)
    tail = polynomial(_I_FAR[1], 2 * _I_BORDER / far - 1) / sqrt(far)
    half = exp(far * 0.5)  # exp(x) overflows first
    y = where(is_far, sign(x) * (half * tail * half), series)
    return where(is_infinite, x, y)


# The series of K has at most this number of terms up to its border.
_K_TERMS = 16
_HARMONIC = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, _K_TERMS + 1))])


def _k_series(order: int, x: Tensor) -> Tensor:
    """Return K(x) for 0 < x <= 2 by its power series."""
    square = x * x / 4
    facts = [1 / math.factorial(k) ** 2 for k in range(_K_TERMS)]
    logarithm = log(x / 2) + EULER
    if order == 0:
        terms = [f * h for f, h in zip(facts, _HARMONIC, strict=False)]
        return polynomial(terms, square) - logarithm * polynomial(facts, square)
    facts = [f / (k + 1) for k, f in enumerate(facts)]
    means = (_HARMONIC[1:] + _HARMONIC[:-1]) / 2
    terms = [f * m for f, m in zip(facts, means, strict=True)]
    difference = logarithm * polynomial(facts, square) - polynomial(terms, square)
    return 1 / x + difference * (x / 2)


def k_of(order: int, is_scaled: bool, x: Tensor) -> Tensor:
    """Return K(x), or exp(x) * K(x); infinity for x <= 0."""
    is_valid = greater(x, 0) | logical_not(equal(x, x))
    is_far, near, far = _split(where(is_valid, x, 1.0), _K_BORDER)
    series = _k_series(order, near)
    tail = polynomial(_K_FAR[order], 2 * _K_BORDER / far - 1) / sqrt(far)
    if is_scaled:
        series = series * exp(near)
    else:
        tail = tail * exp(-far)
    return where(is_valid, where(is_far, tail, series), math.inf)


# --- functions J and Y ----------------------------------------------------------------


def _waves(order: int, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return J(x) and Y(x) for x >= 8."""
    ratio = _J_BORDER / x
    t = 2 * (ratio * ratio) - 1
    p, q = (polynomial(terms, t) for terms in _AMPLITUDES[order])
    q = q * ratio
    # cos and sin of x - pi / 4, or of x - 3 pi / 4, without rounding the difference.
    c, s = cos(x), sin(x)
    real, imag = (c + s, s - c) if order == 0 else (s - c, -(c + s))
    scale = 1 / sqrt(math.pi * x)
    return scale * (p * real - q * imag), scale * (p * imag + q * real)


def _square(x: Tensor) -> Tensor:
    """Return the argument of the polynomials near 0."""
    ratio = x / _J_BORDER
    return 2 * (ratio * ratio) - 1


def j_of(order: int, x: Tensor) -> Tensor:
    """Return J(x)."""
    is_infinite = isinf(x)
    finite = where(is_infinite, 1.0, x)
    is_far, near, far = _split(finite, _J_BORDER)
    wave, t = _waves(order, far)[0], _square(near)
    if order == 0:
        y = where(is_far, wave, polynomial(_J0_NEAR, t))
    else:
        y = where(is_far, sign(finite) * wave, near * polynomial(_J1_NEAR, t))
    return where(is_infinite, 0.0, y)


def y_of(order: int, x: Tensor) -> Tensor:
    """Return Y(x); minus infinity for x <= 0."""
    is_valid, is_infinite = greater(x, 0), isinf(x)
    inner = where(is_valid & logical_not(is_infinite), x, 1.0)
    is_far, near, far = _split(inner, _J_BORDER)
    t, logarithm = _square(near), 2 / math.pi * log(near)
    if order == 0:
        y = logarithm * polynomial(_J0_NEAR, t) + polynomial(_Y0_NEAR, t)
    else:
        y = logarithm * polynomial(_J1_NEAR, t) + polynomial(_Y1_NEAR, t)
        y = near * y - 2 / math.pi / near
    y = where(is_far, _waves(order, far)[1], y)
    y = where(is_infinite, 0.0, y)
    return where(is_valid, y, where(equal(x, x), -math.inf, math.nan))
