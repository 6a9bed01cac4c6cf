"""Tests of repeated eager calls of layers, whose Python code runs only at first."""

import copy
import gc
import pickle
import signal
import subprocess
import sys
import weakref

import numpy as np
import pytest

import toolkit as tk
from tests.helpers import count_functions, threads_running
from toolkit import layers, ops
from toolkit.layers.tracking import with_losses

RNG = np.random.default_rng(0)


def value(*shape):
    return ops.convert_to_tensor(RNG.normal(size=shape).astype("float32"))


def mlp(activation="relu"):
    return tk.Sequential(
        [tk.Input((4,)), layers.Dense(5, activation=activation), layers.Dense(3)]
    )


def functional():
    x = tk.Input((4,))
    y = layers.Dense(4, activation="gelu")(x)
    return tk.Model(x, layers.Dense(2)(ops.tanh(y) + x))


def convolutional():
    return tk.Sequential(
        [
            tk.Input((6, 6, 2)),
            layers.Conv2D(3, 3, activation="silu"),
            layers.BatchNormalization(),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.LayerNormalization(),
            layers.Dropout(0.5),
            layers.Dense(2, activation="softmax"),
        ]
    )


def nested():
    return tk.Sequential([tk.Input((4,)), mlp(), functional_of(3)])


def functional_of(size):
    x = tk.Input((size,))
    return tk.Model(x, [layers.Dense(2)(x), layers.Dense(3)(x)])


MODELS = {
    "mlp": (mlp, (3, 4)),
    "functional": (functional, (3, 4)),
    "convolutional": (convolutional, (2, 6, 6, 2)),
    "nested": (nested, (3, 4)),
    "dense": (lambda: layers.Dense(3, activation="elu"), (3, 4)),
    "bfloat16": (lambda: layers.Dense(3, dtype="mixed_bfloat16"), (3, 4)),
    "embedding": (lambda: layers.Embedding(5, 3), None),
}


def repeated(model, x, times=4):
    """Call a model several times, so that it is replayed from now on."""
    for _ in range(times):
        y = model(x)
    return y


def arrays(y):
    return [np.asarray(leaf) for leaf in tk.tree.flatten(y)]


def assert_same_bits(a, b):
    for x, y in zip(arrays(a), arrays(b), strict=True):
        assert (x.shape, x.dtype, x.tobytes()) == (y.shape, y.dtype, y.tobytes())


@pytest.mark.parametrize("name", MODELS)
def test_replays_have_the_bits_of_the_first_call(name):
    make, shape = MODELS[name]
    model = make()
    x = ops.array([[1, 2]]) if shape is None else value(*shape)
    model(x)  # builds it
    first = model(x)
    for _ in range(4):
        assert_same_bits(model(x), first)
    replayed = count_functions(lambda: model(x))
    with tk.StatelessScope():
        assert_same_bits(model(x), first)
        assert replayed < count_functions(lambda: model(x))


def test_calls_of_a_model_run_few_functions():
    model, x = mlp(), value(3, 4)
    before = count_functions(lambda: model(x))
    repeated(model, x)
    assert before > 100 and count_functions(lambda: model(x)) < 25
    repeated(lambda x: model(x, training=False), x)
    assert count_functions(lambda: model(x, training=False)) < 25


def test_restored_functions_of_other_packages_allow_replays(monkeypatch):
    model, x = mlp(), value(3, 4)
    repeated(model, x)
    with monkeypatch.context() as patch:
        patch.setattr("toolkit.compiler.bound.perf_counter", lambda: 0.0)
    repeated(model, x)
    assert count_functions(lambda: model(x)) < 30


def test_other_values_and_shapes():
    model = mlp()
    for shape in [(3, 4), (5, 4), (3, 4), (1, 4)] * 3:
        x = value(*shape)
        weights = [np.asarray(w) for w in model.get_weights()]
        hidden = np.maximum(np.asarray(x) @ weights[0] + weights[1], 0)
        np.testing.assert_allclose(
            model(x), hidden @ weights[2] + weights[3], rtol=1e-5, atol=1e-6
        )


def change_weights(model):
    model.layers[0].kernel.assign(ops.ones((4, 5)))


def set_weights(model):
    model.set_weights([w + 1 for w in model.get_weights()])


def change_activation(model):
    model.layers[0].activation = tk.activations.tanh


