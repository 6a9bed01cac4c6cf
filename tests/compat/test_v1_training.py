"""Tests of gradients, optimizers, losses, layers and checkpoints of TensorFlow 1."""

import os

import numpy as np
import pytest

import toolkit.compat.tensorflow.v1 as tf
from toolkit import ops, regularizers
from toolkit.errors import (
    ArgumentError,
    ArgumentTypeError,
    GradientError,
    MissingFileError,
    ModelFileError,
    ShapeError,
)


@pytest.fixture(autouse=True)
def graph_mode():
    tf.reset_default_graph()
    tf.disable_eager_execution()
    yield
    tf.enable_eager_execution()
    tf.reset_default_graph()


def initialized():
    session = tf.Session()
    session.run(tf.global_variables_initializer())
    return session


# --- gradients ----------------------------------------------------------------------


def test_gradients_of_inputs_variables_and_intermediates():
    x = tf.placeholder("float32", (2,))
    v = tf.get_variable("v", initializer=3.0)
    between = x * v
    y = ops.square(between)
    gradients = tf.gradients(y, [x, v, between])
    session = initialized()
    by_x, by_v, by_between = session.run(gradients, {x: [1.0, 2.0]})
    assert by_x.tolist() == [18, 36]
    assert by_v == 30
    assert by_between.tolist() == [6, 12]
    weighted = tf.gradients([y], x, grad_ys=[[1.0, 0.0]])[0]
    assert session.run(weighted, {x: [1.0, 2.0]}).tolist() == [18, 0]


def test_gradients_of_gradients():
    x = tf.placeholder("float32", ())
    (slope,) = tf.gradients(x**3, x)
    (curve,) = tf.gradients(slope, x)
    assert tf.Session().run([slope, curve], {x: 2.0}) == [12, 12]


def test_unconnected_values_have_no_gradient():
    x, y = tf.placeholder("float32", (2,)), tf.placeholder("float32", (2,))
    stopped = ops.stop_gradient(x) * 2.0
    assert tf.gradients(x * 2.0, [y]) == [None]
    assert tf.gradients(stopped, [x]) == [None]
    (zeros,) = tf.gradients(stopped, [x], unconnected_gradients="zero")
    assert tf.Session().run(zeros, {x: [1.0, 2.0]}).tolist() == [0, 0]
    with pytest.raises(GradientError, match="tensors and Variables of a graph"):
        tf.gradients(x, [1.0])
    with pytest.raises(ArgumentError, match="No gradients provided"):
        v = tf.get_variable("v", (2,))
        tf.train.GradientDescentOptimizer(0.1).minimize(ops.sum(x), var_list=[v])


# --- optimizers ---------------------------------------------------------------------

START, STEPS = np.array([1.0, -2.0]), 3


def descend(p, update, *state):
    """Make three steps on the loss sum(p²) by formulas in NumPy."""
    for t in range(1, STEPS + 1):
        p, *state = update(p, 2.0 * p, t, *state)
    return p


def adam(p, g, t, m, v):
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
    rate = 0.1 * np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
    return p - rate * m / (np.sqrt(v) + 1e-8), m, v


def rmsprop(p, g, t, s, a):
    s = 0.9 * s + 0.1 * g**2
    a = 0.5 * a + 0.1 * g / np.sqrt(s + 1e-10)
    return p - a, s, a


def centered(p, g, t, s, mean, a):
    s, mean = 0.9 * s + 0.1 * g**2, 0.9 * mean + 0.1 * g
    a = 0.5 * a + 0.1 * g / np.sqrt(s - mean**2 + 1e-10)
    return p - a, s, mean, a


def momentum(p, g, t, a):
    a = 0.9 * a + g
    return p - 0.1 * a, a


def nesterov(p, g, t, a):
    a = 0.9 * a + g
    return p - 0.1 * (g + 0.9 * a), a


