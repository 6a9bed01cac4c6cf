"""Weights from safetensors files, under a model's names or foreign names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from toolkit import dtypes
from toolkit.core.variable import assign_all
from toolkit.errors import ArgumentError, ShapeError
from toolkit.models.saving.low_rank_weights import factors_not_stored, reset_adaptations
from toolkit.models.saving.mismatches import (
    Mismatch,
    mismatch_message,
    report_mismatches,
)
from toolkit.models.saving.name_maps import Source, source_of
from toolkit.models.saving.safetensors_lists import LIST, index_at, open_index
from toolkit.models.saving.weight_names import named_weights, renumbered
from toolkit.reading.safetensors import StoredArray, open_safetensors
from toolkit.type_aliases import Array

if TYPE_CHECKING:
    from toolkit.models.model import Model


class Load(NamedTuple):
    """Weight and its source in the file."""

    name: str
    weight: Any
    source: Source

    @property
    def label(self) -> str:
        """Return the names in the model and in the file."""
        names = ", ".join(self.source.names)
        return self.name if names in (self.name, "") else f"{self.name} ({names})"


@contextmanager
def open_arrays(path: Path) -> Iterator[dict[str, StoredArray]]:
    """Return the arrays of a file, or of all files of an index."""
    if path.name.endswith(LIST):
        with open_index(path) as arrays:
            yield arrays
    else:
        with open_safetensors(path) as content:
            yield content.arrays


def load_safetensors(
    model: Any,
    path: Path,
    mapping: Any = None,
    skip_mismatch: bool = False,
    skip: Iterable[Any] = (),
    ignore: Iterable[str] = (),
) -> None:
    """Load the weights of a model from a file, or none on error.

    An adaptation becomes zero if the file has its weight but not its factors.

    Args:
        model: a built model.
        path: the path of a file, or of an index.
        mapping: the source of each weight in the file; see `name_maps`.
        skip_mismatch: whether to load matching weights and warn about the rest.
        skip: layers to leave unchanged.
        ignore: patterns of names in the file without a weight in the model.

    Raises:
        ModelFileError: with a list of all mismatches.
    """
    patterns = _patterns(ignore)

    def read(_: Path) -> tuple[list[tuple[Any, Array]], list[Mismatch]]:
        with open_arrays(path) as stored:
            selected = {
                name: array
                for name, array in stored.items()
                if not any(fnmatchcase(name, pattern) for pattern in patterns)
            }
            loads, mismatches = _matched(model, selected, mapping, skip)
            if mismatches and not skip_mismatch:
                return [], mismatches
            return _read(loads, selected, mismatches)

    is_list = path.name.endswith(LIST)
    fit, mismatches = index_at(path).files.read(read) if is_list else read(path)
    report_mismatches(
        mismatches, None if skip_mismatch else mismatch_message(str(path))
    )
    assign_all([*fit, *reset_adaptations(model, {weight for weight, _ in fit})])


def _patterns(ignore: Iterable[str]) -> list[str]:
    patterns = [ignore] if isinstance(ignore, str) else list(ignore)
    if not all(isinstance(pattern, str) for pattern in patterns):
        raise ArgumentError(
            f"load_weights: ignore: expected patterns of names; received {ignore!r}"
        )
    return patterns


# --- names, shapes and dtypes ---------------------------------------------------------


def _matched(
    model: Model, stored: Mapping[str, StoredArray], mapping: Any, skip: Iterable[Any]
) -> tuple[list[Load], list[Mismatch]]:
    """Return the loads and the mismatches, without reading values."""
    skipped = {weight for layer in skip for weight in layer.weights}
    weights = named_weights(model, "load_weights")
    sources = None if mapping is None else partial(source_of, mapping=mapping)
    factors = factors_not_stored(model, weights, sources, stored)
    weights = {name: x for name, x in weights.items() if x not in factors}
    if mapping is None and weights.keys() != stored.keys():
        mapping = renumbered(model, weights, stored)
    loads: list[Load] = []
    mismatches: list[Mismatch] = []
    used: set[str] = set()
    for name, weight in weights.items():
        source = source_of(name, mapping)
        used.update(source.names if source else ())
        if source is None or weight in skipped:
            continue
        load = Load(name, weight, source)
        difference = _difference(load, stored)
        if difference is None:
            loads.append(load)
        else:
            mismatches.append(Mismatch(load.label, difference))
    for name in sorted(stored.keys() - used):
        difference = f"unexpected, {stored[name].dtype} of shape {stored[name].shape}"
        mismatches.append(Mismatch(name, difference))
    return loads, mismatches


def _difference(load: Load, stored: Mapping[str, StoredArray]) -> str | None:
    """Return the mismatch between header and weight, or None."""
    shape, source = tuple(load.weight.shape), load.source
    if not source.names:
        return f"the mapping has no row for it, of shape {shape}"
    missing_names = [name for name in source.names if name not in stored]
    if missing_names:
        names = "" if missing_names == [load.name] else ", ".join(missing_names) + " "
        return (
            f"{names}missing in the file; expected {load.weight.dtype} of shape {shape}"
        )
    if source.function is not None:
        return None
    array = stored[source.names[0]]
    if _kind(array.dtype) != _kind(load.weight.dtype):
        return f"expected {load.weight.dtype}; the file has {array.dtype}"
    try:
        expected = shape if source.layout is None else source.layout.file_shape(shape)
    except ArgumentError as error:  # the layout is for weights of other shapes
        return str(error)
    if array.shape != expected:
        return f"expected the shape {expected}; the file has {array.shape}"
    return None


def _kind(dtype: str) -> str:
    """Return the kind of a dtype; values convert to any dtype of the same kind."""
    if dtype in dtypes.COMPLEX or dtype == "bool":
        return dtype
    return "integer" if dtype in dtypes.INTEGERS else "float"


# --- values ---------------------------------------------------------------------------


def _read(
    loads: list[Load], stored: Mapping[str, StoredArray], mismatches: list[Mismatch]
) -> tuple[list[tuple[Any, Array]], list[Mismatch]]:
    """Return weights with their values, and all mismatches."""

    @lru_cache(maxsize=1)  # parts of one array are consecutive
    def read(name: str) -> Array:
        return stored[name].read()

    fit, failed = [], []
    for load in sorted(loads, key=lambda load: load.source.names):
        try:
            value = _value(load, [read(name) for name in load.source.names])
            fit.append((load.weight, _converted(value, load.weight.dtype)))
        except (ShapeError, ArgumentError) as error:
            failed.append(Mismatch(load.label, str(error)))
    return fit, mismatches + failed


def _value(load: Load, arrays: list[Array]) -> Array:
    """Return a weight's values from arrays of the file."""
    shape, source = tuple(load.weight.shape), load.source
    if source.layout is not None:
        return source.layout.from_file(arrays[0], shape)
    if source.function is None:
        return arrays[0]
    value = np.asarray(source.function(*arrays))
    if value.shape != shape:
        raise ShapeError(
            f"expected the shape {shape}; the mapping's function returned {value.shape}"
        )
    return value


def _converted(value: Array, dtype: str) -> Array:
    """Return values in a weight's dtype, rounded to the nearest.

    Raises:
        ArgumentError: they are of another kind, or one is out of the dtype's range.
    """
    received = dtypes.standardize(value.dtype)
    if _kind(received) != _kind(dtype):
        raise ArgumentError(
            f"expected {dtype}; the mapping's function returned {received}"
        )
    with np.errstate(over="ignore"):
        converted = value.astype(dtypes.numpy_dtype(dtype))
    if np.any(_are_out_of_range(value, converted)):
        raise ArgumentError(f"some values are {received} and too large for {dtype}")
    return converted


def _are_out_of_range(value: Array, converted: Array) -> Any:
    """Return where integers changed, or numbers became infinite or NaN."""
    if value.dtype.kind in "iu":
        # NumPy would promote int64 and uint64 together to floats.
        wrapped = (value < 0) != (converted < 0)
        return wrapped | (converted.astype(value.dtype) != value)
    if value.dtype == converted.dtype:
        return False
    return np.isfinite(value) & ~np.isfinite(converted)
