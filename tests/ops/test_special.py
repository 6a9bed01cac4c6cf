"""Test special functions and their gradients against their series, also far from 0."""

import math

import numpy as np
import pytest

import toolkit
from toolkit import dtypes, ops


def bessel(order, x):
    """Return the modified Bessel function of the first kind by its power series."""
    terms = (
        math.exp(
            (2 * k + order) * math.log(x / 2)
            - math.lgamma(k + 1)
            - math.lgamma(k + order + 1)
        )
        for k in range(400)
    )
    return math.fsum(terms)


def slope(x):
    with toolkit.GradientTape() as tape:
        tape.watch(x)
        y = ops.i0(x)
    return tape.gradient(y, x)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", dtypes.FLOATS)
def test_slope_of_i0_is_i1(dtype, compiled):
    points = [0.25, 1, 3, 6.5, 7, 8, 10, 12, 13, 19.5, 20, 20.5, 30, 60, 88]
    points += [89.5, 91.5] if dtype != "float16" else []
    if dtype == "float16":
        points = [x for x in points if x <= 13]
    x = ops.convert_to_tensor([*points, *(-x for x in points), 0.0], dtype)
    rounded = x.numpy().astype("f8")[: len(points)]
    actual = (toolkit.function(slope) if compiled else slope)(x).numpy().astype("f8")
    expected = np.array([bessel(1, x) for x in rounded])
    tolerance = {"float64": 1e-12, "float32": 1e-5}.get(dtype, 1e-2)
    np.testing.assert_allclose(actual[: len(points)], expected, tolerance)
    np.testing.assert_allclose(actual[len(points) : -1], -expected, tolerance)
    assert actual[-1] == 0


def test_second_derivative_of_i0():
    x = ops.convert_to_tensor([0.0, 0.5, 7.0, 15.0, 30.0, 85.0])
    with toolkit.GradientTape() as tape:
        tape.watch(x)
        y = slope(x)
    remaining = [bessel(0, v) - bessel(1, v) / v for v in x.tolist()[1:]]
    expected = [0.5, *remaining]
    np.testing.assert_allclose(tape.gradient(y, x).numpy(), expected, 1e-4)


BOUNDED_SLOPES = (
    "erf erfc exp2 tanh sigmoid softplus silu elu selu celu log_sigmoid softsign "
    "arcsinh arctan sinc cbrt log1p sparse_plus hard_tanh tanh_shrink"
).split()


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("name", BOUNDED_SLOPES)
def test_gradients_far_from_zero_are_finite(name, dtype):
    magnitudes = [
        0.5,
        7.0,
        15.0,
        90.0,
        1e3,
        6e4,
        *([1e10, 1e18] if dtype == "float32" else []),
    ]
    signs = [1] if name == "log1p" else [1, -1]
    if name == "exp2":
        magnitudes, signs = [15.0, 90.0, 1e3, 6e4], [-1]
    for sign in signs:
        x = ops.convert_to_tensor(sign * np.array(magnitudes), dtype)
        with toolkit.GradientTape() as tape:
            tape.watch(x)
            y = getattr(ops, name)(x)
        assert np.isfinite(tape.gradient(y, x).numpy()).all()


@pytest.mark.parametrize("name", ["igamma", "igammac"])
def test_compiled_incomplete_gamma_functions_equal_the_integrals(name):
    function, random, n = getattr(ops, name), np.random.default_rng(0), 3000
    a = 10 ** random.uniform(-5, 6, n)
    ratio = np.exp(random.standard_normal(n) * random.choice([1e-3, 0.03, 0.3, 2], n))
    x = np.where(random.random(n) < 0.3, 10 ** random.uniform(-6, 3, n), a * ratio)
    special = [0.0, 1.0, 1.1, 5e-324, 1e-300, 3999.0, 4001.0, 1e300]
    special = np.array([*special, np.inf, np.nan, -1.0])
    a = np.concatenate([a, np.repeat(special, len(special))])
    x = np.concatenate([x, np.tile(special, len(special))])
    # Eager calls compute the integrals.
    expected = function(ops.array(a), ops.array(x)).numpy()
    compiled = toolkit.function(lambda a, x: function(a, x))
    actual = compiled(ops.array(a), ops.array(x)).numpy()
    np.testing.assert_allclose(actual, expected, 2e-12, 1e-290)
    for dtype in ("float32", "bfloat16", "float16"):
        y = compiled(ops.cast(a, dtype), ops.cast(x, dtype))
        z = function(ops.cast(a, dtype), ops.cast(x, dtype))
        assert y.dtype == dtype
        tolerance = 3e-7 if dtype == "float32" else 1e-2
        y, z = (ops.cast(v, "float64").numpy() for v in (y, z))
        np.testing.assert_allclose(y, z, tolerance, 1e-38)
    assert compiled(ops.zeros((0, 3)), ops.ones(3)).shape == (0, 3)
    assert float(compiled(ops.array(1.0), ops.array(2.0))) == pytest.approx(
        float(function(1.0, 2.0)), rel=1e-6
    )


def test_gradients_of_compiled_incomplete_gamma_functions():
    a, x = np.array([[0.3, 2.0, 30.0], [0.5, 3.0, 25.0]])

    def gradient(a, x):
        with toolkit.GradientTape() as tape:
            tape.watch([a, x])
            y = ops.igamma(a, x)
        return tape.gradient(y, [a, x])

    step = 1e-5
    for i, actual in enumerate(toolkit.function(gradient)(ops.array(a), ops.array(x))):
        shifts = np.eye(2)[i] * step
        above = ops.igamma(a + shifts[0], x + shifts[1]).numpy()
        below = ops.igamma(a - shifts[0], x - shifts[1]).numpy()
        np.testing.assert_allclose(actual, (above - below) / 2 / step, 1e-6, 1e-9)


INF = float("inf")
SLOPES = {  # numbers, and the slopes there
    "lgamma": ([0.0, -0.0, -1.0, 1.0, INF], [-INF, INF, np.nan, -0.5772156649, INF]),
    "digamma": ([0.0, -1.0, 1.0, INF], [INF, INF, np.pi**2 / 6, 0.0]),
    "erfc": ([0.0, 1.0, 40.0, INF, -INF], [-1.1283791671, -0.4151074974, 0, 0, 0]),
    "i0": ([0.0, 1.0, INF, -INF], [0.0, 0.5651591040, INF, -INF]),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", SLOPES)
def test_slopes_at_special_numbers(name, dtype):
    numbers, slopes = SLOPES[name]
    x = ops.convert_to_tensor(np.array(numbers, dtype))
    with toolkit.GradientTape() as tape:
        tape.watch(x)
        y = getattr(ops, name)(x)
    np.testing.assert_allclose(tape.gradient(y, x), slopes, 1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradient_of_sinc_near_zero(dtype):
    """Cos(a) and sin(a) / a are both 1 at 0, so their difference has few bits."""
    angles = np.pi * np.array([1e-6, 1e-4, 1.9e-4, 3e-3, 0.05, 0.15, 0.17, 0.9, 3.3])
    terms = [(-1) ** k * 2 * k / float(math.factorial(2 * k + 1)) for k in range(30)]
    expected = sum(c * angles ** (2 * k - 1) for k, c in enumerate(terms) if k) * np.pi
    x = ops.convert_to_tensor((angles / np.pi).astype(dtype))
    with toolkit.GradientTape() as tape:
        tape.watch(x)
        y = ops.sinc(x)
    tolerance = {"float32": 1e-5, "float64": 1e-12}[dtype]
    np.testing.assert_allclose(tape.gradient(y, x), expected, tolerance)
