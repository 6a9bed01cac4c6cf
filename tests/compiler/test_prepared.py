"""Tests that values that depend only on weights are cached until the weights change."""

import gc
import threading
import weakref

import numpy as np
import pytest

import toolkit as tk
from toolkit import layers
from toolkit.compiler import prepared
from toolkit.compiler.prepared import PreparedOperands

IMAGES = np.linspace(-1, 1, 8 * 12 * 12 * 3).reshape(8, 12, 12, 3).astype("float32")
LABELS = np.linspace(0, 1, 8 * 4).reshape(8, 4).astype("float32")


def build():
    """Build convolutions, normalization and products, whose weights are packed."""
    tk.utils.set_random_seed(0)
    model = tk.Sequential(
        [
            tk.Input((12, 12, 3)),
            layers.Conv2D(48, 3),
            layers.BatchNormalization(),
            layers.Conv2D(64, 3, activation="relu"),
            layers.Conv2D(64, 3),
            layers.Flatten(),
            layers.Dense(96),
            layers.Dense(4),
        ]
    )
    model.compile(tk.optimizers.SGD(1e-3), "mse", metrics=["mae"])
    return model


@pytest.fixture
def cached_sizes(monkeypatch):
    """Record the numbers of bytes of cached values, in order."""
    sizes = []
    make = PreparedOperands._make

    def record_size(self, preparation):
        sizes.append(preparation.nbytes)
        return make(self, preparation)

    monkeypatch.setattr(PreparedOperands, "_make", record_size)
    return sizes


def expected(model, x):
    return np.asarray(model(x, training=False))


def check(model, rows=1):
    prediction = model.predict_on_batch(IMAGES[:rows])
    np.testing.assert_allclose(prediction, expected(model, IMAGES[:rows]), 1e-4, 1e-4)


def test_weights_are_packed_once(cached_sizes):
    model = build()
    check(model)
    count = len(cached_sizes)
    assert count
    check(model)
    assert len(cached_sizes) == count


def test_only_values_of_changed_weights_are_packed_again(cached_sizes):
    model = build()
    check(model)
    del cached_sizes[:]
    kernel = model.layers[2].kernel
    kernel.assign(kernel * 2)
    check(model)
    assert len(cached_sizes) == 1
    model.layers[3].bias.assign(model.layers[3].bias + 1)
    check(model)
    assert len(cached_sizes) == 1


def test_programs_share_equal_packed_weights(cached_sizes):
    model = build()
    first = tk.function(lambda x: model(x))
    second = tk.function(lambda x: model(x) + 1)
    x = tk.ops.convert_to_tensor(IMAGES)
    first(x)
    count = len(cached_sizes)
    assert count
    np.testing.assert_array_equal(second(x), first(x) + 1)
    assert len(cached_sizes) == count


class Inner(layers.Layer):
    """A convolution with the inner taps of larger weights, and a bias."""

    def build(self, input_shape):
        self.kernel = self.add_weight(shape=(5, 5, input_shape[-1], 24), name="kernel")
        self.bias = self.add_weight(shape=(24,), name="bias")

    def call(self, x):
        return tk.ops.conv(x, self.kernel[1:4, 1:4]) + self.bias


def test_copied_weights_are_packed():
    model = tk.Sequential([Inner()])
    check(model)
    model.layers[0].kernel.assign(model.layers[0].kernel * 2)
    check(model)


def test_factors_that_follow_from_weights_are_computed_once(cached_sizes):
    model = build()
    x = tk.ops.convert_to_tensor(IMAGES)
    step = tk.function(lambda x: model(x, training=False))
    step(x)
    cached_values = step.inspect(x).program.cached_values
    # The factor, the weights times it, and the term.
    shapes = [(1, 1, 1, 48), (1, 1, 1, 48), (3, 3, 3, 48)]
    assert sorted(y.spec.shape for y in cached_values) == shapes
    layer, count = model.layers[1], len(cached_sizes)
    layer.gamma.assign(layer.gamma * 3)
    np.testing.assert_allclose(step(x), expected(model, IMAGES), 1e-4, 1e-4)
    # Also the panels of these weights, unless whole vectors hold their channels. Only
    # the packed weights of three other layers stay.
    assert cached_sizes[count:] == cached_sizes[: count - 3]
    count = len(cached_sizes)
    layer.beta.assign(layer.beta + 1)
    np.testing.assert_allclose(step(x), expected(model, IMAGES), 1e-4, 1e-4)
    assert len(cached_sizes) == count + 1


