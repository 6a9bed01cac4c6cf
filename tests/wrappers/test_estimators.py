"""Test models as estimators of scikit-learn with its own checks."""

import numpy as np
import pytest

from toolkit import Sequential, layers, optimizers, utils, wrappers

sklearn = pytest.importorskip("sklearn", reason="scikit-learn is not installed")
base = pytest.importorskip("sklearn.base")
checks = pytest.importorskip("sklearn.utils.estimator_checks")

CLASSES = (
    wrappers.SKLearnClassifier,
    wrappers.SKLearnRegressor,
    wrappers.SKLearnTransformer,
)


def make(X, y, loss, activation=None, seed=0):
    utils.set_random_seed(seed)
    model = Sequential(
        [
            layers.Input((X.shape[1],)),
            layers.Dense(16, activation="relu"),
            layers.Dense(1 if y.ndim == 1 else y.shape[1], activation=activation),
        ]
    )
    model.compile(optimizers.Adam(0.05), loss)
    return model


def compiled(n_outputs=1):
    model = Sequential([layers.Input((3,)), layers.Dense(n_outputs)])
    model.compile("sgd", "mse")
    return model


CLASSIFIER = wrappers.SKLearnClassifier(
    make,
    model_kwargs={"loss": "categorical_crossentropy", "activation": "softmax"},
    fit_kwargs={"epochs": 5, "verbose": 0},
)
REGRESSOR, TRANSFORMER = (
    kind(make, model_kwargs={"loss": "mse"}, fit_kwargs={"verbose": 0})
    for kind in CLASSES[1:]
)
X = np.random.default_rng(0).normal(size=(20, 3))
Y = X @ [1.0, 2.0, 3.0]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("estimator", [CLASSIFIER, REGRESSOR, TRANSFORMER])
def test_estimator_checks(estimator):
    results = checks.check_estimator(estimator, on_fail=None)
    failed = {
        row["check_name"]: row["exception"]
        for row in results
        if row["status"] == "failed"
    }
    assert failed == {}
    assert len(results) > 30


@pytest.mark.parametrize("kind", CLASSES)
def test_names_with_two_underscores_set_one_argument(kind):
    arguments = {"loss": "mse"}
    estimator = kind(make, model_kwargs=arguments)
    estimator.set_params(
        model_kwargs__seed=3, fit_kwargs__epochs=2, warm_start=True
    ).set_params(model_kwargs__loss="mae")
    assert estimator.model_kwargs == {"loss": "mae", "seed": 3}
    assert estimator.fit_kwargs == {"epochs": 2} and estimator.warm_start
    assert arguments == {"loss": "mse"}
    params = estimator.get_params()
    assert params["model_kwargs__seed"] == 3 and params["fit_kwargs__epochs"] == 2
    assert sorted(estimator.get_params(deep=False)) == [
        *("fit_kwargs", "model", "model_kwargs", "warm_start")
    ]
    copy = base.clone(kind(make)).set_params(**params)
    assert copy.get_params() == params
    copy.set_params(model_kwargs={"loss": "mse"}, model_kwargs__seed=1)
    assert copy.model_kwargs == {"loss": "mse", "seed": 1}
    with pytest.raises(ValueError, match="Invalid parameter 'model_kwarg'"):
        copy.set_params(model_kwarg__seed=1)


def test_grid_search_over_arguments_of_the_model():
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    def linear(X, y, rate):
        model = Sequential([layers.Input((3,)), layers.Dense(1)])
        model.compile(optimizers.Adam(rate), "mse")
        return model

    fit = {"verbose": 0}
    estimator = wrappers.SKLearnRegressor(linear, fit_kwargs=fit)
    grid = {"model_kwargs__rate": [1e-9, 0.1], "fit_kwargs__epochs": [30]}
    search = GridSearchCV(estimator, grid, cv=2).fit(X, Y)
    best = {"model_kwargs__rate": 0.1, "fit_kwargs__epochs": 30}
    assert search.best_params_ == best and fit == {"verbose": 0}
    pipeline = make_pipeline(StandardScaler(), estimator)
    name = "sklearnregressor__model_kwargs__rate"
    GridSearchCV(pipeline, {name: [0.1]}, cv=2).fit(X, Y)


def test_classifier_labels():
    y = np.where(Y > 0, "high", "low")
    estimator = base.clone(CLASSIFIER).fit(X, y, epochs=30)
    assert estimator.epoch_ == 30
    assert estimator.score(X, y) > 0.8
    assert estimator.classes_.tolist() == ["high", "low"]
    scores = estimator.decision_function(X)
    np.testing.assert_array_equal(scores > 0, estimator.predict(X) == "low")


def test_shapes_follow_the_targets():
    assert base.clone(REGRESSOR).fit(X, Y).predict(X).shape == (20,)
    assert base.clone(REGRESSOR).fit(X, Y[:, None]).predict(X).shape == (20, 1)
    assert base.clone(REGRESSOR).fit(X, X).predict(X).shape == (20, 3)
    assert base.clone(TRANSFORMER).fit(X, X).transform(X).shape == (20, 3)


def test_verbose_applies_to_predictions(capsys):
    base.clone(REGRESSOR).fit(X, Y).predict(X)
    assert capsys.readouterr().out == ""


def test_warm_start_continues():
    model = compiled()
    cold = wrappers.SKLearnRegressor(model, fit_kwargs={"verbose": 0}).fit(X, Y)
    assert cold.model_ is not model and cold.model_.optimizer.iterations == 1
    warm = wrappers.SKLearnRegressor(model, True, fit_kwargs={"verbose": 0})
    assert warm.fit(X, Y).fit(X, Y).model_ is model
    assert model.optimizer.iterations == 2
    assert base.clone(warm).model is not model and base.clone(cold).model is model


def test_model_must_be_compiled():
    model = Sequential([layers.Input((3,)), layers.Dense(1)])
    with pytest.raises(ValueError, match="needs to be compiled"):
        wrappers.SKLearnRegressor(model).fit(X, Y)


@pytest.mark.parametrize(
    ("loss", "units"),
    [("sparse_categorical_crossentropy", 3), ("binary_crossentropy", 1)],
)
def test_one_hot_targets_are_named(loss, units):
    activation = "softmax" if units > 1 else "sigmoid"
    model = Sequential([layers.Input((3,)), layers.Dense(units, activation=activation)])
    model.compile("sgd", loss)
    estimator = wrappers.SKLearnClassifier(model, fit_kwargs={"verbose": 0})
    message = r"SKLearnClassifier converts y to one-hot targets of shape \(20, 3\)"
    with pytest.raises(ValueError, match=message):
        estimator.fit(X, np.arange(20) % 3)


def test_metadata_routing():
    estimator = base.clone(REGRESSOR)
    with pytest.raises(RuntimeError, match="metadata routing is off"):
        estimator.set_fit_request(sample_weight=True)
    with sklearn.config_context(enable_metadata_routing=True):
        request = estimator.set_fit_request(sample_weight=True).get_metadata_routing()
        assert request.fit.requests == {"sample_weight": True}
