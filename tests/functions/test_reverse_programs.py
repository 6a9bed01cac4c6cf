"""Test compiled reverse passes against passes that run operation by operation."""

import threading

import numpy as np
import pytest

import toolkit as tk
from toolkit import layers, ops
from toolkit.functions import reverse_programs, tape_keys


@pytest.fixture(autouse=True)
def no_programs():
    reverse_programs.clear()
    yield
    reverse_programs.clear()


def value(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def both(loss_of, sources, times=3):
    """Return compiled gradients, and gradients of the pass in Python.

    Weights of the target select the pass in Python.
    """
    for _ in range(times):
        with tk.GradientTape() as tape:
            loss = loss_of()
        compiled = tape.gradient(loss, sources)
    with tk.GradientTape() as tape:
        loss = loss_of()
    return compiled, tape.gradient(loss, sources, ops.ones_like(loss))


def assert_same(loss_of, sources, programs=1, **tolerances):
    compiled, expected = both(loss_of, sources)
    for actual, g in zip(compiled, expected, strict=True):
        if g is None:
            assert actual is None
        else:
            assert (actual.shape, actual.dtype) == (g.shape, g.dtype)
            np.testing.assert_allclose(
                np.asarray(actual),
                np.asarray(g),
                **({"rtol": 1e-5, "atol": 1e-6} | tolerances),
            )
    assert reverse_programs.count() == programs


def test_network():
    model = tk.Sequential(
        [
            tk.Input((8, 8, 1)),
            layers.Conv2D(4, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.LayerNormalization(),
            layers.Dense(5, activation="gelu"),
            layers.Dense(3, activation="softmax"),
        ]
    )
    loss = tk.losses.SparseCategoricalCrossentropy()
    x, y = value(6, 8, 8, 1), np.array([0, 1, 2, 0, 1, 2])
    weights = model.trainable_variables
    assert_same(lambda: loss(y, model(x)), weights)
    reverse_programs.clear()
    assert_same(lambda: loss(y, model(x, training=True)), weights)


def test_recurrent_network_and_attention():
    x = ops.convert_to_tensor(value(2, 5, 4))
    attention = layers.MultiHeadAttention(2, 3)
    lstm = layers.LSTM(3)
    attention(x, x), lstm(x)
    sources = [*attention.trainable_variables, *lstm.trainable_variables]
    assert_same(lambda: ops.sum(lstm(attention(x, x)) ** 2), sources)


def test_values_of_each_step_are_used():
    v = tk.Variable(value(3, 4))
    for seed in range(4):
        x = ops.convert_to_tensor(value(3, 4, seed=seed))
        with tk.GradientTape() as tape:
            loss = ops.sum(v * x * float(seed))
        (g,) = tape.gradient(loss, [v])
        np.testing.assert_allclose(g.numpy(), x.numpy() * seed, rtol=1e-6)
        v.assign(value(3, 4, seed=seed + 10))
    assert reverse_programs.count() == 1


def test_sources():
    v, w, unused = (tk.Variable(value(3, seed=i)) for i in range(3))
    x = ops.convert_to_tensor(value(3))

    def loss_of():
        twice = v * w + v  # read twice
        return ops.sum(twice * x) + ops.sum(v.read() ** 2)

    assert_same(loss_of, [v, unused, w, v])
    with tk.GradientTape() as tape:
        loss = loss_of()
    nest = tape.gradient(loss, {"a": v, "b": [unused]}, unconnected_gradients="zero")
    assert np.any(nest["a"].numpy()) and not np.any(nest["b"][0].numpy())


def test_watched_tensors_are_sources_too():
    v, x = tk.Variable(value(3)), ops.convert_to_tensor(value(3, seed=1))
    for _ in range(2):
        with tk.GradientTape() as tape:
            tape.watch(x)
            y = x * v
            loss = ops.sum(y * y)
        gx, gv, gy = tape.gradient(loss, [x, v, y])
    np.testing.assert_allclose(gy.numpy(), 2 * y.numpy(), rtol=1e-6)
    np.testing.assert_allclose(gx.numpy(), 2 * (y * v).numpy(), rtol=1e-5)
    np.testing.assert_allclose(gv.numpy(), 2 * (y * x).numpy(), rtol=1e-5)
    assert reverse_programs.count() == 1


def test_several_targets_and_a_persistent_tape():
    v = tk.Variable(value(4))
    with tk.GradientTape(persistent=True) as tape:
        a, b = ops.sum(v * v), 3 * v
    for _ in range(2):
        g, h = tape.gradient([a, b], v), tape.gradient(a, v)
        np.testing.assert_allclose(g.numpy(), 2 * v.numpy() + 3, rtol=1e-6)
        np.testing.assert_allclose(h.numpy(), 2 * v.numpy(), rtol=1e-6)


def test_second_order():
    v = tk.Variable([1.0, 2.0])
    for _ in range(3):
        with tk.GradientTape() as outer:
            with tk.GradientTape() as inner:
                y = ops.sum(v**3)
            first = inner.gradient(y, v)
        second = outer.gradient(first, v)
        np.testing.assert_allclose(first.numpy(), [3, 12], rtol=1e-6)
        np.testing.assert_allclose(second.numpy(), [6, 12], rtol=1e-6)


@pytest.mark.parametrize("attribute", [(0.0, -0.0), (1, 1.0), (True, 1)])
def test_attributes_that_are_equal_but_different(attribute):
    first, second = ({"x": value} for value in attribute)
    describe = tape_keys.attributes_key
    assert describe(first) != describe(second)


def test_code_of_a_user_runs_in_each_pass():
    calls = []

    @tk.ops.custom_gradient
    def scaled(x):
        def grad(*args, upstream=None):
            calls.append(1)
            return 7 * (args[0] if upstream is None else upstream)

        return x, grad

    v = tk.Variable(value(3))
    compiled, _ = both(lambda: ops.sum(scaled(v * 1.0)), [v])
    np.testing.assert_allclose(compiled[0].numpy(), 7)
    assert len(calls) == 4 and reverse_programs.count() == 0


def test_rows_of_a_table_stay_sparse():
    table = tk.Variable(value(5000, 8))
    compiled, expected = both(
        lambda: ops.sum(ops.take(table, [1, 4, 4], axis=0)), [table]
    )
    assert type(compiled[0]) is type(expected[0])
    np.testing.assert_allclose(np.asarray(compiled[0]), np.asarray(expected[0]))


def test_random_operations_and_views():
    v = tk.Variable(value(6, 4))
    dropout = layers.Dropout(0.5, seed=1)

    def loss_of():
        x = ops.transpose(v)[1:, ::2]
        return ops.sum(ops.broadcast_to(ops.flip(x), (2, 3, 3)) ** 2)

    assert_same(loss_of, [v])
    for _ in range(3):
        with tk.GradientTape() as tape:
            y = dropout(v * 1.0, training=True)
            loss = ops.sum(y)
        kept = y.numpy() != 0
        np.testing.assert_allclose(tape.gradient(loss, v).numpy(), 2.0 * kept)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_dtypes(dtype):
    v = tk.Variable(ops.cast(value(3, 4), dtype))
    x = ops.cast(value(4, 2), dtype)
    tolerances = {} if dtype == "float64" else {"rtol": 2e-2, "atol": 2e-2}
    compiled, expected = both(lambda: ops.sum(ops.tanh(v @ x)), [v])
    assert compiled[0].dtype == dtype
    actual, expected = (
        ops.cast(g, "float64").numpy() for g in (compiled[0], expected[0])
    )
    np.testing.assert_allclose(actual, expected, **({"rtol": 1e-9} | tolerances))


def test_loop_with_another_length_in_each_step_is_not_compiled_for_ever():
    v = tk.Variable(value(4))
    for length in range(2, 40):
        x = ops.convert_to_tensor(value(length, 4))
        with tk.GradientTape() as tape:
            loss = ops.sum(ops.tanh(x * v))
        expected = ((1 - np.tanh(x.numpy() * v.numpy()) ** 2) * x.numpy()).sum(0)
        np.testing.assert_allclose(tape.gradient(loss, v).numpy(), expected, 1e-4, 1e-5)
    assert reverse_programs.count() <= 8


def test_threads():
    v, errors = tk.Variable(value(4)), []

    def train(seed):
        for step in range(20):
            x = ops.convert_to_tensor(value(3 + step % 3, 4, seed=seed))
            with tk.GradientTape() as tape:
                loss = ops.sum(x * v)
            if not np.allclose(tape.gradient(loss, v).numpy(), x.numpy().sum(0), 1e-4):
                errors.append(seed)

    threads = [threading.Thread(target=train, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_loop_that_is_resumed_has_the_same_bits():
    def steps(v, first, last):
        optimizer = tk.optimizers.SGD(0.1)
        for step in range(first, last):
            x = ops.convert_to_tensor(value(4, 4, seed=step))
            with tk.GradientTape() as tape:
                loss = ops.sum(ops.tanh(x @ v) ** 2)
            optimizer.apply([tape.gradient(loss, v)], [v])

    whole, parts = tk.Variable(value(4, 2)), tk.Variable(value(4, 2))
    steps(whole, 0, 6)
    for step in range(6):
        reverse_programs.clear()
        steps(parts, step, step + 1)
    np.testing.assert_array_equal(whole.numpy(), parts.numpy())


def test_changed_precision_has_an_effect():
    previous = tk.config.matmul_precision()
    try:
        weights = tk.Variable(np.eye(64, dtype="float32") + 0.01)
        x = ops.convert_to_tensor(np.full((64, 64), 1.001, "float32"))
        for precision in ("strict", "highest", "strict"):
            tk.config.set_matmul_precision(precision)
            with tk.GradientTape() as tape:
                loss = ops.sum(x @ weights)
            gradient = tape.gradient(loss, weights).numpy()
            np.testing.assert_allclose(gradient, 64 * 1.001, rtol=1e-5)
        assert reverse_programs.count() == 2  # one for each precision
    finally:
        tk.config.set_matmul_precision(previous)


def test_tape_that_observes_its_pass_runs_in_python():
    operations = []

    class Observer(tk.GradientTape):
        def _pull_back(self, node, gs):
            operations.append(node.op.name)
            return super()._pull_back(node, gs)

    v = tk.Variable(value(3))
    for _ in range(2):
        with Observer() as tape:
            loss = ops.sum(ops.exp(v))
        tape.gradient(loss, v)
    assert operations == ["sum", "exp"] * 2 and reverse_programs.count() == 0


def test_replayed_operations_have_the_program_of_their_first_call():
    v = tk.Variable(value(3, seed=5))

    def loss():
        return ops.sum(v.value * 0.515 + ops.tanh(v.value * 0.515))

    for _ in range(5):
        assert_same(loss, [v])


def test_equal_numbers_in_one_pass_and_others_in_the_next():
    """Equal numbers share a tensor, and the program must not depend on that."""
    v = tk.Variable(value(3, 4))
    for alpha in (0.5, 1.0, 2.0, 0.5):
        with tk.GradientTape() as tape:
            loss = ops.sum(ops.exp(v * alpha) * 0.5)
        expected = np.exp(v.numpy() * alpha) * alpha / 2
        np.testing.assert_allclose(tape.gradient(loss, v).numpy(), expected, rtol=1e-5)
    assert reverse_programs.count() == 1