def change_call(model):
    model.layers[1].call = lambda x: x * 2


def change_policy(model):
    model.layers[0].dtype_policy = "mixed_float16"


def pop(model):
    model.pop()


def add(model):
    model.add(layers.Dense(7))


def enable_lora(model):
    model.layers[0].enable_lora(2)
    model.layers[0].lora_kernel_b.assign(ops.ones((2, 5)))


def quantize(model):
    model.quantize("int8")


def remove_bias(model):
    model.layers[0].bias.assign(ops.ones(5))
    model.layers[0].bias = None
    model.layers[0].kernel.assign_add(ops.ones((4, 5)))


CHANGES = [
    *(change_weights, set_weights, change_activation, change_call, change_policy),
    *(pop, add, enable_lora, quantize, remove_bias),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_changes_of_a_model_have_an_effect(change):
    model, x = mlp(), value(3, 4)
    old = repeated(model, x)
    change(model)
    new = model(x)
    assert [y.tobytes() for y in arrays(new)] != [y.tobytes() for y in arrays(old)]
    assert_same_bits(repeated(model, x), new)


def test_replaced_methods_of_classes_run(monkeypatch):
    model, x = mlp(), value(3, 4)
    repeated(model, x)
    called = []
    for name in ("call", "__call__"):
        original = getattr(layers.Dense, name)

        def observe(self, *args, original=original, name=name, **kwargs):
            called.append(name)
            return original(self, *args, **kwargs)

        monkeypatch.setattr(layers.Dense, name, observe)
        for _ in range(4):
            called.clear()
            model(x)
            assert called.count(name) == 2
        monkeypatch.undo()


def test_replaced_methods_that_call_uses_run(monkeypatch):
    layer, x, called = layers.Conv2D(2, 3), value(1, 5, 5, 2), []
    repeated(layer, x)
    original = layers.Conv2D.convolution_op

    def observe(self, *args):
        called.append(1)
        return original(self, *args)

    monkeypatch.setattr(layers.Conv2D, "convolution_op", observe)
    repeated(layer, x, times=6)
    assert len(called) == 6


def test_replaced_functions_of_modules_run(monkeypatch):
    layer, x, called = tk.layers.Flatten(), value(2, 3, 4), []
    for _ in range(4):
        expected = layer(x)
    reshape = tk.ops.reshape

    def replacement(x, shape):
        called.append(shape)
        return reshape(x, shape) + 1

    monkeypatch.setattr(tk.ops, "reshape", replacement)
    for count in range(1, 5):
        np.testing.assert_array_equal(layer(x), expected + 1)
        assert len(called) == count
    monkeypatch.undo()
    for _ in range(4):
        np.testing.assert_array_equal(layer(x), expected)
    assert len(called) == 4


REPLACED_AT_FIRST = """
from toolkit import layers, ops

relu, scale = ops.relu, [0.0]
ops.relu = lambda x: relu(x) * scale[0]
layer, x = layers.ReLU(), ops.ones((2,))
for scale[0] in range(1, 6):
    assert layer(x).tolist() == [scale[0]] * 2, scale
ops.relu = relu
for _ in range(4):
    assert layer(x).tolist() == [1, 1]
"""


def test_functions_that_are_replaced_before_the_first_replay_run():
    subprocess.run([sys.executable, "-c", REPLACED_AT_FIRST], check=True)


class Late(Exception):
    pass


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_errors_of_signal_handlers_are_raised():
    def handle(*_):
        raised.append(1)
        raise Late

    raised, caught, before = [], [], signal.signal(signal.SIGALRM, handle)
    model = tk.Sequential([layers.Dense(8, activation="gelu") for _ in range(40)])
    gc.disable()  # Python drops errors in callbacks of the collector
    try:
        for i in range(1, 21):
            x = value(i, 4)
            model(x)
            try:
                signal.setitimer(signal.ITIMER_REAL, i * 1e-3)
                model(x)  # also traces
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Late:
                caught.append(1)
    finally:
        gc.enable()
        signal.signal(signal.SIGALRM, before)
    # Python also drops errors in finalizers.
    assert len(caught) > len(raised) // 2


def test_methods_of_layers_as_activations():
    relu, x = layers.ReLU(), value(3, 4)
    model = layers.Dense(5, activation=relu.call)
    y = repeated(model, x)
    relu.max_value = 0.01
    assert_same_bits(model(x), np.minimum(np.asarray(y), np.float32(0.01)))


def test_traced_functions_as_activations_run():
    program = tk.function(ops.relu)
    layer, x = layers.Dense(5, activation=program), value(3, 4)
    repeated(layer, x)
    assert count_functions(lambda: layer(x)) > 25


def test_replaced_weights_are_freed():
    layer, x = layers.Dense(3), value(2, 4)
    repeated(layer, x)
    kernel = weakref.ref(layer.kernel)
    layer.quantize("int8")
    gc.collect()
    assert kernel() is None


@pytest.fixture
def no_losses():
    """No layer of another test holds losses, so that no call looks for some."""
    layers_of_others = list(with_losses)
    with_losses.clear()
    yield
    with_losses.update(layers_of_others)


def test_layers_are_freed_without_the_garbage_collector(no_losses):
    layer = layers.Dense(3)
    repeated(layer, value(2, 4))
    reference = weakref.ref(layer)
    gc.disable()
    try:
        del layer
        assert reference() is None
    finally:
        gc.enable()


def test_code_of_the_user_runs_in_each_call():
    called = []

    def activation(x):
        called.append("activation")
        return ops.tanh(x)

    class Printing(layers.Dense):
        def call(self, x):
            called.append("layer")
            return super().call(x)

    class Model(tk.Sequential):
        def call(self, x, training=None, mask=None):
            called.append("model")
            return super().call(x)

    model = Model(
        [
            tk.Input((4,)),
            layers.Dense(3, activation=activation),
            Printing(3),
            layers.Lambda(lambda x: called.append("lambda") or x + 1),
        ]
    )
    x = value(2, 4)
    for _ in range(5):
        called.clear()
        model(x)
        assert called == ["model", "activation", "layer", "lambda"]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_arrays_are_replayed_as_tensors(dtype):
    model, x = mlp(), np.asarray(value(3, 4)).astype(dtype)
    first = model(x)
    for _ in range(4):
        assert_same_bits(model(x), first)
    assert_same_bits(model(ops.cast(x, "float32")), first)
    assert count_functions(lambda: model(x)) < 60


def test_activation_of_a_layer_that_becomes_code_of_the_user():
    model, x, called = mlp(), value(3, 4), []
    repeated(model, x)
    model.layers[0].activation = lambda x: called.append(1) or x
    for _ in range(4):
        model(x)
    assert len(called) == 4


def test_random_and_stateful_layers_in_training():
    model = tk.Sequential(
        [tk.Input((64,)), layers.BatchNormalization(), layers.Dropout(0.5)]
    )
    x, norm = value(8, 64), model.layers[0]
    outputs, means = set(), set()
    for _ in range(5):
        outputs.add(np.asarray(model(x, training=True)).tobytes())
        means.add(np.asarray(norm.moving_mean).tobytes())
    assert len(outputs) == len(means) == 5
    assert_same_bits(repeated(model, x), model(x, training=False))


def test_losses_of_layers():
    model = tk.Sequential(
        [
            tk.Input((4,)),
            layers.Dense(3, activity_regularizer="l2", kernel_regularizer="l2"),
            layers.ActivityRegularization(l1=1.0),
        ]
    )
    x = value(2, 4)
    for factor in range(5):
        model(x * float(factor))
        assert len(model.losses) == 3 and (float(model.losses[0]) > 0) == (factor > 0)


def test_losses_of_another_layer_allow_replays():
    other, model, x = layers.Dense(2, activity_regularizer="l2"), mlp(), value(3, 4)
    other(x)
    repeated(model, x)
    assert count_functions(lambda: model(x)) < 30
    assert len(other.losses) == 1


def test_a_loss_from_outside_of_a_call_is_dropped():
    model, x = mlp(), value(3, 4)
    repeated(model, x)
    model.layers[0].add_loss(ops.sum(x))
    assert len(model.losses) == 1
    model(x)
    assert not model.losses


def test_losses_of_an_earlier_call_are_dropped():
    class Loss(layers.Layer):
        def call(self, x):
            self.add_loss(ops.sum(x))
            return x

    plain = mlp()
    x, outer = value(3, 4), tk.Sequential([Loss(), plain])
    repeated(plain, x)
    outer(x)
    assert len(outer.losses) == 1
    plain(x)
    assert len(outer.losses) == 1
    outer(x)
    assert len(outer.losses) == 1


def test_masks_of_inputs_and_outputs():
    x = ops.array([[1, 2, 0]])
    masked = layers.Embedding(5, 3, mask_zero=True)
    model = tk.Sequential([masked, layers.LSTM(2)])
    assert np.asarray(repeated(masked, x)._keras_mask).tolist() == [[True, True, False]]
    shorter = np.asarray(model(x[:, :2]))
    np.testing.assert_allclose(repeated(model, x), shorter, rtol=1e-5)


def test_errors_of_replayed_calls():
    model, embedding = mlp(), layers.Embedding(3, 2)
    repeated(model, value(3, 4)), repeated(embedding, ops.array([1, 2]))
    with pytest.raises(tk.errors.OutOfRangeError, match="embedding"):
        embedding(ops.array([1, 7]))
    with pytest.raises(tk.errors.ShapeError):
        model(value(3, 5))
    model.layers[0].input_spec = layers.InputSpec(ndim=3)
    with pytest.raises(tk.errors.ShapeError, match="expected 3 axes"):
        model(value(3, 4))


def test_settings():
    model, x = mlp("gelu"), value(3, 4)
    y = repeated(model, x)
    tk.config.set_floatx("float64")
    try:
        assert_same_bits(repeated(model, x), y)
    finally:
        tk.config.set_floatx("float32")
    tk.config.set_backend("reference")
    try:
        np.testing.assert_allclose(repeated(model, x), y, rtol=1e-5, atol=1e-6)
    finally:
        tk.config.set_backend("numpy")


def test_stateless_calls_and_functions():
    model, x = mlp(), value(3, 4)
    repeated(model, x)
    zeros = [ops.zeros(v.shape) for v in model.trainable_variables]
    y, _ = model.stateless_call(zeros, [], x)
    assert not np.any(np.asarray(y))
    compiled = tk.function(lambda x: model(x))
    np.testing.assert_allclose(compiled(x), model(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["mlp", "functional", "convolutional", "nested"])
def test_gradients_of_replayed_calls(name):
    make, shape = MODELS[name]
    model, x = make(), value(*shape)

    def gradients():
        with tk.GradientTape() as tape:
            tape.watch(x)
            total = sum(ops.sum(ops.square(y)) for y in tk.tree.flatten(model(x)))
        variables = tape.watched_variables()
        names = [v.path for v in variables]
        # weights of the target select the pass in Python
        return names, tape.gradient(total, [x, *variables], ops.ones_like(total))

    names, first = gradients()
    for _ in range(4):
        repeated_names, repeated_gradients = gradients()
        assert repeated_names == names
        assert_same_bits(repeated_gradients, first)


def test_second_derivatives_of_replayed_calls():
    model, x = mlp("tanh"), value(2, 4)

    def second():
        with tk.GradientTape() as outer:
            outer.watch(x)
            with tk.GradientTape() as inner:
                inner.watch(x)
                y = ops.sum(model(x))
            g = ops.sum(ops.square(inner.gradient(y, x)))
        return outer.gradient(g, x)

    first = second()
    for _ in range(4):
        np.testing.assert_allclose(second(), first, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "duplicate",
    [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))],
    ids=["copy", "pickle"],
)
def test_copies_have_separate_replays(duplicate):
    model, x = mlp(), value(3, 4)
    y = repeated(model, x)
    other = duplicate(model)
    assert_same_bits(repeated(other, x), y)
    change_weights(model)
    assert_same_bits(other(x), y)


def test_threads_replay_one_model():
    model, x = mlp(), value(3, 4)
    y, wrong = model(x), []

    def call():
        for _ in range(100):
            if np.asarray(model(x)).tobytes() != np.asarray(y).tobytes():
                wrong.append(1)

    with threads_running(call):
        for _ in range(50):
            model.layers[0].activation = tk.activations.relu
    assert not wrong


def test_results_of_replays_are_not_overwritten():
    x = value(4, 4)
    dense = layers.Dense(4, use_bias=False)
    flat = tk.Sequential([tk.Input((4,)), dense, layers.Reshape((2, 2))])
    flat.compile("sgd", "mse")
    y = repeated(flat, x)
    kept = np.array(y)
    flat.train_on_batch(x, np.ones((4, 2, 2)))
    other = flat(x)
    assert not np.array_equal(other, kept)
    np.testing.assert_array_equal(y, kept)