def adadelta(p, g, t, s, u):
    s = 0.95 * s + 0.05 * g**2
    d = g * np.sqrt((u + 1e-8) / (s + 1e-8))
    return p - 0.1 * d, s, 0.95 * u + 0.05 * d**2


def ftrl(p, g, t, n, z):
    new = n + g**2
    z = z + g - (np.sqrt(new) - np.sqrt(n)) / 0.1 * p
    moved = (np.sign(z) * 0.1 - z) / (np.sqrt(new) / 0.1 + 0.4)
    return np.where(abs(z) > 0.1, moved, 0.0), new, z


OPTIMIZERS = {
    "GradientDescent": (
        tf.train.GradientDescentOptimizer(0.1),
        lambda p, g, t: (p - 0.1 * g,),
        (),
    ),
    "Momentum": (tf.train.MomentumOptimizer(0.1, 0.9), momentum, (0,)),
    "Momentum, nesterov": (
        tf.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
        nesterov,
        (0,),
    ),
    "Adam": (tf.train.AdamOptimizer(0.1), adam, (0, 0)),
    "RMSProp": (tf.train.RMSPropOptimizer(0.1, momentum=0.5), rmsprop, (1, 0)),
    "RMSProp, centered": (
        tf.train.RMSPropOptimizer(0.1, momentum=0.5, centered=True),
        centered,
        (1, 0, 0),
    ),
    "Adagrad": (
        tf.train.AdagradOptimizer(0.1),
        lambda p, g, t, s: (p - 0.1 * g / np.sqrt(s + g**2), s + g**2),
        (0.1,),
    ),
    "Ftrl": (
        tf.train.FtrlOptimizer(
            0.1, l1_regularization_strength=0.1, l2_regularization_strength=0.2
        ),
        ftrl,
        (0.1, 0),
    ),
    "Adadelta": (tf.train.AdadeltaOptimizer(0.1), adadelta, (0, 0)),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_follow_their_formulas(name):
    optimizer, formula, state = OPTIMIZERS[name]
    v = tf.get_variable("v", initializer=START.astype("float32"))
    count = tf.train.get_or_create_global_step()
    step = optimizer.minimize(ops.sum(v * v), global_step=count)
    session = initialized()
    for _ in range(STEPS):
        session.run(step)
    expected = descend(START, formula, *(np.full(2, float(s)) for s in state))
    np.testing.assert_allclose(session.run(v), expected, rtol=2e-5)
    assert session.run(count) == tf.train.global_step(session, count) == STEPS
    assert step.name == name.split(",")[0]


def test_optimizer_state_is_in_variables():
    with tf.variable_scope("a"):
        v = tf.get_variable("v", (2,))
    optimizer = tf.train.AdamOptimizer()
    optimizer.minimize(ops.sum(v * v))
    names = [x.name for x in tf.global_variables()]
    assert names[0] == "a/v:0"
    assert set(names[1:]) == {
        *("beta1_power:0", "beta2_power:0", "a/v/Adam:0", "a/v/Adam_1:0"),
    }
    assert optimizer.get_slot_names() == ["m", "v"]
    assert optimizer.get_slot(v, "m").name == "a/v/Adam:0"
    assert set(optimizer.variables()) == set(tf.global_variables()[1:])
    assert tf.trainable_variables() == [v]


def test_gradients_may_be_changed_before_they_are_applied():
    v, w = (tf.get_variable(name, initializer=4.0) for name in "vw")
    optimizer = tf.train.GradientDescentOptimizer(1.0)
    pairs = optimizer.compute_gradients(v * v, [v, w])
    assert pairs[1] == (None, w)
    clipped = [(ops.clip(g, -1.0, 1.0), x) for g, x in pairs if g is not None]
    step = optimizer.apply_gradients(clipped)
    session = initialized()
    session.run(step)
    assert session.run([v, w]) == [3, 4]
    with pytest.raises(ArgumentError, match="No gradients provided"):
        optimizer.apply_gradients([(None, v)])
    with pytest.raises(ArgumentTypeError, match="loss as a tensor of a graph"):
        optimizer.minimize(1.0)


def test_rates_may_be_tensors():
    v = tf.get_variable("v", initializer=0.0)
    rate = tf.placeholder("float32", ())
    step = tf.train.GradientDescentOptimizer(rate).minimize(v * 1.0)
    session = initialized()
    session.run(step, {rate: 2.0})
    session.run(step, {rate: 0.5})
    assert session.run(v) == -2.5


@pytest.mark.parametrize(
    ("decay", "arguments", "expected"),
    [
        ("exponential_decay", (0.5, 10, 0.5), 0.5 * 0.5**1.5),
        ("exponential_decay", (0.5, 10, 0.5, True), 0.25),
        ("natural_exp_decay", (0.5, 10, 0.5), 0.5 * np.exp(-0.5 * 1.5)),
        ("inverse_time_decay", (0.5, 10, 0.5), 0.5 / 1.75),
        ("polynomial_decay", (0.5, 20, 0.1), 0.5 - 0.4 * 0.75),
        ("cosine_decay", (0.5, 20), 0.25 * (1 + np.cos(np.pi * 0.75))),
        ("piecewise_constant", ([5, 15, 20], [1.0, 2.0, 3.0, 4.0]), 2.0),
    ],
)
def test_decays(decay, arguments, expected):
    step = tf.get_variable("step", initializer=15, trainable=False)
    rate = getattr(tf.train, decay)
    if decay == "piecewise_constant":
        rate = rate(step, *arguments)
    else:
        rate = rate(arguments[0], step, *arguments[1:])
    assert initialized().run(rate) == pytest.approx(expected, rel=1e-5)


def test_moving_averages():
    v = tf.get_variable("v", initializer=1.0)
    averages = tf.train.ExponentialMovingAverage(0.5)
    with tf.control_dependencies([v.assign_add(2.0)]):
        update = averages.apply([v])
    session = initialized()
    session.run(update)
    session.run(update)
    average = averages.average(v)
    assert average.name == "v/ExponentialMovingAverage:0"
    assert session.run([v, average]) == [5, (1 + 3) / 2 / 2 + 5 / 2]


def test_a_model_learns():
    rng = np.random.default_rng(0)
    data = rng.normal(size=(64, 8)).astype("float32")
    classes = (data[:, 0] > 0).astype("int32") + (data[:, 1] > 0)
    tf.set_random_seed(0)
    x, y = tf.placeholder("float32", (None, 8)), tf.placeholder("int32", (None,))
    penalty = regularizers.L2(1e-4)
    hidden = tf.layers.dense(x, 16, activation="relu", kernel_regularizer=penalty)
    logits = tf.layers.dense(tf.layers.dropout(hidden, 0.1, training=True), 3)
    tf.losses.sparse_softmax_cross_entropy(y, logits)
    loss = tf.losses.get_total_loss()
    step = tf.train.AdamOptimizer(0.02).minimize(loss)
    session = initialized()
    first = session.run(loss, {x: data, y: classes})
    for _ in range(150):
        session.run(step, {x: data, y: classes})
    assert session.run(loss, {x: data, y: classes}) < first / 4
    names = [v.name for v in tf.trainable_variables()]
    assert names == [
        *("dense/kernel:0", "dense/bias:0", "dense_1/kernel:0", "dense_1/bias:0"),
    ]


# --- losses -------------------------------------------------------------------------

LABELS = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]], "float32")
SCORES = np.array([[0.5, -1.0, 2.0], [0.1, 0.2, 0.3]], "float32")
SOFTMAX = np.exp(SCORES) / np.exp(SCORES).sum(1, keepdims=True)
CHANCES = 1 / (1 + np.exp(-SCORES))


