"""Test masks of operations between the layers of a functional model."""

import warnings

import numpy as np
import pytest

import toolkit
from toolkit import Input, Model, layers, ops

X = np.array([[[1.0], [2.0], [0.0]], [[3.0], [0.0], [0.0]]], "float32") * np.ones(
    (1, 1, 4)
)
X = X.astype("float32")
MASK = X[..., 0] != 0


def mask_after(operation, shape=(3, 4)):
    """Return the masks of the outputs of a function between layers."""
    inputs = Input(shape)
    model = Model(inputs, operation(layers.Masking()(inputs)))
    outputs = model(X)
    masks = [getattr(y, "_keras_mask", None) for y in toolkit.tree.flatten(outputs)]
    assert all(
        m is None or m.shape == y.shape[: m.ndim]
        for m, y in zip(masks, toolkit.tree.flatten(outputs), strict=True)
    )
    return [None if m is None else m.numpy() for m in masks]


KEEPING = {
    "v + v": lambda v: v + v,
    "v * 2": lambda v: v * 2.0,
    "2 - v": lambda v: 2.0 - v,
    "-v": lambda v: -v,
    "v ** 2": lambda v: v**2,
    "v / array": lambda v: v / np.ones(4, "float32"),
    "v + positions": lambda v: v + np.ones((1, 3, 4), "float32"),
    "v > 0": lambda v: v > 0,
    "where": lambda v: ops.where(v > 1, v, 0.0),
    "relu": ops.relu,
    "cast": lambda v: ops.cast(v, "float16"),
    "features": lambda v: v[..., :2],
    "one feature": lambda v: v[:, :, 0],
    "new axis": lambda v: v[..., None],
    "expand_dims": lambda v: ops.expand_dims(v, -1),
    "squeeze": lambda v: ops.squeeze(v[..., :1], -1),
    "mean of features": lambda v: ops.mean(v, axis=-1),
    "softmax": ops.softmax,
    "matmul": lambda v: v @ np.ones((4, 2), "float32"),
    "reshape": lambda v: ops.reshape(v, (-1, 3, 2, 2)),
    "transpose": lambda v: ops.transpose(v[..., None], (0, 1, 3, 2)),
    "concatenate": lambda v: ops.concatenate([v, v], axis=-1),
    "stack": lambda v: ops.stack([v, v], axis=-1),
    "split": lambda v: ops.split(v, 2, axis=-1),
    "Permute": layers.Permute((1, 2)),
    "Reshape": layers.Reshape((3, 2, 2)),
    "Reshape of the rest": layers.Reshape((3, -1)),
}
CHANGING = {
    "steps": (lambda v: v[:, 1:], MASK[:, 1:]),
    "steps backwards": (lambda v: v[:, ::-1, :2], MASK[:, ::-1]),
    "a step": (lambda v: v[:, -1], None),
    "steps joined": (lambda v: ops.concatenate([v, v], 1), np.tile(MASK, (1, 2))),
    "more steps": (
        lambda v: ops.concatenate([v[:, :1] * 0.0, v], axis=1),
        np.concatenate([MASK[:, :1], MASK], axis=1),
    ),
}
ENDING = {
    "sum of steps": lambda v: ops.sum(v, axis=1),
    "sum of all": lambda v: ops.sum(v, axis=None) + v[:, 0],
    "transpose": lambda v: ops.transpose(v, (0, 2, 1)),
    "reshape": lambda v: ops.reshape(v, (-1, 12)),
    "flip": lambda v: ops.flip(v, axis=1),
    "another operand": lambda v: (
        v + layers.Dense(4)(v[:, 0])[:, None] * ops.ones((1, 3, 1))
    ),
    "einsum": lambda v: ops.einsum("bij->bji", v),
    "Permute": layers.Permute((2, 1)),
    "Reshape": layers.Reshape((12,)),
}


@pytest.mark.parametrize("operation", KEEPING)
def test_operations_that_keep_the_steps_keep_the_mask(operation):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for mask in mask_after(KEEPING[operation]):
            np.testing.assert_array_equal(mask, MASK)


