"""3 x 3 convolutions by Winograd's transforms against the reference backend."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("llvmlite")

from tests.backends.jit.convolutions import (
    KINDS,
    Problem,
    check,
    check_layer,
    computed,
    expected,
    lowered,
)
from toolkit.backends.numpy.jit import engine
from toolkit.backends.numpy.jit.conv import lower, lower_grad
from toolkit.backends.numpy.jit.conv.winograd import correlation, kernel_grad

SAME = ((1, 1), (1, 1))


@pytest.fixture(autouse=True, scope="module")
def _even_if_it_does_not_pay():
    with (
        mock.patch.object(correlation, "_LEAST_GAIN", 0),
        mock.patch.object(kernel_grad, "_LEAST_GAIN", 0),
        mock.patch.object(lower, "_LEAST_TILES", 0),
        mock.patch.object(lower_grad, "_LEAST_TILES", 0),
    ):
        yield


def is_winograd(kind, arrays, attrs):
    found, _ = lowered(kind, arrays, attrs)
    emitted = {call.code.emit for call in found.calls}
    return not emitted.isdisjoint(
        {correlation.emit_winograd, kernel_grad.emit_winograd_grad}
    )


@given(
    kind=st.sampled_from(KINDS),
    batch=st.integers(1, 3),
    spatial=st.tuples(st.integers(1, 14), st.integers(1, 14)),
    vectors=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    padding=st.tuples(*[st.sampled_from([(0, 0), (1, 1), (2, 0), (3, 1)])] * 2),
    lanes=st.sampled_from([4, 8, 16]),
    chunk=st.integers(0, 2),
)
@settings(max_examples=25, deadline=None)
def test_any_image(kind, batch, spatial, vectors, padding, lanes, chunk):
    spatial = tuple(
        max(n, 3 - sum(pads)) for n, pads in zip(spatial, padding, strict=True)
    )
    channels = tuple(n * lanes for n in vectors)
    arrays, attrs = Problem(batch, spatial, (3, 3), channels, padding=padding).of(
        kind, "float32"
    )
    with mock.patch.object(engine.host(), "lanes", lanes):
        assert is_winograd(kind, arrays, attrs)
        check(kind, arrays, attrs, chunk)


@pytest.mark.parametrize("kind", ["conv", "conv_input_grad"])
@pytest.mark.parametrize("size", [(8, 8), (9, 11)])
def test_what_follows_is_computed_on_the_way(kind, size):
    check_layer(kind, Problem(3, size, (3, 3), (32, 48), padding=SAME))


@pytest.mark.parametrize("kind", KINDS)
def test_results_do_not_depend_on_chunks(kind):
    arrays, attrs = Problem(37, (6, 7), (3, 3), (16, 32), padding=SAME).of(
        kind, "float32"
    )
    whole = computed(kind, arrays, attrs)
    for chunk in (1, 2):
        assert np.array_equal(computed(kind, arrays, attrs, chunk), whole)


def test_kernel_gradients_of_more_tiles_than_a_block():
    arrays, attrs = Problem(33, (18, 17), (3, 3), (32, 48), padding=SAME).of(
        "conv_kernel_grad", "float32"
    )
    for chunk in (0, 2):
        check("conv_kernel_grad", arrays, attrs, chunk)


@pytest.mark.parametrize("kind", KINDS)
def test_errors_are_small(kind):
    """Positive images, as activations are, and much to add up."""
    channels = (64, 64) if kind == "conv_kernel_grad" else (256, 64)
    problem = Problem(3, (16, 16), (3, 3), channels, padding=SAME)
    (x, other), attrs = problem.of(kind, "float32")
    arrays = (np.maximum(x, 0), other)
    assert is_winograd(kind, arrays, attrs)
    reference = expected(kind, arrays, attrs)
    error = np.abs(computed(kind, arrays, attrs) - reference).max()
    assert error < 3e-5 * np.sqrt(np.mean(reference**2))


def test_other_convolutions_are_direct():
    for problem, dtype in (
        (Problem(2, (8, 8), (3, 3), (16, 16)), "float64"),
        (Problem(2, (8, 8), (3, 3), (16, 16), strides=(2, 1)), "float32"),
        (Problem(2, (8, 8), (3, 3), (16, 16), dilation=(1, 2)), "float32"),
        (Problem(2, (8, 8), (3, 3), (16, 16), groups=2), "float32"),
        (Problem(2, (8, 8), (3, 5), (16, 16)), "float32"),
        (Problem(2, (8, 8), (3, 3), (16, 12)), "float32"),
        (Problem(2, (8,), (3,), (16, 16)), "float32"),
    ):
        for kind in KINDS:
            arrays, attrs = problem.of(kind, dtype)
            assert not is_winograd(kind, arrays, attrs)
