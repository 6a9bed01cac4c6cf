"""Test that a program accepts the dtypes that the eager op accepts."""

import numpy as np
import pytest

import toolkit
from tests.helpers import assert_close, to_numpy
from tests.ops.samples import SAMPLES
from tests.ops.table import is_float
from toolkit import dtypes, ops, tree
from toolkit.core.tensor import Tensor

COMPUTED = ("bool", *dtypes.INTEGERS, *dtypes.FLOATS)


def is_array(x):
    return isinstance(x, np.ndarray)


def is_integer(x):
    return is_array(x) and x.dtype.kind in "iub"


def cast(x, dtype):
    """Cast an array to a tensor; negative numbers wrap in unsigned dtypes."""
    if is_float(x) and dtype in dtypes.INTEGERS:
        with np.errstate(invalid="ignore"):  # infinities, in the rows about infinities
            x = x.astype(np.int64)
    return ops.convert_to_tensor(x.astype(dtypes.numpy_dtype(dtype)))


def variants(row):
    """Return the row's inputs with its floats, or its integers, in each dtype."""
    leaves = tree.flatten(row.inputs)
    for is_changed in (is_float, is_integer):
        # A matrix of ones has no unique factors.
        computed = COMPUTED[1:] if row.name == "qr" else COMPUTED
        for dtype in computed if any(map(is_changed, leaves)) else ():
            operands = []
            for x in leaves:
                default_dtype = "float32" if is_float(x) else getattr(x, "dtype", None)
                name = dtype if is_changed(x) else str(default_dtype)
                operands.append(cast(x, name) if is_array(x) else x)
            yield tree.pack_sequence_as(row.inputs, operands)


def accepted_variants(row):
    """Return the variants that the op accepts, and their results."""
    for inputs in variants(row):
        try:
            yield inputs, tree.flatten(row.call(*inputs))
        except (TypeError, ValueError, LookupError, NotImplementedError):
            continue


def run_compiled(row, variants):
    """Return the results of one program for several inputs of the row."""
    leaves = tree.flatten(variants)
    indices = [i for i, x in enumerate(leaves) if isinstance(x, Tensor)]

    @toolkit.function
    def function(*xs):
        arguments = list(leaves)
        for i, x in zip(indices, xs, strict=True):
            arguments[i] = x
        inputs = tree.pack_sequence_as(variants, arguments)
        return [row.call(*variant) for variant in inputs]

    return [tree.flatten(y) for y in function(*(leaves[i] for i in indices))]


def check(row):
    pairs = list(accepted_variants(row))
    if not pairs:
        pytest.skip("has no arrays among its inputs")
    outputs = run_compiled(row, [inputs for inputs, _ in pairs])
    for (inputs, eager), actual in zip(pairs, outputs, strict=True):
        names = [x.dtype for x in tree.flatten(inputs) if isinstance(x, Tensor)]
        assert len(actual) == len(eager), names
        for y, expected in zip(actual, eager, strict=True):
            if isinstance(y, Tensor):
                assert (y.shape, y.dtype) == (expected.shape, expected.dtype), names
                assert_close(*scaled(to_numpy(y), to_numpy(expected)), factor=4)


def scaled(y, expected):
    """Scale both to numbers up to one, because sums of large numbers lose small ones.

    A negative number is close to 2 ** 64 in uint64.
    """
    if expected.dtype.kind not in "fc":
        return y, expected
    largest = float(np.max(np.abs(expected), initial=0, where=np.isfinite(expected)))
    return (y, expected) if largest < 1e15 else (y / largest, expected / largest)


FIRST_SAMPLES = {row.name: row for row in reversed(SAMPLES) if row.traced}
# Each takes 5 to 15 s: long graphs, compiled for each dtype.
LONG_COMPILES = ("igammac", "logm", "polygamma")
ROWS = [
    pytest.param(row, marks=pytest.mark.slow) if row.name in LONG_COMPILES else row
    for row in sorted(FIRST_SAMPLES.values(), key=str)
]


@pytest.mark.parametrize("row", ROWS, ids=str)
@pytest.mark.one_in(4)
def test_every_accepted_dtype_compiles(row):
    check(row)


VIEWS = [
    (old, new)
    for old in (*COMPUTED, *dtypes.COMPLEX)
    for new in (*COMPUTED, *dtypes.COMPLEX)
    if new != "bool" or old == "bool"  # bytes other than 0 and 1 are invalid booleans
]


def test_views_of_every_dtype_as_every_other():
    x = ops.reshape(ops.arange(1, 33), (2, 16))
    arrays = [ops.cast(x, old) for old, _ in VIEWS]

    @toolkit.function
    def views(*arrays):
        pairs = zip(arrays, VIEWS, strict=True)
        moved = ((ops.concatenate([x, x]), new) for x, (_, new) in pairs)
        return [ops.view(x[2:], new) for x, new in moved]

    for x, (old, new), y in zip(arrays, VIEWS, views(*arrays), strict=True):
        expected = x.numpy().view(dtypes.numpy_dtype(new))
        assert y.dtype == new and y.shape == expected.shape, (old, new)
        assert y.numpy().tobytes() == expected.tobytes(), (old, new)


@pytest.mark.parametrize("dtype", dtypes.FLOATS)
def test_compiled_nextafter(dtype):
    starts = [0.0, -0.0, 1.0, -1.0, 3.0, np.inf, -np.inf, np.nan, 1.0]
    ends = [1.0, -1.0, 2.0, -2.0, 3.0, 0.0, 0.0, 1.0, np.nan]
    x1, x2 = (ops.convert_to_tensor(x, dtype) for x in (starts, ends))
    y = toolkit.function(lambda a, b: ops.nextafter(a, b))(x1, x2)
    expected = np.nextafter(x1.numpy(), x2.numpy()).astype("float64")
    np.testing.assert_array_equal(y.numpy().astype("f8"), expected)


def test_views_inside_a_loop():
    def bits(n, x):
        return n + 1, ops.view(ops.view(x, "int16") + ops.cast(1, "int16"), "bfloat16")

    def count(x):
        return ops.while_loop(lambda n, x: n < 3, bits, (0, x))[1]

    x = ops.convert_to_tensor([1.0, -2.0], "bfloat16")
    actual, expected = toolkit.function(count)(x), count(x)
    assert actual.numpy().tobytes() == expected.numpy().tobytes()
