"""Test every metric against NumPy in float64: batches, shapes, weights and masks."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

from tests.helpers import assert_close, public_subclasses
from toolkit import callbacks, losses, metrics, ops
from toolkit.core.trace import StatelessScope
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError, ShapeError
from toolkit.functions.decorator import function

N = 24


class Row(NamedTuple):
    """A metric, its arguments, NumPy's version `(y_true, y_pred, weight)`, and data."""

    cls: type
    arguments: dict
    reference: object
    pairs: list

    def __str__(self):
        arguments = ", ".join(f"{k}={v}" for k, v in self.arguments.items())
        return f"{self.cls.__name__}({arguments})"


def rng(seed=0):
    return np.random.default_rng(seed)


def normal(*shape, seed=0):
    return rng(seed).normal(size=shape)


def uniform(*shape, low=0.05, high=0.95, seed=0):
    return rng(seed).uniform(low, high, size=shape)


def labels(classes, *shape, seed=3):
    return rng(seed).integers(0, classes, size=shape)


def one_hot(classes, *shape):
    return np.eye(classes)[labels(classes, *shape)]


def probabilities(*shape, seed=1):
    x = uniform(*shape, seed=seed)
    return x / x.sum(-1, keepdims=True)


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def mean(values):
    """Return a reference: the weighted mean of one value per sample."""

    def reference(t, p, w):
        v = np.asarray(values(t, p), float)
        v = v.reshape(len(v), -1).mean(1)
        return (v * w).sum() / w.sum()

    return reference


def counts(t, p, w, thresholds=(0.5,)):
    """Return true positives, false positives, true negatives, false negatives."""
    w = np.broadcast_to(w.reshape(len(w), *(1,) * (p.ndim - 1)), p.shape)
    above = p[None] > np.reshape(thresholds, (-1,) + (1,) * p.ndim)
    axes = tuple(range(1, p.ndim + 1))
    return [
        (w * (above == is_predicted) * (t == label)).sum(axes)
        for is_predicted, label in ((True, 1), (True, 0), (False, 0), (False, 1))
    ]


def ratio(a, b):
    return np.divide(a, b, out=np.zeros(np.shape(a)), where=b != 0)


def count_of(index, thresholds=(0.5,)):
    def reference(t, p, w):
        numbers = counts(t, p, w, thresholds)[index]
        return numbers[0] if len(numbers) == 1 else numbers

    return reference


def precision(t, p, w, thresholds=(0.5,)):
    tp, fp, _, _ = counts(t, p, w, thresholds)
    return np.squeeze(ratio(tp, tp + fp))


def recall(t, p, w, thresholds=(0.5,)):
    tp, _, _, fn = counts(t, p, w, thresholds)
    return np.squeeze(ratio(tp, tp + fn))


def specificity(t, p, w, thresholds):
    _, fp, tn, _ = counts(t, p, w, thresholds)
    return np.squeeze(ratio(tn, tn + fp))


def top(p, k):
    """Return p with all values but the k largest of each row below any threshold."""
    ranks = np.argsort(np.argsort(-p, -1, kind="stable"), -1)
    return np.where(ranks < k, p, -np.inf)


def grid(n):
    return np.array([-1e-7, *(np.arange(1, n - 1) / (n - 1)), 1 + 1e-7])


def area(curve, heights=lambda a, b: (a + b) / 2, thresholds=None):
    """Return a reference: the Riemann sum below a curve."""
    thresholds = grid(200) if thresholds is None else thresholds

    def reference(t, p, w):
        x, y = curve(*counts(t, p, w, thresholds))
        return ((x[:-1] - x[1:]) * heights(y[:-1], y[1:])).sum()

    return reference


def roc(tp, fp, tn, fn):
    return ratio(fp, fp + tn), ratio(tp, tp + fn)


def pr(tp, fp, tn, fn):
    return ratio(tp, tp + fn), ratio(tp, tp + fp)