@pytest.mark.parametrize(
    ("loss", "losses"),
    [
        ("mean_squared_error", (SCORES - LABELS) ** 2),
        ("absolute_difference", abs(SCORES - LABELS)),
        ("hinge_loss", np.maximum(0, 1 - (2 * LABELS - 1) * SCORES)),
        (
            "huber_loss",
            np.where(
                abs(SCORES - LABELS) < 1,
                (SCORES - LABELS) ** 2 / 2,
                abs(SCORES - LABELS) - 0.5,
            ),
        ),
        (
            "sigmoid_cross_entropy",
            -LABELS * np.log(CHANCES) - (1 - LABELS) * np.log(1 - CHANCES),
        ),
        ("softmax_cross_entropy", -(LABELS * np.log(SOFTMAX)).sum(1)),
    ],
)
def test_losses(loss, losses):
    x = tf.placeholder("float32", (None, 3))
    of = getattr(tf.losses, loss)
    weights = np.array([2.0, 0.0], "float32")
    weights = weights if losses.ndim == 1 else weights[:, None]
    reductions = [tf.losses.Reduction.NONE, tf.losses.Reduction.SUM]
    reductions += [tf.losses.Reduction.MEAN, tf.losses.Reduction.SUM_OVER_BATCH_SIZE]
    losses_of_options = [of(LABELS, x), of(LABELS, x, weights)]
    losses_of_options += [of(LABELS, x, weights, reduction=r) for r in reductions]
    weighted = losses * weights
    expected = [losses.mean(), weighted.sum() / (weighted != 0).sum()]
    expected += [
        weighted,
        weighted.sum(),
        weighted.sum() / (losses.size),
        weighted.mean(),
    ]
    for actual, expected_loss in zip(
        tf.Session().run(losses_of_options, {x: SCORES}), expected, strict=True
    ):
        np.testing.assert_allclose(actual, expected_loss, rtol=1e-5)
    assert tf.losses.get_losses() == losses_of_options
    assert losses_of_options[0].name.endswith("/value:0")


