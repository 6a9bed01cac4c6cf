"""Tests of Fourier transforms of any length against complex128, and of gradients."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import toolkit
from tests.compiler.graphs import op_names, target, trace_of
from tests.helpers import assert_close, check_grads
from toolkit import ops
from toolkit.backends.numpy.fourier import rewrite_transforms
from toolkit.compiler.pipeline import optimize

# Generated lengths, alone and as two factors: products of one and two primes, and of
# very different factors.
EXTENTS = (1, 2, 7, 64, 67, 127, 128, 360, 1000, 1024, 2 * 509, 3 * 4096, 509 * 510)
EXTENTS += (17, 1 << 15, 3 * 5 * 7 * 243)
# Lengths with a long prime factor: alone, and as the smaller or the larger divisor.
PRIME_EXTENTS = (521, 1009, 10_007, 521 * 528, 510 * 521)


def numbers(*shape, dtype="float64"):
    rng = np.random.default_rng(0)
    return [rng.normal(size=shape).astype(dtype) for _ in range(2)]


def check(function, expected, inputs, factor):
    actual = toolkit.function(function)(*inputs)
    scale = np.abs(expected).max()
    for y, component in zip(actual, (expected.real, expected.imag), strict=True):
        assert_close(y / scale, component / scale, factor=factor)
    return toolkit.function(function).inspect(*inputs).program


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", EXTENTS + PRIME_EXTENTS)
@pytest.mark.one_in(4)
def test_transforms(n, dtype):
    real, imag = numbers(3, n, dtype=dtype)
    expected = np.fft.fft(real.astype("float64") + 1j * imag)
    factor = 0.1 if dtype == "float32" else 1.0
    program = check(lambda *x: ops.fft(x), expected, (real, imag), factor)
    assert program.code is not None
    expected = np.fft.rfft(real.astype("float64"))
    check(ops.rfft, expected, (real,), factor)
    back = toolkit.function(lambda *x: ops.irfft(x, n))(expected.real, expected.imag)
    assert_close(back, real, factor=1e4 if dtype == "float32" else 1.0)


# Even lengths whose halves do not fill vectors, or have no code of their own.
@pytest.mark.parametrize("n", [66, 90, 134, 510, 2046, 2 * 521])
@pytest.mark.parametrize("rows", [(), (3,), (2, 17)])
def test_real_numbers_as_pairs(n, rows):
    (x, _), k = numbers(*rows, n), n // 2 + 1
    expected = np.fft.rfft(x)
    program = check(ops.rfft, expected, (x,), 1.0)
    assert program.code is not None
    # The imaginary parts of the first and the last frequency have no effect.
    real, imag = numbers(*rows, k)
    actual = toolkit.function(lambda *x: ops.irfft(x, n))(real, imag)
    assert_close(actual, np.fft.irfft(real + 1j * imag, n))


@pytest.mark.parametrize("shape", [(5,), (130,), (2, 5), (2, 66, 5), (70, 3, 1)])
def test_along_every_axis_and_back(shape):
    real, imag = numbers(*shape)
    x = real + 1j * imag
    check(lambda *x: ops.fft(x), np.fft.fft(x), (real, imag), 1.0)
    if x.ndim > 1:
        check(lambda *x: ops.fft2(x), np.fft.fft2(x), (real, imag), 1.0)
        check(lambda *x: ops.ifft2(x), np.fft.ifft2(x), (real, imag), 1.0)


def test_gradients():
    real, imag = numbers(2, 70)
    check_grads(toolkit.function(lambda *x: ops.fft(x)), [real, imag])
    for n in (8, 33, 70):
        check_grads(toolkit.function(lambda x, n=n: ops.rfft(x, n)), [real])
        inverse = toolkit.function(lambda *x, n=n: ops.irfft(x, n))
        check_grads(inverse, [real, imag])


def names_of(function, *shapes):
    graph = optimize(trace_of(function, *shapes), target())
    graph = rewrite_transforms(graph, target())
    graph.verify()
    return op_names(graph)


def test_real_numbers_take_half_the_products():
    def counts(function, *shapes):
        return names_of(function, *shapes).count("matmul")

    assert counts(lambda x, y: ops.fft((x, y)), (3, 67), (3, 67)) == 4
    assert counts(lambda x: ops.fft((x, ops.zeros((3, 67)))), (3, 67)) == 2
    assert counts(lambda x: ops.fft((x, ops.zeros((3, 134)))), (3, 134)) == 6
    assert counts(lambda x: ops.rfft(x), (3, 16)) == 2


@pytest.mark.parametrize(
    ("shape", "axis", "has_full_code"),
    [
        ((3, 1000), 1, True),
        ((3, 1 << 14), 1, True),
        ((3, 1 << 15), 1, False),
        ((1 << 11, 3), 0, True),
        ((1 << 12, 3), 0, False),
    ],
)
def test_lengths_of_small_factors_have_code(shape, axis, has_full_code):
    def function(x, y):
        return ops.fft2((x, y)) if axis == 0 else ops.fft((x, y))

    names = names_of(function, shape, shape)
    assert (set(names) == {"dft"}) == has_full_code
    assert "matmul" not in names


def test_array_kernels_keep_the_transform_node():
    function = toolkit.function(lambda *x: ops.fft(x), jit_compile=False)
    assert "dft" in op_names(function.inspect(*numbers(2, 67)).program.graph)
