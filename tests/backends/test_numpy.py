"""Tests of the numpy backend beyond the values of its kernels."""

import math

import numpy as np
import pytest

from toolkit.backends.array.common import boxes, fill_counter, piece, reduce_rows
from toolkit.backends.array.windows import Windows
from toolkit.backends.numpy import NumPyBackend, create, mkl
from toolkit.backends.reference.scalars import _erfinv
from toolkit.errors import ArgumentError
from toolkit.ir.scalars import SCALARS


@pytest.fixture(scope="module")
def numpy_backend():
    return NumPyBackend("numpy")


# --- settings -------------------------------------------------------------------------


def test_environment_selects_blas_and_threads(monkeypatch):
    monkeypatch.setenv("TOOLKIT_BLAS", "numpy")
    monkeypatch.setenv("TOOLKIT_NUM_THREADS", "1")
    backend = create()
    before = backend.blas.threads
    assert before in (1, None)
    assert backend.describe()["blas"]


@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5"])
def test_a_wrong_number_of_threads_is_refused(monkeypatch, value):
    monkeypatch.setenv("TOOLKIT_NUM_THREADS", value)
    with pytest.raises(ArgumentError, match=f"TOOLKIT_NUM_THREADS.*{value}"):
        create()


def test_an_unknown_blas_is_refused():
    with pytest.raises(ArgumentError, match="'auto', 'mkl', 'numpy'; received 'blis'"):
        NumPyBackend("blis")


def test_missing_mkl_is_refused(monkeypatch):
    monkeypatch.setattr(mkl, "_library_path", lambda: None)
    with pytest.raises(ArgumentError, match="mkl.*pip install"):
        NumPyBackend("mkl")
    assert NumPyBackend("auto").kernels["exp"] is np.exp


def test_threads_can_be_set(numpy_backend):
    before = numpy_backend.blas.threads
    if before is None:
        pytest.skip("this NumPy's BLAS does not tell its number of threads")
    numpy_backend.blas.threads = 1
    assert numpy_backend.blas.threads == 1
    numpy_backend.blas.threads = before


# The smallest products are not checked: OpenBLAS uses one thread for them.
@pytest.mark.parametrize(("rows", "expected"), [(8, {2}), (512, {1}), (1 << 20, {1})])
def test_products_use_one_library_thread(monkeypatch, rows, expected):
    blas = NumPyBackend("numpy").blas
    before = blas.threads
    if before is None:
        pytest.skip("this NumPy's BLAS does not tell its number of threads")
    thread_counts = []
    monkeypatch.setattr(
        np, "matmul", lambda *arrays: thread_counts.append(blas.threads)
    )
    blas.threads = 2
    try:
        a = np.broadcast_to(np.float32(1), (rows, 256))
        blas.gemm(a, np.broadcast_to(np.float32(1), (256, 4)))
        assert blas.threads == 2
    finally:
        blas.threads = before
    assert set(thread_counts) == expected


# --- accuracy -------------------------------------------------------------------------


def error_in_ulps(actual, expected):
    """Return the maximum error in ULPs."""
    spacing = np.spacing(np.abs(expected.astype(actual.dtype))).astype(np.float64)
    return np.max(np.abs(actual.astype(np.float64) - expected) / spacing)


def magnitudes():
    rng = np.random.default_rng(0)
    small = 10.0 ** rng.uniform(-30, 0.5, 20_000)
    return np.concatenate([np.linspace(-6.5, 6.5, 20_001), small, -small])


@pytest.mark.parametrize("dtype, limit", [("float32", 2), ("float64", 4)])
def test_erf_is_accurate(numpy_backend, dtype, limit):
    x = magnitudes().astype(dtype)
    expected = np.array([math.erf(v) for v in x.astype(np.float64)])
    assert error_in_ulps(numpy_backend.kernels["erf"](x), expected) <= limit


@pytest.mark.parametrize("dtype, limit", [("float32", 1), ("float64", 4)])
def test_erfinv_is_accurate(numpy_backend, dtype, limit):
    rng = np.random.default_rng(0)
    near_one = 1 - 10.0 ** rng.uniform(-15, -1, 5000)
    small = 10.0 ** rng.uniform(-20, -1, 5000)
    x = np.concatenate([near_one, -small, rng.uniform(-1, 1, 10_000)]).astype(dtype)
    x = x[np.abs(x) < 1]
    expected = np.array([_erfinv(v) for v in x.astype(np.float64)])
    assert error_in_ulps(numpy_backend.kernels["erfinv"](x), expected) <= limit


def test_erfinv_at_its_limits(numpy_backend):
    x = np.array([-1.0, 1.0, 2.0, np.nan, -0.0])
    with np.errstate(all="ignore"):
        y = numpy_backend.kernels["erfinv"](x)
    np.testing.assert_array_equal(y, [-np.inf, np.inf, np.nan, np.nan, -0.0])
    assert np.signbit(y[-1])