def test_cached_values_depend_on_cached_values(cached_sizes):
    w, s = tk.Variable(np.eye(64, dtype="float32")), tk.Variable(np.ones(64))
    step = tk.function(lambda x: tk.ops.matmul(x, w * tk.ops.sqrt(s + 3)))
    x = np.linspace(-1, 1, 5 * 64).reshape(5, 64).astype("float32")
    for value in (1.0, 6.0):
        s.assign(np.full(64, value))
        for _ in range(2):
            np.testing.assert_allclose(step(x), x * np.sqrt(value + 3), 1e-5)
    assert len(cached_sizes) == 6  # the roots, the scaled weights, and their panels


def test_values_as_large_as_the_program_are_not_cached(cached_sizes):
    """Check averages of weights that change in each call."""
    weights = [tk.Variable(np.full((8, 8), i, "float32")) for i in range(3)]
    means = [tk.Variable(np.zeros((8, 8), "float32"), trainable=False) for _ in weights]

    @tk.function
    def follow():
        for mean, weight in zip(means, weights, strict=True):
            mean.assign(mean * 0.5 + weight * 0.5)

    for _ in range(2):
        follow()
        for weight in weights:
            weight.assign(weight + 1)
    assert cached_sizes == [] and float(means[2][0, 0]) == 0.5 * (0.5 * 2) + 0.5 * 3


def test_other_kernels_read_cached_values(cached_sizes):
    w = tk.Variable(np.array([[2.0, 1.0], [0.0, 4.0]], "float32"))
    step = tk.function(lambda x: tk.ops.matmul(x, tk.ops.linalg.inv(w * 2)))
    x = np.array([[1.0, 2.0]], "float32")
    for factor in (1, 3):
        w.assign(w * factor)
        for _ in range(2):
            expected = x @ np.linalg.inv(2 * np.asarray(w))
            np.testing.assert_allclose(step(x), expected, 1e-5)
    assert len(cached_sizes) == 2


def test_inputs_of_one_element_are_not_weights(cached_sizes):
    w = tk.Variable(np.ones((4, 4), "float32"))
    step = tk.function(lambda x: tk.ops.sum(w * x))
    for value in (1.0, 2.0):
        assert float(step(np.float32([value]))) == 16 * value