def pr_gain(tp, fp, tn, fn):
    scale = (tp + fn) / (tn + fp)
    recall_gain = np.where(tp == 0, 0, np.maximum(1 - scale * ratio(fn, tp), 0))
    return recall_gain, np.where(tp == 0, 1, 1 - scale * ratio(fp, tp))


def interpolated_pr(t, p, w):
    """Integrate the precision where counts change linearly, by Davis and Goadrich."""
    tp, fp, _, fn = counts(t, p, w, grid(200))
    total = 0.0
    for i in range(199):
        steps = np.linspace(0, 1, 20001)
        a = tp[i + 1] + steps * (tp[i] - tp[i + 1])
        b = tp[i + 1] + fp[i + 1] + steps * (tp[i] + fp[i] - tp[i + 1] - fp[i + 1])
        if a[-1] > a[0]:
            middle_a, middle_b = (a[1:] + a[:-1]) / 2, (b[1:] + b[:-1]) / 2
            total += (np.diff(a) * middle_a / middle_b).sum()
    return total / (tp[0] + fn[0])


def best(objective, constrained, minimum, n=200):
    def reference(t, p, w):
        thresholds = np.arange(n) / (n - 1)
        is_feasible = constrained(t, p, w, thresholds) >= minimum
        return np.where(is_feasible, objective(t, p, w, thresholds), 0).max()

    return reference


def f_beta(average=None, beta=1.0, threshold=None):
    def reference(t, p, w):
        predicted = p >= p.max(1, keepdims=True) if threshold is None else p > threshold
        w = w[:, None]
        axis = None if average == "micro" else 0
        tp = (w * predicted * t).sum(axis)
        wrong = (w * predicted * (1 - t)).sum(axis)
        missed = (w * ~predicted * t).sum(axis)
        score = (1 + beta**2) * tp / ((1 + beta**2) * tp + beta**2 * missed + wrong)
        share = (w * t).sum(0) / (w * t).sum()
        if average == "weighted":
            return (score * share).sum()
        return score if average is None else score.mean()

    return reference


def iou(classes, targets=None, ignore=None, dense=False, threshold=None):
    def reference(t, p, w):
        w = np.broadcast_to(w.reshape(len(w), *(1,) * (t.ndim - 1)), t.shape)
        if dense:
            t, p, w = t.argmax(-1), p.argmax(-1), w[..., 0]
        p = p if threshold is None else (p >= threshold)
        ratios = []
        for c in range(classes) if targets is None else targets:
            valid = t != ignore
            intersection = (w * valid * (t == c) * (p == c)).sum()
            either = (w * valid * ((t == c) | (p == c))).sum()
            if either:
                ratios.append(intersection / either)
        return np.mean(ratios)

    return reference


def r2(aggregation="uniform_average", regressors=0):
    def reference(t, p, w):
        n, w = t.size, w[:, None]
        center = (w * t).sum(0) / w.sum()
        variation = (w * (t - center) ** 2).sum(0)
        scores = 1 - (w * (t - p) ** 2).sum(0) / variation
        if aggregation == "uniform_average":
            scores = scores.mean()
        elif aggregation == "variance_weighted_average":
            scores = (scores * variation).sum() / variation.sum()
        return 1 - (1 - scores) * (n - 1) / (n - regressors - 1)

    return reference


def covariance(t, p):
    t, p = t - t.mean(-1, keepdims=True), p - p.mean(-1, keepdims=True)
    return (t * p).mean(-1)


NUMBERS = [(normal(*s), normal(*s, seed=1)) for s in ((N,), (N, 1), (N, 3), (N, 5, 3))]
POSITIVE = [(np.abs(t) + 0.1, np.abs(p) + 0.1) for t, p in NUMBERS]
BINARY = [(labels(2, *s) + 0.0, uniform(*s)) for s in ((N,), (N, 1), (N, 3))]
CLASSES = [(one_hot(6, *s), probabilities(*s, 6)) for s in ((N,), (N, 5))]
SPARSE = [(labels(6, *s), probabilities(N, *s[1:2], 6)) for s in ((N,), (N, 5))]
WITH_AXIS = [(labels(6, N, 1), probabilities(N, 6))]
EQUAL = [(labels(3, *s), labels(3, *s, seed=4)) for s in ((N,), (N, 5))]


