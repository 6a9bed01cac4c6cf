"""Test `compile`: losses and metrics per output, and names in the logs.

Keras 3.15.1 printed the expected names for the same models.
"""

import numpy as np
import pytest

import toolkit
from toolkit import Input, Model, Sequential, layers, losses, ops
from toolkit.errors import ArgumentError

RNG = np.random.default_rng(0)
X = RNG.random((8, 4), "float32")
Y1 = RNG.random((8, 3), "float32")
Y2 = RNG.integers(0, 2, (8, 1))


def single():
    return Sequential([Input((4,)), layers.Dense(1, activation="sigmoid")])


def multi(kind):
    inputs = Input((4,))
    a = layers.Dense(3, name="a")(inputs)
    b = layers.Dense(1, activation="sigmoid", name="b")(inputs)
    outputs = {
        "list": [a, b],
        "tuple": (a, b),
        "dict": {"p": a, "q": b},
        "nested": {"p": [a], "q": {"z": b}},
    }
    return Model(inputs, outputs[kind])


class Sub(Model):
    def __init__(self, kind):
        super().__init__()
        self.a = layers.Dense(3)
        self.b = layers.Dense(1, activation="sigmoid")
        self.kind = kind

    def call(self, x):
        a, b = self.a(x), self.b(x)
        return {"list": [a, b], "tuple": (a, b), "dict": {"p": a, "q": b}}[self.kind]


def squared(y_true, y_pred):
    return ops.mean(ops.square(y_true - y_pred), axis=-1)


BY_NAME = {"a": "mse", "b": "binary_crossentropy"}
LISTS = [Y1, Y2]
DICT = {"p": Y1, "q": Y2}

# model, targets, arguments of compile, names in the logs of fit
CASES = {
    "all kinds of metrics": (
        single,
        Y2,
        {
            "loss": "binary_crossentropy",
            "metrics": [
                *("accuracy", "mse", toolkit.metrics.AUC()),
                toolkit.metrics.MeanSquaredError(name="foo"),
            ],
            "weighted_metrics": ["accuracy", "acc"],
        },
        "acc accuracy auc foo loss mse weighted_accuracy",
    ),
    "two losses of one output": (
        single,
        Y2,
        {"loss": ["mse", "mae"], "metrics": ["acc"]},
        "acc loss mae_loss mse_loss",
    ),
    "functions": (
        single,
        Y2,
        {
            "loss": squared,
            "metrics": [
                squared,
                "mean_squared_error",
                toolkit.losses.MeanSquaredError(),
            ],
        },
        "loss mean_squared_error mean_squared_error_1 squared",
    ),
    "list, one for all": (
        lambda: multi("list"),
        LISTS,
        {"loss": "mse", "metrics": ["mse", "acc"]},
        "a_loss a_mse b_acc b_loss loss",
    ),
    "list, lists": (
        lambda: multi("list"),
        LISTS,
        {
            "loss": ["mse", "binary_crossentropy"],
            "loss_weights": [1, 0.5],
            "metrics": [["mse"], ["acc", "mse"]],
        },
        "a_loss a_mse b_acc b_loss b_mse loss",
    ),
    "tuple, dicts by output name": (
        lambda: multi("tuple"),
        LISTS,
        {
            "loss": BY_NAME,
            "loss_weights": {"a": 1.0, "b": 0.5},
            "metrics": {"a": "mse", "b": ["acc"]},
            "weighted_metrics": {"a": "mse", "b": ["acc"]},
        },
        "a_loss a_mse a_weighted_mse b_acc b_loss b_weighted_acc loss",
    ),
    "list, targets by output name": (
        lambda: multi("list"),
        {"a": Y1, "b": Y2},
        {"loss": BY_NAME, "metrics": {"b": ["acc"]}},
        "a_loss b_acc b_loss loss",
    ),
    "an output without a loss": (
        lambda: multi("list"),
        LISTS,
        {"loss": ["mse", None]},
        "loss",
    ),
    "targets just for the output with a loss": (
        lambda: multi("list"),
        [Y1],
        {"loss": ["mse", None]},
        "loss",
    ),
    "dict": (
        lambda: multi("dict"),
        DICT,
        {
            "loss": {"p": "mse", "q": "binary_crossentropy"},
            "metrics": {"p": "mse", "q": ["acc"]},
        },
        "loss p_loss p_mse q_acc q_loss",
    ),
    "dict, one for all": (
        lambda: multi("dict"),
        DICT,
        {"loss": "mse", "metrics": ["mse", "acc"]},
        "loss p_loss p_mse q_acc q_loss",
    ),
    "dict, some": (lambda: multi("dict"), DICT, {"loss": {"p": "mse"}}, "loss"),
    "dict, targets for some": (
        lambda: multi("dict"),
        {"p": Y1},
        {"loss": {"p": "mse"}},
        "loss",
    ),
    "dict, targets as a list": (
        lambda: multi("dict"),
        LISTS,
        {"loss": ["mse", "mae"]},
        "loss p_loss q_loss",
    ),
    "nested": (
        lambda: multi("nested"),
        {"p": [Y1], "q": {"z": Y2}},
        {"loss": "mse"},
        "loss p/a_loss q/z_loss",
    ),
    "subclassed list": (
        lambda: Sub("list"),
        LISTS,
        {"loss": ["mse", "mae"], "metrics": [["mse"], ["acc"]]},
        "acc loss mae_loss mse mse_loss",
    ),
    "subclassed dict": (
        lambda: Sub("dict"),
        DICT,
        {"loss": "mse", "metrics": {"p": "mse", "q": "acc"}},
        "loss p_loss p_mse q_acc q_loss",
    ),
}


