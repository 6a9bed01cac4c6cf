"""Composites, such as ragged rows, as data of models."""

from __future__ import annotations

from typing import Any

from toolkit import data, tree
from toolkit.core.composites import Composite


def batches_of_rows(all_components: Any, batch_size: int, shuffle: bool) -> Any:
    """Return the batches of (x, y, sample_weight) with composites."""
    last = max(i for i, component in enumerate(all_components) if component is not None)
    components = tuple(
        tree.map_structure(_as_rows, component)
        for component in all_components[: last + 1]
    )
    rows = data.Dataset.from_tensor_slices(components if last else (components[0],))
    rows = rows.shuffle(len(rows)) if shuffle else rows
    return rows.batch(batch_size)


def _as_rows(component: Any) -> Any:
    """Return a composite in the form of the data pipelines; other values unchanged."""
    return component.as_data() if isinstance(component, Composite) else component
