"""HTML representations for notebooks, in the notebook's own colours."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit.pictures.axes import bytes_text, number_text
from toolkit.pictures.page import Markup, tag

_SHOWN = 100  # show all elements up to this number
_EDGE = 3  # otherwise show this number of elements at each end of an axis
_RULES = (
    ".toolkit-note{font-size:.9em;line-height:1.45}"
    ".toolkit-note table{border-collapse:collapse;margin:.4em 0}"
    # Twice the class: the rules of JupyterLab for cells are as specific as one class.
    ".toolkit-note.toolkit-note :is(th,td){text-align:left;padding:.2em .9em .2em 0;"
    "border-bottom:1px solid rgba(128,128,128,.3);background:none}"
    ".toolkit-note thead th{opacity:.75}.toolkit-note tbody th{font-weight:normal}"
    ".toolkit-note.toolkit-note .number.number{text-align:right}"
    ".toolkit-note td,.toolkit-note th{white-space:nowrap}"
    ".toolkit-note figure{margin:0;overflow-x:auto}"
    ".toolkit-note figcaption{opacity:.75}"
    ".toolkit-note summary~figure figcaption{display:none}"
    ".toolkit-note .note{opacity:.75;margin-left:.5em}"
    ".toolkit-note.toolkit-note pre{margin:.4em 0;overflow-x:auto;background:none;"
    "white-space:pre}"
    ".toolkit-note summary{cursor:pointer}"
)


def note(*content: Any) -> Markup:
    """Wrap content for a notebook; it inherits colours and fonts."""
    return tag("div", tag("style", Markup(_RULES)), *content, class_="toolkit-note")


def array_note(head: str, array: Any, facts: str = "") -> Markup:
    """Show an array: its shape, dtype, size, statistics and some values.

    Args:
        head: the title.
        array: a NumPy array, or None without values.
        facts: further facts.
    """
    if array is None:
        return note(tag("b", head), f" {facts}")
    size = bytes_text(array.nbytes)
    about = f" shape {array.shape}, {array.dtype}, {size}"
    lines = [tag("div", tag("b", head), about, f", {facts}" if facts else "")]
    described = _describe(array)
    if described:
        lines.append(tag("div", described, class_="values"))
    text = np.array2string(
        array, threshold=_SHOWN, edgeitems=_EDGE, precision=4, suppress_small=True
    )
    return note(*lines, tag("pre", text))


def _describe(array: Any) -> str:
    """Return the minimum, mean and maximum of numbers, and the count of non-finite
    ones."""
    if array.size < 2:
        return ""
    if array.dtype == bool:
        return f"{int(array.sum()):,} of {array.size:,} are true"
    kind = np.result_type(array.dtype).kind
    if kind not in "iufV":
        return ""
    values = array.astype("float64") if kind in "fV" else array
    finite = values if kind in "iu" else values[np.isfinite(values)]
    texts = []
    if finite.size:
        minimum, mean, maximum = (
            finite.min(),
            finite.mean(dtype="float64"),
            finite.max(),
        )
        number_texts = (number_text(float(v)) for v in (minimum, mean, maximum))
        texts = [
            f"{k} {v}"
            for k, v in zip(("min", "mean", "max"), number_texts, strict=True)
        ]
    if finite.size < values.size:
        texts.append(f"{values.size - finite.size:,} not finite")
    return ", ".join(texts)