def sparse_hit(t, p):
    return t.reshape(p.shape[:-1]) == p.argmax(-1)


def in_top(k):
    def values(t, p):
        t = t.argmax(-1) if t.shape == p.shape else t
        right = np.take_along_axis(p, t[..., None], -1)
        return (p > right).sum(-1) < k

    return values


def log_of_right(t, p):
    return -np.log(np.take_along_axis(p, t[..., None], -1)[..., 0])


MANY = (0.2, 0.5, 0.7)
EVEN = (0.0, 0.25, 0.5, 0.75, 1.0)
ROWS = [
    Row(metrics.Accuracy, {}, mean(lambda t, p: t == p), EQUAL),
    Row(metrics.BinaryAccuracy, {}, mean(lambda t, p: t == (p > 0.5)), BINARY),
    Row(
        metrics.BinaryAccuracy,
        {"threshold": 0.3},
        mean(lambda t, p: t == (p > 0.3)),
        BINARY,
    ),
    Row(
        metrics.CategoricalAccuracy,
        {},
        mean(lambda t, p: t.argmax(-1) == p.argmax(-1)),
        CLASSES,
    ),
    Row(metrics.SparseCategoricalAccuracy, {}, mean(sparse_hit), SPARSE + WITH_AXIS),
    Row(metrics.TopKCategoricalAccuracy, {"k": 2}, mean(in_top(2)), CLASSES),
    Row(metrics.SparseTopKCategoricalAccuracy, {"k": 3}, mean(in_top(3)), SPARSE),
    Row(
        metrics.MeanSquaredError,
        {},
        mean(lambda t, p: (t - p) ** 2),
        NUMBERS[1:],
    ),
    Row(
        metrics.RootMeanSquaredError,
        {},
        lambda t, p, w: np.sqrt(mean(lambda t, p: (t - p) ** 2)(t, p, w)),
        NUMBERS,
    ),
    Row(
        metrics.MeanAbsoluteError,
        {},
        mean(lambda t, p: np.abs(t - p)),
        NUMBERS[1:],
    ),
    Row(
        metrics.MeanAbsolutePercentageError,
        {},
        mean(lambda t, p: 100 * np.abs(t - p) / t),
        POSITIVE[1:],
    ),
    Row(
        metrics.MeanSquaredLogarithmicError,
        {},
        mean(lambda t, p: (np.log1p(t) - np.log1p(p)) ** 2),
        POSITIVE[1:],
    ),
    Row(
        metrics.LogCoshError,
        {},
        mean(lambda t, p: np.log(np.cosh(t - p))),
        NUMBERS[1:],
    ),
    Row(
        metrics.CosineSimilarity,
        {},
        mean(lambda t, p: (unit(t) * unit(p)).sum(-1)),
        NUMBERS[2:],
    ),
    Row(
        metrics.Hinge,
        {},
        mean(lambda t, p: np.maximum(1 - (2 * t - 1) * p, 0)),
        BINARY[1:],
    ),
    Row(
        metrics.SquaredHinge,
        {},
        mean(lambda t, p: (1 - (2 * t - 1) * p) ** 2),
        BINARY[1:],
    ),
    Row(
        metrics.CategoricalHinge,
        {},
        mean(lambda t, p: 1 + ((1 - t) * p).max(-1) - (t * p).sum(-1)),
        CLASSES,
    ),
    Row(
        metrics.KLDivergence,
        {},
        mean(lambda t, p: (t * np.log(t / p)).sum(-1)),
        [(probabilities(*p.shape, seed=5), p) for _, p in CLASSES],
    ),
    Row(
        metrics.Poisson,
        {},
        mean(lambda t, p: p - t * np.log(p)),
        POSITIVE[1:],
    ),
    Row(
        metrics.BinaryCrossentropy,
        {"label_smoothing": 0.2},
        mean(
            lambda t, p: -(0.8 * t + 0.1) * np.log(p) - (0.9 - 0.8 * t) * np.log(1 - p)
        ),
        BINARY[1:],
    ),
    Row(
        metrics.CategoricalCrossentropy,
        {},
        mean(lambda t, p: -(t * np.log(p)).sum(-1)),
        CLASSES,
    ),
    Row(metrics.SparseCategoricalCrossentropy, {}, mean(log_of_right), SPARSE),
    Row(
        metrics.PearsonCorrelation,
        {},
        mean(lambda t, p: covariance(t, p) / t.std(-1) / p.std(-1)),
        NUMBERS[2:],
    ),
    Row(
        metrics.ConcordanceCorrelation,
        {},
        mean(
            lambda t, p: (
                2
                * covariance(t, p)
                / (t.var(-1) + p.var(-1) + (t.mean(-1) - p.mean(-1)) ** 2)
            )
        ),
        NUMBERS[2:],
    ),
    Row(metrics.Mean, {}, None, []),
    Row(metrics.Sum, {}, None, []),
    *(
        Row(cls, {"thresholds": given}, count_of(i, used), BINARY)
        for i, cls in enumerate(
            (
                metrics.TruePositives,
                metrics.FalsePositives,
                metrics.TrueNegatives,
                metrics.FalseNegatives,
            )
        )
        for given, used in ((None, (0.5,)), (MANY, MANY), (EVEN, EVEN))
    ),
    *(
        row
        for cls, reference in ((metrics.Precision, precision), (metrics.Recall, recall))
        for row in (
            Row(cls, {}, reference, BINARY),
            Row(
                cls,
                {"thresholds": MANY},
                lambda t, p, w, f=reference: f(t, p, w, MANY),
                BINARY,
            ),
            Row(
                cls,
                {"top_k": 2},
                lambda t, p, w, f=reference: f(t, top(p, 2), w, (-1e9,)),
                BINARY[2:],
            ),
            Row(
                cls,
                {"class_id": 1, "thresholds": EVEN},
                lambda t, p, w, f=reference: f(t[:, 1], p[:, 1], w, EVEN),
                BINARY[2:],
            ),
        )
    ),
    Row(metrics.AUC, {}, area(roc), BINARY),
    Row(metrics.AUC, {"num_thresholds": 3}, area(roc, thresholds=grid(3)), BINARY),
    Row(
        metrics.AUC,
        {"thresholds": [0.4, 0.1, 0.8]},
        area(roc, thresholds=[-1, 0.1, 0.4, 0.8, 2]),
        BINARY,
    ),
    *(
        Row(
            metrics.AUC,
            {"curve": name, "summation_method": method},
            area(curve, heights),
            BINARY,
        )
        for name, curve in (("ROC", roc), ("PR", pr), ("PRGAIN", pr_gain))
        for method, heights in (("minoring", np.minimum), ("majoring", np.maximum))
    ),
    Row(metrics.AUC, {"curve": "PRGAIN"}, area(pr_gain), BINARY),
    Row(metrics.AUC, {"curve": "PR"}, interpolated_pr, BINARY),
    Row(
        metrics.AUC,
        {"from_logits": True},
        lambda t, p, w: area(roc)(t, 1 / (1 + np.exp(-p)), w),
        [(BINARY[0][0], normal(N))],
    ),
    Row(
        metrics.AUC,
        {"multi_label": True, "num_labels": 3},
        lambda t, p, w: np.mean([area(roc)(t[:, i], p[:, i], w) for i in range(3)]),
        BINARY[2:],
    ),
    Row(
        metrics.AUC,
        {"multi_label": True, "label_weights": [0.2, 0.3, 0.5]},
        lambda t, p, w: np.dot(
            [0.2, 0.3, 0.5], [area(roc)(t[:, i], p[:, i], w) for i in range(3)]
        ),
        BINARY[2:],
    ),
    Row(
        metrics.AUC,
        {"label_weights": [0.2, 0.3, 0.5]},
        lambda t, p, w: area(roc)(t.ravel(), p.ravel(), np.outer(w, [2, 3, 5]).ravel()),
        BINARY[2:],
    ),
    Row(
        metrics.PrecisionAtRecall, {"recall": 0.6}, best(precision, recall, 0.6), BINARY
    ),
    Row(
        metrics.RecallAtPrecision,
        {"precision": 0.6},
        best(recall, precision, 0.6),
        BINARY,
    ),
    Row(
        metrics.SensitivityAtSpecificity,
        {"specificity": 0.6},
        best(recall, specificity, 0.6),
        BINARY,
    ),
    Row(
        metrics.SpecificityAtSensitivity,
        {"sensitivity": 0.6},
        best(specificity, recall, 0.6),
        BINARY,
    ),
    *(
        Row(
            metrics.FBetaScore,
            {"average": average, "beta": 2.0, "threshold": threshold},
            f_beta(average, 2.0, threshold),
            [BINARY[2]],
        )
        for average in (None, "micro", "macro", "weighted")
        for threshold in (None, 0.4)
    ),
    Row(metrics.F1Score, {"average": "macro"}, f_beta("macro"), [CLASSES[0]]),
    Row(
        metrics.IoU,
        {"num_classes": 3, "target_class_ids": [0, 2]},
        iou(3, [0, 2]),
        EQUAL,
    ),
    Row(metrics.MeanIoU, {"num_classes": 3}, iou(3), EQUAL),
    Row(
        metrics.MeanIoU,
        {"num_classes": 3, "ignore_class": 1},
        iou(3, ignore=1),
        EQUAL,
    ),
    Row(
        metrics.BinaryIoU,
        {"threshold": 0.3},
        iou(2, threshold=0.3),
        BINARY,
    ),
    Row(
        metrics.OneHotIoU,
        {"num_classes": 6, "target_class_ids": [0, 3]},
        iou(6, [0, 3], dense=True),
        CLASSES,
    ),
    Row(metrics.OneHotMeanIoU, {"num_classes": 6}, iou(6, dense=True), CLASSES),
    *(
        Row(
            metrics.R2Score,
            {"class_aggregation": aggregation, "num_regressors": regressors},
            r2(aggregation, regressors),
            [NUMBERS[2]],
        )
        for aggregation in ("uniform_average", "variance_weighted_average", None)
        for regressors in (0, 4)
    ),
]
CASES = [
    pytest.param(row, *pair, id=f"{row}-{'x'.join(map(str, pair[1].shape))}")
    for row in ROWS
    for pair in row.pairs
]
WEIGHT = rng(9).integers(1, 4, N)
BATCHES = (slice(0, 5), slice(5, 13), slice(13, N))


