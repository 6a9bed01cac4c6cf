"""Elements as a signature asks for them: a nest of TensorSpecs, as elements are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toolkit.data.structure import TensorSpec, are_all, stack
from toolkit.errors import ArgumentTypeError

WHO = "from_generator"
NUMBERS = "biufcV"  # kinds of dtypes that have a size; V: those of ml_dtypes
PLAIN = frozenset((bool, int, float))


def fitter(signature: Any) -> Callable[[Any], Any]:
    """What makes of an element the arrays that a signature asks for, or raises."""
    if isinstance(signature, TensorSpec):
        return _value_fitter(signature)
    if isinstance(signature, dict):
        fitters = {key: fitter(part) for key, part in signature.items()}

        def fit_dict(element: Any) -> Any:
            if not isinstance(element, dict) or element.keys() != fitters.keys():
                raise _misfit(element, signature)
            return {key: fit(element[key]) for key, fit in fitters.items()}

        return fit_dict
    parts = [fitter(part) for part in signature]

    def fit_tuple(element: Any) -> Any:
        if not isinstance(element, (tuple, list)) or len(element) != len(parts):
            raise _misfit(element, signature)
        return tuple([fit(part) for fit, part in zip(parts, element, strict=True)])

    return fit_tuple


def _value_fitter(spec: TensorSpec) -> Callable[[Any], Any]:
    """Values that have the dtype already, and plain numbers, have a shorter way."""
    dtype, number = spec.dtype, spec.dtype.type
    is_number = spec.shape == () and dtype.kind in NUMBERS and dtype.fields is None

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


def _misfit(element: Any, signature: Any) -> ArgumentTypeError:
    return ArgumentTypeError(
        f"{WHO}: expected elements like {signature}; received {element!r:.80}"
    )


class MisfitError(Exception):
    """Some of these elements do not fit, or have to be looked at one by one."""


def stacked_as(signature: Any, elements: Sequence[Any]) -> Any:
    """Elements as one batch of the arrays that a signature asks for.

    The same as stacking what `fitter` makes of each.

    Raises:
        Exception: of any kind, if they do not fit or cannot be stacked; `fitter` says
            which and why.
    """
    if isinstance(signature, TensorSpec):
        return _column(signature, elements)
    if isinstance(signature, dict):
        if not are_all(dict, elements) or {*map(len, elements)} != {len(signature)}:
            raise MisfitError
        return {
            key: stacked_as(part, [element[key] for element in elements])
            for key, part in signature.items()
        }
    if not are_all((tuple, list), elements):
        raise MisfitError
    columns = zip(*elements, strict=True)
    parts = zip(signature, columns, strict=True)
    return tuple([stacked_as(part, column) for part, column in parts])


def _column(spec: TensorSpec, values: Sequence[Any]) -> Any:
    if spec.dtype.kind not in NUMBERS:
        return stack([spec.convert(value, WHO)[()] for value in values])
    made = np.array(values, spec.dtype)
    if not spec.accepts(made.shape[1:]):
        raise MisfitError
    return made
