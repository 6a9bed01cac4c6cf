"""Tests of dtype names and promotion, against a table from Keras 3.15."""

import numpy as np
import pytest

from toolkit import config, dtypes, ops
from toolkit.errors import DTypeError

SHORT = {
    "b": "bool",
    **{f"i{n}": f"int{8 * n}" for n in (1, 2, 4, 8)},
    **{f"u{n}": f"uint{8 * n}" for n in (1, 2, 4)},
    **{f"f{n}": f"float{8 * n}" for n in (2, 4, 8)},
    "bf": "bfloat16",
}
ORDER = "b i1 i2 i4 i8 u1 u2 u4 f2 bf f4 f8".split()

# One row per dtype: its promotion with each of ORDER, then with a Python int and float.
TABLE = """
b  b  i1 i2 i4 i8 u1 u2 u4 f2 bf f4 f8 i4 f4
i1 i1 i1 i2 i4 i8 i2 i4 i4 f2 bf f4 f8 i1 f4
i2 i2 i2 i2 i4 i8 i2 i4 i4 f2 bf f4 f8 i2 f4
i4 i4 i4 i4 i4 i8 i4 i4 i4 f2 bf f4 f8 i4 f4
i8 i8 i8 i8 i8 i8 i8 i8 i8 f2 bf f4 f8 i8 f4
u1 u1 i2 i2 i4 i8 u1 u2 u4 f2 bf f4 f8 u1 f4
u2 u2 i4 i4 i4 i8 u2 u2 u4 f2 bf f4 f8 u2 f4
u4 u4 i4 i4 i4 i8 u4 u4 u4 f2 bf f4 f8 u4 f4
f2 f2 f2 f2 f2 f2 f2 f2 f2 f2 f4 f4 f8 f2 f2
bf bf bf bf bf bf bf bf bf f4 bf f4 f8 bf bf
f4 f4 f4 f4 f4 f4 f4 f4 f4 f4 f4 f4 f8 f4 f4
f8 f8 f8 f8 f8 f8 f8 f8 f8 f8 f8 f8 f8 f8 f8
"""
ROWS = [line.split() for line in TABLE.split("\n") if line]
PROMOTIONS = [
    (SHORT[row[0]], SHORT.get(other, other), SHORT[result])
    for row in ROWS
    for other, result in zip([*ORDER, int, float], row[1:], strict=True)
]


@pytest.mark.parametrize("first, second, expected", PROMOTIONS)
def test_promotion(first, second, expected):
    assert dtypes.result_type(first, second) == expected
    assert dtypes.result_type(second, first) == expected


@pytest.mark.parametrize("first, second, expected", PROMOTIONS)
def test_ops_promote(first, second, expected):
    other = second(1) if second in (int, float) else ops.ones((), second)
    assert ops.maximum(ops.ones((2,), first), other).dtype == expected


@pytest.mark.parametrize(
    "types, expected",
    [
        ((), "float32"),
        ((int,), "int32"),
        ((float,), "float32"),
        ((bool,), "bool"),
        ((int, float), "float32"),
        ((bool, int), "int32"),
        ((None, "int8"), "float32"),
        (("int8", "uint8", "float16"), "float16"),
        (("uint64", "int8"), "float32"),
    ],
)
def test_promotion_of_several(types, expected):
    assert dtypes.result_type(*types) == expected


@pytest.fixture
def restored_floatx():
    before = config.floatx()
    yield
    config.set_floatx(before)


def test_python_floats_become_floatx(restored_floatx):
    config.set_floatx("float64")
    assert ops.convert_to_tensor(1.5).dtype == "float64"
    assert dtypes.result_type(int, float) == "float64"
    config.set_floatx("bfloat16")
    assert ops.exp(ops.convert_to_tensor([1, 2])).dtype == "bfloat16"


@pytest.mark.parametrize(
    "spelling, expected",
    [
        (None, "float32"),
        ("float", "float32"),
        ("int", "int32"),
        ("uint8", "uint8"),
        (float, "float32"),
        (int, "int32"),
        (bool, "bool"),
        (np.float16, "float16"),
        (np.dtype("int64"), "int64"),
    ],
)
def test_spellings(spelling, expected):
    assert dtypes.standardize(spelling) == expected


@pytest.mark.parametrize(
    "wrong", ["float31", "complex32", "str", object, np.clongdouble]
)
def test_unknown_dtypes_are_refused(wrong):
    with pytest.raises(DTypeError):
        dtypes.standardize(wrong)


@pytest.mark.parametrize("name", dtypes.DTYPES)
def test_numpy_and_back(name):
    dtype = dtypes.numpy_dtype(name)
    assert dtypes.name_of(dtype) == name
    assert dtypes.itemsize(name) == dtype.itemsize
    assert dtypes.is_float(name) == (name in dtypes.FLOATS)


@pytest.mark.parametrize("name", ("bool", *dtypes.INTEGERS, *dtypes.FLOATS))
def test_extremes_fit_into_the_dtype(name):
    for value in (dtypes.lowest(name), dtypes.highest(name)):
        assert np.array(value).astype(dtypes.numpy_dtype(name)).item() == value


@pytest.mark.parametrize("name", dtypes.FLOATS)
def test_largest_is_finite_and_last(name):
    dtype = dtypes.numpy_dtype(name)
    largest = np.array(dtypes.largest(name)).astype(dtype)
    assert float(largest) == dtypes.largest(name) < np.inf
    with np.errstate(over="ignore"):
        assert np.nextafter(largest, dtype.type(np.inf)) == np.inf


def test_cast_of_every_pair():
    for a in dtypes.DTYPES:
        for b in dtypes.DTYPES:
            x = ops.cast(ops.convert_to_tensor([0, 1], a), b)
            assert (x.dtype, x.tolist()) == (b, [0, 1])
