"""Test compiled steps of models whose layers, weights or settings change."""

import copy

import numpy as np
import pytest

import toolkit
from tests.helpers import assert_close
from toolkit import activations, callbacks, layers, ops, optimizers

X = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")
Y = X[:, :2] * 0.5


def model(**options):
    sequential = toolkit.Sequential(
        [layers.Input((4,)), layers.Dense(3, "tanh"), layers.Dense(2)]
    )
    sequential.compile(**{"optimizer": "sgd", "loss": "mse", **options})
    return sequential


def wrapped(inner):
    class Wrapped(toolkit.Model):
        def __init__(self):
            super().__init__()
            self.inner = inner

        def call(self, x):
            return self.inner(x)

    return Wrapped()


def predicts_what_it_computes(it):
    assert_close(it.predict(X, verbose=0), it(X))
    return it.predict(X, verbose=0).shape


def trace_counts(it):
    functions = (it.train_function, it.test_function, it.predict_function)
    return [0 if function is None else function.trace_count for function in functions]


def test_layers_can_be_added_and_removed():
    it = model()
    outer = wrapped(it)
    assert predicts_what_it_computes(it) == predicts_what_it_computes(outer) == (8, 2)
    it.pop()
    assert predicts_what_it_computes(it) == predicts_what_it_computes(outer) == (8, 3)
    it.add(layers.Dense(7))
    assert predicts_what_it_computes(it) == predicts_what_it_computes(outer) == (8, 7)


def test_adapted_layer_is_traced_again():
    it = model()
    it.evaluate(X, Y, verbose=0)
    it.predict(X, verbose=0)
    it.layers[0].enable_lora(2)
    it.layers[0].lora_kernel_b.assign(np.ones((2, 3)))
    predicts_what_it_computes(it)
    loss = float(ops.mean(ops.square(it(X) - Y)))
    assert it.evaluate(X, Y, verbose=0) == pytest.approx(loss, 1e-4)


def test_constructor_arguments_of_functions():
    it = model()
    it.predict(X, verbose=0)
    for activation in (activations.sigmoid, activations.get(None)):
        it.layers[-1].activation = activation
        predicts_what_it_computes(it)


def test_setting_changed_by_a_callback():
    class Scaled(toolkit.Model):
        def __init__(self, factor):
            super().__init__()
            self.factor, self.dense = factor, layers.Dense(1)

        def call(self, x):
            return self.dense(x)

        def compute_loss(self, x, y, y_pred, sample_weight=None, training=True):
            return self.factor * ops.mean(y_pred * 0 + 1)

    class Anneal(callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.model.factor = 10.0 * epoch

    it = Scaled(1.0)
    it.compile("sgd")
    history = it.fit(X, Y, epochs=3, verbose=0, callbacks=[Anneal()]).history
    assert history["loss"] == [0.0, 10.0, 20.0]


def test_optimizer_can_be_replaced():
    it = model()
    it.fit(X, Y, verbose=0)
    it.optimizer = optimizers.SGD(0.0)
    before = it.get_weights()
    it.fit(X, Y, verbose=0)
    assert all(map(np.array_equal, before, it.get_weights()))


def test_run_eagerly_can_be_changed():
    values = []

    class Seen(layers.Layer):
        def call(self, x):
            values.append(1)
            return x

    it = toolkit.Sequential([layers.Input((4,)), Seen(), layers.Dense(2)])
    it.compile("sgd", "mse")
    for run_eagerly in (False, True, False):
        it.run_eagerly = run_eagerly
        it.predict(X, verbose=0)
        it.fit(X, Y, verbose=0)
        values.clear()
        it.predict(X, verbose=0)
        it.fit(X, Y, verbose=0)
        assert bool(values) == run_eagerly
    it.predict_function = custom = lambda batch: batch
    it.run_eagerly = True
    assert it.make_predict_function() is custom


class Late(toolkit.Model):
    """A layer that its first call builds, with attributes named like its arguments."""

    def __init__(self, batch=None, mode=None, scale=1.0):
        super().__init__()
        self.batch, self.mode, self.scale, self.calls = batch, mode, scale, 0
        self.parts = [layers.Dense(3), layers.LSTM(2), layers.Dropout(0.5)]

    def call(self, x, training=None):
        self.calls += 1
        self.batch, self.mode = 10**6 + x.shape[0], training
        for layer in self.parts:
            x = layer(x)
        return x * self.scale


def test_unrelated_changes_do_not_retrace():
    it = Late()
    it.compile("adam", "mse", metrics=["mae", "mape"])
    x, y = ops.ones((4, 3, 2)), ops.ones((4, 2))
    calls = []
    for _ in range(3):
        it.fit(x, y, epochs=2, verbose=0, validation_data=(x, y))
        it.evaluate(x, y, verbose=0)
        it.predict(x, verbose=0)
        model().fit(X, Y, verbose=0)  # changes of other objects
        it.trainable, it.scale = True, float("1")
        it.parts[0].built = True
        it(x)
        calls.append(it.calls)
    assert calls[2] - calls[1] == calls[1] - calls[0] == 1
    assert trace_counts(it) == [1, 1, 1]
    it.scale = 2.0
    it.predict(x, verbose=0)
    assert trace_counts(it) == [1, 1, 2]


def test_copies_have_separate_steps():
    it = model()
    it.predict(X, verbose=0)
    twin = copy.deepcopy(it)
    twin.pop()
    assert predicts_what_it_computes(twin) == (8, 3)
    assert predicts_what_it_computes(it) == (8, 2)
    assert trace_counts(it)[2] == 1


def test_shallow_copy_has_separate_weights():
    it = model()
    for original in (it, it.layers[0]):
        twin = copy.copy(original)
        before = original.get_weights()
        twin.set_weights([w + 1 for w in before])
        assert all(map(np.array_equal, before, original.get_weights()))


def test_paths_of_objects_without_weights():
    x = layers.Input((4,))
    flat, add = layers.Flatten(), layers.Add()
    inner = toolkit.Model(x, add([flat(x), x]), name="inner")
    outer = toolkit.Model(x, layers.Activation("relu")(inner(x)), name="outer")
    assert (flat.path, add.path) == (flat.name, add.name)
    assert (inner.path, outer.path) == ("inner", "outer")
    drop = layers.Dropout(0.5)
    assert drop.path is None
    nested = toolkit.Sequential([layers.Input((4,)), drop], name="nested")
    assert drop.path == f"nested/{nested.layers[0].name}"
