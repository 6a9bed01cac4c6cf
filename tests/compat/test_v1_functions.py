"""Tests of TensorFlow's functions on graph tensors: each call is one operation."""

import numpy as np
import pytest

import toolkit.compat.tensorflow as tf2
import toolkit.compat.tensorflow.v1 as tf
from tests.ops.samples import SAMPLES
from toolkit import ops, tree
from toolkit.errors import ArgumentError, ArgumentTypeError

OF_VALUES = ("convert_to_numpy",)


@pytest.fixture(autouse=True)
def graph_mode():
    tf.reset_default_graph()
    tf.disable_eager_execution()
    yield
    tf.enable_eager_execution()
    tf.reset_default_graph()


DATA = np.array([[1.0, -2.0, 3.0], [0.5, 4.0, -6.0]], "float32")

CALLS = {
    "reduce_mean": lambda x: tf2.reduce_mean(x, axis=1),
    "reduce_sum": lambda x: tf2.reduce_sum(x, 0, keepdims=True),
    "reduce_max": lambda x: tf2.reduce_max(x),
    "matmul": lambda x: tf2.matmul(x, x, transpose_b=True),
    "operators": lambda x: (x + 1.0) * x - x / 2.0 + x**2,
    "index": lambda x: x[:, 1:] - x[..., :1],
    "relu": lambda x: tf2.nn.relu(x),
    "softmax": lambda x: tf2.nn.softmax(x),
    "concat": lambda x: tf2.concat([x, x], axis=0),
    "stack": lambda x: tf2.stack([x, 2 * x]),
    "reshape": lambda x: tf2.reshape(x, [-1]),
    "transpose": lambda x: tf2.transpose(x, [1, 0]),
    "cast": lambda x: tf2.cast(x, tf2.int32),
    "argmax": lambda x: tf2.argmax(x, axis=1),
    "where": lambda x: tf2.where(x > 0, x, tf2.zeros_like(x)),
    "clip": lambda x: tf2.clip_by_value(x, -1.0, 1.0),
    "one_hot": lambda x: tf2.one_hot(tf2.argmax(x, 1), 3),
    "gather": lambda x: tf2.gather(x, [1, 0]),
    "split": lambda x: tf2.split(x, 3, axis=1)[1],
    "top_k": lambda x: tf2.math.top_k(x, 2)[0],
    "moments": lambda x: tf2.nn.moments(x, [0])[1],
    "tile": lambda x: tf2.tile(x, [1, 2]),
    "einsum": lambda x: tf2.einsum("ij,kj->ik", x, x),
    "shape": lambda x: tf2.shape(x) * 2,
    "shape of shape": lambda x: tf2.zeros([tf2.shape(x)[0], 2]),
    "rank": lambda x: tf2.rank(x),
    "size": lambda x: tf2.size(x),
    "cond": lambda x: tf2.cond(tf2.reduce_sum(x) > 0, lambda: x, lambda: -x),
    "map_fn": lambda x: tf2.map_fn(lambda row: row * 2.0 + x[0], x),
    "scan": lambda x: tf2.scan(lambda a, row: a + row, x),
    "while_loop": lambda x: tf2.while_loop(
        lambda i, a: i < 3, lambda i, a: (i + 1, a * 2.0 + x), (tf2.constant(0), x)
    )[1],
    "ops": lambda x: ops.logsumexp(ops.abs(x), axis=0),
    "constants": lambda x: tf2.linspace(0.0, 1.0, 3) + tf2.range(3.0) * tf2.ones((3,)),
}


def test_graphs_match_eager_calls():
    x = tf.placeholder("float32", (None, 3))
    tensors = {name: call(x) for name, call in CALLS.items()}
    outs = tf.Session().run(tensors, {x: DATA})
    tf.enable_eager_execution()
    for name, call in CALLS.items():
        expected = call(tf2.constant(DATA))
        np.testing.assert_allclose(outs[name], expected, rtol=1e-5, err_msg=name)
        assert outs[name].dtype == expected.numpy().dtype, name
        fits = zip(tensors[name].shape, outs[name].shape, strict=True)
        assert all(m in (None, n) for m, n in fits), name


