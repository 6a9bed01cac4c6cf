"""Errors of a classifier: its confusion matrix, and figures for each class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from toolkit.errors import ArgumentError
from toolkit.pictures.page import Markup, bar, captioned, table, tag
from toolkit.type_aliases import Array

_MOST = 30  # the maximum number of classes for which the matrix is shown
_PAIRS = 10  # the maximum length of the list of frequent mistakes
_STRONG = 0.55  # cells with a larger share are dark, with light numbers


@dataclass
class Confusion:
    """Confusion matrix: counts[i, j] samples of class i with prediction j."""

    counts: Array
    names: list[str]

    @property
    def accuracy(self) -> float:
        """Return the fraction of samples that are classified correctly."""
        return float(np.trace(self.counts) / max(1, self.counts.sum()))


def confusion(
    y_true: Any, y_pred: Any, names: Sequence[str] | None
) -> Confusion | None:
    """Return the confusion matrix, or None if the outputs are not classes.

    Args:
        y_true: class indices (n,) or (n, 1), or one-hot rows (n, classes).
        y_pred: scores (n, classes), of which the largest counts; or (n, 1) for two
            classes: probabilities, or, if any is outside of [0, 1], logits.
        names: the names of the classes; their indices if None.
    """
    if not isinstance(y_pred, np.ndarray) or not isinstance(y_true, np.ndarray):
        return None
    if y_pred.ndim == 1:
        y_pred = y_pred[:, None]
    if y_pred.ndim != 2 or not len(y_pred) or y_pred.dtype.kind not in "fV":
        return None
    y_pred = y_pred.astype("float64")
    count = max(2, y_pred.shape[1])
    labels = _labels(y_true, count)
    if labels is None or len(labels) != len(y_pred):
        return None
    if y_pred.shape[1] == 1:
        edge = 0.5 if y_pred.min() >= 0 and y_pred.max() <= 1 else 0.0
        guesses = (y_pred[:, 0] > edge).astype("int64")
    else:
        guesses = y_pred.argmax(1)
    if names is not None and len(names) != count:
        raise ArgumentError(
            f"report: expected {count} class_names, one for each output; received "
            f"{len(names)}"
        )
    counts = np.zeros((count, count), "int64")
    np.add.at(counts, (labels, guesses), 1)
    return Confusion(counts, [str(name) for name in names or range(count)])


def _labels(y_true: Any, count: int) -> Array | None:
    """Return the class indices of targets, or None if the targets are not classes."""
    y_true = y_true.astype("float64") if y_true.dtype.kind in "fiubV" else y_true
    if y_true.dtype.kind != "f":
        return None
    if y_true.ndim == 2 and y_true.shape[1] == count:
        single = ((y_true == 0) | (y_true == 1)).all() and (y_true.sum(1) == 1).all()
        return y_true.argmax(1) if single else None
    if y_true.ndim == 2 and y_true.shape[1] == 1:
        y_true = y_true[:, 0]
    is_integer = y_true.ndim == 1 and (y_true % 1 == 0).all()
    if not is_integer or y_true.min(initial=0) < 0 or y_true.max(initial=0) >= count:
        return None
    return y_true.astype("int64")


def confusion_section(errors: Confusion) -> Markup:
    """Return the matrix, the most frequent mistakes and the figures for each class."""
    right, total = int(np.trace(errors.counts)), int(errors.counts.sum())
    text = (
        f"{right:,} of {total:,} samples ({right / total:.1%}) are classified "
        "correctly."
    )
    how = " In the matrix, rows are the true classes, columns the predicted ones."
    matrix = _matrix(errors) if len(errors.names) <= _MOST else ""
    return tag(
        "section",
        tag("h2", "Classes"),
        tag("p", text, how if matrix else ""),
        tag("div", matrix, _mistakes(errors), class_="beside"),
        _figures(errors),
        id="classes",
    )


def _matrix(errors: Confusion) -> Markup:
    sums = errors.counts.sum(1, keepdims=True)
    shares = errors.counts / np.maximum(sums, 1)
    head = tag(
        "tr", tag("td"), *(tag("th", name, scope="col") for name in errors.names)
    )
    rows = []
    for i, name in enumerate(errors.names):
        cells = [
            _cell(errors, i, j, float(shares[i, j])) for j in range(len(errors.names))
        ]
        rows.append(tag("tr", tag("th", name, scope="row"), *cells))
    caption = "Confusion matrix"
    content = (tag("thead", head), tag("tbody", *rows))
    matrix = tag("table", *content, class_="matrix", aria_label=caption)
    return captioned(matrix, caption)


def _cell(errors: Confusion, i: int, j: int, share: float) -> Markup:
    count = int(errors.counts[i, j])
    kinds = ["right" if i == j else "wrong"] if count else ["none"]
    if share >= _STRONG:
        kinds.append("strong")
    hint = f"{errors.names[i]} predicted as {errors.names[j]}: {count:,}, {share:.1%}"
    style = f"--fill:{_fill(share):.3f}" if count else None
    return tag("td", f"{count:,}", class_=" ".join(kinds), style=style, title=hint)


def _fill(share: float) -> float:
    """Return the opacity of a cell: no medium value, so that its number is readable."""
    return 0.95 + 0.05 * share if share >= _STRONG else 0.04 + 0.8 * share


def _mistakes(errors: Confusion) -> Markup:
    wrong = errors.counts.copy()
    np.fill_diagonal(wrong, 0)
    order = np.argsort(-wrong, axis=None, kind="stable")[:_PAIRS]
    pairs = [divmod(int(index), len(errors.names)) for index in order]
    pairs = [(i, j) for i, j in pairs if wrong[i, j]]
    if not pairs:
        return tag("p", "There are no errors.")
    sums = errors.counts.sum(1)
    rows = [
        (errors.names[i], errors.names[j], wrong[i, j], f"{wrong[i, j] / sums[i]:.1%}")
        for i, j in pairs
    ]
    heads = ("True class", "Predicted", "Samples", "Of the class")
    return table(heads, rows, "The most frequent errors", numbers=(2, 3))


def _figures(errors: Confusion) -> Markup:
    right = np.diag(errors.counts)
    true, predicted = errors.counts.sum(1), errors.counts.sum(0)
    recall, precision = right / np.maximum(true, 1), right / np.maximum(predicted, 1)
    f1 = 2 * right / np.maximum(true + predicted, 1)
    rows = [
        (
            name,
            f"{true[i]:,}",
            f"{precision[i]:.1%}" if predicted[i] else "\N{EN DASH}",
            f"{recall[i]:.1%}" if true[i] else "\N{EN DASH}",
            bar(f1[i], f"{f1[i]:.1%}"),
        )
        for i, name in enumerate(errors.names)
    ]
    heads = ("Class", "Samples", "Precision", "Recall", "F1")
    return table(heads, rows, "Each class", numbers=(1, 2, 3, 4))
