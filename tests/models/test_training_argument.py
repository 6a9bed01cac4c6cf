"""Test `training` in a call on symbols: it applies in fit, evaluate and predict."""

import warnings

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


class Subclassed(Model):
    """A model whose `call` has no argument `training`."""

    def __init__(self, *parts):
        super().__init__()
        self.parts = [*parts, layers.Dense(3)]

    def call(self, x):
        for layer in self.parts:
            x = layer(x)
        return x


def warnings_of(model, *calls):
    """Return the warnings of `fit`, or of other methods."""
    model.compile("sgd", "mse")
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always")
        for name in calls or ("fit",):
            getattr(model, name)(*((X,) if name == "predict" else (X, X)), verbose=0)
    return [str(warning.message) for warning in issued]


SENSITIVE = {
    "dropout": lambda: layers.Dropout(0.5),
    "batch_normalization": layers.BatchNormalization,
    "gaussian_noise": lambda: layers.GaussianNoise(1.0),
    "block": lambda: Block(layers.Dropout(0.5, name="inner")),
    "sequential": lambda: as_sequential(layers.Dropout(0.5, name="inner")),
    "spectral": lambda: layers.SpectralNormalization(layers.Dense(3), name="spectral"),
}


@pytest.mark.parametrize("name", SENSITIVE)
def test_a_model_without_training_warns_of_layers_in_inference_mode(name):
    layer = SENSITIVE[name]()
    model = Subclassed(layer)
    (message,) = warnings_of(model, "fit", "fit", "evaluate", "predict")
    inner = "inner" if name in ("block", "sequential") else layer.name
    assert message.startswith(f"fit: the `call` of {model.name!r} has no argument")
    assert f"so {inner!r} (" in message
    assert message.endswith(
        "in inference mode; define `call(self, inputs, training=None)`"
    )


def test_recurrent_dropout_and_attention_are_sensitive_to_the_mode():
    class Sequences(Model):
        def __init__(self, layer):
            super().__init__()
            self.expand, self.layer = layers.Reshape((3, 1)), layer

        def call(self, x):
            return self.layer(self.expand(x))[:, :3]

    for dropout, count in ((0.5, 1), (0.0, 0)):
        recurrent = layers.Bidirectional(layers.LSTM(2, dropout=dropout))
        assert len(warnings_of(Sequences(recurrent))) == count


def test_augmentation_without_training_argument_warns_in_predict():
    noise = layers.RandomBrightness(0.5, value_range=(0, 1))

    class Augmented(Model):
        def __init__(self):
            super().__init__()
            self.noise, self.flatten = noise, layers.Flatten()

        def call(self, x):
            return self.flatten(self.noise(layers.Reshape((3, 1, 1))(x)))

    model = Augmented()
    (message,) = warnings_of(model, "predict", "predict", "evaluate")
    assert f"{noise.name!r} (RandomBrightness) run in training mode" in message


class Explicit(Subclassed):
    def call(self, x):
        for layer in self.parts:
            x = layer(x, training=True)
        return x


class Frozen(Subclassed):
    def __init__(self, *parts):
        super().__init__(*parts)
        self.parts[0].trainable = False


class WithTraining(Subclassed):
    def call(self, x, training=None):
        return super().call(x)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Explicit(layers.Dropout(0.5), layers.BatchNormalization()),
        lambda: Frozen(layers.BatchNormalization()),
        lambda: WithTraining(layers.Dropout(0.5), layers.BatchNormalization()),
        lambda: Subclassed(layers.Dropout(0.0), layers.LayerNormalization()),
        lambda: as_functional(Block(as_sequential(layers.BatchNormalization()))),
        lambda: as_sequential(Block(layers.BatchNormalization())),
    ],
)
def test_no_warning_if_each_layer_has_its_mode(make):
    assert warnings_of(make(), "fit", "evaluate", "predict") == []


def test_the_mode_of_a_call_reaches_the_layers_of_a_model_without_training():
    model = Subclassed(layers.Dropout(0.5))
    model.parts[1] = layers.Identity()
    assert (model(X, training=True).numpy() == 0).any()
    assert (model(X).numpy() == X).all()
