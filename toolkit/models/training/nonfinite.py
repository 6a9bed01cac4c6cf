"""Search for NaN and infinities in the data of a run."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from time import perf_counter
from typing import NamedTuple

import numpy as np

from toolkit import tree
from toolkit.models.training.arrays import FIELDS
from toolkit.type_aliases import Array

# Seconds that a search may take, because training waits for it.
_LIMIT = 2.0
_CHUNK = 1 << 26  # bytes of the rows that a search compares at a time


class Search(NamedTuple):
    """Result of a search.

    Attributes:
        location: the text that names the first value that is not finite, or "".
        checked: a sentence about the data that the search read; "" if it read none.
    """

    location: str = ""
    checked: str = ""


def search_arrays(components: object) -> Search:
    """Search the arrays of a run, in chunks of rows, until the limit of time.

    Args:
        components: x, or a tuple (x, y, sample_weight); each a nest of arrays.
    """
    start = perf_counter()
    nbytes = sum(getattr(array, "nbytes", 0) for array in tree.flatten(components))
    rows = max(
        (len(x) for x in tree.flatten(components) if getattr(x, "ndim", 0)), default=0
    )
    size = max(1, _CHUNK * rows // max(nbytes, 1))
    for first in range(0, rows, size):
        chunk = tree.map_structure(
            lambda x, first=first: x if x is None else x[first : first + size],
            components,
        )
        text = describe_nonfinite(chunk, first, rows)
        if text is not None:
            return Search(text)
        if perf_counter() - start > _LIMIT and first + size < rows:
            return Search(checked=f"The first {first + size} rows are finite.")
    return Search(checked="The data is finite.")


def search_batches(batches: Iterable[object]) -> Search:
    """Search batches that can be read again, until the limit of time.

    Args:
        batches: the batches of a pass.
    """
    start, count = perf_counter(), 0
    with suppress(Exception):  # the next pass of training raises it
        for batch in batches:
            text = describe_nonfinite(batch)
            if text is not None:
                return Search(f"in batch {count} (counted from 0), {text}")
            count += 1
            if perf_counter() - start > _LIMIT:
                break
        else:
            return Search(checked="The data is finite.")
    return Search(checked=f"The first {count} batches are finite.")


def describe_nonfinite(
    batch: object, first: int = 0, total: int | None = None
) -> str | None:
    """Return the number and the first index of NaN and infinities, or None.

    Args:
        batch: x, or a tuple (x, y, sample_weight); each a nest of arrays.
        first: the index of the first row.
        total: the number of rows of the data, if the batch is one of several chunks.

    Example:
        >>> import numpy as np
        >>> describe_nonfinite((np.array([[1.0], [np.nan]]), np.array([0.0, 1.0])))
        'x contains NaN or infinity in 1 of 2 rows, first in row 1, column 0'
    """
    components = batch if isinstance(batch, tuple) else (batch,)
    for name, component in zip(FIELDS, components, strict=False):
        for path, leaf in tree.flatten_with_path(component):
            elements = _nonfinite_elements(leaf)
            rows = np.asarray(elements.any(axis=1))
            if rows.any():
                label = "".join([name, *(f"[{key!r}]" for key in path)])
                number = f"{rows.sum()} of {len(rows)} rows"
                if total is not None and total > len(rows):
                    number = "some rows"
                row = int(rows.argmax())
                location = _locate(
                    np.shape(leaf)[1:], row, int(elements[row].argmax()), first
                )
                return f"{label} contains NaN or infinity in {number}, first {location}"
    return None


def _nonfinite_elements(leaf: object) -> Array:
    """Return for each element of each row whether it is NaN or infinity."""
    array = np.asarray(leaf)
    is_float = array.dtype.kind in "fc" or array.dtype.name == "bfloat16"
    if not is_float or not array.ndim:
        return np.zeros((0, 1), bool)
    return ~np.isfinite(array).reshape(len(array), -1)


def _locate(shape: tuple[int, ...], row: int, element: int, first: int) -> str:
    """Return the index of an element of a row: `in row 3, column 0`."""
    if len(shape) == 0:
        return f"in row {first + row}"
    if len(shape) == 1:
        return f"in row {first + row}, column {element}"
    index = (first + row, *map(int, np.unravel_index(element, shape)))
    return f"in row {first + row}, at index {index}"
