"""Generated transforms against NumPy's in double precision."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

pytest.importorskip("llvmlite")

import toolkit.ops.fourier  # it declares the primitives
from tests.backends.jit.running import operand_of, run_lowered, vectors_of
from toolkit.backends.numpy.jit.builder import Value
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.fourier.interleave import interleave_vectors
from toolkit.backends.numpy.jit.kernels.fourier.plan import radices
from toolkit.backends.numpy.jit.kernels.fourier.twiddles import unit_circle
from toolkit.backends.numpy.jit.lowering import lower

# Of each radix, alone and in several stages; odd, and with few and many factors of two.
LENGTHS = [2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 15, 16, 24, 27, 36, 49, 64, 100, 121]
LENGTHS += [128, 210, 243, 256, 360, 512, 1000, 1024]
LIMITS = {"float32": 3e-7, "float64": 1e-15}
LANES = st.sampled_from([4, 8, 16])


def test_twiddle_factors_of_quarter_turns_are_exact():
    fractions = np.array([0, 0.25, 0.5, 0.75, 1, -0.25, -0.5, -0.75, -1])
    cos, sin = unit_circle(fractions)
    assert cos.tolist() == [1, 0, -1, 0, 1, 0, -1, 0, 1]
    assert sin.tolist() == [0, 1, 0, -1, 0, -1, 0, 1, 0]
    assert not np.signbit([*cos[cos == 0], *sin[sin == 0]]).any()
    for n in (3, 8, 360, 1000):
        fractions = np.arange(n) / n
        cos, sin = unit_circle(fractions)
        exact = np.exp(2j * np.pi * fractions)
        np.testing.assert_allclose(cos + 1j * sin, exact, rtol=0, atol=2e-15)


@pytest.mark.parametrize("n", [1, 2, 6, 12, 14, 15, 31, 64, 100, 1024])
@pytest.mark.parametrize("dtype", LIMITS)
def test_zeros_by_symmetry_are_exact(n, dtype):
    x = toolkit.ops.convert_to_tensor(numbers(3, n, dtype=dtype))
    _, imag = toolkit.function(toolkit.ops.rfft)(x)
    ends = [0, -1] if n % 2 == 0 else [0]
    assert not imag.numpy()[:, ends].any()


def numbers(*shape, dtype, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def run(name, inputs, outputs, chunk=0, **attrs):
    node = SimpleNamespace(attrs=attrs, op=SimpleNamespace(name=name))
    operands = [[operand_of(x) for x in arrays] for arrays in (inputs, outputs)]
    lowered = lower(node, *operands)
    run_lowered(lowered, inputs, outputs, chunk)


def assert_near(actual, expected):
    """Check that the root mean square of the differences is relatively small."""
    limit = LIMITS[str(actual[0].dtype)]
    components = [component.astype("float64") for component in actual]
    y = components[0] + 1j * components[1] if len(components) > 1 else components[0]
    error = np.sqrt(np.mean(np.abs(y - expected) ** 2))
    assert error <= limit * np.sqrt(np.mean(np.abs(expected) ** 2))


@given(
    n=st.sampled_from(LENGTHS),
    outer=st.integers(1, 5),
    columns=st.sampled_from([1, 1, 2, 8, 21, 40]),
    dtype=st.sampled_from(list(LIMITS)),
    inverse=st.booleans(),
    lanes=LANES,
    chunk=st.sampled_from([0, 1, 3]),
)
@settings(max_examples=60, deadline=None)
def test_complex_transforms_along_an_axis(
    n, outer, columns, dtype, inverse, lanes, chunk
):
    x = numbers(2, outer, n, columns, dtype=dtype)
    y = np.full_like(x, np.nan)
    with vectors_of(lanes):
        run("dft", list(x), list(y), chunk, axis=1, inverse=inverse)
    transform = np.fft.ifft if inverse else np.fft.fft
    expected = transform(x[0].astype("float64") + 1j * x[1], axis=1)
    assert_near(y, expected * n if inverse else expected)


@given(
    half=st.sampled_from(LENGTHS),
    rows=st.integers(1, 40),
    dtype=st.sampled_from(list(LIMITS)),
    lanes=LANES,
    chunk=st.sampled_from([0, 1, 3]),
)
@settings(max_examples=60, deadline=None)
def test_real_transforms_and_inverses(half, rows, dtype, lanes, chunk):
    n = 2 * half
    x = numbers(rows, n, dtype=dtype)
    y = np.full((2, rows, half + 1), np.nan, dtype)
    with vectors_of(lanes):
        run("rdft", [x], list(y), chunk)
    assert_near(y, np.fft.rfft(x.astype("float64")))
    y, x = numbers(*y.shape, dtype=dtype), np.full_like(x, np.nan)
    with vectors_of(lanes):
        run("irdft", list(y), [x], chunk, length=n)
    frequencies = y[0].astype("float64") + 1j * y[1]
    frequencies[:, 1:-1] /= 2
    assert_near([x], np.fft.irfft(frequencies, n) * n)


@pytest.mark.parametrize("n", [17, 2 * 17, 1 << 15])
def test_other_lengths_are_not_generated(n):
    x = [operand_of(component) for component in np.zeros((2, 3, n), "float32")]
    attrs = {"axis": 1, "inverse": False}
    node = SimpleNamespace(attrs=attrs, op=SimpleNamespace(name="dft"))
    assert lower(node, x, x) is None


@given(st.integers(1, 1 << 14))
def test_factors_of_stages_multiply_to_the_length(n):
    factors = radices(n)
    if factors is None:
        assert any(n % p == 0 for p in range(17, n + 1) if p % 2)
        return
    assert np.prod(factors) == n
    assert set(factors) <= {1, 2, 3, 4, 5, 7, 8, 11, 13}
    assert n % 8 or factors[0] % 4 == 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_vectors_are_stored_contiguously(count, lanes, dtype):
    class Shuffler(Kernel):
        """Shuffles the numbers of elements."""

        def shuffled(self, x, y, chosen):
            both = [*map(int, x.text.split()), *map(int, y.text.split())]
            return Value(" ".join(str(both[k]) for k in chosen), dtype, lanes)

    numbers = np.arange(count * lanes).reshape(lanes, count)
    vectors = [Value(" ".join(map(str, row)), dtype, lanes) for row in numbers.T]
    interleaved = interleave_vectors(Shuffler(lanes), vectors)
    lane_lists = [list(map(int, value.text.split())) for value in interleaved]
    if lanes == 1:
        assert lane_lists == [[k] for k in range(count)]
    else:
        assert np.concatenate(lane_lists).tolist() == list(range(count * lanes))