def update(metric, y_true, y_pred, weight):
    """Return the result after three batches of different sizes."""
    if weight is not None and isinstance(metric, metrics.IoU):
        # These need a weight for each label.
        shape = y_true.shape[:-1] if not metric.sparse_y_true else y_true.shape
        weight = np.broadcast_to(weight.reshape(-1, *(1,) * (len(shape) - 1)), shape)
    for batch in BATCHES:
        weight_argument = None if weight is None else weight[batch]
        metric.update_state(y_true[batch], y_pred[batch], weight_argument)
    return metric.result()


def test_every_metric_has_a_row():
    assert {row.cls for row in ROWS} == public_subclasses(metrics, metrics.Metric) - {
        metrics.MeanMetricWrapper
    }


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("row, y_true, y_pred", CASES)
def test_against_numpy(row, y_true, y_pred, weighted):
    metric = row.cls(**row.arguments)
    weight = WEIGHT if weighted else None
    expected = row.reference(y_true, y_pred, WEIGHT if weighted else np.ones(N, int))
    result = update(metric, y_true, y_pred, weight)
    assert_close(result, expected, factor=5)
    metric.reset_state()
    assert all(not v.numpy().any() for v in metric.variables)
    assert_close(update(metric, y_true, y_pred, weight), result)


@pytest.mark.parametrize("row, y_true, y_pred", CASES)
@pytest.mark.one_in(3)
def test_traced_and_stateless(row, y_true, y_pred):
    eager, traced, stateless = (row.cls(**row.arguments) for _ in range(3))
    expected = update(eager, y_true, y_pred, None)
    step = function(lambda t, p: traced.update_state(t, p))
    for batch in BATCHES:
        step(y_true[batch], y_pred[batch])
    assert_close(function(traced.result)(), expected)

    stateless.update_state(y_true[:1], y_pred[:1])  # some build on the first batch
    state = stateless.stateless_reset_state()
    for batch in BATCHES:
        state = stateless.stateless_update_state(state, y_true[batch], y_pred[batch])
    assert_close(stateless.stateless_result(state), expected)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_config_round_trip(row):
    metric = row.cls(name="mine", **row.arguments)
    config = metrics.serialize(metric)
    assert config["module"] == "keras.metrics"
    restored = metrics.deserialize(config)
    assert type(restored) is row.cls
    assert restored.get_config() == metric.get_config()
    if row.pairs:
        results = [update(m, *row.pairs[-1], None) for m in (metric, restored)]
        assert_close(*results)


