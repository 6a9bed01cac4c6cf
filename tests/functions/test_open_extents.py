"""Traces with an input_signature with open extents."""

import numpy as np
import pytest

import toolkit
import toolkit.compat.tensorflow as tf
from toolkit import ops
from toolkit.core.extents import (
    OpenExtents,
    UnknownExtentError,
    count_steps,
    slice_bounds,
)
from toolkit.errors import ShapeError

ROWS = [(n, 3) for n in (2, 1, 5, 3, 7)]
MATRICES = [(n, n + 1) for n in (2, 6, 3, 5)]
SEQUENCES = [(n, n + 4, 3) for n in (2, 1, 5, 3)]
PICTURES = [(n, n + 4, n + 6, 3) for n in (2, 1, 4, 3)]


def traced(body, shape, decorate=tf.function):
    """Return a traced function of a tensor of this shape, and its list of runs."""
    runs = []

    @decorate(input_signature=[tf.TensorSpec(shape, tf.float32)])
    def function(x):
        runs.append(tuple(x.shape))
        return body(x)

    return function, runs


def check(body, shape, shapes, most_runs=1):
    """Compare the traced function with the body, and count the runs of the body."""
    function, runs = traced(body, shape)
    generator = np.random.default_rng(0)
    for extents in shapes:
        x = tf.constant(generator.random(extents, np.float32))
        results, expected = tf.nest.flatten(function(x)), tf.nest.flatten(body(x))
        for y, z in zip(results, expected, strict=True):
            assert y.shape == z.shape and y.dtype == z.dtype
            np.testing.assert_allclose(y, z, 1e-5, 1e-5)
    assert len(runs) <= most_runs


def loop_over_range(x):
    total = tf.zeros((3,))
    for i in tf.range(tf.shape(x)[0]):
        total = total + x[i]
    return total


def loop_over_rows(x):
    total = tf.zeros((3,))
    for row in x:
        total = total + row
    return total


def gradient(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_mean(tf.nn.softmax(x)[:, 0] ** 2)
    return tape.gradient(y, x)


@pytest.mark.parametrize(
    "body",
    [
        lambda x: tf.reduce_sum(x * 2.0, axis=-1),
        lambda x: tf.reduce_mean(x),
        lambda x: tf.math.reduce_variance(x, 0),
        lambda x: x @ tf.ones((3, 4)),
        lambda x: x @ tf.transpose(x),
        lambda x: tf.einsum("ij,kj->ik", x, x),
        lambda x: tf.nn.softmax(x),
        lambda x: tf.cumsum(x, 0),
        lambda x: tf.sort(x, 0),
        lambda x: tf.argmax(x, 0),
        lambda x: tf.reshape(x, [-1]),
        lambda x: tf.reshape(x, [tf.shape(x)[0], 3, 1]),
        lambda x: tf.reshape(x, tf.stack([tf.shape(x)[0], 1, 3])),
        lambda x: tf.reshape(x, tf.concat([tf.shape(x)[:1], [3, 1]], 0)),
        lambda x: tf.shape(x),
        lambda x: tf.reduce_sum(x) / tf.cast(tf.size(x), tf.float32),
        lambda x: x + tf.ones(tf.shape(x)),
        lambda x: x + tf.zeros_like(x),
        lambda x: tf.fill([tf.shape(x)[0]], 2.0),
        lambda x: tf.range(tf.shape(x)[0]),
        lambda x: tf.eye(tf.shape(x)[0]),
        lambda x: tf.one_hot(tf.argmax(x, 0), tf.shape(x)[0]),
        lambda x: tf.sequence_mask([1, 2], tf.shape(x)[0]),
        lambda x: tf.concat([x, x], 0),
        lambda x: tf.stack([x, x]),
        lambda x: tf.tile(x, [2, 1]),
        lambda x: tf.pad(x, [[1, 1], [0, 0]]),
        lambda x: tf.broadcast_to(x[:1], tf.shape(x)),
        lambda x: x + x[:1],
        lambda x: x[-1],
        lambda x: x[::-1],
        lambda x: x[::2],
        lambda x: x[:, -1],
        lambda x: x[:, None] * x[None],
        lambda x: tf.gather(x, [0, 0]),
        lambda x: tf.while_loop(
            lambda i, y: i < 3, lambda i, y: (i + 1, y * 2.0), [0, x]
        )[1],
        lambda x: tf.cond(tf.reduce_sum(x) > 3.0, lambda: x * 2.0, lambda: x),
        lambda x: tf.map_fn(lambda row: row * 2.0, x),
        loop_over_range,
        loop_over_rows,
        gradient,
    ],
)
def test_code_runs_once_for_all_batches(body):
    check(body, [None, 3], ROWS)


@pytest.mark.parametrize(
    "body",
    [
        lambda x: tf.reduce_mean(x),
        lambda x: tf.norm(x),
        lambda x: tf.nn.l2_normalize(x, -1),
        lambda x: x[: tf.shape(x)[0] - 1, 1:],
        lambda x: tf.transpose(x) @ x,
    ],
)
def test_code_runs_once_for_all_matrices(body):
    check(body, [None, None], MATRICES)


def test_different_code_for_a_shape_is_another_trace():
    def body(x):
        return x * 2.0 if x.shape[0] > 4 else x - 1.0

    check(body, [None, 3], ROWS, most_runs=3)


def test_slice_beyond_a_small_extent_is_another_trace():
    check(lambda x: x[:4], [None, 3], ROWS, most_runs=4)


def test_extents_that_are_equal_only_at_first():
    check(lambda x: x + tf.ones((5, 1)), [None, 3], [(5, 3), (1, 3), (5, 3)], 3)
    function, _ = traced(lambda x: x + tf.ones((5, 1)), [None, 3])
    function(tf.ones((5, 3)))
    with pytest.raises(ShapeError):
        function(tf.ones((4, 3)))


@pytest.mark.parametrize(
    "body",
    [
        lambda x: x * float(x.shape[0]),
        lambda x: x + np.ones(x.shape, "float32"),
        lambda x: tf.stack([x[i] for i in range(x.shape[0])]),
    ],
)
def test_code_that_needs_a_number_runs_for_each_shape(body):
    check(body, [None, 3], ROWS, most_runs=len(ROWS) + 1)


def test_layers():
    layers = tf.keras.layers
    cases = [
        (layers.Dense(4), [None, 3], ROWS),
        (layers.LSTM(4, return_sequences=True), [None, None, 3], SEQUENCES),
        (layers.Bidirectional(layers.GRU(4)), [None, None, 3], SEQUENCES),
        (layers.Conv1D(4, 3, padding="same"), [None, None, 3], SEQUENCES),
        (layers.Conv2D(4, 3, strides=2), [None, None, None, 3], PICTURES),
        (layers.Conv2DTranspose(4, 3, strides=2), [None, None, None, 3], PICTURES),
        (layers.MaxPooling2D(), [None, None, None, 3], PICTURES),
        (layers.UpSampling2D(), [None, None, None, 3], PICTURES),
        (layers.GlobalAveragePooling2D(), [None, None, None, 3], PICTURES),
        (layers.LayerNormalization(), [None, None, 3], SEQUENCES),
        (layers.Flatten(), [None, 4, 3], [(n, 4, 3) for n in (2, 1, 5)]),
    ]
    for layer, shape, shapes in cases:
        check(layer, shape, shapes, most_runs=2)  # a second run after it is built


def test_model_with_attention():
    inputs = tf.keras.Input((None, 8))
    x = tf.keras.layers.MultiHeadAttention(2, 4)(inputs, inputs, use_causal_mask=True)
    x = tf.keras.layers.GlobalAveragePooling1D()(x)
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(2)(x))
    check(model, [None, None, 8], [(n, n + 2, 8) for n in (2, 1, 5)])


