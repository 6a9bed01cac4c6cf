"""Generated products of 8-bit whole numbers against NumPy's, bit by bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

pytest.importorskip("llvmlite")

import toolkit
from tests.backends.jit.running import graph_of, operand_of, run_lowered
from tests.emulated_processor import processor_with_tiles
from toolkit import ops
from toolkit.backends.numpy.jit import llvm
from toolkit.backends.numpy.jit.kernels.integer import lower, lower_matmul_integer
from toolkit.backends.numpy.jit.kernels.integer.words import Words, words_of
from toolkit.backends.numpy.jit.processor import PROCESSORS, Processor
from toolkit.backends.target import Target
from toolkit.compiler.pipeline import optimize
from toolkit.core.tensor import backend
from toolkit.plans.rules import rules

VNNI = ("avx512vnni", "avxvnni")


def processor(lanes, has_dot):
    """Return this processor with vectors of `lanes` words and optional dot products."""
    host = Processor.host()
    features = host.features.split(",")
    if not has_dot:
        features = [f.replace("+", "-") if f[1:] in VNNI else f for f in features]
    return replace(host.with_lanes(lanes), features=",".join(features))


PROCESSORS_HERE = [processor(lanes, d) for lanes in (4, 8, 16) for d in (True, False)]


def random_integers(shape, seed=0):
    values = np.random.default_rng(seed).integers(-128, 128, shape)
    return values.astype("int8")


def body_of(function, *arrays):
    graph = optimize(graph_of(function, *arrays), Target(backend()))
    nodes = sorted(graph.nodes, key=lambda n: n.op.name != "matmul_integer")
    return graph.replace(nodes)


def computed(function, *arrays, chunk=0, frozen=False):
    """The first output of generated functions."""
    body = body_of(function, *arrays)
    y = np.empty(body.outputs[0].spec.shape, body.outputs[0].spec.dtype)
    operands = [replace(operand_of(a), is_frozen=frozen) for a in arrays]
    lowered = lower_matmul_integer(body, operands, [])
    assert lowered is not None
    run_lowered(lowered, arrays, [y], chunk)
    return y


def product(a, b):
    return a.astype("int32") @ b.astype("int32")


def scaled(a, b, columns, rows, full):
    y = ops.cast(ops.matmul(a, b), "float32") * columns * rows
    return ops.maximum(y + full, 0.5)


extents = st.one_of(st.integers(1, 20), st.integers(1, 140))


@given(
    shape=st.tuples(extents, extents, extents),
    target=st.sampled_from(PROCESSORS_HERE),
    chunk=st.integers(0, 2),
)
@settings(max_examples=30, deadline=None)
def test_products(shape, target, chunk):
    rows, depth, columns = shape
    a, b = random_integers((rows, depth)), random_integers((depth, columns), 1)
    with rules.override(processor=target):
        np.testing.assert_array_equal(
            computed(ops.matmul, a, b, chunk=chunk), product(a, b)
        )


EDGES = [
    ((3, 5), (5, 7)),
    ((14, 49), (49, 32)),
    ((2, 3, 8), (8, 64)),
    ((1, 64), (64, 64)),
    ((7, 3000), (3000, 17)),
    ((4, 0), (0, 3)),
]


@pytest.mark.parametrize("target", PROCESSORS_HERE, ids=lambda p: repr(words_of(p)))
@pytest.mark.parametrize("extreme", [-128, 127])
def test_extremes(target, extreme):
    """Sums neither saturate nor lose a sign, with terms of any kind."""
    for shapes in EDGES:
        for other in (-128, 127):
            a, b = (
                np.full(shapes[0], extreme, "int8"),
                np.full(shapes[1], other, "int8"),
            )
            with rules.override(processor=target):
                np.testing.assert_array_equal(computed(ops.matmul, a, b), product(a, b))


@pytest.mark.parametrize("target", PROCESSORS_HERE, ids=lambda p: repr(words_of(p)))
@pytest.mark.parametrize("shape", [(5, 9, 7), (2, 3, 40, 130), (3, 33, 70)], ids=str)
def test_epilogue(target, shape):
    """Numbers for all elements, for columns, and for rows."""
    *batch, depth, columns = shape
    rng = np.random.default_rng(0)
    a, b = random_integers((*batch, depth)), random_integers((depth, columns), 1)
    shapes = (columns,), (*batch, 1), (*batch, columns)
    addends = [rng.normal(size=s).astype("float32") for s in shapes]
    with rules.override(processor=target):
        y = computed(scaled, a, b, *addends)
        frozen_result = computed(scaled, a, b, *addends, frozen=True)
    exact = (a.astype("int32") @ b.astype("int32")).astype("float32")
    expected = np.maximum(exact * addends[0] * addends[1] + addends[2], 0.5)
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(frozen_result, expected)


@pytest.mark.parametrize("target", PROCESSORS_HERE, ids=lambda p: repr(words_of(p)))
@pytest.mark.parametrize("shape", [(2, 1100, 1030), (1, 70, 16500)], ids=str)
def test_sections_of_few_rows(target, shape):
    """The terms and the columns of a matrix are divided among tasks."""
    rows, depth, columns = shape
    a, b = random_integers((rows, depth)), random_integers((depth, columns), 1)
    with rules.override(processor=target):
        y = computed(ops.matmul, a, b, chunk=1)
        np.testing.assert_array_equal(y, product(a, b))
        body = body_of(ops.matmul, a, b)
        calls = lower_matmul_integer(body, list(map(operand_of, (a, b))), []).calls
    assert calls[1].tasks > 1
    assert not any(call.prepares for call in calls)


# Shapes with rows that are read in place, or packed, and one or several panel groups.
TILED = [(64, 128, 70), (33, 64, 40), (5, 3, 9), (40, 200, 300)]


@pytest.fixture
def tiles():
    """AMX's, or emulated ones."""
    with processor_with_tiles():
        yield


