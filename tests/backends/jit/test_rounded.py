"""Products in AMX's tiles against float64 products of the rounded factors."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("llvmlite")

import toolkit
from tests.backends.jit.running import graph_of, operand_of, run_lowered
from tests.emulated_processor import WAYS
from toolkit import ops
from toolkit.backends.numpy.jit import llvm
from toolkit.backends.numpy.jit.kernels.gemm.cost_model import BlockRates
from toolkit.backends.numpy.jit.kernels.matmul import rounded as products
from toolkit.backends.numpy.jit.lowering import lower
from toolkit.backends.numpy.jit.processor import PROCESSORS, Processor, find
from toolkit.backends.target import Target
from toolkit.compiler.pipeline import optimize
from toolkit.core.tensor import backend
from toolkit.ir import Graph, Node, Value
from toolkit.plans.rules import rules

FEATURES = "+amx-tile,+amx-bf16,+avx512bf16"
WITH_TILES = replace(PROCESSORS["x86-64-v4"], features=FEATURES, tiles=True)
WITH_DOTS = replace(PROCESSORS["x86-64-v4"], cpu="znver4", features="+avx512bf16")


@pytest.fixture(scope="module", autouse=True, params=WAYS)
def way(request):
    """By AMX's tiles, or by dot products."""
    with request.param():
        yield


