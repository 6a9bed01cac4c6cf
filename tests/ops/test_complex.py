"""Test complex tensors against NumPy."""

import numpy as np
import pytest

import toolkit
from tests.helpers import check_grads
from tests.ops.table import uniform
from toolkit import dtypes, errors, ops

Z = uniform(-2, 2) + 1j * uniform(-2, 2)
FUNCTIONS = (
    "abs angle conj conjugate cos cosh exp imag isreal log negative real sin sinh sqrt "
    "square sum mean prod tanh transpose"
).split()
DTYPES = {"complex64": 1e-5, "complex128": 1e-12}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name, dtype):
    z = Z.astype(dtype)
    expected = getattr(np, name)(z)
    for y in (getattr(ops, name)(z), toolkit.function(getattr(ops, name))(z)):
        assert y.dtype == dtypes.name_of(expected.dtype)
        np.testing.assert_allclose(y.numpy(), expected, rtol=DTYPES[dtype])
    symbol = getattr(ops, name)(toolkit.KerasTensor(z.shape, dtype))
    assert (symbol.shape, symbol.dtype) == (y.shape, y.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_operators(dtype):
    z, x = Z.astype(dtype), Z.real.astype("float32")
    for first, second in ((z, z), (z, x), (x, z), (z, 2), (z, 1.5), (z, 2j)):
        a = ops.convert_to_tensor(first)
        for y, expected in (
            (a + second, first + second),
            (a * second, first * second),
            (a / second, first / second),
            (a == second, first == second),
        ):
            np.testing.assert_allclose(y, expected, rtol=DTYPES[dtype] * 10)
    product = toolkit.function(ops.matmul)(z, z.T)
    np.testing.assert_allclose(product, z @ z.T, rtol=DTYPES[dtype] * 10)
    repeated = np.tile(z, (200, 1))
    np.testing.assert_array_equal(
        ops.where(x[0] > 0, repeated, 0), repeated * (x[0] > 0)
    )


def test_parts():
    pairs = uniform(-1, 1, (3, 2))
    z = ops.view_as_complex(pairs)
    np.testing.assert_array_equal(z, pairs[:, 0] + 1j * pairs[:, 1])
    np.testing.assert_array_equal(ops.view_as_real(z), pairs)
    np.testing.assert_allclose(ops.polar(ops.abs(z), ops.angle(z)), z)
    assert ops.view_as_complex(toolkit.KerasTensor((None, 2))).shape == (None,)
    symbol = ops.view_as_real(toolkit.KerasTensor((None,), "complex64"))
    assert (symbol.shape, symbol.dtype) == ((None, 2), "float32")
    with pytest.raises(errors.ShapeError, match="must be size 2"):
        ops.view_as_complex(ops.ones((2, 3)))
    with pytest.raises(errors.DTypeError, match="expected a complex tensor"):
        ops.view_as_real(ops.ones((2,)))


def _real_of_complex(xp, x, polar, conj):
    w = polar(x, 2 * x)
    y = w * w + conj(w) * (1 + 2j)
    return xp.sum(xp.abs(y) + xp.imag(xp.exp(w)) + xp.angle(w + 3) + xp.real(1 / w))


def test_gradient():
    x = np.array([1.0, 2.0])
    v = toolkit.Variable(x)
    with toolkit.GradientTape() as tape:
        y = _real_of_complex(ops, v, ops.polar, ops.conj)

    def f(x):
        return _real_of_complex(np, x, lambda r, t: r * np.exp(1j * t), np.conj)

    steps = 1e-6 * np.eye(2)
    expected = [(f(x + e) - f(x - e)) / 2e-6 for e in steps]
    np.testing.assert_allclose(tape.gradient(y, v), expected, rtol=1e-7)


def test_casts():
    np.testing.assert_array_equal(ops.cast(Z, "float64"), Z.real)
    np.testing.assert_array_equal(ops.cast([0j, 1j], "bool"), [False, True])
    assert ops.convert_to_tensor([1j, 2]).dtype == "complex64"
    assert dtypes.result_type("int32", "complex64") == "complex64"
    assert dtypes.result_type("float64", "complex64") == "complex128"
    assert toolkit.Variable("ones", (2,), "complex64").value.tolist() == [1, 1]


@pytest.mark.parametrize("dtype", dtypes.FLOAT8)
def test_float8_is_stored_and_cast(dtype):
    x = ops.cast([1.3, -0.4, 100.0], dtype)
    assert x.dtype == dtype
    expected = np.array([1.3, -0.4, 100.0]).astype(dtypes.numpy_dtype(dtype))
    np.testing.assert_array_equal(ops.cast(x, "float32"), expected.astype("float32"))
    with pytest.raises(errors.DTypeError, match="cast them"):
        x + 1.0


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", dtypes.FLOATS)
def test_eigenvalues_may_be_complex(dtype, compiled):
    rng = np.random.default_rng(3)
    x = ops.convert_to_tensor(rng.standard_normal((2, 5, 5)), dtype)
    w, v = (toolkit.function(ops.eig) if compiled else ops.eig)(x)
    is_double = dtype == "float64"
    assert w.dtype == v.dtype == ("complex128" if is_double else "complex64")
    assert w.shape == (2, 5) and np.abs(w.numpy().imag).max() > 0.1
    product = v.numpy() * w.numpy()[:, None] @ np.linalg.inv(v.numpy())
    limit = 1e-12 if is_double else 1e-4
    np.testing.assert_allclose(product, x.numpy().astype("f8"), limit, limit)
    np.testing.assert_allclose(np.linalg.norm(v.numpy(), axis=1), 1, 1e-5)


def test_symbols_have_complex_eigenvalues():
    w, v = ops.eig(toolkit.KerasTensor((None, 3, 3)))
    assert (w.shape, w.dtype) == ((None, 3), "complex64")
    assert (v.shape, v.dtype) == ((None, 3, 3), "complex64")


@pytest.mark.parametrize("symmetric", [False, True])
def test_gradient_of_eigenvalues_and_vectors(symmetric):
    rng = np.random.default_rng(4)
    x = rng.standard_normal((4, 4))
    x = x + x.T if symmetric else x
    weights = ops.convert_to_tensor(np.arange(1.0, 5.0)[:, None])

    def loss(x):
        w, v = ops.eig(x)
        values = ops.sum(ops.sin(ops.real(w)) + ops.square(ops.imag(w)))
        return values + ops.sum(weights * ops.square(ops.abs(v)))

    check_grads(loss, [x], order=1)
