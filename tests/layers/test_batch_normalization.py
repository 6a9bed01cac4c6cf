"""Test BatchNormalization against NumPy: axes, masks, statistics and limits."""

import numpy as np
import pytest

from tests.compiler.graphs import op_names, trace_of
from tests.helpers import assert_close
from toolkit import layers, ops
from toolkit.errors import ArgumentError, ShapeError
from toolkit.initializers import Constant

RNG = np.random.default_rng(0)
X = (RNG.normal(size=(4, 5, 3)) * 2 + 1).astype("float32")
MASK = np.array([[1, 1, 0, 1, 1], [1, 0, 1, 0, 1], [1, 1, 1, 1, 1], [0, 0, 0, 1, 1]])


def broadcast_to_axis(values, axis):
    """Expand values per channel to the rank of X."""
    shape = [1, 1, 1]
    shape[axis] = -1
    return np.reshape(values, shape)


def statistics(x, axis, mask=None):
    axes = tuple(i for i in range(3) if i != axis % 3)
    weights = (
        np.ones_like(x) if mask is None else np.broadcast_to(mask[..., None], x.shape)
    )
    mean = np.average(x, axes, weights)
    variance = np.average((x - broadcast_to_axis(mean, axis)) ** 2, axes, weights)
    return mean, variance


def normal(x, axis, mean, variance, gamma=1.0, beta=0.0, epsilon=1e-3):
    mean, deviation = (
        broadcast_to_axis(mean, axis),
        np.sqrt(broadcast_to_axis(variance, axis) + epsilon),
    )
    return (x - mean) / deviation * broadcast_to_axis(gamma, axis) + broadcast_to_axis(
        beta, axis
    )


def with_weights(layer, x=X):
    """Return the layer with weights that differ from the initial ones."""
    layer.build(x.shape)
    for v in layer.weights:
        v.assign(RNG.uniform(0.5, 1.5, v.shape))
    return layer


def of(layer, name, default):
    variable = getattr(layer, name)
    return default if variable is None else variable.numpy()


@pytest.mark.parametrize("mask", [None, MASK], ids=["whole", "masked"])
@pytest.mark.parametrize("axis", [-1, 2, 1, -2, 0])
@pytest.mark.parametrize("center, scale", [(True, True), (False, True), (True, False)])
def test_against_numpy(axis, mask, center, scale):
    layer = layers.BatchNormalization(axis, 0.75, center=center, scale=scale)
    with_weights(layer)
    affine = of(layer, "gamma", 1.0), of(layer, "beta", 0.0)
    moving = layer.moving_mean.numpy(), layer.moving_variance.numpy()
    mask_tensor = None if mask is None else ops.convert_to_tensor(mask.astype(bool))
    assert_close(
        layer(X, mask=mask_tensor), normal(X, axis, *moving, *affine), factor=10
    )
    assert_close(layer.moving_mean, moving[0])
    batch = statistics(X, axis, mask)
    outputs = layer(X, training=True, mask=mask_tensor)
    assert_close(outputs, normal(X, axis, *batch, *affine), factor=10)
    for updated, before, value in zip(
        (layer.moving_mean, layer.moving_variance), moving, batch, strict=True
    ):
        assert_close(updated, 0.75 * before + 0.25 * value, factor=10)


def test_mask_has_one_axis_less():
    layer = layers.BatchNormalization()
    with pytest.raises(ShapeError, match=r"one axis less.*\(4, 5, 3\); received \(4,"):
        layer(X, training=True, mask=ops.ones((4, 5, 3), "bool"))


def test_frozen_layer_updates_no_statistics():
    layer = with_weights(layers.BatchNormalization())
    layer.trainable = False
    before = [v.numpy() for v in layer.weights]
    expected = normal(X, -1, before[2], before[3], before[0], before[1])
    assert_close(layer(X, training=True), expected, factor=10)
    for a, b in zip(before, layer.weights, strict=True):
        assert_close(b, a)


def test_single_axis_is_the_channel_axis():
    layer = layers.BatchNormalization()
    layer.build((3,))
    assert_close(layer(X[0, 0], training=True), np.zeros(3))
    assert_close(layer.moving_mean, 0.01 * X[0, 0], factor=10)


def test_common_case_is_one_node():
    layer = layers.BatchNormalization(center=False, scale=False)
    layer.build(X.shape)

    names = op_names(trace_of(lambda x: layer(x, training=True), X.shape))
    assert "batch_norm" in names and "variance" not in names


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("axis", [-1, 1])
def test_half_precision_is_computed_in_float32(training, axis):
    layer = layers.BatchNormalization(axis, dtype="float16")
    big = (X * 3000).astype("float16")  # squares and sums overflow float16
    outputs = layer(big, training=training)
    assert outputs.dtype == "float16"
    converted = big.astype("float32")
    batch = statistics(converted, axis) if training else (np.zeros(1), np.ones(1))
    expected = normal(converted, axis, *batch)
    assert_close(outputs, expected.astype("float16"), factor=4)


@pytest.mark.parametrize("training", [False, True])
def test_integers_are_accepted(training):
    numbers = np.arange(12).reshape(4, 3)
    layer = layers.BatchNormalization(dtype="float16")
    expected = layer(numbers.astype("float16"), training=training).numpy()
    assert_close(layer(numbers, training=training), expected)
    layer = layers.BatchNormalization(autocast=False, dtype="float16")
    double_outputs = layer(numbers.astype("float64"), training=training)
    assert double_outputs.dtype == "float16"
    assert_close(double_outputs, expected, factor=4)


