"""Generated products with weights of 4 bits against their definition."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import toolkit
from tests.backends.jit.running import graph_of, operand_of, run_lowered, vectors_of
from tests.helpers import assert_close
from toolkit import quantizers
from toolkit.backends.numpy.jit.kernels.matmul import lower_matmul_int4
from toolkit.backends.numpy.jit.lowering import takes_whole
from toolkit.backends.numpy.jit.processor import Processor
from toolkit.ir import Graph
from toolkit.layers import Dense
from toolkit.ops.int4 import matmul_int4
from toolkit.plans.rules import rules

SHAPES = [
    (1, 8, 64),
    (1, 33, 7),
    (3, 20, 130),
    (8, 5, 17),
    (13, 40, 70),
    (30, 700, 33),
    (2, 9, 1),
]


def operands(rows, depth, columns, block=4, seed=0):
    """Return rows, a weight in the form of layers, and the numbers of the weight."""
    rng = np.random.default_rng(seed)
    x = (rng.normal(size=(rows, depth)) / depth**0.5).astype("float32")
    values = rng.integers(-8, 8, (depth, columns)).astype("int8")
    packed = np.ascontiguousarray(quantizers.pack_int4(values, -1)[0])
    blocks = -(-depth // block)
    scale = rng.uniform(0.1, 1, (blocks, columns)).astype("float32")
    zero = rng.integers(-8, 8, (blocks, columns)).astype("int8")
    numbers = rng.permutation(np.arange(depth) // block).astype("float32")
    of_row = numbers.astype(int)
    weight = (values - zero[of_row].astype("float64")) * scale[of_row]
    return (x, packed, scale, zero, numbers), weight


def operands_weight(arrays):
    """Return the float64 matrix of operands."""
    _, packed, scale, zero, numbers = arrays
    values = np.stack([packed & 15, packed >> 4 & 15], -1)
    values = values.reshape(len(packed), -1)[:, : scale.shape[1]]
    of_row = numbers.astype(int)
    return (((values ^ 8) - 8) - zero[of_row].astype("float64")) * scale[of_row]


def lowered_of(arrays):
    graph = graph_of(matmul_int4, *arrays)
    (node,) = (n for n in graph.nodes if n.op.name == "matmul_int4")
    assert takes_whole(node)
    body = Graph(node.inputs, (node,), node.outputs)
    return lower_matmul_int4(body, [operand_of(a) for a in arrays], [])


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products(shape, lanes):
    arrays, weight = operands(*shape)
    outputs = []
    for chunk in (0, 1):
        y = np.full((shape[0], shape[2]), np.nan, "float32")
        with vectors_of(lanes):
            run_lowered(lowered_of(arrays), arrays, [y], chunk)
        outputs.append(y)
    assert_close(outputs[0], (arrays[0].astype("float64") @ weight).astype("float32"))
    np.testing.assert_array_equal(*outputs)


@pytest.mark.parametrize("rows", [1, 8, 31])
def test_any_number_of_rows(rows):
    arrays, weight = operands(rows, 24, 19)
    expected = arrays[0] @ weight
    for compute in (matmul_int4, toolkit.function(matmul_int4)):
        np.testing.assert_allclose(compute(*arrays), expected, rtol=1e-4, atol=1e-4)


def test_unsigned_numbers():
    (x, packed, scale, zero, numbers), weight = operands(5, 24, 19)
    packed = packed.view("uint8") ^ 0x88
    arrays = (x, packed, scale, (zero + 8).astype("uint8"), numbers)
    for compute in (matmul_int4, toolkit.function(matmul_int4)):
        np.testing.assert_allclose(compute(*arrays), x @ weight, rtol=1e-4, atol=1e-4)


def test_rows_have_the_same_bits_in_any_batch():
    (x, *weight), _ = operands(31, 500, 70)
    outputs = []
    for rows in (1, 4, 7, 31):
        arrays, y = (x[:rows], *weight), np.empty((rows, 70), "float32")
        with rules.override(rows_independent=True):
            run_lowered(lowered_of(arrays), arrays, [y])
        outputs.append(y)
    for y in outputs:
        np.testing.assert_array_equal(y, outputs[-1][: len(y)])


DOTS = {"avx512vnni", "avxvnni", "avx512bw", "avx2", "ssse3", "dotprod"}


def without_dots(processor):
    """The same processor without instructions for dot products of bytes."""
    features = [x for x in processor.features.split(",") if x[1:] not in DOTS]
    return replace(processor, features=",".join(features))


HOST = Processor.host()


def kernel_of(*features):
    """The kernel for few rows of processors with one of these features."""
    return "emit_int4_dots" if any(map(HOST.has, features)) else "emit_few_int4"


# Processors, their kernel for few rows, and the most rows.
KERNELS = [
    (HOST.with_lanes(4), kernel_of("ssse3", "dotprod"), 4),
    (HOST.with_lanes(8), kernel_of("avx2"), 4),
    (HOST.with_lanes(16), kernel_of("avx512bw"), 8),
    (without_dots(HOST.with_lanes(4)), "emit_few_int4", 4),
    (without_dots(HOST.with_lanes(16)), "emit_few_int4", 8),
]


@pytest.mark.parametrize("rows", [1, 2, 8, 9])
@pytest.mark.parametrize("columns", [1, 31, 32, 257, 600])
@pytest.mark.parametrize("signed", [True, False])
def test_few_rows_and_any_number_of_columns(rows, columns, signed):
    """Code multiplies numbers while it reads them; runs of a block have any length."""
    (x, packed, scale, zero, _), _ = operands(rows, 50, columns)
    numbers = np.repeat([0, 2, 1, 0, 3], [20, 1, 9, 5, 15]).astype("float32")
    values = np.stack([packed & 15, packed >> 4 & 15], -1).reshape(50, -1)[:, :columns]
    if signed:
        values = (values ^ 8) - 8
    else:
        packed, zero = packed.view("uint8"), (zero + 8).astype("uint8")
    of_row = numbers.astype(int)
    weight = (values - zero[of_row].astype("float64")) * scale[of_row]
    arrays = (x, packed, scale, zero, numbers)
    for target, kernel, max_rows in KERNELS:
        y = np.full((rows, columns), np.nan, "float32")
        with rules.override(processor=target):
            lowered_product = lowered_of(arrays)
            run_lowered(lowered_product, arrays, [y], 1)
        names = [call.code.emit.__name__ for call in lowered_product.calls]
        assert (kernel in names) == (rows <= max_rows)
        assert_close(y, (x.astype("float64") @ weight).astype("float32"))


def test_sections_of_a_large_matrix():
    """The terms and the columns are divided among tasks."""
    for depth, columns in ((2050, 1030), (700, 33000)):
        arrays, _ = operands(2, depth, columns, block=128)
        arrays = (*arrays[:4], np.sort(arrays[4]))
        weight = operands_weight(arrays)
        y = np.full((2, columns), np.nan, "float32")
        lowered = lowered_of(arrays)
        run_lowered(lowered, arrays, [y], 1)
        assert lowered.calls[-2].tasks > 1
        expected = (arrays[0].astype("float64") @ weight).astype("float32")
        assert_close(y, expected, factor=4)


@pytest.mark.parametrize("size", [1e-33, 1e30])
def test_terms_of_any_size(size):
    arrays, weight = operands(2, 40, 33)
    x = arrays[0] * np.float32(size)
    x[:, 3] *= 1000
    y = np.empty((2, 33), "float32")
    run_lowered(lowered_of((x, *arrays[1:])), (x, *arrays[1:]), [y])
    expected = x.astype("float64") @ weight
    largest = np.abs(expected).max()
    np.testing.assert_allclose(y / largest, expected / largest, atol=1e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_terms_that_are_not_finite_spread(bad):
    arrays, _ = operands(2, 40, 33)
    arrays[0][1, 7] = bad
    y = np.empty((2, 33), "float32")
    run_lowered(lowered_of(arrays), arrays, [y])
    assert np.isfinite(y[0]).all()
    assert not np.isfinite(y[1]).any()


@pytest.mark.parametrize("stored", [-9.0, 3.0, np.inf, np.nan])
def test_last_group_may_be_incomplete(stored):
    (*others, numbers), _ = operands(1, 8, 16)
    numbers[3] = stored
    bad: list[int] = []
    y = np.empty((1, 16), "float32")
    run_lowered(lowered_of((*others, numbers)), (*others, numbers), [y], bad=bad)
    assert bool(bad[0]) == (stored == stored)  # none is read: a NaN counts as 0
    if stored == 3.0:
        with pytest.raises(IndexError, match="index 3 is out of range"):
            toolkit.function(matmul_int4)(*others, numbers)


def test_gradients():
    arrays, weight = operands(2, 8, 6)
    x = toolkit.Variable(arrays[0])
    with toolkit.GradientTape() as tape:
        y = matmul_int4(x, *arrays[1:])
    expected = np.ones((2, 6)) @ weight.T
    np.testing.assert_allclose(tape.gradient(y, x), expected, rtol=1e-4)


def test_dense_layers_use_int4_products():
    layer = Dense(6)
    layer.build((None, 8))
    layer.quantize("int4")
    step = toolkit.function(lambda x: layer(x))
    x = np.random.default_rng(0).normal(size=(2, 3, 8)).astype("float32")
    assert "matmul_int4" in str(step.inspect(x))
    expected = x @ np.asarray(layer.kernel) + np.asarray(layer.bias)
    np.testing.assert_allclose(step(x), expected, rtol=1e-4, atol=1e-5)
