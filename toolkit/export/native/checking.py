"""Comparison of a native library with its model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from toolkit import dtypes, tree
from toolkit.definitions.records import record
from toolkit.errors import ArgumentError, ModelFileError
from toolkit.export.inference import signature_of
from toolkit.export.native.binding import resolve_library
from toolkit.export.native.loading import NativeTensor, load_native

if TYPE_CHECKING:
    from toolkit.models.model import Model

MAX_ERROR = 1e-3  # maximum relative error of a correct library
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
    model: Model,
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
        ModelFileError: the difference exceeds `MAX_ERROR`.
    """
    library = load_native(os.path.abspath(path), prefix=prefix)
    structure = signature_of(model, input_signature).structure
    generator = np.random.default_rng(0)
    has_batch = all(None in x.shape for x in library.inputs)
    counts = (*library.batches, *_ROWS) if has_batch else library.batches[:1]
    worst, rows = 0.0, list[int]()
    for count in dict.fromkeys(counts):
        inputs = {x.name: _random_input(x, count, generator) for x in library.inputs}
        library.reset()
        try:
            results = library.predict(inputs)
        except ArgumentError:  # fixed batch sizes only, or no batch axis
            if not rows:
                raise
            continue
        rows.append(count)
        arguments = tree.pack_sequence_as(structure, list(inputs.values()))
        expected = tree.flatten(model(*arguments, training=False))
        results = results if isinstance(results, list) else [results]
        for y, reference in zip(results, expected, strict=True):
            worst = max(worst, _relative_error(y, np.asarray(reference)))
    if not worst <= MAX_ERROR:
        raise ModelFileError(
            f"{model.name}: {resolve_library(os.path.abspath(path)).name!r} differs "
            f"from the model by {worst:.1e}; expected at most {MAX_ERROR:.0e}"
        )
    return Comparison(rows, worst)


def _random_input(x: NativeTensor, rows: int, generator: np.random.Generator) -> Any:
    """Return normal random numbers, or 0 and 1, which are usually valid indices."""
    shape = tuple(rows if n is None else n for n in x.shape)
    if x.dtype in dtypes.INEXACT:
        return generator.standard_normal(shape).astype(dtypes.numpy_dtype(x.dtype))
    return generator.integers(0, 2, shape).astype(dtypes.numpy_dtype(x.dtype))


def _relative_error(result: Any, reference: Any) -> float:
    if reference.size == 0:
        return 0.0
    actual, expected = np.asarray(result, "float64"), np.asarray(reference, "float64")
    is_equal = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    with np.errstate(invalid="ignore"):
        difference = np.where(is_equal, 0.0, np.abs(actual - expected))
    finite = np.abs(expected[np.isfinite(expected)])
    return float(np.max(difference)) / (float(finite.max(initial=0.0)) or 1.0)