@pytest.mark.parametrize(
    "values, weight, total, average",
    [
        ([[1.0, 2.0], [3.0, 4.0]], None, 10.0, 2.5),
        ([[1.0, 2.0], [3.0, 4.0]], [1.0, 3.0], 24.0, 3.0),
        ([[1.0, 2.0], [3.0, 4.0]], [[1.0, 0.0], [0.0, 1.0]], 5.0, 2.5),
        ([[1.0, 2.0], [3.0, 4.0]], [[1.0], [3.0]], 24.0, 3.0),
        ([1.0, 2.0], [[1.0], [3.0]], 7.0, 1.75),
        (3.0, 2.0, 6.0, 3.0),
        (3.0, None, 3.0, 3.0),
        ([], None, 0.0, 0.0),
    ],
)
def test_mean_and_sum(values, weight, total, average):
    assert_close(metrics.Sum()(values, weight), total)
    assert_close(metrics.Mean()(values, weight), average)


def test_masks_are_weights():
    y_true, y_pred = normal(4, 3), normal(4, 3, seed=1)
    mask = np.array([True, False, True, False])
    masked = ops.convert_to_tensor(y_pred)
    masked._keras_mask = ops.convert_to_tensor(mask)
    errors = np.abs(y_true - y_pred).mean(-1)
    metric = metrics.MeanAbsoluteError()
    assert_close(metric(y_true, masked), errors[mask].mean())
    metric.reset_state()
    weights = np.array([1.0, 5.0, 3.0, 5.0])
    expected = (errors * weights * mask).sum() / 4
    assert_close(metric(y_true, masked, weights), expected)


