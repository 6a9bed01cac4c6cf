"""Tests of graphs, Variables and Sessions of `compat.tensorflow.v1`."""

import numpy as np
import pytest

import toolkit.compat.tensorflow as tf2
import toolkit.compat.tensorflow.v1 as tf
from toolkit import layers, ops, regularizers
from toolkit.core import keras_tensor
from toolkit.errors import (
    ArgumentError,
    ArgumentTypeError,
    DTypeError,
    MissingKeyError,
    ShapeError,
    TraceError,
)


@pytest.fixture(autouse=True)
def graph_mode():
    tf.reset_default_graph()
    tf.disable_eager_execution()
    yield
    tf.enable_eager_execution()
    tf.reset_default_graph()


def initialized(session):
    session.run(tf.global_variables_initializer())
    return session


# --- a first graph: inputs, shared weights, penalties -------------------------------


def test_shared_weights_with_a_penalty():
    in_a = tf.placeholder(dtype=tf.float32, shape=(2))
    in_b = tf.placeholder(dtype=tf.float32, shape=(2))

    def forward(x):
        with tf.variable_scope("matmul", reuse=tf.AUTO_REUSE):
            w = tf.get_variable(
                "W",
                initializer=ops.ones((2, 2)),
                regularizer=regularizers.L2(0.04),
            )
            b = tf.get_variable("b", initializer=ops.zeros((2,)))
            return w * x + b

    out_a, out_b = forward(in_a), forward(in_b)
    penalty = tf.losses.get_regularization_loss(scope="matmul")
    assert not tf2.executing_eagerly()
    assert [v.name for v in tf.global_variables()] == ["matmul/W:0", "matmul/b:0"]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        outs = session.run(
            [out_a, out_b, penalty], feed_dict={in_a: [1, 0], in_b: [0, 1]}
        )
    assert outs[0].tolist() == [[1, 0], [1, 0]]
    assert outs[1].tolist() == [[0, 1], [0, 1]]
    assert type(outs[2]) is np.float32
    assert outs[2] == pytest.approx(0.16)


def test_the_mode_changes_at_any_time():
    tf.enable_eager_execution()
    assert tf.executing_eagerly()
    assert float(ops.add(1.0, 2.0)) == 3.0
    with tf.Graph().as_default():
        assert not tf.executing_eagerly()
        x = tf.placeholder("float32", ())
    assert tf.executing_eagerly()
    tf.disable_eager_execution()
    y = x + 1.0
    assert tf.Session(graph=x.graph).run(y, {x: 2.0}) == 3.0
    tf.enable_eager_execution()
    with pytest.raises(TraceError, match=r"tf\.placeholder\(\) is not compatible"):
        tf.placeholder("float32", ())


# --- names --------------------------------------------------------------------------


def test_names_of_tensors():
    x = tf.placeholder(tf.float32, (None, 2))
    y = tf.placeholder(tf.float32, (2,), name="given")
    assert (x.name, y.name) == ("Placeholder:0", "given:0")
    tensors = [x + y, x - y, x * y, x / y, -x, x**2, x[0], x < 1.0, x + x]
    assert [t.name for t in tensors] == [
        *("add:0", "sub:0", "mul:0", "truediv:0", "Neg:0", "pow:0"),
        *("strided_slice:0", "Less:0", "add_1:0"),
    ]
    with tf.name_scope("a") as scope:
        assert scope == "a/"
        assert (x + y).name == "a/add:0"
        with tf.name_scope("b"):
            assert (x + y).name == "a/b/add:0"
    with tf.name_scope("a"):
        assert (x + y).name == "a_1/add:0"
    with tf.name_scope("a/"):
        assert (x + y).name == "a/add_1:0"
    assert repr(y) == "<tf.Tensor 'given:0' shape=(2,) dtype=float32>"
    assert x.get_shape().as_list() == [None, 2]


def test_names_of_variables_and_scopes():
    with tf.variable_scope("a") as scope:
        v = tf.get_variable("v", (2,))
        in_scope = v + 1.0
        with tf.variable_scope("b"):
            w = tf.get_variable("w", (1,))
    with tf.variable_scope(scope, reuse=True):
        reused = tf.get_variable("v")
        out_of_scope = reused + 1.0
    with tf.variable_scope("a/b", reuse=True):
        deep = tf.get_variable("w") + 1.0
    assert deep.name == "a/b_1/add:0"
    free = [tf2.Variable(1.0), tf2.Variable(1.0, name="named")]
    assert reused is v
    assert (v.name, w.name, v.op.name) == ("a/v:0", "a/b/w:0", "a/v")
    assert v.initializer.name == "a/v/Assign"
    assert (in_scope.name, out_of_scope.name) == ("a/add:0", "a_1/add:0")
    assert [x.name for x in free] == ["Variable:0", "named:0"]
    assert tf.get_variable_scope().name == ""