@pytest.mark.filterwarnings("ignore:sgd.*no gradient")
@pytest.mark.parametrize("case", CASES)
def test_names_in_the_logs(case):
    make, y, arguments, names = CASES[case]
    model = make()
    model.compile("sgd", **arguments)
    history = model.fit(X, y, verbose=0, validation_data=(X, y))
    expected = names.split()
    validation = [f"val_{name}" for name in expected]
    assert list(history.history) == sorted(expected + validation)
    logs = model.evaluate(X, y, verbose=0, return_dict=True)
    assert list(logs) == expected


def test_metrics_names_and_the_order_of_values():
    model = multi("list")
    model.compile("sgd", "mse", metrics=[["mae"], ["acc"]])
    model.train_on_batch(X, LISTS)
    assert model.metrics_names == ["loss", "compile_metrics", "a_loss", "b_loss"]
    values = model.test_on_batch(X, LISTS)
    logs = model.test_on_batch(X, LISTS, return_dict=True)
    order = ["loss", "a_loss", "b_loss", "a_mae", "b_acc"]
    assert values == [logs[name] for name in order]


def test_loss_weights_scale_only_the_total():
    model = multi("list")
    model.compile("sgd", ["mse", "mae"], loss_weights=[2.0, 0.5])
    logs = model.test_on_batch(X, LISTS, return_dict=True)
    a, b = model.predict(X, verbose=0)
    assert logs["a_loss"] == pytest.approx(((a - Y1) ** 2).mean(), rel=1e-5)
    assert logs["b_loss"] == pytest.approx(np.abs(b - Y2).mean(), rel=1e-5)
    total = 2 * logs["a_loss"] + 0.5 * logs["b_loss"]
    assert logs["loss"] == pytest.approx(total, rel=1e-5)
    model = single()
    model.compile("sgd", "mse", loss_weights=0.5)
    expected = 0.5 * ((model.predict(X, verbose=0) - Y2) ** 2).mean()
    assert model.test_on_batch(X, Y2) == pytest.approx(expected, rel=1e-5)


