"""Test every loss against NumPy in float64: shapes, weights, masks and reductions."""

import itertools
import math
from typing import NamedTuple

import numpy as np
import pytest

from tests.helpers import assert_close, check_grads, public_subclasses
from toolkit import losses, ops
from toolkit.errors import ArgumentError, ShapeError
from toolkit.functions.decorator import function
from toolkit.ops.symbolic import KerasTensor

EPSILON = 1e-7


class Row(NamedTuple):
    """A loss, its arguments, its NumPy version, and pairs of y_true and y_pred."""

    cls: type
    arguments: dict
    reference: object
    pairs: list
    function: object = None

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


def unit(x, axis=-1):
    return x / np.linalg.norm(x, axis=axis, keepdims=True)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def bce(t, p, from_logits=False, label_smoothing=0.0):
    t = t * (1 - label_smoothing) + label_smoothing / 2
    p = sigmoid(p) if from_logits else p
    return -t * np.log(p) - (1 - t) * np.log(1 - p)


def focal(t, p, balanced=False, alpha=0.25, gamma=2.0, from_logits=False):
    entropy = bce(t, p, from_logits)
    p = sigmoid(p) if from_logits else p
    right = np.where(t == 1, p, 1 - p)
    weight = np.where(t == 1, alpha, 1 - alpha) if balanced else 1
    return weight * (1 - right) ** gamma * entropy


def cce(t, p, from_logits=False, label_smoothing=0.0):
    t = t * (1 - label_smoothing) + label_smoothing / t.shape[-1]
    p = softmax(p) if from_logits else p
    return -(t * np.log(p)).sum(-1)


def sparse_cce(t, p, from_logits=False, ignore=None):
    p = softmax(p) if from_logits else p
    t = t.reshape(p.shape[:-1])
    losses = -np.log(np.take_along_axis(p, t[..., None], -1)[..., 0])
    return losses if ignore is None else np.where(t == ignore, 0, losses)


def huber(t, p, delta=1.0):
    e = np.abs(t - p)
    return np.where(e <= delta, e**2 / 2, delta * e - delta**2 / 2)


def circle(t, p, gamma, margin, remove_diagonal=True):
    d = np.maximum(1 - p @ p.T, 0)
    same = t[:, None] == t[None]
    positive = same & ~np.eye(len(t), dtype=bool) if remove_diagonal else same
    pull = np.exp(-gamma * (margin + d) * (margin - d)) * positive
    push = np.exp(gamma * np.maximum(1 + margin - d, 0) * (1 - margin - d)) * ~same
    return np.log1p(pull.sum(1) * push.sum(1))


def ctc(t, p):
    """Sum over all alignments, one by one."""
    p, losses = softmax(p), []
    for label_row, steps in zip(t, p, strict=True):
        total = 0.0
        for path in itertools.product(range(p.shape[2]), repeat=p.shape[1]):
            emitted = [c for c, _ in itertools.groupby(path) if c]
            if emitted == [label for label in label_row if label]:
                total += math.prod(steps[range(len(path)), path])
        losses.append(-math.log(total))
    return np.array(losses)


def mean(elementwise):
    return lambda t, p: elementwise(t, p).mean(-1)


NUMBERS = [(normal(*s, seed=1), normal(*s)) for s in ((4, 1), (4, 3), (4, 5, 3))]
POSITIVE = [(np.abs(t) + 0.1, np.abs(p) + 0.1) for t, p in NUMBERS]
BINARY = [(labels(2, *s) + 0.0, uniform(*s)) for s in ((4, 1), (4, 3), (4, 5, 3))]
SIGNED = [(2 * t - 1, p) for t, p in BINARY]
LOGITS = [(t, normal(*p.shape)) for t, p in BINARY]
CLASSES = [(one_hot(3, *s), probabilities(*s, 3)) for s in ((4,), (4, 5))]
CLASS_LOGITS = [(t, normal(*p.shape)) for t, p in CLASSES]
SPARSE = [(labels(3, *s), probabilities(4, *s[1:2], 3)) for s in ((4,), (4, 5))]
SPARSE += [(labels(3, 4, 1), probabilities(4, 3))]
SPARSE_LOGITS = [(t, normal(*p.shape)) for t, p in SPARSE]
SEQUENCES = [(np.array([[1, 2], [2, 2], [1, 0], [0, 0]]), normal(4, 4, 3))]
EMBEDDINGS = [(labels(3, 8), unit(normal(8, 4)))]