def normal(shape, is_transposed=False, seed=0):
    """An array, or a view of one that is stored the other way round."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=shape[::-1] if is_transposed else shape).astype("float32")
    return values.T if is_transposed else values


def narrow(x):
    return x.astype(ml_dtypes.bfloat16)


def assert_tiled(lowered):
    names = [call.code.emit.__name__ for call in lowered.calls]
    assert {"emit_tiled_product", "emit_split_k_product"} & set(names)


def body_of(function, *arrays):
    """The graph, whose products may round their factors."""
    wide = [a.astype("float32") if a.dtype == "bfloat16" else a for a in arrays]
    graph = optimize(graph_of(function, *wide), Target(backend()))
    operands = [Value(operand_of(a).spec) for a in arrays]
    read = dict(zip(graph.inputs, operands, strict=True))
    nodes = []
    for node in graph.nodes:
        attrs = {"factors": "bfloat16"} if node.op.name == "matmul" else node.attrs
        inputs = [read.get(x, x) for x in node.inputs]
        nodes.append(Node(node.op, inputs, attrs, node.outputs))
    return Graph(tuple(operands), tuple(nodes), graph.outputs)


def lowered_of(function, *arrays, frozen=False):
    operands = [replace(operand_of(a), is_frozen=frozen) for a in arrays]
    node = mock.Mock(attrs={"body": body_of(function, *arrays)})
    node.op.name = "fused"
    return lower(node, operands, [])


def computed(function, *arrays, chunk=0, frozen=False):
    """The output of generated functions, of which three make one product."""
    y = np.empty((arrays[0].shape[0], arrays[1].shape[1]), "float32")
    lowered = lowered_of(function, *arrays, frozen=frozen)
    assert len(lowered.calls) == 3
    run_lowered(lowered, arrays, [y], chunk)
    return y


def rounded(x):
    return x.astype(ml_dtypes.bfloat16).astype("float64")


def assert_close(actual, a, b):
    sizes = np.abs(rounded(a)) @ np.abs(rounded(b))
    error = np.abs(actual - rounded(a) @ rounded(b))
    assert (error <= 1e-6 * sizes + 1e-30).all()


@pytest.fixture
def always(monkeypatch):
    """Tiles for products of any extents."""
    rates = BlockRates(1.0, 1.8e10, dot_speedup=1e12)
    monkeypatch.setattr(products.lower, "_RATES", rates)


SHAPES = [
    *((64, 64, 64), (5, 9, 6), (33, 37, 70), (100, 1000, 17)),
    *((300, 70, 200), (40, 90, 550)),
]


@pytest.mark.parametrize("is_transposed", [(0, 0), (0, 1), (1, 0), (1, 1)], ids=str)
def test_products(always, is_transposed):
    for rows, depth, columns in SHAPES:
        a = normal((rows, depth), is_transposed[0])
        b = normal((depth, columns), is_transposed[1], 1)
        for frozen in (False, True):
            actual = computed(ops.matmul, a, b, frozen=frozen)
            assert_close(actual, a, b)
        # The same bits, however the rows of calls are divided.
        np.testing.assert_array_equal(computed(ops.matmul, a, b, chunk=1), actual)


@pytest.mark.parametrize("is_transposed", [(0, 0), (0, 1), (1, 0), (1, 1)], ids=str)
@pytest.mark.one_in(4)
def test_bfloat16_factors(always, is_transposed):
    """The bits equal the result of float32 factors, whichever factors are narrow.

    Products of many terms differ: more parts of narrow factors fit a cache.
    """
    small = replace(Processor.host(), cache_bytes=1 << 17)
    cases = [(shape, Processor.host()) for shape in SHAPES]
    for shape, processor in [*cases, ((64, 1024, 96), small)]:
        rows, depth, columns = shape
        a = normal((rows, depth), is_transposed[0])
        b = normal((depth, columns), is_transposed[1], 1)
        expected, actual = np.empty((2, rows, columns), "float32")
        with rules.override(processor=processor):
            run_lowered(lowered_of(ops.matmul, a, b), (a, b), [expected])
            for factors in ((narrow(a), narrow(b)), (narrow(a), b), (a, narrow(b))):
                calls = lowered_of(ops.matmul, *factors)
                assert_tiled(calls)
                run_lowered(calls, factors, [actual])
                assert_close(actual, a, b)
                if processor is not small:
                    np.testing.assert_array_equal(actual, expected)


def test_narrow_factors_of_kernels_of_float32():
    """Code widens them before a product that is too small for tiles."""
    for rows, depth, columns in ((2, 40, 60), (1, 900, 600), (90, 50, 1)):
        a, b = narrow(normal((rows, depth))), narrow(normal((depth, columns), seed=1))
        actual = np.empty((rows, columns), "float32")
        run_lowered(lowered_of(ops.matmul, a, b), (a, b), [actual])
        assert_close(actual, a, b)


@pytest.mark.parametrize("is_transposed", [(0, 0), (0, 1), (1, 0), (1, 1)], ids=str)
@pytest.mark.parametrize("shape", [(64, 1024, 96), (32, 2816, 64)], ids=str)
def test_many_terms(always, is_transposed, shape):
    """Parts of the terms are packed in the cache, in the same order for any thread."""
    rows, depth, columns = shape
    a = normal((rows, depth), is_transposed[0])
    b = normal((depth, columns), is_transposed[1], 1)
    full = normal((rows, columns), seed=2)

    def function(a, b, full):
        return ops.maximum(ops.matmul(a, b) + full, 0)

    outputs = []
    with rules.override(processor=replace(Processor.host(), cache_bytes=1 << 17)):
        lowered = lowered_of(function, a, b, full)
        multiply, combine = lowered.calls
        assert (
            multiply.code.emit.__name__ == "emit_split_k_product" and multiply.rows > 1
        )
        for chunk in (0, 1):
            outputs.append(np.empty((rows, columns), "float32"))
            run_lowered(lowered, (a, b, full), outputs[-1:], chunk)
        # Weights that stay the same are packed once, as a whole.
        assert len(lowered_of(ops.matmul, a, b, frozen=True).calls) == 3
    np.testing.assert_array_equal(*outputs)
    expected = np.maximum(rounded(a) @ rounded(b) + full, 0)
    np.testing.assert_allclose(outputs[0], expected, atol=1e-6 * depth)


def test_groups_of_one_panel(always):
    """A cache that holds few columns changes the order of the work, and no bit."""
    a, b = normal((70, 200)), normal((200, 150), seed=1)
    expected = computed(ops.matmul, a, b)
    with rules.override(processor=replace(Processor.host(), cache_bytes=1 << 15)):
        actual = computed(ops.matmul, a, b)
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("shape", [(33, 40, 17), (70, 64, 96), (40, 33, 523)], ids=str)
def test_epilogue(always, shape):
    rows, depth, columns = shape
    a, b = normal((rows, depth)), normal((depth, columns), seed=1)
    bias, full = normal((columns,), seed=2), normal((rows, columns), seed=3)
    actual = computed(
        lambda a, b, x, y: ops.maximum(ops.matmul(a, b) + x, 0) * y, a, b, bias, full
    )
    expected = np.maximum(rounded(a) @ rounded(b) + bias, 0) * full
    np.testing.assert_allclose(actual, expected, atol=1e-4)


def test_nonfinite_values_affect_only_their_row_and_column(always):
    a, b = normal((40, 37)), normal((37, 40), seed=1)
    a[3, 36], b[36, 5] = np.nan, np.inf
    actual = computed(ops.matmul, a, b)
    is_finite = np.isfinite(actual)
    assert not is_finite[3].any() and not is_finite[:, 5].any()
    assert is_finite.sum() == 39 * 39


def test_only_bfloat16_factors_are_rounded():
    x, w = normal((256, 512)), normal((512, 256), seed=1)

    @toolkit.function
    def step(x, w):
        halves = ops.cast(x, "bfloat16"), ops.cast(w, "bfloat16")
        return ops.cast(ops.matmul(*halves), "float32"), ops.matmul(x, w)

    narrow, wide = (np.asarray(y) for y in step(x, w))
    assert_close(narrow, x, w)
    assert np.abs(narrow - wide).max() > 1e-2
    np.testing.assert_allclose(wide, x.astype("float64") @ w, atol=1e-3)


def test_gradients_of_dense():
    """Both products of the gradient also use rounded factors."""
    layer = toolkit.layers.Dense(192, use_bias=False, dtype="mixed_bfloat16")
    x, g = normal((256, 320)), normal((256, 192), seed=1)
    layer.build((None, 320))

    @toolkit.function
    def step(x, g):
        with toolkit.GradientTape() as tape:
            tape.watch(x)
            loss = ops.sum(ops.cast(layer(x), "float32") * g)
        return tape.gradient(loss, [x, layer.kernel])

    of_x, of_w = (np.asarray(y, "float32") for y in step(x, g))
    w = np.asarray(layer.kernel)
    assert_close(of_x, g, w.T)
    assert_close(of_w, x.T, g)
    # The gradient of a float32 loss is near.
    np.testing.assert_allclose(of_w, x.T @ g, atol=0.5)


def test_threads_compute_the_same_bits():
    x, w = normal((512, 400)), normal((400, 600), seed=1)

    def step(x, w):
        return ops.relu(ops.matmul(ops.cast(x, "bfloat16"), ops.cast(w, "bfloat16")))

    outputs = []
    threads = toolkit.config.num_threads()
    try:
        for count in (1, 2):
            toolkit.config.set_num_threads(count)
            outputs.append(np.asarray(toolkit.function(step)(x, w), "float32"))
    finally:
        toolkit.config.set_num_threads(threads)
    np.testing.assert_array_equal(*outputs)


def test_updates_below_bfloat16_precision_are_applied():
    """Weights and their updates are float32; gradients are sums in float32."""
    layer = toolkit.layers.Dense(128, use_bias=False, dtype="mixed_bfloat16")
    model = toolkit.Sequential([toolkit.Input((256,)), layer])
    model.compile(toolkit.optimizers.SGD(1e-2), "mse")
    x, y = normal((256, 256)), normal((256, 128), seed=1)
    before = np.array(layer.kernel)
    model.train_on_batch(x, y)
    change = np.array(layer.kernel) - before
    error = rounded(x) @ rounded(before) - y
    expected = -1e-2 * 2 / error.size * x.T.astype("float64") @ error
    assert np.abs(expected).max() < 2**-9 * np.abs(before).mean()
    scale = np.abs(expected).max()
    # The tolerance covers the rounding of the factors to bfloat16.
    np.testing.assert_allclose(change, expected, atol=2e-2 * scale)


def test_only_large_products_use_tile_instructions():
    def calls(rows, depth, columns, target=WITH_TILES, is_even=False):
        a, b = normal((rows, depth)), normal((depth, columns))
        with rules.override(processor=target, rows_independent=is_even):
            lowered = lowered_of(ops.matmul, a, b)
        return [call.code.emit.__name__ for call in lowered.calls]

    large = ["emit_strips", "emit_strips", "emit_tiled_product"]
    assert calls(256, 512, 256) == large
    for emitted in (
        calls(256, 512, 256, PROCESSORS["x86-64-v4"]),
        calls(256, 512, 256, WITH_TILES.with_lanes(8)),
        calls(256, 512, 256, is_even=True),
        calls(2, 512, 256),
        calls(256, 512, 4),
    ):
        assert "emit_tiled_product" not in emitted


def test_libraries_use_no_tiles():
    """The process that loads a library may not have permission for tiles."""
    assert not any(p.tiles for p in (*find(None, True), *find("x86-64", True)))


def instructions(processor):
    """Return the machine code that packs a factor, and of the product."""
    a, b = normal((256, 512)), normal((512, 256))
    with rules.override(processor=processor):
        calls = lowered_of(ops.matmul, a, b).calls
        packing, _, product = (call.code.text() for call in calls)
    library = llvm.binding_for_all()
    machine = library.Target.from_triple(processor.triple).create_target_machine(
        cpu=processor.cpu, features=processor.features, opt=2
    )
    return [
        machine.emit_assembly(library.parse_assembly(text))
        for text in (packing, product)
    ]


def test_instructions_of_tiles():
    packing, product = instructions(WITH_TILES)
    assert "vcvtne2ps2bf16" in packing
    assert product.count("tdpbf16ps") == 4
    assert product.count("ldtilecfg") == product.count("tilerelease") == 1


@pytest.mark.parametrize(
    "processor, rounds, dot, stack",
    [
        (WITH_DOTS, "vcvtne2ps2bf16", "vdpbf16ps", "rsp)"),
        (replace(PROCESSORS["aarch64"], features="+bf16"), "bfcvtn", "bfdot", "[sp"),
    ],
    ids=["x86", "arm"],
)
def test_instructions_of_dot_products(processor, rounds, dot, stack):
    packing, product = instructions(processor)
    assert rounds in packing and "tile" not in product
    function = product[product.index("sum_up_2:") :]
    lines = function[: function.index(".size")].splitlines()
    # The loop over words: its sums are in registers.
    dots = [i for i, line in enumerate(lines) if dot in line]
    assert len(dots) == 16
    assert not any(stack in line for line in lines[dots[0] : dots[-1]])


def test_inspect_shows_rounded_values():
    layer = toolkit.layers.Dense(5, activation="relu", dtype="mixed_bfloat16")
    step = toolkit.function(lambda x: layer(x))
    assert "factors=bfloat16" in str(step.inspect(np.ones((3, 8), "float32")))
