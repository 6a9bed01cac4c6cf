"""Test that sample weights apply to rows for any other extents."""

import numpy as np
import pytest

from toolkit import Input, Model, Sequential, layers, losses, metrics, ops
from toolkit.errors import ShapeError

RNG = np.random.default_rng(0)
REDUCTIONS = ["sum", "mean", "sum_over_batch_size", "mean_with_sample_weight", "none"]


class Mask(layers.Layer):
    """Attach a mask to the inputs."""

    def call(self, inputs):
        return inputs * 1.0

    def compute_mask(self, inputs, previous_mask):
        return MASK


MASK = ops.convert_to_tensor(np.tri(4, dtype=bool))


def data(shape):
    return RNG.uniform(0.1, 0.9, shape).astype("float32"), RNG.integers(
        0, 2, shape
    ).astype("float32")


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", [(4, 4, 2), (4, 3, 2), (4, 4, 4, 3), (4, 1, 2)])
def test_weights_of_losses_apply_to_rows(shape, reduction):
    y_pred, y_true = data(shape)
    weight = np.array([1.0, 2.0, 0.0, 4.0], "float32")
    loss = losses.MeanSquaredError(reduction=reduction)
    values = np.square(y_pred - y_true).mean(-1)
    rows = np.broadcast_to(weight.reshape(4, *(1,) * (values.ndim - 1)), values.shape)
    expected = {
        "none": values * rows,
        "sum": (values * rows).sum(),
        "mean": (values * rows).mean(),
        "sum_over_batch_size": (values * rows).mean(),
        "mean_with_sample_weight": (values * rows).sum() / rows.sum(),
    }[reduction]
    for sample_weight in (weight, weight[:, None], rows):
        actual = np.asarray(loss(y_true, y_pred, sample_weight=sample_weight))
        np.testing.assert_allclose(np.squeeze(actual), np.squeeze(expected), rtol=1e-5)


@pytest.mark.parametrize("shape", [(3,), (4, 3), (3, 4), (4, 4, 2)])
def test_weights_of_other_than_the_first_axes_are_refused(shape):
    y_pred, y_true = data((4, 4, 2))
    with pytest.raises(ShapeError, match="sample_weight"):
        losses.MeanSquaredError()(y_true, y_pred, sample_weight=np.ones(shape))
    with pytest.raises(ShapeError, match="sample_weight"):
        losses.MeanSquaredError()(y_true[:, 0], y_pred[:, 0], np.ones((4, 4)))


def test_weights_and_masks_of_losses():
    y_pred, y_true = data((4, 4, 2))
    weight = np.array([1.0, 2.0, 0.0, 4.0], "float32")
    inputs = Input((4, 2))
    model = Model(inputs, Mask()(inputs))
    model.compile(loss="mse", weighted_metrics=["mse"])
    values = np.square(y_pred - y_true).mean(-1) * MASK.numpy()
    logs = model.evaluate(
        y_pred, y_true, sample_weight=weight, return_dict=True, verbose=0
    )
    rows = weight[:, None] * MASK.numpy()
    assert logs["loss"] == pytest.approx((values * rows).sum() / MASK.numpy().sum())
    assert logs["mse"] == pytest.approx((values * rows).sum() / rows.sum(), rel=1e-5)


METRICS = [
    lambda: metrics.Mean(),
    lambda: metrics.Sum(),
    lambda: metrics.MeanSquaredError(),
    lambda: metrics.RootMeanSquaredError(),
    lambda: metrics.BinaryAccuracy(),
    lambda: metrics.CategoricalAccuracy(),
    lambda: metrics.Precision(),
    lambda: metrics.Recall(top_k=2),
    lambda: metrics.AUC(num_thresholds=20),
    lambda: metrics.TruePositives(),
    lambda: metrics.SensitivityAtSpecificity(0.5, num_thresholds=20),
    lambda: metrics.BinaryIoU(dtype="float32"),
    lambda: metrics.CosineSimilarity(),
    lambda: metrics.BinaryCrossentropy(),
    lambda: metrics.F1Score(),
    lambda: metrics.R2Score(),
]


@pytest.mark.parametrize("extent", [4, 3])
@pytest.mark.parametrize("make", METRICS)
@pytest.mark.parametrize("rank", [2, 3])
def test_weights_of_metrics_apply_to_rows(make, rank, extent):
    shape = (4, extent) if rank == 2 else (4, extent, 3)
    y_pred, y_true = data(shape)
    weight = np.array([1.0, 0.0, 0.0, 1.0], "float32")
    metric, twin = make(), make()
    if rank == 3 and isinstance(metric, (metrics.F1Score, metrics.R2Score)):
        pytest.skip("its inputs have two axes")
    is_weighted = weight > 0
    is_plain = type(metric) in (metrics.Mean, metrics.Sum)
    arguments = (y_pred,) if is_plain else (y_true, y_pred)
    metric.update_state(*arguments, sample_weight=weight)
    twin.update_state(*(x[is_weighted] for x in arguments))
    np.testing.assert_allclose(metric.result(), twin.result(), rtol=1e-5)


def test_weights_of_training_apply_to_rows():
    x = RNG.normal(size=(3, 3)).astype("float32")
    model = Sequential([Input((3,)), layers.Dense(3), layers.Reshape((3, 1))])
    model.compile("sgd", losses.MeanSquaredError(reduction="sum"))
    y = np.zeros((3, 3, 1), "float32")
    weight = np.array([1.0, 2.0, 4.0], "float32")
    expected = (np.square(model.predict(x, verbose=0)) * weight[:, None, None]).sum()
    results = model.train_on_batch(x, y, sample_weight=weight)
    assert float(results) == pytest.approx(expected, rel=1e-5)