def test_elements_are_looked_up_by_name():
    x = tf.placeholder("float32", (), name="x")
    y = x * 2.0
    graph = tf.get_default_graph()
    assert graph.get_tensor_by_name("mul:0") is y
    assert graph.get_operation_by_name("mul") is y.op
    assert y.op.inputs == (x,)
    assert tf.Session().run("mul:0", {"x:0": 3.0}) == 6.0
    with pytest.raises(MissingKeyError, match="no:0"):
        graph.get_tensor_by_name("no:0")
    with pytest.raises(MissingKeyError, match="mul:1"):
        graph.get_tensor_by_name("mul:1")
    with pytest.raises(ArgumentError, match="<op_name>:<output_index>"):
        graph.get_tensor_by_name("mul")


# --- get_variable -------------------------------------------------------------------


def test_sharing_must_be_requested():
    tf.get_variable("v", (2,))
    with pytest.raises(ArgumentError, match=r"Variable v already exists.*AUTO_REUSE"):
        tf.get_variable("v", (2,))
    with (
        tf.variable_scope("s", reuse=True),
        pytest.raises(ArgumentError, match="s/v does not exist"),
    ):
        tf.get_variable("v", (2,))
    with tf.variable_scope("", reuse=True):
        with pytest.raises(ArgumentError, match=r"specified shape \(3,\) and found"):
            tf.get_variable("v", (3,))
        with pytest.raises(ArgumentError, match="specified dtype float64"):
            tf.get_variable("v", (2,), "float64")


def test_scopes_set_defaults():
    penalty = regularizers.L2(1.0)
    start = tf.constant_initializer(3.0)
    with tf.variable_scope("s", initializer=start, regularizer=penalty):
        v = tf.get_variable("v", (2,))
        with tf.variable_scope("t"):
            w = tf.get_variable("w", (1,), initializer=tf.zeros_initializer())
    with initialized(tf.Session()) as session:
        assert session.run([v, w])[0].tolist() == [3, 3]
        losses = session.run(tf.losses.get_regularization_losses())
    assert losses == [18.0, 0.0]
    assert len(tf.losses.get_regularization_losses(scope="s/t")) == 1


def test_collections():
    v = tf.get_variable("v", (2,))
    w = tf.get_variable("w", (2,), trainable=False)
    u = tf.get_local_variable("u", (2,))
    custom = tf.get_variable("mine", (), collections=["mine"])
    assert tf.global_variables() == [v, w]
    assert tf.trainable_variables() == [v, custom]
    assert tf.local_variables() == [u]
    assert tf.get_collection("mine") == [custom]
    tf.add_to_collection("things", 1)
    tf.get_collection_ref("things").append(2)
    assert tf.get_collection("things") == [1, 2]
    assert tf.get_collection(tf.GraphKeys.GLOBAL_VARIABLES, scope="w") == [w]
    tf.reset_default_graph()
    assert tf.global_variables() == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "Shape of a new variable"),
        ({"shape": (None, 2)}, "must be fully defined"),
        ({"shape": (3,), "initializer": np.ones(2, "float32")}, "shape"),
    ],
)
def test_variables_need_a_shape(arguments, message):
    with pytest.raises(ValueError, match=message):
        tf.get_variable("v", **arguments)


def test_variables_without_a_graph():
    tf.enable_eager_execution()
    with tf.variable_scope("s", reuse=tf.AUTO_REUSE):
        v = tf.get_variable("v", (2,), initializer=tf.ones_initializer())
        assert tf.get_variable("v", (2,)) is not v
        with pytest.raises(TraceError, match="regularizer of s/v needs a graph"):
            tf.get_variable("v", (2,), regularizer=regularizers.L2(1.0))
    assert v.name == "s/v:0"
    assert v.numpy().tolist() == [1, 1]


def test_weights_of_layers_are_in_the_collections():
    x = tf.placeholder("float32", (None, 3))
    layer = layers.Dense(2, kernel_initializer="ones")
    y = layer(x)
    assert tf.trainable_variables() == layer.weights
    step = tf.train.GradientDescentOptimizer(1.0).minimize(ops.sum(y))
    with initialized(tf.Session()) as session:
        assert session.run(y, {x: [[1, 2, 3]]}).tolist() == [[6, 6]]
        session.run(step, {x: [[1, 2, 3]]})
    assert layer.kernel.numpy().tolist() == [[0, 0], [-1, -1], [-2, -2]]


# --- running ------------------------------------------------------------------------