def test_other_losses():
    x = tf.placeholder("float32", (None, 3))
    labels = np.array([1, 0])
    losses = [
        tf.losses.sparse_softmax_cross_entropy(labels, x),
        tf.losses.softmax_cross_entropy(LABELS, x, label_smoothing=0.3),
        tf.losses.log_loss(LABELS, ops.sigmoid(x), epsilon=0.0),
    ]
    smooth = LABELS * 0.7 + 0.1
    expected = [
        -np.log(SOFTMAX[[0, 1], labels]).mean(),
        -(smooth * np.log(SOFTMAX)).sum(1).mean(),
        -np.log(np.where(LABELS == 1, CHANCES, 1 - CHANCES)).mean(),
    ]
    np.testing.assert_allclose(
        tf.Session().run(losses, {x: SCORES}), expected, rtol=1e-5
    )
    total = tf.losses.get_total_loss()
    assert tf.Session().run(total, {x: SCORES}) == pytest.approx(
        sum(expected), rel=1e-5
    )


def test_losses_check_shapes():
    x = tf.placeholder("float32", (None, 3))
    with pytest.raises(ShapeError, match="mean_squared_error: expected labels"):
        tf.losses.mean_squared_error(np.zeros((2, 4)), x)
    with pytest.raises(ShapeError, match="weights can not be broadcast"):
        tf.losses.mean_squared_error(LABELS, x, weights=np.ones(2))
    with pytest.raises(ArgumentError, match="reduction"):
        tf.losses.mean_squared_error(LABELS, x, reduction="most")
    assert tf.Session().run(tf.losses.get_regularization_loss()) == 0


# --- layers -------------------------------------------------------------------------