ROWS = [
    Row(losses.MeanSquaredError, {}, mean(lambda t, p: (t - p) ** 2), NUMBERS),
    Row(losses.MeanAbsoluteError, {}, mean(lambda t, p: np.abs(t - p)), NUMBERS),
    Row(
        losses.MeanAbsolutePercentageError,
        {},
        mean(lambda t, p: 100 * np.abs(t - p) / t),
        POSITIVE,
    ),
    Row(
        losses.MeanSquaredLogarithmicError,
        {},
        mean(lambda t, p: (np.log1p(t) - np.log1p(p)) ** 2),
        POSITIVE,
    ),
    Row(losses.Huber, {}, mean(huber), NUMBERS),
    Row(losses.Huber, {"delta": 0.3}, mean(lambda t, p: huber(t, p, 0.3)), NUMBERS),
    Row(losses.LogCosh, {}, mean(lambda t, p: np.log(np.cosh(p - t))), NUMBERS),
    Row(
        losses.CosineSimilarity,
        {},
        lambda t, p: -(unit(t) * unit(p)).sum(-1),
        NUMBERS,
    ),
    Row(
        losses.CosineSimilarity,
        {"axis": 1},
        lambda t, p: -(unit(t, 1) * unit(p, 1)).sum(1),
        NUMBERS[2:],
    ),
    Row(losses.Hinge, {}, mean(lambda t, p: np.maximum(1 - t * p, 0)), SIGNED),
    Row(losses.Hinge, {}, mean(lambda t, p: 1 - (2 * t - 1) * p), BINARY),
    Row(losses.SquaredHinge, {}, mean(lambda t, p: (1 - t * p) ** 2), SIGNED),
    Row(
        losses.CategoricalHinge,
        {},
        lambda t, p: np.maximum(
            1 + ((1 - t) * p).max(-1) - (t * p).sum(-1),
            0,
        ),
        CLASSES,
    ),
    Row(
        losses.KLDivergence,
        {},
        lambda t, p: (t * np.log(t / p)).sum(-1),
        [(probabilities(*p.shape, seed=5), p) for _, p in CLASSES],
    ),
    Row(losses.Poisson, {}, mean(lambda t, p: p - t * np.log(p)), POSITIVE),
    Row(losses.BinaryCrossentropy, {}, mean(bce), BINARY),
    Row(
        losses.BinaryCrossentropy,
        {"from_logits": True, "label_smoothing": 0.1},
        mean(lambda t, p: bce(t, p, True, 0.1)),
        LOGITS,
    ),
    Row(
        losses.BinaryCrossentropy,
        {"axis": 1},
        lambda t, p: bce(t, p).mean(1),
        BINARY[2:],
    ),
    Row(
        losses.BinaryFocalCrossentropy,
        {"gamma": 1.5, "alpha": 0.3, "apply_class_balancing": True},
        mean(lambda t, p: focal(t, p, True, 0.3, 1.5)),
        BINARY,
    ),
    Row(
        losses.BinaryFocalCrossentropy,
        {"from_logits": True},
        mean(lambda t, p: focal(t, p, from_logits=True)),
        LOGITS,
    ),
    Row(losses.CategoricalCrossentropy, {}, cce, CLASSES),
    Row(
        losses.CategoricalCrossentropy,
        {"from_logits": True, "label_smoothing": 0.1},
        lambda t, p: cce(t, p, True, 0.1),
        CLASS_LOGITS,
    ),
    Row(
        losses.CategoricalFocalCrossentropy,
        {"alpha": [0.1, 0.2, 0.7], "gamma": 1.5},
        lambda t, p: (
            -(np.array([0.1, 0.2, 0.7]) * (1 - p) ** 1.5 * t * np.log(p)).sum(-1)
        ),
        CLASSES,
    ),
    Row(losses.SparseCategoricalCrossentropy, {}, sparse_cce, SPARSE),
    Row(
        losses.SparseCategoricalCrossentropy,
        {"from_logits": True},
        lambda t, p: sparse_cce(t, p, True),
        SPARSE_LOGITS,
    ),
    Row(
        losses.CategoricalGeneralizedCrossEntropy,
        {"q": 0.4},
        lambda t, p: (1 - np.exp(-0.4 * sparse_cce(t, p))) / 0.4,
        SPARSE[:2],
    ),
    Row(
        losses.Dice,
        {"axis": 1},
        lambda t, p: 1 - 2 * (t * p).sum(1) / (t.sum(1) + p.sum(1)),
        BINARY[1:],
    ),
    Row(
        losses.Tversky,
        {"axis": 1, "alpha": 0.3, "beta": 0.6},
        lambda t, p: (
            1
            - (t * p).sum(1)
            / ((t * p).sum(1) + 0.3 * (t * (1 - p)).sum(1) + 0.6 * (p * (1 - t)).sum(1))
        ),
        BINARY[1:],
    ),
    Row(
        losses.Circle,
        {"gamma": 4.0, "margin": 0.2, "remove_diagonal": False},
        lambda t, p: circle(t, p, 4, 0.2, False),
        EMBEDDINGS,
    ),
    Row(losses.CTC, {}, ctc, SEQUENCES),
]
CASES = [
    pytest.param(row, *pair, id=f"{row}-{'x'.join(map(str, pair[1].shape))}")
    for row in ROWS
    for pair in row.pairs
]