def test_calls_are_operations_with_names():
    x = tf.placeholder("float32", (2,))
    tensors = [tf2.reduce_mean(x), tf2.constant(1.0), tf2.add(x, x, name="total")]
    tensors += [tf2.matmul(x[None], x[:, None]), tf2.zeros((2,)), tf2.nn.sigmoid(x)]
    assert [y.name for y in tensors] == [
        *("Mean:0", "Const:0", "total:0", "MatMul:0", "zeros:0", "Sigmoid:0"),
    ]
    assert [y.op.type for y in tensors[:4]] == ["Mean", "Const", "Add", "MatMul"]
    session = tf.Session()
    assert session.run(tensors[1], {tensors[1]: 5.0}) == 5.0
    assert tf2.add(1.0, 2.0).eval(session=session) == 3.0


def test_shapes_stay_known():
    x = tf.placeholder("float32", (None, 4, 2))
    rows = tf2.shape(x)[0]
    flat = tf2.reshape(x, [rows, tf2.shape(x)[1] * 2])
    stacked = tf2.reshape(x, tf2.stack([rows * 2, 4]))
    noise = tf2.random.normal([rows, 3])
    mean = tf2.reduce_sum(x) / tf2.cast(rows, "float32")
    assert (flat.shape, stacked.shape, noise.shape) == ((None, 8), (None, 4), (None, 3))
    outs = tf.Session().run([flat, stacked, noise, mean, rows], {x: np.ones((3, 4, 2))})
    assert [out.shape for out in outs] == [(3, 8), (6, 4), (3, 3), (), ()]
    assert outs[3:] == [8.0, 3]


def test_branches_capture_outer_tensors():
    x, choice = tf.placeholder("float32", ()), tf.placeholder("bool", ())
    v = tf.get_variable("v", initializer=2.0)
    between = x * 3.0

    def counted():
        v.assign_add(1.0)
        return v + between

    y = tf2.cond(choice, lambda: between * v, counted)
    slope = tf.gradients(y, [x, v])
    session = tf.Session()
    session.run(v.initializer)
    assert session.run([y, *slope], {x: 1.0, choice: True}) == [6, 6, 3]
    assert session.run(v) == 2
    assert session.run(y, {x: 1.0, choice: False}) == 6
    assert session.run(v) == 3


def test_random_numbers_are_drawn_in_each_run():
    tf.set_random_seed(1)
    tensors = [
        tf2.random.normal((3,)),
        tf2.random.normal((3,)),
        tf.random_uniform((3,)),
    ]
    seeded = tf2.random.normal((3,), seed=5)
    one, other = tf.Session(), tf.Session()
    first, second = one.run([*tensors, seeded]), one.run([*tensors, seeded])
    for a, b, c in zip(first, second, other.run([*tensors, seeded]), strict=True):
        assert not np.array_equal(a, b)
        np.testing.assert_array_equal(a, c)
    assert not np.array_equal(first[0], first[1])


def test_extents_may_depend_on_values():
    x = tf.placeholder("float32", (None, 2))
    v = tf.get_variable("v", initializer=2.0)
    indices = tf2.where(x > 0)
    rows = tf2.boolean_mask(x * v, x[:, 0] > 0)
    values, numbers = tf2.unique(tf2.cast(x[:, 1], "int32"))
    (slope,) = tf.gradients(tf2.reduce_sum(rows), v)
    session = tf.Session()
    session.run(v.initializer)
    data = [[1.0, 3.0], [-1.0, 3.0], [2.0, -2.0]]
    tensors = [indices, rows, values, numbers, slope]
    outs = session.run(tensors, {x: data})
    assert outs[0].tolist() == [[0, 0], [0, 1], [1, 1], [2, 0]]
    assert outs[1].tolist() == [[2, 6], [4, -4]]
    assert (outs[2].tolist(), outs[3].tolist()) == ([3, -2], [0, 0, 1])
    assert outs[4] == 4
    assert (indices.shape, rows.shape, values.shape) == ((None, 2), (None, 2), (None,))


