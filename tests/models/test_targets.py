"""Test targets, labels and weights that do not match the compiled model."""

import warnings

import numpy as np
import pytest

import toolkit
from toolkit import Input, Model, Sequential, callbacks, layers, losses, metrics, ops
from toolkit.errors import ArgumentError, ShapeError

X = np.linspace(0, 1, 24, dtype="float32").reshape(8, 3)
Y = np.linspace(0, 1, 8, dtype="float32").reshape(8, 1)
LABELS = np.arange(8) % 3


def model_of(units, loss="mse", **arguments):
    inputs = Input((3,))
    model = Model(inputs, layers.Dense(units, name="score")(inputs))
    model.compile("sgd", loss, **arguments)
    return model


def sparse():
    return losses.SparseCategoricalCrossentropy(from_logits=True)


# Targets -> the loss, the units of the output, the error, its message.
REFUSED = {
    "another width": (
        *(np.zeros((8, 2)), "mse", 3, ShapeError),
        r"fit: loss 'mse' of the output 'score': the targets of shape \(8, 2\) do not "
        r"fit the outputs of shape \(8, 3\)",
    ),
    "no width": (np.zeros(8), "mae", 3, ShapeError, "loss 'mae' of the output 'score'"),
    "indices for codes": (
        *(LABELS, "categorical_crossentropy", 3, ShapeError),
        "loss 'categorical_crossentropy' of the output 'score'",
    ),
    "codes for indices": (
        *(np.eye(3)[LABELS], sparse(), 3, ShapeError),
        "sparse_categorical_crossentropy.*: it expects one integer label per sample",
    ),
    "fractions for indices": (
        *(LABELS + 0.5, sparse(), 3, ArgumentError),
        "loss 'sparse_.*of the output 'score': expected labels, whole numbers; .*[.]5",
    ),
    "a label that is too large": (LABELS + 1, sparse(), 3, IndexError, "from 1 to 3"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_targets_are_refused(case):
    y, loss, units, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        model_of(units, loss).fit(X, y, verbose=0)


# Targets -> the loss, the units of the output, the warning.
WARNED_OF = {
    "one target for three outputs": (
        Y,
        "mse",
        3,
        r"\(8, 1\) and the outputs.*broadcast",
    ),
    "three targets for one output": (np.zeros((8, 3)), "mae", 1, "outputs of shape"),
    "signs for a probability": (
        *(np.sign(Y - 0.5), losses.BinaryCrossentropy(from_logits=True), 1),
        r"of the output 'score': expected targets in \[0, 1\]; .* from -1 to 1",
    ),
}


@pytest.mark.parametrize("case", WARNED_OF)
def test_suspicious_targets_warn_once(case):
    y, loss, units, message = WARNED_OF[case]
    model = model_of(units, loss)
    with pytest.warns(UserWarning, match=message):
        model.fit(X, y, verbose=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X, y, verbose=0)


# Valid targets, without a warning.
RIGHT = {
    "a row for each sample": (np.zeros((8, 3)), "mse", 3),
    "no last axis": (Y[:, 0], "mse", 1),
    "whole numbers as floats": (LABELS.astype("float32"), sparse(), 3),
    "labels in a column": (LABELS[:, None], sparse(), 3),
    "a function of the user": (Y, lambda y, p: toolkit.ops.square(y - p), 3),
}


@pytest.mark.parametrize("case", RIGHT)
def test_valid_targets(case):
    y, loss, units = RIGHT[case]
    model_of(units, loss).fit(X, y, verbose=0)


def test_custom_step_may_use_targets_differently():
    class Own(Model):
        def train_step(self, data):
            return {"total": toolkit.ops.sum(data[1])}

    inputs = Input((3,))
    model = Own(inputs, layers.Dense(3)(inputs))
    model.compile("sgd", "mse")
    assert model.fit(X, np.ones((8, 2)), verbose=0).history["total"] == [16.0]


def test_metric_names_incompatible_shapes():
    model = model_of(3, sparse(), metrics=[metrics.MeanSquaredError(name="error")])
    with pytest.raises(ShapeError, match=r"metric 'error': the targets of shape \(8,"):
        model.fit(X, LABELS, verbose=0)


def two_outputs(**arguments):
    inputs = Input((3,))
    outputs = {name: layers.Dense(1, name=name)(inputs) for name in "ab"}
    model = Model(inputs, outputs)
    model.compile("sgd", **arguments)
    return model


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"loss": {"a": "mse", "other": "mse"}}, "loss for 'other'"),
        ({"loss": "mse", "metrics": {"other": ["mae"]}}, "by their names"),
        (
            {"loss": {"a": "mse", "b": "mse"}, "loss_weights": {"other": 1.0}},
            "keys .'other'.",
        ),
    ],
)
def test_unknown_outputs_are_refused(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        two_outputs(**arguments).fit(X, {"a": Y, "b": Y}, verbose=0)


def test_only_output_has_a_name():
    with pytest.raises(ArgumentError, match=r"\['score'\].*received.*'other'"):
        model_of(1, {"other": "mse"}).fit(X, Y, verbose=0)
    with pytest.warns(UserWarning, match="metrics.*'other'.*'score'"):
        model_of(1, metrics={"other": ["mae"]}).fit(X, Y, verbose=0)
    model_of(1, {"score": "mse"}, metrics={"score": ["mae"]}).fit(X, Y, verbose=0)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"0": 1.0}, "whole numbers, as keys; received '0' of type str"),
        ({0.5: 1.0}, "received 0.5"),
        ({0: float("nan")}, "finite weight of class 0"),
    ],
)
def test_weights_of_unknown_classes(weights, message):
    with pytest.raises(ArgumentError, match=message):
        model_of(3, sparse()).fit(X, LABELS, class_weight=weights, verbose=0)
    with pytest.raises(ArgumentError, match=message):
        model_of(3, sparse()).train_on_batch(X, LABELS, class_weight=weights)