def test_nested_fetches():
    x = tf.placeholder("float32", (2,))
    v = tf.get_variable("v", initializer=1.0)
    fetched = {"a": [x + 1.0, (x[0], v.initializer)], "b": v, "c": []}
    outs = tf.Session().run(fetched, {x: [1.0, 2.0]})
    assert outs["a"][0].tolist() == [2, 3]
    assert outs["a"][1] == (1.0, None)
    assert (outs["b"], outs["c"]) == (1.0, [])
    assert list(outs) == ["a", "b", "c"]


def test_only_fetched_operations_run():
    count = tf.get_variable("count", initializer=0)
    counted = count.assign_add(1)
    with tf.control_dependencies([counted]):
        loud = count + 10
    quiet = count * 2
    unfed = tf.placeholder("float32", ()) + 1.0
    with initialized(tf.Session()) as session:
        session.run(quiet)
        assert session.run(count) == 0
        assert session.run([loud, quiet]) == [11, 2]
        session.run(counted.op)
        assert session.run(count) == 2
        with pytest.raises(ArgumentError, match="'Placeholder' with dtype float32"):
            session.run([quiet, unfed])
        assert session.run(count) == 2


def test_anything_can_be_fed():
    x = tf.placeholder("float32", (None,))
    y = x * 2.0
    v = tf.get_variable("v", initializer=5.0)
    z = ops.sum(y) + v
    session = tf.Session()
    assert session.run(z, {y: [1, 2, 3], v: 1.0}) == 7.0
    defaulted = tf.placeholder_with_default([1.0, 2.0], (None,))
    doubled = defaulted * 2.0
    assert session.run(doubled).tolist() == [2, 4]
    assert session.run(doubled, {defaulted: [3.0]}).tolist() == [6]


def test_feeds_are_checked():
    x = tf.placeholder("float32", (None, 2), name="x")
    n = tf.placeholder("int32", (), name="n")
    session = tf.Session()
    with pytest.raises(ShapeError, match=r"\(3,\) for Tensor x:0, .* \(None, 2\)"):
        session.run(x, {x: [1, 2, 3]})
    with pytest.raises(DTypeError, match="x:0, which has dtype float32"):
        session.run(x, {x: [["a", "b"]]})
    with pytest.raises(DTypeError, match="n:0, which has dtype int32"):
        session.run(n, {n: 1.5})
    with pytest.raises(ArgumentTypeError, match="x:0: the value of a feed"):
        session.run(x, {x: x})
    with pytest.raises(ArgumentError, match="'x' with dtype float32"):
        session.run(x)
    with pytest.raises(ArgumentTypeError, match="keys of feed_dict"):
        session.run(x, {1: 2})
    with pytest.raises(ArgumentTypeError, match="a dict as feed_dict"):
        session.run(x, [1])
    assert session.run(n, {n: 2.0}) == 2


@pytest.mark.parametrize("fetch", [None, 3, [None], object(), np.ones(2), {1, 2}])
def test_fetches_are_checked(fetch):
    with pytest.raises(ArgumentTypeError, match="invalid type"):
        tf.Session().run(fetch)


def test_unknown_names_and_other_graphs_are_refused():
    with tf.Graph().as_default():
        x = tf.placeholder("float32", ())
    y = tf.placeholder("float32", ())
    with pytest.raises(ArgumentError, match="zz:0"):
        tf.Session().run("zz:0")
    with pytest.raises(ArgumentError, match="not in this session's graph"):
        tf.Session().run(x)
    with pytest.raises(ArgumentError, match="tensors of one graph"):
        x + y


def test_uninitialized_variables_are_named():
    with tf.variable_scope("s"):
        v = tf.get_variable("v", (2,))
    y = v + 1.0
    session = tf.Session()
    for fetch in (v, y, v.assign_add([1.0, 1.0])):
        with pytest.raises(tf.FailedPreconditionError, match="s/v"):
            session.run(fetch)
    session.run(v.assign([1.0, 2.0]))
    assert session.run(y).tolist() == [2, 3]


def test_missing_values_are_reported():
    v, _ = tf.get_variable("v", (2,)), tf.get_local_variable("w", (2,))
    uninitialized = tf.report_uninitialized_variables()
    session = tf.Session()
    assert session.run(uninitialized).tolist() == [b"v", b"w"]
    session.run(v.initializer)
    assert session.run([uninitialized, v])[0].tolist() == [b"w"]


def test_sessions_have_separate_values():
    v = tf.get_variable("v", initializer=1.0)
    one, other = initialized(tf.Session()), initialized(tf.Session())
    one.run(v.assign(5.0))
    assert (one.run(v), other.run(v)) == (5.0, 1.0)
    v.load(7.0, other)
    assert (one.run(v), other.run(v)) == (5.0, 7.0)
    one.close()
    with pytest.raises(TraceError, match="closed Session"):
        one.run(v)