def test_moved_functions():
    matrix = [[2.0, 0.0], [0.0, 4.0]]
    tensors = {
        "inverse": tf.matrix_inverse(matrix),
        "trace": tf.trace(matrix),
        "diagonal": tf.diag([1.0, 2.0]),
        "segments": tf.segment_sum([1, 2, 3], [0, 0, 1]),
        "norm": tf.global_norm([[3.0], [4.0]]),
        "count": tf.count_nonzero(tf2.constant(matrix)),
        "blocks": tf.depth_to_space(tf2.ones([1, 1, 1, 4]), 2),
        "top": tf.nn.in_top_k(tf2.constant([[0.1, 0.9]]), tf2.constant([1]), 1),
        "affine": tf.nn.xw_plus_b([[1.0, 2.0]], [[1.0], [2.0]], [3.0]),
    }
    outs = {name: value.tolist() for name, value in tf.Session().run(tensors).items()}
    assert outs == {
        "inverse": [[0.5, 0.0], [0.0, 0.25]],
        "trace": 6.0,
        "diagonal": [[1.0, 0.0], [0.0, 2.0]],
        "segments": [3, 3],
        "norm": 5.0,
        "count": 2,
        "blocks": [[[[1.0], [1.0]], [[1.0], [1.0]]]],
        "top": [True],
        "affine": [[8.0]],
    }


def test_all_operations_of_the_core_can_be_recorded():
    samples = [s for s in SAMPLES if s.inputs and s.name not in OF_VALUES]
    feeds, tensors = {}, []

    def fed(leaf):
        if not isinstance(leaf, np.ndarray) or leaf.dtype.kind not in "biuf":
            return leaf
        x = tf.placeholder(leaf.dtype, leaf.shape)
        feeds[x] = leaf
        return x

    for sample in samples:
        inputs = tree.map_structure(fed, sample.inputs)
        outs = tree.flatten(sample.op(*inputs, **sample.attrs))
        tensors.append([y for y in outs if hasattr(y, "dtype")])
    # Checks whether a Variable has a value are not compiled, because that is slow.
    plain = tf.is_variable_initialized(tf.get_variable("v", ()))
    values = tf.Session().run([tensors, plain], feeds)[0]
    tf.enable_eager_execution()
    for sample, outs in zip(samples, values, strict=True):
        expected = tree.flatten(sample.op(*sample.inputs, **sample.attrs))
        expected = [y for y in expected if hasattr(y, "dtype")]
        for out, value in zip(outs, expected, strict=True):
            np.testing.assert_array_equal(out, value, err_msg=str(sample))


def test_value_checks_are_not_compiled():
    x = tf.placeholder("float32", (None,))
    indices, positive = ops.nonzero(x > 0)[0], x[x > 0]
    session = tf.Session()
    for data, expected in (([1.0, -1.0, 2.0], [0, 2]), ([-1.0, 3.0], [1])):
        outs = session.run([indices, positive], {x: data})
        assert outs[0].tolist() == expected
        assert outs[1].tolist() == [data[i] for i in expected]


def test_python_functions():
    x = tf.placeholder("float32", (None,))
    double = tf.py_func(lambda v: v * 2, [x], tf.float32)
    total = double + 1.0
    double.set_shape((None,))
    extremes = tf2.numpy_function(lambda v: (v.min(), v.max()), [x], [tf.float32] * 2)
    shown = tf2.py_function(lambda v: tf2.reduce_sum(v), [x], tf.float32)
    out = tf.Session().run([total, double[1:], extremes, shown], {x: [1.0, 2.0, 4.0]})
    assert out[0].tolist() == [3, 5, 9]
    assert out[1].tolist() == [4, 8]
    assert (out[2], out[3]) == ([1, 4], 7)


def test_checks_are_operations():
    x = tf.placeholder("float32", (None,))
    v = tf.get_variable("v", initializer=0.0)
    with tf.control_dependencies(
        [tf.assert_positive(x), tf2.debugging.Assert(v < 2, [v])]
    ):
        increment = v.assign_add(1.0)
    session = tf.Session()
    session.run(v.initializer)
    assert session.run(increment, {x: [1.0]}) == 1
    with pytest.raises(ArgumentError, match="x > 0"):
        session.run(increment, {x: [1.0, -1.0]})
    assert session.run([increment, v], {x: []})[0] == 2
    with pytest.raises(ArgumentError):
        session.run(increment, {x: [1.0]})
    assert session.run(v) == 2


def test_rows_of_variables():
    v = tf.get_variable("v", initializer=np.zeros((3, 2), "float32"))
    rows = tf.placeholder("int32", (None,))
    add = tf.scatter_add(v, rows, [[1.0, 2.0], [3.0, 4.0]])
    session = tf.Session()
    session.run(v.initializer)
    assert session.run(add, {rows: [2, 2]}).tolist() == [[0, 0], [0, 0], [4, 6]]
    assert session.run(tf.scatter_sub(v, [2], [[1.0, 1.0]]))[2].tolist() == [3, 5]
    assert session.run(tf.scatter_update(v, [0], [[7.0, 7.0]]))[0].tolist() == [7, 7]


