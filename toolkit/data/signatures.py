"""Conversion of elements to a signature: a structure of TensorSpecs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import call, itemgetter
from typing import Any

import numpy as np

from toolkit.data.structure import Empty, TensorSpec, stack_values
from toolkit.errors import ArgumentTypeError

WHO = "from_generator"
NUMBERS = "biufcV"  # dtype kinds with a fixed size; V: ml_dtypes
PLAIN = frozenset((bool, int, float))
SCALARS = PLAIN.union(np.dtype(code).type for code in "?bhilqBHILQefd")

Function = Callable[[Any], Any]


def make_converter(signature: Any) -> Function:
    """Return a function that converts an element to a signature, or raises an error."""
    return _map_signature(signature, _value_converter)


class BatchBuffer:
    """Buffering of the elements of a batch for a signature.

    Plain numbers are not converted; `stacked` can find later that they do not match.
    Other values are converted by `fitter`.
    """

    def __init__(self, signature: Any) -> None:
        self.signature = signature
        self.fit = make_converter(signature)
        self._keep = _map_signature(signature, _value_buffer)

    def buffer(self, elements: Iterable[Any]) -> Iterator[Any]:
        """Yield elements in buffered form; raise an error for the first mismatch."""
        return map(self._keep, elements)

    def stacked(self, buffered: Sequence[Any], empty: Empty = np.empty) -> Any:
        """Return buffered elements as one batch, with arrays from `empty`.

        The result equals the stacked results of `fit`.

        Raises:
            Exception: of any type, if elements do not match or cannot be stacked; `fit`
                gives the exact reason.
        """
        return _stack_buffers(self.signature, buffered, empty)


class _NumberBuffer(BatchBuffer):
    """Buffering of tuples and dicts of numbers as tuples, without a call per value."""

    def __init__(self, signature: Any) -> None:
        super().__init__(signature)
        is_dict = isinstance(signature, dict)
        self._type = dict if is_dict else tuple
        self._keys = tuple(signature) if is_dict else tuple(range(len(signature)))
        self._specs = tuple(signature.values()) if is_dict else tuple(signature)
        self._fit_element, self.fit = self.fit, self._fit_row

    def _fit_row(self, row: tuple[Any, ...]) -> Any:
        return self._fit_element(self._element(row))

    def _element(self, row: Sequence[Any]) -> Any:
        return dict(zip(self._keys, row, strict=True)) if self._type is dict else row

    def buffer(self, elements: Iterable[Any]) -> Iterator[Any]:
        values_of, count = itemgetter(*self._keys), len(self._keys)
        expected, scalar_types = self._type, SCALARS
        for element in elements:
            if type(element) is not expected or len(element) != count:
                element = self._keep(element)
            try:
                row = values_of(element)
            except KeyError:
                raise _mismatch_error(element, self.signature) from None
            for value in row:
                if type(value) not in scalar_types:
                    row = values_of(self._keep(element))
                    break
            yield row

    def stacked(self, buffered: Sequence[Any], empty: Empty = np.empty) -> Any:
        columns = _stack_buffers(self._specs, buffered, empty)
        return self._element(columns)


def make_batch_buffer(signature: Any) -> BatchBuffer:
    """Return the buffering for a signature."""
    specs = signature.values() if isinstance(signature, dict) else signature
    is_multiple = isinstance(signature, (dict, tuple, list)) and len(signature) > 1
    if is_multiple and all(map(_is_number, specs)):
        return _NumberBuffer(signature)
    return BatchBuffer(signature)


def _map_signature(
    signature: Any, of_value: Callable[[TensorSpec], Function]
) -> Function:
    """Return a function that applies the function of each spec to each value."""
    if isinstance(signature, TensorSpec):
        return of_value(signature)
    if isinstance(signature, dict):
        items = {key: _map_signature(spec, of_value) for key, spec in signature.items()}

        def of_dict(element: Any) -> Any:
            if not isinstance(element, dict) or element.keys() != items.keys():
                raise _mismatch_error(element, signature)
            return {key: of_item(element[key]) for key, of_item in items.items()}

        return of_dict
    specs = [_map_signature(spec, of_value) for spec in signature]

    def of_tuple(element: Any) -> Any:
        if not isinstance(element, (tuple, list)) or len(element) != len(specs):
            raise _mismatch_error(element, signature)
        return tuple(map(call, specs, element))

    return of_tuple


def _value_converter(spec: TensorSpec) -> Function:
    """Return a converter with fast paths for matching dtypes and plain numbers."""
    dtype, number, is_number = spec.dtype, spec.dtype.type, _is_number(spec)
    static_shape = spec.shape or None  # an array of shape () becomes a number

    def fit(value: Any) -> Any:
        kind = type(value)
        if kind is np.ndarray:
            shape = value.shape
            if value.dtype == dtype and (
                shape == static_shape or (shape and spec.accepts(shape))
            ):
                return value
        elif is_number and kind in PLAIN:
            try:
                return number(value)
            except (TypeError, ValueError):
                pass  # `convert` gives the reason
        return spec.convert(value, WHO)[()]

    return fit


def _value_buffer(spec: TensorSpec) -> Function:
    fit = _value_converter(spec)
    if not _is_number(spec):
        return fit

    def keep(value: Any) -> Any:
        kind = type(value)
        if kind in PLAIN or issubclass(kind, (np.number, np.bool)):
            return value
        return fit(value)

    return keep


def _is_number(spec: Any) -> bool:
    """Return whether a part of a signature is a spec of numbers."""
    return (
        isinstance(spec, TensorSpec)
        and spec.shape == ()
        and spec.dtype.kind in NUMBERS
        and spec.dtype.fields is None
    )


def _mismatch_error(element: Any, signature: Any) -> ArgumentTypeError:
    return ArgumentTypeError(
        f"{WHO}: expected elements like {signature}; received {element!r:.80}"
    )


class MismatchError(Exception):
    """Error for elements that do not match."""


def _stack_buffers(signature: Any, elements: Sequence[Any], empty: Empty) -> Any:
    if isinstance(signature, TensorSpec):
        return _column(signature, elements, empty)
    if isinstance(signature, dict):
        if {*map(len, elements)} != {len(signature)}:
            raise MismatchError
        return {
            key: _stack_buffers(spec, [element[key] for element in elements], empty)
            for key, spec in signature.items()
        }
    specs = zip(signature, zip(*elements, strict=True), strict=True)
    return tuple([_stack_buffers(spec, column, empty) for spec, column in specs])


def _column(spec: TensorSpec, values: Sequence[Any], empty: Empty) -> Any:
    if spec.shape == () and spec.dtype.kind in NUMBERS:
        return np.array(values, spec.dtype)
    return stack_values(values, empty=empty)
