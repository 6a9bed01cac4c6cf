"""Test the distillation of teachers to students."""

import json

import numpy as np
import pytest

from toolkit import (
    Model,
    Sequential,
    distillation,
    layers,
    losses,
    models,
    ops,
    optimizers,
    saving,
    utils,
)

X = np.random.default_rng(0).normal(size=(32, 6)).astype("float32")
Y = (X[:, 0] > 0).astype("int32") + (X[:, 1] > 0)


def network(width=8, outputs=3, inputs=6, prefix="", **options):
    stack = [
        layers.Dense(width, activation="relu", name=f"{prefix}hidden"),
        layers.Dense(outputs, name=f"{prefix}out", **options),
    ]
    return Sequential([layers.Input((inputs,)), *stack])


class Subclass(Model):
    """A subclassed model."""

    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(3)

    def call(self, inputs):
        return self.dense(inputs)


def make(teacher=None, student=None, distillers=None, *args, **options):
    distillers = distillers or distillation.LogitsDistillation(2.0)
    return distillation.Distiller(
        teacher or network(), student or network(), distillers, *args, **options
    )


def compiled(*args, **options):
    distiller = make(*args, **options)
    loss = losses.SparseCategoricalCrossentropy(from_logits=True)
    distiller.compile("adam", loss, metrics=["accuracy"])
    return distiller


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("loss", ["kl_divergence", "kld"])
def test_logits(loss):
    t, s = np.array([[1.0, 2.0, 4.0]]), np.array([[3.0, 1.0, 0.0]])
    p, q = softmax(t / 2), softmax(s / 2)
    expected = 4 * (p * np.log(p / q)).sum()
    value = distillation.LogitsDistillation(2.0, loss).compute_loss(
        ops.array(t), ops.array(s)
    )
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    value = distillation.LogitsDistillation(2.0, "mse").compute_loss(
        ops.array(t), ops.array(s)
    )
    np.testing.assert_allclose(value, ((t - s) ** 2).mean() / 4, rtol=1e-6)


def test_several_outputs():
    loss = distillation.FeatureDistillation(["mse", None, "mae"])
    t, s = [ops.array([1.0])] * 3, [ops.array([4.0])] * 3
    loss.validate_outputs(t, s)
    assert float(loss.compute_loss(t, s)) == 12.0
    with pytest.raises(ValueError, match="must follow the outputs"):
        loss.validate_outputs(t[:2], s[:2])
    with pytest.raises(ValueError, match="the structures"):
        loss.validate_outputs(t, {"a": s})


@pytest.mark.parametrize(
    "match, make_loss",
    [
        ("non-`None`", lambda: distillation.FeatureDistillation(None)),
        ("non-`None`", lambda: distillation.LogitsDistillation(loss=[None, None])),
        ("positive", lambda: distillation.LogitsDistillation(0)),
        ("`temperature` to be", lambda: distillation.LogitsDistillation("hot")),
        ("expected one of", lambda: distillation.LogitsDistillation(loss="custom")),
    ],
)
def test_refused_losses(match, make_loss):
    with pytest.raises(ValueError, match=match):
        make_loss()


def test_training_changes_only_the_student():
    utils.set_random_seed(0)
    distiller = compiled(Subclass(), Subclass())
    distiller.teacher(X)
    before = [w.numpy() for w in distiller.teacher.weights]
    history = distiller.fit(X, Y, epochs=40, verbose=0, validation_data=(X, Y)).history
    assert history["total_loss"][-1] < history["total_loss"][0]
    assert {"student_loss", "val_distillation_loss", "accuracy"} <= set(history)
    for weight, value in zip(distiller.teacher.weights, before, strict=True):
        np.testing.assert_array_equal(weight.numpy(), value)
    assert not distiller.teacher.trainable and distiller.student.trainable
    np.testing.assert_allclose(distiller(X), distiller.student(X))


def test_students_approach_their_teachers():
    utils.set_random_seed(0)
    distiller = make(student_loss_weight=0.0)
    distiller.compile(optimizers.Adam(0.05), "sparse_categorical_crossentropy")

    def measure_difference():
        return np.abs(ops.softmax(distiller(X)) - ops.softmax(distiller.teacher(X)))

    before = measure_difference().mean()
    distiller.fit(X, Y, epochs=30, verbose=0)
    assert measure_difference().mean() < before / 2


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_total_loss(share):
    student = network(kernel_regularizer="l2")
    distillers = [
        distillation.LogitsDistillation(2.0),
        distillation.FeatureDistillation(),
    ]
    distiller = compiled(None, student, distillers, [0.5, 2.0], share)
    total = float(distiller.compute_loss(X, Y, distiller(X)))
    t, s = distiller.teacher(X), distiller.student(X)
    supervised = distiller._compile_loss(Y, s)
    distilled = 0.5 * distillers[0].compute_loss(t, s) + 2 * distillers[1].compute_loss(
        t, s
    )
    expected = share * supervised + (1 - share) * distilled + sum(student.losses)
    np.testing.assert_allclose(total, float(expected), rtol=1e-5)
    logs = distiller.get_metrics_result()
    np.testing.assert_allclose(logs["total_loss"], total, rtol=1e-6)
    np.testing.assert_allclose(
        logs["student_loss"], float(supervised) if share else 0.0, rtol=1e-6
    )