def test_convolutions_and_pooling():
    x = tf.placeholder("float32", (None, 6, 6, 2))
    y = tf.layers.conv2d(x, 3, 3, padding="same", kernel_initializer="ones", name="c")
    pooled = tf.layers.max_pooling2d(y, 2, 2)
    mean = tf.layers.average_pooling2d(y, (2, 2), (2, 2))
    flat = tf.layers.flatten(pooled)
    assert (y.shape, pooled.shape, flat.shape) == (
        *((None, 6, 6, 3), (None, 3, 3, 3), (None, 27)),
    )
    with tf.variable_scope("", reuse=True):
        assert tf.get_variable("c/kernel").shape == (3, 3, 2, 3)
    outs = initialized().run([pooled, mean, flat], {x: np.ones((2, 6, 6, 2))})
    assert outs[0][0, :, :, 0].tolist() == [[18] * 3] * 3
    assert outs[1][0, 0, 0, 0] == (8 + 12 + 12 + 18) / 4
    assert outs[2].shape == (2, 27)


def test_weights_of_layers_can_be_shared():
    x = tf.placeholder("float32", (None, 2))
    one = tf.layers.dense(x, 3, name="d", bias_initializer=tf.ones_initializer())
    shared = tf.layers.dense(x, 3, name="d", reuse=True)
    outs = initialized().run([one, shared], {x: [[0, 0]]})
    assert outs[0].tolist() == outs[1].tolist() == [[1, 1, 1]]
    assert len(tf.global_variables()) == 2
    with pytest.raises(ArgumentError, match="d/kernel already exists"):
        tf.layers.dense(x, 3, name="d")


@pytest.mark.parametrize("fed", [False, True])
def test_batch_normalization(fed):
    x = tf.placeholder("float32", (None, 2))
    training = tf.placeholder("bool", ()) if fed else True
    feeds = {training: True} if fed else {}
    y = tf.layers.batch_normalization(x, momentum=0.5, epsilon=0.0, training=training)
    updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
    data = np.array([[1.0, 10.0], [3.0, 30.0]])
    session = initialized()
    out = session.run(y, {x: data, **feeds})
    np.testing.assert_allclose(out, [[-1, -1], [1, 1]], rtol=1e-5)
    session.run(updates, {x: data, **feeds})
    mean, variance = session.run(tf.global_variables()[-2:])
    assert (mean.tolist(), variance.tolist()) == ([1, 10], [1, 50.5])
    if fed:
        session.run(updates, {x: data, training: False})
        assert session.run(tf.global_variables()[-2]).tolist() == [1, 10]
        out = session.run(y, {x: data, training: False})
        np.testing.assert_allclose(out, (data - mean) / np.sqrt(variance), rtol=1e-5)


def test_dropout():
    x = tf.placeholder("float32", (1000,))
    training = tf.placeholder("bool", ())
    y = tf.layers.dropout(x, 0.25, training=training)
    same = tf.layers.dropout(x, 0.25)
    ones = np.ones(1000)
    session = tf.Session()
    first, second = (session.run(y, {x: ones, training: True}) for _ in range(2))
    assert set(np.unique(first)) <= {0.0, np.float32(4 / 3)}
    assert 650 < (first != 0).sum() < 850
    assert (first != second).any()
    out = session.run([y, same], {x: ones, training: False})
    assert all((o == 1).all() for o in out)


# --- files --------------------------------------------------------------------------


def test_checkpoints(tmp_path):
    with tf.variable_scope("a"):
        v = tf.get_variable("v", initializer=np.array([1.0, 2.0], "float32"))
    half = tf.get_variable("half", (3,), "bfloat16", tf.ones_initializer())
    saver = tf.train.Saver(max_to_keep=2)
    session = initialized()
    count = tf.get_variable("count", initializer=0)
    session.run(count.initializer)
    for _ in range(3):
        session.run([v.assign_add([1.0, 1.0]), count.assign_add(1)])
        path = saver.save(session, tmp_path / "model", global_step=count)
    assert path == str(tmp_path / "model-3")
    assert saver.last_checkpoints == [str(tmp_path / f"model-{i}") for i in (2, 3)]
    assert tf.train.latest_checkpoint(tmp_path) == path
    assert not tf.train.checkpoint_exists(tmp_path / "model-1")
    paths = tf.train.get_checkpoint_state(tmp_path).all_model_checkpoint_paths
    assert paths == saver.last_checkpoints
    other = tf.Session()
    saver.restore(other, path)
    assert other.run(v).tolist() == [4, 5]
    assert other.run(half).tolist() == [1, 1, 1]


