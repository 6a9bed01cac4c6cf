"""Layers that get masks: the values and the masks are those of Keras 3.15."""

import numpy as np
import pytest

from toolkit import errors, layers, ops

X = np.arange(1, 13, dtype="float32").reshape(2, 3, 2) / 4
Y = X[::-1] - 1
FIRST = np.array([[True, True, False], [True, False, False]])
SECOND = np.array([[True, False, True], [False, False, True]])


def masked(x, mask):
    x = ops.convert_to_tensor(x)
    if mask is not None:
        x._keras_mask = ops.convert_to_tensor(mask)
    return x


# (layer, masks) -> the mask of the output; in Keras none unless all inputs have one.
BOTH = [[True, True, True], [True, False, True]]
PROPAGATED = [
    *[(name, FIRST, SECOND, BOTH) for name in ("Add", "Average", "Maximum")],
    *[(name, FIRST, SECOND, BOTH) for name in ("Multiply", "Minimum", "Subtract")],
    *[(name, FIRST, None, None) for name in ("Add", "Maximum", "Multiply")],
    *[(name, None, SECOND, None) for name in ("Average", "Minimum", "Multiply")],
    ("Concatenate", FIRST, None, [[True] * 3] * 2),
    ("Concatenate", FIRST, SECOND, BOTH),
    ("Concatenate", None, None, None),
]


@pytest.mark.parametrize(("name", "first", "second", "expected"), PROPAGATED)
def test_what_is_propagated(name, first, second, expected):
    y = getattr(layers, name)()([masked(X, first), masked(Y, second)])
    mask = getattr(y, "_keras_mask", None)
    assert (None if mask is None else mask.tolist()) == expected


def test_multiply_by_what_has_no_mask_keeps_its_values():
    y = layers.Multiply()([masked(X, FIRST), masked(Y, None)])
    expected = np.where(FIRST[..., None], X, 1) * Y
    np.testing.assert_allclose(y.numpy(), expected)


@pytest.mark.parametrize("name", ["Add", "Concatenate", "Multiply"])
@pytest.mark.parametrize(
    ("inputs", "mask"), [([X, Y], FIRST), (X, [FIRST, SECOND]), ([X, Y], [FIRST])]
)
def test_masks_that_do_not_match_the_inputs(name, inputs, mask):
    with pytest.raises(errors.ArgumentError, match="mask"):
        getattr(layers, name)().compute_mask(inputs, mask=mask)


# (axis, mask) -> the moving mean after one step of momentum 0
NORMALIZED = [
    (1, FIRST, [1.125, 0.875, 0.0]),
    (1, FIRST & False, [0.0, 0.0, 0.0]),
    (-1, FIRST, [11 / 12, 14 / 12]),
    (2, SECOND, [17 / 12, 20 / 12]),
]


@pytest.mark.parametrize(("axis", "mask", "mean"), NORMALIZED)
def test_batch_normalization_leaves_out_what_is_masked(axis, mask, mean):
    layer = layers.BatchNormalization(axis=axis, momentum=0.0)
    y = layer(X, training=True, mask=ops.convert_to_tensor(mask))
    assert y.shape == X.shape
    np.testing.assert_allclose(layer.moving_mean.numpy(), mean, rtol=1e-5)


@pytest.mark.parametrize("shape", [(2,), (2, 3, 2)])
def test_batch_normalization_refuses_masks_of_another_rank(shape):
    mask = ops.ones(shape, "bool")
    with pytest.raises(errors.ShapeError, match="mask"):
        layers.BatchNormalization()(X, training=True, mask=mask)


def test_each_step_of_a_sequence_has_statistics_of_its_own():
    layer = layers.TimeDistributed(layers.BatchNormalization(momentum=0.5))
    y = layer(X, training=True)
    np.testing.assert_allclose(y.numpy()[0], -y.numpy()[1], atol=1e-6)
    steps = X.mean(axis=0)
    moved = ((steps[0] * 0.5 + 0) * 0.5 + steps[1] * 0.5) * 0.5 + steps[2] * 0.5
    np.testing.assert_allclose(layer.layer.moving_mean.numpy(), moved, rtol=1e-5)


@pytest.mark.parametrize("frozen", [False, True])
def test_steps_are_one_batch_where_no_state_moves(frozen):
    inner = layers.BatchNormalization(trainable=not frozen)
    y = layers.TimeDistributed(inner)(X, training=frozen)
    np.testing.assert_allclose(y.numpy(), X / np.sqrt(1.001), rtol=1e-5)
    assert inner.moving_mean.numpy().tolist() == [0.0, 0.0]


# (mask, what softmax over the last axis gives)
SOFTMAX = [
    ([[[True, False]]], [1.0, 0.0]),
    ([[[0.3, 0.6]]], [0.0, 1.0]),
    ([True, True], [1 / (1 + np.exp(0.25)), 1 / (1 + np.exp(-0.25))]),
    ([False, False], [0.0, 0.0]),
]


@pytest.mark.parametrize(("mask", "expected"), SOFTMAX)
def test_softmax(mask, expected):
    y = layers.Softmax()(X, mask=ops.convert_to_tensor(mask))
    np.testing.assert_allclose(y.numpy(), np.broadcast_to(expected, X.shape), 1e-5)


@pytest.mark.parametrize("shape", [(1, 2, 3, 2), (2, 3, 3), (3,), (4, 3, 2)])
def test_softmax_refuses_masks_that_do_not_fit(shape):
    with pytest.raises(errors.ShapeError, match="mask"):
        layers.Softmax()(X, mask=ops.ones(shape, "bool"))


# Shapes of symbols, some extents open -> the shape of their sum
OPEN = [
    ([(None, None, 4), (None, 3, None)], (None, 3, 4)),
    ([(None, 3), (2, 3)], (2, 3)),
    ([(None, None), (None, 5)], (None, 5)),
]


@pytest.mark.parametrize(("shapes", "expected"), OPEN)
def test_open_extents_may_be_those_of_the_other_input(shapes, expected):
    symbols = [layers.Input(batch_shape=shape) for shape in shapes]
    assert layers.Add()(symbols).shape == expected
