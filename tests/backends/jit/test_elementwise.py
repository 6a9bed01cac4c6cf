"""Generated elementwise kernels against NumPy: dtypes, broadcasting, strides, tails."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

pytest.importorskip("llvmlite")

from tests.backends.jit.running import graph_of, operand_of, run_fused, vectors_of
from tests.helpers import assert_close
from toolkit import ops
from toolkit.backends.numpy.jit.fused.elementwise import DTYPES, is_fusable, lower_fused
from toolkit.core.tensor import Tensor, bind
from toolkit.ir import PRIMITIVES, Kind, Node, Spec
from toolkit.ir.scalars import arity


@pytest.fixture(params=[4, 8, 16])
def lanes(request):
    with vectors_of(request.param):
        yield request.param


def check(function, *arrays, **options):
    for actual, expected in zip(*run_fused(function, *arrays, **options), strict=True):
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
    check(lambda x, y, z: ops.where(x < y, x * z, (x + y) - 1.5) + x, x, y, z)


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


@given(
    step=st.sampled_from([-2, -1, 2, 3, 4, 5]),
    shape=st.lists(st.sampled_from([1, 2, 7, 16, 33, 70]), min_size=1, max_size=2),
    dtype=st.sampled_from(["bool", "int8", "float32", "float64"]),
    lanes=st.sampled_from([4, 8, 16]),
    chunk=st.sampled_from([0, 1, 3]),
)
@settings(max_examples=60, deadline=None)
def test_small_inner_strides(step, shape, dtype, lanes, chunk):
    x = of_dtype(normal(*shape[:-1], shape[-1] * abs(step)), dtype)[..., ::step]
    with vectors_of(lanes):
        y = normal(*x.shape)
        check(lambda x, y: ops.cast(x, "float32") - y, x, y, chunk=chunk)


@given(
    rows=st.sampled_from([7, 8, 9, 16, 40, 70]),
    columns=st.sampled_from([2, 3, 8, 17, 63, 65, 130]),
    order=st.permutations([0, 1, 2]),
    dtypes=st.lists(st.sampled_from(["float32", "float64", "int8"]), min_size=2),
    lanes=st.sampled_from([4, 8, 16]),
    chunk=st.sampled_from([0, 1, 3]),
)
@settings(max_examples=40, deadline=None)
def test_transposed_operands(rows, columns, order, dtypes, lanes, chunk):
    x = normal(rows, 3, columns, dtype=dtypes[0]).transpose(order)
    y = normal(rows, 3, columns, dtype=dtypes[1], seed=1).transpose(order)
    z = normal(*x.shape, seed=2)
    column, row = normal(*x.shape[:-1], 1, seed=3), normal(x.shape[-1], seed=4)

    def function(x, y, z, column, row):
        x, y = ops.cast(x, "float32"), ops.cast(y, "float32")
        return x - y * z, x * 2.0 + column * row

    with vectors_of(lanes):
        check(function, x, y, z, column, row, chunk=chunk)


def of_dtype(x, dtype):
    """Cast through integers: a cast of a negative float to unsigned differs by CPU."""
    return (x.astype("int64") if dtype.startswith("uint") else x).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(dtype):
    x = of_dtype(normal(50, seed=1), dtype)
    y = of_dtype(normal(50, seed=2), dtype)
    if dtype == "bool":
        check(lambda x, y: ops.logical_xor(x & y, ~x | y), x, y)
    else:
        check(lambda x, y: ops.maximum(x * y + x, -y) - ops.abs(x), x, y)
    check(lambda x, y: (x == y, x != y, x < y, x <= y), x, y)


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("target", DTYPES)
def test_casts(source, target):
    if source == target:
        pytest.skip("nothing to do")
    negative = source.startswith(("float", "int"))
    x = normal(37) if not (negative and target.startswith("uint")) else normal(37) ** 2
    check(lambda x: ops.cast(x, target), of_dtype(x, source))


@pytest.mark.parametrize("target", ["int32", "int64", "uint32", "uint64"])
def test_floats_are_cast_to_the_largest_integers(target):
    top = float(np.iinfo(target).max - 4095) if "64" in target else np.iinfo(target).max
    check(lambda x: ops.cast(x, target), np.array([0, 1.9, top]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "function",
    [
        *(ops.exp, ops.expm1, ops.tanh, ops.erf, ops.sigmoid, ops.sin, ops.cos),
        *(ops.tan, ops.arctan, ops.arcsin, ops.arccos, ops.erfinv),
        *(ops.sinh, ops.cosh, ops.arcsinh, ops.arccosh, ops.arctanh),
        *(ops.floor, ops.ceil, ops.round, ops.sign, ops.negative, ops.square),
        *(ops.isnan, ops.isinf, ops.isfinite),
        lambda x: ops.log(ops.abs(x)),
        lambda x: ops.log1p(ops.abs(x)),
        lambda x: ops.sqrt(ops.abs(x)),
        lambda x: ops.rsqrt(ops.abs(x)),
        lambda x: ops.power(ops.abs(x), 1.7),
        lambda x: (ops.mod(x, -0.7), ops.floor_divide(1.5, x), ops.arctan2(x, 0.3)),
    ],
)
def test_functions(function, dtype):
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 2.5, -2.5]
    check(function, np.concatenate([special, normal(100)]).astype(dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_frequent_functions_have_equal_bits(dtype, lanes):
    """Check that inline code and calls of a separate function have equal bits."""
    x, y = normal(100, dtype=dtype), normal(100, dtype=dtype, seed=1)
    x[:10] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 1e-40, -2.5]

    def repeated(x, y):
        pairs = [(x * (1.0 + k), y) for k in range(12)]
        return tuple(f for a, b in pairs for f in (ops.power(a, b), ops.exp(a)))

    results, _ = run_fused(repeated, x, y)
    for k in range(12):
        single = run_fused(
            lambda x, y, k=k: (ops.power(x * (1.0 + k), y), ops.exp(x * (1.0 + k))),
            *(x, y),
        )[0]
        for actual, expected in zip(results[2 * k : 2 * k + 2], single, strict=True):
            np.testing.assert_array_equal(
                actual.view("uint8"), expected.view("uint8"), strict=True
            )


def test_compile_time_does_not_grow_with_every_use_of_a_function():
    def length(uses):
        x, y = normal(10), normal(10, seed=1)
        graph = graph_of(lambda x, y: sum(x ** (y + k) for k in range(uses)), x, y)
        operands = [operand_of(x), operand_of(y)]
        lowered = lower_fused(graph, operands, [operand_of(x)])
        return len(lowered.calls[0].code.text())

    assert length(64) < 2 * length(8)


def test_maximum_and_minimum_propagate_nan():
    x = np.array([np.nan, 1, np.nan, 2], "float32")
    y = np.array([1, np.nan, np.nan, 1], "float32")
    check(lambda x, y: (ops.maximum(x, y), ops.minimum(x, y)), x, y)


@pytest.mark.parametrize("limit", [0.5, 0.0, -np.inf, np.inf, np.nan])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_clip_with_constant_limits_propagates_nan(limit, dtype):
    x = np.array([np.nan, 1, -2, 0.25, 0, np.inf, -np.inf] * 3, dtype)
    limits = (lambda x: ops.maximum(x, limit)), (lambda x: ops.minimum(limit, x))
    check(lambda x: tuple(f(x) for f in limits), x)


def test_output_may_overwrite_an_input():
    x, y = normal(100), normal(100, seed=1)
    expected = (x + y) * 2, x - y
    outs, _ = run_fused(lambda x, y: ((x + y) * 2.0, x - y), x, y, donate=0)
    for actual, expected_output in zip(outs, expected, strict=True):
        np.testing.assert_array_equal(actual, expected_output)
    assert outs[0] is x


def test_one_compiled_kernel_serves_every_extent():
    def key(shape):
        x = normal(*shape)
        graph = graph_of(lambda x: x * 2.25 + 0.125, x)
        lowered = lower_fused(graph, [operand_of(x)], [operand_of(x)])
        return lowered.calls[0].code.key

    assert len({key(s) for s in [(10, 10), (3, 7), (64,), (2, 3, 4), (1, 9)]}) == 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", [lambda x, n: x / n, lambda x, n: x * (1 / n)])
def test_one_function_scales_by_every_count(scale, dtype):
    x = normal(4, 9).astype(dtype)
    keys = set()
    for count in (3, 7, 8, 100, 4096, 12345):
        (y,), (expected,) = run_fused(lambda x, n=count: scale(x, n) + 0.25, x)
        np.testing.assert_array_equal(y, expected)
        graph = graph_of(lambda x, n=count: scale(x, n), x)
        lowered = lower_fused(graph, [operand_of(x)], [operand_of(x)])
        keys.add(lowered.calls[0].code.key)
    assert len(keys) == 1


def test_bodies_with_constant_arrays_are_refused():
    x = normal(4, 3)
    graph = graph_of(lambda x: ops.exp(x * np.arange(3, dtype="float32")), x)
    assert lower_fused(graph, [operand_of(x)], [operand_of(x)]) is None


def test_several_counts_in_one_body():
    x, y = normal(5, 8), normal(5, 1)

    def body(x, y):
        return ops.sum(x / 7 * y / 7, axis=1) * (1 / 11) + y[:, 0] / 300

    results, expected = run_fused(body, x, y)
    assert_close(results[0], expected[0])


INTEGERS = [d for d in DTYPES if "int" in d]
ARITHMETIC = "floor_divide remainder gcd left_shift right_shift bitwise_and bitwise_xor"


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers(dtype):
    """Zero divisors, shifts by too many bits, the least integer: as NumPy has it."""
    info, random = np.iinfo(dtype), np.random.default_rng(0)
    x = random.integers(info.min, info.max, 90, dtype=dtype, endpoint=True)
    y = random.integers(info.min, info.max, 90, dtype=dtype, endpoint=True)
    x[:10] = info.min
    y[:30] = random.integers(0, 5, 30)
    y[5:10] = info.max if info.min == 0 else -1
    y[30:60] = random.integers(0, 70, 30)
    with np.errstate(all="ignore"):
        for name in ARITHMETIC.split():
            check(lambda x, y, name=name: bind(PRIMITIVES[name], x, y), x, y)
    check(lambda x: ops.bitwise_not(x), x)


def test_arithmetic_of_bools():
    x, y = np.array([False, False, True, True]), np.array([False, True] * 2)
    for name in ("add", "multiply", "maximum", "minimum", "less", "bitwise_xor"):
        check(lambda x, y, name=name: bind(PRIMITIVES[name], x, y), x, y)


def _is_generated(record):
    targets = {"cast": "float64", "reinterpret": "int32"}
    attrs = {"dtype": targets[record.name]} if record.name in targets else {}
    for dtype in ("float32", "int32", "bool"):
        inputs = [Spec((3,), dtype)] * arity(record.scalar)
        inputs = inputs[:1] if attrs else inputs
        results = [Tensor(None, record.spec(*inputs, **attrs))]
        node = Node(record, [Tensor(None, x) for x in inputs], attrs, results)
        if is_fusable(node):
            return True
    return False


def test_every_elementwise_primitive_is_generated():
    not_generated = {
        name
        for name, record in PRIMITIVES.items()
        if record.kind is Kind.ELEMENTWISE and not _is_generated(record)
    }
    assert not_generated == set()