def test_models_work_in_graph_mode():
    class Scaled(tf.keras.layers.Layer):
        def build(self, shape):
            self.scale = self.add_weight(shape=(shape[-1],), initializer="ones")

        def call(self, x):
            return tf2.nn.relu(tf2.multiply(x, self.scale))

    def loss(y, p):
        return tf2.reduce_mean(tf2.square(tf2.cast(y, "float32") - p))

    model = tf.keras.Sequential([Scaled(), tf.keras.layers.Dense(2)])
    data, targets = DATA, DATA[:, :2]
    for eagerly in (False, True):
        model.compile("sgd", loss, run_eagerly=eagerly)
        model.fit(data, targets, epochs=1, verbose=0)
    x, y = tf.placeholder("float32", (None, 3)), tf.placeholder("float32", (None, 2))
    p = model(x)
    far = tf.keras.losses.MeanSquaredError()(y, p)
    out, distance = tf.Session().run([p, far], {x: data, y: targets})
    np.testing.assert_allclose(out, model.predict(data, verbose=0), rtol=1e-6)
    assert distance == pytest.approx(((out - targets) ** 2).mean(), rel=1e-5)
    assert len(tf.trainable_variables()) == 3


def test_placeholders_without_a_shape():
    a, b = tf.placeholder(tf.float32), tf.placeholder(tf.float32)
    total = (a + b) * 3.0
    session = tf.Session()
    assert session.run(total, {a: 3, b: 4.5}) == 22.5
    assert session.run(total, {a: [1, 3], b: [2, 4]}).tolist() == [9, 21]
    assert session.run(tf.gradients(total, a), {a: [1, 3], b: 1})[0].tolist() == [3, 3]


def test_operations_run_where_they_are_placed():
    with tf2.device("/CPU:0"):
        y = tf2.constant(1.0) + 1.0
    assert y.op.device == "cpu:0"
    assert tf.Session().run(y) == 2.0


def test_older_names():
    x = tf.placeholder("float32", (None, 3))
    tensors = [
        tf.reduce_sum(x, reduction_indices=[1], keep_dims=True),
        tf.argmax(x, dimension=1),
        tf.log(tf.to_float(x > 0) + 1.0),
        tf.div(7, 2),
        tf.expand_dims(x, dim=0),
        tf.nn.softmax(x, dim=1),
        tf.nn.softmax_cross_entropy_with_logits_v2(labels=x, logits=x),
        tf.while_loop(lambda i: i < 5, lambda i: i + 2, [tf2.constant(0)]),
    ]
    outs = tf.Session().run(tensors, {x: DATA})
    assert outs[0].tolist() == [[2.0], [-1.5]]
    assert outs[1].tolist() == [2, 1]
    assert outs[2].shape == (2, 3)
    assert (outs[3], outs[7]) == (3, 6)
    assert outs[4].shape == (1, 2, 3)
    np.testing.assert_allclose(outs[5].sum(1), [1, 1], rtol=1e-5)
    assert tensors[0].name == "Sum:0"
    with pytest.raises(ArgumentTypeError, match="received both"):
        tf.reduce_sum(x, axis=1, reduction_indices=1)


def test_dropout_and_convolution_of_old_scripts():
    x = tf.placeholder("float32", (None, 8, 8, 1))
    keep = tf.placeholder("float32", ())
    kernel = tf.get_variable("kernel", (3, 3, 1, 2), initializer=tf.ones_initializer())
    y = tf.nn.conv2d(x, kernel, strides=[1, 1, 1, 1], padding="SAME")
    pooled = tf.nn.max_pool(y, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME")
    dropped = tf.nn.dropout(pooled, keep)
    session = tf.Session()
    session.run(kernel.initializer)
    feeds = {x: np.ones((4, 8, 8, 1))}
    out, pooled_value = session.run([dropped, pooled], {**feeds, keep: 0.5})
    assert out.shape == (4, 4, 4, 2)
    assert set(np.unique(out / pooled_value)) == {0.0, 2.0}
    np.testing.assert_array_equal(*session.run([dropped, pooled], {**feeds, keep: 1.0}))
    with pytest.raises(ArgumentError, match="one of keep_prob and rate"):
        tf.nn.dropout(x)
