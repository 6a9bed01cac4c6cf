"""Test result dtypes of unary ops against a table made with Keras 3.15."""

import numpy as np
import pytest

from tests.test_dtypes import ORDER, SHORT
from toolkit import ops

# The result for each input dtype of ORDER, and the functions that follow this rule.
RULES = {
    "b i1 i2 i4 i8 u1 u2 u4 f2 bf f4 f8": (
        "abs absolute amax amin bitwise_not conj copy diagonal flip fliplr max min "
        "nan_to_num ones_like ravel real round sort stop_gradient transpose tril triu "
        "trunc zeros_like"
    ),
    "b b b b b b b b b b b b": (
        "all any isfinite isinf isnan isneginf isposinf isreal logical_not signbit"
    ),
    "f4 f4 f4 f4 f4 f4 f4 f4 f2 bf f4 f8": (
        "angle arccos arccosh arcsin arcsinh arctan arctanh average ceil cos cosh exp "
        "exp2 expm1 fabs floor log log10 log1p log2 mean median nanmean nanmedian "
        "nanstd nanvar sin sinc sinh sqrt std tan tanh trapezoid var"
    ),
    "i4 i4 i4 i4 i4 i4 i4 i4 i4 i4 i4 i4": (
        "argmax argmin argsort count_nonzero nanargmax nanargmin"
    ),
    "i4 i1 i2 i4 i8 u1 u2 u4 f2 bf f4 f8": (
        "cumprod cumsum nancumprod nancumsum square"
    ),
    # Small integers are summed in 32 bits; unsigned ones stay unsigned, as in JAX.
    "i4 i4 i4 i4 i8 u4 u4 u4 f2 bf f4 f8": "nanprod nansum prod sum trace",
}
REFUSED = {"bitwise_not": ("f2", "bf", "f4", "f8")}
CASES = [(name, rule) for rule, names in RULES.items() for name in names.split()]


@pytest.mark.parametrize("name, rule", CASES)
def test_result_dtype(name, rule):
    expected = {
        SHORT[dtype]: SHORT[result]
        for dtype, result in zip(ORDER, rule.split(), strict=True)
        if dtype not in REFUSED.get(name, ())
    }
    function = getattr(ops, name)
    actual = {dtype: function(ops.ones((2, 2), dtype)).dtype for dtype in expected}
    assert actual == expected


# A number counts as a tensor, as in Keras, in functions without a Python operator.
STRONG = "logaddexp logaddexp2 hypot arctan2 heaviside nextafter kron".split()


@pytest.mark.parametrize("name", STRONG)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_result_dtype_with_a_number(name, dtype):
    x, function = ops.ones((2,), dtype), getattr(ops, name)
    result_dtype = "float64" if dtype == "float64" else "float32"
    assert function(x, 0.5).dtype == function(0.5, x).dtype == result_dtype
    assert function(x, x).dtype == dtype


def test_result_dtype_of_kron_with_an_integer():
    assert ops.kron(ops.ones((2,), "int8"), 2).dtype == "int32"


INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"]


@pytest.mark.parametrize("dtype", ["bool", *INTEGERS])
def test_clip_of_integers_by_floats(dtype):
    x = ops.cast(ops.array([0, 1, 3]), dtype)
    y = ops.clip(x, -0.5, 0.75)
    assert y.dtype == "float32" and y.tolist() == [0.0, 0.75, 0.75]
    assert ops.clip(x, 0, 2.5).dtype == "float32"
    assert ops.clip(x, None, np.float64(0.5)).tolist() == [0.0, 0.5, 0.5]
    integer_bounds = ops.clip(x, 1, 2)
    assert integer_bounds.dtype == ("int32" if dtype == "bool" else dtype)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_bounds_outside_of_a_dtype(dtype):
    x = ops.cast(ops.array([0, 1, 100]), dtype)
    assert ops.clip(x, -(10**12), 10**12).tolist() == [0, 1, 100]
    assert ops.clip(x, -1, 2).tolist() == [0, 1, 2]
    low, high = ops.array([-1, 1, -1]), ops.array([400, 400, 50])
    assert ops.clip(x, low, high).tolist() == [0, 1, 50]
    assert ops.clip(x, low, high).dtype == dtype


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_clip_of_floats_keeps_their_dtype(dtype):
    x = ops.cast(ops.array([0, 1, 3]), dtype)
    for bounds in ((0.5, 2), (0, 2), (ops.array(0.5), None)):
        assert ops.clip(x, *bounds).dtype == dtype


@pytest.mark.parametrize("dtype", ["int32", "float32", "float64", "bfloat16"])
def test_histogram_counts_have_the_dtype_of_the_input(dtype):
    counts, edges = ops.histogram(ops.cast(ops.array([1, 2, 2, 4]), dtype), bins=3)
    assert counts.dtype == dtype and counts.tolist() == [1, 2, 1]
    assert edges.dtype == ("float32" if dtype == "int32" else dtype)


def test_positions_have_the_dtype_of_the_index():
    rows, columns = ops.unravel_index(ops.array([5, 2]), (2, 3))
    assert rows.dtype == columns.dtype == "int32"
    assert ops.unravel_index(ops.cast([5], "int64"), (2, 3))[0].dtype == "int64"