def test_invalid_labels_are_never_among_the_top_k():
    scores = np.array([[0.0, 1, 2, 3]] * 4, "float32")
    labels = np.array([-1, 3, 4, 9])
    assert ops.in_top_k(labels, scores, 2).tolist() == [False, True, False, False]
    actual = metrics.sparse_top_k_categorical_accuracy(labels, scores, 4)
    assert actual.tolist() == [0, 1, 0, 0]
    scores[1, 3] = np.inf
    assert not any(ops.in_top_k(labels, scores, 4))


def test_sparse_top_k_of_sorted_ids():
    metric = metrics.SparseTopKCategoricalAccuracy(k=2, from_sorted_ids=True)
    assert float(metric([1, 5], [[3, 1, 5], [3, 1, 5]])) == 0.5


def test_labels_above_the_integer_range_of_float16():
    y_pred = np.zeros((1, 5000), "float16")
    y_pred[0, 4099] = 1
    assert float(metrics.SparseCategoricalAccuracy()([4099], y_pred)) == 1
    assert float(metrics.SparseCategoricalAccuracy()([4100], y_pred)) == 0


def test_too_few_samples_for_an_adjusted_r2():
    metric = metrics.R2Score(num_regressors=5)
    y_true, y_pred = [[1.0], [2.0], [4.0]], [[1.0], [2.0], [3.0]]
    assert_close(metric(y_true, y_pred), metrics.R2Score()(y_true, y_pred))


