"""Inference of element specs from a few example elements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from toolkit.data.profiling import Watch
from toolkit.data.streams import Pass, Run
from toolkit.data.structure import (
    NoneSpec,
    TensorSpec,
    leaves,
    like,
    map_leaves,
    merge,
    parts_like,
    spec_of,
)
from toolkit.errors import ArgumentError, ShapeError

if TYPE_CHECKING:
    from toolkit.data.dataset import Dataset

FEW = 3  # number of example elements
ANYTHING = object()  # represents an element with unknown extents


class EmptyError(ArgumentError):
    """Error for the element_spec of an empty data set."""


def looked(dataset: Dataset) -> list[Any]:
    """Return the first elements of the first pass that has any.

    This is a separate run, without effects on counters, caches and measurements.

    Raises:
        EmptyError: the data set is empty.
    """
    for epoch in (0, dataset._passes):
        found: list[Any] = []
        run = Run(Watch(), dataset.options())
        try:
            found.extend(islice(iter(Pass(run, (epoch,)).open(dataset)), FEW))
        except Exception:
            if not found:
                raise
        finally:
            run.close()
        if found:
            return found
    raise EmptyError(f"{dataset._name}: an empty data set has no element_spec")


def examples(dataset: Dataset) -> list[Any]:
    """Return examples of a data set, with one longer element if lengths vary."""
    found, spec = looked(dataset), dataset._spec()
    if any(_varies(leaf) for leaf in leaves(spec)):
        found.append(_stretched(found[0], spec))
    return found


def _varies(spec: TensorSpec) -> bool:
    return spec.shape is None or None in spec.shape


def _stretched(element: Any, spec: Any) -> Any:
    """Return an element with each variable extent of the specs extended by one.

    Equal extents stay equal, because functions can depend on this.
    """

    def longer(values: Sequence[Any]) -> Any:
        value, known = values
        if not isinstance(value, (np.ndarray, np.generic)):
            return value  # variable rows already, or a data set
        shape = known.shape or (None,) * np.ndim(value)
        for axis, extent in enumerate(shape):
            if extent is None:
                value = _longer(value, axis)
        return value

    return merge(longer, [element, spec], "element_spec")


def _longer(value: Any, axis: int) -> Any:
    """Return an array with its last slice along an axis repeated, or zeros if empty."""
    length = value.shape[axis]
    if length == 0:
        shape = value.shape[:axis] + (1, *value.shape[axis + 1 :])
        return np.zeros(shape, value.dtype)
    return value.take([*range(length), length - 1], axis)


def applied(function: Callable[[Any], Any], elements: Sequence[Any]) -> list[Any]:
    """Return the results of a function for example elements.

    The function can fail for the extended example, which is longer than real elements.
    The result is then ANYTHING. An error for the first example is raised.
    """
    made = [function(elements[0])]
    for element in elements[1:]:
        try:
            made.append(ANYTHING if element is ANYTHING else function(element))
        except Exception:
            made.append(ANYTHING)
    return made


def spec_of_examples(elements: Sequence[Any]) -> Any:
    """Return TensorSpecs that match all of these elements."""
    spec = joined([spec_of(one) for one in elements if one is not ANYTHING])
    if any(element is ANYTHING for element in elements):
        return map_leaves(opened, spec)
    return spec


def opened(spec: TensorSpec) -> TensorSpec:
    """Return a spec with the same rank and dtype, and all extents None."""
    return replace(spec, shape=spec.shape and (None,) * len(spec.shape))


def joined(specs: Sequence[Any]) -> Any:
    """Return the union of several TensorSpecs: None where extents differ."""

    def common(several: Sequence[TensorSpec]) -> TensorSpec:
        first, shapes = several[0], {spec.shape for spec in several}
        if None in shapes or len({len(shape or ()) for shape in shapes}) > 1:
            return replace(first, shape=None)
        extents = (set(column) for column in zip(*shapes, strict=True))
        shape = (each.pop() if len(each) == 1 else None for each in extents)
        return replace(first, shape=tuple(shape))

    try:
        return merge(common, specs, "element_spec")
    except ShapeError:  # elements of different structures have no spec
        return specs[0]


def joined_of(datasets: Iterable[Dataset]) -> Any:
    """Return the union of the specs of data sets; some of them can be empty."""
    specs, empty = [], None
    for dataset in datasets:
        try:
            specs.append(dataset._spec())
        except EmptyError as error:
            empty = error
    if not specs and empty is not None:
        raise empty
    return joined(specs)


def spec_inside(function: Callable[[Any], Dataset], elements: Sequence[Any]) -> Any:
    """Return the TensorSpecs of the elements of data sets that a function returns.

    Args:
        function: a function from an example to a data set.
        elements: examples. An error for the first that is not empty is raised.
    """
    specs: list[Any] = []
    error: Exception | None = None
    for element in elements:
        try:
            specs.append(function(element)._spec())
        except EmptyError as found:
            error = error or found
        except Exception:
            if not specs:
                raise
            return map_leaves(opened, joined(specs))
    if not specs and error is not None:
        raise error
    return joined(specs)


def known_spec(dataset: Dataset, change: Callable[[TensorSpec], TensorSpec]) -> Any:
    """Return the element_spec of a data set with a change to each TensorSpec."""
    return map_leaves(change, dataset._spec())


def batched(spec: TensorSpec, first: int | None) -> TensorSpec:
    """Return the spec of stacked values; `first` is the batch extent."""
    if isinstance(spec, NoneSpec):
        return spec
    return replace(spec, shape=None if spec.shape is None else (first, *spec.shape))


def padded_spec(spec: Any, shapes: Any, first: int | None) -> Any:
    """Return the specs of padded batches.

    Args:
        shapes: the padded shapes, as for `padded_batch`.
        first: the batch extent; None if it varies.
    """
    if isinstance(spec, (tuple, dict)):
        given = parts_like(spec, shapes, "padded_batch: padded_shapes")
        parts = spec.values() if isinstance(spec, dict) else spec
        pairs = zip(parts, given, strict=True)
        return like(spec, [padded_spec(*pair, first) for pair in pairs])
    if shapes is not None:
        extents = (None if n in (None, -1) else int(n) for n in shapes)
        spec = replace(spec, shape=tuple(extents))
    return batched(spec, first)
