"""Inference of element specs from a few example elements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from toolkit.data.profiling import PassProfile
from toolkit.data.streams import PassContext, Run
from toolkit.data.structure import (
    NoneSpec,
    TensorSpec,
    flatten_argument,
    leaves,
    map_leaves,
    merge,
    rebuild_structure,
    spec_of,
)
from toolkit.errors import ArgumentError, ShapeError
from toolkit.thread_state import ThreadState

if TYPE_CHECKING:
    from toolkit.data.dataset import Dataset

EXAMPLE_COUNT = 3  # number of example elements
UNKNOWN_ELEMENT = object()  # represents an element with unknown extents


class EmptyDatasetError(ArgumentError):
    """Error for the element_spec of an empty data set."""


class _UnknownSpecError(Exception):
    """Error for an element_spec that only functions of the user can determine."""


class _Inference(ThreadState):
    calls_functions = True  # whether functions of the user may run


_inference = _Inference()
# Specs that a user has requested.
_inferred: WeakKeyDictionary[Dataset, Any] = WeakKeyDictionary()


def infer_spec(dataset: Dataset) -> object:
    """Return the element_spec of a data set; `known_spec` returns it from now on."""
    spec = _inferred[dataset] = dataset._spec()
    return spec


def known_spec(dataset: Dataset) -> object:
    """Return the element_spec if no function of the user must run for it, or None."""
    if dataset in _inferred:
        return _inferred[dataset]
    try:
        with _inference.override(calls_functions=False):
            return dataset._spec()
    except Exception:  # unknown, or a file that cannot be read: the pass raises it
        return None


def format_spec(spec: object) -> str:
    """Return specs as text, such as `(float32[None, 28], int64[None])`."""
    if isinstance(spec, dict):
        return f"{{{', '.join(f'{k!r}: {format_spec(x)}' for k, x in spec.items())}}}"
    if isinstance(spec, tuple):
        comma = "," if len(spec) == 1 else ""
        return f"({', '.join(map(format_spec, spec))}{comma})"
    if type(spec) is not TensorSpec:
        return repr(spec)
    dtype = "string" if spec.dtype.kind in "OSU" else spec.dtype.name
    shape = "?" if spec.shape is None else ", ".join(map(str, spec.shape))
    return f"{dtype}[{shape}]"


def first_elements(dataset: Dataset) -> list[Any]:
    """Return the first elements of the first pass that has any.

    This is a separate run, without effects on counters, caches and measurements.

    Raises:
        EmptyError: the data set is empty.
    """
    if not (_inference.calls_functions or dataset._has_rows):
        raise _UnknownSpecError
    for epoch in (0, dataset._passes):
        elements: list[Any] = []
        run = Run(PassProfile(), dataset.options())
        try:
            elements.extend(
                islice(iter(PassContext(run, (epoch,)).open(dataset)), EXAMPLE_COUNT)
            )
        except Exception:
            if not elements:
                raise
        finally:
            run.close()
        if elements:
            return elements
    raise EmptyDatasetError(f"{dataset._name}: an empty data set has no element_spec")


def examples(dataset: Dataset) -> list[Any]:
    """Return examples of a data set, with one longer element if lengths vary."""
    if not _inference.calls_functions:
        raise _UnknownSpecError
    elements, spec = first_elements(dataset), dataset._spec()
    if any(_varies(leaf) for leaf in leaves(spec)):
        elements.append(_extend_element(elements[0], spec))
    return elements


def _varies(spec: TensorSpec) -> bool:
    return spec.shape is None or None in spec.shape


def _extend_element(element: Any, spec: Any) -> Any:
    """Return an element with each variable extent of the specs extended by one.

    Equal extents stay equal, because functions can depend on this.
    """

    def longer(values: Sequence[Any]) -> Any:
        value, spec = values
        if not isinstance(value, (np.ndarray, np.generic)):
            return value  # variable rows already, or a data set
        shape = spec.shape or (None,) * np.ndim(value)
        for axis, extent in enumerate(shape):
            if extent is None:
                value = _extend_axis(value, axis)
        return value

    return merge(longer, [element, spec], "element_spec")


def _extend_axis(value: Any, axis: int) -> Any:
    """Return an array with its last slice along an axis repeated, or zeros if empty."""
    length = value.shape[axis]
    if length == 0:
        shape = value.shape[:axis] + (1, *value.shape[axis + 1 :])
        return np.zeros(shape, value.dtype)
    return value.take([*range(length), length - 1], axis)


def apply_to_examples(
    function: Callable[[Any], Any], elements: Sequence[Any]
) -> list[Any]:
    """Return the results of a function for example elements.

    The function can fail for the extended example, which is longer than real elements.
    The result is then ANYTHING. An error for the first example is raised.
    """
    results = [function(elements[0])]
    for element in elements[1:]:
        try:
            results.append(
                UNKNOWN_ELEMENT if element is UNKNOWN_ELEMENT else function(element)
            )
        except Exception:
            results.append(UNKNOWN_ELEMENT)
    return results


def spec_of_examples(elements: Sequence[Any]) -> Any:
    """Return TensorSpecs that match all of these elements."""
    spec = join_specs([spec_of(one) for one in elements if one is not UNKNOWN_ELEMENT])
    if any(element is UNKNOWN_ELEMENT for element in elements):
        return map_leaves(relax_extents, spec)
    return spec


def relax_extents(spec: TensorSpec) -> TensorSpec:
    """Return a spec with the same rank and dtype, and all extents None."""
    return replace(spec, shape=spec.shape and (None,) * len(spec.shape))


def join_specs(specs: Sequence[Any]) -> Any:
    """Return the union of several TensorSpecs: None where extents differ."""

    def common(specs: Sequence[TensorSpec]) -> TensorSpec:
        first, shapes = specs[0], {spec.shape for spec in specs}
        if None in shapes or len({len(shape or ()) for shape in shapes}) > 1:
            return replace(first, shape=None)
        extents = (set(column) for column in zip(*shapes, strict=True))
        shape = (
            candidates.pop() if len(candidates) == 1 else None for candidates in extents
        )
        return replace(first, shape=tuple(shape))

    try:
        return merge(common, specs, "element_spec")
    except ShapeError:  # elements of different structures have no spec
        return specs[0]


def join_element_specs(datasets: Iterable[Dataset]) -> Any:
    """Return the union of the specs of data sets; some of them can be empty."""
    specs, empty = [], None
    for dataset in datasets:
        try:
            specs.append(dataset._spec())
        except EmptyDatasetError as error:
            empty = error
    if not specs and empty is not None:
        raise empty
    return join_specs(specs)


def nested_spec(function: Callable[[Any], Dataset], elements: Sequence[Any]) -> Any:
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
        except EmptyDatasetError as nested_elements:
            error = error or nested_elements
        except Exception:
            if not specs:
                raise
            return map_leaves(relax_extents, join_specs(specs))
    if not specs and error is not None:
        raise error
    return join_specs(specs)


def change_spec(dataset: Dataset, change: Callable[[TensorSpec], TensorSpec]) -> Any:
    """Return the element_spec of a data set with a change to each TensorSpec."""
    return map_leaves(change, dataset._spec())


def batch_spec(spec: TensorSpec, first: int | None) -> TensorSpec:
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
        shapes_per_leaf = flatten_argument(spec, shapes, "padded_batch: padded_shapes")
        specs = spec.values() if isinstance(spec, dict) else spec
        pairs = zip(specs, shapes_per_leaf, strict=True)
        return rebuild_structure(spec, [padded_spec(*pair, first) for pair in pairs])
    if shapes is not None:
        extents = (None if n in (None, -1) else int(n) for n in shapes)
        spec = replace(spec, shape=tuple(extents))
    return batch_spec(spec, first)
