"""Convolutions in AMX's tiles against float64 convolutions of the rounded factors."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

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
from tests.backends.jit.running import run_lowered
from tests.emulated_processor import WAYS, without_rounding
from toolkit import ops
from toolkit.backends.numpy.jit import llvm
from toolkit.backends.numpy.jit.calls import prepared
from toolkit.backends.numpy.jit.kernels.conv import rounded as convolutions
from toolkit.backends.numpy.jit.kernels.gemm.cost_model import BlockRates
from toolkit.backends.numpy.jit.processor import PROCESSORS, Processor, current
from toolkit.plans.rules import rules

FEATURES = "+amx-tile,+amx-bf16,+avx512bf16"
WITH_TILES = replace(PROCESSORS["x86-64-v4"], features=FEATURES, tiles=True)
ROUNDED = {"factors": "bfloat16"}
SAME = ((1, 1), (1, 1))


@pytest.fixture(scope="module", autouse=True, params=WAYS)
def way(request):
    """By AMX's tiles, or by dot products."""
    with request.param():
        yield


def rounded(x):
    return x.astype(ml_dtypes.bfloat16).astype("float32")


class Exact(Problem):
    """Problem whose numbers rounding does not change."""

    def of(self, kind, dtype):
        arrays, attrs = super().of(kind, dtype)
        return [rounded(a) for a in arrays], attrs


@pytest.fixture
def always(monkeypatch):
    """Tiles for convolutions of any extents."""
    rates = BlockRates(1.0, 3e10, dot_speedup=1e12)
    for module in (convolutions.lower, convolutions.lower_grad):
        monkeypatch.setattr(module, "RATES", rates)


def test_packed_weights_of_inference_are_cached(always):
    """All that a product reads of them, in pairs of strips of 16 channels."""
    arrays, attrs = PROBLEMS["whole tiles"].of("conv", "float32")
    arrays[1] = arrays[1][..., :10]
    pack, product = lowered("conv", arrays, attrs | ROUNDED)[0].calls
    assert pack.prepares == product.code.args[1].weight_bytes
    layer = toolkit.layers.Conv2D(10, 3, dtype="mixed_bfloat16")
    x = arrays[0]
    layer.build(x.shape)
    step = toolkit.function(lambda x: ops.cast(layer(x), "float32"))
    for scale in (1, 2):
        w = rounded(np.asarray(layer.kernel))
        exact = expected("conv", (rounded(x), w), attrs)
        np.testing.assert_allclose(np.asarray(step(x)), exact, atol=2e-2 * scale)
        layer.kernel.assign(layer.kernel * 2)


def functions(lowered_conv):
    return [call.code.emit.__name__ for call in lowered_conv.calls]


def assert_right(kind, arrays, attrs, views=None, limit=3e-7):
    """The sums of rounded products, in the same bits for any chunks of rows."""
    lowered_conv, out = lowered(kind, views or arrays, attrs | ROUNDED)
    assert any("rounded" in n for n in functions(lowered_conv))
    run_lowered(lowered_conv, views or arrays, [out])
    factors = [rounded(a) for a in arrays]
    sizes = expected(kind, [np.abs(a) for a in factors], attrs)
    error = np.abs(out - expected(kind, factors, attrs))
    assert (error <= limit * sizes + 1e-30).all()
    other = np.full_like(out, np.nan)
    run_lowered(lowered_conv, views or arrays, [other], chunk=1)
    np.testing.assert_array_equal(other, out)