def test_checkpoints_are_checked(tmp_path):
    v = tf.get_variable("v", initializer=1.0)
    session = initialized()
    path = tf.train.Saver({"other": v}).save(session, tmp_path / "model")
    with pytest.raises(ModelFileError, match="Key v not found"):
        tf.train.Saver([v]).restore(session, path)
    w = tf.get_variable("w", (2,))
    with pytest.raises(ModelFileError, match=r"other: expected shape \(2,\)"):
        tf.train.Saver({"other": w}).restore(session, path)
    with pytest.raises(MissingFileError, match="not a checkpoint"):
        tf.train.Saver([v]).restore(session, tmp_path / "nothing")
    with pytest.raises(ArgumentError, match="doesn't exist"):
        tf.train.Saver([v]).save(session, tmp_path / "no" / "model")
    assert tf.train.latest_checkpoint(tmp_path / "no") is None
    (tmp_path / "checkpoint").write_text("[]")
    with pytest.raises(ModelFileError, match="list of checkpoints"):
        tf.train.latest_checkpoint(tmp_path)


def test_foreign_file_named_like_the_state_file_stays(tmp_path):
    v = tf.get_variable("v", initializer=1.0)
    session = initialized()
    for text in ('model_checkpoint_path: "model-7"', "{}"):
        (tmp_path / "checkpoint").write_text(text)
        with pytest.raises(ModelFileError, match="list of checkpoints"):
            tf.train.Saver([v]).save(session, tmp_path / "model")
        assert os.listdir(tmp_path) == ["checkpoint"]
        assert (tmp_path / "checkpoint").read_text() == text
    tf.train.Saver([v]).save(session, tmp_path / "model", write_state=False)


def test_interrupted_save_leaves_a_valid_state_file(tmp_path, monkeypatch):
    v = tf.get_variable("v", initializer=1.0)
    session = initialized()
    saver = tf.train.Saver([v], max_to_keep=1)
    saver.save(session, tmp_path / "model", global_step=1)
    replace, calls = os.replace, []

    def interrupt(*paths):
        calls.append(paths)
        if len(calls) == 2:  # the state file
            raise KeyboardInterrupt
        replace(*paths)

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        saver.save(session, tmp_path / "model", global_step=2)
    assert tf.train.latest_checkpoint(tmp_path) == str(tmp_path / "model-1")


def test_summaries(tmp_path):
    x = tf.placeholder("float32", (3,))
    tf.summary.scalar("total", ops.sum(x))
    tf.summary.histogram("x", x)
    merged = tf.summary.merge_all()
    session = tf.Session()
    with tf.summary.FileWriter(tmp_path, session.graph) as writer:
        noted, _ = session.run([merged, x], {x: [1.0, 2.0, 3.0]})
        writer.add_summary(noted, 1)
    assert noted["scalar", "total"] == 6
    (file,) = tmp_path.iterdir()
    content = file.read_bytes()
    assert b"total" in content
    assert b"Placeholder" in content


def test_scripts_are_run_with_their_arguments():
    with pytest.raises(SystemExit) as ended:
        tf.app.run(lambda arguments: len(arguments), ["script", "1", "2"])
    assert ended.value.code == 3


def test_settings():
    config = tf.ConfigProto(allow_soft_placement=True)
    config.gpu_options.allow_growth = True
    assert tf.Session(config=config).config.gpu_options.allow_growth
    with pytest.raises(ArgumentError, match="ConfigProto: expected one of"):
        config.speed = "high"
    level = tf.logging.get_verbosity()
    tf.logging.set_verbosity(tf.logging.ERROR)
    assert tf.logging.get_verbosity() == tf.logging.ERROR
    tf.logging.set_verbosity(level)


# --- data sets, metrics and prints --------------------------------------------------


