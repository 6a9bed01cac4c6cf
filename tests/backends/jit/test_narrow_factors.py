"""Products that read 16-bit factors from memory, and compute in float32."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("llvmlite")

from tests.backends.jit.running import graph_of, operand_of, run_lowered
from toolkit import ops
from toolkit.backends.numpy.jit.kernels.matmul import lower_matmul
from toolkit.backends.numpy.jit.processor import Processor
from toolkit.backends.target import Target
from toolkit.compiler.pipeline import optimize
from toolkit.core.tensor import backend
from toolkit.ir import Graph, Value
from toolkit.plans.rules import rules

DTYPES = {"bfloat16": ml_dtypes.bfloat16}
if Processor.host().converts_float16:
    DTYPES["float16"] = np.float16
LANES = [4, 8, 16]


def narrow(shape, dtype, seed=0, layout=None):
    values = np.random.default_rng(seed).standard_normal(shape).astype(dtype)
    return values if layout is None else layout(values)


def columns_first(x):
    return np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)


def strided(x):
    return np.repeat(x, 2, -1)[..., ::2]


def body_of(function, *arrays):
    """The graph of float32 values, whose inputs have the dtypes of the arrays."""
    graph = optimize(
        graph_of(function, *(a.astype("float32") for a in arrays)), Target(backend())
    )
    inputs = [Value(operand_of(a).spec) for a in arrays]
    read = dict(zip(graph.inputs, inputs, strict=True))
    nodes = [n.with_inputs([read.get(x, x) for x in n.inputs]) for n in graph.nodes]
    return Graph(tuple(inputs), tuple(nodes), graph.outputs)


def lowered_of(function, *arrays, frozen=False):
    operands = [operand_of(a) for a in arrays]
    operands[1] = replace(operands[1], is_frozen=frozen)
    return lower_matmul(body_of(function, *arrays), operands, [])


def computed(function, *arrays, chunk=0, frozen=False):
    lowered = lowered_of(function, *arrays, frozen=frozen)
    assert lowered is not None
    y = np.full((arrays[0] @ arrays[1]).shape, np.nan, "float32")
    run_lowered(lowered, arrays, [y], chunk)
    return y


def check(a, b, **options):
    """Compare with the product in float64, and chunks of rows with all rows."""
    exact = a.astype("float64") @ b.astype("float64")
    sizes = np.abs(a.astype("float64")) @ np.abs(b.astype("float64"))
    actual = computed(ops.matmul, a, b, **options)
    assert (np.abs(actual - exact) <= 2e-6 * sizes + 1e-30).all()
    np.testing.assert_array_equal(
        computed(ops.matmul, a, b, chunk=1, **options), actual
    )
    return actual


@pytest.fixture(params=LANES)
def lanes(request):
    with rules.override(processor=Processor.host().with_lanes(request.param)):
        yield request.param


# The rows, terms and columns.
SHAPES = [
    *((1, 40, 3), (7, 33, 1), (5, 70, 4), (1, 5, 9)),  # sums along rows
    *((3, 17, 40), (33, 37, 70), (100, 300, 17), (40, 0, 20)),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", [None, columns_first, strided])
def test_right_factors(lanes, dtype, layout):
    for rows, depth, columns in SHAPES:
        a = narrow((rows, depth), "float32")
        b = narrow((depth, columns), DTYPES[dtype], 1, layout)
        for frozen in (False, True):
            check(a, b, frozen=frozen)


@pytest.mark.parametrize("dtype", DTYPES)
def test_batches(lanes, dtype):
    a = narrow((3, 6, 20), "float32")
    for shape, layout in (((3, 20, 40), None), ((3, 20, 2), columns_first)):
        check(a, narrow(shape, DTYPES[dtype], 1, layout))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("frozen", [False, True])
def test_one_row_of_a_large_factor(lanes, dtype, frozen):
    processor = replace(Processor.host().with_lanes(lanes), cache_bytes=1 << 15)
    with rules.override(processor=processor):
        for columns in (300, 433):
            a, b = narrow((1, 70), "float32"), narrow((70, columns), DTYPES[dtype], 1)
            check(a, b, frozen=frozen)
            # Both factors, and a matrix with contiguous terms.
            check(a.astype(DTYPES[dtype]), b, frozen=frozen)
            check(a, columns_first(b), frozen=frozen)
    with rules.override(processor=processor, rows_independent=True):
        check(a, b, frozen=frozen)


def test_many_terms_are_divided():
    """Parts of the terms of one row, and slots of a few rows."""
    for rows in (1, 4):
        a = narrow((rows, 6000), "float32")
        check(a, narrow((6000, 520), DTYPES["bfloat16"], 1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 2, 30])
def test_the_bits_are_those_of_the_same_numbers_in_float32(dtype, rows):
    with rules.override(rows_independent=True):
        for depth, columns in ((40, 24), (2000, 70)):
            a = narrow((rows, depth), "float32")
            b = narrow((depth, columns), DTYPES[dtype], 1)
            expected = computed(ops.matmul, a, b.astype("float32"))
            np.testing.assert_array_equal(computed(ops.matmul, a, b), expected)


def test_one_row_reads_each_element_of_a_factor_once():
    """No call writes a copy of the factor, in any dtype."""
    a, b = narrow((1, 1024), "float32"), narrow((1024, 4096), ml_dtypes.bfloat16)
    lowered = lowered_of(ops.matmul, a, b)
    assert lowered.work < b.nbytes // 8
