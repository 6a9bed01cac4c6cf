"""Test dropout and noise: their values and shapes, and when they are inactive."""

import numpy as np
import pytest

import toolkit
from tests.helpers import assert_close
from toolkit import layers, ops
from toolkit.errors import ArgumentError, ShapeError

X = np.random.default_rng(0).normal(size=(4, 6, 5)).astype("float32") + 3.0

NOISE = {
    "Dropout": layers.Dropout,
    "AlphaDropout": layers.AlphaDropout,
    "GaussianDropout": layers.GaussianDropout,
    "GaussianNoise": layers.GaussianNoise,
    "SpatialDropout1D": layers.SpatialDropout1D,
}


@pytest.mark.parametrize("name", NOISE)
def test_inference_changes_no_values(name):
    layer = NOISE[name](0.5, seed=1)
    x = ops.convert_to_tensor(X)
    assert layer(x) is x and layer(x, training=False) is x
    assert not np.allclose(layer(x, training=True), X)
    assert layer.supports_masking


@pytest.mark.parametrize("name", NOISE)
def test_rate_of_zero_draws_no_numbers(name):
    layer = NOISE[name](0)
    x = ops.convert_to_tensor(X)
    assert layer(x, training=True) is x
    assert not layer.variables and not hasattr(layer, "seed_generator")
    assert len(NOISE[name](0.5).variables) == 1


@pytest.mark.parametrize("name", NOISE)
def test_seed_repeats_the_draws(name):
    first, second, third = (NOISE[name](0.5, seed=s) for s in (1, 1, 2))
    outputs = [layer(X, training=True).numpy() for layer in (first, second, third)]
    assert_close(outputs[0], outputs[1])
    assert not np.allclose(outputs[0], outputs[2])
    assert not np.allclose(
        first(X, training=True), outputs[0]
    )  # each call draws new numbers


@pytest.mark.parametrize("name", ["Dropout", "AlphaDropout"])
def test_rate_of_one_drops_all(name):
    assert not getattr(layers, name)(1.0)(X, training=True).numpy().any()


@pytest.mark.parametrize("name", ["Dropout", "AlphaDropout"])
@pytest.mark.parametrize(
    "shape", [(4, 1, 5), (None, 1, None), (1, None, 1), (None, 6, 5), [4, 1, 1]]
)
def test_noise_shape_is_broadcast(name, shape):
    layer = NOISE[name](0.5, noise_shape=shape, seed=1)
    y = layer(X, training=True).numpy()
    dropped = y == y.min() if name == "AlphaDropout" else y == 0
    for axis, n in enumerate(shape):
        is_broadcast = (dropped == dropped.take([0], axis)).all()
        assert is_broadcast == (n == 1)
    assert layer.noise_shape == tuple(shape)


def test_noise_shape_has_the_rank_of_the_inputs():
    with pytest.raises(
        ArgumentError, match=r"\(1, 5\) must have the same number of axes"
    ):
        layers.Dropout(0.5, noise_shape=(1, 5))(X, training=True)


@pytest.mark.parametrize(
    "shape, message",
    [
        (3, "a tuple or list of integers"),
        ("12", "a tuple or list of integers"),
        ((1, 0), "all dimensions to be positive integers or None"),
        ((-1, None), "all dimensions to be positive integers or None"),
        ((1, 2.0), "all elements to be integers or None"),
        ((0, "a"), "all elements to be integers or None"),
    ],
)
def test_invalid_noise_shapes_are_refused(shape, message):
    with pytest.raises(ArgumentError, match=f"Expected {message}; received"):
        layers.Dropout(0.5, noise_shape=shape)


SPATIAL = [
    (layers.SpatialDropout1D, (4, 7, 6), {}, (1,)),
    (layers.SpatialDropout2D, (4, 5, 7, 6), {}, (1, 2)),
    (layers.SpatialDropout3D, (4, 2, 5, 7, 6), {}, (1, 2, 3)),
    (layers.SpatialDropout2D, (4, 6, 5, 7), {"data_format": "channels_first"}, (2, 3)),
    (
        layers.SpatialDropout3D,
        (4, 6, 2, 5, 7),
        {"data_format": "channels_first"},
        (2, 3, 4),
    ),
]


@pytest.mark.parametrize("cls, shape, options, axes", SPATIAL)
def test_full_channels_are_dropped(cls, shape, options, axes):
    layer = cls(0.5, seed=3, **options)
    y = layer(np.ones(shape, "float32"), training=True).numpy()
    assert set(np.unique(y)) == {0.0, 2.0}
    assert (y.min(axes) == y.max(axes)).all()
    maxima = y.max(axes)  # by sample and channel
    assert maxima.shape == (4, 6)
    assert np.ptp(maxima, axis=0).any() and np.ptp(maxima, axis=1).any()
    with pytest.raises((ArgumentError, ShapeError), match="ndim|axes|expected"):
        layer(np.ones((*shape, 1), "float32"))
    config = layer.get_config()
    assert cls.from_config({**config, "trainable": True}).get_config() == config


def test_sequence_has_its_channels_last():
    assert layers.SpatialDropout1D(0.5, 1).data_format == "channels_last"
    layer = layers.SpatialDropout1D(0.5, 1, "mine", "float16")
    assert (layer.name, layer.compute_dtype, layer.seed) == ("mine", "float16", 1)


@pytest.mark.parametrize("stddev", [0.1, 2.0])
def test_gaussian_noise_has_its_standard_deviation(stddev):
    x = np.full(100_000, 5.0, "float32")
    added = layers.GaussianNoise(stddev, seed=1)(x, training=True).numpy() - 5.0
    assert abs(added.mean()) < 0.02 * stddev
    assert abs(added.std() / stddev - 1) < 0.02
    assert layers.GaussianNoise(stddev, dtype="float16")(x, training=True).dtype == (
        "float16"
    )


def test_multiplicative_noise_has_mean_one():
    x = np.full(100_000, 5.0, "float32")
    factor = layers.GaussianDropout(0.2, seed=1)(x, training=True).numpy() / 5.0
    assert abs(factor.mean() - 1) < 0.01
    assert abs(factor.std() - 0.5) < 0.01
    assert layers.GaussianDropout(0.2, dtype="float16")(x, training=True).dtype == (
        "float16"
    )


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: layers.GaussianNoise(-0.1), "stddev must be >= 0; received -0.1"),
        (lambda: layers.GaussianDropout(1), "rate must be below 1"),
        (lambda: layers.GaussianDropout(1.5), "rate"),
        (lambda: layers.Dropout(-0.1), "rate"),
        (lambda: layers.Dropout(1.1), "rate"),
    ],
)
def test_invalid_rates_are_refused(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()


def test_all_may_be_dropped():
    assert not np.any(layers.Dropout(1.0)(X, training=True).numpy())
    assert toolkit.layers.Dropout(1).rate == 1
