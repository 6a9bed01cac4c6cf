"""Libraries that say `import keras` do their main work on toolkit.

`.ci/ecosystem` installs the libraries. A test without its library is skipped.
"""

import keras_toolkit  # noqa: F401  # isort: skip

import pickle

import keras
import numpy as np
import pytest
from keras import layers

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _seed(tmp_path, monkeypatch):
    keras.utils.set_random_seed(0)
    monkeypatch.chdir(tmp_path)


def rows(count=128, features=6):
    x = np.random.default_rng(0).normal(size=(count, features)).astype("float32")
    return x, (x[:, 0] + x[:, 1] > 0).astype("int32")


def mlp(units=8, learning_rate=0.01):
    model = keras.Sequential(
        [
            keras.Input((6,)),
            layers.Dense(units, activation="relu"),
            layers.Dense(1, activation="sigmoid"),
        ]
    )
    optimizer = keras.optimizers.Adam(learning_rate)
    model.compile(optimizer, "binary_crossentropy", metrics=["accuracy"])
    return model


def test_keras_is_on_toolkit():
    assert keras.backend.backend() == "toolkit"


@pytest.mark.parametrize("name", ["RandomSearch", "BayesianOptimization", "Hyperband"])
def test_keras_tuner_finds_hyperparameters(name, tmp_path):
    keras_tuner = pytest.importorskip("keras_tuner")
    x, y = rows()

    def build(parameters):
        rate = parameters.Choice("rate", [1e-2, 1e-3])
        return mlp(parameters.Int("units", 4, 16), rate)

    size = {"max_epochs": 3} if name == "Hyperband" else {"max_trials": 3}
    tuner = getattr(keras_tuner, name)(
        build, objective="val_loss", directory=tmp_path, **size
    )
    tuner.search(x, y, epochs=2, validation_split=0.2, verbose=0)
    assert 4 <= tuner.get_best_hyperparameters()[0]["units"] <= 16
    assert tuner.get_best_models()[0].predict(x, verbose=0).shape == (128, 1)


def test_keras_hub_generates_saves_and_trains_with_lora(tmp_path):
    hub = pytest.importorskip("keras_hub")
    backbone = hub.models.GPT2Backbone(
        vocabulary_size=50,
        num_layers=2,
        num_heads=2,
        hidden_dim=16,
        intermediate_dim=32,
        max_sequence_length=12,
    )
    model = hub.models.GPT2CausalLM(backbone=backbone, preprocessor=None)
    prompt = {
        "token_ids": np.array([[3, 4, 5] + [0] * 9]),
        "padding_mask": np.array([[1, 1, 1] + [0] * 9]),
    }
    eager = hub.models.GPT2CausalLM(backbone=backbone, preprocessor=None)
    model.compile(sampler="greedy")
    eager.compile(run_eagerly=True, sampler="greedy")
    compiled = model.generate(prompt, stop_token_ids=None)["token_ids"]
    expected = eager.generate(prompt, stop_token_ids=None)["token_ids"]
    np.testing.assert_array_equal(compiled, expected)
    backbone.save_to_preset(tmp_path / "preset")
    same = hub.models.Backbone.from_preset(str(tmp_path / "preset"))
    np.testing.assert_allclose(same(prompt), backbone(prompt), rtol=1e-5, atol=1e-6)
    frozen = np.asarray(backbone.token_embedding.embeddings)
    backbone.enable_lora(2)
    optimizer = keras.optimizers.Adam(0.02)
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(True))
    losses = model.fit(
        {key: np.repeat(value, 8, 0) for key, value in prompt.items()},
        np.tile(np.arange(12), (8, 1)),
        epochs=5,
        verbose=0,
    ).history["loss"]
    assert losses[-1] < losses[0]
    np.testing.assert_array_equal(backbone.token_embedding.embeddings, frozen)


def test_keras_rs_retrieves_the_nearest_candidates():
    rs = pytest.importorskip("keras_rs")
    x, _ = rows(16)
    retrieval = rs.layers.BruteForceRetrieval(candidate_embeddings=x, k=3)
    scores, indices = retrieval(x[:2])
    expected = np.argsort(-(x[:2] @ x.T), axis=1)[:, :3]
    np.testing.assert_array_equal(indices, expected)
    assert scores.shape == (2, 3)
    model = keras.Sequential([rs.layers.FeatureCross(), layers.Dense(1)])
    model.compile("adam", "mse")
    losses = model.fit(x, x[:, :1], epochs=5, verbose=0).history["loss"]
    assert losses[-1] < losses[0]


