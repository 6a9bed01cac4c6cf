"""Generated orders against the reference backend."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

pytest.importorskip("llvmlite")

import toolkit.ops.sort  # noqa: F401 - it declares the primitives
from tests.backends.jit.running import operand_of, run_lowered, vectors_of
from toolkit import dtypes
from toolkit.backends.numpy.jit.lowering import lower
from toolkit.backends.registry import get_backend

REFERENCE = get_backend("reference").kernels
DTYPES = ["float32", "float64", "int8", "int32", "int64", "uint8", "uint64"]
LANES = st.sampled_from([4, 8, 16])
EXTREMES = {"f": [np.nan, np.inf, -np.inf, -0.0, 0.0], "i": [-1, 0], "u": [0]}


def run(name, inputs, attrs, chunk):
    expected = REFERENCE[name](*inputs, **attrs)
    actual = np.empty(expected.shape, expected.dtype)
    node = SimpleNamespace(attrs=attrs, op=SimpleNamespace(name=name))
    lowered = lower(node, [operand_of(x) for x in inputs], [operand_of(actual)])
    run_lowered(lowered, inputs, [actual], chunk)
    np.testing.assert_array_equal(actual, expected)


def numbers(shape, dtype, seed):
    """Few different numbers, so that many are equal; the largest and NaN among them."""
    rng, kind = np.random.default_rng(seed), np.dtype(dtype).kind
    values = rng.integers(-9 if kind != "u" else 0, 10, shape).astype(dtype)
    extremes = np.array(EXTREMES[kind], dtype)
    if kind != "f":
        limits = np.iinfo(dtype)
        extremes = np.array([limits.min, limits.max, *EXTREMES[kind]], dtype)
    is_replaced = rng.random(shape) < 0.3
    return np.where(is_replaced, rng.choice(extremes, shape), values)


@given(
    outer=st.integers(1, 3),
    columns=st.integers(1, 40),
    extent=st.integers(1, 70),
    is_last=st.booleans(),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 9),
    lanes=LANES,
    chunk=st.sampled_from([0, 1, 3]),
)
@settings(max_examples=200, deadline=None)
def test_sort_of_many_rows(outer, columns, extent, is_last, dtype, seed, lanes, chunk):
    shape, axis = (outer, extent, columns), 1
    if is_last:
        shape, axis = (outer, columns, extent), 2
    x = numbers(shape, dtype, seed)
    actual = np.empty_like(x)
    node = SimpleNamespace(attrs={"axis": axis}, op=SimpleNamespace(name="sort"))
    with vectors_of(lanes):
        lowered = lower(node, [operand_of(x)], [operand_of(actual)])
        if columns * (outer if is_last else 1) < lanes:
            assert lowered is None
            return
        run_lowered(lowered, [x], [actual], chunk)
    np.testing.assert_array_equal(actual, np.sort(x, axis))


@given(
    shape=st.sampled_from([(129,), (300,), (5000,), (2, 300), (300, 3), (2, 129, 2)]),
    dtype=st.sampled_from([*DTYPES, "float16", "bfloat16", "int16", "uint32"]),
    seed=st.integers(0, 9),
    lanes=LANES,
    chunk=st.sampled_from([0, 1, 3]),
)
@settings(max_examples=80, deadline=None)
def test_sort_of_long_rows_keeps_the_bits_of_a_stable_order(
    shape, dtype, seed, lanes, chunk
):
    axis = min(1, len(shape) - 1) if shape[0] < 100 else 0
    x = numbers(shape, "float32" if "float" in dtype else dtype, seed)
    x = x.astype(dtypes.numpy_dtype(dtype))
    if dtype == "float32":  # two NaN with other bits
        x = np.where(x == 1, np.copysign(np.float32(np.nan), np.float32(-1)), x)
        x[x == 2] = np.array(0x7F800001, "uint32").view("float32")
    order = np.argsort(
        x.astype("float32") if x.itemsize < 4 else x, axis, kind="stable"
    )
    expected = np.take_along_axis(x, order, axis)
    actual = np.empty_like(x)
    node = SimpleNamespace(attrs={"axis": axis}, op=SimpleNamespace(name="sort"))
    with vectors_of(lanes):
        lowered = lower(node, [operand_of(x)], [operand_of(actual)])
        run_lowered(lowered, [x], [actual], chunk)
    assert actual.tobytes() == expected.tobytes()


@given(
    edges=st.integers(1, 40),
    shape=st.lists(st.integers(0, 40), max_size=2),
    dtype=st.sampled_from(DTYPES),
    side=st.sampled_from(["left", "right"]),
    seed=st.integers(0, 9),
    lanes=LANES,
    chunk=st.sampled_from([0, 1, 7]),
)
@settings(max_examples=60, deadline=None)
def test_searchsorted(edges, shape, dtype, side, seed, lanes, chunk):
    edges = np.sort(numbers(edges, dtype, seed))
    x = np.asarray(numbers(shape, dtype, seed + 1))
    with vectors_of(lanes):
        run("searchsorted", [edges, x], {"side": side}, chunk)


@given(
    shape=st.lists(st.sampled_from([0, 1, 2, 3, 8, 37, 300]), min_size=1, max_size=3),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 9),
    lanes=LANES,
    chunk=st.sampled_from([0, 1, 3]),
    data=st.data(),
)
@settings(max_examples=40, deadline=None)
def test_argsort_along_an_axis(shape, dtype, seed, lanes, chunk, data):
    axis = data.draw(st.integers(0, len(shape) - 1))
    x = numbers(shape, dtype, seed)
    x = x[::-1] if data.draw(st.booleans()) else x
    with vectors_of(lanes):
        run("argsort", [x], {"axis": axis}, chunk)


def test_a_long_row_and_many_rows():
    run("argsort", [numbers((70_001,), "float32", 0)], {"axis": 0}, 0)
    run("argsort", [numbers((300, 65), "float64", 0)], {"axis": 1}, 0)
    edges = np.sort(numbers((5000,), "float32", 0))
    run("searchsorted", [edges, numbers((40_000,), "float32", 1)], {"side": "left"}, 0)