@pytest.mark.parametrize("operation", CHANGING)
def test_operations_on_the_steps_are_applied_to_the_mask(operation):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (mask,) = mask_after(CHANGING[operation][0])
    expected = CHANGING[operation][1]
    assert (mask is None) == (expected is None)
    np.testing.assert_array_equal(mask, expected)


@pytest.mark.parametrize("operation", ENDING)
def test_other_operations_warn_that_the_mask_ends(operation):
    with pytest.warns(UserWarning, match="do not receive the mask"):
        assert mask_after(ENDING[operation]) == [None]


def test_warning_is_shown_once():
    inputs = Input((3, 4))
    model = Model(inputs, ops.sum(layers.Masking()(inputs), axis=1))
    with pytest.warns(UserWarning, match="sum.*do not receive"):
        model(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(X)


def test_padding_has_no_effect_after_an_operator():
    inputs = Input((None, 4))
    x = layers.Masking()(inputs) * 2.0 + 1.0
    model = Model(inputs, layers.LSTM(3)(x))
    short = model.predict(X[:1, :2], verbose=0)
    np.testing.assert_allclose(model.predict(X[:1], verbose=0), short, rtol=1e-5)


def test_operator_keeps_the_mask_of_an_inner_model():
    inner_inputs = Input((3, 4))
    inner = Model(inner_inputs, layers.Masking()(inner_inputs) + 1.0)
    inputs = Input((3, 4))
    y = Model(inputs, inner(inputs) * 2.0)(X)
    np.testing.assert_array_equal(y._keras_mask, MASK)


def test_operand_without_a_mask_drops_the_mask_like_add():
    first, second = Input((3, 4)), Input((3, 4))
    for result in (layers.Masking()(first) + second, second * layers.Masking()(first)):
        with pytest.warns(UserWarning, match="another operand has no mask"):
            y = Model([first, second], result)([X, X])
        assert getattr(y, "_keras_mask", None) is None
    y = Model([first, second], layers.Masking()(first) + layers.Masking()(second))
    expected = MASK | MASK[::-1]
    np.testing.assert_array_equal(y([X, X[::-1]])._keras_mask, expected)


def _compiled(operation, loss="mse", metrics=("mae",)):
    inputs = Input((3, 4))
    model = Model(inputs, operation(layers.Masking()(inputs)))
    model.compile("sgd", loss, weighted_metrics=list(metrics))
    return model


@pytest.mark.parametrize("operation", ["item", "squeeze", "sum"])
def test_losses_warn_of_masks_over_the_axis_that_they_reduce(operation):
    calls = {
        "item": lambda v: v[..., 0],
        "squeeze": lambda v: ops.squeeze(v[..., :1], -1),
        "sum": lambda v: ops.sum(v, axis=-1),
    }
    model = _compiled(calls[operation])
    with pytest.warns(UserWarning, match="ignores the mask of the predictions"):
        results = model.evaluate(X, np.zeros((2, 3), "float32"), verbose=0)
    outputs = model.predict(X, verbose=0)
    expected = [np.mean(outputs**2), np.mean(np.abs(outputs))]
    np.testing.assert_allclose(results, expected, rtol=1e-6)


def test_losses_apply_masks_of_an_axis_that_they_keep():
    model = _compiled(lambda v: v[..., :1] * 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss, *_ = model.evaluate(X, np.zeros((2, 3, 1), "float32"), verbose=0)
    assert loss == pytest.approx(np.mean(X[MASK] ** 2))


def test_functions_that_return_one_number_apply_their_own_masks():
    def error(y_true, y_pred):
        is_step = ops.cast(ops.not_equal(y_true, 0), "float32")
        return ops.sum(is_step * (y_true - y_pred) ** 2) / ops.sum(is_step)

    model = _compiled(lambda v: v * 2.0, error, [error])
    expected = np.mean(X[MASK] ** 2)
    assert model.evaluate(X, X, verbose=0) == pytest.approx([expected] * 2)
    weights = np.array([1.0, 3.0])
    _, weighted = model.evaluate(X, X, sample_weight=weights, verbose=0)
    assert weighted == pytest.approx(expected)