def test_sigmoid_of_negative_numbers_is_accurate(numpy_backend):
    x = np.array([-80.0, -40.0, -1000.0, 1000.0], np.float32)
    with np.errstate(all="ignore"):
        y = numpy_backend.kernels["sigmoid"](x)
    np.testing.assert_allclose(y[:2], np.exp(x[:2].astype(np.float64)), rtol=1e-6)
    assert list(y[2:]) == [0.0, 1.0]


def test_integers_divided_by_zero_are_zero(numpy_backend):
    x, zero = np.array([5, -5], np.int32), np.zeros(2, np.int32)
    with numpy_backend.kernels.errstate():
        for name in ("floor_divide", "remainder"):
            assert list(numpy_backend.kernels[name](x, zero)) == [0, 0]


# --- indices out of range -------------------------------------------------------------


@pytest.mark.parametrize("name", ["numpy", "reference"])
@pytest.mark.parametrize("index", [4, -5, 2**40])
def test_an_index_out_of_range_is_an_error(name, index, reference, numpy_backend):
    backend = reference if name == "reference" else numpy_backend
    x, invalid = np.zeros((3, 4)), np.array([0, index])
    message = f"{index} is out of .* 4"
    updates = np.ones((3, 2))
    indices = np.broadcast_to(invalid, (3, 2))
    with pytest.raises(IndexError, match=message):
        backend.kernels["gather"](x, invalid, axis=1)
    with pytest.raises(IndexError, match=message):
        backend.kernels["scatter"](x, invalid, updates, axis=1, mode="add")
    with pytest.raises(IndexError, match=message):
        backend.kernels["take_along_axis"](x, indices, axis=1)
    with pytest.raises(IndexError, match=message):
        backend.kernels["put_along_axis"](x, indices, updates, axis=1, mode="add")


def test_index_into_an_empty_axis_is_refused(numpy_backend):
    with pytest.raises(IndexError, match="index 0 is out of range for axis 0 with 0"):
        numpy_backend.kernels["gather"](np.zeros((0, 2)), np.array([0]), axis=0)


def test_operands_with_matching_size_only_are_refused(numpy_backend):
    kernels, x, indices = numpy_backend.kernels, np.zeros((2, 3)), np.zeros((2, 1), int)
    with pytest.raises(ValueError, match=r"expected shape \(2, 4\); .* \(4, 2\)"):
        attrs = {"axis": 1, "mode": "add"}
        kernels["scatter"](x, np.zeros(4, int), np.ones((4, 2)), **attrs)
    with pytest.raises(ValueError, match="expected shape"):
        kernels["put_along_axis"](x, indices, np.ones((1, 2)), axis=1, mode="add")
    with pytest.raises(ValueError, match="expected shape"):
        kernels["take_along_axis"](x, np.zeros((5, 1), int), axis=1)
    start = np.array(0)
    with pytest.raises(ValueError, match="does not fit"):
        kernels["dynamic_slice"](x, start, start, sizes=(3, 1))


# --- random numbers -------------------------------------------------------------------


def test_random_numbers_depend_on_the_key_only(numpy_backend):
    kernel = numpy_backend.kernels["random_uniform"]
    key, other = np.array([1, 2], np.uint32), np.array([2, 1], np.uint32)
    x = kernel(key, shape=(1000,), dtype="float32")
    assert x.min() >= 0 and x.max() < 1
    np.testing.assert_array_equal(x, kernel(key, shape=(1000,), dtype="float32"))
    assert (x != kernel(other, shape=(1000,), dtype="float32")).any()


# --- functions that kernels share -----------------------------------------------------


@pytest.mark.parametrize(
    "shape", [(), (0,), (5,), (3, 4), (2, 3, 7), (7, 1, 2), (1, 50), (0, 3), (4, 5, 1)]
)
@pytest.mark.parametrize("limit", [1, 4, 10, 1000])
def test_boxes_cover_each_element_once(shape, limit):
    covered = np.zeros(shape, int)
    source = np.arange(math.prod(shape)).reshape(shape)
    for box in boxes(shape, limit):
        covered[box] += 1
        assert covered[box].size <= limit
        assert source[box].flags.c_contiguous
        assert np.shares_memory(source[box], source)
    assert (covered == 1).all()


@pytest.mark.parametrize("shape", [(), (4,), (3, 1), (1, 1), (3, 4), (1, 4)])
def test_slice_broadcasts_like_the_full_array(shape):
    rng = np.random.default_rng(0)
    small = rng.random(shape)
    full_array = np.broadcast_to(small, (3, 4))
    for box in boxes((3, 4), 2):
        box_slice = piece(small, (3, 4), box)
        np.testing.assert_array_equal(
            np.broadcast_to(box_slice, full_array[box].shape), full_array[box]
        )


@pytest.mark.parametrize("size", [0, 1, 2, 7, 64])
def test_count(size):
    out = np.empty(size, np.int64)
    np.testing.assert_array_equal(fill_counter(np, out, 3), np.arange(size) * 3)