def test_every_loss_has_a_row():
    assert {row.cls for row in ROWS} == public_subclasses(losses, losses.Loss) - {
        losses.LossFunctionWrapper
    }


@pytest.mark.parametrize("row, y_true, y_pred", CASES)
def test_against_numpy(row, y_true, y_pred):
    loss = row.cls(reduction="none", dtype="float64", **row.arguments)
    # Epsilon keeps probabilities away from 0, so some losses are less exact.
    assert_close(loss(y_true, y_pred), row.reference(y_true, y_pred), factor=1e7)
    single = row.cls(reduction="none", **row.arguments)(y_true, y_pred)
    assert single.dtype == "float32"
    assert_close(single, row.reference(y_true, y_pred), factor=3)


@pytest.mark.parametrize("row, y_true, y_pred", CASES)
def test_traced_and_symbolic(row, y_true, y_pred):
    loss = row.cls(**row.arguments)
    eager = loss(y_true, y_pred)
    assert_close(function(loss)(y_true, y_pred), eager)
    symbols = [KerasTensor((None, *y.shape[1:]), "float32") for y in (y_true, y_pred)]
    values = loss.call(y_true, y_pred)
    shape = loss.call(*symbols).shape
    assert len(shape) == values.ndim and shape[1:] == values.shape[1:]


@pytest.mark.parametrize("row, y_true, y_pred", CASES)
def test_gradients(row, y_true, y_pred):
    loss = row.cls(reduction="none", dtype="float64", **row.arguments)
    check_grads(lambda p: loss(y_true, p), [y_pred], tolerance=1e-5)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_config_round_trip(row):
    loss = row.cls(reduction="sum", name="mine", **row.arguments)
    config = losses.serialize(loss)
    assert config["module"] == "keras.losses"
    restored = losses.deserialize(config)
    assert type(restored) is row.cls
    assert restored.get_config() == loss.get_config()
    assert (restored.name, restored.reduction) == ("mine", "sum")
    assert_close(restored(*row.pairs[0]), loss(*row.pairs[0]))


