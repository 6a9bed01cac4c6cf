"""Test special functions over their full domains against SciPy."""

import numpy as np
import pytest

import toolkit
from toolkit import ops

special = pytest.importorskip("scipy.special")
RNG = np.random.default_rng(3)
INF, NAN = np.inf, np.nan


def sample_log_range(low, high, count=400):
    """Return numbers whose logarithms are uniform."""
    return 10 ** RNG.uniform(low, high, count)


POSITIVE = np.concatenate(
    [sample_log_range(-300, 300), sample_log_range(-4, 3), RNG.uniform(0, 30, 400)]
)
SHAPES = sample_log_range(-3, 4), sample_log_range(-3, 4)
PROBABILITIES = np.concatenate([sample_log_range(-300, 0), RNG.uniform(0, 1, 400)])
WAVES = np.concatenate([sample_log_range(-300, 3), RNG.uniform(0, 60, 400)])
SIGNED = np.concatenate([WAVES, -WAVES])
# name -> SciPy's name, arguments, relative tolerance in float64.
CASES = {
    "lgamma": ("gammaln", [POSITIVE], 1e-11),  # of SciPy, near 1
    "digamma": ("psi", [POSITIVE], 1e-14),
    "zeta": ("zeta", [1 + sample_log_range(-3, 2), sample_log_range(-4, 4)], 1e-14),
    "igamma": ("gammainc", [SHAPES[0], SHAPES[0] * sample_log_range(-0.2, 0.2)], 1e-9),
    "igammac": (
        "gammaincc",
        [SHAPES[0], SHAPES[0] * sample_log_range(-0.2, 0.2)],
        1e-9,
    ),
    "betainc": ("betainc", [*SHAPES, RNG.beta(*SHAPES)], 1e-9),
    "erfcinv": ("erfcinv", [2 * PROBABILITIES], 1e-14),
    "ndtri": ("ndtri", [PROBABILITIES], 1e-14),
    "i0e": ("i0e", [SIGNED], 1e-14),
    "i1": ("i1", [SIGNED[np.abs(SIGNED) < 700]], 1e-14),
    "i1e": ("i1e", [SIGNED], 1e-14),
    "bessel_k0": ("k0", [WAVES], 1e-14),
    "bessel_k0e": ("k0e", [WAVES], 1e-14),
    "bessel_k1": ("k1", [WAVES], 1e-14),
    "bessel_k1e": ("k1e", [WAVES], 1e-14),
    "bessel_j0": ("j0", [SIGNED], 1e-14),
    "bessel_j1": ("j1", [SIGNED], 1e-14),
    "bessel_y0": ("y0", [WAVES], 1e-14),
    "bessel_y1": ("y1", [WAVES], 1e-14),
    "dawsn": ("dawsn", [SIGNED], 1e-14),
    "expint": ("expi", [WAVES[WAVES < 700]], 1e-13),
    "spence": ("spence", [POSITIVE], 1e-14),
}
# Functions with zeros inside of their domains: these need an absolute error, too.
ABSOLUTE = {"bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "spence", "expint"}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_values_are_accurate_everywhere(name, dtype):
    reference, inputs, tolerance = CASES[name]
    if dtype == "float32":
        with np.errstate(over="ignore"):
            inputs = np.array([x.astype("float32").astype("float64") for x in inputs])
        inputs = inputs[:, (np.isfinite(inputs) & (inputs != 0)).all(0)]
        tolerance = 3e-7
    with np.errstate(all="ignore"):
        expected = getattr(special, reference)(*inputs).astype(dtype)
        values = getattr(ops, name)(*(x.astype(dtype) for x in inputs)).numpy()
    assert values.dtype == dtype
    is_normal = np.abs(expected) > np.finfo(dtype).tiny
    is_normal |= ~np.isfinite(expected) | (expected == 0)
    absolute_tolerance = 3e-13 if name in ABSOLUTE else 1e-300
    np.testing.assert_allclose(
        values[is_normal], expected[is_normal], tolerance, absolute_tolerance
    )


# The derivatives of functions of x by identities between the functions of SciPy.
SLOPES = {
    "i0e": lambda x: special.i1e(x) - np.sign(x) * special.i0e(x),
    "i1e": lambda x: special.i0e(x) - special.i1e(x) * (1 / x + np.sign(x)),
    "i1": lambda x: special.i0(x) - special.i1(x) / x,
    "bessel_j0": lambda x: -special.j1(x),
    "bessel_j1": lambda x: special.j0(x) - special.j1(x) / x,
    "bessel_y0": lambda x: -special.y1(x),
    "bessel_y1": lambda x: special.y0(x) - special.y1(x) / x,
    "bessel_k0": lambda x: -special.k1(x),
    "bessel_k1": lambda x: -special.k0(x) - special.k1(x) / x,
    "bessel_k0e": lambda x: special.k0e(x) - special.k1e(x),
    "bessel_k1e": lambda x: special.k1e(x) * (1 - 1 / x) - special.k0e(x),
}


@pytest.mark.parametrize(
    "name", [*SLOPES, "erfcinv", "ndtri", "igamma", "igammac", "zeta"]
)
def test_generated_code_is_accurate(name):
    """Check a call that is large enough for generated code."""
    reference, inputs, tolerance = CASES[name]
    count = len(inputs[0])
    with np.errstate(all="ignore"):
        expected = getattr(special, reference)(*inputs)
        tiled = (np.resize(x, 50_000) for x in inputs)
        values = getattr(ops, name)(*tiled).numpy()[:count]
    is_normal = np.abs(expected) > np.finfo("float64").tiny
    absolute_tolerance = 3e-13 if name in ABSOLUTE else 1e-300
    np.testing.assert_allclose(
        values[is_normal], expected[is_normal], tolerance, absolute_tolerance
    )


@pytest.mark.parametrize("name", SLOPES)
def test_gradients_are_accurate_everywhere(name):
    x = np.concatenate([np.linspace(0.05, 40, 500), [2.0, 8.0, 12.0, 100.0, 600.0]])
    if name[0] == "i" or "_j" in name:
        x = np.concatenate([x, -x])
    with toolkit.GradientTape() as tape:
        inputs = ops.convert_to_tensor(x)
        tape.watch(inputs)
        y = getattr(ops, name)(inputs)
    np.testing.assert_allclose(
        tape.gradient(y, inputs).numpy(), SLOPES[name](x), 1e-12, 1e-13
    )


_RIGHT_ANGLE = np.pi / 2
INTEGRANDS = {
    "fresnel_sin": (
        lambda x: np.sin(_RIGHT_ANGLE * x * x),
        [-2.0, -0.0, 0.0, 0.5, 3.5],
    ),
    "fresnel_cos": (
        lambda x: np.cos(_RIGHT_ANGLE * x * x),
        [-2.0, -0.0, 0.0, 0.5, 3.5],
    ),
    "expint": (lambda x: np.exp(x) / x, [-1.0, 0.0, 1e-5, 39.0, 41.0, 700.0, 1e4, INF]),
    "spence": (lambda x: np.log(x) / (1 - x), [-1.0, 0.0, 0.4, 0.999, 1.4, 1.6, 1e9]),
}


@pytest.mark.parametrize("name", INTEGRANDS)
def test_gradients_of_integrals_are_the_integrands(name):
    function, points = INTEGRANDS[name]
    with toolkit.GradientTape() as tape:
        x = ops.array(points, "float64")
        tape.watch(x)
        y = getattr(ops, name)(x)
    with np.errstate(all="ignore"):
        expected = function(np.array(points))
    if name == "expint":  # exp overflows first, and the result of NumPy is NaN at inf
        expected = np.where(np.array(points) < 0, NAN, expected)
        expected[-1] = INF
    np.testing.assert_allclose(tape.gradient(y, x), expected, 1e-13, 1e-15)


def test_second_derivatives_of_spence_are_accurate_near_1():
    points = [0.4, 0.98, 0.995, 1.0, 1.005, 1.02, 1.4]
    with toolkit.GradientTape() as outer:
        x = ops.array(points, "float64")
        outer.watch(x)
        with toolkit.GradientTape() as inner:
            inner.watch(x)
            y = ops.spence(x)
        slope = inner.gradient(y, x)
    with np.errstate(all="ignore"):
        array = np.array(points)
        expected = 1 / array / (1 - array) + np.log(array) / (1 - array) ** 2
    expected[3] = 0.5
    np.testing.assert_allclose(outer.gradient(slope, x), expected, 1e-10)


SECOND = {
    "expint": lambda x: np.exp(x) / x - np.exp(x) / x**2,
    "fresnel_sin": lambda x: np.pi * x * np.cos(_RIGHT_ANGLE * x * x),
    "fresnel_cos": lambda x: -np.pi * x * np.sin(_RIGHT_ANGLE * x * x),
}


@pytest.mark.parametrize("name", SECOND)
def test_second_derivatives_of_integrals(name):
    points = np.array([0.01, 0.4, 1.0, 3.0, 30.0])
    with toolkit.GradientTape() as outer:
        x = ops.array(points)
        outer.watch(x)
        with toolkit.GradientTape() as inner:
            inner.watch(x)
            y = getattr(ops, name)(x)
        slope = inner.gradient(y, x)
    np.testing.assert_allclose(
        outer.gradient(slope, x), SECOND[name](points), 1e-9, 1e-9
    )


def test_gradients_of_fresnel_integrals_are_0_at_infinity():
    with toolkit.GradientTape() as tape:
        x = ops.array([-INF, INF])
        tape.watch(x)
        y = ops.fresnel_sin(x) + 2 * ops.fresnel_cos(x)
    np.testing.assert_array_equal(tape.gradient(y, x), [0, 0])


def test_fresnel_integrals_are_accurate_everywhere():
    sines, cosines = special.fresnel(SIGNED)
    np.testing.assert_allclose(ops.fresnel_sin(SIGNED).numpy(), sines, 2e-14)
    np.testing.assert_allclose(ops.fresnel_cos(SIGNED).numpy(), cosines, 2e-14)


@pytest.mark.parametrize("order", [0, 1, 2, 3, 7, 20])
def test_polygamma_is_accurate_everywhere(order):
    x = np.concatenate([sample_log_range(-4, 4), -RNG.uniform(0.05, 0.95, 50)])
    x = x if order in (0, 1) else x[x > 0]
    expected = special.polygamma(order, x[x > 0])
    values = ops.polygamma(float(order), x).numpy()
    np.testing.assert_allclose(values[x > 0], expected, 1e-12)
    if order == 1:  # the reflection of the trigamma function
        negative = x[x < 0]
        reflected = (np.pi / np.sin(np.pi * negative)) ** 2 - special.polygamma(
            1, 1 - negative
        )
        np.testing.assert_allclose(values[x < 0], reflected, 1e-12)


def test_gamma_functions_of_negative_numbers():
    x = -RNG.uniform(0, 30, 400)
    np.testing.assert_allclose(ops.lgamma(x).numpy(), special.gammaln(x), 1e-12, 1e-13)
    np.testing.assert_allclose(ops.digamma(x).numpy(), special.psi(x), 1e-9, 1e-11)


EDGES = {
    "lgamma": ([-INF, -3, -0.0, 0, 1, 2, INF, NAN], [INF] * 4 + [0, 0, INF, NAN]),
    "digamma": ([-1.0, 0, INF, NAN], [NAN, NAN, INF, NAN]),
    "ndtri": ([-1, 0, 0.5, 1, 2, NAN], [NAN, -INF, 0, INF, NAN, NAN]),
    "erfcinv": ([-1, 0, 1, 2, 3, NAN], [NAN, INF, 0, -INF, NAN, NAN]),
    "i0": ([-INF, 0, INF, NAN], [INF, 1, INF, NAN]),
    "i0e": ([-INF, 0, INF, NAN], [0, 1, 0, NAN]),
    "i1": ([-INF, 0, INF, NAN], [-INF, 0, INF, NAN]),
    "i1e": ([-INF, 0, INF, NAN], [0, 0, 0, NAN]),
    "bessel_j0": ([-INF, 0, INF, NAN], [0, 1, 0, NAN]),
    "bessel_j1": ([-INF, 0, INF, NAN], [0, 0, 0, NAN]),
    "bessel_y0": ([-1, 0, INF, NAN], [-INF, -INF, 0, NAN]),
    "bessel_y1": ([-1, 0, INF, NAN], [-INF, -INF, 0, NAN]),
    "bessel_k0": ([-1, 0, INF, NAN], [INF, INF, 0, NAN]),
    "bessel_k0e": ([-1, 0, INF, NAN], [INF, INF, 0, NAN]),
    "bessel_k1": ([-1, 0, INF, NAN], [INF, INF, 0, NAN]),
    "bessel_k1e": ([-1, 0, INF, NAN], [INF, INF, 0, NAN]),
    "dawsn": ([-INF, 0, INF, NAN], [0, 0, 0, NAN]),
    "expint": ([-1, 0, INF, NAN], [NAN, -INF, INF, NAN]),
    "fresnel_sin": ([-INF, 0, INF, NAN], [-0.5, 0, 0.5, NAN]),
    "fresnel_cos": ([-INF, 0, INF, NAN], [-0.5, 0, 0.5, NAN]),
    "spence": ([-1, 0, 1, INF, NAN], [NAN, np.pi**2 / 6, 0, -INF, NAN]),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", EDGES)
def test_ends_of_domains(name, dtype):
    inputs, expected = (np.array(x, dtype) for x in EDGES[name])
    np.testing.assert_allclose(getattr(ops, name)(inputs).numpy(), expected, 1e-6)


A = np.array([-1, 0, 0.5, 1, INF, NAN])
PAIRS = {
    "igamma": [
        [NAN] * 6,
        [NAN] * 6,
        [NAN, 0, 0.68268949, 0.84270079, 1, NAN],
        [NAN, 0, 0.39346934, 0.63212056, 1, NAN],
        [NAN, 0, 0, 0, NAN, NAN],
        [NAN] * 6,
    ],
    "igammac": [
        [NAN] * 6,
        [NAN] * 6,
        [NAN, 1, 0.31731051, 0.15729921, 0, NAN],
        [NAN, 1, 0.60653066, 0.36787944, 0, NAN],
        [NAN, 1, 1, 1, NAN, NAN],
        [NAN] * 6,
    ],
    "polygamma": [
        [NAN] * 6,
        [NAN, NAN, -1.96351003, -0.57721566, INF, NAN],
        [NAN] * 6,
        [INF, INF, 4.9348022, 1.64493407, 0, NAN],
        [NAN] * 6,
        [NAN] * 6,
    ],
    "zeta": [
        [NAN] * 6,
        [NAN] * 6,
        [NAN] * 6,
        [INF] * 5 + [NAN],
        [NAN] * 6,
        [NAN] * 6,
    ],
}


@pytest.mark.parametrize("name", PAIRS)
def test_ends_of_domains_of_two_arguments(name):
    a, x, expected = A[:, None], A[None], np.array(PAIRS[name])
    values = getattr(ops, name)(a, x).numpy()
    if name in ("polygamma", "zeta"):  # a non-finite order has no unique result
        values[4], expected[4] = 0, 0
    np.testing.assert_allclose(values, expected, 1e-6)


def test_ends_of_the_beta_function():
    values = ops.betainc([1.0, 2, 2, 0, 1, 1], 2.0, [0.0, 1, -1, 0.5, 2, NAN]).numpy()
    np.testing.assert_array_equal(values, [0, 1, NAN, NAN, NAN, NAN])


def test_density_of_the_exponential_distribution_at_0():
    x = toolkit.Variable(0.0)
    with toolkit.GradientTape() as tape:
        y = ops.igamma(1.0, x)
    assert float(tape.gradient(y, x)) == 1