def test_iou_ignores_invalid_classes():
    metric = metrics.MeanIoU(num_classes=2)
    assert_close(metric([0, 1, 7, -1], [0, 1, 0, 1]), 1.0)


def test_variables_are_tracked_and_named():
    class Pair(metrics.Metric):
        def __init__(self):
            super().__init__(name="pair")
            self.mean = metrics.Mean()
            self.total = Variable(0.0, trainable=False)
            self.best = self.add_weight(name="best", initializer="ones")

        def update_state(self, values):
            self.mean.update_state(values)
            self.total.assign_add(1)

        def result(self):
            return self.mean.result() * self.total

    metric = Pair()
    assert [v.name for v in metric.variables][1:] == ["best", "total", "count"]
    assert metric.best.path == "pair/best"
    assert float(metric([1.0, 3.0])) == 2.0
    with StatelessScope():
        metric.update_state([100.0])
    assert float(metric.result()) == 2.0


def test_custom_metric_keeps_its_config():
    class Least(metrics.Metric):
        def __init__(self, start=9.0, **kwargs):
            super().__init__(**kwargs)
            self.start = start

    assert Least(5.0, name="x").get_config() == {"start": 5.0, "name": "x"}

    class WithConfig(Least):
        def get_config(self):
            return {**super().get_config(), "start": self.start}

    config = WithConfig(5.0, name="x").get_config()
    assert config == {"name": "x", "dtype": "float32", "start": 5.0}
    assert WithConfig.from_config(config).start == 5.0


@pytest.mark.parametrize(
    ("make", "best"),
    [
        (metrics.AUC, 2.0),
        (metrics.MeanSquaredError, 1.0),
        (lambda: metrics.MeanMetricWrapper(losses.huber), 1.0),
        (metrics.Mean, None),
    ],
)
def test_early_stopping_uses_the_direction(make, best):
    metric = make()
    callback = callbacks.EarlyStopping(metric.name)
    callback.set_model(SimpleNamespace(metrics=[metric]))
    with nullcontext() if best else pytest.raises(ArgumentError, match="direction"):
        callback.on_train_begin()
        for epoch, value in enumerate((1.0, 2.0)):
            callback.on_epoch_end(epoch, {metric.name: value})
        assert callback.best == best


@pytest.mark.parametrize(
    "identifier, cls",
    [
        ("mse", metrics.MeanSquaredError),
        ("auc", metrics.AUC),
        ("AUC", metrics.AUC),
        ("sparse_categorical_accuracy", metrics.SparseCategoricalAccuracy),
        (metrics.Recall, metrics.Recall),
        ({"class_name": "AUC", "config": {"num_thresholds": 9}}, metrics.AUC),
    ],
)
def test_get(identifier, cls):
    assert isinstance(metrics.get(identifier), cls)


