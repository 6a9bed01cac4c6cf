"""`tf.metrics` of TensorFlow 1: running metrics in local Variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolkit import ops
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.compat.tensorflow.v1.graph import get_default_graph
from toolkit.compat.tensorflow.v1.graph_initializers import zeros_initializer
from toolkit.compat.tensorflow.v1.scopes import get_variable, variable_scope
from toolkit.compat.tensorflow.v1.tensors import GraphStep
from toolkit.compat.tensorflow.v1.variables import GraphKeys
from toolkit.core.keras_tensor import KerasTensor
from toolkit.core.tensor import Tensor
from toolkit.type_aliases import TensorLike

_KEYS = [GraphKeys.LOCAL_VARIABLES, GraphKeys.METRIC_VARIABLES]


def _make_ratio(
    name: str | None,
    default: str,
    totals: tuple[str, str],
    counted: Callable[..., Any],
    inputs: tuple[Any, ...],
    collections: tuple[Any, Any],
) -> tuple[Any, Any]:
    """Create a metric as the quotient of two running sums.

    Args:
        name, default: of the scope.
        totals: the names of the Variables.
        counted: maps the inputs to the increments of the Variables.
        inputs: tensors, or None.
        collections: collections for the value, and for the update.
    """
    graph = get_default_graph()

    def divided(top: Tensor, bottom: Tensor) -> Tensor:
        return ops.divide_no_nan(top, bottom)

    def update(run: Any, cells: Any, inputs: Any) -> Any:
        added = counted(*(None if x is None else convert(run.value(x)) for x in inputs))
        sums = []
        for v, increment in zip(cells, added, strict=True):
            with run.at(v):
                sums.append(run.cell(v).assign_add(ops.cast(increment, v.dtype)))
        return divided(*sums)

    with variable_scope(name, default_name=default):
        cells = [
            get_variable(key, (), "float32", zeros_initializer(), None, False, _KEYS)
            for key in totals
        ]
        value = graph.record(divided, tuple(cells), {}, "value")
        step = GraphStep(update, "MetricUpdate")
        symbol = KerasTensor((), "float32")
        tensors = value, graph.append(step, (cells, inputs), symbol, name="update_op")
    for keys, tensor in zip(collections, tensors, strict=True):
        graph.add_to_collections(keys, tensor)
    return tensors


def _weights(values: Any, weights: TensorLike) -> Tensor:
    ones = ops.ones(values.shape, "float32")
    return ones if weights is None else ones * ops.cast(weights, "float32")


def _weighted(values: TensorLike, weights: TensorLike) -> tuple[Any, Any]:
    weights = _weights(values, weights)
    return ops.sum(ops.cast(values, "float32") * weights), ops.sum(weights)


def mean(
    values: TensorLike,
    weights: TensorLike | None = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Return the weighted running mean of all values.

    Args:
        values: of any shape.
        weights: broadcast to the values; ones if None.
        metrics_collections: names of collections for the value.
        updates_collections: names of collections for the update.
        name: of the scope.

    Returns:
        The value, and the update operation, whose result is the new value.
    """
    totals = ("total", "count")
    keys = (metrics_collections, updates_collections)
    return _make_ratio(name, "mean", totals, _weighted, (values, weights), keys)


def accuracy(
    labels: TensorLike,
    predictions: TensorLike,
    weights: TensorLike | None = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Return the fraction of predictions that equal the labels; see `mean`."""

    def counted(y: Any, p: Any, w: Any) -> Any:
        return _weighted(ops.equal(ops.cast(p, y.dtype), y), w)

    inputs = (labels, predictions, weights)
    keys = (metrics_collections, updates_collections)
    return _make_ratio(name, "accuracy", ("total", "count"), counted, inputs, keys)


def mean_squared_error(
    labels: TensorLike,
    predictions: TensorLike,
    weights: TensorLike | None = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Return the mean of (labels - predictions)²; see `mean`."""

    def counted(y: TensorLike, p: Any, w: Any) -> Any:
        return _weighted(ops.square(p - ops.cast(y, p.dtype)), w)

    inputs, totals = (labels, predictions, weights), ("total", "count")
    keys = (metrics_collections, updates_collections)
    return _make_ratio(name, "mean_squared_error", totals, counted, inputs, keys)


def precision(
    labels: TensorLike,
    predictions: TensorLike,
    weights: TensorLike | None = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Return true positives divided by predicted positives; see `mean`."""

    def counted(y: TensorLike, p: Any, w: Any) -> Any:
        y, p = ops.cast(y, "bool"), ops.cast(p, "bool")
        w = _weights(y, w)
        return ops.sum(w * ops.logical_and(y, p)), ops.sum(w * p)

    inputs, totals = (labels, predictions, weights), ("true_positives", "positives")
    keys = (metrics_collections, updates_collections)
    return _make_ratio(name, "precision", totals, counted, inputs, keys)


def recall(
    labels: TensorLike,
    predictions: TensorLike,
    weights: TensorLike | None = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Return true positives divided by labelled positives; see `mean`."""

    def counted(y: TensorLike, p: Any, w: Any) -> Any:
        y, p = ops.cast(y, "bool"), ops.cast(p, "bool")
        w = _weights(y, w)
        return ops.sum(w * ops.logical_and(y, p)), ops.sum(w * y)

    inputs, totals = (labels, predictions, weights), ("true_positives", "relevant")
    keys = (metrics_collections, updates_collections)
    return _make_ratio(name, "recall", totals, counted, inputs, keys)
