"""All operations, compiled for many extents, beside eager execution."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import toolkit
from tests.ops import (
    samples_contract,
    samples_elementwise,
    samples_image,
    samples_index,
    samples_linalg,
    samples_nn,
    samples_reduce,
    samples_shape,
    samples_special,
)
from tests.ops.table import Sample
from toolkit import ops, tree
from toolkit.errors import ToolkitError

TABLES = {
    "contract": samples_contract,
    "elementwise": samples_elementwise,
    "image": samples_image,
    "index": samples_index,
    "linalg": samples_linalg,
    "nn": samples_nn,
    "reduce": samples_reduce,
    "shape": samples_shape,
    "special": samples_special,
}


def samples_of(module: Any) -> Iterator[Sample]:
    """Yield the samples whose results are the same in each call."""
    for rows in vars(module).values():
        if isinstance(rows, list) and rows and isinstance(rows[0], Sample):
            yield from (
                row for row in rows if row.traced and not row.name.startswith("random")
            )


def is_array(x: Any) -> bool:
    return isinstance(x, np.ndarray)


def resized(x: Any, extent: int, new_extent: int) -> Any:
    """Return an array with a new extent wherever it has the old one.

    Finite floats are random numbers in their range. Sorted vectors stay sorted.
    """
    if not is_array(x):
        return x
    shape = tuple(new_extent if n == extent else n for n in x.shape)
    y = np.resize(x.ravel(), shape) if x.size else np.zeros(shape, x.dtype)
    if x.dtype == np.float64:
        if x.size and np.isfinite(x).all():
            y = np.random.default_rng(new_extent).uniform(x.min(), x.max(), shape)
        y = y.astype("float32")
    is_sorted = x.ndim == 1 and bool((x[1:] >= x[:-1]).all())
    return np.sort(y) if is_sorted else y


def check(sample: Sample, extent: int) -> None:
    """Compare a function of the sample's arrays, and its gradients, with eager
    execution."""

    def operation(arrays: list[Any]) -> Any:
        remaining = iter(arrays)
        inputs = tree.map_structure(
            lambda x: next(remaining) if is_array(x) else x, sample.inputs
        )
        return sample.op(*inputs, **sample.attrs)

    def function(arrays: list[Any]) -> Any:
        if not sample.order:
            return operation(arrays)
        with toolkit.GradientTape() as tape:
            tape.watch(arrays)
            results = operation(arrays)
            terms = [
                ops.sum(y * y) for y in tree.flatten(results) if y.dtype == "float32"
            ]
            loss = sum(terms)
        return results, tape.gradient(loss, arrays) if terms else []

    compiled = toolkit.function(function)
    for n in (extent, extent + 2, 17, 33, 8):
        arrays = [
            ops.convert_to_tensor(resized(x, extent, n))
            for x in tree.flatten(sample.inputs)
            if is_array(x)
        ]
        try:
            expected = function(arrays)
        except (ToolkitError, ValueError, TypeError):  # no valid sample
            continue
        results = compiled(arrays)
        pairs = zip(tree.flatten(results), tree.flatten(expected), strict=True)
        for y, z in pairs:
            if y is None and z is None:
                continue
            compare(np.asarray(y), np.asarray(z), f"{sample}, {extent} -> {n}")


def compare(y: Any, expected: Any, message: str) -> None:
    assert y.shape == expected.shape, message
    if y.dtype.kind in "OUS":
        assert (y == expected).all(), message
        return
    y, expected = y.astype("complex128"), expected.astype("complex128")
    finite = np.isfinite(y) & np.isfinite(expected)
    scale = max(1.0, float(np.abs(expected[finite]).max(initial=0)))
    np.testing.assert_allclose(
        y[finite] / scale, expected[finite] / scale, atol=5e-3, err_msg=message
    )


@pytest.mark.filterwarnings("ignore:.*is traced for")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES)
def test_results_are_those_of_eager_execution(table: str) -> None:
    for sample in samples_of(TABLES[table]):
        arrays = filter(is_array, tree.flatten(sample.inputs))
        extents = {n for x in arrays for n in x.shape if n >= 2}
        for extent in {min(extents, default=0), max(extents, default=0)} - {0}:
            check(sample, extent)