def test_weights_of_classes_without_samples():
    with pytest.warns(UserWarning, match=r"classes \[5\], but no sample has"):
        model_of(3, sparse()).fit(X, LABELS, class_weight={0: 2.0, 5: 1.0}, verbose=0)


def test_initial_epoch_beyond_the_last():
    with pytest.warns(UserWarning, match="initial_epoch=5 is larger than epochs=2"):
        history = model_of(1).fit(X, Y, initial_epoch=5, epochs=2, verbose=0)
    assert history.history == {}
    model_of(1).fit(X, Y, initial_epoch=2, epochs=2, verbose=0)  # no epoch remains


def test_callback_must_be_an_object():
    with pytest.raises(ArgumentError, match="instances of Callback"):
        Sequential([layers.Dense(1)]).predict(X, callbacks=[callbacks.EarlyStopping])


def absolute(y_true, y_pred):
    return ops.mean(ops.abs(ops.cast(y_true, y_pred.dtype) - y_pred), axis=-1)


class AbsoluteLoss(losses.Loss):
    def call(self, y_true, y_pred):
        return absolute(y_true, y_pred)


class Largest(metrics.Metric):
    def __init__(self):
        super().__init__(name="largest")
        self.largest = self.add_variable((), "zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        error = ops.max(ops.abs(y_true - y_pred))
        self.largest.assign(ops.maximum(self.largest, error))

    def result(self):
        return self.largest.value


PAIRS = {
    "loss": {"loss": AbsoluteLoss(name="own")},
    "function": {"metrics": [absolute]},
    "metric": {"metrics": [Largest()]},
    "weighted metric": {"weighted_metrics": [absolute]},
}


@pytest.mark.parametrize("case", PAIRS)
@pytest.mark.parametrize("integers", [False, True])
def test_targets_that_broadcast_to_pairs_are_reported(case, integers):
    y = Y[:, 0].astype("int32" if integers else "float32")
    names = "'(own|absolute|largest)' of the output 'score'|metric '(absolute|largest)'"
    message = rf"({names}): .*\(batch, batch\).*ops.expand_dims\(y_true, -1\)"
    with pytest.warns(UserWarning, match=message):
        model_of(1, **PAIRS[case]).fit(X, y, verbose=0)


@pytest.mark.parametrize("case", PAIRS)
def test_targets_in_the_shape_of_the_outputs_are_not_reported(case):
    model_of(1, **PAIRS[case]).fit(X, Y, verbose=0)


def test_functions_that_align_the_targets_are_not_reported():
    def aligned(y_true, y_pred):
        return ops.abs(y_true - y_pred[:, 0])

    def expanded(y_true, y_pred):
        return ops.mean(ops.abs(ops.expand_dims(y_true, -1) - y_pred), axis=-1)

    def ranking(y_true, y_pred):  # pairs of targets, and pairs of outputs
        order = ops.sign(y_true - ops.expand_dims(y_true, -1))
        return -ops.mean(order * (ops.transpose(y_pred) - y_pred), axis=-1)

    arguments = [aligned, expanded, ranking]
    model_of(1, metrics=arguments).fit(X, Y[:, 0], verbose=0)
    model_of(1, metrics=[absolute]).fit(X, Y[:, 0], batch_size=1, verbose=0)


def test_flat_outputs_that_broadcast_to_pairs_are_reported():
    inputs = Input((3,))
    model = Model(inputs, ops.sum(inputs, axis=-1))
    model.compile("sgd", AbsoluteLoss())
    with pytest.warns(UserWarning, match=r"ops.expand_dims\(y_pred, -1\)"):
        model.evaluate(X, Y, verbose=0)


@pytest.mark.parametrize("kind", ["loss", "metrics"])
def test_a_function_without_return_is_refused(kind):
    def forgotten(y_true, y_pred):
        ops.mean(y_true - y_pred)

    arguments = {"loss": forgotten} if kind == "loss" else {"metrics": [forgotten]}
    with pytest.raises(ArgumentError, match=r"'forgotten': .*None; .*`return`"):
        model_of(1, **arguments).fit(X, Y, verbose=0)
