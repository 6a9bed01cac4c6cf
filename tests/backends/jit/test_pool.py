"""Generated pooling against the reference backend."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

pytest.importorskip("llvmlite")

from tests.backends.jit.running import operand_of, run_lowered, vectors_of
from toolkit.backends.numpy.jit.kernels import pool
from toolkit.backends.reference import images


@st.composite
def cases(draw):
    """(image shape with batch and channels, window, strides, padding, dtype)."""
    ndim = draw(st.integers(1, 3))
    window = tuple(draw(st.integers(1, 3)) for _ in range(ndim))
    padding = tuple(
        (draw(st.integers(0, k - 1)), draw(st.integers(0, k - 1))) for k in window
    )
    spatial = tuple(
        draw(st.integers(max(1, k - sum(pads)), 7))
        for k, pads in zip(window, padding, strict=True)
    )
    strides = tuple(draw(st.integers(1, 3)) for _ in range(ndim))
    channels = draw(st.sampled_from([1, 3, 16, 70]))
    dtype = draw(st.sampled_from(["float32", "float64", "int32", "int64"]))
    shape = (draw(st.integers(0, 3)), *spatial, channels)
    return shape, window, strides, padding, dtype


def numbers(shape, dtype, special):
    random = np.random.default_rng(len(shape))
    x = random.integers(-3, 4, shape).astype(dtype)
    if special and x.dtype.kind == "f":
        x[random.random(shape) < 0.3] = -np.inf
        x[random.random(shape) < 0.1] = np.nan
    return x


def run(name, inputs, outputs, attrs):
    node = SimpleNamespace(attrs=attrs)
    lower = getattr(pool, f"lower_{name}")
    lowered = lower(node, list(map(operand_of, inputs)), list(map(operand_of, outputs)))
    run_lowered(lowered, inputs, outputs, chunk=1)


@given(case=cases(), special=st.booleans())
@settings(max_examples=15, deadline=None)
def test_pooling_matches_the_reference(case, special):
    shape, window, strides, padding, dtype = case
    attrs = {"window": window, "strides": strides, "padding": padding}
    x = numbers(shape, dtype, special)
    with np.errstate(all="ignore"):
        expected, winners = images.max_pool(x, **attrs)
    y, index = np.empty_like(expected), np.empty_like(winners)
    run("max_pool", [x], [y, index], attrs)
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(index, winners)
    x, g = numbers(shape, dtype, False), numbers(expected.shape, dtype, False)
    back = {**attrs, "spatial": shape[1:-1]}
    for name, inputs, options in (
        ("max_pool_gather", [x, index], attrs),
        ("sum_pool", [x], attrs),
        ("max_pool_scatter", [g, index], back),
        ("sum_pool_grad", [g], back),
    ):
        reference = getattr(images, name)(*inputs, **options)
        actual = np.empty_like(reference)
        run(name, inputs, [actual], options)
        np.testing.assert_array_equal(actual, reference)


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_any_vector_width_computes_the_same(lanes):
    x = numbers((2, 5, 6, 21), "float32", True)
    attrs = {"window": (2, 3), "strides": (2, 2), "padding": ((0, 1), (1, 0))}
    expected, winners = images.max_pool(x, **attrs)
    y, index = np.empty_like(expected), np.empty_like(winners)
    with vectors_of(lanes):
        run("max_pool", [x], [y, index], attrs)
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(index, winners)
