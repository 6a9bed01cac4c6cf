"""Open extents: extents that a trace leaves open, and that each call defines.

A trace with open extents runs the Python code once for all shapes of a signature. An
`Extent` stands for a number and records the arithmetic on it. A comparison has the
result for the first shapes, and becomes a guard: the trace is valid for other shapes
only if all guards have the same results.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, SupportsIndex, TypeGuard

from toolkit.errors import TraceError
from toolkit.ir import Kind, Primitive, Spec


class UnknownExtentError(TraceError, TypeError):
    """Error raised when code needs the number of an open extent."""


def _given_spec(function: object, arguments: object, spec: Spec) -> Spec:
    return spec


# A constant that depends on open extents: `function` computes it from `arguments`.
deferred_p: Primitive = Primitive("deferred", Kind.CONTROL, _given_spec)


# A comparison, its operands and its result.
_Guard = tuple[Callable[..., bool], tuple["Number", ...], bool]


class OpenExtents:
    """The open extents of one trace, and the comparisons that it depends on.

    Args:
        hints: the extents of the first call, with which comparisons are decided.
    """

    def __init__(self, hints: Sequence[int]) -> None:
        # A number for each expression: equal expressions are one number.
        self._expressions: dict[tuple[object, ...], int] = {}
        self.inputs: tuple[Extent, ...] = tuple(
            Extent(self, None, (i,), hint) for i, hint in enumerate(hints)
        )
        # Whether code asked for the number of an extent, so that no guard suffices.
        self.has_read_number = False
        self._guards: dict[tuple[object, ...], _Guard] = {}

    def decide(self, comparison: Callable[..., bool], *operands: Number) -> bool:
        """Return the result of a comparison for the hints, and record a guard."""
        result = bool(comparison(*map(_hint, operands)))
        key = comparison, *map(_key, operands)
        self._guards[key] = comparison, operands, result
        return result

    def identify(self, *expression: object) -> tuple[int, int]:
        """Return the key of an expression."""
        number = self._expressions.setdefault(expression, len(self._expressions))
        return id(self), number

    def accept(self, values: Sequence[int]) -> bool:
        """Return whether the trace is valid for these extents."""
        return not self.has_read_number and all(
            bool(comparison(*(evaluate(x, values) for x in operands))) is result
            for comparison, operands, result in self._guards.values()
        )

    def refuse_number(self) -> UnknownExtentError:
        """Return the error for code that needs the number of an extent."""
        self.has_read_number = True
        return UnknownExtentError(
            "an extent is open (None) in the input_signature of a traced function, so "
            "it has no value in the trace"
        )


class Extent:
    """A number that depends on the open extents of a trace.

    Args:
        owner: the open extents.
        function: the operation that computes it; None: an open extent.
        operands: of the function; for an open extent, its index.
        hint: its value for the first call.
    """

    __slots__ = ("_function", "_operands", "_owner", "hint", "key")

    def __init__(
        self,
        owner: OpenExtents,
        function: Callable[..., float] | None,
        operands: tuple[Number, ...],
        hint: float,
    ) -> None:
        self._owner = owner
        self._function = function
        self._operands = operands
        # Equal keys mean equal numbers for all extents.
        self.key: tuple[int, int] = owner.identify(function, *map(_key, operands))
        self.hint: float = hint

    def value(self, values: Sequence[int]) -> float:
        """Return its number for these open extents."""
        if self._function is None:
            (position,) = self._operands
            assert isinstance(position, int)
            return values[position]
        return self._function(*(evaluate(x, values) for x in self._operands))

    def _apply(self, function: Callable[..., float], *operands: Number) -> Extent:
        if not all(map(_is_number, operands)):
            return NotImplemented
        hint = function(*map(_hint, operands))
        return Extent(self._owner, function, operands, hint)

    def _compare(self, comparison: Callable[..., bool], other: object) -> bool:
        if not _is_number(other):
            return NotImplemented
        return self._owner.decide(comparison, self, other)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Extent):
            if self.key == other.key:
                return True
            if other._owner is not self._owner:
                return False
        return self._compare(operator.eq, other)

    def __ne__(self, other: object) -> bool:
        result = self.__eq__(other)
        return result if result is NotImplemented else not result

    def __hash__(self) -> int:
        return hash(self.key)

    def __lt__(self, other: object) -> bool:
        return self._compare(operator.lt, other)

    def __le__(self, other: object) -> bool:
        return self._compare(operator.le, other)

    def __gt__(self, other: object) -> bool:
        return self._compare(operator.gt, other)

    def __ge__(self, other: object) -> bool:
        return self._compare(operator.ge, other)

    def __bool__(self) -> bool:
        return self._owner.decide(operator.ne, self, 0)

    def __add__(self, other: Number) -> Extent:
        return self._apply(operator.add, self, other)

    def __radd__(self, other: Number) -> Extent:
        return self._apply(operator.add, other, self)

    def __sub__(self, other: Number) -> Extent:
        return self._apply(operator.sub, self, other)

    def __rsub__(self, other: Number) -> Extent:
        return self._apply(operator.sub, other, self)

    def __mul__(self, other: Number) -> Extent:
        return self if _is_one(other) else self._apply(operator.mul, self, other)

    def __rmul__(self, other: Number) -> Extent:
        return self if _is_one(other) else self._apply(operator.mul, other, self)

    def __truediv__(self, other: Number) -> Extent:
        return self._apply(operator.truediv, self, other)

    def __rtruediv__(self, other: Number) -> Extent:
        return self._apply(operator.truediv, other, self)

    def __floordiv__(self, other: Number) -> Extent:
        return self._apply(operator.floordiv, self, other)

    def __rfloordiv__(self, other: Number) -> Extent:
        return self._apply(operator.floordiv, other, self)

    def __mod__(self, other: Number) -> Extent:
        return self._apply(operator.mod, self, other)

    def __rmod__(self, other: Number) -> Extent:
        return self._apply(operator.mod, other, self)

    def __divmod__(self, other: Number) -> tuple[Extent, Extent]:
        return self // other, self % other

    def __pow__(self, other: Number) -> Extent:
        return self._apply(operator.pow, self, other)

    def __rpow__(self, other: Number) -> Extent:
        return self._apply(operator.pow, other, self)

    def __neg__(self) -> Extent:
        return self._apply(operator.neg, self)

    def __pos__(self) -> Extent:
        return self

    def __abs__(self) -> Extent:
        return self._apply(abs, self)

    def __ceil__(self) -> Extent:
        return self._apply(math.ceil, self)

    def __floor__(self) -> Extent:
        return self._apply(math.floor, self)

    def __int__(self) -> int:
        raise self._owner.refuse_number()

    def __index__(self) -> int:
        raise self._owner.refuse_number()

    def __float__(self) -> float:
        raise self._owner.refuse_number()

    def __repr__(self) -> str:
        return "?"


Number = float | Extent


def evaluate(x: object, values: Sequence[int]) -> Any:
    """Return a number, in which open extents are replaced by these values."""
    return x.value(values) if isinstance(x, Extent) else x


def is_same_shape(shape: Sequence[int], other: Sequence[int]) -> bool:
    """Return whether shapes are equal for all open extents, without a guard."""
    return len(shape) == len(other) and all(map(is_same_extent, shape, other))


def is_same_extent(m: Number, n: Number) -> bool:
    """Return whether extents are equal for all open extents, without a guard."""
    if isinstance(m, Extent) or isinstance(n, Extent):
        return bool(_key(m) == _key(n))
    return bool(m == n)


def whole_number(n: SupportsIndex) -> Any:
    """Return an integer of any type as an `int`, and an open extent unchanged."""
    return n if isinstance(n, Extent) else operator.index(n)


def count_steps(start: int, stop: int, step: int) -> int:
    """Return the number of elements of a range."""
    if type(start) is type(stop) is type(step) is int:
        return len(range(start, stop, step))
    return _choose(max, -((start - stop) // step), 0)


def slice_bounds(item: slice, extent: int) -> tuple[int, int, int]:
    """Return the start, stop and step of a slice of an axis, as `slice.indices`."""
    numbers = (extent, item.start, item.stop, item.step)
    if not any(isinstance(n, Extent) for n in numbers):
        return item.indices(extent)
    step = 1 if item.step is None else item.step
    low, high = (0, extent) if step > 0 else (-1, extent - 1)

    def bound(position: int | None, default: int) -> int:
        if position is None:
            return default
        if position < 0:
            return _choose(max, position + extent, low)
        return _choose(min, position, high)

    defaults = (low, high) if step > 0 else (high, low)
    return bound(item.start, defaults[0]), bound(item.stop, defaults[1]), step


def _choose(function: Callable[..., int], x: Number, y: Number) -> Any:
    """Return the minimum or maximum without a guard."""
    for operand in (x, y):
        if isinstance(operand, Extent):
            return operand._apply(function, x, y)
    return function(x, y)


def _is_number(x: object) -> TypeGuard[Number]:
    return isinstance(x, (Real, Extent))


def _is_one(x: object) -> bool:
    return type(x) is int and x == 1


def _hint(x: Number) -> float:
    return x.hint if isinstance(x, Extent) else x


def _key(x: object) -> tuple[object, object]:
    return x.key if isinstance(x, Extent) else (type(x), x)