def test_named_targets_and_weights_are_matched_to_a_list_of_outputs():
    x = Input((4,))  # the names are not in alphabetical order
    model = Model(x, [layers.Dense(3, name="z")(x), layers.Dense(3, name="a")(x)])
    model.compile("sgd", "mse", metrics={"z": ["mae"]}, weighted_metrics={"a": ["mae"]})
    targets = {"a": Y1 + 5, "z": Y1}
    weights = {"a": np.arange(8, dtype="float32"), "z": np.ones(8, "float32")}
    logs = model.evaluate(
        X, targets, sample_weight=weights, return_dict=True, verbose=0
    )
    z, a = model.predict(X, verbose=0)
    assert logs["z_mae"] == pytest.approx(np.abs(z - Y1).mean(), rel=1e-5)
    errors = np.abs(a - Y1 - 5).mean(axis=1)
    expected = (errors * weights["a"]).sum() / weights["a"].sum()
    assert logs["a_mae"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    "units, labels, expected",
    [
        (1, np.zeros((8, 1)), "BinaryAccuracy"),
        (3, np.zeros((8,), "int32"), "SparseCategoricalAccuracy"),
        (3, np.zeros((8, 1), "int32"), "SparseCategoricalAccuracy"),
        (3, np.eye(3)[np.zeros(8, int)], "CategoricalAccuracy"),
    ],
)
def test_accuracy_depends_on_the_shapes(units, labels, expected):
    model = Sequential([Input((4,)), layers.Dense(units, activation="sigmoid")])
    model.compile("sgd", "crossentropy", metrics=["accuracy"])
    model.fit(X, labels, verbose=0)
    (metric,) = model.metrics[1].metrics
    assert type(metric).__name__ == expected
    assert metric.name == "accuracy"


def test_sample_weights_apply_only_to_weighted_metrics():
    model = single()
    model.compile("sgd", "mse", metrics=["mae"], weighted_metrics=["mae"])
    weights = np.arange(8, dtype="float32")
    logs = model.evaluate(X, Y2, sample_weight=weights, return_dict=True, verbose=0)
    errors = np.abs(model.predict(X, verbose=0) - Y2)[:, 0]
    assert logs["mae"] == pytest.approx(errors.mean(), rel=1e-5)
    expected = (errors * weights).sum() / weights.sum()
    assert logs["weighted_mae"] == pytest.approx(expected, rel=1e-5)


def test_metrics_are_reset_for_each_epoch_and_run():
    model = single()
    model.compile(toolkit.optimizers.SGD(0.0), "mse", metrics=["mae"])
    history = model.fit(X, Y2, epochs=3, batch_size=3, verbose=0, shuffle=False)
    assert len(set(history.history["mae"])) == 1
    assert model.evaluate(X, Y2, verbose=0) == model.evaluate(X, Y2, verbose=0)


def test_compile_without_a_loss_keeps_an_attribute_of_the_subclass():
    class WithLoss(toolkit.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(1)
            self.loss = losses.MeanAbsoluteError()

        def call(self, x):
            return self.dense(x)

        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None):
            return self.loss(y, y_pred)

    model = WithLoss()
    for _ in range(2):
        model.compile("sgd")
        assert isinstance(model.loss, losses.MeanAbsoluteError)
    assert model.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0).history["loss"]
    model.compile("sgd", "mse")
    assert model.loss == "mse"
    model.compile("sgd")
    assert model.loss is None


def test_second_compile_resets_the_state():
    model = single()
    model.compile("sgd", "mse", metrics=["mae"])
    model.fit(X, Y2, verbose=0)
    model.compile("adam", "mae")
    history = model.fit(X, Y2, verbose=0)
    assert list(history.history) == ["loss"]
    assert type(model.optimizer).__name__ == "Adam"


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"loss": "mes"}, "'mes'"),
        ({"optimizer": "sdg"}, "'sdg'"),
        ({"loss": "mse", "metrics": ["acuracy"]}, "'acuracy'"),
        ({"loss": "mse", "metrics": "mae"}, "`metrics` to be a list"),
        ({"loss": "mse", "loss_weights": "1"}, "loss_weights"),
        ({"loss": "mse", "loss_weights": ["accuracy"]}, "loss_weights"),
        ({"loss": "mse", "jit_compile": "always"}, "'always'"),
        ({"loss": "mse", "steps_per_execution": 0}, "steps_per_execution"),
        ({}, "no loss to compute"),
    ],
)
def test_invalid_arguments_are_refused(arguments, message):
    model = single()
    with pytest.raises(ArgumentError, match=message):
        model.compile(**arguments)
        model.fit(X, Y2, verbose=0)