@pytest.mark.parametrize("rows", [1, 3, 8, 1000, 1001])
@pytest.mark.parametrize("width", [1, 3, 40])
def test_reduce_rows(rows, width):
    x = np.random.default_rng(0).random((rows, width))
    out, wide = np.empty(width), np.empty(32)
    reduce_rows(np.add, x, out, wide)
    np.testing.assert_allclose(out, x.sum(axis=0))


def test_windows_over_padding():
    windows = Windows((4,), (3,), (2,), ((2, 1),), (1,))
    assert windows.out == (3,)
    (window,) = windows.window_boxes(1, 10)
    assert window.field == (1, 7)
    x = np.arange(4.0).reshape(1, 4, 1)
    loaded = window.load(np, x, -1.0, np.empty(7))
    assert list(loaded.ravel()) == [-1, -1, 0, 1, 2, 3, -1]
    assert list(loaded[window.shifts[0]].ravel()) == [-1, 0, 2]
    pixels, taps = window.meetings[0]
    assert list(x[pixels].ravel()) == [0, 2]
    assert taps == (slice(None), slice(1, 3))


# --- MKL ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mkl_backend():
    if not mkl.is_installed():
        pytest.skip("the mkl package is not installed")
    return NumPyBackend("mkl")


def test_mkl_describes_itself(mkl_backend):
    facts = mkl_backend.describe()
    assert facts["blas"].startswith("MKL 20")
    assert facts["threads"] >= 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "a, b",
    [
        ((4, 5), (5, 6)),
        ((80, 70), (70, 60)),
        ((1, 700), (700, 400)),
        ((700, 400), (400, 1)),
        ((3, 80, 70), (3, 70, 60)),
        ((3, 80, 70), (70, 60)),
        ((80, 70), (3, 70, 60)),
        ((2, 3, 80, 70), (2, 3, 70, 60)),
        ((2, 1, 80, 70), (3, 70, 60)),
    ],
)
@pytest.mark.parametrize("layout", ["plain", "transposed", "strided", "out"])
def test_mkl_products(mkl_backend, dtype, a, b, layout):
    rng = np.random.default_rng(0)
    x, y = rng.random(a).astype(dtype), rng.random(b).astype(dtype)
    out = None
    if layout == "transposed":
        x, y = (
            np.ascontiguousarray(m.swapaxes(-1, -2)).swapaxes(-1, -2) for m in (x, y)
        )
    elif layout == "strided":
        x, y = (np.repeat(m, 2, axis=-1)[..., ::2] for m in (x, y))
    elif layout == "out":
        out = np.full(np.matmul(x, y).shape, np.nan, dtype)
    result = mkl_backend.kernels["matmul"](x, y, out=out)
    assert out is None or result is out
    np.testing.assert_allclose(result, np.matmul(x, y), rtol=1e-5)


def test_mkl_runs_convolutions(mkl_backend, reference):
    rng = np.random.default_rng(0)
    x, w = rng.random((4, 20, 20, 8), np.float32), rng.random((3, 3, 4, 6), np.float32)
    attrs = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1)}
    actual = mkl_backend.kernels["conv"](x, w, groups=2, **attrs)
    expected = reference.kernels["conv"](x, w, groups=2, **attrs)
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


@pytest.mark.parametrize("name", sorted(n for n, word in SCALARS.items() if word.vml))
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_mkl_functions(mkl_backend, reference, name, dtype):
    import toolkit.ops  # noqa: F401  (declares the scalar rules)

    low, high = (1.1, 2.0) if name == "arccosh" else (0.1, 0.9)
    x = np.random.default_rng(0).uniform(low, high, 5000).astype(dtype)
    kernel, rtol = mkl_backend.kernels[name], {"float32": 5e-7, "float64": 1e-14}
    expected = reference.kernels[name](x).astype(np.float64)
    np.testing.assert_allclose(kernel(x), expected, rtol.get(dtype, 2e-3))
    strided = np.repeat(x, 2)[::2]
    np.testing.assert_allclose(kernel(strided), expected, rtol.get(dtype, 2e-3))
    assert kernel(x, out=x) is x
    np.testing.assert_allclose(x, expected, rtol.get(dtype, 2e-3))


@pytest.mark.parametrize("shape", [(3, 4), (2, 1), (1, 5), (2, 3, 4)])
def test_products_of_columns_and_rows_are_row_major(shape):
    """A ufunc has the order of axes of its operands in the result."""
    *batch, rows, columns = shape
    a = np.asfortranarray(np.random.default_rng(0).normal(size=(*batch, rows, 3)))
    b = np.asfortranarray(np.arange(2.0 * columns).reshape(2, columns))
    product = create().kernels.get("matmul")(a[..., :1], b[:1])
    np.testing.assert_array_equal(product, a[..., :1] @ b[:1])
    assert product.flags.c_contiguous
