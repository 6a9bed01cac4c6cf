"""Test that a `tf.function` stores the variables that it creates, or is refused."""

import numpy as np
import pytest

import toolkit.compat.tensorflow as tf
from tests.functions.test_created_variables import (
    CREATORS,
    check_creation_is_refused,
    check_stored_variables_are_allowed,
)
from toolkit.errors import TraceError


@pytest.mark.parametrize("creates", CREATORS)
def test_variable_creation_in_each_call_is_refused(creates):
    check_creation_is_refused(creates, tf.function)


def test_stored_variables_of_the_first_call_are_allowed():
    check_stored_variables_are_allowed(tf.function)


@pytest.mark.parametrize("first", [tf.ones, tf.zeros, lambda s: tf.fill(s, 2.0) + 1.0])
def test_initial_value_may_be_a_constant_of_the_trace(first):
    class Scale(tf.Module):
        w = None

        @tf.function
        def __call__(self, x):
            if self.w is None:
                self.w = tf.Variable(first((x.shape[-1], 2)))
            self.w.assign_add(tf.ones_like(self.w))
            return x @ self.w

    scale, x = Scale(), tf.ones((3, 4))
    start = first((4, 2)).numpy()
    for count in (1, 2):
        np.testing.assert_array_equal(scale(x), np.ones((3, 4)) @ (start + count))
    assert len(scale.trainable_variables) == 1


def test_initial_value_that_depends_on_arguments_is_refused():
    cached = []

    @tf.function
    def scale(x):
        cached.append(tf.Variable(x * 2.0))
        return cached[0] * x

    with pytest.raises(TraceError, match="initial value must not depend"):
        scale(tf.constant(1.0))
