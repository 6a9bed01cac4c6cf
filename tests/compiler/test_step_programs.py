"""Test that programs that replace eager steps have the same bits and strides."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import toolkit as tk
from tests.backends.jit.running import graph_of
from toolkit import ops
from toolkit.backends.composites import KernelSequence
from toolkit.compiler import step_programs
from toolkit.core.tensor import backend
from toolkit.errors import OutOfRangeError
from toolkit.ir import PRIMITIVES
from toolkit.plans.rules import rules

# Calls after which a program has replaced the steps.
CALLS = 6
FLOATS = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -2.5, 1e-40, 3e38, -7.3]
FLOATS += [2.0**31, -(2.0**31), 1e10, 0.1, 3.0, 1.5]
INTEGERS = [0, 1, -1, 2, 7, -100, 127, 2**31 - 1, -(2**31)]


def run(sequence, arrays):
    results = sequence.run(*arrays)
    return results if isinstance(results, tuple) else (results,)


def layout(array):
    """Return the bits, and the strides of the axes with more than one element."""
    steps = [s for s, n in zip(array.strides, array.shape, strict=True) if n > 1]
    return array.dtype, array.shape, steps, array.tobytes()


def count_programs(function, *arrays, trials=()):
    """Compare a function's programs with its steps, and return their number.

    Args:
        function: a function of tensors.
        arrays: its operands.
        trials: other operands of the same shapes.
    """
    graph = graph_of(function, *arrays).pruned()
    before = step_programs.count()
    plain = KernelSequence(backend(), graph)
    programs = KernelSequence(backend(), graph, True, step_programs.use_programs)
    number = step_programs.count() - before
    with np.errstate(all="ignore"):
        for operands in [arrays] * CALLS + list(trials) + [arrays]:
            pairs = zip(run(plain, operands), run(programs, operands), strict=True)
            for expected, result in pairs:
                assert layout(np.asarray(result)) == layout(np.asarray(expected))
    return number


def operands(dtype, count):
    """Return arrays with all pairs of special numbers."""
    values = FLOATS if "float" in dtype else INTEGERS if dtype != "bool" else [0, 1]
    values = np.array(values).astype(dtype)
    pairs = np.stack(np.meshgrid(values, values)).reshape(2, -1)
    return [np.resize(x, max(40, x.size)) for x in pairs[:count]]


UNARY = (
    *("absolute", "negative", "floor", "ceil", "round", "trunc", "sqrt", "rsqrt"),
    *("isnan", "isinf", "isfinite", "square"),
)
BINARY = (
    *("add", "subtract", "multiply", "divide", "maximum", "minimum"),
    *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
)
INTEGER = ("bitwise_and", "bitwise_or", "bitwise_xor")
LOGICAL = ("logical_and", "logical_or", "logical_xor")
CASES = [
    *[(name, dtype) for name in (*UNARY, *BINARY) for dtype in ("float32", "float64")],
    *[(name, "int32") for name in ("absolute", "negative", "add", "less", *INTEGER)],
    *[(name, "bool") for name in LOGICAL],
]


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_special_numbers(name, dtype):
    """Vectors and the numbers after them have the bits of NumPy."""
    function = getattr(ops, name)
    arrays = operands(dtype, 1 if name in UNARY else 2)

    def steps(*xs):
        y = function(*xs)
        flag = y if y.dtype == "bool" else ops.less(y, xs[0])
        selected = ops.where(flag, xs[0], xs[-1])
        return y, ops.logical_not(flag), selected, ops.equal(selected, xs[-1])

    for length in (3, 37, arrays[0].size):
        starts = range(0, arrays[0].size - length + 1, length)
        first, *trials = [[x[i : i + length] for x in arrays] for i in starts]
        assert count_programs(steps, *first, trials=trials) == 1


CASTS = ("float32", "float64", "int32", "int64", "bool", "uint8")


@pytest.mark.parametrize(("source", "target"), [*permutations(CASTS, 2)])
def test_casts(source, target):
    (x,) = operands(source, 1)

    def steps(x):
        y = ops.cast(x, target)
        return y, ops.equal(x, x), ops.where(ops.equal(y, y), y, y), ops.maximum(x, x)

    assert count_programs(steps, x) == 1


SUMS = {
    "square": lambda x, axis: ops.sum(x * x, axis=axis),
    "finite": lambda x, axis: ops.nansum(x * 2.0, axis=axis),
    "costly": lambda x, axis: ops.mean(ops.tanh(x) * ops.exp(-x), axis=axis),
    "several": lambda x, axis: (ops.sum(x * x, axis=axis), ops.max(x + 1, axis=axis)),
    "variance": lambda x, axis: ops.mean(
        ops.square(x - ops.mean(x, axis=axis, keepdims=True)), axis=axis
    ),
    "loss": lambda x, axis: ops.mean(ops.square(x - ops.abs(x)) + 0.5, axis=axis),
}


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize(
    "shape", [(316, 316), (1000, 100), (40000, 3), (33, 47, 65), (100000,)], ids=str
)
def test_large_sums(shape, name):
    """A loop that ends in a sum adds in the order of the sum alone."""
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape).astype("float32") for _ in range(3)]
    for axis in (-1, 0, None) if len(shape) > 1 else (0,):
        function = partial(SUMS[name], axis=axis)
        trials = [[x] for x in arrays[1:]]
        assert count_programs(function, arrays[0], trials=trials) == 1


BROADCASTS = {
    "rows": lambda x, r, c, axis: ops.sum(x * r * r, axis=axis),
    "columns": lambda x, r, c, axis: ops.sum(x * c + c, axis=axis),
    "scale": lambda x, r, c, axis: (ops.sum(x * r + c, axis=axis), x * r),
    "chain": lambda x, r, c, axis: ops.sum(
        (x * ops.sum(x * c, axis=axis, keepdims=True) - r) * 2.0, axis=axis
    ),
    "twice": lambda x, r, c, axis: ops.sum(ops.sum(x * r * c, axis=axis), axis=-1),
}


@pytest.mark.parametrize("name", BROADCASTS)
@pytest.mark.parametrize(
    "shape", [(316, 316), (100, 1000), (40000, 3), (33, 47, 65), (7, 300, 70)], ids=str
)
def test_large_sums_of_broadcasts(shape, name):
    rng = np.random.default_rng(0)
    shapes = shape, (*shape[:-1], 1), shape[-1:]
    first, *trials = [
        [rng.normal(size=s).astype("float32") for s in shapes] for _ in range(3)
    ]
    axes = [-1, 0, *([1, (0, 1), (1, 2)] if len(shape) > 2 else [])]
    if name != "twice":
        axes.append(None)
    programs = [
        count_programs(partial(BROADCASTS[name], axis=axis), *first, trials=trials)
        for axis in axes
    ]
    assert all(programs[:2])


@pytest.mark.parametrize(
    "steps",
    [
        lambda x: ops.sum((x[:, 1:] + x[:, :-1]) * 0.5),
        lambda x: ops.mean(ops.square(x - ops.mean(x, axis=-1, keepdims=True))),
        lambda x: ops.sum(ops.sum(x * x, axis=-1)),
        lambda x: ops.sum(ops.pad(x, [(0, 0), (1, 0)]) * 2.0),
        lambda x: ops.sum(x * ops.arange(x.shape[1], dtype="float32")),
    ],
)
def test_sums_with_other_reads(steps):
    """Loops over other arrays can have other orders: the sum stays alone."""
    rng = np.random.default_rng(0)
    for shape in [(316, 316), (1000, 100), (40000, 3)]:
        x, y = (rng.normal(size=shape).astype("float32") for _ in range(2))
        count_programs(steps, x, trials=[[y]])


class Draws:
    """Random operations on a list of tensors of function_of shapes."""

    def __init__(self, data):
        self.data = data

    def choose(self, values):
        return self.data.draw(st.sampled_from(list(values)))

    def unary(self, x):
        function = self.choose(
            [
                lambda: ops.abs(x) * 0.5,
                lambda: ops.transpose(x),
                lambda: ops.reshape(x, (-1,)),
                lambda: ops.pad(x, [(0, 1)] * len(x.shape)),
                lambda: ops.flip(x, 0),
                lambda: x[: max(1, x.shape[0] - 1)],
                lambda: x[..., None],
                lambda: ops.take(x, [0, x.shape[0] - 1], axis=0),
                lambda: ops.broadcast_to(x, (2, *x.shape)),
                lambda: ops.concatenate([x, x * 2.0], axis=0),
                lambda: ops.floor(x),
                lambda: ops.exp(x),
                lambda: ops.cast(ops.isfinite(x), "float32"),
                lambda: ops.sum(x, axis=0) if len(x.shape) > 1 else x,
                lambda: ops.max(x, axis=-1) if len(x.shape) > 1 else x,
                lambda: ops.mean(x, axis=self.choose(range(len(x.shape)))),
                lambda: ops.where(x > 0.3, x, -x),
            ]
        )
        try:
            return function()
        except (ValueError, IndexError):  # there is no axis
            return x

    def binary(self, x, y):
        function = self.choose([ops.add, ops.multiply, ops.maximum, ops.divide])
        try:
            return function(x, y)
        except ValueError:  # the shapes do not match
            return x


@given(data=st.data(), shape=st.sampled_from([(4, 8), (3, 5, 2), (1, 7), (17,)]))
@settings(max_examples=60, deadline=None)
def test_random_steps(data, shape):
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape).astype("float32") for _ in range(4)]
    draws = Draws(data)
    program = data.draw(
        st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=12)
    )
    number = data.draw(st.integers(1, 3))

    # The draws of the first trace are repeated: `graph_of` runs it once.
    def function(x, y):
        values = [x, y]
        for is_unary, i in program:
            a, b = values[i % len(values)], values[-1]
            values.append(draws.unary(a) if is_unary else draws.binary(a, b))
        return tuple([value * 1.0 for value in values[-number:]])

    count_programs(function, *arrays[:2], trials=[arrays[2:]])


def image(seed=0):
    values = np.random.default_rng(seed).normal(size=(1, 6, 5, 8))
    return ops.convert_to_tensor(values.astype("float32"))


AFFINE = [[0.9, 0.1, 0.3, -0.1, 0.9, 0.2, 0.0, 0.0]]
FREQUENT = {
    "resize": lambda x: ops.image.resize(x, (12, 10)),
    "affine": lambda x: ops.image.affine_transform(x, ops.convert_to_tensor(AFFINE)),
    "adaptive": lambda x: ops.adaptive_max_pool(x, (4, 4)),
    "cross": lambda x: ops.cross(x[..., :3], x[..., 1:4]),
    "scan": lambda x: ops.associative_scan(ops.maximum, x, axis=-1),
}


@pytest.mark.parametrize("name", FREQUENT)
def test_frequent_calls(name):
    """Later calls and gradients have the bits of the first ones."""
    function, xs = FREQUENT[name], [image(seed) for seed in range(2)]

    def bits(x):
        with tk.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        return [np.asarray(z).tobytes() for z in (function(x), y, tape.gradient(y, x))]

    before = step_programs.count()
    first = [bits(x) for x in xs]
    for i in range(1000):
        assert bits(xs[i % 2]) == first[i % 2]
    assert step_programs.count() > before


def test_other_strides():
    def function(x, y):
        return ops.sum((x + y) * 2.0 - y, axis=0)

    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=(7, 12)).astype("float32") for _ in range(2))
    columns = [np.asfortranarray(z) for z in (x, y)]
    sliced = [np.repeat(z, 2, axis=1)[:, ::2] for z in (x, y)]
    assert count_programs(function, x, y, trials=[columns, sliced]) == 1
    count_programs(function, *columns, trials=[(x, y)])


def test_operands_that_broadcast():
    """The gradient of a sum has strides of 0."""

    def steps(g, x):
        return ops.sum(g, axis=0), ops.sum(g * x, axis=1), ops.sum(g * 2.0 + x)

    rng = np.random.default_rng(0)
    x = rng.normal(size=(316, 300)).astype("float32")
    row, number = rng.normal(size=300).astype("float32"), np.float32(0.1)
    for g in (np.broadcast_to(row, x.shape), np.broadcast_to(number, x.shape)):
        assert count_programs(steps, g, x, trials=[[x, x], [g, x[::-1]]])


def test_order_of_axes():
    """Results have the order of axes of NumPy, on which later sums depend."""

    def function(x):
        y = ops.transpose(x) * 2.0 + 1.0
        return y - 3.0, ops.negative(y)

    x = np.random.default_rng(0).normal(size=(9, 12)).astype("float32")
    assert count_programs(function, x) == 1


def test_views_are_not_copied():
    def function(x):
        y = ops.abs(x) + x * 2.0 - 1.0
        return ops.transpose(y), ops.broadcast_to(y[:1], (5, 8)), y

    x = np.random.default_rng(0).normal(size=(4, 8)).astype("float32")
    graph = graph_of(function, x).pruned()
    sequence = KernelSequence(backend(), graph, True, step_programs.use_programs)
    for _ in range(CALLS):
        transposed, first, y = sequence.run(x)
    assert np.shares_memory(transposed, y)
    assert first.strides[0] == 0


def test_repeated_operations():
    """An operation that occurs twice runs once, but results share no memory."""

    def steps(x):
        return ops.sum(x, axis=0), ops.sum(x, axis=0), x - ops.sum(x, axis=0)

    x = np.random.default_rng(0).normal(size=(40, 8)).astype("float32")
    count_programs(steps, x)
    graph = graph_of(steps, x).pruned()
    first, second, _ = KernelSequence(backend(), graph).run(x)
    assert not np.shares_memory(first, second)


@pytest.mark.parametrize("number", [0.0, -0.0])
def test_signed_zeros_are_separate(number):
    """Attributes that compare equal can have other results."""

    def steps(x):
        widths = [(1, 1)]
        padded = [ops.pad(x, widths, constant_values=y) for y in (0.0, -0.0, number)]
        return padded[0] * 2.0, padded[1] * 2.0, padded[2] * 2.0

    x = np.ones(4, "float32")
    count_programs(steps, x)
    graph = graph_of(steps, x).pruned()
    results = KernelSequence(backend(), graph).run(x)
    signs = [bool(np.signbit(y[0])) for y in results]
    assert signs == [False, True, bool(np.signbit(number))]


def test_threads_use_one_program():
    """A thread runs the steps while another thread runs the program."""

    def steps(x):
        return ops.abs(x) * 2.0 - ops.floor(x) * x + 1.0

    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(20, 30)).astype("float32") for _ in range(4)]
    graph = graph_of(steps, arrays[0]).pruned()
    expected = [KernelSequence(backend(), graph).run(x) for x in arrays]
    run = KernelSequence(backend(), graph, True, step_programs.use_programs).run

    def repeat(i):
        return all(np.array_equal(run(arrays[i]), expected[i]) for _ in range(500))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(repeat, range(4)))


def test_rules_of_the_thread():
    """Programs do not run where the rules exclude generated code."""

    def function(x):
        return ops.abs(x) + x * 2.0 - 1.0

    x = np.random.default_rng(0).normal(size=(4, 8)).astype("float32")
    graph = graph_of(function, x).pruned()
    sequence = KernelSequence(backend(), graph, True, step_programs.use_programs)
    for _ in range(CALLS):
        expected = sequence.run(x)
    for setting in ({"rows_independent": True}, {"array_kernels_only": True}):
        with rules.override(**setting):
            np.testing.assert_array_equal(sequence.run(x), expected)


def test_errors_of_a_program():
    """An index out of range has the same error before and after."""

    def function(x, i):
        return ops.take(ops.abs(x) + x * 2.0 - 1.0, i, axis=0) * 2.0

    x, i = np.ones((4, 8), "float32"), np.array([0, 3])
    graph = graph_of(function, x, i).pruned()
    before = step_programs.count()
    sequence = KernelSequence(backend(), graph, True, step_programs.use_programs)
    assert step_programs.count() == before + 1
    for _ in range(CALLS):
        sequence.run(x, i)
    with pytest.raises((IndexError, OutOfRangeError)):
        sequence.run(x, np.array([0, 4]))
    assert np.shape(sequence.run(x, i)) == (2, 8)


def test_large_scratch_memory_is_not_kept():
    """A program with much scratch memory would keep it between calls."""

    def function(x):
        y = ops.sum(ops.reshape(ops.abs(x) * 2.0, (-1, 2)), axis=1)
        return ops.take(y, ops.cast(y[:10], "int32") * 0, axis=0) + 1.0

    x = np.ones(1 << 23, "float32")
    graph = graph_of(function, x).pruned()
    before = step_programs.count()
    KernelSequence(backend(), graph, True, step_programs.use_programs)
    assert step_programs.count() == before


def test_primitives_exist():
    from toolkit.backends.numpy import equal_code

    assert set(equal_code._ELEMENTWISE) <= set(PRIMITIVES)
