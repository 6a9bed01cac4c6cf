"""Generated reductions against NumPy: rows, columns, totals; any length, any chunk."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

pytest.importorskip("llvmlite")

from tests.backends.jit.running import (
    graph_of,
    operand_of,
    run_fused,
    run_lowered,
    vectors_of,
)
from toolkit import function, ops
from toolkit.backends.numpy.jit.fused import elementwise
from toolkit.backends.numpy.jit.fused.elementwise import lower_fused
from toolkit.backends.numpy.jit.kernels import move  # noqa: F401 - before it is patched
from toolkit.backends.target import Target
from toolkit.compiler.pipeline import optimize
from toolkit.core.tensor import backend, bind
from toolkit.ops.index import put_along_axis_p
from toolkit.plans.loops.iteration_space import MAX_ROW_ELEMENTS

LENGTHS = [1, 2, 3, 15, 16, 17, 31, 33, 70, 130]
REDUCTIONS = ["sum", "prod", "max", "min"]


@pytest.fixture(autouse=True, scope="module")
def many_tasks():
    """Divide even the smallest work, so that sums have several parts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(elementwise, "LEAST_BYTES", 0)
        patch.setattr(elementwise, "_lowered_bodies", {})
        yield


@pytest.fixture(params=[4, 8, 16])
def lanes(request):
    with vectors_of(request.param):
        yield request.param


def check(function, *arrays, **options):
    for actual, expected in zip(*run_fused(function, *arrays, **options), strict=True):
        assert actual.dtype == expected.dtype
        limit = 1e-5 if actual.dtype == "float32" else 1e-12
        scale = np.abs(expected[np.isfinite(expected)]).max(initial=1.0)
        np.testing.assert_allclose(actual, expected, rtol=limit, atol=limit * scale)