# --- renormalization ------------------------------------------------------------------


def renormalized(layer, x, limits):
    """Return the outputs of the layer for a batch, and the new statistics."""
    axis, momentum, share = -1, layer.momentum, layer.renorm_momentum
    mean, variance = statistics(x, axis)
    deviation = np.sqrt(variance + layer.epsilon)
    moving = np.maximum(layer.renorm_stddev.numpy(), layer.epsilon**0.5)
    r = deviation / moving
    d = (mean - layer.renorm_mean.numpy()) / moving
    r = np.clip(r, limits.get("rmin", -np.inf), limits.get("rmax", np.inf))
    d = np.clip(d, -limits.get("dmax", np.inf), limits.get("dmax", np.inf))
    gamma, beta = of(layer, "gamma", 1.0), of(layer, "beta", 0.0)
    y = ((x - mean) / deviation * r + d) * gamma + beta

    def moving_average(name, value, momentum):
        return getattr(layer, name).numpy() * momentum + value * (1 - momentum)

    stddev = moving_average("moving_stddev", deviation, momentum)
    return y, {
        "moving_mean": moving_average("moving_mean", mean, momentum),
        "moving_stddev": stddev,
        "moving_variance": np.maximum(stddev**2 - layer.epsilon, 0),
        "renorm_mean": moving_average("renorm_mean", mean, share),
        "renorm_stddev": moving_average("renorm_stddev", deviation, share),
    }


LIMITS = [{}, {"rmin": 1.5}, {"rmax": 1.2}, {"dmax": 0.1}]
LIMITS += [{"rmin": 0.9, "rmax": 1.1, "dmax": 0.2}, {"rmax": None, "rmin": 1.0}]


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("center, scale", [(True, True), (False, True), (True, False)])
def test_renormalization_against_numpy(limits, center, scale):
    layer = with_weights(
        layers.BatchNormalization(
            momentum=0.75,
            center=center,
            scale=scale,
            renorm=True,
            renorm_momentum=0.5,
            renorm_clipping=limits,
        )
    )
    set_limits = {name: value for name, value in limits.items() if value is not None}
    expected, after = renormalized(layer, X, set_limits)
    assert_close(layer(X, training=True), expected, factor=10)
    for name, value in after.items():
        assert_close(getattr(layer, name), value, factor=10)


def test_small_deviations_are_not_divisors():
    layer = layers.BatchNormalization(renorm=True, epsilon=0.25)
    layer.build(X.shape)
    layer.renorm_stddev.assign([0.0, 0.1, 2.0])
    layer.moving_stddev.assign([0.0, 0.0, 0.0])
    expected, after = renormalized(layer, X * 0.01, {})
    assert_close(layer(X * 0.01, training=True), expected, factor=10)
    assert after["moving_variance"].tolist() == [0.0] * 3  # not below
    assert_close(layer.moving_variance, np.zeros(3))


def test_initial_state_of_renormalization():
    layer = layers.BatchNormalization(
        renorm=True, moving_mean_initializer="ones", moving_variance_initializer="ones"
    )
    layer.moving_variance_initializer = lambda shape, dtype=None: ops.full(shape, 4.0)
    layer.build(X.shape)
    initial = {
        v.name: v.numpy()[0] for v in layer.weights if v.name not in ("gamma", "beta")
    }
    assert initial == {
        "moving_mean": 1.0,
        "moving_variance": 4.0,
        "moving_stddev": 2.0,
        "renorm_mean": 1.0,
        "renorm_stddev": 2.0,
    }
    assert not any(v.trainable for v in layer.weights[2:])


@pytest.mark.parametrize(
    "limits, message",
    [
        ({"rmid": 1}, r"invalid keys.*received \['rmid'\]"),
        ({"rmin": 2, "rmax": 1}, "rmax should be greater than rmin"),
        ({"rmax": -1}, "rmax should be greater than rmin"),
        ({"dmax": -0.5}, "dmax should be non-negative"),
    ],
)
def test_invalid_limits_are_refused(limits, message):
    with pytest.raises(ArgumentError, match=message):
        layers.BatchNormalization(renorm=True, renorm_clipping=limits)


@pytest.mark.parametrize(
    "limits", [{"rmin": 1, "rmax": 1}, {"dmax": 0}, {"rmax": 0.5}, {"rmin": 3}, {}]
)
def test_boundary_limits_are_accepted(limits):
    layer = layers.BatchNormalization(renorm=True, renorm_clipping=limits)
    assert layer.renorm_clipping == limits


# --- shapes ---------------------------------------------------------------------------


@pytest.mark.parametrize("axis, shape", [(-1, (4, 5, 2)), (1, (4, 6, 3))])
def test_other_channels_are_refused(axis, shape):
    layer = layers.BatchNormalization(axis)
    layer.build(X.shape)
    with pytest.raises((ArgumentError, ShapeError)):
        layer(np.zeros(shape, "float32"))
    with pytest.raises((ArgumentError, ShapeError)):
        layer(np.zeros((4, 5, 3, 1), "float32"))


def test_deviations_start_in_the_precision_of_the_layer():
    layer = layers.BatchNormalization(
        renorm=True, moving_variance_initializer=Constant(0.1), dtype="float64"
    )
    layer.build((None, 2))
    for variable in (layer.moving_stddev, layer.renorm_stddev):
        np.testing.assert_allclose(variable, [0.1**0.5] * 2, rtol=1e-14)
