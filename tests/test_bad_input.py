"""Tests of user errors: unknown strings, wrong dtypes, wrong data in a run."""

import numpy as np
import pytest

import toolkit
from toolkit import (
    activations,
    constraints,
    initializers,
    layers,
    losses,
    metrics,
    ops,
    optimizers,
    regularizers,
)
from toolkit.datasets import digits
from toolkit.errors import ArgumentError, DTypeError, ShapeError

WORD = "nonsense"


def compiled(**arguments):
    """Return a model that is compiled with these arguments and has not run."""
    model = toolkit.Sequential([toolkit.Input((2,)), layers.Dense(1)])
    model.compile(**{"optimizer": "sgd", "loss": "mse", **arguments})


# Arguments that take a string -> some of the valid strings.
STRINGS = {
    "activation": (activations.get, "relu"),
    "constraint": (constraints.get, "non_neg"),
    "initializer": (initializers.get, "glorot_uniform"),
    "loss": (losses.get, "mean_squared_error"),
    "metric": (metrics.get, "accuracy"),
    "optimizer": (optimizers.get, "rmsprop"),
    "regularizer": (regularizers.get, "l2"),
    "activation of a layer": (lambda x: layers.Dense(1, activation=x), "softmax"),
    "initializer of a layer": (
        lambda x: layers.Dense(1, kernel_initializer=x),
        "he_normal",
    ),
    "padding": (lambda x: layers.Conv2D(1, 1, padding=x), "same"),
    "padding of pooling": (lambda x: layers.MaxPooling2D(padding=x), "valid"),
    "data_format": (lambda x: layers.Conv2D(1, 1, data_format=x), "channels_first"),
    "dtype": (lambda x: ops.zeros(2, dtype=x), "bfloat16"),
    "dtype of a layer": (lambda x: layers.Dense(1, dtype=x), "mixed_float16"),
    "floatx": (toolkit.config.set_floatx, "float64"),
    "backend": (toolkit.config.set_backend, "reference"),
    "loss of a model": (lambda x: compiled(loss=x), "huber"),
    "losses of a model": (lambda x: compiled(loss={"a": "mse", "b": x}), "huber"),
    "metric of a model": (lambda x: compiled(metrics=[x]), "accuracy"),
    "metrics of a model": (lambda x: compiled(weighted_metrics=[["mae", x]]), "mae"),
    "optimizer of a model": (lambda x: compiled(optimizer=x), "adamw"),
}


@pytest.mark.parametrize("case", STRINGS)
def test_unknown_strings_list_valid_ones(case):
    function, valid = STRINGS[case]
    with pytest.raises((ArgumentError, DTypeError)) as caught:
        function(WORD)
    assert WORD in str(caught.value)
    assert valid in str(caught.value)


@pytest.mark.parametrize("values", [["a", "b"], [None, 1.0], [object()], b"text"])
@pytest.mark.parametrize("function", [ops.exp, ops.sum, toolkit.Variable])
def test_only_numbers_become_tensors(function, values):
    with pytest.raises(DTypeError, match="expected"):
        function(np.array(values))


def test_wrong_shape_names_its_layer():
    (x, _), _ = digits.load_data()
    model = toolkit.Sequential(
        [layers.Conv2D(4, 3, name="first"), layers.Dense(1)], name="net"
    )
    with pytest.raises(ShapeError) as caught:
        model(x)
    message = str(caught.value)
    for words in ("'first'", "Conv2D", "4 axes", "(1438, 8, 8)"):
        assert words in message


def test_failed_run_can_be_repeated():
    (x, y), _ = digits.load_data()
    model = toolkit.Sequential([layers.Flatten(), layers.Dense(10)])
    loss = losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
    for wrong in (y[:7], y.astype(str), y + 200):
        with pytest.raises((ShapeError, DTypeError, IndexError)):
            model.fit(x, wrong, verbose=0)
    assert int(model.optimizer.iterations) == 0
    history = model.fit(x, y, epochs=2, verbose=0).history
    assert history["loss"][1] < history["loss"][0]