def normal(*shape, dtype="float64", seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def softmax(x):
    e = ops.exp(x - ops.max(x, axis=-1, keepdims=True))
    return e / ops.sum(e, axis=-1, keepdims=True)


def normalized(x, scale, offset):
    centered = x - ops.mean(x, axis=-1, keepdims=True)
    variance = ops.mean(centered * centered, axis=-1, keepdims=True)
    y = centered * ops.rsqrt(variance + 1e-3)
    return y * scale + offset, y, variance


def cross_entropy(x, labels):
    """Return the loss, the gradient, the bias gradient, and the number correct."""
    shifted = x - ops.max(x, axis=-1, keepdims=True)
    e = ops.exp(shifted)
    total = ops.sum(e, axis=-1)
    picked = ops.sum(shifted * labels, axis=-1)
    g = e * ops.reshape(1.0 / total, (-1, 1)) - labels
    right = ops.equal(ops.argmax(x, axis=-1), ops.argmax(labels, axis=-1))
    hits = ops.sum(ops.cast(right, x.dtype))
    return ops.sum(ops.log(total) - picked), g, ops.sum(g, axis=0), hits


@given(
    rows=st.sampled_from([1, 2, 5, 40]),
    columns=st.sampled_from(LENGTHS),
    dtype=st.sampled_from(["float32", "float64"]),
    chunk=st.sampled_from([0, 1, 2]),
)
@settings(max_examples=40, deadline=None)
def test_fused_reductions(rows, columns, dtype, chunk):
    x = normal(rows, columns, dtype=dtype)
    scale, offset = normal(2, columns, dtype=dtype, seed=1)
    labels = np.eye(columns, dtype=dtype)[np.arange(rows) % columns]
    check(softmax, x, chunk=chunk)
    if columns > 1:
        check(normalized, x, scale, offset, chunk=chunk)
        if rows > 1:
            check(cross_entropy, x, labels, chunk=chunk)


@given(
    rows=st.sampled_from([8, 17, 40]),
    columns=st.sampled_from([2, 16, 33, 70]),
    dtype=st.sampled_from(["float32", "float64"]),
    chunk=st.sampled_from([0, 1, 2]),
)
@settings(max_examples=20, deadline=None)
def test_reductions_of_transposed_operands(rows, columns, dtype, chunk):
    x, y = normal(columns, rows, dtype=dtype).T, normal(rows, columns, dtype=dtype)
    check(softmax, x, chunk=chunk)
    for axis in (0, 1, None):
        check(lambda x, y: ops.sum(x * y, axis=axis), x, y, chunk=chunk)  # noqa: B023
    check(lambda x, y: (x + y, ops.max(x - y, axis=1)), x, y, chunk=chunk)


def test_transposed_operands_of_reductions_are_packed():
    x = normal(64, 48, dtype="float32").T
    graph = optimize(graph_of(softmax, x), Target(backend()))
    y = operand_of(np.empty_like(x))
    first, _ = lower_fused(graph, [operand_of(x)], [y]).calls
    assert first.prepares == x.nbytes


def sparse_cross_entropy(x, labels):
    """The losses and the gradient, with labels as numbers of classes."""
    indices = ops.reshape(labels, (-1, 1))
    shifted = x - ops.max(x, axis=-1, keepdims=True)
    e = ops.exp(shifted)
    total = ops.sum(e, axis=-1)
    picked = ops.take_along_axis(shifted, indices, axis=1)
    hits = bind(
        put_along_axis_p,
        ops.zeros(x.shape, x.dtype),
        indices,
        ops.full(indices.shape, -1.0, x.dtype),
        axis=1,
        mode="add",
    )
    g = hits + ops.reshape(1.0 / total, (-1, 1)) * e
    return ops.log(total) - ops.reshape(picked, (-1,)), g, ops.sum(g, axis=0)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("columns", LENGTHS[1:])
def test_labels_are_looked_up_in_the_same_pass(columns, dtype):
    labels = np.random.default_rng(0).integers(-columns, columns, 20).astype(dtype)
    for x in (normal(20, columns), normal(columns, 20).T):
        check(sparse_cross_entropy, x, labels)
        check(sparse_cross_entropy, x, labels, chunk=1)


@pytest.mark.parametrize("bad", [4, -5])
def test_bad_labels_are_noted_and_passed_over(bad):
    x, labels = normal(3, 4), np.array([1, bad, 2])
    graph = optimize(graph_of(sparse_cross_entropy, x, labels), Target(backend()))
    inputs, outputs = [x, labels], [normal(3), normal(3, 4), normal(4)]
    specs = [[operand_of(a) for a in arrays] for arrays in (inputs, outputs)]
    lowered = lower_fused(graph, *specs)
    noted = []
    run_lowered(lowered, inputs, outputs, bad=noted)
    assert noted == [1, bad, 4]
    message = lowered.calls[0].problem.format(index=bad, limit=4)
    assert message == (
        f"take_along_axis: index {bad} is out of range for axis 1 with 4 elements"
    )
    expected, _ = run_fused(sparse_cross_entropy, x, np.array([1, 0, 2]))
    np.testing.assert_array_equal(outputs[0][[0, 2]], expected[0][[0, 2]])


@pytest.mark.parametrize("mode", ["add", "set", "max", "min"])
@pytest.mark.parametrize("columns", [5, 40])
def test_elements_of_rows_are_changed(mode, columns):
    x, updates = normal(6, columns), normal(6, 1, seed=1)
    indices = np.arange(6)[:, None] % columns

    def function(x, indices, updates):
        y = bind(put_along_axis_p, x * 2.0, indices, updates, axis=1, mode=mode)
        return y + 1.0, ops.sum(y, axis=1)

    check(function, x, indices, updates)


@pytest.mark.parametrize("columns", LENGTHS[1:])
def test_every_width_of_vectors(lanes, columns):
    x = normal(3, columns)
    check(softmax, x)
    labels = np.eye(columns)[[0, 1, columns - 1]]
    check(cross_entropy, x, labels)


@given(
    shape=st.lists(st.sampled_from([1, 2, 3, 5, 17, 33]), min_size=1, max_size=3),
    keepdims=st.booleans(),
    name=st.sampled_from(REDUCTIONS),
    position=st.sampled_from(["leading", "trailing", "all"]),
    cut=st.integers(0, 2),
    strides=st.sampled_from(["whole", "transposed", "skipping", "reversed"]),
)
@settings(max_examples=50, deadline=None)
def test_reductions_of_any_layout(shape, keepdims, name, position, cut, strides):
    x = normal(*shape)
    if strides == "transposed":
        x = x.T
    elif strides == "skipping":
        x = x[..., ::2]
    elif strides == "reversed":
        x = x[::-1]
    cut = min(cut, x.ndim - 1)
    axes = {"leading": range(cut + 1), "trailing": range(cut, x.ndim)}
    axis = tuple(axes.get(position, range(x.ndim)))
    reduce = getattr(ops, name)
    check(lambda x: reduce(x * 1.5, axis=axis, keepdims=keepdims), x)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "float32", "bool"])
