"""Layer state that was a weight in Keras 2 and is no weight now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolkit.layers import Discretization
from toolkit.models.saving.state_paths import parts_of

if TYPE_CHECKING:
    from toolkit.reading.hdf5 import Dataset


def take_summaries(model: Any, datasets: dict[str, Dataset]) -> dict[str, Dataset]:
    """Set the bin boundaries of adapted layers.

    Args:
        model: the model.
        datasets: the weights of a `.keras` file, by path.

    Returns:
        The remaining datasets.
    """
    remaining = dict(datasets)
    for path, layer in parts_of(model).items():
        if isinstance(layer, Discretization):
            _set_summary(layer, remaining.pop(f"{path}/vars/0", None))
    return remaining


def take_layer_summaries(
    model: Any, stored: list[tuple[str, list[Dataset]]]
) -> list[tuple[str, list[Dataset]]]:
    """Do the same for the layers of an `.h5` file, each a name and its weights."""
    names = {x.name: x for x in model.layers if isinstance(x, Discretization)}
    for name, weights in stored:
        if name in names:
            _set_summary(names[name], weights[0])
    return [layer for layer in stored if layer[0] not in names]


def _set_summary(layer: Discretization, stored: Dataset | None) -> None:
    is_summary = stored is not None and len(stored.shape) == 2 and stored.shape[0] == 2
    if stored is not None and is_summary and layer.num_bins is not None:
        layer.summary = stored.read()
        layer.finalize_state()
