"""Test `training` in a call on symbols: it applies in fit, evaluate and predict."""

import numpy as np
import pytest

import toolkit
from toolkit import Input, Model, layers

X = np.random.default_rng(0).normal(size=(16, 3)).astype("float32") * 3 + 2


def as_layer(layer):
    return layer


def as_sequential(layer):
    return toolkit.Sequential([Input((3,)), layer])


def as_functional(layer):
    inputs = Input((3,))
    return Model(inputs, layer(inputs))


def as_nested(layer):
    return as_functional(as_sequential(layer))


class Block(layers.Layer):
    """A layer whose `call` takes no `training`."""

    def __init__(self, layer, **kwargs):
        super().__init__(**kwargs)
        self.layer = layer

    def call(self, inputs):
        return self.layer(inputs)


PARTS = [as_layer, as_sequential, as_functional, as_nested, Block]


@pytest.mark.parametrize("wrap", PARTS)
def test_training_false_keeps_moving_averages_in_fit(wrap):
    norm = layers.BatchNormalization()
    inputs = Input((3,))
    model = Model(inputs, wrap(norm)(inputs, training=False))
    model.compile("sgd", "mse")
    model.fit(X, X, verbose=0)
    np.testing.assert_array_equal(norm.moving_mean, np.zeros(3))
    outer = as_functional(model)
    outer(X, training=True)
    np.testing.assert_array_equal(norm.moving_mean, np.zeros(3))


@pytest.mark.parametrize("wrap", PARTS)
def test_training_true_drops_in_predict(wrap):
    inputs = Input((3,))
    model = Model(inputs, wrap(layers.Dropout(0.5))(inputs, training=True))
    model.compile("sgd", "mse")
    assert (model.predict(X, verbose=0) == 0).any()
    assert (model(X, training=False).numpy() == 0).any()
    assert model.evaluate(X, X, verbose=0) > 0


def test_training_by_position():
    norm = layers.BatchNormalization()
    inputs = Input((3,))
    model = Model(inputs, as_functional(norm)(inputs, False))
    model(X, training=True)
    np.testing.assert_array_equal(norm.moving_mean, np.zeros(3))


def test_training_none_follows_the_model():
    norm = layers.BatchNormalization()
    inputs = Input((3,))
    model = Model(inputs, norm(inputs, training=None))
    model(X, training=True)
    assert (norm.moving_mean.numpy() != 0).all()


def test_calls_of_a_shared_layer_keep_their_argument():
    drop = layers.Dropout(0.5)
    inputs = Input((3,))
    model = Model(inputs, [drop(inputs, training=True), drop(inputs)])
    dropped, inference = model.predict(X, verbose=0)
    assert (dropped == 0).any()
    np.testing.assert_array_equal(inference, X)


def test_training_is_kept_by_files_and_clones(tmp_path):
    inputs = Input((3,))
    x = layers.BatchNormalization(name="norm")(inputs, training=False)
    model = Model(inputs, layers.Dropout(0.5)(x, training=True))
    for name in ("model.keras", "model.h5"):
        model.save(tmp_path / name)
    for other in (
        toolkit.models.load_model(tmp_path / "model.keras"),
        toolkit.models.load_model(tmp_path / "model.h5"),
        toolkit.models.clone_model(model),
        Model.from_config(model.get_config()),
    ):
        assert (other.predict(X, verbose=0) == 0).any()
        other(X, training=True)
        norm = other.get_layer("norm")
        np.testing.assert_array_equal(norm.moving_mean, np.zeros(3))