@pytest.mark.parametrize("axis", [0, 1, (0, 1)])
def test_dtypes(dtype, axis):
    x = np.random.default_rng(0).integers(0, 90, (9, 37)) - 40 * (dtype[0] != "u")
    x = x.astype(dtype)
    if dtype == "bool":
        x[2] = x[:, 5] = False
        x[3] = True
        check(lambda x: (ops.any(x, axis=axis), ops.all(x, axis=axis)), x)
    else:
        check(lambda x: tuple(getattr(ops, r)(x, axis=axis) for r in REDUCTIONS), x)


def test_nan_is_propagated():
    x = normal(4, 40)
    x[1, 33] = x[2, 0] = x[3, [5, 20]] = np.nan
    check(lambda x: (ops.max(x, axis=1), ops.min(x, axis=1), ops.max(x, axis=0)), x)
    check(lambda x: (ops.argmax(x, axis=1), ops.argmin(x, axis=1)), x)


@pytest.mark.parametrize("length", LENGTHS[1:])
def test_first_of_equal_values_wins(lanes, length):
    x = np.random.default_rng(0).integers(0, 3, (30, length))
    for array in (x, x.astype("float32"), np.full((3, length), -np.inf)):
        check(lambda x: (ops.argmax(x, axis=1), ops.argmin(x, axis=1)), array)


@pytest.mark.parametrize("count", [1, 2047, 2048, 2049, 70_001])
def test_sums_of_everything(count):
    x = normal(count, dtype="float32")
    check(lambda x: (ops.sum(x * x), ops.max(x), x + 1.0), x)


def test_rows_of_several_loops():
    x, y, z = normal(6, 5, 7), normal(6, 1, 7, seed=1), normal(5, 1, seed=2)
    check(lambda x, y, z: ops.sum(x * y + z, axis=(1, 2)), x, y, z)
    check(lambda x, y, z: ops.sum(x * y + z), x, y, z)
    check(lambda x, y, z: (ops.max(x * y + z, axis=2), ops.sum(x - z)), x, y, z)
    check(lambda x, y: ops.sum(x * y, axis=0), x, y)
    check(lambda x, z: ops.sum(x * z, axis=0), x, z)


def test_values_of_later_passes_are_stored():
    x = normal(20, 300)

    def function(x):
        y = ops.exp(ops.tanh(x))  # dear, and no output
        z = y - ops.mean(y, axis=1, keepdims=True)
        return ops.sum(ops.abs(z) * y, axis=1) * 2.0

    check(function, x)
    check(function, x, chunk=1)


def test_a_result_does_not_depend_on_chunks():
    x = normal(1000, 37, dtype="float32")

    def function(x):
        return ops.sum(x, axis=0), ops.sum(ops.max(x, axis=1)), ops.sum(x)

    first, _ = run_fused(function, x)
    for chunk in (1, 7, 10):
        for a, b in zip(first, run_fused(function, x, chunk=chunk)[0], strict=True):
            np.testing.assert_array_equal(a, b)


def test_float32_sums_are_as_accurate_as_pairwise_sums():
    x = np.random.default_rng(0).random((200_000, 16), dtype="float32")
    exact = x.astype("float64")
    (columns, total), _ = run_fused(lambda x: (ops.sum(x, axis=0), ops.sum(x)), x)
    ((rows,), _) = run_fused(lambda x: ops.sum(x, axis=1), x.reshape(16, -1))
    np.testing.assert_allclose(rows, exact.reshape(16, -1).sum(1), rtol=1e-6)
    np.testing.assert_allclose(columns, exact.sum(0), rtol=3e-6)
    np.testing.assert_allclose(total, exact.sum(), rtol=1e-6)


def test_long_rows_of_equal_numbers():
    """Of a sum that only grew, the last additions would lose most of each number."""
    x = np.full((3, 1_000_003), 0.1, "float32")
    ((rows,), _) = run_fused(lambda x: ops.sum(x, axis=1), x)
    np.testing.assert_allclose(rows, x.astype("float64").sum(1), rtol=5e-6)


