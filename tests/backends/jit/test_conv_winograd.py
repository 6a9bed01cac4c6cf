"""3 x 3 convolutions by Winograd's transforms against the reference backend."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from ml_dtypes import bfloat16

pytest.importorskip("llvmlite")

import toolkit
from tests.backends.jit.convolutions import (
    KINDS,
    Problem,
    check,
    check_layer,
    computed,
    expected,
    lowered,
)
from tests.backends.jit.running import vectors_of
from toolkit import ops
from toolkit.backends.numpy.jit.kernels.conv import lower, lower_grad
from toolkit.backends.numpy.jit.kernels.conv.winograd import correlation, kernel_grad

SAME = ((1, 1), (1, 1))


@pytest.fixture(autouse=True, scope="module")
def _even_if_it_does_not_pay():
    with (
        mock.patch.object(correlation, "_MIN_SPEEDUP", 0),
        mock.patch.object(kernel_grad, "_MIN_SPEEDUP", 0),
        mock.patch.object(lower, "_MIN_TILES", 0),
        mock.patch.object(lower, "_MIN_GRAD_TILES", 0),
        mock.patch.object(lower, "_MIN_FAR_TILES", 0),
        mock.patch.object(lower_grad, "_MIN_TILES", 0),
        mock.patch.object(lower_grad, "_MIN_BLOCK_TILES", 1),
    ):
        yield


def is_winograd(kind, arrays, attrs):
    lowered_conv, _ = lowered(kind, arrays, attrs)
    emitted = {call.code.emit for call in lowered_conv.calls}
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
    outputs=st.sampled_from([2, 4]),
    is_far=st.booleans(),
    chunk=st.integers(0, 2),
)
@settings(max_examples=40, deadline=None)
def test_any_image(
    kind, batch, spatial, vectors, padding, lanes, outputs, is_far, chunk
):
    spatial = tuple(
        max(n, 3 - sum(pads)) for n, pads in zip(spatial, padding, strict=True)
    )
    channels = tuple(n * lanes for n in vectors)
    arrays, attrs = Problem(batch, spatial, (3, 3), channels, padding=padding).of(
        kind, "float32"
    )
    near = mock.patch.object(correlation, "_L2_WEIGHTS", 0 if is_far else 1 << 18)
    with vectors_of(lanes), only(outputs), near:
        assert is_winograd(kind, arrays, attrs)
        check(kind, arrays, attrs, chunk)


def only(outputs):
    """Select the transforms for this number of outputs only."""

    def is_allowed(channels, num_outputs):
        return num_outputs == outputs

    return mock.patch.object(correlation, "is_exact_enough", is_allowed)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("outputs", [2, 4])
def test_bfloat16_images(kind, outputs):
    """Code reads them directly; the bits equal the result of float32 images."""
    problem = Problem(2, (9, 11), (3, 3), (32, 48), padding=((1, 1), (2, 0)))
    (x, other), attrs = problem.of(kind, "float32")
    narrow_arrays = [x.astype(bfloat16), other.astype(bfloat16)]
    pairs = [(narrow_arrays[0], other)]
    if kind == "conv_kernel_grad":
        pairs += [(x, narrow_arrays[1]), narrow_arrays]
    with only(outputs):
        for narrow in pairs:
            lowered_conv, _ = lowered(kind, narrow, attrs)
            names = [call.code.emit.__name__ for call in lowered_conv.calls]
            assert "emit_plan" not in names and is_winograd(kind, narrow, attrs)
            wide = [a.astype("float32") for a in narrow]
            exact = computed(kind, wide, attrs)
            np.testing.assert_array_equal(computed(kind, narrow, attrs), exact)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("outputs", [2, 4])
@pytest.mark.parametrize("extra", [1, 5, 10])
def test_pixel_strides_that_are_not_vector_multiples(kind, outputs, extra):
    """The scratch memory of a task ends before the memory of the next task."""
    problem = Problem(3, (7, 9), (3, 3), (32, 48), padding=((1, 1), (2, 0)))
    arrays, attrs = problem.of(kind, "float32")
    x = arrays[0]
    wide = np.zeros((*x.shape[:-1], x.shape[-1] + extra), x.dtype)
    wide[..., : x.shape[-1]] = x
    view = wide[..., : x.shape[-1]]
    for lanes in (8, 16):
        with only(outputs), vectors_of(lanes):
            assert is_winograd(kind, [view, arrays[1]], attrs)
            actual = computed(kind, [view, arrays[1]], attrs)
            np.testing.assert_array_equal(actual, computed(kind, arrays, attrs))


def test_weights_in_any_order():
    """Inputs or outputs are contiguous in memory, or neither."""
    problem = Problem(2, (8, 8), (3, 3), (32, 48), padding=SAME)
    for kind in KINDS[:2]:
        (x, w), attrs = problem.of(kind, "float32")
        exact = computed(kind, [x, w], attrs)
        for axis in (-2, 0):
            view = np.moveaxis(np.ascontiguousarray(np.moveaxis(w, axis, -1)), -1, axis)
            assert is_winograd(kind, [x, view], attrs)
            np.testing.assert_array_equal(computed(kind, [x, view], attrs), exact)


@pytest.mark.parametrize("outputs", [2, 4])
@pytest.mark.parametrize("batch", [1, 2, 9])
def test_distant_weights_are_reused_for_many_tiles(outputs, batch):
    problem = Problem(batch, (14, 14), (3, 3), (128, 144), padding=SAME)
    arrays, attrs = problem.of("conv", "float32")
    with only(outputs):
        lowered_conv, _ = lowered("conv", arrays, attrs)
        plan = lowered_conv.calls[-1].code.args[1]
        assert plan.is_far and plan.outputs == outputs
        assert lowered_conv.calls[-1].tasks >= 2
        expected = computed("conv", arrays, attrs)
        check("conv", arrays, attrs)
        assert np.array_equal(computed("conv", arrays, attrs, 1), expected)


@pytest.mark.parametrize("kind", ["conv", "conv_input_grad"])
@pytest.mark.parametrize("size", [(8, 8), (9, 11)])
def test_epilogue_is_fused(kind, size):
    check_layer(kind, Problem(3, size, (3, 3), (32, 48), padding=SAME))


@pytest.mark.parametrize("kind", KINDS)
def test_results_do_not_depend_on_chunks(kind):
    arrays, attrs = Problem(37, (6, 7), (3, 3), (16, 32), padding=SAME).of(
        kind, "float32"
    )
    unchunked = computed(kind, arrays, attrs)
    for chunk in (1, 2):
        assert np.array_equal(computed(kind, arrays, attrs, chunk), unchunked)


def test_kernel_gradients_of_more_tiles_than_a_block():
    arrays, attrs = Problem(33, (18, 17), (3, 3), (32, 48), padding=SAME).of(
        "conv_kernel_grad", "float32"
    )
    for chunk in (0, 2):
        check("conv_kernel_grad", arrays, attrs, chunk)


# Images, inputs and outputs in vectors, and the pairs of vectors of a block.
BLOCKS = {
    "blocks of both channels": (3, (4, 6), 4),
    "blocks of inputs": (2, (6, 1), 2),
    "more blocks than tasks": (2, (5, 7), 1),
    "groups of several images": (9, (2, 3), 3),
}


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("name", BLOCKS)
def test_kernel_gradients_in_blocks_of_channels(name, lanes):
    batch, vectors, pairs = BLOCKS[name]
    channels = tuple(n * lanes for n in vectors)
    problem = Problem(batch, (6, 7), (3, 3), channels, padding=SAME)
    arrays, attrs = problem.of("conv_kernel_grad", "float32")
    patch = mock.patch.object(
        kernel_grad, "_MAX_SUMS", kernel_grad.POINTS**2 * pairs * lanes**2
    )
    with vectors_of(lanes), patch:
        lowered_conv, _ = lowered("conv_kernel_grad", arrays, attrs)
        assert lowered_conv.calls[0].code.args[0].blocks > 1
        check("conv_kernel_grad", arrays, attrs)
        unchunked = computed("conv_kernel_grad", arrays, attrs)
        for chunk in (1, 2):
            lowered_conv = computed("conv_kernel_grad", arrays, attrs, chunk)
            assert np.array_equal(lowered_conv, unchunked)


def test_many_channels_are_enough_tasks():
    for batch, size, channels in ((8, 32, (128, 128)), (8, 16, (256, 512))):
        problem = Problem(batch, (size, size), (3, 3), channels, padding=SAME)
        arrays, attrs = problem.of("conv_kernel_grad", "float32")
        with mock.patch.object(lower_grad, "_MIN_BLOCK_TILES", 128):
            assert is_winograd("conv_kernel_grad", arrays, attrs)
            lowered_conv, _ = lowered("conv_kernel_grad", arrays, attrs)
        assert lowered_conv.calls[0].tasks >= 8


@pytest.mark.parametrize("lanes", [8, 16])
def test_one_image_is_divided_into_chunks_of_8_tiles(lanes):
    """However many of them are computed together: cores would have nothing to do."""
    arrays, attrs = Problem(1, (32, 32), (3, 3), (32, 32), padding=SAME).of(
        "conv", "float32"
    )
    with vectors_of(lanes):
        lowered_conv, _ = lowered("conv", arrays, attrs)
        assert lowered_conv.calls[-1].code.emit is correlation.emit_winograd
        assert lowered_conv.calls[-1].tasks == 8
        check("conv", arrays, attrs)


@pytest.mark.parametrize("kind", KINDS)
def test_errors_are_small(kind):
    """Positive images, as activations are, and much to add up."""
    channels = (64, 64) if kind == "conv_kernel_grad" else (128, 64)
    problem = Problem(3, (16, 16), (3, 3), channels, padding=SAME)
    (x, other), attrs = problem.of(kind, "float32")
    arrays = (np.maximum(x, 0), other)
    assert is_winograd(kind, arrays, attrs)
    reference = expected(kind, arrays, attrs)
    error = np.abs(computed(kind, arrays, attrs) - reference).max()
    assert error < 2e-5 * np.sqrt(np.mean(reference**2))


def test_other_convolutions_are_direct():
    for problem, dtype in (
        (Problem(2, (8, 8), (3, 3), (16, 16)), "float64"),
        (Problem(2, (8, 8), (3, 3), (16, 16), strides=(2, 1)), "float32"),
        (Problem(2, (8, 8), (3, 3), (16, 16), dilation=(1, 2)), "float32"),
        (Problem(2, (8, 8), (3, 3), (16, 16), groups=2), "float32"),
        (Problem(2, (8, 8), (3, 5), (16, 16)), "float32"),
        (Problem(2, (8, 8), (3, 3), (16, 10)), "float32"),
        (Problem(2, (8,), (3,), (16, 16)), "float32"),
    ):
        for kind in KINDS:
            arrays, attrs = problem.of(kind, dtype)
            assert not is_winograd(kind, arrays, attrs)


# --- how exact ------------------------------------------------------------------------


@pytest.fixture
def highest():
    toolkit.config.set_matmul_precision("highest")
    yield
    toolkit.config.set_matmul_precision("strict")


@pytest.mark.parametrize("kind", ["conv", "conv_input_grad"])
@pytest.mark.parametrize("channels", [64, 128, 256, 512])
@pytest.mark.parametrize("activation", [lambda x: x, lambda x: np.maximum(x, 0)])
def test_errors_are_bounded_by_a_direct_convolution_of_512_channels(
    kind, channels, activation
):
    pair = (channels, 64) if kind == "conv" else (64, channels)
    problem = Problem(3, (16, 16), (3, 3), pair, padding=SAME)
    (x, w), attrs = problem.of(kind, "float32")
    arrays = (activation(x), w)
    assert is_winograd(kind, arrays, attrs)
    reference = expected(kind, arrays, attrs)
    errors = (computed(kind, arrays, attrs) - reference) / np.sqrt(
        np.mean(reference**2)
    )
    assert np.sqrt(np.mean(errors**2)) < 1.4e-6
    assert np.abs(errors).max() < 2e-5


@pytest.mark.parametrize("kind", KINDS)
def test_the_highest_precision_is_direct(kind, highest):
    arrays, attrs = Problem(3, (16, 16), (3, 3), (64, 64), padding=SAME).of(
        kind, "float32"
    )
    assert not is_winograd(kind, arrays, attrs)
    check(kind, arrays, attrs)


def test_a_compiled_function_follows_the_setting():
    (x, w), _ = Problem(2, (12, 12), (3, 3), (32, 32)).of("conv", "float32")
    convolve = toolkit.function(lambda x: ops.conv(x, w))
    strict = convolve(x).numpy()
    toolkit.config.set_matmul_precision("highest")
    direct = convolve(x).numpy()
    toolkit.config.set_matmul_precision("strict")
    assert not np.array_equal(strict, direct)
    np.testing.assert_array_equal(convolve(x).numpy(), strict)
    np.testing.assert_allclose(strict, direct, rtol=1e-3, atol=1e-4)


# Problems whose convolutions are computed in different ways: by tiles of outputs, with
# few channels spread over a vector, by dot products, strided, dilated, in groups.
WAYS = [
    Problem(2, (14, 13), (3, 3), (32, 48), padding=SAME),
    Problem(2, (14, 13), (3, 3), (3, 32), padding=SAME),
    Problem(2, (14, 13), (3, 3), (1, 16), padding=SAME),
    Problem(2, (14, 13), (3, 3), (32, 3), padding=SAME),
    Problem(2, (14, 13), (3, 3), (16, 1), padding=SAME),
    Problem(2, (14, 13), (3, 3), (32, 32), strides=(2, 2), padding=SAME),
    Problem(2, (14, 13), (3, 3), (32, 32), dilation=(2, 1), padding=SAME),
    Problem(2, (14, 13), (3, 3), (16, 16), groups=2, padding=SAME),
    Problem(2, (14, 13), (3, 3), (1, 1), groups=16, padding=SAME),
    Problem(2, (14, 13), (1, 1), (32, 32)),
    Problem(2, (14, 13), (5, 4), (20, 20)),
    Problem(2, (14,), (3,), (24, 24), padding=((1, 1),)),
]


@pytest.mark.parametrize("kind", ["conv", "conv_input_grad"])
@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("problem", WAYS, ids=repr)
def test_nonfinite_pixels_affect_only_their_windows(kind, value, problem, highest):
    (x, w), attrs = problem.of(kind, "float32")
    x[(1, *(n // 2 for n in x.shape[1:-1]), 0)] = value
    with np.errstate(invalid="ignore"):
        is_finite = np.isfinite(expected(kind, (x, w), attrs))
    actual = computed(kind, (x, w), attrs)
    assert not is_finite.all()
    np.testing.assert_array_equal(np.isfinite(actual), is_finite)


@pytest.mark.parametrize("problem", WAYS, ids=repr)
def test_large_pixel_affects_only_its_windows(problem, highest):
    (x, w), attrs = problem.of("conv", "float32")
    before = computed("conv", (x, w), attrs)
    is_reached = np.zeros_like(x)
    pixel = (1, *(n // 2 for n in x.shape[1:-1]), 0)
    is_reached[pixel] = 1
    windows_of_it = expected("conv", (is_reached, np.ones_like(w)), attrs) > 0
    x[pixel] = 1e8
    after = computed("conv", (x, w), attrs)
    np.testing.assert_array_equal(after[~windows_of_it], before[~windows_of_it])
    assert not np.array_equal(after, before)


@pytest.mark.parametrize("value", [np.inf, np.nan, 1e6])
def test_error_of_a_large_pixel_in_its_tile(value):
    """The documented limit: its own image, up to 3 pixels outside of its windows."""
    (x, w), attrs = Problem(2, (20, 20), (3, 3), (32, 32), padding=SAME).of(
        "conv", "float32"
    )
    before = computed("conv", (x, w), attrs)
    for pixel in ((1, 9, 10, 0), (1, 0, 19, 3), (1, 7, 8, 31)):
        changed = x.copy()
        changed[pixel] = value
        after = computed("conv", (changed, w), attrs)
        rows, columns = np.nonzero((after[1] != before[1]).any(-1))
        assert np.abs(rows - pixel[1]).max() <= 4
        assert np.abs(columns - pixel[2]).max() <= 4
        np.testing.assert_array_equal(after[0], before[0])
        if np.isfinite(value):
            reference = expected("conv", (changed, w), attrs)
            assert np.abs(after - reference).max() < 1e-5 * value