PROBLEMS = {
    "one pixel": Problem(2, (6, 9), (1, 1), (32, 32)),
    "whole tiles": Problem(2, (6, 9), (3, 3), (64, 32)),
    "same": Problem(3, (7, 7), (3, 3), (40, 50), padding=SAME),
    "strides": Problem(
        3, (15, 14), (3, 3), (70, 33), padding=((0, 1), (1, 0)), strides=(2, 2)
    ),
    "one pixel of four": Problem(3, (14, 13), (1, 1), (64, 40), strides=(2, 2)),
    "dilation and strides": Problem(
        2, (9, 23), (3, 3), (35, 48), strides=(3, 2), dilation=(2, 3)
    ),
    "one axis": Problem(2, (37,), (5,), (35, 20), padding=((2, 2),)),
    "three axes": Problem(
        2, (5, 8, 15), (3, 3, 3), (35, 40), padding=((1, 1), (0, 0), (0, 0))
    ),
    "only padding is seen": Problem(
        2, (2, 2), (1, 2), (33, 40), padding=((3, 3), (3, 3))
    ),
    "parts of one image": Problem(1, (40, 41), (3, 3), (96, 65), padding=SAME),
    "zeros in front": Problem(2, (6, 16), (3, 3), (32, 40), padding=((1, 0), (1, 0))),
    "three colours": Problem(
        2, (9, 12), (3, 5), (3, 40), padding=((1, 1), (2, 1)), strides=(2, 2)
    ),
    "one channel of windows inside": Problem(2, (10, 8), (5, 3), (1, 33)),
    "many output channels": Problem(2, (5, 4), (1, 1), (17, 300)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.one_in(2)
def test_convolutions(always, name, kind):
    assert_right(kind, *PROBLEMS[name].of(kind, "float32"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.one_in(8)
def test_bfloat16_factors(always, name, kind):
    """The bits equal the result of float32 factors, whichever factors are narrow."""
    arrays, attrs = PROBLEMS[name].of(kind, "float32")
    narrow = [a.astype(ml_dtypes.bfloat16) for a in arrays]
    attrs = attrs | ROUNDED
    expected = computed(kind, arrays, attrs)
    for some in (narrow, [narrow[0], arrays[1]], [arrays[0], narrow[1]]):
        lowered_conv, _ = lowered(kind, some, attrs)
        assert any("rounded" in n for n in functions(lowered_conv))
        np.testing.assert_array_equal(computed(kind, some, attrs), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_narrow_factors_of_kernels_of_float32(kind):
    """Code widens them if the product is too small for tiles or has other strides."""
    for name in ("one pixel", "strides"):
        arrays, attrs = PROBLEMS[name].of(kind, "float32")
        narrow = [a.astype(ml_dtypes.bfloat16) for a in arrays]
        with rules.override(processor=without_rounding()):
            lowered_conv, _ = lowered(kind, narrow, attrs | ROUNDED)
            assert not any("rounded" in n for n in functions(lowered_conv))
            check(kind, narrow, attrs | ROUNDED)
            # Of weights that stay the same the cast alone is made once.
            for frozen in ([1], [0, 1]):
                preparations = prepared(lowered_conv, frozen)
                assert len(preparations.prepared) == len(frozen)
                names = [call.code.emit.__name__ for call in preparations.prepared]
                assert set(names) == {"emit_plan"}
            transposed = [
                np.moveaxis(np.moveaxis(a, -1, 0).copy(), 0, -1) for a in narrow
            ]
            check(kind, transposed, attrs | ROUNDED)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["whole tiles", "strides", "many output channels"])
def test_caches_smaller_than_weights_and_images(always, name, kind):
    with rules.override(processor=replace(Processor.host(), cache_bytes=1 << 16)):
        assert_right(kind, *PROBLEMS[name].of(kind, "float32"))


@pytest.mark.parametrize("moves", [0, 1 << 20])
def test_kernel_gradients_of_tasks_and_of_blocks(always, monkeypatch, moves):
    """Each task has partial sums of a part of the images, or a block has all images."""
    monkeypatch.setattr(convolutions.lower_grad, "_SUM_MOVES", moves)
    monkeypatch.setattr(convolutions.lower, "_TASK_FLOPS", 1)
    emitted = []
    for name in ("same", "strides", "whole tiles", "parts of one image", "one axis"):
        arrays, attrs = PROBLEMS[name].of("conv_kernel_grad", "float32")
        assert_right("conv_kernel_grad", arrays, attrs)
        emitted += functions(lowered("conv_kernel_grad", arrays, attrs | ROUNDED)[0])
    name = "emit_rounded_blocks" if moves else "emit_rounded_grad"
    assert emitted.count(name) == 5


def test_task_covers_rows_of_several_images(always, monkeypatch):
    monkeypatch.setattr(convolutions.lower_grad, "_SUM_MOVES", 0)
    problem = Problem(40, (8, 8), (3, 3), (16, 16), padding=SAME)
    with rules.override(processor=replace(Processor.host(), cache_bytes=1 << 15)):
        arrays, attrs = problem.of("conv_kernel_grad", "float32")
        grad = lowered("conv_kernel_grad", arrays, attrs | ROUNDED)[0].calls[0]
        assert 1 < grad.rows // 40 < grad.grain
        assert_right("conv_kernel_grad", arrays, attrs)


@pytest.mark.parametrize("kind", KINDS)
def test_strided_operands(always, kind):
    arrays, attrs = PROBLEMS["same"].of(kind, "float32")
    views = [np.moveaxis(np.moveaxis(a, -1, 1).copy(), 1, -1) for a in arrays]
    assert_right(kind, arrays, attrs, views)


@pytest.mark.parametrize("kind", KINDS[:2])
@pytest.mark.parametrize("channels", [(40, 40), (33, 144), (48, 288)])
def test_epilogue_is_fused(always, kind, channels):
    problem = Exact(3, (7, 18), (3, 3), channels, padding=SAME)
    check_layer(kind, problem, ROUNDED)


@pytest.mark.parametrize("strides", [(1, 1), (2, 2)])
def test_nonfinite_values_affect_only_their_windows(always, strides):
    problem = Problem(2, (9, 8), (3, 3), (40, 40), padding=SAME, strides=strides)
    for kind in KINDS:
        arrays, attrs = problem.of(kind, "float32")
        arrays[0][1, 3, 3, 5], arrays[1][1, 1, 1, 7] = np.nan, np.inf
        lowered_conv, out = lowered(kind, arrays, attrs | ROUNDED)
        run_lowered(lowered_conv, arrays, [out])
        is_known = np.isfinite(expected(kind, arrays, attrs))
        if kind == "conv_kernel_grad":
            # Positions that no output is at are multiplied by 0: all taps of a channel.
            is_known[..., 5, :] = is_known[..., 7] = False
        np.testing.assert_array_equal(np.isfinite(out) | ~is_known, True)
        assert not np.isfinite(out).all()


def test_only_bfloat16_factors_are_rounded():
    problem = Problem(8, (20, 20), (5, 5), (64, 64))
    (x, w), attrs = problem.of("conv", "float32")

    @toolkit.function
    def step(x, w):
        halves = ops.cast(x, "bfloat16"), ops.cast(w, "bfloat16")
        return ops.cast(ops.conv(*halves), "float32"), ops.conv(x, w)

    narrow, wide = (np.asarray(y) for y in step(x, w))
    exact = expected("conv", (x, w), attrs)
    np.testing.assert_allclose(wide, exact, atol=1e-3)
    near = expected("conv", (rounded(x), rounded(w)), attrs)
    assert np.abs(narrow - near).max() < 5e-4 < 1e-2 < np.abs(narrow - exact).max()


@pytest.mark.parametrize("kind", KINDS)
def test_winograd_is_preferred_to_dot_products(kind, way):
    """Tiles are several times as fast as both, at any size."""
    problem = Problem(64, (24, 24), (3, 3), (32, 32), padding=SAME)
    arrays, attrs = problem.of(kind, "float32")
    emitted = functions(lowered(kind, arrays, attrs | ROUNDED)[0])
    is_rounded = any("rounded" in name for name in emitted)
    assert is_rounded != any("winograd" in name for name in emitted)
    assert is_rounded == current().has_tiles


def test_gradients_of_a_layer_with_any_number_of_threads():
    """Both gradients are sums of rounded products, and the master weights float32."""
    problem = Problem(16, (14, 14), (5, 5), (64, 96), padding=((2, 2), (2, 2)))
    (x, _), attrs = problem.of("conv", "float32")
    g = problem.of("conv_kernel_grad", "float32")[0][1]
    layer = toolkit.layers.Conv2D(
        96, 5, padding="same", use_bias=False, dtype="mixed_bfloat16"
    )
    layer.build((None, 14, 14, 64))
    w = np.asarray(layer.kernel)

    def gradients():
        @toolkit.function
        def step(x, g):
            with toolkit.GradientTape() as tape:
                tape.watch(x)
                loss = ops.sum(ops.cast(layer(x), "float32") * g)
            return tape.gradient(loss, [x, layer.kernel])

        return [np.asarray(y, "float32") for y in step(x, g)], step.inspect(x, g)

    (of_x, of_w), report = gradients()
    factors = {"x": rounded(x), "w": rounded(w), "g": rounded(g)}
    for actual, kind, names in ((of_x, KINDS[1], "gw"), (of_w, KINDS[2], "xg")):
        more = problem.of(kind, "float32")[1]
        exact = expected(kind, [factors[name] for name in names], more)
        scale = np.abs(exact).max()
        # Dot products add more terms to one sum sequentially.
        limit = 2e-6 if Processor.host().has_dots else 1e-6
        np.testing.assert_allclose(actual / scale, exact / scale, atol=limit)
    assert str(report).count("factors=bfloat16") >= 2
    threads = toolkit.config.num_threads()
    toolkit.config.set_num_threads(3 - min(threads, 2))
    try:
        for one, other in zip(gradients()[0], (of_x, of_w), strict=True):
            np.testing.assert_array_equal(one, other)
    finally:
        toolkit.config.set_num_threads(threads)


@pytest.mark.parametrize("kind", KINDS)
def test_tile_instructions_are_used_if_they_are_faster(kind):
    def has_rounded(problem, processor=WITH_TILES, is_even=False, **options):
        arrays, attrs = problem.of(kind, "float32")
        with rules.override(processor=processor, rows_independent=is_even):
            lowered_conv, _ = lowered(kind, arrays, attrs | ROUNDED | options)
        return any("rounded" in n for n in functions(lowered_conv))

    large = Problem(8, (16, 16), (3, 3), (64, 64), padding=SAME)
    assert has_rounded(large)
    assert not has_rounded(large, PROCESSORS["x86-64-v4"])
    assert not has_rounded(large, WITH_TILES.with_lanes(8))
    assert not has_rounded(large, is_even=True)
    assert not has_rounded(large, factors="")
    assert not has_rounded(Problem(8, (16, 16), (3, 3), (3, 4), padding=SAME))
    assert not has_rounded(Problem(8, (16, 16), (3, 3), (16, 16), groups=4))
    assert not has_rounded(Problem(1, (32, 32), (7, 7), (32, 64)))
    assert not has_rounded(Problem(0, (16, 16), (3, 3), (64, 64)))


@pytest.mark.parametrize("kind", KINDS)
def test_instructions(kind):
    problem = Problem(8, (16, 16), (3, 3), (64, 64), padding=SAME)
    arrays, attrs = problem.of(kind, "float32")
    with rules.override(processor=WITH_TILES):
        calls = lowered(kind, arrays, attrs | ROUNDED)[0].calls
        texts = [call.code.text() for call in calls]
    library = llvm.binding_for_all()
    machine = library.Target.from_triple(WITH_TILES.triple).create_target_machine(
        cpu=WITH_TILES.cpu, features=FEATURES, opt=2
    )
    text = "".join(
        machine.emit_assembly(library.parse_assembly(text)) for text in texts
    )
    assert "vcvtne2ps2bf16" in text
    # Three taps have 3 x 2 x 1 tiles of sums of a kernel gradient; else there is a loop
    # of 2 x 2 tiles over consecutive blocks, of a convolution of three taps.
    products = {"conv": 3 * 4, "conv_input_grad": 9 * 4, "conv_kernel_grad": 9 * 2}
    assert text.count("tdpbf16ps") == products[kind]
    assert text.count("ldtilecfg") == text.count("tilerelease") == 1