@pytest.mark.parametrize(
    "arguments, y, message",
    [
        ({"loss": {"a": "mse"}}, LISTS, r"\['a', 'b'\]"),
        (
            {"loss": "mse", "loss_weights": [1, 2, 3]},
            LISTS,
            "match the number of losses",
        ),
        (
            {"loss": "mse", "metrics": {"c": ["mae"]}},
            LISTS,
            "one entry for each output",
        ),
        ({"loss": "mse"}, [Y1, Y2, Y2], "structures of targets and outputs differ"),
        ({"loss": "mse"}, {"a": Y1, "c": Y2}, "structures of targets and outputs"),
        ({"loss": "mse"}, None, "expected targets"),
    ],
)
def test_arguments_that_do_not_match_the_outputs(arguments, y, message):
    model = multi("list")
    model.compile("sgd", **arguments)
    with pytest.raises(ArgumentError, match=message):
        model.fit(X, y, verbose=0)


def test_named_targets_of_one_output():
    inputs = toolkit.Input((4,))
    model = toolkit.Model(inputs, layers.Dense(1, name="price")(inputs))
    model.compile("sgd", "mse")
    model.fit(X, {"price": Y2}, verbose=0)
    with pytest.raises(ArgumentError, match=r"by their names \['price'\]"):
        model.fit(X, {"other": Y2}, verbose=0)


def test_named_targets_of_outputs_with_a_loss_are_matched_by_name():
    inputs = toolkit.Input((4,))
    outputs = [layers.Dense(1, name=name)(inputs) for name in ("z", "m", "a")]
    model = toolkit.Model(inputs, outputs)
    model.compile("sgd", {"z": "mse", "m": None, "a": "mse"})
    targets = {"z": Y1[:, :1] + 5, "a": Y1[:, 1:2]}
    results = model.evaluate(X, targets, verbose=0, return_dict=True)
    z, _, a = (np.asarray(y) for y in model(X))
    assert results["z_loss"] == pytest.approx(
        np.mean((z - targets["z"]) ** 2), rel=1e-5
    )
    assert results["a_loss"] == pytest.approx(
        np.mean((a - targets["a"]) ** 2), rel=1e-5
    )


def test_missing_targets_of_metrics_are_refused():
    model = multi("list")
    model.compile("sgd", ["mse", None], metrics=[["mae"], ["mae"]])
    with pytest.raises(ArgumentError, match="metrics need targets for all 2 outputs"):
        model.fit(X, [Y1], verbose=0)


def test_weights_of_one_loss_of_one_output():
    model = single()
    model.compile("sgd", "mse", loss_weights=[1.0, 2.0])
    with pytest.raises(ArgumentError, match="match the number of losses, 1"):
        model.fit(X, Y2, verbose=0)


@pytest.mark.parametrize("name", ["top-2-accuracy", "Top 2", "a.b/c", "F1Score"])
@pytest.mark.parametrize("is_nested", [lambda x: [x], lambda x: {"out": [x]}])
def test_names_of_metrics_are_kept_in_the_logs(name, is_nested):
    inputs = toolkit.Input((3,))
    model = toolkit.Model(inputs, layers.Dense(4, name="out")(inputs))
    metric = toolkit.metrics.SparseTopKCategoricalAccuracy(2, name=name)
    loss = toolkit.losses.SparseCategoricalCrossentropy(True, name="Cross-entropy")
    model.compile("sgd", loss, metrics=is_nested(metric))
    data = np.ones((4, 3), "float32"), np.ones((4,))
    history = model.fit(*data, validation_data=data, verbose=0).history
    key = name if isinstance(is_nested(0), list) else f"out_{name}"
    assert {key, f"val_{key}"} <= set(history) or {name, f"val_{name}"} <= set(history)