@pytest.mark.parametrize(
    "shape, weight",
    [
        ((4, 3), None),
        ((4, 3), (4,)),
        ((4, 3), (4, 1)),
        ((4, 3), ()),
        ((4, 5, 3), (4, 5)),
        ((4, 5, 3), (4, 1)),
        ((5, 5, 3), (5,)),
        ((4, 5, 3), (4, 5, 1)),
        ((4, 1), (4,)),
    ],
)
@pytest.mark.parametrize("masked", [False, True])
def test_weights_masks_and_reductions(shape, weight, masked):
    y_true, y_pred = normal(*shape), normal(*shape, seed=1)
    values = ((y_true - y_pred) ** 2).mean(-1)
    total = np.ones(values.shape)
    weight_argument = None if weight is None else uniform(*weight)
    if weight is not None:
        extra = weight[len(values.shape) :] == (1,)
        rows = np.asarray(weight_argument[..., 0] if extra else weight_argument)
        axes = (1,) * (values.ndim - rows.ndim if rows.ndim else 0)
        total = total * rows.reshape((*rows.shape, *axes))
    mask = None
    if masked:
        mask = rng(7).random(values.shape) < 0.6
        total = total * mask
    share = values.size / mask.sum() if masked else 1
    expected = {
        "sum": (values * total).sum(),
        "sum_over_batch_size": (values * total).mean() * share,
        "mean": (values * total).mean() * share,
        "mean_with_sample_weight": (values * total).sum() / total.sum(),
        "none": values * total,
        None: values * total,
    }
    for reduction, value in expected.items():
        y = ops.convert_to_tensor(y_pred)
        if masked:
            y._keras_mask = ops.convert_to_tensor(mask)
        loss = losses.MeanSquaredError(reduction=reduction, dtype="float64")
        result = loss(y_true, y, sample_weight=weight_argument)
        # Losses (4,) become (4, 1) if their weights have that shape.
        assert_close(ops.reshape(result, np.shape(value)), value)


def test_ignored_labels_do_not_count():
    y_true, y_pred = np.array([0, 2, 255, 1]), probabilities(4, 3)
    remaining_loss = sparse_cce(y_true[[0, 1, 3]], y_pred[[0, 1, 3]])
    loss = losses.SparseCategoricalCrossentropy(ignore_class=255)
    assert_close(loss(y_true, y_pred), remaining_loss.mean())
    loss = losses.SparseCategoricalCrossentropy(ignore_class=255, reduction="none")
    assert_close(loss(y_true, y_pred), np.insert(remaining_loss, 2, 0))


def test_circle_ignores_the_diagonal():
    (y_true, y_pred), *_ = EMBEDDINGS
    loss = losses.Circle(gamma=4.0, margin=0.2, reduction="none")
    values = circle(y_true, y_pred, 4, 0.2)
    # A value without a loss is masked: the other values share its weight.
    share = values.size / (values > 0).sum()
    assert_close(
        losses.Circle(gamma=4.0, margin=0.2)(y_true, y_pred), values.mean() * share
    )
    assert_close(loss(y_true, y_pred), values)
    references = losses.circle(y_true, y_pred, y_true, y_pred, gamma=4.0, margin=0.2)
    assert_close(references, values)


def test_extreme_logits_stay_finite():
    y_pred = np.array([[1000.0], [-1000.0]], "float32")
    loss = losses.BinaryCrossentropy(from_logits=True, reduction="none")
    assert_close(loss([[1.0], [0.0]], y_pred), [0, 0])
    assert_close(loss([[0.0], [1.0]], y_pred), [1000, 1000])
    assert np.isfinite(losses.LogCosh()([[0.0], [0.0]], y_pred).numpy())


