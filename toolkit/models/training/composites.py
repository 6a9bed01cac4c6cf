"""Ragged and sparse tensors of the TensorFlow API as data of models."""

from __future__ import annotations

from typing import Any

from toolkit import data, tree


def is_composite(x: Any) -> bool:
    """Return whether `x` is a ragged or sparse tensor of the TensorFlow API."""
    return bool(getattr(type(x), "is_composite", False))


def has_composites(structure: Any) -> bool:
    """Return whether a nest of arrays contains a ragged or a sparse tensor."""
    return any(map(is_composite, tree.flatten(structure)))


def batches_of_rows(parts: Any, batch_size: int, shuffle: bool) -> Any:
    """Return the batches of (x, y, sample_weight) with ragged or sparse components."""
    last = max(i for i, part in enumerate(parts) if part is not None)
    given = tuple(tree.map_structure(_as_rows, part) for part in parts[: last + 1])
    rows = data.Dataset.from_tensor_slices(given if last else (given[0],))
    rows = rows.shuffle(len(rows)) if shuffle else rows
    return rows.batch(batch_size)


def _as_rows(part: Any) -> Any:
    """Return ragged rows in the form of the data pipelines; other values unchanged."""
    return part.as_data() if hasattr(part, "as_data") else part
