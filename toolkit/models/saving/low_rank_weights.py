"""Weights of layers with LoRA, in files that can lack its factors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from toolkit import ops
from toolkit.errors import ArgumentError
from toolkit.layers.adapters.low_rank import LowRankLayer, LowRankWeight
from toolkit.models.saving.name_maps import Source

Sources = Callable[[str], Source | None]


def merged_weights(
    model: Any, names: dict[str, Any], source_of: Sources | None, method: str
) -> tuple[dict[Any, Any], set[Any]]:
    """Return merged weights by Variable, and the factors that they include.

    A mapping that names the factors of a layer stores them as separate arrays.

    Args:
        model: a model that can have adapted layers.
        names: path -> Variable, of all weights.
        source_of: a function from a name to its source, if there is a mapping.
        method: for messages.

    Raises:
        ArgumentError: the mapping names only one factor of a weight.
    """
    merged: dict[Any, Any] = {}
    factors: set[Any] = set()
    paths = {weight: name for name, weight in names.items()}
    for layer, pair in adapted_layers(model):
        sources = [source_of(paths[x]) for x in pair] if source_of else []
        named = [bool(source and source.names) for source in sources]
        if any(named) and not all(named):
            raise ArgumentError(
                f"{method}: {layer.name}: expected rows for both factors "
                f"{[paths[x] for x in pair]} in the mapping, or no rows, to merge "
                "them into the weight; received a row for only one factor"
            )
        if not any(named):
            merged.update(layer._merged())
            factors.update(pair)
    return merged, factors


def factors_not_stored(
    model: Any, names: dict[str, Any], source_of: Sources | None, stored: Iterable[str]
) -> set[Any]:
    """Return the factors without arrays in the file."""
    stored, pairs = set(stored), [pair for _, pair in adapted_layers(model)]
    if source_of is None:  # layers can have other numbers in the file
        is_stored = any("lora_" in name.rpartition("/")[2] for name in stored)
        return set() if is_stored else {x for pair in pairs for x in pair}
    paths = {weight: name for name, weight in names.items()}

    def has(factor: Any) -> bool:
        source = source_of(paths[factor])
        return source is not None and bool(stored.intersection(source.names))

    return {x for pair in pairs if not any(map(has, pair)) for x in pair}


def reset_adaptations(model: Any, assigned: set[Any]) -> list[tuple[Any, Any]]:
    """Return zeros for the adaptations of weights that a file stores without factors.

    Otherwise an earlier adaptation would be added to weights that already include one.

    Args:
        model: a model that can have adapted layers.
        assigned: all Variables that get values from the file.
    """
    return [
        (b, ops.zeros(b.shape, dtype=b.dtype))
        for layer, (a, b) in adapted_layers(model)
        if assigned.intersection(layer._merged()) and not assigned & {a, b}
    ]


def adapted_layers(model: Any) -> Iterator[tuple[LowRankLayer, tuple[Any, Any]]]:
    """Yield each adapted layer with its factors A and B."""
    for layer in model._flatten_layers():
        adapter = getattr(layer, "_adapter", None)
        if isinstance(layer, LowRankLayer) and isinstance(adapter, LowRankWeight):
            yield layer, adapter.factors()