def test_empty_batch_has_no_loss():
    assert float(losses.MeanSquaredError()(np.zeros((0, 3)), np.zeros((0, 3)))) == 0


def test_structures_of_tensors():
    class Both(losses.Loss):
        def call(self, y_true, y_pred):
            return ops.mean(ops.square(y_true["a"] - y_pred["a"]), axis=-1)

    y = {"a": np.ones((2, 3)), "b": np.ones(2)}
    assert float(Both()(y, {"a": np.zeros((2, 3)), "b": np.ones(2)})) == 1


def test_custom_loss_keeps_its_config():
    class Power(losses.Loss):
        def __init__(self, power=2, **kwargs):
            super().__init__(**kwargs)
            self.power = power

        def call(self, y_true, y_pred):
            return ops.mean(ops.abs(y_true - y_pred) ** self.power, axis=-1)

    assert Power(3, name="cubic").get_config() == {"power": 3, "name": "cubic"}

    class WithConfig(Power):
        def get_config(self):
            return {**super().get_config(), "power": self.power}

    config = WithConfig(3, reduction="sum").get_config()
    restored = WithConfig.from_config(config)
    assert (restored.power, restored.reduction) == (3, "sum")


def test_wrapped_functions_keep_their_config():
    wrapper = losses.LossFunctionWrapper(losses.huber, delta=0.5)
    restored = losses.deserialize(losses.serialize(wrapper))
    assert restored.fn is losses.huber
    assert_close(restored([[0.0]], [[2.0]]), 0.875)


@pytest.mark.parametrize(
    "identifier, expected",
    [
        ("mse", losses.mean_squared_error),
        ("MAE", losses.mean_absolute_error),
        ("kld", losses.kl_divergence),
        ("bce", losses.binary_crossentropy),
        ("sparse_categorical_crossentropy", losses.sparse_categorical_crossentropy),
        (losses.hinge, losses.hinge),
        (None, None),
    ],
)
def test_get(identifier, expected):
    assert losses.get(identifier) is expected


def test_get_creates_objects_of_classes():
    assert isinstance(losses.get("Huber"), losses.Huber)
    assert isinstance(losses.get(losses.Huber), losses.Huber)
    old_style = {"class_name": "Huber", "config": {"delta": 0.5}}
    assert losses.get(old_style).delta == 0.5
    loss = losses.Poisson()
    assert losses.get(loss) is loss


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: losses.get("msee"), ArgumentError, "'msee'.*'mse'"),
        (lambda: losses.get(3), ArgumentError, "loss: expected a name"),
        (lambda: losses.Poisson(reduction="all"), ArgumentError, "'none'.*'all'"),
        (
            lambda: losses.CategoricalGeneralizedCrossEntropy(q=1.0),
            ArgumentError,
            r"\(0, 1\)",
        ),
        (
            lambda: losses.MeanSquaredError()(np.ones((4, 3)), np.ones((4, 3)), [1, 2]),
            ShapeError,
            r"sample_weight.*\(4,\).*\(2,\)",
        ),
        (
            lambda: losses.SparseCategoricalCrossentropy()([0, 5], probabilities(2, 3)),
            IndexError,
            r"\[0, 3\).*5",
        ),
        (
            lambda: losses.CategoricalCrossentropy(axis=True)(*CLASSES[0]),
            ArgumentError,
            "axis",
        ),
        (
            lambda: losses.ctc(np.ones((2, 3)), np.ones((2, 3))),
            ShapeError,
            r"\(batch, steps, classes\).*\(2, 3\) and \(2, 3\)",
        ),
        (lambda: losses.Loss()([1.0], [1.0]), NotImplementedError, "`call`"),
    ],
)
def test_errors(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_single_class_is_warned_of():
    with pytest.warns(SyntaxWarning, match="binary_crossentropy"):
        losses.categorical_crossentropy([[1.0]], [[0.5]])
