"""Values of names: undefined values, traced values, and their leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from toolkit import dtypes, ops, tree
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.core.tensor import Tensor
from toolkit.core.variable import Variable
from toolkit.definitions.records import record
from toolkit.errors import DTypeError, ShapeError, TraceError
from toolkit.ir import Spec

_NUMBERS = (bool, int, float, complex)


class Undefined:
    """A name without a value; every use of it raises an error with the reason.

    Args:
        name: the name.
        reason: the reason, as the end of a sentence.
    """

    def __init__(self, name: str, reason: str = "before it is assigned") -> None:
        object.__setattr__(self, "_message", f"{name!r} has no value {reason}")

    def _raise(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise UnboundLocalError(object.__getattribute__(self, "_message"))


for _name in (
    "getattr call bool iter getitem len add radd sub rsub mul rmul truediv rtruediv "
    "matmul rmatmul pow neg lt le gt ge int float index"
).split():
    setattr(Undefined, f"__{_name}__", Undefined._raise)


def is_dynamic(value: object) -> bool:
    """Return whether a value is a tensor or Variable without a static value."""
    if isinstance(value, Variable):
        value = value.value
    return isinstance(value, Tensor) and value.static_value() is None


def is_number(leaf: object) -> bool:
    """Return whether a leaf can be a value of a graph."""
    return isinstance(leaf, (Tensor, np.ndarray, np.generic, *_NUMBERS))


def is_weak(leaf: object) -> bool:
    """Return whether a leaf is a Python number, whose dtype is weak."""
    return isinstance(leaf, _NUMBERS) and not isinstance(leaf, np.generic)


def are_same(a: Any, b: Any) -> bool:
    """Return whether two leaves are one object, or equal values of one type."""
    if a is b:
        return True
    simple = (str, bytes, *_NUMBERS)
    return type(a) is type(b) and isinstance(a, simple) and a == b


def common_dtype(a: Any, b: Any) -> str | None:
    """Return the common dtype of two leaves; None if their dtypes do not fit."""
    weak = is_weak(a), is_weak(b)
    types = [convert(x).dtype for x in (a, b)]
    if weak == (False, False):
        return types[0] if types[0] == types[1] else None
    if weak == (True, True):
        return dtypes.result_type(*(type(x) for x in (a, b)))
    strong, number = (types[0], b) if weak[1] else (types[1], a)
    return strong if dtypes.result_type(strong, type(number)) == strong else None


@record
class Split:
    """A value, split into its leaves.

    Args:
        value: the value, for its structure.
        leaves: its leaves in order.
    """

    value: Any
    leaves: list[Any]

    @classmethod
    def of(cls, value: Any) -> Split:
        """Split a value; an undefined one has no leaves."""
        return cls(value, [] if isinstance(value, Undefined) else tree.flatten(value))

    @property
    def is_undefined(self) -> bool:
        return isinstance(self.value, Undefined)

    def with_leaves(self, leaves: Sequence[Any]) -> Any:
        """Return the value with other leaves."""
        if self.is_undefined:
            return self.value
        return tree.pack_sequence_as(self.value, leaves)

    def zeros(self) -> Any:
        """Return the value with zeros for its numbers."""
        return self.with_leaves([_zeros(leaf) for leaf in self.leaves])

    def has_form_of(self, other: Split) -> bool:
        """Return whether both have the same structure."""
        structures = [tree.signature(split.value) for split in (self, other)]
        return len(self.leaves) == len(other.leaves) and structures[0] == structures[1]


def _zeros(leaf: Any) -> Any:
    if not is_number(leaf):
        return leaf
    spec: Spec = convert(leaf).spec
    return ops.zeros(spec.shape, spec.dtype)


def check_same_spec(
    statement: str, name: str, locations: Sequence[str], a: Any, b: Any
) -> None:
    """Raise for two values of a name with different shapes or dtypes.

    Args:
        statement: the statement.
        name: the name.
        locations: the location of each value in the code.
        a, b: the values.
    """
    x, y = convert(a), convert(b)
    if x.shape != y.shape:
        raise ShapeError(
            f"{statement}: {name!r} must have one shape: it is {tuple(x.shape)} "
            f"{locations[0]} and {tuple(y.shape)} {locations[1]}"
        )
    if common_dtype(a, b) is None:
        raise DTypeError(
            f"{statement}: {name!r} must have one dtype: it is {x.dtype} "
            f"{locations[0]} and {y.dtype} {locations[1]}"
        )


def different_values_error(
    statement: str, name: str, locations: Sequence[str], a: Any, b: Any
) -> TraceError:
    """Create the error for a name with two different values that are not numbers."""
    return TraceError(
        f"{statement}: {name!r} is {_describe_value(a)} {locations[0]} and "
        f"{_describe_value(b)} {locations[1]}; only numbers and tensors can differ "
        "in control flow over a tensor"
    )


def _describe_value(value: object) -> str:
    if isinstance(value, Undefined):
        return "undefined"
    return "None" if value is None else f"a {type(value).__name__}"
