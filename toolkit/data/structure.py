"""Structures of elements: nested tuples, named tuples and dicts of values.

A list is a leaf, as an array is: stacking converts it to an array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Number
from operator import attrgetter
from typing import Any

import numpy as np

from toolkit.errors import ArgumentError, DTypeError, ShapeError
from toolkit.type_aliases import Array

Empty = Callable[..., Array]  # allocates an array of a shape and a dtype
_TEXT = (str, bytes)
_shape_of, _dtype_of = attrgetter("shape"), attrgetter("dtype")


@dataclass(frozen=True)
class TensorSpec:
    """Shape and dtype of a value; None is a variable extent.

    Args:
        shape: a sequence of extents; None means any shape.
        dtype: a name, a NumPy type, `str` or `bytes`.
        name: an optional name.

    Example:
        >>> from toolkit.data import TensorSpec
        >>> TensorSpec((None, 28), "float32")
        TensorSpec(shape=(None, 28), dtype=dtype('float32'), name=None)
    """

    shape: tuple[int | None, ...] | None = ()
    dtype: Any = "float32"
    name: str | None = None

    def __post_init__(self) -> None:
        shape = None if self.shape is None else tuple(self.shape)
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "dtype", numpy_dtype(self.dtype))

    def accepts(self, shape: Sequence[int]) -> bool:
        """Return whether an array of this shape matches.

        Args:
            shape: the shape of an array.
        """
        if self.shape is None or self.shape == shape:
            return True
        pairs = zip(self.shape, shape, strict=False)
        return len(self.shape) == len(shape) and all(a in (None, b) for a, b in pairs)

    def convert(self, value: Any, caller: str) -> Array:
        """Return the value as an array of this shape and dtype.

        Args:
            value: an array, a number or nested lists.
            caller: the name of the stage in error messages.
        """
        try:
            array = np.asarray(value, self.dtype)
        except (TypeError, ValueError) as error:
            raise self._mismatch_error(value, caller) from error
        if not _keeps_kind(value, self.dtype):
            raise self._mismatch_error(value, caller)
        if not self.accepts(array.shape):
            raise ShapeError(
                f"{caller}: expected a value of shape {self.shape}; received "
                f"{array.shape}"
            )
        return array

    def _mismatch_error(self, value: Any, caller: str) -> DTypeError:
        return DTypeError(
            f"{caller}: expected a value of dtype {self.dtype}; received {value!r:.60}"
        )


def _keeps_kind(value: Any, dtype: np.dtype[Any]) -> bool:
    """Return whether a conversion keeps text as text and numbers as numbers."""
    while isinstance(value, (list, tuple)) and value:
        value = value[0]
    source_dtype, numbers = getattr(value, "dtype", None), "biufc"
    if source_dtype is None:
        is_text, is_number = isinstance(value, (str, bytes)), isinstance(value, Number)
    else:
        kind = numpy_dtype(source_dtype).kind
        is_text, is_number = kind in "US", kind in numbers
    if dtype.kind == "O":
        return not is_number
    return dtype.kind not in numbers or not is_text


@dataclass(frozen=True)
class NoneSpec(TensorSpec):
    """Spec of a value that is None in each element."""


def numpy_dtype(dtype: Any) -> np.dtype[Any]:
    """Return a NumPy dtype; strings of any length are objects."""
    if isinstance(dtype, np.dtype):
        return dtype
    name = getattr(dtype, "name", dtype)
    if name in ("string", "bytes", str, bytes):
        return np.dtype(object)
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def map_leaves(function: Callable[[Any], Any], element: Any) -> Any:
    """Return the element with `function` applied to each leaf."""
    if isinstance(element, tuple):
        return rebuild_structure(
            element, [map_leaves(function, item) for item in element]
        )
    if isinstance(element, dict):
        return {key: map_leaves(function, item) for key, item in element.items()}
    return function(element)


def rebuild_structure(
    element: tuple[Any, ...] | dict[Any, Any], items: Sequence[Any]
) -> Any:
    """Return a tuple, named tuple or dict with the structure of `element`."""
    if isinstance(element, dict):
        return dict(zip(element, items, strict=True))
    kind = type(element)
    return kind(*items) if hasattr(element, "_fields") else tuple(items)


def flatten_argument(
    element: tuple[Any, ...] | dict[Any, Any], argument: Any, name: str
) -> list[Any]:
    """Return the item for each part of an element, from a structured argument.

    Args:
        element: the element, a tuple or a dict.
        argument: the argument; None means None for each part.
        name: the name of the argument in errors.
    """
    if argument is None:
        return [None] * len(element)
    if isinstance(element, dict):
        if isinstance(argument, dict) and argument.keys() == element.keys():
            return [argument[key] for key in element]
        expected = f"a dict with the keys {list(element)}"
    else:
        if isinstance(argument, (tuple, list)) and len(argument) == len(element):
            return list(argument)
        expected = f"{len(element)} parts"
    raise ArgumentError(
        f"{name}: expected {expected}, like the elements; received {argument}"
    )


def leaves(element: Any) -> list[Any]:
    """Return the leaves of an element."""
    if isinstance(element, tuple):
        return [leaf for item in element for leaf in leaves(item)]
    if isinstance(element, dict):
        return [leaf for item in element.values() for leaf in leaves(item)]
    return [element]


def merge(combine: Callable[..., Any], elements: Sequence[Any], caller: str) -> Any:
    """Merge several elements; `combine` receives the list of values of each leaf."""
    first = elements[0]
    if isinstance(first, tuple):
        if not all_instances(tuple, elements) or {*map(len, elements)} != {len(first)}:
            raise _structure_error(elements, caller)
        columns = zip(*elements, strict=True)
        return rebuild_structure(
            first, [merge(combine, column, caller) for column in columns]
        )
    if isinstance(first, dict):
        if not all_instances(dict, elements) or not _have(first.keys(), elements):
            raise _structure_error(elements, caller)
        return {k: merge(combine, [e[k] for e in elements], caller) for k in first}
    return combine(elements)


def all_instances(kinds: type | tuple[type, ...], elements: Sequence[Any]) -> bool:
    """Return whether all elements are instances of a type or types."""
    return all(issubclass(kind, kinds) for kind in {*map(type, elements)})


def _have(keys: Any, elements: Sequence[dict[Any, Any]]) -> bool:
    return all(map(keys.__eq__, map(dict.keys, elements)))


def stack_elements(elements: Sequence[Any], empty: Empty = np.empty) -> Any:
    """Return elements stacked into a batch, in arrays from `empty`."""
    return merge(partial(stack_values, empty=empty), elements, "batch")


def _structure_error(elements: Sequence[Any], caller: str) -> ShapeError:
    structures = [describe_structure(element) for element in elements]
    other = next((s for s in structures if s != structures[0]), structures[-1])
    return ShapeError(
        f"{caller}: expected elements of one structure; received {structures[0]} and "
        f"{other}"
    )


def describe_structure(element: object) -> Any:
    """Return the structure of an element as text, with * for each leaf."""
    return map_leaves(lambda _: "*", element)


def stack_values(
    values: Sequence[Any], caller: str = "batch", empty: Empty = np.empty
) -> Any:
    """Stack values of equal shapes along a new first axis; None if all are None.

    Args:
        values: values of equal shapes.
        caller: the caller in errors.
        empty: allocates an array of a shape and a dtype.
    """
    first = values[0]
    if first is None and all_instances(type(None), values):
        return None
    if stacked := getattr(first, "stacked", None):  # a row of a Ragged
        return stacked(values)
    if not isinstance(first, (np.ndarray, np.generic)) and hasattr(first, "__array__"):
        values = [np.asarray(value) for value in values]  # tensors
        first = values[0]
    if isinstance(first, bytes):  # NumPy's bytes dtype drops trailing zeros
        return object_array(values)
    if isinstance(first, np.ndarray) and first.dtype != object:
        _check_shapes(values, caller)
        return _concatenate(values, np.result_type(*_dtypes(values)), empty)
    try:
        array = np.array(values)
        if array.dtype.kind in "SU" and array.ndim == 1:
            # NumPy converts numbers next to text, such as a missing value, to text.
            return array if all_instances(_TEXT, values) else object_array(values)
        return array
    except ValueError:
        _check_shapes([np.asarray(value) for value in values], caller)
        return object_array(values)


def _concatenate(values: Sequence[Any], dtype: np.dtype[Any], empty: Empty) -> Array:
    """Return arrays of one shape as one array, with one copy for each."""
    shape = np.shape(values[0])
    if not shape or not all_instances(np.ndarray, values):
        return np.array(values, dtype)
    joined = empty((len(values), *shape), dtype)
    rows = (len(values) * shape[0], *shape[1:])
    np.concatenate(values, out=joined.reshape(rows))
    return joined


def _dtypes(values: Sequence[Any]) -> set[np.dtype[Any]]:
    if all_instances(np.ndarray, values):
        return {*map(_dtype_of, values)}
    return {np.asarray(value).dtype for value in values}


def _check_shapes(values: Sequence[Any], caller: str) -> None:
    if all_instances(np.ndarray, values) and len({*map(_shape_of, values)}) == 1:
        return
    shape = np.shape(values[0])
    for i, value in enumerate(values):
        if np.shape(value) != shape:
            raise ShapeError(
                f"{caller}: expected elements of one shape; received {shape} and, as "
                f"the element {i} of a batch, {np.shape(value)} (padded_batch and "
                "ragged_batch accept different shapes)"
            )


def object_array(values: Sequence[Any]) -> Array:
    """Return a 1-d array of Python objects."""
    array = np.empty(len(values), object)
    array[:] = values
    return array


def spec_of(element: Any) -> Any:
    """Return the TensorSpecs of an element's values."""

    def spec(value: Any) -> TensorSpec:
        if value is None:
            return NoneSpec((), object)
        spec = getattr(value, "spec", None)
        if isinstance(spec, TensorSpec):
            return spec
        array = np.asarray(object_array([value]) if _is_text(value) else value)
        shape = () if _is_text(value) else array.shape
        return TensorSpec(shape, array.dtype)

    return map_leaves(spec, element)


def _is_text(value: object) -> bool:
    return isinstance(value, _TEXT)


def size_of(element: Any) -> int:
    """Return the approximate size of an element's values in bytes."""
    return sum(getattr(leaf, "nbytes", 0) or _length(leaf) for leaf in leaves(element))


def _length(leaf: Any) -> int:
    return len(leaf) if _is_text(leaf) else 8