def test_features_of_layers():
    distillers = [
        distillation.FeatureDistillation("mse", "t_hidden", "s_hidden"),
        distillation.FeatureDistillation("mse", student_layer_name="s_out"),
    ]
    distiller = compiled(network(prefix="t_"), network(prefix="s_"), distillers)
    assert len(distiller._teacher_feature_extractor.outputs) == 2
    assert len(distiller._student_feature_extractor.outputs) == 3
    hidden = [
        Model(m.inputs, m.layers[0].output)(X)
        for m in (distiller.teacher, distiller.student)
    ]
    expected = np.square(hidden[0] - hidden[1]).mean()
    expected += np.square(distiller.teacher(X) - distiller.student(X)).mean()
    distiller.compute_loss(X, Y, distiller(X))
    logs = distiller.get_metrics_result()
    np.testing.assert_allclose(logs["distillation_loss"], expected, rtol=1e-5)
    assert len(distiller.weights) == 8
    distiller.fit(X, Y, verbose=0)


def test_models_with_several_outputs():
    def make_model():
        inputs = layers.Input((6,))
        return Model(inputs, [layers.Dense(3)(inputs), layers.Dense(2)(inputs)])

    loss = distillation.LogitsDistillation(loss=["kl_divergence", None])
    distiller = make(make_model(), make_model(), loss)
    distiller.compile(loss=["sparse_categorical_crossentropy", "mse"])
    distiller.fit(X, [Y, X[:, :2]], verbose=0)


def test_files(tmp_path):
    loss = distillation.FeatureDistillation("mse", "t_hidden", "s_hidden")
    distiller = compiled(
        network(prefix="t_"), network(prefix="s_"), loss, student_loss_weight=0.7
    )
    distiller.fit(X, Y, verbose=0)
    config = json.loads(json.dumps(distiller.get_config()))
    twin = distillation.Distiller.from_config(config)
    assert twin.student_loss_weight == 0.7
    assert twin.distillation_losses[0].teacher_layer_name == "t_hidden"
    distiller.save(tmp_path / "d.keras")
    loaded = saving.load_model(tmp_path / "d.keras")
    np.testing.assert_allclose(loaded(X), distiller(X), rtol=1e-6)
    assert not loaded.teacher.trainable
    loaded.fit(X, Y, verbose=0)
    assert models.clone_model(loaded.student).output_shape == (None, 3)


class Rows(distillation.DistillationLoss):
    """A loss that is not a scalar."""

    def compute_loss(self, teacher_outputs, student_outputs, **kwargs):
        return ops.sum(teacher_outputs, axis=1)


@pytest.mark.parametrize(
    "match, options",
    [
        ("Teacher must be a Model", {"teacher": "x"}),
        ("input shapes are incompatible", {"student": network(inputs=5)}),
        ("output shapes are incompatible", {"student": network(outputs=5)}),
        ("dtypes must match", {"student": network(dtype="float64")}),
        ("between 0.0 and 1.0", {"student_loss_weight": 2}),
        ("`student_loss_weight` to be", {"student_loss_weight": "x"}),
        ("one weight", {"distillation_loss_weights": [1, 2]}),
        (
            "In teacher model",
            {"distillers": distillation.FeatureDistillation("mse", "x")},
        ),
        (
            "requires functional",
            {
                "teacher": Subclass(),
                "distillers": distillation.FeatureDistillation("mse", "x"),
            },
        ),
    ],
)
def test_refused_models(match, options):
    with pytest.raises(ValueError, match=match):
        make(**options)


def test_refused_calls():
    distiller = make()
    with pytest.raises(ValueError, match="'loss' cannot be `None`"):
        distiller.compile()
    with pytest.raises(ValueError, match="'distillation_losses' cannot"):
        distillation.Distiller(network(), network(), None)
    with pytest.raises(ValueError, match="list or tuple"):
        distiller.compile(loss="mse", metrics="mse")
    with pytest.raises(ValueError, match="must return a scalar"):
        compiled(distillers=Rows()).compute_loss(X, Y)
    with pytest.raises(NotImplementedError, match="must implement compute_loss"):
        distillation.DistillationLoss().compute_loss(X, X)
