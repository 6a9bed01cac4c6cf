"""Tests of indices and pointers with arithmetic, of loops, and of runs of vectors."""

import ctypes

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import toolkit
from toolkit import ops
from toolkit.backends.numpy.jit.builder import Index
from toolkit.backends.numpy.jit.code import Code, load
from toolkit.backends.numpy.jit.kernel import Kernel, constant_mask

FORMULAS = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "divide": lambda x, y: x // y,
    "remainder": lambda x, y: x % y,
    "and": lambda x, y: x & y,
    "xor": lambda x, y: x ^ y,
    "affine": lambda x, y: x * 3 + y,
    "nested": lambda x, y: (x + y) * (x + 2 * y) // (y + 1),
    "numbers in front": lambda x, y: 100 - x + 3 * y + 7,
    "of a number": lambda x, y: 1000 // (x + 1) + 1000 % (y + 1),
    "folded": lambda x, y: (x + 0) * 1 + 0 * y + (y - 0) // 1 + x % 1 + 0 + (y ^ 0),
}
FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 3)


def run(emit, arrays, numbers=(), low=0, high=1, args=()):
    """Call a kernel on arrays and numbers in its table."""
    words = [*(a.ctypes.data for a in arrays), *numbers]
    table = (ctypes.c_int64 * len(words))(*words)
    (address,) = load([Code(emit, *args)])
    FUNCTION(address)(table, low, high, 0)


def emit_formula(name):
    b = Kernel(4)
    out = b.address(0, "int64")
    result = FORMULAS[name](b.entry(1), b.entry(2))
    b.put_scalar(b.int64(result), out)
    return b


@pytest.mark.parametrize("name", FORMULAS)
@settings(max_examples=10, deadline=None)
@given(x=st.integers(0, 1000), y=st.integers(1, 1000))
def test_index_formulas_match_python_numbers(name, x, y):
    out = np.zeros(1, "int64")
    run(emit_formula, [out], (x, y), args=(name,))
    assert out[0] == FORMULAS[name](x, y)


NEUTRAL = {
    "x + 0": lambda x: x + 0,
    "0 + x": lambda x: 0 + x,
    "x - 0": lambda x: x - 0,
    "x * 1": lambda x: x * 1,
    "1 * x": lambda x: 1 * x,
    "x // 1": lambda x: x // 1,
    "x ^ 0": lambda x: x ^ 0,
}


@pytest.mark.parametrize("name", NEUTRAL)
def test_neutral_operations_emit_no_instruction(name):
    b = Kernel(4)
    x = b.entry(0)
    count = len(b.lines)
    assert NEUTRAL[name](x) is x
    assert len(b.lines) == count


@pytest.mark.parametrize("zero", [lambda x: x * 0, lambda x: 0 * x, lambda x: x % 1])
def test_zero_products_are_constants(zero):
    b = Kernel(4)
    x = b.entry(0)
    count = len(b.lines)
    assert zero(x) == 0
    assert not isinstance(zero(x), Index)
    assert len(b.lines) == count


def test_pointer_offsets_count_elements():
    b = Kernel(4)
    doubles, raw = b.address(0, "float64"), b.address(0)
    assert doubles + 0 is doubles
    assert (doubles + 3).kind == "double"
    assert "getelementptr double" in b.lines[-1]
    assert (raw + 3).kind == "i8"
    assert "getelementptr i8" in b.lines[-1]


def emit_compare(predicate):
    b = Kernel(4)
    out, x, y = b.address(0, "int64"), b.entry(1), b.entry(2)
    conditions = {"<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y}
    with b.when(conditions[predicate]):
        b.put_scalar(b.int64(1), out)
    with b.when(b.opposite(conditions[predicate])):
        b.put_scalar(b.int64(2), out)
    return b


@pytest.mark.parametrize("predicate", ["<", "<=", ">", ">="])
@pytest.mark.parametrize("pair", [(-1, 1), (1, -1), (5, 5)])
def test_comparisons_are_signed(predicate, pair):
    out = np.zeros(1, "int64")
    run(emit_compare, [out], pair, args=(predicate,))
    x, y = pair
    expected = {"<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y}[predicate]
    assert out[0] == (1 if expected else 2)


def emit_run(lanes):
    """out[i] = x[i] + i for i in range(low, high)."""
    b = Kernel(lanes)
    x, out = b.address(0, "int32"), b.address(1, "int32")
    for i, mask in b.run(b.low, b.high):
        numbers = b.binary("add", b.int32(i), b.lane_numbers())
        value = b.binary("add", b.load(x, i, "int32", mask), numbers)
        b.store(value, out, i, mask)
    return b


@pytest.mark.parametrize("lanes", [4, 8, 16])
@settings(max_examples=20, deadline=None)
@given(low=st.integers(0, 40), count=st.integers(0, 70))
def test_loop_visits_each_element_once(lanes, low, count):
    x = np.arange(200, dtype="int32")[::-1].copy()
    out = np.full(200, -1, "int32")
    run(emit_run, [x, out], low=low, high=low + count, args=(lanes,))
    expected = np.full(200, -1, "int32")
    span = slice(low, low + count)
    expected[span] = x[span] + np.arange(200)[span]
    np.testing.assert_array_equal(out, expected)


def emit_parts(name):
    b = Kernel(4)
    out, x, y = b.address(0, "int64"), b.entry(1), b.entry(2)
    parts_by_index = {
        "split": b.split(x, y),
        "part": b.tile_range(x, y, 88),
        "ceil_div": (b.ceil_div(x, y), b.max(x, b.min(y, 20))),
    }[name]
    for k, value in enumerate(parts_by_index):
        b.put_scalar(b.int64(value), out + k)
    return b


@pytest.mark.parametrize(
    ("name", "expected"),
    [("split", (3, 2)), ("part", (85, 88)), ("ceil_div", (4, 17))],
)
def test_chunks_cover_the_range(name, expected):
    out = np.zeros(2, "int64")
    run(emit_parts, [out], (17, 5), args=(name,))
    assert tuple(out) == expected


def test_a_known_mask_is_a_constant_or_none():
    assert constant_mask(4, 4) is None
    mask = constant_mask(1, 3)
    assert (mask.text, mask.lanes) == ("<i1 true, i1 false, i1 false>", 3)


def test_masked_store_writes_the_selected_value():
    """LLVM does not store a part of a vector if the previous contents are unknown."""
    x = ops.ones((64, 64))
    program = toolkit.function(lambda x: ops.max(x, axis=0))
    assert "freeze <" in program.inspect(x).source(0)
