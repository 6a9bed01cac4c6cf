"""Test that a NaN or infinite pixel changes only the outputs that depend on it."""

import numpy as np
import pytest

import toolkit
from toolkit import layers, ops

METHODS = ["nearest", "bilinear", "bicubic", "lanczos3", "lanczos5"]
# From small and large images, by products, sums of pixels, and integer factors.
SIZES = [(8, 5), (8, 11), (8, 16), (70, 31), (70, 97), (70, 3)]


def dependence_of(function, n):
    """Return (outputs, n): whether an output depends on a pixel of a row."""
    rows = np.eye(n, dtype="float32").reshape(n, 1, n, 1)
    return np.abs(np.asarray(function(rows))[:, 0, :, 0].T) > 1e-12


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n, count", SIZES)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_resize(n, count, method, antialias, traced, value):
    def resized(x):
        return ops.image.resize(x, (1, count), method, antialias)

    function = toolkit.function(resized) if traced else resized
    x = np.random.default_rng(0).normal(size=(1, 1, n, 1)).astype("float32")
    index = n // 3
    expected = dependence_of(resized, n)[:, index]
    finite = np.asarray(function(x))[0, 0, :, 0]
    x[0, 0, index] = value
    actual = np.asarray(function(ops.convert_to_tensor(x)))[0, 0, :, 0]
    np.testing.assert_array_equal(~np.isfinite(actual), expected)
    np.testing.assert_allclose(
        actual[~expected], finite[~expected], rtol=1e-4, atol=1e-5
    )
    assert (np.isnan(actual[expected]) == np.isnan(value)).all()


def test_gradients_of_windows_without_nan():
    x = toolkit.Variable(np.ones((1, 1, 8, 1), "float32"))
    x.assign(np.where(np.arange(8).reshape(1, 1, 8, 1) == 2, np.nan, 1.0))
    with toolkit.GradientTape() as tape:
        y = ops.image.resize(x, (1, 5))
        loss = ops.sum(ops.where(ops.isnan(y), 0.0, y))
    assert np.isfinite(np.asarray(tape.gradient(loss, x))).all()


def test_scale_and_translate():
    x = np.ones((8, 8), "float32")
    x[2, 2] = np.nan
    y = ops.image.scale_and_translate(
        x, (5, 5), np.array([0.625, 0.625]), np.zeros(2), (0, 1), "linear", False
    )
    assert 0 < np.isnan(np.asarray(y)).sum() <= 4


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("mode", ["constant", "nearest", "reflect", "mirror", "wrap"])
def test_coordinates_and_transforms(order, mode):
    x = np.ones((6, 6), "float32")
    x[2, 2] = np.nan
    coordinates = np.stack(np.meshgrid(np.arange(6.0), np.arange(6.0), indexing="ij"))
    y = ops.image.map_coordinates(x, coordinates, order, mode)
    np.testing.assert_array_equal(np.isnan(np.asarray(y)), np.isnan(x))
    identity = np.array([1, 0, 0, 0, 1, 0, 0, 0], "float32")
    interpolation = ("nearest", "bilinear")[order]
    y = ops.image.affine_transform(x[..., None], identity, interpolation, mode)
    np.testing.assert_array_equal(np.isnan(np.asarray(y))[..., 0], np.isnan(x))


@pytest.mark.parametrize(
    "layer",
    [
        lambda: layers.Resizing(5, 5),
        lambda: layers.Resizing(5, 7, "bicubic", crop_to_aspect_ratio=True),
        lambda: layers.UpSampling2D(2, interpolation="bilinear"),
        lambda: layers.RandomZoom((0.2, 0.2), seed=1),
        lambda: layers.RandomTranslation(0.1, 0.1, seed=1),
    ],
)
def test_layers(layer):
    x = np.ones((1, 8, 8, 1), "float32")
    x[0, 2, 2] = np.nan
    y = np.asarray(
        layer()(x, training=True) if "Random" in str(layer()) else layer()(x)
    )
    assert 0 < np.isnan(y).sum() <= 16


def test_gradients_at_integer_coordinates():
    x = np.arange(12.0, dtype="float32").reshape(3, 4) ** 2
    coordinates = toolkit.Variable([[1.0], [2.0]])
    with toolkit.GradientTape() as tape:
        y = ops.sum(ops.image.map_coordinates(x, coordinates, 1))
    vertical, horizontal = np.asarray(tape.gradient(y, coordinates))[:, 0]
    assert (vertical, horizontal) == (x[2, 2] - x[1, 2], x[1, 3] - x[1, 2])
