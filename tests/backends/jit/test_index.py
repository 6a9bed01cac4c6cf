"""Tests of generated gather, scatter and similar code against the reference."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

pytest.importorskip("llvmlite")

import toolkit
from tests.backends.jit.running import operand_of, run_lowered, vectors_of
from toolkit import ops
from toolkit.backends.numpy.jit.lowering import lower
from toolkit.backends.registry import get_backend

REFERENCE = get_backend("reference").kernels


@st.composite
def cases(draw):
    """(x, axis, indices, random numbers)"""
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    if draw(st.booleans()):
        shape = (*shape, draw(st.sampled_from([1, 16, 37, 133])))
    axis = draw(st.integers(0, len(shape) - 1))
    dtype = draw(st.sampled_from(["float32", "float64", "int32", "int64", "bool"]))
    random = np.random.default_rng(draw(st.integers(0, 9)))
    x = random.integers(-5, 6, shape).astype(dtype)
    kind = draw(st.sampled_from(["int32", "int64"]))
    return x, axis, kind, random


def run(name, inputs, expected, attrs, chunk=2):
    actual = np.empty_like(expected)
    lowered = lower(
        SimpleNamespace(attrs=attrs, op=SimpleNamespace(name=name)),
        [operand_of(a) for a in inputs],
        [operand_of(actual)],
    )
    run_lowered(lowered, inputs, [actual], chunk)
    np.testing.assert_array_equal(actual, expected)


def modes(x):
    return ("set",) if x.dtype == bool else ("add", "set", "max", "min", "mul")


@given(case=cases(), extents=st.lists(st.integers(0, 6), max_size=2))
@settings(max_examples=40, deadline=None)
def test_gather_and_scatter(case, extents):
    x, axis, kind, random = case
    n = x.shape[axis]
    indices = random.integers(-n, n, extents).astype(kind)
    attrs = {"axis": axis}
    gathered = REFERENCE["gather"](x, indices, **attrs)
    run("gather", [x, indices], gathered, attrs)
    updates = random.integers(-5, 6, gathered.shape).astype(x.dtype)
    for mode in modes(x):
        if mode == "mul":  # products are exact in any order
            updates = np.asarray(np.sign(updates) * x.dtype.type(2))
        attrs = {"axis": axis, "mode": mode}
        expected = REFERENCE["scatter"](x, indices, updates, **attrs)
        run("scatter", [x, indices, updates], expected, attrs)
        strided = np.asfortranarray(updates)
        run("scatter", [x, indices, strided], expected, attrs)


@given(case=cases(), count=st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_along_an_axis(case, count):
    x, axis, kind, random = case
    n, shape = x.shape[axis], list(x.shape)
    shape[axis] = count
    indices = random.integers(-n, n, shape).astype(kind)
    attrs = {"axis": axis}
    run("take_along_axis", [x, indices], np.take_along_axis(x, indices, axis), attrs)
    updates = random.integers(-5, 6, shape).astype(x.dtype)
    for mode in modes(x):
        if mode == "mul":
            updates = np.asarray(np.sign(updates) * x.dtype.type(2))
        attrs = {"axis": axis, "mode": mode}
        expected = REFERENCE["put_along_axis"](x, indices, updates, **attrs)
        run("put_along_axis", [x, indices, updates], expected, attrs)


@given(
    shape=st.lists(st.sampled_from([1, 2, 5, 70]), min_size=1, max_size=3),
    count=st.sampled_from([1, 8, 9, 100]),
    lanes=st.sampled_from([4, 8, 16]),
    dtype=st.sampled_from(["bool", "float16", "float32", "float64"]),
    kind=st.sampled_from(["int16", "int32", "int64"]),
    bad=st.booleans(),
    data=st.data(),
)
@settings(max_examples=80, deadline=None)
def test_vectors_of_indices(shape, count, lanes, dtype, kind, bad, data):
    random = np.random.default_rng(data.draw(st.integers(0, 9)))
    axis = data.draw(st.integers(0, len(shape) - 1))
    x, n = random.integers(-5, 6, shape).astype(dtype), shape[axis]
    along = [*shape[:axis], count, *shape[axis + 1 :]]
    for name, extents in (("gather", [count]), ("take_along_axis", along)):
        indices = random.integers(-n, n, extents).astype(kind)
        expected = REFERENCE[name](x, indices, axis=axis)
        with vectors_of(lanes):
            if bad:
                indices.flat[-1] = invalid_index = data.draw(
                    st.sampled_from([n, -n - 1])
                )
                assert check_and_get_record(name, [x, indices], expected, axis) == [
                    1,
                    invalid_index,
                    n,
                ]
            else:
                run(name, [x, indices], expected, {"axis": axis}, chunk=0)


@given(
    extents=st.tuples(st.sampled_from([1, 3, 70]), st.sampled_from([1, 5, 300])),
    count=st.sampled_from([1, 15, 16, 50, 100]),
    lanes=st.sampled_from([4, 8, 16]),
    dtype=st.sampled_from(["float32", "float64", "int64"]),
    kind=st.sampled_from(["int8", "int32", "int64"]),
    mode=st.sampled_from(["add", "set", "max"]),
    are_negative=st.booleans(),
    bad=st.sampled_from([None, 0, -1]),
    chunk=st.sampled_from([0, 7]),
    seed=st.integers(0, 9),
)
@settings(max_examples=200, deadline=None)
def test_scatter_of_elements(
    extents, count, lanes, dtype, kind, mode, are_negative, bad, chunk, seed
):
    random = np.random.default_rng(seed)
    outer, n = extents
    x = random.integers(-5, 6, extents).astype(dtype)
    bound = min(n, 128) if kind == "int8" else n
    for name, shape in (("scatter", (count,)), ("put_along_axis", (outer, count))):
        indices = random.integers(-bound if are_negative else 0, bound, shape)
        indices = indices.astype(kind)
        updates = random.integers(-5, 6, (outer, count)).astype(dtype)
        attrs = {"axis": 1, "mode": mode}
        valid = np.ones(count, bool)
        if bad is not None and kind != "int8":
            indices[..., bad], valid[bad] = n, False
        expected = REFERENCE[name](x, indices[..., valid], updates[:, valid], **attrs)
        with vectors_of(lanes):
            if valid.all():
                run(name, [x, indices, updates], expected, attrs, chunk)
            else:
                inputs = [x, indices, updates]
                assert check_and_get_record(name, inputs, expected, **attrs) == [
                    1,
                    n,
                    n,
                ]


def check_and_get_record(name, inputs, expected, axis, **attrs):
    """Return the record of the last bad index. All other elements must be right."""
    actual, bad = expected.copy(), []
    attrs["axis"] = axis
    lowered = lower(
        SimpleNamespace(attrs=attrs, op=SimpleNamespace(name=name)),
        [operand_of(a) for a in inputs],
        [operand_of(actual)],
    )
    run_lowered(lowered, inputs, [actual], bad=bad)
    np.testing.assert_array_equal(actual, expected)
    return bad


@pytest.mark.parametrize("bad", [5, -6])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: ops.take(x, i, axis=0),
        lambda x, i: ops.take_along_axis(x, i[:, None], axis=0),
    ],
)
def test_invalid_index_error_equals_numpy(function, bad):
    variable = toolkit.Variable(np.zeros(3, "float32"))

    def step(x, i):
        y = function(x, i)
        variable.assign_add(ops.ones(3))
        return y

    x = ops.reshape(ops.arange(20, dtype="float32"), (5, 4))
    i = np.array([0, bad, 1, 2])
    messages = []
    for jit_compile in (False, True):
        with pytest.raises(IndexError) as error:
            toolkit.function(step, jit_compile=jit_compile)(x, i)
        messages.append(str(error.value))
    assert messages[0] == messages[1]
    assert str(bad) in messages[0]
    assert not variable.numpy().any()
