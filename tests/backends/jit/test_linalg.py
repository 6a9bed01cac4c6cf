"""Kernels for stacks of small matrices against NumPy in float64."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

pytest.importorskip("llvmlite")

import toolkit as tk
from tests.backends.jit.running import operand_of, run_lowered, vectors_of
from toolkit import ops
from toolkit.backends.numpy.jit.lowering import lower
from toolkit.errors import ArgumentError

TOLERANCES = {"float32": 1e-4, "float64": 1e-12}


def transposed(x):
    return np.swapaxes(x, -1, -2)


def run(name, inputs, outputs, chunk=0, **attrs):
    op = SimpleNamespace(name=name)
    node = SimpleNamespace(op=op, attrs=attrs, inputs=(), outputs=())
    lowered = lower(node, [*map(operand_of, inputs)], [*map(operand_of, outputs)])
    assert lowered is not None
    bad = []
    run_lowered(lowered, inputs, outputs, chunk, bad)
    return bad


def matrices(generator, shape, dtype, form):
    """Matrices with entries in a range that no pivot order makes singular."""
    x = generator.uniform(-1, 1, shape).astype(dtype)
    n = shape[-1]
    if form == "permuted":  # large elements off the diagonal: every row moves
        return (x + 3 * n * np.eye(n)[generator.permutation(n)]).astype(dtype)
    return (x + 3 * n * np.eye(n)).astype(dtype)


@st.composite
def stacks(draw):
    generator = np.random.default_rng(draw(st.integers(0, 99)))
    lead = draw(st.sampled_from([(), (1,), (3,), (4, 5), (33,), (16,)]))
    n = draw(st.sampled_from([1, 2, 3, 4, 5, 7, 16, 18]))
    k = draw(st.sampled_from([1, 2, 5, 8]))
    dtype = draw(st.sampled_from([*TOLERANCES]))
    form = draw(st.sampled_from(["dominant", "permuted"]))
    a = matrices(generator, (*lead, n, n), dtype, form)
    if draw(st.booleans()):
        a = transposed(a)
    shared = draw(st.booleans())
    b = generator.uniform(-1, 1, (n, k) if shared else (*lead, n, k)).astype(dtype)
    if draw(st.booleans()):
        b = transposed(transposed(b).copy())
    return a, b


@given(
    stack=stacks(), lanes=st.sampled_from([1, 4, 8, 16]), chunk=st.sampled_from([0, 1])
)
@settings(max_examples=60, deadline=None)
def test_kernels_of_stacks(stack, lanes, chunk):
    a, b = stack
    tolerance = TOLERANCES[a.dtype.name]
    wide_a, wide_b = a.astype("float64"), b.astype("float64")
    shape = (*a.shape[:-2], *b.shape[-2:])
    with vectors_of(lanes):
        x = np.empty(shape, a.dtype)
        assert not run("solve", [a, b], [x], chunk)[:1] == [1]
        np.testing.assert_allclose(x, np.linalg.solve(wide_a, wide_b), 0, tolerance)
        sign, logarithm = (np.empty(a.shape[:-2], a.dtype) for _ in range(2))
        run("slogdet", [a], [sign, logarithm], chunk)
        expected = np.linalg.slogdet(wide_a)
        np.testing.assert_array_equal(sign, expected[0])
        np.testing.assert_allclose(logarithm, expected[1], tolerance, tolerance)
        product = a @ transposed(a)
        factor = np.empty_like(product)
        run("cholesky", [product], [factor], chunk)
        expected = np.linalg.cholesky(product.astype("float64"))
        np.testing.assert_allclose(factor, expected, 0, 50 * a.shape[-1] * tolerance)
        diagonal = 3 * a.shape[-1] * np.eye(a.shape[-1])
        for lower_triangle, triangle in ((True, np.tril), (False, np.triu)):
            full = (a + diagonal * (1 - a * np.eye(a.shape[-1]))).astype(a.dtype)
            full = np.where(triangle(np.ones_like(full)) > 0, full, np.nan)
            full = full.astype(a.dtype)
            run("solve_triangular", [full, b], [x], chunk, lower=lower_triangle)
            known = np.nan_to_num(full.astype("float64"))
            np.testing.assert_allclose(x, np.linalg.solve(known, wide_b), 0, tolerance)


@st.composite
def larger_stacks(draw):
    generator = np.random.default_rng(draw(st.integers(0, 99)))
    lead = draw(st.sampled_from([(), (1,), (3,), (2, 2), (9,)]))
    n = draw(st.sampled_from([17, 32, 48, 50, 63, 97]))
    k = min(n, draw(st.sampled_from([1, 3, 16, 33, n])))  # LAPACK has more columns
    dtype = draw(st.sampled_from([*TOLERANCES]))
    form = draw(st.sampled_from(["dominant", "permuted"]))
    a = matrices(generator, (*lead, n, n), dtype, form)
    if draw(st.booleans()):
        a = transposed(a)
    shared = draw(st.booleans())
    b = generator.uniform(-1, 1, (n, k) if shared else (*lead, n, k)).astype(dtype)
    return a, b


@given(
    stack=larger_stacks(),
    lanes=st.sampled_from([8, 16]),
    chunk=st.sampled_from([0, 1]),
)
@settings(max_examples=40, deadline=None)
def test_kernels_of_larger_matrices(stack, lanes, chunk):
    a, b = stack
    n, k = b.shape[-2:]
    tolerance = n * TOLERANCES[a.dtype.name]
    wide_a, wide_b = a.astype("float64"), b.astype("float64")
    shape = (*a.shape[:-2], n, k)
    with vectors_of(lanes):
        x = np.empty(shape, a.dtype)
        assert not run("solve", [a, b], [x], chunk)[:1] == [1]
        np.testing.assert_allclose(x, np.linalg.solve(wide_a, wide_b), 0, tolerance)
        if n >= 48:
            packed = a.copy()
            factors, pivots = np.empty_like(packed), np.empty(a.shape[:-1], "int32")
            rows = np.empty_like(pivots)
            run("lu", [packed], [factors, pivots, rows], chunk)
            upper = np.triu(factors).astype("float64")
            lower = np.tril(factors, -1).astype("float64") + np.eye(n)
            assert (np.abs(lower) <= 1 + 1e-5).all()
            moved = np.take_along_axis(wide_a, rows[..., None], -2)
            np.testing.assert_allclose(lower @ upper, moved, 0, 4 * n * tolerance)
            exchanged = np.arange(n)
            for i, j in enumerate(pivots.reshape(-1, n)[-1]):
                exchanged[[i, j]] = exchanged[[j, i]]
            np.testing.assert_array_equal(rows.reshape(-1, n)[-1], exchanged)
        sign, logarithm = (np.empty(a.shape[:-2], a.dtype) for _ in range(2))
        run("slogdet", [a], [sign, logarithm], chunk)
        expected = np.linalg.slogdet(wide_a)
        np.testing.assert_array_equal(sign, expected[0])
        np.testing.assert_allclose(logarithm, expected[1], tolerance, tolerance)
        for lower_triangle, triangle in ((True, np.tril), (False, np.triu)):
            full = (a + 3 * n * np.eye(n)).astype(a.dtype)
            full = np.where(triangle(np.ones_like(full)) > 0, full, 7)
            full = full.astype(a.dtype)
            run("solve_triangular", [full, b], [x], chunk, lower=lower_triangle)
            expected = np.linalg.solve(triangle(full.astype("float64")), wide_b)
            np.testing.assert_allclose(x, expected, 0, tolerance)


@pytest.mark.parametrize("dtype", [*TOLERANCES])
def test_a_tiny_pivot_is_divided_exactly(dtype):
    n, tiny = 50, float(np.finfo(dtype).smallest_subnormal) * 8
    a = np.eye(n, dtype=dtype)
    a[3, 3], a[4, 3] = tiny, tiny / 2
    b = np.ones((n, 1), dtype)
    b[3] = tiny
    (x,) = (np.asarray(tk.function(lambda a, b: ops.solve(a, b))(a, b)),)
    expected = np.ones((n, 1), dtype)
    expected[4] = 1 - tiny / 2
    np.testing.assert_array_equal(x, expected)


def call(function, *arrays):
    """The eager and the compiled result."""
    return function(*arrays), tk.function(function)(*arrays)


@pytest.mark.parametrize("dtype", [*TOLERANCES])
@pytest.mark.parametrize("lead", [(), (17,), (1024,)])
@pytest.mark.parametrize("n", [1, 3, 40, 100])
def test_a_singular_matrix_is_an_error(dtype, lead, n):
    if n > 3 and lead == (1024,):
        pytest.skip("too slow")
    x = np.zeros((*lead, n, n), dtype) + np.eye(n, dtype=dtype)
    x.reshape(-1, n, n)[-1, 0] = 0
    b = np.ones((*lead, n, 1), dtype)
    cases = {
        "solve: Singular": lambda f: f(lambda x, b: ops.solve(x, b))(x, b),
        "solve_triangular: Singular": lambda f: f(
            lambda x, b: ops.solve_triangular(x, b)
        )(x, b),
        "cholesky: Matrix is not positive": lambda f: f(lambda x: ops.cholesky(x))(x),
    }
    for message, compute in cases.items():
        with pytest.raises(ArgumentError, match=message):
            compute(lambda f: f)
        with pytest.raises(ValueError, match=message.partition(": ")[2]):
            compute(tk.function)
    sign, logarithm = tk.function(lambda x: ops.slogdet(x))(x)
    assert float(ops.reshape(sign, (-1,))[-1]) == 0
    assert float(ops.reshape(logarithm, (-1,))[-1]) == -np.inf


def test_a_matrix_of_nan_has_a_result_of_nan():
    x = np.full((20, 3, 3), np.nan, "float32")
    for function in (ops.cholesky, ops.det, ops.inv):
        for result in call(lambda x, f=function: f(x), x):
            assert (
                np.isnan(np.asarray(result))
                .any(axis=tuple(range(1, result.ndim)))
                .all()
            )


@pytest.mark.parametrize("shape", [(0, 3, 3), (2, 0, 0), (0, 0, 0)])
def test_empty_stacks(shape):
    x = np.zeros(shape, "float32")
    b = np.zeros((*shape[:-1], 2), "float32")
    for result in call(lambda x, b: ops.solve(x, b), x, b):
        assert result.shape == b.shape
    for result in call(lambda x, b: ops.solve_triangular(x, b), x, b):
        assert result.shape == b.shape
    for result in call(lambda x: ops.cholesky(x), x):
        assert result.shape == x.shape
    for result in call(lambda x: ops.det(x), x):
        np.testing.assert_array_equal(result, np.ones(shape[:1]))


@pytest.mark.parametrize("n", [1, 3, 20, 60])
@pytest.mark.parametrize("k", [1, 3, 40])
@pytest.mark.parametrize("lead", [(), (3,), (20,)])
@pytest.mark.parametrize("lower", [True, False])
def test_triangular_systems_of_views_and_their_gradients(n, k, lead, lower):
    generator = np.random.default_rng(n)
    a = matrices(generator, (*lead, n, n), "float32", "dominant")
    b = generator.uniform(-1, 1, (*lead, n, k)).astype("float32")

    def compute(a, b):
        with tk.GradientTape() as tape:
            tape.watch([a, b])
            x = ops.solve_triangular(ops.swapaxes(a, -1, -2), b, lower=lower)
            loss = ops.sum(x * x)
        return x, *tape.gradient(loss, [a, b])

    triangle = (np.tril if lower else np.triu)(transposed(a)).astype("float64")
    x = np.linalg.solve(triangle, b.astype("float64"))
    gb = np.linalg.solve(transposed(triangle), 2 * x)
    ga = transposed((np.tril if lower else np.triu)(-gb @ transposed(x)))
    a, b = ops.convert_to_tensor(a), ops.convert_to_tensor(b)
    for results in call(compute, a, b):
        for result, expected in zip(results, (x, ga, gb), strict=True):
            scale = np.abs(expected).max()
            np.testing.assert_allclose(result, expected, 1e-4, 1e-4 * scale)


@pytest.mark.parametrize("dtype", [*TOLERANCES])
@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (5, 3), (17, 9), (20, 1), (3, 5)])
@pytest.mark.parametrize("mode", ["reduced", "complete"])
def test_qr(dtype, shape, mode):
    generator = np.random.default_rng(0)
    x = generator.uniform(-1, 1, (4, 5, *shape)).astype(dtype)
    tolerance = TOLERANCES[dtype]
    largest = float(np.finfo(dtype).max) ** 0.6  # its square overflows
    zero_column = x * (np.arange(shape[1]) > 0)
    for case in (x, x * 0, np.triu(x), x * largest, x / largest, zero_column):
        case = case.astype(dtype)
        q, r = (np.asarray(y) for y in tk.function(lambda a: ops.qr(a, mode))(case))
        wide_q, scale = q.astype("float64"), np.abs(case).max() or 1
        expected = np.linalg.qr(case.astype("float64"), mode)
        np.testing.assert_allclose(r / scale, expected[1] / scale, 0, tolerance)
        product = wide_q @ (r / scale)
        np.testing.assert_allclose(product, case / scale, 0, tolerance)
        identity = np.broadcast_to(np.eye(q.shape[-1]), (4, 5, *[q.shape[-1]] * 2))
        np.testing.assert_allclose(transposed(wide_q) @ wide_q, identity, 0, tolerance)
        np.testing.assert_array_equal(np.tril(r, -1), np.zeros_like(r))
