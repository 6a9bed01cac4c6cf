"""The first operation of a step whose result is not finite."""

import numpy as np
import pytest

import toolkit as tk
from toolkit import layers, ops
from toolkit.errors import ArgumentError

x = np.linspace(0, 1, 8, dtype="float32")[:, None]
y = x * 2


def model_of(function, name="source", loss="mse", **options):
    model = tk.Sequential(
        [tk.Input((1,)), layers.Dense(1), layers.Lambda(function, name=name)]
    )
    model.compile("sgd", loss, **options)
    return model


def safe_norm(x):
    return ops.sqrt(ops.sum(ops.square(x - x), axis=-1, keepdims=True))


@pytest.mark.parametrize("run_eagerly", [False, True])
@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: ops.log(x - x), "the loss is inf because of `log` ... 'source'"),
        (lambda x: 1 / (x * 0), "`divide` of values from 1 to 1 and values from ..."),
        (lambda x: ops.sqrt(-ops.abs(x) - 1), "the loss is nan because of `sqrt`"),
        (
            safe_norm,
            "/kernel' is not finite because of the gradient of "
            "`sqrt` of values from 0 to 0, in the layer 'source'",
        ),
        (lambda x: x + ops.exp(ops.where(x > x, x, -np.inf)), ""),
        (lambda x: x, ""),
    ],
)
def test_the_text_names_the_operation(function, words, run_eagerly):
    text = model_of(function, run_eagerly=run_eagerly).find_nonfinite(x + 1, y)
    assert bool(text) == bool(words), text
    assert all(part.strip(".") in text for part in words.split(" ... ")), text


def test_an_operation_of_the_loss():
    model = model_of(ops.relu, loss=lambda a, b: ops.mean(ops.log(a - a)))
    text = model.find_nonfinite(x, y)
    assert text == "the loss is -inf because of `log` of values from 0 to 0"


def test_data_and_unbuilt_models():
    model = tk.Sequential([layers.Dense(1)])
    model.compile("sgd", "mse")
    assert model.find_nonfinite(x, y) == ""
    data = np.where(x > 0.5, np.nan, x)
    assert "x contains NaN" in model.find_nonfinite(data, y)


def test_nothing_changes():
    model = tk.Sequential([tk.Input((1,)), layers.BatchNormalization()])
    model.compile("sgd", "mse")
    before = model.get_weights()
    model.find_nonfinite(x, y)
    for old, new in zip(before, model.get_weights(), strict=True):
        assert np.array_equal(old, new)


def test_weights_that_are_not_finite():
    model = model_of(safe_norm)
    with pytest.warns(UserWarning, match="the loss is nan since step 2"):
        model.fit(x + 1, y, epochs=3, verbose=0)
    with pytest.raises(ArgumentError, match=r"dense_?\d*/kernel.*weights from before"):
        model.find_nonfinite(x, y)


def test_the_warning_of_fit_names_the_operation_if_the_weights_are_finite():
    def loss(y_true, y_pred):
        return ops.mean(y_pred) + ops.log(ops.stop_gradient(ops.mean(y_pred * 0)))

    model = model_of(ops.abs, loss=loss)
    with pytest.warns(UserWarning, match="because of `log` of values from 0 to 0"):
        model.fit(x, y, verbose=0)


def test_the_first_step_does_not_blame_the_learning_rate():
    model = model_of(lambda x: ops.log(x - x))
    with pytest.warns(UserWarning, match="since step 1") as caught:
        model.fit(x, y, verbose=0)
    text = str(caught[0].message)
    assert "try a lower" not in text and "logarithm, division or square root" in text
