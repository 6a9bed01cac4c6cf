"""Warnings about outputs that are probabilities or logits, against the loss."""

import warnings

import numpy as np
import pytest

from toolkit import Input, Model, Sequential, layers, losses, ops

X = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")
LABELS, ONE_HOT = np.arange(8) % 3, np.eye(3, dtype="float32")[np.arange(8) % 3]
BINARY = (np.arange(8) % 2).astype("float32")[:, None]


def sequential(*parts):
    return Sequential([Input((4,)), *parts])


def functional(*parts):
    x = inputs = Input((4,))
    for layer in parts:
        x = layer(x)
    return Model(inputs, x)


class Subclassed(Model):
    def __init__(self, *parts):
        super().__init__()
        self.parts = [*parts]

    def call(self, x):
        for layer in self.parts:
            x = layer(x)
        return x


class Probabilities(layers.Layer):
    """A custom last layer with its own normalization."""

    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(3)

    def call(self, x):
        weights = ops.exp(self.dense(x))
        return weights / ops.sum(weights, axis=-1, keepdims=True)


class CustomSoftmax(Probabilities):
    def call(self, x):
        return ops.softmax(self.dense(x))


def warnings_of(model, loss, y, **options):
    model.compile("sgd", loss, **options)
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always")
        model.fit(X, y, verbose=0)
        model.fit(X, y, verbose=0)
        model.evaluate(X, y, verbose=0)
    messages = [str(warning.message) for warning in issued]
    return [m for m in messages if "the loss is" not in m and "weights" not in m]


def term_of(model):
    """Return the name of the loss in messages."""
    names = (
        getattr(model, "output_names", None) if type(model) is not Sequential else None
    )
    output = f" of the output {names[0]!r}" if names else ""
    return f"{model.name}: loss 'sparse_categorical_crossentropy'{output}"


FORMS = [sequential, functional, Subclassed]
SPARSE = losses.SparseCategoricalCrossentropy
LOGITS = [
    (SPARSE(from_logits=True), LABELS),
    (losses.CategoricalCrossentropy(from_logits=True), ONE_HOT),
    (losses.CategoricalFocalCrossentropy(from_logits=True), ONE_HOT),
]
SOFTMAX = {
    "dense": lambda: [layers.Dense(3, activation="softmax", name="last")],
    "activation": lambda: [layers.Dense(3), layers.Activation("softmax", name="last")],
    "layer": lambda: [layers.Dense(3), layers.Softmax(name="last")],
    "lambda": lambda: [layers.Dense(3), layers.Lambda(ops.softmax, name="last")],
    "cast": lambda: [
        layers.Dense(3, dtype="mixed_bfloat16"),
        layers.Softmax(dtype="mixed_bfloat16", name="last"),
        layers.Activation("linear", dtype="float32"),
    ],
    "nested": lambda: [
        Sequential([layers.Dense(3), layers.Softmax(name="last")]),
        layers.Reshape((3,)),
    ],
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("parts", SOFTMAX)
def test_softmax_with_a_loss_of_logits(form, parts):
    model = form(*SOFTMAX[parts]())
    loss, y = LOGITS[0]
    (message,) = warnings_of(model, loss, y)
    assert message == (
        f"{term_of(model)} has from_logits=True, but the layer 'last' ends "
        "in softmax, so the outputs are probabilities; use "
        "from_logits=False, or remove the activation"
    )


@pytest.mark.parametrize(("loss", "y"), LOGITS)
def test_losses_of_logits(loss, y):
    assert len(warnings_of(sequential(layers.Dense(3, "softmax")), loss, y)) == 1
    assert warnings_of(sequential(layers.Dense(3)), loss, y) == []


def test_sigmoid_with_a_loss_of_logits():
    loss = losses.BinaryCrossentropy(from_logits=True)
    (message,) = warnings_of(sequential(layers.Dense(1, "sigmoid")), loss, BINARY)
    assert "ends in sigmoid" in message
    assert warnings_of(sequential(layers.Dense(1)), loss, BINARY) == []


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("last", "reason"),
    [
        ([layers.Dense], "(Dense) has no activation, so the outputs are logits"),
        ([layers.Dense, "relu"], "(Dense) has the activation 'relu'"),
        ([layers.Dense, "log_softmax"], "(Dense) has the activation 'log_softmax'"),
    ],
)
def test_logits_with_a_loss_of_probabilities(form, last, reason):
    cls, *activation = last
    model = form(cls(3, *activation, name="last"), layers.Reshape((3,)))
    (message,) = warnings_of(model, "sparse_categorical_crossentropy", LABELS)
    assert message == (
        f"{term_of(model)} expects probabilities, because from_logits is "
        f"False, but the layer 'last' {reason}; use "
        "activation='softmax', or "
        "loss=losses.SparseCategoricalCrossentropy(from_logits=True)"
    )


