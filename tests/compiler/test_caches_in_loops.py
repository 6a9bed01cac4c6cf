"""Tests of carried values that a loop updates in place, without copies."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import toolkit
from tests.helpers import assert_close
from toolkit import ops
from toolkit.backends.numpy.jit.loop import Loop
from toolkit.core.tensor import bind
from toolkit.errors import OutOfRangeError
from toolkit.ops.index import scatter_p

X = np.random.default_rng(0).normal(size=(6, 4)).astype("float32")


def update_row(x, i, row):
    return ops.slice_update(x, (i, 0), ops.reshape(row, (1, 4)))


def looped(step):
    """Return a loop of n iterations of (i, x, state) to new (x, state)."""

    def function(n, x):
        def body(i, x, state):
            return i + 1, *step(i, x, state)

        start = (0, x, ops.zeros((4,)))
        return ops.while_loop(lambda i, x, state: i < n, body, start)[1:]

    return function


def scanned(step):
    """Return the loop as a scan of five iterations; n is the state's first value."""

    def function(n, x):
        start = x, ops.zeros((4,)) + ops.cast(n, "float32")
        return ops.scan(lambda c, i: (step(i, *c), None), start, ops.arange(5))[0]

    return function


def add_rows(x, i, state, rows):
    new = bind(scatter_p, x, ops.reshape(i, (1,)), rows, axis=0, mode="add")
    return new, state


# The body of an iteration, and whether it updates x in place.
STEPS = {
    "written, then read": (
        lambda i, x, s: ((y := update_row(x, i, s + 1.0)), ops.sum(y, 0)),
        True,
    ),
    "read, then written": (
        lambda i, x, s: (update_row(x, i, s), s + ops.sum(x, 0)),
        True,
    ),
    "the old one beside": (
        lambda i, x, s: ((y := update_row(x, i, s)), ops.sum(ops.exp(x) * y, 0)),
        False,
    ),
    "a row from another": (
        lambda i, x, s: (
            update_row(x, i, ops.slice(x, (i // 2, 0), (1, 4)) * 2.0),
            s + 1.0,
        ),
        True,
    ),
    "a view of itself": (lambda i, x, s: (update_row(x, i, x[3]), s + 1.0), False),
    "twice": (
        lambda i, x, s: (update_row(update_row(x, i, s + 1.0), 5 - i, s), s - 1.0),
        False,
    ),
    "rows that were read": (
        lambda i, x, s: add_rows(x, i, s + 1.0, ops.take(x, i[None], axis=0)),
        True,
    ),
    "a row of anywhere": (lambda i, x, s: add_rows(x, i, s, s[None] + 1.0), False),
    "all of it": (lambda i, x, s: (x * 2.0 + s, s + 1.0), False),
    "in a choice": (
        lambda i, x, s: (
            ops.cond(i > 1, lambda: update_row(x, i, s), lambda: x * 1.0),
            s + 1.0,
        ),
        False,
    ),
}


def loop_of(function, *arguments):
    program = function.inspect(*arguments).program
    loops = [call for _, call in program.code.calls if isinstance(call, Loop)]
    return loops[-1]


def changes_in_place(loop):
    """Return whether iterations read and write a value at one address."""
    bases = [move.base for move in loop.moves]
    return any(base[0] == "out" and bases.count(base) == 2 for base in bases)


@pytest.mark.parametrize("make", [looped, scanned])
@pytest.mark.parametrize("name", STEPS)
def test_loops(name, make):
    step, in_place = STEPS[name]
    eager, compiled = make(step), toolkit.function(make(step))
    for n in (0, 1, 4, 5):
        n = np.int32(n)
        expected = eager(ops.convert_to_tensor(n), ops.convert_to_tensor(X))
        for a, b in zip(compiled(n, X), expected, strict=True):
            assert_close(a, b)
    assert changes_in_place(loop_of(compiled, np.int32(1), X)) == in_place


def test_a_loop_that_fails_changes_no_variable():
    cache = toolkit.Variable(X)

    @toolkit.function
    def run(n, table):
        def body(i):
            cache.assign(update_row(cache, i, ops.take(table, i, axis=0)))
            return (i + 1,)

        ops.while_loop(lambda i: i < n, body, (ops.zeros((), "int32"),))

    table = np.ones((3, 4), "float32")
    run(np.int32(2), table)
    expected = np.concatenate([table[:2], X[2:]])
    np.testing.assert_array_equal(cache, expected)
    with pytest.raises(OutOfRangeError, match="3"):
        run(np.int32(5), table)
    np.testing.assert_array_equal(cache, expected)
    assert changes_in_place(loop_of(run, np.int32(1), table))


def test_a_gradient_through_a_cache():
    def loss(x):
        def body(i, y):
            return i + 1, update_row(y, i, ops.tanh(ops.sum(y, 0)))

        return ops.sum(ops.while_loop(lambda i, y: i < 4, body, (0, x), 4)[1] ** 2)

    def gradient(x):
        with toolkit.GradientTape() as tape:
            tape.watch(x)
            y = loss(x)
        return tape.gradient(y, x)

    expected = gradient(ops.convert_to_tensor(X))
    assert_close(toolkit.function(gradient)(X), expected, factor=10)
