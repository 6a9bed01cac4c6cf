"""Generated copies against the reference backend."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

pytest.importorskip("llvmlite")

import toolkit.ops  # noqa: F401 - it declares the primitives
from tests.backends.jit.running import operand_of, run_lowered, vectors_of
from toolkit.backends.numpy.jit.kernels import move
from toolkit.backends.numpy.jit.lowering import lower, lowering
from toolkit.backends.registry import get_backend

REFERENCE = get_backend("reference").kernels
DTYPES = st.sampled_from(["float16", "float32", "float64", "int32", "bool"])
EXTENTS = st.lists(st.integers(0, 5), min_size=1, max_size=3)
COLUMNS = st.sampled_from([1, 7, 40])


def run(name, inputs, expected, attrs, chunk=2):
    actual = np.empty_like(expected)
    lowered = lowering(name)(
        SimpleNamespace(attrs=attrs),
        [operand_of(a) for a in inputs],
        [operand_of(actual)],
    )
    run_lowered(lowered, inputs, [actual], chunk)
    np.testing.assert_array_equal(actual, expected)


def numbers(shape, dtype):
    return np.random.default_rng(1).integers(-9, 10, shape).astype(dtype)


@given(EXTENTS, COLUMNS, DTYPES, st.data())
@settings(max_examples=30, deadline=None)
def test_pad(extents, columns, dtype, data):
    x = numbers((*extents, columns), dtype)
    width = st.integers(0, 3)
    widths = tuple((data.draw(width), data.draw(width)) for _ in x.shape)
    attrs = {"widths": widths, "value": 1}
    run("pad", [x], REFERENCE["pad"](x, **attrs), attrs)


@given(EXTENTS, COLUMNS, DTYPES, st.data())
@settings(max_examples=30, deadline=None)
def test_concatenate(extents, columns, dtype, data):
    shape = [*extents, columns]
    axis = data.draw(st.integers(0, len(shape) - 1))
    arrays = []
    for n in data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=3)):
        arrays.append(numbers([*shape[:axis], n, *shape[axis + 1 :]], dtype))
    run("concatenate", arrays, np.concatenate(arrays, axis), {"axis": axis})


@given(EXTENTS, COLUMNS, DTYPES, st.data())
@settings(max_examples=30, deadline=None)
def test_copies_of_views(extents, columns, dtype, data):
    x = numbers((*extents, columns), dtype)
    order = data.draw(st.permutations(range(x.ndim)))
    view = x.transpose(order)
    run("reshape", [view], view.reshape(-1), {})


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=4).filter(lambda x: sum(x) < 9),
    st.sampled_from([1, 7, 1000]),
    st.sampled_from([4, 8, 16]),
    DTYPES,
)
@settings(max_examples=40, deadline=None)
def test_concatenation_of_short_rows(runs, rows, lanes, dtype):
    arrays = [
        np.random.default_rng(i).integers(-9, 10, (rows, n)).astype(dtype)
        for i, n in enumerate(runs)
    ]
    with vectors_of(lanes):
        run("concatenate", arrays, np.concatenate(arrays, 1), {"axis": 1}, chunk=0)


@given(
    st.sampled_from([(1,), (3,), (500, 1), (300, 2), (7, 100, 4)]),
    st.integers(0, 3),
    st.integers(0, 3),
    st.sampled_from([4, 8, 16]),
    DTYPES,
)
@settings(max_examples=40, deadline=None)
def test_pads_of_short_rows(shape, low, high, lanes, dtype):
    x = numbers(shape, dtype)
    attrs = {"widths": (*[(0, 0)] * (x.ndim - 1), (low, high)), "value": -3}
    with vectors_of(lanes):
        run("pad", [x], REFERENCE["pad"](x, **attrs), attrs, chunk=0)


@pytest.mark.parametrize("dtype", ["float32", "int8", "complex64"])
@pytest.mark.parametrize("shape", [(5000,), (700, 7), (300, 2, 3), (9, 200), (0, 3)])
@pytest.mark.parametrize("low, high", [(0, 0), (3, 0), (0, 5), (2, 9000)])
def test_pads_of_the_leading_axis(shape, low, high, dtype):
    """Short rows are joined to one row, which no chunk splits."""
    x = numbers(shape, dtype)
    attrs = {"widths": ((low, high), *[(0, 0)] * (x.ndim - 1)), "value": 1}
    for chunk in (0, 1):
        run("pad", [x], REFERENCE["pad"](x, **attrs), attrs, chunk=chunk)


@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("count", [9, 31, 33, 70])
def test_copies_of_any_length_in_chunks(rows, count, monkeypatch):
    """No part starts after the end of a run."""
    monkeypatch.setattr(move, "LEAST_BYTES", 0)
    arrays = [numbers((rows, n), "float32") for n in (count, 1, 3)]
    run("concatenate", arrays, np.concatenate(arrays, 1), {"axis": 1})


@pytest.mark.parametrize("dtype", ["int8", "float32", "float64"])
@pytest.mark.parametrize("count", [3, 15, 16, 17, 40, 200])
@pytest.mark.parametrize("lanes", [4, 16])
def test_many_rows_of_views(count, lanes, dtype):
    x = numbers((40, count), dtype)
    column = np.broadcast_to(x[:, -1:], (40, 2))
    arrays = [x[:, 2:0:-1], x, column, x[:, -2:-1], x[:1].repeat(40, 0)[::-1]]
    with vectors_of(lanes):
        run("concatenate", arrays, np.concatenate(arrays, 1), {"axis": 1}, 3)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("extent", [1, 5, 100_000])
def test_concatenated_views(axis, extent):
    x = numbers((3, 2 * extent, 4), "int16")
    arrays = [x[:, extent:], x[:, :extent], x[1:2, :extent] + x[:, :extent]]
    run_whole("concatenate", arrays, {"axis": axis})


@given(
    st.sampled_from([(2,), (3, 1), (70,), (2, 500), (150, 2), (1, 9, 64)]),
    st.integers(1, 9),
    st.sampled_from([4, 8, 16]),
    DTYPES,
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_rows_of_a_few_elements(shape, columns, lanes, dtype, repeated):
    if repeated:
        view = np.broadcast_to(numbers((*shape, 1), dtype), (*shape, columns))
    else:
        view = np.moveaxis(numbers((*shape[:-1], columns, shape[-1]), dtype), -1, -2)
    with vectors_of(lanes):
        run("reshape", [view], view.reshape(-1), {}, chunk=0)


@given(
    st.lists(st.sampled_from([1, 3, 8, 17, 64, 70]), min_size=2, max_size=3),
    st.sampled_from([4, 8, 16]),
    DTYPES,
    st.data(),
)
@settings(max_examples=60, deadline=None)
def test_transpositions(shape, lanes, dtype, data):
    x = numbers(shape, dtype)
    view = x.transpose(data.draw(st.permutations(range(x.ndim))))
    with vectors_of(lanes):
        run("reshape", [view], view.reshape(-1), {})


# Primitives whose code wants whole arrays: attributes for arrays of shape (4, 5, 6).
WHOLE = {
    "concatenate": {"axis": 1},
    "pad": {"widths": ((1, 0), (0, 2), (0, 0)), "value": 3},
    "cumsum": {"axis": 1, "reverse": True},
    "sum_pool": {"window": (2,), "strides": (1,), "padding": ((0, 0),)},
}


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("chunk", [0, 1])
def test_views_are_copied_for_contiguous_operands(name, chunk):
    first, second = numbers((2, 4, 5, 6), "float32")
    views = [first[:, ::-1], second.transpose(1, 0, 2).copy().transpose(1, 0, 2)]
    run_whole(name, views if name == "concatenate" else views[:1], WHOLE[name], chunk)


def run_whole(name, inputs, attrs, chunk=0):
    """Run a node as programs do, with copies of views where code needs them."""
    expected = np.asarray(REFERENCE[name](*inputs, **attrs))
    actual = np.empty(expected.shape, expected.dtype)
    lowered = lower(
        SimpleNamespace(attrs=attrs, op=SimpleNamespace(name=name)),
        [operand_of(x) for x in inputs],
        [operand_of(actual)],
    )
    run_lowered(lowered, inputs, [actual], chunk)
    np.testing.assert_array_equal(actual, expected)


@given(EXTENTS, COLUMNS, DTYPES, st.data())
@settings(max_examples=30, deadline=None)
def test_boxes(extents, columns, dtype, data):
    x = numbers((*extents, columns), dtype)
    sizes = tuple(data.draw(st.integers(0, n)) for n in x.shape)
    kind = data.draw(st.sampled_from(["int32", "int64"]))
    starts = [np.array(data.draw(st.integers(-2, 50)), kind) for _ in x.shape]
    expected = REFERENCE["dynamic_slice"](x, *starts, sizes=sizes)
    run("dynamic_slice", [x, *starts], expected, {"sizes": sizes})
    box = numbers(sizes, dtype)
    expected = REFERENCE["dynamic_update_slice"](x, box, *starts)
    run("dynamic_update_slice", [x, box, *starts], expected, {})
