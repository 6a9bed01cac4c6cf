"""A model's weights as the arrays of a safetensors file, under any names."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from toolkit.errors import ArgumentError
from toolkit.models.saving.layouts import Layout
from toolkit.models.saving.low_rank_weights import merged_weights
from toolkit.models.saving.name_maps import source_of
from toolkit.models.saving.safetensors_lists import LIST, save_with_index
from toolkit.models.saving.weight_names import named_weights
from toolkit.reading.safetensors import write_safetensors
from toolkit.type_aliases import Array


def save_safetensors(
    path: Path, arrays: dict[str, Array], max_shard_size: float | None
) -> None:
    """Write arrays to a file, or to several files and their index."""
    if path.name.endswith(LIST):
        save_with_index(path, arrays, 5 if max_shard_size is None else max_shard_size)
    else:
        write_safetensors(path, arrays)


def safetensors_of(
    model: Any, mapping: Any = None, skip: Iterable[Any] = ()
) -> dict[str, Array]:
    """Return the arrays of a file with a model's weights.

    A weight with LoRA is stored merged, unless the mapping names both factors.

    Raises:
        ArgumentError: the mapping has a function, no row for a weight, or does not
            cover an array.
    """
    skipped = {weight for layer in skip for weight in layer.weights}
    filled, weights = _Filled(), named_weights(model, "save_weights")
    sources = None if mapping is None else partial(source_of, mapping=mapping)
    merged, factors = merged_weights(model, weights, sources, "save_weights")
    for name, weight in weights.items():
        if weight in factors:
            continue
        source = source_of(name, mapping)
        if source is None or weight in skipped:
            continue
        if not source.names:
            raise ArgumentError(f"save_weights: the mapping has no row for {name!r}")
        if source.function is not None:
            raise ArgumentError(
                f"save_weights: {name}: expected a layout, because the mapping's "
                "function cannot be inverted"
            )
        value = np.asarray(merged.get(weight, weight))
        filled.write_to(name, value, source.names[0], source.layout)
    filled.check()
    return filled.arrays


class _Filled:
    """Arrays of a file, with the parts that weights have filled so far."""

    def __init__(self) -> None:
        self.arrays: dict[str, Array] = {}
        self._names_by_part: dict[str, dict[int, str]] = {}
        self._counts: dict[str, int] = {}

    def write_to(
        self, name: str, value: Array, key: str, layout: Layout | None
    ) -> None:
        """Write a weight into an array."""
        part_index: int = (layout.part_index if layout else None) or 0
        shape = layout.file_shape(value.shape) if layout else value.shape
        array = self.arrays.setdefault(key, np.empty(shape, value.dtype))
        names = self._names_by_part.setdefault(key, {})
        if part_index in names or (array.shape, array.dtype) != (shape, value.dtype):
            raise ArgumentError(
                f"save_weights: {name} and {next(iter(names.values()))} cannot both "
                f"be stored in {key!r}"
            )
        names[part_index] = name
        self._counts[key] = layout.num_parts if layout else 1
        if layout is None:
            array[...] = value
        else:
            layout.write_to(array, value)

    def check(self) -> None:
        """Raise unless all parts of each array are filled."""
        for key, count in self._counts.items():
            if len(self._names_by_part[key]) != count:
                raise ArgumentError(
                    f"save_weights: {key!r} has {count} parts; the mapping has weights "
                    f"for {sorted(self._names_by_part[key])} only"
                )