def test_views_of_weights_are_copied_once(cached_sizes):
    layer = layers.Dense(6, dtype="gptq/4/4_from_float32")
    layer.build((None, 10))
    random = np.random.default_rng(0)

    def assign():
        for variable in (layer.quantized_kernel, layer.kernel_zero):
            variable.assign(random.integers(0, 16, variable.shape))

    layer.kernel_scale.assign(random.uniform(1, 2, layer.kernel_scale.shape))
    layer.g_idx.assign(np.arange(10) // 4)
    step = tk.function(lambda x: layer(x))
    x = random.normal(size=(3, 10)).astype("float32")
    for count in (4, 6):  # numbers, zeros; scales and runs of blocks, which stay
        assign()
        for _ in range(2):
            np.testing.assert_allclose(step(x), x @ np.asarray(layer.kernel), 1e-4)
        assert len(cached_sizes) == count


def test_unused_cached_values_are_freed():
    model = build()
    model.predict_on_batch(IMAGES[:1])
    references = [weakref.ref(x) for x in list(prepared._cache.values())]
    assert references
    del model
    gc.collect()
    assert all(x() is None for x in references)


def test_old_weights_are_freed():
    model = build()
    model.predict_on_batch(IMAGES[:1])
    kernel = model.layers[2].kernel
    old = weakref.ref(kernel.exclusive_buffer())
    kernel.assign(np.zeros(kernel.shape))
    gc.collect()
    assert old() is None


@pytest.mark.parametrize("seed", range(3))
def test_any_order_of_training_and_inference(seed):
    model = build()
    random = np.random.default_rng(seed)

    def assign():
        variable = model.weights[random.integers(len(model.weights))]
        variable.assign(variable * 1.1)

    def evaluate():
        loss = model.evaluate(IMAGES, LABELS, verbose=0)[0]
        expected_loss = np.mean((expected(model, IMAGES) - LABELS) ** 2)
        np.testing.assert_allclose(loss, expected_loss, 1e-4)

    def load():
        model.set_weights([w * 0.9 for w in model.get_weights()])

    def fit():
        model.fit(IMAGES, LABELS, batch_size=8, verbose=0)

    def train():
        model.train_on_batch(IMAGES, LABELS)

    moves = [assign, evaluate, load, fit, train]
    moves += [lambda: check(model), lambda: check(model, 8)]
    for number in random.integers(len(moves), size=40):
        moves[number]()
    check(model)
    evaluate()


def test_state_may_change_without_the_weights():
    x = np.linspace(-1, 1, 2 * 5 * 3).reshape(2, 5, 3).astype("float32")
    tk.utils.set_random_seed(0)
    inputs = tk.Input(batch_shape=(2, 5, 3))
    model = tk.Model(inputs, layers.LSTM(8, stateful=True)(inputs))
    eager = layers.LSTM(8, stateful=True)
    eager.build((2, 5, 3))
    for scale in (1.0, 0.5):
        model.set_weights([w * scale for w in model.get_weights()])
        eager.set_weights(model.get_weights())
        for _ in range(3):
            np.testing.assert_allclose(model.predict(x, verbose=0), eager(x), 1e-5)


def test_threads_that_run_while_weights_are_assigned():
    model = build()
    kernel = model.layers[-1].kernel
    values = [np.full(kernel.shape, k, "float32") for k in (0, 1)]
    model.layers[-1].bias.assign(np.zeros(4))
    kernel.assign(values[1])
    model.predict_on_batch(IMAGES[:1])
    expected = model.predict_on_batch(IMAGES[:1])
    problems = []

    def predict():
        for _ in range(200):
            prediction = model.predict_on_batch(IMAGES[:1])
            if prediction.any() and not np.array_equal(prediction, expected):
                problems.append(prediction)

    threads = [threading.Thread(target=predict) for _ in range(3)]
    for thread in threads:
        thread.start()
    for k in range(200):
        kernel.assign(values[k % 2])
    for thread in threads:
        thread.join()
    assert not problems


def repeat_in_loop(body):
    """Return a loop of n iterations of a product, as generated code runs it."""
    return lambda n, x, w: tk.ops.while_loop(
        lambda i, x: i < n, lambda i, x: (i + 1, body(x, w)), (0, x)
    )[1]


def product(x, w):
    return tk.ops.tanh(x @ w)


def in_a_branch(x, w):
    is_positive = tk.ops.sum(x) > 0
    return tk.ops.cond(
        is_positive, lambda: product(x, w), lambda: product(x - 1.0, w) * 0.5
    )


# Loops and branches, and the number of their operands that are cached.
LOOPS = {
    "while": (repeat_in_loop(product), 1),
    "scan": (
        lambda n, x, w: tk.ops.fori_loop(0, 5, lambda i, x: product(x, w) + n, x),
        1,
    ),
    "condition": (
        lambda n, x, w: tk.ops.while_loop(
            lambda x: tk.ops.sum(x @ w) < 1e3, lambda x: product(x, w) + 1e3, x
        ),
        1,  # the condition and the body pack it equally
    ),
    "two": (repeat_in_loop(lambda x, w: product(product(x, w), w * 2.0)), 1),
    "loop in a loop": (
        repeat_in_loop(lambda x, w: repeat_in_loop(product)(3, x, w)),
        1,
    ),
    "choice": (lambda n, x, w: in_a_branch(x - n, w), 1),
    "choice in a loop": (repeat_in_loop(in_a_branch), 1),
    "of a part": (repeat_in_loop(lambda x, w: product(x, w[:, :96])), 1),
    "of a part behind": (repeat_in_loop(lambda x, w: product(x, w[:, 96:])), 0),
    "of what changes": (
        lambda n, x, w: repeat_in_loop(lambda w, x: product(x, w))(n, w, x),
        0,
    ),
}


@pytest.mark.parametrize("name", LOOPS)
def test_weights_of_loops_are_packed_once(name, cached_sizes):
    rule, count = LOOPS[name]
    random = np.random.default_rng(0)
    x = random.normal(size=(96, 96) if name == "of what changes" else (1, 96))
    w = random.normal(size=(96, 192 if "part" in name else 96)) / 8
    w = tk.Variable(w.astype("float32"))
    function = tk.function(lambda n, x: rule(n, x, w.read()))
    for scale in (1.0, 0.5):
        w.assign(w * scale)
        del cached_sizes[:]
        for n in (0, 1, 4):
            n = tk.ops.convert_to_tensor(np.int32(n))
            y = tk.ops.convert_to_tensor(x.astype("float32"))
            np.testing.assert_allclose(function(n, y), rule(n, y, w), 1e-4, 1e-4)
        assert len(cached_sizes) == count


@pytest.mark.parametrize("kind", [layers.LSTM, layers.GRU])
def test_recurrent_weights_are_packed_once(kind, cached_sizes):
    tk.utils.set_random_seed(0)
    layer = kind(64)
    x = np.linspace(-1, 1, 2 * 5 * 48).reshape(2, 5, 48).astype("float32")
    expected = layer(x)
    function = tk.function(lambda x: layer(x))
    np.testing.assert_allclose(function(x), expected, 1e-5, 1e-6)
    assert len(cached_sizes) == 1
    layer.set_weights([w * 0.5 for w in layer.get_weights()])
    np.testing.assert_allclose(function(x), layer(x), 1e-5, 1e-6)
    assert len(cached_sizes) == 2


def test_training_step_packs_its_weights(cached_sizes):
    model = build()
    model.fit(IMAGES, LABELS, batch_size=8, epochs=2, verbose=0)
    assert not cached_sizes


def test_arrays_of_a_variable_are_not_shared():
    variable = tk.Variable(np.ones(3, "float32"))
    variable.numpy()[:] = 5
    np.asarray(variable)[:] = 5
    np.array(variable)[:] = 5
    shared = np.array(variable, copy=False)
    with pytest.raises(ValueError, match="read-only"):
        shared[:] = 5
    assert variable.numpy().tolist() == [1, 1, 1]
    variable.assign([2, 2, 2])
    assert variable.numpy().tolist() == [2, 2, 2]


def test_in_place_steps_do_not_change_packed_weights():
    model, reference = build(), build()
    model.evaluate(IMAGES, LABELS, verbose=0)
    for _ in range(3):
        model.train_on_batch(IMAGES, LABELS)  # may write weights in place
        actual = model.evaluate(IMAGES, LABELS, verbose=0)
        weights = model.get_weights()
        model.train_on_batch(IMAGES, LABELS)
        reference.set_weights(weights)
        np.testing.assert_allclose(
            actual, reference.evaluate(IMAGES, LABELS, verbose=0)
        )


def test_inspect_lists_cached_values():
    function = tk.function(build().call)
    x = tk.ops.convert_to_tensor(IMAGES[:1])
    text = str(function.inspect(x))
    preparations = function.get_concrete_function(x).program.preparations
    assert preparations
    total = sum(x.nbytes for x in preparations)
    assert (
        f"cached until a weight changes: {total:,} bytes for {len(preparations)} "
        in text
    )
