"""Tests of control flow: eager equals traced, gradients, Variables inside bodies."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import toolkit
from tests.compiler.graphs import op_names, trace_of
from tests.helpers import assert_close
from toolkit import ops
from toolkit.errors import ArgumentError, GradientError, ShapeError


def eager_and_traced(function, *args):
    """Return eager and traced results, which must agree, as nested lists."""
    eager, traced = function(*args), toolkit.function(function)(*args)
    pairs = zip(toolkit.tree.flatten(eager), toolkit.tree.flatten(traced), strict=True)
    for a, b in pairs:
        if a is not None:
            np.testing.assert_allclose(a, b, rtol=1e-6)
    return eager


def value_and_gradient(function):
    def wrapped(x):
        with toolkit.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        return y, tape.gradient(y, x)

    return wrapped


def number(x: float) -> toolkit.Tensor:
    return ops.convert_to_tensor(x, "float64")


@pytest.mark.parametrize("x", [2.0, -2.0])
def test_cond(x):
    function = value_and_gradient(
        lambda x: ops.cond(x > 0, lambda: x * x, lambda: x * 5.0)
    )
    y, g = eager_and_traced(function, number(x))
    assert (float(y), float(g)) == ((4.0, 4.0) if x > 0 else (-10.0, 5.0))


@pytest.mark.parametrize("convert", [bool, np.bool_, np.array, ops.convert_to_tensor])
@pytest.mark.parametrize("pred", [True, False])
def test_cond_of_a_known_predicate_runs_one_branch(pred, convert):
    branches = []
    result = ops.cond(
        convert(pred), lambda: branches.append(1) or 1, lambda: branches.append(0) or 0
    )
    assert (result, branches) == (int(pred), [int(pred)])


def test_cond_branches_must_agree():
    traced = toolkit.function(
        lambda x: ops.cond(x > 0, lambda: x, lambda: ops.stack([x, x]))
    )
    with pytest.raises(ShapeError, match="cond: both branches"):
        traced(number(1.0))


def test_cond_assigns_variables():
    v = toolkit.Variable(1.0)

    @toolkit.function
    def step(x):
        ops.cond(x > 0, lambda: v.assign(x), lambda: v.assign(v * 2.0))

    step(ops.convert_to_tensor(5.0))
    assert float(v) == 5.0
    step(ops.convert_to_tensor(-1.0))
    assert float(v) == 10.0


@pytest.mark.parametrize("index", [-3, 0, 1, 2, 9])
def test_switch(index):
    branches = [lambda x: x + 1.0, lambda x: x * 10.0, lambda x: -x]
    result = eager_and_traced(
        lambda i, x: ops.switch(i, branches, x),
        ops.convert_to_tensor(index),
        number(2.0),
    )
    assert float(result) == [3.0, 20.0, -2.0][min(max(index, 0), 2)]


def test_while_loop():
    def collatz(n):
        return ops.while_loop(
            lambda n, steps: n > 1,
            lambda n, steps: (
                ops.where(n % 2 == 0, n // 2, 3 * n + 1),
                steps + 1,
            ),
            (n, 0),
        )[1]

    assert int(eager_and_traced(collatz, ops.convert_to_tensor(27))) == 111


def test_while_loop_carries_structures_and_stops_at_the_limit():
    def function(x):
        return ops.while_loop(
            lambda state: ops.sum(state["x"]) < 1e6,
            lambda state: {"x": state["x"] * 2.0},
            {"x": x},
            maximum_iterations=3,
        )

    assert eager_and_traced(function, number([1.0, 2.0]))["x"].tolist() == [8.0, 16.0]


def test_while_loop_gradient_needs_maximum_iterations():
    def grow(x, limit):
        return ops.while_loop(
            lambda i, x: i < 3, lambda i, x: (i + 1, x * x), (0, x), limit
        )[1]

    y, g = eager_and_traced(value_and_gradient(lambda x: grow(x, 10)), number(1.1))
    np.testing.assert_allclose([float(y), float(g)], [1.1**8, 8 * 1.1**7])
    unbounded = toolkit.function(value_and_gradient(lambda x: grow(x, None)))
    with pytest.raises(GradientError, match="maximum_iterations"):
        unbounded(number(1.1))


def test_while_loop_must_keep_shapes():
    def function(x):
        return ops.while_loop(lambda x: True, lambda x: ops.stack([x, x]), x)

    for run in (function, toolkit.function(function)):
        with pytest.raises(ShapeError, match="while_loop: the body must keep"):
            run(number(1.0))


def test_while_loop_assigns_variables():
    v = toolkit.Variable(0.0)

    def function(n):
        ops.while_loop(lambda i: i < n, lambda i: (v.assign_add(2.0), i + 1)[1], 0)

    toolkit.function(function)(ops.convert_to_tensor(4))
    assert float(v) == 8.0


def test_fori_loop():
    total = eager_and_traced(
        lambda x: ops.fori_loop(2, 5, lambda i, s: s + ops.cast(i, "float64"), x),
        number(0.0),
    )
    assert float(total) == 9.0
    traced_bound = eager_and_traced(
        lambda n: ops.fori_loop(0, n, lambda i, s: s + i, ops.convert_to_tensor(0)),
        ops.convert_to_tensor(5),
    )
    assert int(traced_bound) == 10


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_values_and_gradients(reverse):
    generator = np.random.default_rng(0)
    xs = generator.standard_normal((5, 2, 3))
    w = generator.standard_normal((3, 3))
    b = generator.standard_normal(3)

    def function(w, b, h, xs):
        def step(h, x):
            h = ops.tanh(ops.matmul(h, w) + b + x)
            return h, ops.sum(h * x, axis=-1)

        return ops.scan(step, h, xs, reverse=reverse)

    def loss(*args):
        final, ys = function(*args)
        return ops.sum(final * final) + ops.sum(ops.sin(ys))

    def gradients(*args):
        with toolkit.GradientTape() as tape:
            tape.watch(args)
            y = loss(*args)
        return y, tape.gradient(y, list(args))

    args = [number(a) for a in (w, b, generator.standard_normal((2, 3)), xs)]
    eager_and_traced(function, *args)
    eager_and_traced(gradients, *args)


@pytest.mark.parametrize("change", [lambda x: x, ops.exp, ops.transpose])
def test_gradients_of_weights_with_transposed_operands(change):
    generator = np.random.default_rng(0)
    w, xs = (number(generator.standard_normal(n)) for n in ((3, 3), (5, 3, 3)))

    def loss(w):
        def step(total, x):
            return total + ops.sin(ops.matmul(ops.transpose(change(x)), w)), None

        return ops.sum(ops.scan(step, ops.zeros((3, 3), "float64"), xs)[0])

    def gradient(w):
        with toolkit.GradientTape() as tape:
            tape.watch(w)
            y = loss(w)
        return tape.gradient(y, w)

    actual = eager_and_traced(gradient, w)
    transposed = [np.swapaxes(change(x).numpy(), 0, 1) for x in xs]
    expected = sum(a.T @ np.cos(a @ w.numpy()) for a in transposed)
    assert_close(actual, expected)


@pytest.mark.parametrize("axes", [(0, 2, 1), (0, 1, 2), (2, 1, 0)])
def test_gradients_of_stacks_of_matrices_that_multiply(axes):
    generator = np.random.default_rng(0)
    w, xs, scale = (
        generator.standard_normal(n) for n in ((3, 3, 3), (5, 3, 3), (3, 3, 3))
    )

    def loss(w, xs):
        def step(total, x):
            y = ops.transpose(ops.matmul(w, x), axes)
            return total + ops.sum(ops.sin(y) * scale), None

        return ops.scan(step, number(0.0), xs)[0]

    def gradient(w, xs):
        with toolkit.GradientTape() as tape:
            tape.watch(w)
            y = loss(w, xs)
        return tape.gradient(y, w)

    actual = eager_and_traced(gradient, number(w), number(xs))
    cotangent = np.transpose(scale, np.argsort(axes))
    expected = sum(np.cos(w @ x) * cotangent @ x.T for x in xs)
    assert_close(actual, expected)


def test_scan_over_numbers_is_refused():
    with pytest.raises(ArgumentError, match="xs of one leading extent, to scan over"):
        ops.scan(lambda c, x: (c + x, None), number(0.0), number(1.0))


def test_scan_second_order():
    def function(x):
        def step(c, t):
            return ops.sin(c * x) + t, c

        final, ys = ops.scan(step, x * 1.0, number([1.0, 2.0, 3.0]))
        return final + ops.sum(ys)

    derivative = value_and_gradient(function)
    second = value_and_gradient(lambda x: derivative(x)[1])
    y, g = eager_and_traced(second, number(0.7))
    eps = 1e-6
    slopes = [float(derivative(number(0.7 + d))[1]) for d in (eps, -eps)]
    np.testing.assert_allclose(float(g), (slopes[0] - slopes[1]) / (2 * eps), rtol=1e-6)


def test_scan_without_xs_and_without_ys():
    def function(x):
        return ops.scan(lambda c, _: (c * 2.0, None), x, length=4)

    final, ys = eager_and_traced(function, number(1.0))
    assert (float(final), ys) == (16.0, None)
    with pytest.raises(ArgumentError, match="scan: expected `length`"):
        function_without = ops.scan(lambda c, _: (c, None), number(1.0))
        assert function_without


@pytest.mark.parametrize(
    "unroll, repeated", [(True, 1), (False, 0), (1, 0), (2, 0), (3, 1), (4, 1)]
)
def test_scan_is_a_loop_unless_all_steps_are_unrolled(unroll, repeated):
    def function(xs):
        return ops.scan(lambda c, x: (c + x, c), 0.0, xs, unroll=unroll)[0]

    names = op_names(trace_of(function, (3,)))
    assert names.count("scan") == 1 - repeated


def test_scan_of_length_zero():
    def function(xs):
        return ops.scan(lambda c, x: (c + x, c * x), number(1.5), xs)

    final, ys = eager_and_traced(function, ops.zeros((0,), "float64"))
    assert (float(final), ys.shape) == (1.5, (0,))


def test_scan_assigns_variables_step_by_step():
    v = toolkit.Variable(1.0)

    def function(xs):
        def step(c, x):
            v.assign(v * x)
            return c + v, v * 1.0

        return ops.scan(step, 0.0, xs)

    total, ys = toolkit.function(function)(ops.convert_to_tensor([2.0, 3.0]))
    assert (float(total), ys.tolist(), float(v)) == (8.0, [2.0, 6.0], 6.0)


def test_weights_of_a_scan_are_packed_in_each_run():
    """Check weights that are equal in all steps and change in the next run."""
    random = np.random.default_rng(0)
    xs = random.standard_normal((6, 64, 128)).astype("float32")
    w = toolkit.Variable(random.standard_normal((128, 128)).astype("float32") / 16)

    @toolkit.function
    def step(xs):
        def scan_step(h, x):
            return ops.tanh(ops.matmul(h, w) + x), None

        y, _ = ops.scan(scan_step, xs[0], xs)
        w.assign(w * -0.5)
        return y

    inputs = ops.convert_to_tensor(xs)
    for _ in range(3):
        weight, expected = np.asarray(w), xs[0]
        for x in xs:
            expected = np.tanh(expected @ weight + x)
        np.testing.assert_allclose(step(inputs), expected, rtol=0, atol=1e-4)


def test_weights_of_a_scan_are_read_by_variables():
    w = toolkit.Variable(np.eye(2))

    def loss(x):
        with toolkit.GradientTape() as tape:
            y, _ = ops.scan(lambda h, _: (ops.matmul(h, w), None), x, length=3)
            y = ops.sum(y)
        return tape.gradient(y, w)

    eager_and_traced(loss, number([[1.0, 2.0]]))


def test_map_and_vectorized_map():
    xs = number([[1.0, 2.0], [3.0, 4.0]])
    assert eager_and_traced(
        lambda x: ops.map(lambda row: ops.sum(row), x), xs
    ).tolist() == [3, 7]
    result = eager_and_traced(
        lambda x: ops.vectorized_map(lambda row: row * 2.0, x), xs
    )
    assert result.tolist() == [[2, 4], [6, 8]]


def test_gradients_of_loops_keep_no_variable_alive():
    def train():
        v = toolkit.Variable(np.eye(2, dtype="float32"))

        @toolkit.function
        def gradient(x):
            with toolkit.GradientTape() as tape:
                y = ops.scan(lambda c, _: (c @ v, None), x, length=3)[0]
            return tape.gradient(y, v)

        gradient(ops.ones((2, 2)))
        return weakref.ref(v)

    reference = train()
    gc.collect()
    assert reference() is None


@pytest.mark.parametrize("limit", [None, 5])
def test_while_loop_refuses_a_traced_condition_that_assigns(limit):
    v = toolkit.Variable(0.0, name="counter")

    @toolkit.function
    def loop(x):
        with toolkit.GradientTape() as tape:
            tape.watch(x)
            return ops.while_loop(
                lambda x: v.assign_add(x) < 5.0, lambda x: x, x, limit
            )

    with pytest.raises(ArgumentError, match="while_loop.*'counter'"):
        loop(ops.ones(()))


def test_gradient_of_a_bounded_loop_traced_without_a_tape():
    def power(x):
        step = lambda i, y: (i + 1, y * x)  # noqa: E731
        return ops.while_loop(lambda i, y: i < 3, step, (0, x), maximum_iterations=5)[1]

    def repeated(x):
        return ops.scan(lambda c, _: (power(c), None), x, length=2)[0]

    x = number(1.1)
    for function, degree in ((toolkit.function(power), 4), (repeated, 16)):
        y, g = value_and_gradient(function)(x)
        assert float(y) == pytest.approx(1.1**degree)
        assert float(g) == pytest.approx(degree * 1.1 ** (degree - 1))
    _, g = toolkit.function(value_and_gradient(repeated))(x)
    assert float(g) == pytest.approx(16 * 1.1**15)


def test_gradients_of_tensors_that_bodies_close_over():
    x = ops.convert_to_tensor([1.0, 2.0])

    def gradient(p):
        with toolkit.GradientTape() as tape:
            tape.watch(x)
            y = ops.cond(
                p > 0,
                lambda: ops.scan(lambda c, _: (c * x, None), p * x, length=3)[0],
                lambda: x,
            )
        return tape.gradient(y, x)

    assert eager_and_traced(gradient, ops.convert_to_tensor(1.0)).tolist() == [
        4.0,
        32.0,
    ]
    assert eager_and_traced(gradient, ops.convert_to_tensor(-1.0)).tolist() == [
        1.0,
        1.0,
    ]


def test_unselected_branches_may_fail():
    values, index = ops.ones((2,)), ops.convert_to_tensor(5)

    @toolkit.function
    def select(x):
        return ops.cond(x > 0, lambda: x, lambda: ops.take(values, index))

    assert float(select(ops.convert_to_tensor(1.0))) == 1.0
    with pytest.raises(IndexError):
        select(ops.convert_to_tensor(-1.0))


@pytest.mark.parametrize("limit", [0, 3, 100])
def test_bound_of_a_loop_may_be_computed_in_the_trace(limit):
    @toolkit.function
    def run(x, limit):
        return ops.while_loop(
            lambda i, x: i < 5,
            lambda i, x: (i + 1, x * 2.0),
            (0, x),
            maximum_iterations=limit + 0,
        )

    count, x = run(ops.ones((2,)), ops.convert_to_tensor(limit))
    steps = min(limit, 5)
    assert int(count) == steps
    np.testing.assert_array_equal(x, np.full(2, 2.0**steps))


def test_bound_of_an_eager_loop_may_be_a_tensor():
    result = ops.while_loop(
        lambda i: i < 5, lambda i: i + 1, 0, maximum_iterations=ops.convert_to_tensor(3)
    )
    assert int(result) == 3