def test_data_sets_feed_graphs():
    dataset = tf.data.Dataset.range(5).map(lambda x: tf.reduce_sum(x) * 2).batch(2)
    batch = tf.data.make_one_shot_iterator(dataset).get_next()
    total = ops.sum(batch)
    session = tf.Session()
    assert session.run([batch, total])[0].tolist() == [0, 2]
    assert session.run(total) == 4 + 6
    assert session.run(total, {batch: [7]}) == 7
    assert session.run(total) == 8
    with pytest.raises(tf.errors.OutOfRangeError, match="End of sequence"):
        session.run(total)
    assert tf.Session().run(total) == 2


def test_iterators_start_at_their_initializer():
    arrays = (np.arange(6.0, dtype="float32").reshape(3, 2), np.array([5, 6, 7]))
    dataset = tf.data.Dataset.from_tensor_slices(arrays).batch(2)
    iterator = tf.data.make_initializable_iterator(dataset)
    x, y = iterator.get_next()
    assert (x.shape, x.dtype, y.shape) == ((None, 2), "float32", (None,))
    session = tf.Session()
    with pytest.raises(ValueError, match="run the iterator's initializer"):
        session.run(x)
    for _ in range(2):
        session.run(iterator.initializer)
        assert [v.tolist() for v in session.run([x, y])] == [[[0, 1], [2, 3]], [5, 6]]
    with pytest.raises(ValueError, match="no initializer"):
        tf.data.make_one_shot_iterator(dataset).initializer  # noqa: B018


def test_metrics():
    y, p = tf.placeholder("int32", (None,)), tf.placeholder("int32", (None,))
    metrics = {
        "accuracy": tf.metrics.accuracy(y, p),
        "mean": tf.metrics.mean(ops.cast(p, "float32"), weights=[0.0, 1.0, 1.0]),
        "precision": tf.metrics.precision(y, p),
        "recall": tf.metrics.recall(y, p),
        "mean_squared_error": tf.metrics.mean_squared_error(y, ops.cast(p, "float32")),
    }
    values = {name: value for name, (value, _) in metrics.items()}
    updates = [update for _, update in metrics.values()]
    session = tf.Session()
    session.run(tf.local_variables_initializer())
    for labels, predictions in (([1, 0, 1], [1, 1, 1]), ([1, 1, 0], [0, 0, 0])):
        session.run(updates, {y: labels, p: predictions})
    values_of_metrics = session.run(values)
    expected = {
        "accuracy": 3 / 6,
        "mean": 2 / 4,
        "precision": 2 / 3,
        "recall": 2 / 4,
        "mean_squared_error": 3 / 6,
    }
    assert values_of_metrics == pytest.approx(expected)
    assert metrics["accuracy"][0].name == "accuracy/value:0"
    assert tf.local_variables()[0].name == "accuracy/total:0"
    assert tf.global_variables() == []


def test_prints_show_the_values_of_a_run(capsys):
    v = tf.get_variable("v", initializer=1.0)
    with tf.control_dependencies([tf.print("v is", v, {"and": [v * 2.0]})]):
        increment = v.assign_add(1.0)
    session = initialized()
    capsys.readouterr()
    for _ in range(2):
        session.run(increment)
    shown = capsys.readouterr().err.splitlines()
    assert shown == ["v is 1 {'and': [2]}", "v is 2 {'and': [4]}"]
    session.run(tf.Print(v, [v], "message: "))
    assert capsys.readouterr().err == "message: [3]\n"


def test_losses_and_layers_work_without_a_graph():
    tf.enable_eager_execution()
    loss = tf.losses.mean_squared_error(LABELS, SCORES)
    assert float(loss) == pytest.approx(((LABELS - SCORES) ** 2).mean(), rel=1e-5)
    assert tf.losses.get_losses() == []
    y = tf.layers.dense(ops.ones((2, 3)), 4, kernel_initializer=tf.ones_initializer())
    assert tf.layers.flatten(y).numpy().tolist() == [[3] * 4] * 2