def test_get_keeps_functions_and_none():
    assert metrics.get(losses.huber) is losses.huber
    assert metrics.get(None) is None


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: metrics.get("accurcy"), ArgumentError, "'accurcy'.*'accuracy'"),
        (lambda: metrics.Precision(thresholds=[0.5, 2]), ArgumentError, r"\[0, 1\]"),
        (lambda: metrics.AUC(curve="x"), ArgumentError, "'ROC'.*'x'"),
        (lambda: metrics.AUC(summation_method="x"), ArgumentError, "'majoring'.*'x'"),
        (lambda: metrics.AUC(num_thresholds=1), ArgumentError, "num_thresholds"),
        (lambda: metrics.AUC(num_labels=2), ArgumentError, "multi_label"),
        (lambda: metrics.AUC(thresholds=[2.0]), ArgumentError, r"\[0, 1\]"),
        (
            lambda: metrics.AUC(multi_label=True)([1.0], [1.0]),
            ShapeError,
            r"\(batch, labels\)",
        ),
        (
            lambda: metrics.Recall()(np.ones((4, 3)), np.ones((4, 2))),
            ShapeError,
            r"\(4, 3\) and \(4, 2\)",
        ),
        (lambda: metrics.Recall(class_id=1)([1.0], [1.0]), ShapeError, "class_id"),
        (lambda: metrics.PrecisionAtRecall(1.5), ArgumentError, "recall in"),
        (
            lambda: metrics.RecallAtPrecision(0.5, num_thresholds=0),
            ArgumentError,
            "num_thresholds",
        ),
        (lambda: metrics.IoU(2, [2]), ArgumentError, r"\[0, 2\)"),
        (lambda: metrics.FBetaScore(average="x"), ArgumentError, "'macro'.*'x'"),
        (lambda: metrics.FBetaScore(beta=-1.0), ArgumentError, "beta"),
        (lambda: metrics.FBetaScore(threshold=2.0), ArgumentError, "threshold"),
        (lambda: metrics.F1Score()([1.0], [1.0]), ShapeError, r"\(batch, classes\)"),
        (lambda: metrics.R2Score("x"), ArgumentError, "'uniform_average'.*'x'"),
        (lambda: metrics.R2Score(num_regressors=-1), ArgumentError, ">= 0"),
        (lambda: metrics.R2Score()([1.0], [1.0]), ShapeError, r"\(batch, outputs\)"),
        (lambda: metrics.Mean()([1.0, 2.0], [1.0] * 3), ShapeError, "sample_weight"),
        (lambda: metrics.Mean().stateless_result([0.0]), ArgumentError, "2 values"),
        (lambda: metrics.Metric().result(), NotImplementedError, "`result`"),
        (lambda: metrics.Metric().update_state(), NotImplementedError, "`update_st"),
    ],
)
def test_errors(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_missing_base_constructor_is_reported():
    class Forgetful(metrics.Metric):
        def __init__(self):
            self.total = self.add_variable((), "zeros")

    with pytest.raises(ArgumentError, match="super"):
        Forgetful()


def test_sparse_crossentropy_ignores_a_class():
    metric = metrics.SparseCategoricalCrossentropy(ignore_class=-1)
    restored = metrics.SparseCategoricalCrossentropy.from_config(metric.get_config())
    predictions = np.full((3, 2), 0.5)
    restored.update_state([0, -1, 1], predictions, sample_weight=[1.0, 5.0, 3.0])
    np.testing.assert_allclose(float(restored.result()), np.log(2), rtol=1e-6)


def test_nested_metrics():
    outer = metrics.Mean()
    outer.parts = [metrics.Mean(), {"deep": metrics.Mean()}]
    outer.parts_by_name = {"one": metrics.Mean()}
    assert len(outer.variables) == 8


def test_float_weights_of_a_counting_metric():
    metric = metrics.MeanIoU(num_classes=3)
    with pytest.warns(UserWarning, match=r"weight.*float.*int.*casting"):
        metric.update_state([0, 1], [0, 1], sample_weight=[1.5, 0.2])


@pytest.mark.parametrize(
    "labels",
    [{}, {"multi_label": True}, {"multi_label": True, "label_weights": [1.0, 3.0]}],
)
def test_interpolated_area_is_independent_of_the_curve(labels):
    y = np.array([[1, 0], [0, 1], [1, 1]], "float32")
    p = np.array([[0.3, 0.6], [0.7, 0.6], [0.8, 0.9]], "float32")
    of_roc = metrics.AUC(num_thresholds=5, **labels)
    of_pr = metrics.AUC(num_thresholds=5, curve="PR", **labels)
    for metric in (of_roc, of_pr):
        metric.update_state(y, p)
    assert float(of_pr.interpolate_pr_auc()) == float(of_pr.result())
    assert float(of_roc.interpolate_pr_auc()) == float(of_pr.result())
    assert float(of_roc.result()) != float(of_pr.result())