def test_layer_built_in_an_open_trace_has_unknown_extents():
    layer = toolkit.layers.Dense(4)
    function, _ = traced(layer, [None, 3])
    function(tf.ones((2, 3)))
    assert layer.get_build_config() == {"input_shape": (None, 3)}


def test_variables_are_updated():
    total = tf.Variable(0.0)
    function, runs = traced(lambda x: total.assign_add(tf.reduce_sum(x)), [None, 3])
    for n in (2, 1, 5):
        function(tf.ones((n, 3)))
    assert float(total) == 24.0 and len(runs) == 1


def test_gradient_of_a_call():
    function, runs = traced(lambda x: tf.reduce_mean(x**2), [None, 3])
    for n in (2, 4):
        x = tf.ones((n, 3))
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        np.testing.assert_allclose(tape.gradient(y, x), 2 / (3 * n))
    assert len(runs) == 1


def test_function_of_toolkit():
    function, runs = traced(
        lambda x: ops.mean(x, 0), [None, 3], decorate=toolkit.function
    )
    for n in (2, 1, 5):
        np.testing.assert_allclose(function(ops.ones((n, 3))), np.ones(3))
    assert len(runs) == 1


def test_two_arguments_and_a_structure():
    runs = []
    spec = tf.TensorSpec([None, 2], tf.float32)

    @tf.function(input_signature=[{"a": spec, "b": spec}, spec])
    def function(pair, y):
        runs.append(None)
        return {"sum": pair["a"] + pair["b"], "rows": tf.concat([y, y], 0)}

    for n, m in ((2, 3), (4, 1), (5, 5)):
        x, y = np.ones((n, 2), np.float32), np.ones((m, 2), np.float32)
        result = function({"a": x, "b": x}, y)
        assert result["sum"].shape == (n, 2) and result["rows"].shape == (2 * m, 2)
    assert len(runs) == 1


def test_extent_has_no_number_after_the_trace():
    extents = []
    function, _ = traced(lambda x: extents.append(x.shape[0]) or x, [None, 3])
    function(tf.ones((2, 3)))
    assert str(extents[0]) == "?"
    with pytest.raises(UnknownExtentError, match="open"):
        range(extents[0])


def test_slices_and_ranges_count_like_python():
    numbers = [None, *range(-5, 6)]
    for size in range(5):
        for start in numbers:
            for stop in numbers:
                for step in (None, 1, 2, 3, -1, -2):
                    owner = OpenExtents([size])
                    item = slice(start, stop, step)
                    bounds = slice_bounds(item, owner.inputs[0])
                    count = count_steps(*bounds)
                    count = getattr(count, "hint", count)
                    assert count == len(range(*item.indices(size)))