@pytest.mark.parametrize(
    ("loss", "y", "units", "fix"),
    [
        ("binary_crossentropy", BINARY, 1, "'sigmoid', or loss=losses.BinaryCross"),
        (losses.binary_crossentropy, BINARY, 1, "'sigmoid', or loss=losses.Binary"),
        ("categorical_crossentropy", ONE_HOT, 3, "'softmax', or loss=losses.Categor"),
        (
            losses.BinaryFocalCrossentropy(),
            BINARY,
            1,
            "losses.BinaryFocalCrossentropy(",
        ),
    ],
)
def test_losses_of_probabilities(loss, y, units, fix):
    (message,) = warnings_of(sequential(layers.Dense(units)), loss, y)
    assert fix in message


def test_the_output_is_named():
    inputs = Input((4,))
    outputs = {
        "kind": layers.Dense(3, name="kind")(inputs),
        "score": layers.Dense(1, name="score")(inputs),
    }
    model = Model(inputs, outputs)
    loss = {"kind": "sparse_categorical_crossentropy", "score": "mse"}
    (message,) = warnings_of(model, loss, {"kind": LABELS, "score": BINARY})
    assert "loss 'sparse_categorical_crossentropy' of the output 'kind'" in message


def normalized(x):
    return x / ops.sum(x, axis=-1, keepdims=True)


QUIET = {
    "softmax": lambda: [layers.Dense(3, activation="softmax")],
    "activation": lambda: [layers.Dense(3), layers.Activation("softmax")],
    "sigmoid": lambda: [layers.Dense(3, activation="sigmoid")],
    "hard sigmoid": lambda: [layers.Dense(3, activation="hard_sigmoid")],
    "own function": lambda: [layers.Dense(3, activation=lambda x: ops.softmax(x))],
    "lambda": lambda: [layers.Dense(3), layers.Lambda(ops.softmax)],
    "normalized": lambda: [layers.Dense(3, "softplus"), layers.Lambda(normalized)],
    "custom": lambda: [Probabilities()],
    "custom softmax": lambda: [CustomSoftmax()],
    "constraint": lambda: [
        layers.Softmax(),
        layers.Dense(3, kernel_constraint="non_neg", use_bias=False),
        layers.Lambda(lambda x: x),
    ],
    "mixture": lambda: [layers.Softmax(), layers.Dense(3, trainable=False)],
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("parts", QUIET)
def test_probabilities_with_a_loss_of_probabilities(form, parts):
    model = form(*QUIET[parts]())
    assert warnings_of(model, "sparse_categorical_crossentropy", LABELS) == []


@pytest.mark.parametrize("loss", ["mse", lambda t, p: ops.mean(ops.square(p))])
def test_other_losses(loss):
    assert warnings_of(sequential(layers.Dense(3)), loss, ONE_HOT) == []
    assert warnings_of(sequential(layers.Dense(3, "softmax")), loss, ONE_HOT) == []


def test_a_custom_step_is_not_checked():
    class Custom(Subclassed):
        def train_step(self, data):
            return {"loss": ops.zeros(())}

        test_step = train_step

    loss, y = LOGITS[0]
    assert warnings_of(Custom(layers.Dense(3, activation="softmax")), loss, y) == []