def test_scikeras_searches_a_grid_and_is_pickled():
    wrappers = pytest.importorskip("scikeras.wrappers")
    search = pytest.importorskip("sklearn.model_selection").GridSearchCV
    x, y = rows()

    def build(hidden=8):
        return keras.Sequential(
            [
                keras.Input((6,)),
                layers.Dense(hidden, activation="relu"),
                layers.Dense(1, activation="sigmoid"),
            ]
        )

    classifier = wrappers.KerasClassifier(
        build, hidden=8, loss="binary_crossentropy", optimizer="adam", verbose=0
    )
    grid = search(classifier, {"hidden": [4, 8]}, cv=2).fit(x, y)
    assert grid.best_params_["hidden"] in (4, 8)
    same = pickle.loads(pickle.dumps(grid.best_estimator_.model_.get_weights()))
    assert len(same) == 4


def test_mlflow_logs_a_run_and_a_model(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("mlflow.keras")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri(f"file://{tmp_path}/runs")
    x, y = rows()
    model = mlp()
    with mlflow.start_run():
        model.fit(x, y, verbose=0, callbacks=[mlflow.keras.MlflowCallback()])
        logged = mlflow.keras.log_model(model, name="model")
    assert "loss" in mlflow.last_active_run().data.metrics
    loaded = mlflow.keras.load_model(logged.model_uri)
    np.testing.assert_array_equal(
        loaded.predict(x, verbose=0), model.predict(x, verbose=0)
    )


def test_optuna_prunes_trials():
    optuna = pytest.importorskip("optuna")
    keras_callback = pytest.importorskip("optuna_integration").KerasPruningCallback
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    x, y = rows()

    def objective(trial):
        rate = trial.suggest_float("rate", 1e-4, 1e-1, log=True)
        model = mlp(learning_rate=rate)
        callbacks = [keras_callback(trial, "val_loss")]
        fitted = model.fit(
            x, y, epochs=3, validation_split=0.2, callbacks=callbacks, verbose=0
        )
        return fitted.history["val_loss"][-1]

    pruner = optuna.pruners.MedianPruner(n_startup_trials=1)
    study = optuna.create_study(pruner=pruner)
    study.optimize(objective, n_trials=4)
    assert study.best_value < 1


def test_bayesflow_samples_a_posterior():
    bayesflow = pytest.importorskip("bayesflow")
    random = np.random.default_rng(0)

    def prior():
        return {"theta": random.normal(size=2)}

    def likelihood(theta):
        return {"x": theta + 0.1 * random.normal(size=(5, 2))}

    workflow = bayesflow.BasicWorkflow(
        simulator=bayesflow.make_simulator([prior, likelihood]),
        inference_variables="theta",
        summary_variables="x",
        inference_network=bayesflow.networks.CouplingFlow(depth=2),
        summary_network=bayesflow.networks.DeepSet(depth=1),
    )
    workflow.fit_online(epochs=1, num_batches_per_epoch=4, batch_size=16, verbose=0)
    samples = workflow.sample(num_samples=7, conditions=workflow.simulate(3))
    assert samples["theta"].shape == (3, 7, 2)
    assert np.isfinite(samples["theta"]).all()


def test_shap_explains_predictions():
    shap = pytest.importorskip("shap")
    x, y = rows()
    model = mlp()
    model.fit(x, y, verbose=0)

    def predict(values):
        return model.predict(values, verbose=0)[:, 0]

    explanation = shap.Explainer(predict, x[:20])(x[:2])
    total = explanation.values.sum(axis=1) + explanation.base_values
    np.testing.assert_allclose(total, predict(x[:2]), rtol=1e-3, atol=1e-3)


def test_hls4ml_converts_a_model(tmp_path):
    hls4ml = pytest.importorskip("hls4ml")
    model = mlp()
    config = hls4ml.utils.config_from_keras_model(model, granularity="name")
    converted = hls4ml.converters.convert_from_keras_model(
        model, hls_config=config, output_dir=str(tmp_path / "project")
    )
    kinds = [type(layer).__name__ for layer in converted.get_layers()]
    assert len(kinds) >= 3


@pytest.mark.skipif(
    keras.version() >= "3.13",
    reason="AutoKeras 3.0 gives NumPy integers to Dense, which Keras 3.13 refuses",
)
def test_autokeras_searches_a_classifier(tmp_path):
    autokeras = pytest.importorskip("autokeras")
    x = np.random.default_rng(0).normal(size=(60, 8, 8, 1)).astype("float32")
    y = (x.mean(axis=(1, 2, 3)) > 0).astype("int32")
    classifier = autokeras.ImageClassifier(
        max_trials=1, overwrite=True, directory=tmp_path
    )
    classifier.fit(x, y, epochs=1, verbose=0)
    assert classifier.predict(x, verbose=0).shape[0] == 60
