"""Matching of `compile` arguments to the outputs of the model in the first step."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from toolkit import losses, metrics, tree
from toolkit.core.naming import restore_counts, to_snake_case
from toolkit.errors import ArgumentError

ACCURACY = ("accuracy", "acc")
CROSSENTROPY = ("crossentropy", "ce")


def label_kind(y_true: Any, y_pred: Any) -> str:
    """Return the kind of labels for these shapes, which determines "accuracy"."""
    true, pred = y_true.shape, y_pred.shape
    if pred[-1] == 1:
        return "binary"
    if len(true) < len(pred) or (true[-1] == 1 and pred[-1] > 1):
        return "sparse"
    return "categorical"


def object_name(obj: Any) -> str:
    """Return the name of an object, class or function in the logs."""
    if name := getattr(obj, "name", None):
        return str(name)
    return to_snake_case(getattr(obj, "__name__", None) or type(obj).__name__)


def check_names(get: Callable[[Any], Any], structure: Any, by_shape: Any) -> None:
    """Raise for unknown names; the objects are created in the first step.

    Args:
        get: `losses.get` or `metrics.get`.
        structure: a nest of the user's arguments.
        by_shape: names whose meaning depends on shapes that are unknown so far.
    """
    for leaf in tree.flatten(structure):
        if not inspect.isclass(leaf) and str(leaf).lower() not in by_shape:
            with restore_counts():
                get(leaf)


def get_loss(identifier: Any, y_true: Any, y_pred: Any) -> Any:
    """Return the Loss for a string, function or Loss; shapes decide "crossentropy"."""
    if str(identifier).lower() in CROSSENTROPY:
        function = {
            "binary": losses.binary_crossentropy,
            "sparse": losses.sparse_categorical_crossentropy,
            "categorical": losses.categorical_crossentropy,
        }[label_kind(y_true, y_pred)]
    else:
        function = losses.get(identifier)
    if isinstance(function, losses.Loss):
        return function
    name = identifier if isinstance(identifier, str) else object_name(function)
    return losses.LossFunctionWrapper(function, name=name)


def get_metric(identifier: Any, y_true: Any, y_pred: Any) -> Any:
    """Return the Metric for a string, function or Metric; shapes decide "accuracy"."""
    if identifier is None:
        raise ArgumentError("compile: expected a metric; received None")
    if str(identifier).lower() in ACCURACY:
        cls = {
            "binary": metrics.BinaryAccuracy,
            "sparse": metrics.SparseCategoricalAccuracy,
            "categorical": metrics.CategoricalAccuracy,
        }[label_kind(y_true, y_pred)]
        return cls(name=str(identifier))
    metric = metrics.get(identifier)
    name = identifier if isinstance(identifier, str) else object_name(metric)
    if not isinstance(metric, metrics.Metric):
        metric = metrics.MeanMetricWrapper(metric)
    metric.name = name
    return metric


def pack_like(structure: Any, value: Any, names: list[str] | None) -> Any:
    """Pack `value`, one entry per output, into the containers of the outputs.

    A dict can have the names of the model's outputs as keys, and lists match tuples. It
    returns None if `value` does not fit.
    """
    if tree.signature(value) == tree.signature(structure):
        return value
    if isinstance(value, dict) and not isinstance(structure, dict):
        if names is None or set(value) != set(names):
            return None
        value = [value[name] for name in names]
    elif isinstance(value, dict) and isinstance(structure, dict):
        if set(value) != set(structure):
            return None
        # In the order of the outputs, which an OrderedDict defines.
        value = [value[key] for key in tree.keys_of(structure)]
    leaves = tree.flatten(value)
    if len(leaves) != len(tree.flatten(structure)):
        return None
    return tree.pack_sequence_as(structure, leaves)


def is_flat(structure: Any) -> bool:
    """Return whether the outputs are one list, tuple or dict of tensors."""
    return tree.is_nested(structure) and len(structure) == len(tree.flatten(structure))


def describe(structure: Any) -> str:
    """Return the containers of a structure, with leaves as `*`."""
    return repr(tree.structure_of(structure))
