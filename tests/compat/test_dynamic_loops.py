"""Tests of loops whose variables change their shapes."""

import numpy as np
import pytest

import toolkit
import toolkit.compat.tensorflow as tf
from toolkit.errors import ArgumentError, DTypeError, ShapeError, TraceError

SHAPES = [tf.TensorShape([]), tf.TensorShape([None, 2])]


def double(steps, shapes=SHAPES):
    """Return rows whose number doubles at each step."""
    return tf.while_loop(
        lambda i, x: i < steps,
        lambda i, x: (i + 1, tf.concat([x, x], 0)),
        [tf.constant(0), tf.ones((1, 2))],
        shape_invariants=shapes,
    )[1]


def test_shapes_may_change_outside_of_traces():
    assert double(3).shape == double(3, None).shape == (8, 2)


def test_loops_of_known_length_are_unrolled_in_a_trace():
    traced = tf.function(lambda: double(3))
    assert traced().shape == (8, 2) and traced.experimental_get_tracing_count() == 1
    assert toolkit.function(lambda: double(2))().shape == (4, 2)


def test_loops_of_unknown_length_run_eagerly():
    traced = tf.function(double)
    with pytest.warns(UserWarning, match="tf.while_loop with changing shapes"):
        assert traced(tf.constant(3)).shape == (8, 2)
    assert traced(tf.constant(4)).shape == (16, 2)
    with pytest.raises(TraceError, match="tf.while_loop with changing shapes"):
        toolkit.function(double)(tf.constant(3))


def test_constant_shapes_make_one_loop():
    @tf.function
    def traced(n):
        return tf.while_loop(
            lambda i, x: i < n, lambda i, x: (i + 1, x * 2), [0, tf.ones(2)], SHAPES
        )

    assert traced(tf.constant(3))[1].numpy().tolist() == [8, 8]


def test_gradients_flow_through_growing_variables():
    x = tf.Variable(2.0)
    with tf.GradientTape() as tape:
        y = tf.while_loop(
            lambda y: tf.shape(y)[0] < 8,
            lambda y: tf.concat([y, y * x], 0),
            tf.reshape(x, [1]),
            shape_invariants=tf.TensorShape([None]),
        )
        total = tf.reduce_sum(y)
    assert float(tape.gradient(total, x)) == 81.0


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (lambda i: (i, i), ArgumentError),
        (lambda i: tf.cast(i, tf.float32), DTypeError),
    ],
)
def test_bodies_keep_structures_and_dtypes(body, error):
    with pytest.raises(error, match="while_loop: the body must keep"):
        tf.while_loop(lambda i: i < 3, body, [tf.constant(0)])


def test_shapes_of_traced_loops_are_fixed_without_invariants():
    with pytest.raises(ShapeError, match="while_loop"):
        tf.function(lambda n: double(n, None))(tf.constant(3))


def test_rewritten_loops_may_change_shapes():
    @tf.function
    def grow(n):
        x = tf.ones(1)
        for _ in tf.range(n):
            tf.autograph.experimental.set_loop_options(
                shape_invariants=[(x, tf.TensorShape([None]))]
            )
            x = tf.concat([x, x], 0)
        return x

    with pytest.warns(UserWarning, match="a `for` loop that changes a shape"):
        assert grow(tf.constant(3)).shape == (8,)


def test_rewritten_loops_with_invariants_stay_compiled_if_they_can():
    @tf.function
    def power(n):
        x = tf.ones(2)
        while n > 0:
            tf.autograph.experimental.set_loop_options(
                shape_invariants=[(x, tf.TensorShape([None]))]
            )
            x, n = x * 2, n - 1
        return x

    np.testing.assert_array_equal(power(tf.constant(3)), [8, 8])