def test_one_function_serves_rows_of_every_length():
    def key(rows, columns):
        x = normal(rows, columns)
        lowered = lower_fused(graph_of(softmax, x), [operand_of(x)], [operand_of(x)])
        return lowered.calls[0].code.key

    assert key(5, 100) == key(77, 1234) != key(5, 3)


def test_reduction_of_all_axes_is_one_row():
    x = normal(MAX_ROW_ELEMENTS)
    check(lambda x: x / ops.sum(x), x)


def test_bodies_of_several_spaces_are_refused():
    x = normal(6, 4)
    graph = graph_of(
        lambda x: (ops.sum(x, axis=1), ops.sum(ops.reshape(x, (3, 8)), 1)), x
    )
    outputs = [operand_of(normal(6)), operand_of(normal(3))]
    assert lower_fused(graph, [operand_of(x)], outputs) is None


def test_small_work_is_one_task(monkeypatch):
    monkeypatch.setattr(elementwise, "LEAST_BYTES", 1 << 15)
    monkeypatch.setattr(elementwise, "_lowered_bodies", {})
    x = normal(32, 32)
    graph = graph_of(lambda x: ops.sum(x, axis=0), x)
    lowered = lower_fused(graph, [operand_of(x)], [operand_of(x[0])])
    assert [call.tasks for call in lowered.calls] == [1]
    check(lambda x: (ops.sum(x, axis=0), ops.sum(ops.max(x, axis=1))), x, chunk=5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows", [2, 4, 7, 16, 33])
def test_two_results_of_one_sum(rows, dtype):
    """Adadelta of one bias, where LLVM once added the first of two lanes to itself."""
    start = np.zeros(1, dtype)

    def step(e, p, a, s):
        g = ops.sum(e, axis=0)
        a = 0.95 * a + 0.05 * g * g
        d = -ops.sqrt(s + 1e-7) / ops.sqrt(a + 1e-7) * g
        return p + 0.05 * d, 0.95 * s + 0.05 * d * d

    e = np.random.default_rng(0).normal(size=(rows, 1)).astype(dtype)
    for y, expected in zip(
        function(step)(e, start, start, start),
        step(*map(ops.convert_to_tensor, (e, start, start, start))),
        strict=True,
    ):
        tolerance = 1e-12 if dtype == "float64" else 1e-6
        np.testing.assert_allclose(y.numpy(), expected.numpy(), rtol=tolerance)


@pytest.mark.parametrize("count", [1, 63, 64, 65, 200])
def test_rows_of_bytes(count):
    generator = np.random.default_rng(count)
    x, y = (generator.random((5, count)) < 0.9 for _ in range(2))
    z = generator.integers(-9, 9, (5, count)).astype("int8")

    def compute(x, y, z):
        both = ops.logical_and(x, ops.logical_not(y))
        return both, ops.any(both, 1), ops.all(x, 1), z * z - z

    results = function(compute)(x, y, z)
    both = x & ~y
    expected = both, both.any(1), x.all(1), z * z - z
    for result, array in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, array)


DECIDED = {
    "any": lambda x: ops.any(x > 0, axis=1),
    "all": lambda x: ops.all(x <= 0, axis=1),
    "both": lambda x: (ops.any(x > 0, axis=1), ops.all(x <= 0, axis=1)),
    "whole": lambda x: (ops.any(x > 0), ops.all(x <= 0)),
    "other result": lambda x: (ops.any(x > 0, axis=1), ops.sum(x, axis=1)),
    "other elements": lambda x: (ops.any(x > 0, axis=1), x + 1),
}


@pytest.mark.parametrize("name", DECIDED)
@pytest.mark.parametrize("columns", [1023, 1025, 3001])
@pytest.mark.parametrize("chunk", [0, 1])
def test_rows_with_decided_results(name, columns, chunk):
    x = np.zeros((5, columns), "float32")
    x[[0, 1, 2], [0, columns - 1, 1022]] = 1
    for rows in (slice(0, 5), slice(3, 5), slice(2, 5)):
        outputs, expected = run_fused(DECIDED[name], x[rows].copy(), chunk=chunk)
        for actual, y in zip(outputs, expected, strict=True):
            np.testing.assert_array_equal(actual, y)
