"""Errors of a regression: figures, and predictions against true values."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit.pictures.axes import number_text
from toolkit.pictures.page import Markup, figure, table, tag
from toolkit.pictures.scatter import draw_scatter

_POINTS = 1000  # points in the picture; larger data is subsampled


def values_section(y_true: Any, y_pred: Any) -> Markup | None:
    """Return the errors of predicted numbers; None if data is not numeric."""
    arrays = (y_true, y_pred)
    if not all(isinstance(x, np.ndarray) and x.size for x in arrays):
        return None
    if y_true.size != y_pred.size or y_pred.size != len(y_pred):
        return None
    if y_pred.dtype.kind not in "fV" or y_true.dtype.kind not in "fiuV":
        return None
    true, pred = (x.reshape(-1).astype("float64") for x in arrays)
    finite = np.isfinite(true) & np.isfinite(pred)
    if not finite.any():
        return None
    true, pred = true[finite], pred[finite]
    step = -(-len(true) // _POINTS)
    picture = draw_scatter(
        *(true[::step].tolist(), pred[::step].tolist()),
        *("true value", "predicted", "Predicted and true values"),
    )
    errors = pred - true
    variance = ((true - true.mean()) ** 2).mean()
    rows = [
        ("Mean absolute error", number_text(np.abs(errors).mean())),
        ("Root mean squared error", number_text(np.sqrt((errors**2).mean()))),
        ("Mean error", number_text(errors.mean())),
        ("Largest error", number_text(np.abs(errors).max())),
    ]
    if variance:
        rows.append(
            ("R\N{SUPERSCRIPT TWO}", number_text(1 - (errors**2).mean() / variance))
        )
    caption = f"Over {len(true):,} samples"
    listed = table(("Error", "Value"), rows, caption, numbers=(1,))
    note = "Exact predictions are on the dashed line."
    content = tag("div", figure(picture, note), listed, class_="beside")
    return tag("section", tag("h2", "Predictions"), content, id="predictions")
