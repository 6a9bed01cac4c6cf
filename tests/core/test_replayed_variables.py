"""Tests of repeated eager operations on Variables."""

import numpy as np
import pytest

import toolkit as tk
from tests.helpers import count_functions
from toolkit import ops
from toolkit.core import operation_replays as replays

# The functions that read two Variables.
NUM_READING = 10
RNG = np.random.default_rng(0)
X = ops.convert_to_tensor(RNG.normal(size=(3, 4)).astype("float32"))


def variable(*shape):
    return tk.Variable(RNG.normal(size=shape).astype("float32"))


SQUARE, ROW = variable(4, 4), variable(4)
CALLS = {
    "matmul": (lambda v: ops.matmul(X, v), SQUARE),
    "add": (lambda v: X + v, ROW),
    "reflected": (lambda v: 2.0 * v, ROW),
    "both": (lambda v: v * v, ROW),
    "relu": (lambda v: ops.relu(v), SQUARE),
    "sum": (lambda v: ops.sum(v, axis=0), SQUARE),
    "item": (lambda v: v[1:], ROW),
}


@pytest.mark.parametrize("name", CALLS)
def test_operations_on_variables_are_replayed(name):
    replays.clear()
    call, v = CALLS[name]
    first = call(v)
    for _ in range(3):
        y = call(v)
    assert np.asarray(y).tobytes() == np.asarray(first).tobytes()
    tensor = ops.convert_to_tensor(v)
    for _ in range(3):
        call(tensor)
    num_functions = count_functions(lambda: call(tensor))
    assert count_functions(lambda: call(v)) <= num_functions + NUM_READING
    expected = call(ops.convert_to_tensor(v.numpy() + 1))
    v.assign(v.numpy() + 1)
    np.testing.assert_array_equal(call(v), expected)


def test_gradients_of_variables():
    w, b = variable(4, 2), variable(2)
    for _ in range(5):
        with tk.GradientTape() as tape:
            y = ops.sum(ops.matmul(X, w) * b)
        dw, db = tape.gradient(y, [w, b])
        x = np.asarray(X)
        np.testing.assert_allclose(db, (x @ w.numpy()).sum(0), rtol=1e-5)
        np.testing.assert_allclose(dw, np.outer(x.sum(0), b), rtol=1e-5)
        w.assign(w - 0.1 * dw)


def test_variables_are_read_in_the_compute_dtype():
    class Scale(tk.layers.Layer):
        def build(self, shape):
            self.factor = self.add_weight(shape[1:], initializer="ones")

        def call(self, x):
            return x * self.factor

    layer = Scale(dtype="mixed_bfloat16")
    for _ in range(4):
        assert layer(X).dtype == "bfloat16"
        assert (X * layer.factor).dtype == "float32"


def test_stateless_scopes_replace_the_value():
    v, other = variable(4), ops.ones(4)
    for _ in range(4):
        with tk.StatelessScope(state_mapping=[(v, other)]):
            np.testing.assert_array_equal(v * 2.0, [2, 2, 2, 2])
        np.testing.assert_array_equal(v * 2.0, v.numpy() * 2)


def test_results_are_not_overwritten_by_assignments():
    v = variable(4)
    expected = v.numpy()
    views = [v[:] for _ in range(4)] + [ops.reshape(v, (2, 2)) for _ in range(4)]
    for _ in range(3):
        v.assign_add(np.ones(4, "float32"))
    for y in views:
        np.testing.assert_array_equal(np.asarray(y).reshape(4), expected)
