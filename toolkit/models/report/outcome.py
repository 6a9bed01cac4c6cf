"""Evaluation for reports: metrics, outputs and targets."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from toolkit import tree
from toolkit.errors import ArgumentError
from toolkit.models.training.data_adapters import named_errors, unpack_x_y_sample_weight
from toolkit.models.training.epochs import make_batches

_INFINITE = -1  # the result of a Dataset's `cardinality`


class Outcome(NamedTuple):
    """Results of one pass over data.

    Attributes:
        batch: the first one.
        samples: the number of samples.
        logs: loss and metrics; empty without targets or compilation.
        y_true, y_pred: all targets and outputs; None if they are not single arrays.
    """

    batch: Any
    samples: int
    logs: dict[str, float]
    y_true: Any
    y_pred: Any


def outcome(model: Any, data: Any, batch_size: int) -> Outcome:
    """Run the model over data once, without changing weights.

    Args:
        model: the model.
        data: (x, y), (x, y, sample_weight) or x; arrays, or a data set of batches.
        batch_size: the batch size of arrays.
    """
    x, y, sample_weight = unpack_x_y_sample_weight(data)
    if hasattr(x, "cardinality") and int(x.cardinality()) == _INFINITE:
        raise ArgumentError(
            "report: expected finite data; use take(n) to limit the batches"
        )
    sizes = batch_size if isinstance(x, (np.ndarray, dict, list, tuple)) else None
    with named_errors("report"):
        batches = make_batches(x, y, sample_weight, sizes)
        first = batches.peek()
        model._prepare_for(first, "test_step")
    has_targets = unpack_x_y_sample_weight(first)[1] is not None
    test = model.make_test_function() if model.compiled and has_targets else None
    predict = model.make_predict_function()
    model.reset_metrics()
    logs: Any = {}
    targets, outputs = [], []
    for _, _, (batch,) in batches.groups(1):
        inputs, y_true, _ = unpack_x_y_sample_weight(batch)
        outputs.append(_array(predict((inputs,))))
        targets.append(_array(y_true))
        logs = logs if test is None else test(batch)
    logs = {} if test is None else model._final_logs(logs)
    y_true, y_pred = _joined(targets), _joined(outputs)
    samples = sum(len(tree.flatten(array)[0]) for array in outputs if array is not None)
    return Outcome(first, samples, logs, y_true, y_pred)


def _array(array: Any) -> Any:
    """Return the only array of a component of a batch, or a nest of several."""
    leaves = [np.asarray(leaf) for leaf in tree.flatten(array) if leaf is not None]
    return leaves[0] if len(leaves) == 1 else leaves or None


def _joined(arrays: list[Any]) -> Any:
    are_arrays = arrays and all(
        isinstance(array, np.ndarray) and array.ndim for array in arrays
    )
    return np.concatenate(arrays) if are_arrays else None
