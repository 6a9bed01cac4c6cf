"""Elements as a signature asks for them: a nest of TensorSpecs, as elements are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import call
from typing import Any

import numpy as np

from toolkit.data.structure import TensorSpec, stack
from toolkit.errors import ArgumentTypeError

WHO = "from_generator"
NUMBERS = "biufcV"  # kinds of dtypes that have a size; V: those of ml_dtypes
PLAIN = frozenset((bool, int, float))

Function = Callable[[Any], Any]


def fitter(signature: Any) -> Function:
    """What makes of an element the arrays that a signature asks for, or raises."""
    return _each(signature, _value_fitter)


def keeper(signature: Any) -> Function:
    """What makes of an element one that stays as it is until it is stacked, or raises.

    Plain numbers, and dicts of them, stay as they are, and are left to `stacked_as`,
    which may find that they do not fit; all else is what `fitter` makes of it.
    """
    keep = _each(signature, _value_keeper)
    if not isinstance(signature, dict) or not all(map(_is_number, signature.values())):
        return keep

    def keep_numbers(element: Any) -> Any:
        if type(element) is dict and PLAIN.issuperset(map(type, element.values())):
            return element.copy()  # half the time of a look at each item
        return keep(element)

    return keep_numbers


def _each(signature: Any, of_value: Callable[[TensorSpec], Function]) -> Function:
    """A function of elements: of each value what `of_value` gives for its spec."""
    if isinstance(signature, TensorSpec):
        return of_value(signature)
    if isinstance(signature, dict):
        items = {key: _each(part, of_value) for key, part in signature.items()}

        def of_dict(element: Any) -> Any:
            if not isinstance(element, dict) or element.keys() != items.keys():
                raise _misfit(element, signature)
            return {key: of_item(element[key]) for key, of_item in items.items()}

        return of_dict
    parts = [_each(part, of_value) for part in signature]

    def of_tuple(element: Any) -> Any:
        if not isinstance(element, (tuple, list)) or len(element) != len(parts):
            raise _misfit(element, signature)
        return tuple(map(call, parts, element))

    return of_tuple


def _value_fitter(spec: TensorSpec) -> Function:
    """Values that have the dtype already, and plain numbers, have a shorter way."""
    dtype, number, is_number = spec.dtype, spec.dtype.type, _is_number(spec)

    def fit(value: Any) -> Any:
        kind = type(value)
        if kind is np.ndarray:
            if value.ndim and value.dtype == dtype and spec.accepts(value.shape):
                return value
        elif is_number and kind in PLAIN:
            try:
                return number(value)
            except (TypeError, ValueError):
                pass  # `convert` says it in words
        return spec.convert(value, WHO)[()]

    return fit


def _value_keeper(spec: TensorSpec) -> Function:
    fit = _value_fitter(spec)
    if not _is_number(spec):
        return fit

    def keep(value: Any) -> Any:
        kind = type(value)
        if kind in PLAIN or issubclass(kind, (np.number, np.bool)):
            return value
        return fit(value)

    return keep


def _is_number(part: Any) -> bool:
    """Whether a part of a signature is a spec of numbers."""
    return (
        isinstance(part, TensorSpec)
        and part.shape == ()
        and part.dtype.kind in NUMBERS
        and part.dtype.fields is None
    )


def _misfit(element: Any, signature: Any) -> ArgumentTypeError:
    return ArgumentTypeError(
        f"{WHO}: expected elements like {signature}; received {element!r:.80}"
    )


class MisfitError(Exception):
    """Some of these elements do not fit."""


def stacked_as(signature: Any, elements: Sequence[Any]) -> Any:
    """Elements that `keeper` has made as one batch of arrays.

    The same as stacking what `fitter` makes of each.

    Raises:
        Exception: of any kind, if some do not fit or cannot be stacked; `fitter` says
            which and why.
    """
    if isinstance(signature, TensorSpec):
        return _column(signature, elements)
    if isinstance(signature, dict):
        if {*map(len, elements)} != {len(signature)}:
            raise MisfitError
        return {
            key: stacked_as(part, [element[key] for element in elements])
            for key, part in signature.items()
        }
    parts = zip(signature, zip(*elements, strict=True), strict=True)
    return tuple([stacked_as(part, column) for part, column in parts])


def _column(spec: TensorSpec, values: Sequence[Any]) -> Any:
    if spec.dtype.kind in NUMBERS:
        return np.array(values, spec.dtype)
    return stack(values)