def test_fetched_arrays_are_copies():
    v = tf.get_variable("v", initializer=np.ones(2, "float32"))
    x = tf.placeholder("float32", (2,))
    increment = v.assign_add([1.0, 1.0])
    assigned = v.assign(x)
    session = tf.Session()
    first = session.run([v.initializer, v])[1]
    first[:] = 9.0
    second = session.run(v)
    session.run(increment)
    assert second.tolist() == [1, 1]
    array = np.array([3.0, 4.0], "float32")
    out = session.run(assigned, {x: array})
    array[:] = out[:] = 0.0
    assert session.run(v).tolist() == [3, 4]


def test_default_sessions():
    v = tf.get_variable("v", initializer=2.0)
    y = v * 3.0
    with pytest.raises(ArgumentError, match="without a session"):
        y.eval()
    with tf.Session() as session:
        assert tf.get_default_session() is session
        v.initializer.run()
        assert (y.eval(), v.eval()) == (6.0, 2.0)
        x = tf.placeholder("float32", ())
        assert (x + y).eval({x: 1.0}) == 7.0
    assert tf.get_default_session() is None
    interactive = tf.InteractiveSession()
    v.initializer.run()
    assert y.eval() == 6.0
    interactive.close()
    assert tf.get_default_session() is None


# --- order and state ----------------------------------------------------------------


def test_assignments():
    v = tf.get_variable("v", initializer=np.zeros(2, "float32"))
    add, sub = tf.assign_add(v, [1.0, 2.0]), tf.assign_sub(v, [1.0, 1.0])
    with tf.control_dependencies([add]):
        after = v.read_value()
        shifted = v + 10.0
    with initialized(tf.Session()) as session:
        before, added = session.run([v, add])
        assert (before.tolist(), added.tolist()) == ([0, 0], [1, 2])
        out = session.run([after, shifted])
        assert [x.tolist() for x in out] == [[2, 4], [12, 14]]
        assert session.run(sub).tolist() == [1, 3]
    with pytest.raises(ShapeError, match="variable v: expected a value of shape"):
        v.assign(np.zeros(3, "float32"))


def test_groups_run_all():
    v, w = (tf.get_variable(name, initializer=0) for name in "vw")
    group = tf.group(v.assign_add(1), w.assign_add(2), name="both")
    with tf.control_dependencies([group]):
        no_op = tf.no_op()
    with initialized(tf.Session()) as session:
        assert session.run(group) is None
        assert session.run([v, w]) == [1, 2]
        session.run(no_op)
        assert session.run([v, w]) == [2, 4]
    assert group.name == "both"


def test_initial_values_may_depend_on_variables():
    v = tf.get_variable("v", (3,), initializer=tf.random_normal_initializer())
    w = tf2.Variable(v.initialized_value() * 2.0)
    is_initialized = tf.is_variable_initialized(v)
    session = tf.Session()
    assert not session.run(is_initialized)
    initialized(session)
    assert session.run(is_initialized)
    first, doubled = session.run([v, w])
    np.testing.assert_allclose(doubled, 2 * first)


def test_random_numbers():
    tf.set_random_seed(3)
    v = tf.get_variable("v", (50,), initializer=tf.random_normal_initializer(1.0, 2.0))
    w = tf.get_variable("w", (50,), initializer=tf.random_normal_initializer(1.0, 2.0))
    one, other = tf.Session(), tf.Session()
    values = initialized(one).run([v, w])
    assert not np.allclose(values[0], values[1])
    np.testing.assert_array_equal(initialized(other).run(v), values[0])
    assert not np.allclose(initialized(one).run(v), values[0])
    assert abs(values[0].mean() - 1) < 1.5


# --- tensors ------------------------------------------------------------------------


def test_graph_tensors_have_no_values():
    x = tf.placeholder("float32", (2, None), name="x")
    with pytest.raises(TypeError, match="x:0"):
        bool(x)
    with pytest.raises(TraceError, match="x:0"):
        np.asarray(x)
    with pytest.raises(TraceError, match="x:0"):
        x.numpy()
    assert [row.shape for row in x] == [(None,), (None,)]
    x.set_shape((2, 5))
    assert x.shape == (2, 5)
    with pytest.raises(ArgumentError, match=r"compatible with \(2, 5\)"):
        x.set_shape((2, 4))
    assert isinstance(x, keras_tensor.KerasTensor)


def test_finalized_graph_refuses_operations():
    x = tf.placeholder("float32", ())
    tf.get_default_graph().finalize()
    with pytest.raises(TraceError, match="finalized"):
        x + 1.0
    with tf.Graph().as_default(), pytest.raises(TraceError, match="nested"):
        tf.reset_default_graph()


def test_extents_may_differ_between_runs():
    x = tf.placeholder("float32", (None, 3))
    y = ops.sum(ops.relu(x), axis=1)
    session = tf.Session()
    for n in (1, 4, 2):
        assert session.run(y, {x: np.ones((n, 3))}).tolist() == [3] * n
