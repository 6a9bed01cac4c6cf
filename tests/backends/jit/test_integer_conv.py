"""Generated convolutions of 8-bit whole numbers against `reference`, bit by bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

pytest.importorskip("llvmlite")

from tests.backends.jit.running import graph_of, operand_of, run_lowered
from tests.backends.jit.test_integer import PROCESSORS_HERE, words_of
from tests.emulated_processor import processor_with_tiles
from toolkit import ops
from toolkit.backends.numpy.jit.kernels.integer import (
    lower_conv_integer,
    tiled_convolution,
)
from toolkit.backends.numpy.jit.processor import PROCESSORS, Processor
from toolkit.backends.reference import images as reference
from toolkit.backends.target import Target
from toolkit.compiler.pipeline import optimize
from toolkit.core.tensor import backend, bind
from toolkit.ops.quantize import conv_integer_p, quantize
from toolkit.plans.rules import rules

# The dtype of images, their bits, and their zero point.
KINDS = [("int8", 8, 0), ("uint8", 8, 0), ("uint8", 8, 100), ("uint8", 7, 0)]
KINDS += [("uint8", 7, 64)]


def random_integers(shape, dtype="int8", seed=0, bits=8):
    low, high = (0, 1 << bits) if dtype == "uint8" else (-128, 128)
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


def attributes(strides, padding, dilation, groups=1, offset=0, bits=8):
    return {
        "offset": offset,
        "bits": bits,
        "strides": strides,
        "padding": padding,
        "dilation": dilation,
        "groups": groups,
    }


def computed(function, *arrays, chunk=0, frozen=False, names=None):
    """The outputs of generated functions. `names` receives those of their emitters."""
    graph = optimize(graph_of(function, *arrays), Target(backend()))
    nodes = sorted(graph.nodes, key=lambda n: n.op.name != "conv_integer")
    body = graph.replace(nodes)
    outs = [np.empty(y.spec.shape, y.spec.dtype) for y in body.outputs]
    operands = [replace(operand_of(a), is_frozen=frozen) for a in arrays]
    lowered = lower_conv_integer(body, operands, [])
    assert lowered is not None
    run_lowered(lowered, arrays, outs, chunk)
    if names is not None:
        names += [call.code.emit.__name__ for call in lowered.calls]
    return outs


def check(x, w, target, chunk=0, names=None, **attrs):
    def function(x, w):
        return bind(conv_integer_p, x, w, **attrs)

    with rules.override(processor=target):
        (y,) = computed(function, x, w, chunk=chunk, names=names)
    np.testing.assert_array_equal(y, reference.conv_integer(x, w, **attrs))


@st.composite
def problems(draw):
    """Draw shapes and attributes of a convolution with one group."""
    rank = draw(st.integers(1, 3))
    small = st.integers(1, 3)

    def each(values):
        return tuple(draw(values) for _ in range(rank))

    size, strides, dilation = each(small), each(st.integers(1, 2)), each(small)
    padding = tuple((draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in size)
    spatial = tuple(
        max(1, (k - 1) * d + 1 - sum(p)) + draw(st.integers(0, 20 if rank < 3 else 3))
        for k, d, p in zip(size, dilation, padding, strict=True)
    )
    batch, channels = draw(small), draw(st.integers(1, 40))
    filters = draw(st.integers(1, 70))
    return (
        (batch, *spatial, channels),
        (*size, channels, filters),
        attributes(strides, padding, dilation),
    )


@given(
    problem=problems(),
    target=st.sampled_from(PROCESSORS_HERE),
    kind=st.sampled_from(KINDS),
    chunk=st.integers(0, 2),
)
@settings(max_examples=40, deadline=None)
def test_convolutions(problem, target, kind, chunk):
    (x, w, attrs), (dtype, bits, offset) = problem, kind
    attrs |= {"bits": bits, "offset": offset}
    x = random_integers(x, dtype, bits=bits)
    check(x, random_integers(w, seed=1), target, chunk, **attrs)


def check_tiles(x, w, attrs, kind, cache_bytes, chunk=0):
    """Compare a convolution in tiles, native or emulated, whatever they cost."""
    dtype, bits, offset = kind
    with processor_with_tiles(), pytest.MonkeyPatch.context() as patched:
        patched.setattr(tiled_convolution, "TILE_SPEEDUP", 1e9)
        target = replace(Processor.host(), cache_bytes=cache_bytes)
        names: list[str] = []
        x_values = random_integers(x, dtype, bits=bits)
        weights = random_integers(w, seed=1)
        attrs = attrs | {"bits": bits, "offset": offset}
        check(x_values, weights, target, chunk, names, **attrs)
    assert names[-1] in ("emit_rounded_correlation", "emit_rounded_panels")


@given(
    problem=problems(),
    kind=st.sampled_from(KINDS),
    chunk=st.integers(0, 2),
    cache_bytes=st.sampled_from([1 << 14, 1 << 18, 1 << 21]),
)
@settings(max_examples=15, deadline=None)
def test_tiles(problem, kind, chunk, cache_bytes):
    x, w, attrs = problem
    check_tiles(x, w, attrs, kind, cache_bytes, chunk)


# The pixels of all images as one axis, a part of an image, several groups of panels,
# channels of several blocks, and weights that exceed the cache.
TILED = [
    ((16, 7, 7, 64), (1, 1, 64, 40), attributes((1, 1), ((0, 0),) * 2, (1, 1))),
    ((5, 9, 11, 65), (1, 1, 65, 33), attributes((2, 2), ((0, 0),) * 2, (1, 1))),
    ((2, 14, 14, 130), (3, 3, 130, 300), attributes((1, 1), ((1, 1),) * 2, (1, 1))),
    ((3, 15, 13, 32), (3, 3, 32, 96), attributes((2, 2), ((1, 1),) * 2, (2, 2))),
    ((1, 19, 70), (5, 70, 17), attributes((1,), ((3, 1),), (1,))),
    ((2, 23, 21, 3), (7, 7, 3, 40), attributes((2, 2), ((3, 3), (2, 3)), (1, 1))),
    ((1, 20, 18, 8), (4, 5, 8, 16), attributes((1, 3), ((0, 0), (1, 0)), (2, 1))),
]


# Signals of few channels, whose windows overlap.
SIGNALS = [
    ((2, 3, 1), (2, 1, 1), attributes((1,), ((0, 0),), (1,))),
    ((2, 2, 1), (2, 1, 1), attributes((1,), ((0, 0),), (1,))),
    ((3, 1, 40), (1, 40, 5), attributes((1,), ((0, 0),), (1,))),
    ((3, 40, 4), (5, 4, 48), attributes((1,), ((2, 2),), (1,))),
    ((3, 41, 6), (4, 6, 33), attributes((2,), ((0, 1),), (1,))),
    ((2, 12, 8), (3, 8, 16), attributes((3,), ((0, 0),), (1,))),
    ((4, 1, 30, 3), (1, 7, 3, 16), attributes((1, 1), ((0, 0),) * 2, (1, 1))),
]


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[2]], ids=str)
def test_tiles_of_signals_of_few_channels(kind):
    for x, w, attrs in SIGNALS:
        check_tiles(x, w, attrs, kind, 1 << 21)


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[2]], ids=str)
@pytest.mark.parametrize("cache_bytes", [1 << 15, 1 << 21])
def test_tiles_of_many_channels(kind, cache_bytes):
    for x, w, attrs in TILED:
        check_tiles(x, w, attrs, kind, cache_bytes)


def test_convolutions_that_fill_tiles_use_them():
    """Few channels, or a processor without tiles, take vectors of words."""
    features = "+avx512vnni,+amx-tile,+amx-int8"
    target = replace(PROCESSORS["x86-64-v4"], features=features, tiles=True)
    attrs = attributes((1, 1), ((1, 1),) * 2, (1, 1))

    def last_name(channels, target=target, size=3):
        x = random_integers((1, 28, 28, channels), "uint8")
        w = random_integers((size, size, channels, 64))

        def function(x, w):
            return bind(conv_integer_p, x, w, **attrs)

        with rules.override(processor=target):
            graph = optimize(graph_of(function, x, w), Target(backend()))
            lowered = lower_conv_integer(graph, [operand_of(x), operand_of(w)], [])
        return lowered.calls[-1].code.emit.__name__

    assert last_name(64) == last_name(40) == "emit_rounded_correlation"
    assert last_name(3, size=7) == "emit_rounded_correlation"
    for channels, other in (
        (2, target),
        (64, replace(target, tiles=False)),
        (64, replace(target, features="+avx512vnni")),
    ):
        assert last_name(channels, other) == "emit_integer_product"


# Rows that are packed block by block, and words that are the bytes of an image.
LARGE = [
    ((2, 17, 15, 16), (1, 1, 16, 24), attributes((1, 1), ((0, 0),) * 2, (1, 1))),
    ((1, 33, 20, 7), (3, 3, 7, 40), attributes((2, 1), ((1, 0),) * 2, (1, 1))),
    ((1, 30, 30, 3), (3, 3, 3, 8), attributes((1, 1), ((1, 1),) * 2, (2, 2))),
]


@pytest.mark.parametrize("target", PROCESSORS_HERE, ids=lambda p: repr(words_of(p)))
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_many_rows(target, kind):
    dtype, bits, offset = kind
    for x, w, attrs in LARGE:
        attrs = attrs | {"bits": bits, "offset": offset}
        for chunk in (0, 1):
            x_whole = random_integers(x, dtype, bits=bits)
            check(x_whole, random_integers(w, seed=1), target, chunk, **attrs)


@pytest.mark.parametrize("target", PROCESSORS_HERE, ids=lambda p: repr(words_of(p)))
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_extremes(target, kind):
    """Sums neither saturate nor lose a sign, also in the padding."""
    dtype, bits, offset = kind
    attrs = attributes((1, 1), ((1, 1), (1, 1)), (1, 1), 1, offset, bits)
    limits = (-128, 127) if dtype == "int8" else (0, (1 << bits) - 1)
    for value in limits:
        for other in (-128, 127):
            x = np.full((1, 14, 13, 9), value, dtype)
            w = np.full((3, 3, 9, 17), other, "int8")
            check(x, w, target, **attrs)


@pytest.mark.parametrize("target", PROCESSORS_HERE, ids=lambda p: repr(words_of(p)))
@pytest.mark.parametrize("filters", [5, 24, 40])
def test_epilogue(target, filters):
    """Scale, add another image, and round to bytes for the next operation."""
    x, w = (
        random_integers((2, 13, 12, 9), "uint8"),
        random_integers((3, 3, 9, filters), seed=1),
    )
    rng = np.random.default_rng(0)
    scale = rng.uniform(0, 1e-3, filters).astype("float32")
    other = rng.normal(size=(2, 13, 12, filters)).astype("float32")
    attrs = attributes((1, 1), ((1, 1), (1, 1)), (1, 1))

    def function(x, w, scale, other):
        y = ops.cast(bind(conv_integer_p, x, w, **attrs), "float32") * scale + other
        return y, quantize(y, 20.0)

    with rules.override(processor=target):
        y, rounded = computed(function, x, w, scale, other)
    exact = reference.conv_integer(x, w, **attrs).astype("float32")
    expected = exact * scale + other
    np.testing.assert_array_equal(y, expected)
    small = np.clip(np.round(expected * np.float32(20)), 0, 255).astype("uint8")
    np.testing.assert_array_equal(rounded, small)


@given(
    rank=st.integers(1, 2),
    target=st.sampled_from(PROCESSORS_HERE),
    kind=st.sampled_from(KINDS),
    chunk=st.integers(0, 2),
    data=st.data(),
)
@settings(max_examples=40, deadline=None)
def test_depthwise(rank, target, kind, chunk, data):
    dtype, bits, offset = kind

    def each(values):
        return tuple(data.draw(values) for _ in range(rank))

    size, strides = each(st.integers(1, 5)), each(st.integers(1, 3))
    sides = st.integers(0, 3)
    padding = tuple((data.draw(sides), data.draw(sides)) for _ in size)
    spatial = tuple(
        max(1, k - sum(p)) + data.draw(st.integers(0, 20))
        for k, p in zip(size, padding, strict=True)
    )
    batch, channels = data.draw(st.integers(1, 3)), data.draw(st.integers(2, 70))
    attrs = attributes(strides, padding, (1,) * rank, channels, offset, bits)
    x = random_integers((batch, *spatial, channels), dtype, bits=bits)
    check(x, random_integers((*size, 1, channels)), target, chunk, **attrs)


@pytest.mark.parametrize("target", PROCESSORS_HERE, ids=lambda p: repr(words_of(p)))
@pytest.mark.parametrize("channels", [16, 37])
def test_depthwise_epilogue(target, channels):
    x, w = (
        random_integers((2, 9, 8, channels), "uint8"),
        random_integers((3, 3, 1, channels), seed=1),
    )
    x[0], w[..., 0] = 255, -128
    scale = np.random.default_rng(0).uniform(0, 1e-3, channels).astype("float32")
    attrs = attributes((1, 1), ((1, 1), (1, 1)), (1, 1), channels)

    def function(x, w, scale):
        y = ops.cast(bind(conv_integer_p, x, w, **attrs), "float32") * scale
        return y, quantize(y, 20.0, 64, 7)

    with rules.override(processor=target):
        y, rounded = computed(function, x, w, scale)
    expected = reference.conv_integer(x, w, **attrs).astype("float32") * scale
    np.testing.assert_array_equal(y, expected)
    small = np.clip(np.round(expected * np.float32(20) + 64), 0, 127).astype("uint8")
    np.testing.assert_array_equal(rounded, small)
