"""Ragged and sparse tensors of the TensorFlow API as data of models."""

from __future__ import annotations

from typing import Any

from toolkit import data, tree


def is_composite(x: object) -> bool:
    """Return whether `x` is a ragged or sparse tensor of the TensorFlow API."""
    return bool(getattr(type(x), "is_composite", False))


def has_composites(structure: Any) -> bool:
    """Return whether a nest of arrays contains a ragged or a sparse tensor."""
    return any(map(is_composite, tree.flatten(structure)))


def batches_of_rows(all_components: Any, batch_size: int, shuffle: bool) -> Any:
    """Return the batches of (x, y, sample_weight) with ragged or sparse components."""
    last = max(i for i, component in enumerate(all_components) if component is not None)
    components = tuple(
        tree.map_structure(_as_rows, component)
        for component in all_components[: last + 1]
    )
    rows = data.Dataset.from_tensor_slices(components if last else (components[0],))
    rows = rows.shuffle(len(rows)) if shuffle else rows
    return rows.batch(batch_size)


def _as_rows(component: Any) -> Any:
    """Return ragged rows in the form of the data pipelines; other values unchanged."""
    return component.as_data() if hasattr(component, "as_data") else component
