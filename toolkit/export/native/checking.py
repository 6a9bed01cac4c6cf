"""Comparison of a native library with its model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from toolkit import dtypes, tree
from toolkit.definitions.records import record
from toolkit.errors import ArgumentError, ModelFileError
from toolkit.export.inference import signature_of
from toolkit.export.native.binding import checked_library
from toolkit.export.native.loading import NativeModel, NativeTensor, load_native

LARGEST_ERROR = 1e-3  # maximum relative error of a correct library
_ROWS = (2, 13)  # batch sizes that usually have no program


@record
class Comparison:
    """Difference between a library and its model.

    Attributes:
        rows: the compared batch sizes.
        error: the maximum difference, relative to the largest result.
    """

    rows: Sequence[int]
    error: float


def check_native(
    model: Any,
    path: str | os.PathLike[str],
    prefix: str | None = None,
    input_signature: Any = None,
) -> Comparison:
    """Run a library and its model on random inputs.

    Args:
        model: the exported model.
        path: the shared library, for this machine.
        prefix, input_signature: the values from the export.

    Raises:
        ModelFileError: the difference exceeds `LARGEST_ERROR`.
    """
    library = load_native(os.path.abspath(path), prefix=prefix)
    structure = signature_of(model, input_signature).structure
    generator = np.random.default_rng(0)
    has_batch = all(None in x.shape for x in library.inputs)
    counts = (*library.batches, *_ROWS) if has_batch else library.batches[:1]
    worst, rows = 0.0, list[int]()
    for count in dict.fromkeys(counts):
        arrays = [_random(x, count, generator) for x in library.inputs]
        library.reset()
        try:
            found = library.predict(dict(zip(_names(library), arrays, strict=True)))
        except ArgumentError:  # fixed batch sizes only, or no batch axis
            if not rows:
                raise
            continue
        rows.append(count)
        packed = tree.pack_sequence_as(structure, arrays)
        expected = tree.flatten(model(*packed, training=False))
        found = found if isinstance(found, list) else [found]
        for y, wanted in zip(found, expected, strict=True):
            worst = max(worst, _error(y, np.asarray(wanted)))
    if not worst <= LARGEST_ERROR:
        raise ModelFileError(
            f"{model.name}: {checked_library(os.path.abspath(path)).name!r} differs "
            f"from the model by {worst:.1e}; expected at most {LARGEST_ERROR:.0e}"
        )
    return Comparison(rows, worst)


def _names(library: NativeModel) -> list[str]:
    return [x.name for x in library.inputs]


def _random(x: NativeTensor, rows: int, generator: np.random.Generator) -> Any:
    """Return normal random numbers, or 0 and 1, which are usually valid indices."""
    shape = tuple(rows if n is None else n for n in x.shape)
    if x.dtype in dtypes.INEXACT:
        return generator.standard_normal(shape).astype(dtypes.numpy_dtype(x.dtype))
    return generator.integers(0, 2, shape).astype(dtypes.numpy_dtype(x.dtype))


def _error(found: Any, wanted: Any) -> float:
    if wanted.size == 0:
        return 0.0
    left, right = np.asarray(found, "float64"), np.asarray(wanted, "float64")
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    with np.errstate(invalid="ignore"):
        difference = np.where(same, 0.0, np.abs(left - right))
    finite = np.abs(right[np.isfinite(right)])
    return float(np.max(difference)) / (float(finite.max(initial=0.0)) or 1.0)
