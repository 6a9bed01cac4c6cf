"""Choices and loops of unknown length in generated code, against eager operations."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import toolkit
from tests.helpers import assert_close
from toolkit import ops
from toolkit.errors import OutOfRangeError

X = np.random.default_rng(0).normal(size=(6, 5)).astype("float32")


def chosen(n, x):
    return ops.cond(n > 2, lambda: (ops.exp(x), n), lambda: (x[::-1] - 1.0, n * n))


def one_of_large_and_small(n, x):
    """Branches whose programs need other memory: products, and nothing."""
    square = ops.matmul(x, ops.transpose(x))
    return ops.cond(n > 2, lambda: ops.tanh(square @ square) @ x, lambda: x)


def choice_in_a_choice(n, x):
    def inner():
        return ops.cond(n > 4, lambda: x * 2.0, lambda: ops.sort(x, axis=1))

    return ops.cond(n > 1, inner, lambda: ops.zeros_like(x))


def choice_of_what_has_no_code(n, x):
    return ops.cond(n > 2, lambda: ops.svd(x, full_matrices=False)[0], lambda: x)


def grown(n, x):
    return ops.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y * 1.5 + x), (0, x))


def until_large(n, x):
    """The condition reads results of iterations, and a constant."""

    def goes_on(y, z):
        return ops.sum(y) < ops.cast(n, "float32") * 10

    return ops.while_loop(goes_on, lambda y, z: (ops.abs(y) + z, z), (x, ops.square(x)))


def at_most(n, x):
    return ops.while_loop(
        lambda i: i < n, lambda i: (i + 1,), (ops.zeros((), "int32"),), 3
    )


def of_a_view(n, x):
    transposed = ops.transpose(x)
    return ops.while_loop(
        lambda i, y: i < n,
        lambda i, y: (i + 1, y + transposed[1:4]),
        (0, transposed[2:5]),
    )


def loop_in_a_loop(n, x):
    def body(i, y):
        _, y = ops.while_loop(lambda k, y: k < i, lambda k, y: (k + 1, y + 1.0), (0, y))
        return i + 1, y * 0.5

    return ops.while_loop(lambda i, y: i < n, body, (0, x))


def choice_in_a_scan(n, x):
    def step(state, row):
        y = ops.cond(ops.sum(row) > 0, lambda: state + row, lambda: state * 0.5)
        return y, ops.cond(n > 2, lambda: ops.exp(y), lambda: y)

    return ops.scan(step, x[0], x)


def loop_in_a_choice(n, x):
    return ops.cond(n > 2, lambda: grown(n, x)[1], lambda: x)


CASES = [
    *(chosen, one_of_large_and_small, choice_in_a_choice, grown, until_large, at_most),
    *(
        choice_of_what_has_no_code,
        of_a_view,
        loop_in_a_loop,
        choice_in_a_scan,
        loop_in_a_choice,
    ),
]
IN_PYTHON = {choice_of_what_has_no_code}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize("threads", [1, 3])
def test_jumps(case, threads):
    function = toolkit.function(case)
    toolkit.config.set_num_threads(threads)
    try:
        for n in (3, 0, 1, 5, 2, 8):
            n = np.int32(n)
            expected = toolkit.tree.flatten(
                case(ops.convert_to_tensor(n), ops.array(X))
            )
            actual = toolkit.tree.flatten(function(n, X))
            for a, b in zip(actual, expected, strict=True):
                assert_close(a, b)
    finally:
        toolkit.config.set_num_threads(None)
    program = function.inspect(np.int32(1), X).program
    assert (program.code is None) == (case in IN_PYTHON)


def test_gradients_use_the_selected_branch():
    @toolkit.function
    def gradient(n, x):
        with toolkit.GradientTape() as tape:
            tape.watch(x)
            y = ops.cond(n > 2, lambda: ops.square(x), lambda: 3.0 * x)
        return tape.gradient(y, x)

    assert_close(gradient(np.int32(5), X), 2 * X)
    assert_close(gradient(np.int32(1), X), np.full_like(X, 3.0))
    assert gradient.inspect(np.int32(1), X).program.code is not None


def test_large_carried_values_are_copied_by_several_tasks():
    x = np.random.default_rng(0).normal(size=300_001).astype("float32")
    function = toolkit.function(
        lambda n, x: ops.while_loop(
            lambda i, y: i < n, lambda i, y: (i + 1, y + 1.0), (0, x)
        )[1]
    )
    for n in range(4):
        expected = x
        for _ in range(n):
            expected = expected + np.float32(1)
        np.testing.assert_array_equal(function(np.int32(n), x).numpy(), expected)


def test_only_the_selected_branch_checks_indices():
    @toolkit.function
    def function(n, i, x):
        return ops.cond(n > 2, lambda: ops.take(x, i, axis=0), lambda: x[:2])

    i = np.array([0, 9], "int32")
    assert_close(function(np.int32(1), i, X), X[:2])
    with pytest.raises(OutOfRangeError, match="9"):
        function(np.int32(3), i, X)
    assert_close(function(np.int32(1), i, X), X[:2])
    assert function.inspect(np.int32(1), i, X).program.code is not None


def test_index_out_of_range_ends_the_loop():
    @toolkit.function
    def function(n, x):
        def body(i, y):
            return i + 1, y + ops.take(x, i, axis=0)

        return ops.while_loop(lambda i, y: i < n, body, (0, ops.zeros((5,))))[1]

    assert_close(function(np.int32(6), X), X.sum(0), factor=10)
    with pytest.raises(OutOfRangeError, match="6"):
        function(np.int32(100), X)
    assert function.inspect(np.int32(1), X).program.code is not None


def test_branch_in_a_step_updates_variables():
    state = toolkit.Variable(np.ones(5, "float32"))

    @toolkit.function
    def step(n, x):
        state.assign(ops.cond(n > 2, lambda: state + x[0], lambda: state - x[1]))

    step(np.int32(3), X)
    assert_close(state, 1 + X[0])
    step(np.int32(0), X)
    assert_close(state, 1 + X[0] - X[1])
    assert step.inspect(np.int32(1), X).program.code is not None
