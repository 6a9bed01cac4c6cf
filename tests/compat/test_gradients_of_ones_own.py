"""Tests of `tf.custom_gradient` for functions that read Variables."""

import pytest

import toolkit.compat.tensorflow as tf
from toolkit.errors import GradientError


def derivatives(f, x, variables):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    return [None if g is None else float(g) for g in tape.gradient(y, [x, *variables])]


def with_a_variable():
    v, other = tf.Variable(3.0), tf.Variable(5.0, trainable=False)
    calls = []

    @tf.custom_gradient
    def scaled(x):
        def grad(upstream, variables=None):
            calls.append(variables)
            return 2.0 * upstream, [10.0 * upstream for _ in variables]

        return x * v * other, grad

    return scaled, v, calls


def test_gradient_function_receives_variables():
    scaled, v, calls = with_a_variable()
    assert float(scaled(tf.constant(2.0))) == 30.0
    assert derivatives(scaled, tf.constant(2.0), [v]) == [2.0, 10.0]
    assert len(calls) == 1 and calls[0][0] is v and len(calls[0]) == 1


def test_traced_gradient_function_receives_variables():
    scaled, v, _ = with_a_variable()
    step = tf.function(lambda x: 2.0 * scaled(x))
    assert derivatives(step, tf.constant(2.0), [v]) == [4.0, 20.0]

    @tf.function
    def traced_call(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = scaled(x)
        return tape.gradient(y, [x, v])

    assert [float(g) for g in traced_call(tf.constant(2.0))] == [2.0, 10.0]


def test_a_function_without_variables_is_called_once():
    calls = []

    @tf.custom_gradient
    def doubled(x):
        calls.append(x)
        return 2.0 * x, lambda upstream: 7.0 * upstream

    assert derivatives(doubled, tf.constant(1.0), []) == [7.0] and len(calls) == 1
    v = tf.Variable(1.0)
    with tf.GradientTape() as tape:
        y = doubled(v)
    assert float(tape.gradient(y, v)) == 7.0


def test_variables_must_have_a_gradient():
    v = tf.Variable(3.0)

    @tf.custom_gradient
    def scaled(x):
        return x * v, lambda upstream: upstream

    with pytest.raises(GradientError, match="keyword argument `variables`"):
        scaled(tf.constant(1.0))
