"""Test that copies and pickles of trained models continue independently."""

import copy
import pickle

import numpy as np
import pytest

from toolkit import Input, Model, Sequential, layers, optimizers

RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 5)).astype("float32")
Y = RNG.normal(size=(20, 3)).astype("float32")


class Subclass(Model):
    def __init__(self):
        super().__init__()
        self.blocks = [layers.Dense(4), layers.Dropout(0.5)]
        self.out = layers.Dense(3)

    def call(self, x, training=False):
        for block in self.blocks:
            x = block(x, training=training)
        return self.out(x)


def functional():
    inputs = Input((5,))
    hidden = layers.Dense(4)(inputs) * 2.0
    merged = layers.Concatenate()([layers.BatchNormalization()(hidden), inputs])
    return Model(inputs, layers.Dense(3)(merged))


def sequential():
    return Sequential([layers.Dense(4), layers.Dropout(0.5), layers.Dense(3)])


def half_precision():
    return Sequential(
        [
            layers.Dense(4, dtype="mixed_float16"),
            layers.Dense(3, dtype="float32"),
        ]
    )


def by_pickle(x):
    return pickle.loads(pickle.dumps(x))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("duplicate", [copy.deepcopy, by_pickle])
@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("make", [functional, sequential, Subclass, half_precision])
def test_trained_model_continues(make, duplicate, eager):
    model = make()
    optimizer = optimizers.AdamW(0.1, use_ema=True)
    if make is half_precision:
        optimizer = optimizers.LossScaleOptimizer(optimizer)
    model.compile(optimizer, "mse", metrics=["mae"], run_eagerly=eager)
    model.fit(X, Y, verbose=0)
    before = model.predict(X, verbose=0)
    twin = duplicate(model)
    np.testing.assert_array_equal(twin.predict(X, verbose=0), before)
    losses = twin.fit(X, Y, shuffle=False, verbose=0).history
    np.testing.assert_array_equal(model.predict(X, verbose=0), before)
    assert (twin.predict(X, verbose=0) != before).any()
    assert model.fit(X, Y, shuffle=False, verbose=0).history == losses


def test_exclusions_from_weight_decay_are_copied():
    layer = layers.Dense(2, kernel_initializer="ones", bias_initializer="ones")
    layer.build((None, 2))
    optimizer = optimizers.AdamW(1.0, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(var_list=[layer.kernel])
    optimizer.build(layer.trainable_variables)
    optimizer, layer = by_pickle((optimizer, layer))
    optimizer.apply([np.zeros((2, 2), "float32"), np.zeros(2, "float32")])
    assert layer.kernel.numpy().tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert layer.bias.numpy().tolist() == [0.5, 0.5]
