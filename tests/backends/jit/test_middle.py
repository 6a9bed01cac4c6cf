"""Reductions over axes in the middle against the reference backend."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

pytest.importorskip("llvmlite")

import toolkit
from tests.backends.jit.running import operand_of, run_lowered, vectors_of
from toolkit import ops
from toolkit.backends.numpy.jit.kernels.middle_axis import lower_middle
from toolkit.backends.numpy.jit.lowering import lower
from toolkit.backends.registry import get_backend
from toolkit.ops import reduce

REFERENCE = get_backend("reference").kernels
SUMS = ("sum", "prod", "max", "min", "any", "all")
PLACES = ("argmax", "argmin")


def node_of(op, axis):
    attrs = {"axis": axis, "keepdims": False}
    return SimpleNamespace(
        attrs=attrs, op=getattr(reduce, f"{op}_p"), inputs=(), outputs=()
    )


def check(op, x, axis, chunk=2, lower=lower_middle):
    axis = axis[0] if op in PLACES else axis
    expected = np.asarray(REFERENCE[op](x, axis=axis, keepdims=False))
    actual = np.empty(expected.shape, expected.dtype)
    lowered = lower(node_of(op, axis), [operand_of(x)], [operand_of(actual)])
    run_lowered(lowered, [x], [actual], chunk)
    np.testing.assert_array_equal(actual, expected)


def numbers(shape, dtype, seed=0):
    """Small integers: their sums and products are exact in any order."""
    values = np.random.default_rng(seed).integers(-2, 3, shape)
    return values.astype(dtype)


@pytest.mark.parametrize("op", SUMS + PLACES)
@pytest.mark.parametrize(
    ("shape", "axes"),
    [((3, 4, 5, 21), (1, 2)), ((2, 7, 64), (1,)), ((5, 3), (0,)), ((2, 0, 3), (1,))],
)
def test_a_reduction_over_middle_axes(op, shape, axes):
    if 0 in shape and op not in ("sum", "prod", "any", "all"):
        pytest.skip("no extreme of nothing")
    if op in PLACES and len(axes) > 1:
        pytest.skip("a place is along one axis")
    check(op, numbers(shape, "bool" if op in ("any", "all") else "float64"), axes)


@st.composite
def views(draw):
    """A view of an array, and the axes to reduce."""
    extents = st.sampled_from([1, 2, 3, 5, 17, 40])
    shape = tuple(draw(st.lists(extents, min_size=1, max_size=4)))
    dtype = draw(st.sampled_from(["float32", "float64", "int32", "int64", "uint8"]))
    x = numbers(tuple(2 * n + 1 for n in shape), dtype, draw(st.integers(0, 9)))
    key = tuple(
        draw(st.sampled_from([slice(0, n), slice(1, 2 * n, 2), slice(n, 0, -1)]))
        for n in shape
    )
    x = x[key]
    if draw(st.booleans()):
        x = np.ascontiguousarray(x)
    elif draw(st.booleans()):
        x = x.T
    first = draw(st.integers(0, x.ndim - 1))
    last = draw(st.integers(first, x.ndim - 1))
    return x, tuple(range(first, last + 1))


@given(
    view=views(),
    op=st.sampled_from(["sum", "prod", "max", "min", *PLACES]),
    lanes=st.sampled_from([4, 8, 16]),
    chunk=st.sampled_from([0, 1, 3]),
)
@settings(max_examples=50, deadline=None)
def test_a_reduction_of_a_view(view, op, lanes, chunk):
    x, axes = view
    with vectors_of(lanes):
        check(op, x, axes, chunk, lower)


@pytest.mark.parametrize("op", PLACES)
@pytest.mark.parametrize("shape", [(2, 7, 5), (3, 40, 1), (2, 33)])
def test_first_of_equal_values_and_nan_win(op, shape):
    x = numbers(shape, "float32")
    check(op, x, (1,))
    x.reshape(-1)[[3, 8]] = np.nan
    check(op, x, (1,))


@pytest.mark.parametrize("op", PLACES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8", "int64"])
@pytest.mark.parametrize("count", [1, 2, 3, 10, 11, 15, 16, 17, 64, 65, 300, 5000])
def test_an_index_in_a_line(op, dtype, count):
    generator = np.random.default_rng(count)
    x = generator.integers(0, 4, (5, count)).astype(dtype)
    check(op, x, (1,))
    check(op, x.T, (0,))
    x[...] = 0 if dtype == "uint8" else -1
    check(op, x, (1,))  # all elements are equal


@pytest.mark.parametrize("op", SUMS + PLACES)
@pytest.mark.parametrize("rows", [1, 15, 16, 53])
@pytest.mark.parametrize("count", [2, 3, 4, 5, 9, 10, 11])
def test_rows_of_a_few_elements(op, rows, count):
    dtypes = ("float32", "float64", "int32", "int64", "int8", "uint16")
    for dtype in ("bool",) if op in ("any", "all") else dtypes:
        x = np.abs(numbers((rows, count), dtype, seed=count)).astype(dtype)
        check(op, x, (1,))
        if op not in PLACES:
            check(op, x.reshape(rows, 1, count), (1, 2))


@pytest.mark.parametrize("name", ["max", "min", "sum", "prod", "any", "all", "argmax"])
def test_compiled_reductions_of_a_few_elements(name):
    function = getattr(ops, name)
    for dtype in ("float32", "float64", "int32", "bool", "bfloat16", "float16"):
        for shape in ((33, 3), (2, 17, 2), (0, 4), (4, 7)):
            x = ops.cast(numbers(shape, "float32"), dtype)
            expected = function(x, axis=-1)
            actual = toolkit.function(lambda x: function(x, axis=-1))(x)
            assert actual.dtype == expected.dtype
            np.testing.assert_array_equal(
                ops.cast(actual, "float32"), ops.cast(expected, "float32")
            )


@pytest.mark.parametrize("op", PLACES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("count", [1, 2, 7, 16, 70])
def test_an_index_among_infinities_and_nan(op, dtype, count):
    for fill in (np.inf, -np.inf, np.nan):
        x = np.full((3, count), fill, dtype)
        check(op, x, (1,))
        for nan in range(0, count, 13):
            x[1, nan], x[2, count - 1 - nan] = np.nan, 0
            check(op, x, (1,))
            check(op, x.T, (0,))
