"""Result dtypes of ops of one input, against a table made with Keras 3.15."""

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
    # Small integers are summed in 32 bits; unsigned ones stay so, as on JAX.
    "i4 i4 i4 i4 i8 u4 u4 u4 f2 bf f4 f8": "nanprod nansum prod sum trace",
}
REFUSED = {"bitwise_not": ("f2", "bf", "f4", "f8")}
CASES = [
    (name, SHORT[dtype], SHORT[result])
    for rule, names in RULES.items()
    for name in names.split()
    for dtype, result in zip(ORDER, rule.split(), strict=True)
    if dtype not in REFUSED.get(name, ())
]


@pytest.mark.parametrize("name, dtype, expected", CASES)
def test_result_dtype(name, dtype, expected):
    assert getattr(ops, name)(ops.ones((2, 2), dtype)).dtype == expected
