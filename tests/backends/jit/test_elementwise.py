"""Generated elementwise kernels against NumPy: dtypes, broadcasting, strides, tails."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("llvmlite")

from tests.helpers import assert_close
from toolkit import dtypes, ops
from toolkit.backends.numpy.jit import kernels
from toolkit.backends.numpy.jit.elementwise import DTYPES
from toolkit.backends.numpy.jit.kernels import FusedKernel
from toolkit.ir import Spec
from toolkit.tensor import Tensor
from toolkit.trace import Trace


def run(function, *arrays, donate=None):
    """The outputs of one kernel for all of `function`, and those of eager ops."""
    with Trace("kernel") as trace:
        inputs = [
            trace.placeholder(Spec(a.shape, dtypes.name_of(a.dtype))) for a in arrays
        ]
        outputs = function(*inputs)
    several = isinstance(outputs, tuple)
    graph = trace.finish(outputs if several else [outputs])
    expected = [
        y.numpy()
        for y in (
            function(*map(Tensor, arrays))
            if several
            else [function(*map(Tensor, arrays))]
        )
    ]
    outs = tuple(np.empty(v.spec.shape, v.spec.dtype) for v in graph.outputs)
    if donate is not None:
        outs = (arrays[donate], *outs[1:])
    FusedKernel(graph)(*arrays, out=outs if several else outs[0])
    return outs, expected


def check(function, *arrays, **options):
    for actual, expected in zip(*run(function, *arrays, **options), strict=True):
        assert actual.dtype == expected.dtype
        assert_close(actual, expected)


def normal(*shape, dtype="float32", seed=0):
    array = np.random.default_rng(seed).standard_normal(shape) * 3
    return np.asarray(array, dtype)


@given(
    shape=st.lists(st.sampled_from([0, 1, 2, 3, 15, 16, 17, 33]), max_size=3),
    masks=st.lists(st.booleans(), min_size=6, max_size=6),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_shapes_and_broadcasting(shape, masks, seed):
    x = normal(*shape, seed=seed)
    y = normal(*(1 if m else n for n, m in zip(shape, masks, strict=False)), seed=1)
    z = normal(*shape[len(shape) // 2 :], seed=2)
    check(lambda x, y, z: ops.where(x < y, x * z, y - 1.5) + x, x, y, z)


@pytest.mark.parametrize("name", ["T", "reversed", "skipping", "offset", "column"])
def test_strided_inputs(name):
    base = normal(40, 40)
    views = {
        "T": base.T,
        "reversed": base[::-1, ::-1],
        "skipping": base[::2, ::3],
        "offset": base[3:, 5:],
        "column": base[:, 7:8],
    }
    x = views[name]
    check(lambda x, y: x * 2.0 + y, x, normal(*x.shape, seed=1))


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(dtype):
    x = normal(50, seed=1).astype(dtype)
    y = normal(50, seed=2).astype(dtype)
    if dtype == "bool":
        check(lambda x, y: ops.logical_xor(x & y, ~x | y), x, y)
    else:
        check(lambda x, y: ops.maximum(x * y + x, -y) - ops.abs(x), x, y)
    check(lambda x, y: (x == y, x != y, x < y, x <= y), x, y)


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("target", DTYPES)
def test_casts(source, target):
    if source.startswith("float") and target.startswith("int"):
        pytest.skip("left to NumPy: undefined out of range")
    check(lambda x: ops.cast(x, target), normal(37).astype(source))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "function",
    [
        *(ops.exp, ops.expm1, ops.tanh, ops.erf, ops.sigmoid, ops.sin, ops.cos),
        *(ops.floor, ops.ceil, ops.round, ops.sign, ops.negative, ops.square),
        *(ops.isnan, ops.isinf, ops.isfinite),
        lambda x: ops.log(ops.abs(x)),
        lambda x: ops.log1p(ops.abs(x)),
        lambda x: ops.sqrt(ops.abs(x)),
        lambda x: ops.rsqrt(ops.abs(x)),
        lambda x: ops.power(ops.abs(x), 1.7),
    ],
)
def test_functions(function, dtype):
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 2.5, -2.5]
    check(function, np.concatenate([special, normal(100)]).astype(dtype))


def test_not_a_number_wins_in_maximum_and_minimum():
    x = np.array([np.nan, 1, np.nan, 2], "float32")
    y = np.array([1, np.nan, np.nan, 1], "float32")
    check(lambda x, y: (ops.maximum(x, y), ops.minimum(x, y)), x, y)


def test_an_output_may_be_written_over_an_input():
    x, y = normal(100), normal(100, seed=1)
    expected = (x + y) * 2, x - y
    outs, _ = run(lambda x, y: ((x + y) * 2.0, x - y), x, y, donate=0)
    for actual, wanted in zip(outs, expected, strict=True):
        np.testing.assert_array_equal(actual, wanted)
    assert outs[0] is x


def test_one_compiled_kernel_serves_every_extent():
    function = lambda x: x * 2.25 + 0.125  # noqa: E731
    check(function, normal(10, 10))
    misses = kernels._kernel.cache_info().misses
    for shape in ((3, 7), (64,), (2, 3, 4)):
        check(function, normal(*shape))
    assert kernels._kernel.cache_info().misses == misses
