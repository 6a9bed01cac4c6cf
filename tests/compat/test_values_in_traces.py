"""Tests of functions that need values of tensors: gradients, and traced callers."""

import re

import numpy as np
import pytest

import toolkit.compat.tensorflow as tf
from toolkit.errors import ArgumentError, DTypeError, TraceError


def test_python_function_has_the_gradient_of_its_operations():
    x, v = tf.constant(2.0), tf.Variable(3.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.py_function(lambda a, b: a**2 * b, [x, v], tf.float32)
    assert [float(g) for g in tape.gradient(y, [x, v])] == [12.0, 4.0]


def test_a_function_of_arrays_has_no_gradient():
    x = tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.numpy_function(lambda a: a**2, [x], tf.float32)
    assert tape.gradient(y, x) is None


def test_python_functions_return_the_declared_dtypes():
    x = tf.constant(2.0)
    assert tf.py_function(lambda v: 3, [x], tf.float32).dtype == "float32"
    assert tf.py_function(lambda v: None, [x], []) == []
    pair = tf.py_function(lambda v: (v, 1), [x], [tf.float32, tf.int64])
    assert [y.dtype.name for y in pair] == ["float32", "int64"]
    text = tf.py_function(lambda s: s.numpy().decode() + "b", ["a"], tf.string)
    assert text.numpy() == b"ab"
    with pytest.raises(DTypeError, match="int32; received float32"):
        tf.py_function(lambda v: v * 2.0, [x], tf.int32)
    with pytest.raises(ArgumentError, match="expected 2 results"):
        tf.py_function(lambda v: v, [x], [tf.float32, tf.float32])


def test_traced_print_runs_in_each_call(capsys):
    @tf.function
    def doubled(x):
        for i in tf.range(tf.cast(x, tf.int32)):
            tf.print("step", i)
        return x * 2

    with pytest.warns(UserWarning, match="doubled calls print.*runs eagerly"):
        assert float(doubled(tf.constant(2.0))) == 4
    assert float(doubled(tf.constant(1.0))) == 2
    assert capsys.readouterr().err == "step 0\nstep 1\nstep 0\n"


def test_known_values_are_printed_in_each_call(capsys):
    @tf.function
    def rows(x):
        tf.print(tf.shape(x)[0], "rows")
        return x

    with pytest.warns(UserWarning, match="rows calls print"):
        rows(tf.zeros((3, 2)))
    rows(tf.zeros((3, 2)))
    assert capsys.readouterr().err == "3 rows\n" * 2


CHECKS = {
    "assert_positive": lambda x: tf.debugging.assert_positive(x),
    "assert_near": lambda x: tf.debugging.assert_near(x, 4.0),
    "Assert": lambda x: tf.Assert(x > 0.0, [x]),
    "check_numerics": lambda x: tf.debugging.check_numerics(tf.sqrt(x), "root"),
}


@pytest.mark.parametrize("check", CHECKS)
def test_values_are_checked_in_each_call(check):
    @tf.function
    def root(x):
        CHECKS[check](x)
        return tf.sqrt(x)

    with pytest.warns(UserWarning, match="root calls a check"):
        assert float(root(tf.constant(4.0))) == 2
    with pytest.raises(ArgumentError):
        root(tf.constant(-4.0))


def test_a_concrete_function_checks_values_too():
    @tf.function(input_signature=[tf.TensorSpec((), tf.float32)])
    def root(x):
        tf.debugging.assert_positive(x)
        return tf.sqrt(x)

    with pytest.warns(UserWarning, match="runs eagerly"):
        concrete = root.get_concrete_function()
        assert float(concrete(tf.constant(4.0))) == 2
    with pytest.raises(ArgumentError):
        concrete(tf.constant(-4.0))


def test_python_functions_are_called_in_each_call_of_a_function():
    @tf.function
    def derivative(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.py_function(lambda v: v**3, [x], tf.float32)
        sine = tf.numpy_function(np.sin, [x], tf.float32)
        return tape.gradient(y, x), sine

    with pytest.warns(UserWarning, match="py_function"):
        dy, sine = derivative(tf.constant(2.0))
    assert float(dy) == 12 and np.allclose(sine, np.sin(2))


def test_fit_step_error_names_a_remedy():
    class Checked(tf.keras.Model):
        def call(self, x):
            tf.debugging.assert_positive(x)
            return x * 1.0

    model = Checked()
    model.compile("sgd", "mse")
    with pytest.raises(TraceError, match=re.escape("run_eagerly=True")):
        model.evaluate(np.ones((2, 1)), np.ones((2, 1)), verbose=0)
    model.compile("sgd", "mse", run_eagerly=True)
    assert model.evaluate(np.ones((2, 1)), np.ones((2, 1)), verbose=0) == 0