@pytest.mark.parametrize("shape", TILED, ids=str)
@pytest.mark.parametrize("sign", [-1, 1])
def test_tiles(tiles, monkeypatch, shape, sign):
    monkeypatch.setattr(lower, "TILE_SPEEDUP", 1e9)
    rows, depth, columns = shape
    a, b = random_integers((rows, depth)), random_integers((depth, columns), 1)
    a[:, -1], b[-1] = -128, 127 if sign > 0 else -128
    rng = np.random.default_rng(0)
    addends = [
        rng.normal(size=s).astype("float32")
        for s in ((columns,), (rows, 1), (rows, columns))
    ]
    exact = product(a, b).astype("float32")
    expected = np.maximum(exact * addends[0] * addends[1] + addends[2], 0.5)
    small = replace(Processor.host(), cache_bytes=1 << 14)
    for target, chunk, frozen in ((None, 0, False), (None, 1, True), (small, 0, True)):
        with rules.override(processor=target or Processor.host()):
            np.testing.assert_array_equal(computed(ops.matmul, a, b), product(a, b))
            y = computed(scaled, a, b, *addends, chunk=chunk, frozen=frozen)
        np.testing.assert_array_equal(y, expected)


def test_only_full_tiles_use_tile_instructions():
    features = "+avx512vnni,+amx-tile,+amx-int8"
    target = replace(PROCESSORS["x86-64-v4"], features=features, tiles=True)

    def names(rows, columns, target=target, depth=64):
        a, b = random_integers((rows, depth)), random_integers((depth, columns))
        with rules.override(processor=target):
            body = body_of(ops.matmul, a, b)
            calls = lower_matmul_integer(body, list(map(operand_of, (a, b))), []).calls
        return [call.code.emit.__name__ for call in calls]

    # Code reads rows in place if no tile exceeds them.
    first, packing, last = "emit_pack_panels", "emit_pack_rows", "emit_tiled_product"
    assert names(64, 64) == [first, last]
    assert names(63, 64) == names(64, 64, depth=60) == [first, packing, last]
    for emitted in (
        names(8, 64),
        names(64, 8),
        names(64, 64, replace(target, tiles=False)),
        names(64, 64, replace(target, features="+avx512vnni")),
        names(64, 64, target.with_lanes(8)),
    ):
        assert emitted[-1] == "emit_integer_product"


def test_square_results_distinguish_rows_and_columns():
    a, b = random_integers((6, 8)), random_integers((8, 6), 1)
    x = np.arange(6, dtype="float32")
    actual = toolkit.function(
        lambda a, b, x: ops.cast(ops.matmul(a, b), "float32") * x[:, None] + x
    )(a, b, x)
    np.testing.assert_array_equal(actual, product(a, b) * x[:, None] + x)


def test_rows_of_operands_with_more_axes():
    """Numbers that are neither for rows nor for columns are no part of the kernel."""
    a, b = random_integers((4, 3, 8)), random_integers((8, 6), 1)
    for shape in ((4, 1, 1), (3, 1), (4, 3, 1), (1, 3, 1)):
        x = np.random.default_rng(0).normal(size=shape).astype("float32")
        actual = toolkit.function(
            lambda a, b, x: ops.cast(ops.matmul(a, b), "float32") * x
        )(a, b, x)
        np.testing.assert_array_equal(actual, product(a, b).astype("float32") * x)


def test_words():
    word_counts = {
        words_of(p).instruction.rpartition(".")[0]
        for p in (processor(16, False), *PROCESSORS.values())
    }
    assert word_counts == {""}  # the baseline of a family has no dot product
    vnni = replace(PROCESSORS["x86-64-v4"], features="+avx512vnni")
    assert words_of(vnni) == Words(4, 128, "x86.avx512.vpdpbusd.512")
    narrow = replace(PROCESSORS["x86-64-v3"], features="+avxvnni")
    assert words_of(narrow) == Words(4, 128, "x86.avx512.vpdpbusd.256")
    arm = replace(PROCESSORS["aarch64"], features="+dotprod")
    assert words_of(arm) == Words(4, 0, "aarch64.neon.sdot.v4i32.v16i8")


@pytest.mark.parametrize(
    ("name", "features", "instruction"),
    [
        ("x86-64-v4", "+avx512vnni", "vpdpbusd"),
        ("x86-64-v4", "", "vpmaddwd"),
        ("x86-64-v3", "+avxvnni", "vpdpbusd"),
        ("x86-64-v3", "", "vpmaddwd"),
        ("x86-64-v2", "", "pmaddwd"),
        ("aarch64", "+dotprod", "sdot"),
        ("aarch64", "", "smull"),
    ],
)
def test_instructions(name, features, instruction):
    target = replace(PROCESSORS[name], features=features)
    a, b = random_integers((12, 64)), random_integers((64, 64))
    with rules.override(processor=target):
        body = body_of(ops.matmul, a, b)
        lowered = lower_matmul_integer(body, [operand_of(a), operand_of(b)], [])
        text = lowered.calls[-1].code.text()
    library = llvm.binding()
    library.initialize_all_targets()
    library.initialize_all_asmprinters()
    machine = library.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=2
    )
    assert instruction in machine.emit_assembly(library.parse_assembly(text))


def test_inspect_shows_the_product():
    layer = toolkit.layers.Dense(5, activation="relu")
    layer.build((None, 8))
    layer.quantize("int8")
    step = toolkit.function(lambda x: layer(x))
    text = str(step.inspect(np.ones((3, 8), "float32")))
    assert "matmul_integer, cast, 2 multiply, add, maximum" in text
