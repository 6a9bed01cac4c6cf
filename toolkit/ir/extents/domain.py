"""The domain of a compilation: its free extents, and the conditions of its result."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from math import inf, isqrt
from typing import Any, cast

from toolkit.ir.extents.expressions import (
    Extent,
    Number,
    bounds_of,
    is_real,
    value_of,
)
from toolkit.ir.extents.terms import Factor, Factors, quotient_bounds

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
}
_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "max": max,
    "min": min,
}
_FUNCTIONS = {"__builtins__": {}, "max": max, "min": min}

ENDED_EXTENT = (
    "an extent such as x.shape[1] is read after the trace in which it was stored; "
    "store int(x.shape[1]), or read the shape in each call"
)


class Domain:
    """The free extents of a compilation, and the conditions of its result.

    After its release, code of the user can still contain extents. They have the values
    of the call that was traced, as long as no call has others.

    Args:
        limits: the lowest and the highest value of each free extent. Speed is estimated
            for the highest one.

    Attributes:
        is_sealed: whether the compilation has ended. No condition is new afterwards.
        is_shared: whether calls with several values use it.
    """

    operations = _OPERATIONS | _COMPARISONS

    def __init__(self, limits: Sequence[tuple[int, int]]) -> None:
        self.limits = tuple(limits)
        self._factors: list[Factor] = []
        # One extent for equal sums of products, so that each has its bounds once.
        self._sums: dict[object, Extent] = {}
        self._operations: dict[Any, Extent] = {}
        self._comparisons: dict[object, bool] = {}
        self._conditions: dict[str, bool] = {}
        # Bounds of sums, by their keys, where the bounds of the terms are wider.
        self.narrow_bounds: dict[Any, tuple[float, float]] = {}
        # Bounds of quotients that intervals of their operands do not give: the most
        # shares of a number, by the keys of the share and of the negative number.
        self._share_counts: dict[object, dict[object, tuple[int, float]]] = {}
        self.extents: tuple[Extent, ...] = tuple(
            self._factor(high, low, high, "") for low, high in limits
        )
        self._holds: Callable[..., object] | None = None
        self._traced_values: tuple[int, ...] = ()
        self.is_sealed = False
        self.is_shared = False

    def seal(self) -> None:
        """End the compilation. Until the release, an extent must not be read."""
        self.is_sealed = True

    def release(self, values: Sequence[int]) -> None:
        """Let code of the user read the extents.

        Args:
            values: the free extents in the call that was traced.
        """
        self._traced_values = tuple(values)

    def use(self, values: Sequence[int]) -> None:
        """Note a call with these values of the free extents."""
        is_first = not self._traced_values or tuple(values) == self._traced_values
        self.is_shared = self.is_shared or not is_first

    @property
    def is_readable(self) -> bool:
        """Whether an extent has a value: during the trace, and after the release."""
        if not self.is_sealed:
            return True
        return bool(self._traced_values) and not self.is_shared

    def _traced_value(self, x: Number) -> int | float:
        """Return a number in the call that was traced.

        Raises:
            RuntimeError: calls with other extents use the program, or the compiler
                reads an extent after the compilation.
        """
        if not isinstance(x, Extent):
            return x
        if not self.is_readable:
            raise RuntimeError(f"{ENDED_EXTENT} (its expression is {x.text})")
        (value,) = self.evaluator([x])(*self._traced_values)
        return value

    def _factor(self, value: int | float, low: float, high: float, text: str) -> Extent:
        factor = Factor(len(self._factors), value, low, high, text)
        self._factors.append(factor)
        return self.sum_of({(factor,): 1})

    def sum_of(self, terms: Mapping[Factors, int]) -> Extent:
        """Return a sum of products as an extent.

        Args:
            terms: the coefficients of the products.
        """
        key = frozenset(terms.items())
        result = self._sums.get(key)
        if result is None:
            result = self._sums[key] = Extent(self, terms)
        return result

    def apply(self, name: str, x: Number, y: Number) -> Extent:
        """Return an operation that is no polynomial as an extent."""
        key = name, _key_of(x), _key_of(y)
        result = self._operations.get(key)
        if result is None:
            value = _OPERATIONS[name](value_of(x), value_of(y))
            low, high = _operation_bounds(name, x, y)
            if name == "//":
                counts = self._share_counts.get(_key_of(y), {})
                if _key_of(x) in counts:
                    low = max(low, -counts[_key_of(x)][0])
            text = f"{_text_of(x)} {name} {_text_of(y)}"
            if name in _FUNCTIONS:
                text = f"{name}({_text_of(x)}, {_text_of(y)})"
            result = self._operations[key] = self._factor(value, low, high, text)
            if name == "max":
                for operand in (x, y):
                    self._add_share_counts(result, self._counts_of(operand))
            elif name == "min" and type(x) is int and x > 0:
                counts = self._counts_of(y)
                self._add_share_counts(
                    result,
                    {k: (max(n, -int(-h // x)), h) for k, (n, h) in counts.items()},
                )
        return result

    def declare_share(self, total: Number, share: Number, count: int) -> None:
        """Declare that `count` shares of this size contain a number.

        Args:
            total: a number.
            share: at least the number divided by the count, for all values.
            count: the most shares.
        """
        if type(total) is Extent and type(share) is Extent:
            key = _key_of(-total)
            counts = {key: (count, total.bounds[1])}
            self._add_share_counts(share, counts)

    def _counts_of(self, x: Number) -> dict[object, tuple[int, float]]:
        return self._share_counts.get(_key_of(x), {})

    def _add_share_counts(
        self, share: Extent, counts: dict[object, tuple[int, float]]
    ) -> None:
        result = self._share_counts.setdefault(share.key, {})
        for total, bound in counts.items():
            result[total] = min(bound, result.get(total, bound))

    def compare(self, name: str, x: Number, y: Number) -> bool:
        """Return the result of a comparison; record it if it is not always the same."""
        key = name, _key_of(x), _key_of(y)
        result = None if self.is_sealed else self._comparisons.get(key)
        if result is None:
            result = self._comparisons[key] = self._compare(name, x, y)
        return result

    def _compare(self, name: str, x: Number, y: Number) -> bool:
        if is_real(x) or is_real(y):
            difference, bound = None, y
        else:
            difference = x - y
            if not isinstance(difference, Extent):
                return _COMPARISONS[name](difference, 0)
            low, high = difference.bounds
            if name == "==" and (low > 0 or high < 0):
                return False
            if name != "==" and (decided := _decide(name, low, high)) is not None:
                return decided
            x, bound = difference, 0
        if self.is_sealed:
            numbers = self._traced_value(x), self._traced_value(bound)
            return _COMPARISONS[name](*numbers)
        result = _COMPARISONS[name](value_of(x), value_of(bound))
        self._conditions[f"({_text_of(x)} {name} {_text_of(bound)})"] = result
        return result

    def fix(self, x: Extent) -> int | float:
        """Fix an extent at its value for the example, and return the value."""
        if self.is_sealed:
            return self._traced_value(x)
        self._conditions[f"({_text_of(x)} == {x.value!r})"] = True
        return x.value

    @property
    def conditions(self) -> list[str]:
        """The conditions as Python expressions of the factors x0, x1, ..."""
        items = self._conditions.items()
        return [text if result else f"not {text}" for text, result in items]

    def includes(self, values: Sequence[int]) -> bool:
        """Return whether values are in the limits of the free extents."""
        limits = zip(values, self.limits, strict=True)
        return all(low <= value <= high for value, (low, high) in limits)

    def holds(self, values: Sequence[int]) -> bool:
        """Return whether the results of the compilation are valid for these extents."""
        if not self.includes(values):
            return False
        if self._holds is None:
            body = " and ".join(self.conditions) or "True"
            self._holds = self._function(body)
        try:
            return bool(self._holds(*values))
        except ArithmeticError:  # an extent of 0 where the conditions do not hold
            return False

    def restrict(self, values: Sequence[int]) -> list[tuple[int, int]] | None:
        """Return limits in which the conditions probably hold for these extents.

        The highest values are prime numbers, for which each condition has the same
        result as for `values`. None: an extent is fixed, or there are no such limits.

        Args:
            values: free extents for which a condition does not hold.
        """
        texts = [f"{text}, " for text in self._conditions]
        results = self._function(f"({''.join(texts)})")
        try:
            expected = cast(tuple[bool, ...], results(*values))
            if any(
                " == " in text and wanted and not found
                for (text, wanted), found in zip(
                    self._conditions.items(), expected, strict=True
                )
            ):
                return None
            limits = []
            for i, (low, high) in enumerate(self.limits):
                for n in range(high, values[i] - 1, -1):
                    others = (*values[:i], n, *values[i + 1 :])
                    if is_prime(n) and results(*others) == expected:
                        limits.append((min(low, values[i]), n))
                        break
                else:
                    return None
        except ArithmeticError:
            return None
        return limits

    def evaluator(
        self, extents: Sequence[object]
    ) -> Callable[..., tuple[int | float, ...]]:
        """Return a function of the free extents that computes these extents."""
        texts = [_text_of(x) for x in extents]
        function = self._function(f"({', '.join(texts)},)" if texts else "()")
        return cast(Callable[..., tuple[int | float, ...]], function)

    def _function(self, result: str) -> Callable[..., object]:
        """Return a Python function of the free extents that returns an expression."""
        count = len(self.limits)
        arguments = ", ".join(x.name for x in self._factors[:count])
        lines = [f"    {x.name} = {x.text}" for x in self._factors[count:]]
        source = "\n".join(
            [f"def evaluate({arguments}):", *lines, f"    return {result}"]
        )
        scope: dict[str, Any] = {}
        exec(compile(source, "<extents>", "exec"), dict(_FUNCTIONS), scope)
        function: Callable[..., object] = scope["evaluate"]
        return function


def is_prime(number: int) -> bool:
    """Return whether a number of at least 2 is a prime number."""
    return all(number % k for k in range(2, isqrt(number) + 1))


def _key_of(x: object) -> object:
    return x.key if type(x) is Extent else (type(x), x)


def _text_of(x: object) -> str:
    return x.text if type(x) is Extent else f"({x!r})"


def _decide(name: str, low: float, high: float) -> bool | None:
    """Return the result of the comparison of bounds with 0, or None."""
    compare = _COMPARISONS[name]
    if compare(high, 0):
        return True
    return None if compare(low, 0) else False


def _operation_bounds(name: str, x: Number, y: Number) -> tuple[float, float]:
    """Return bounds of an operation that is a separate factor."""
    (low, high), (divisor, divisor_high) = bounds_of(x), bounds_of(y)
    if name in _FUNCTIONS:
        extreme = _OPERATIONS[name]
        return extreme(low, divisor), extreme(high, divisor_high)
    if is_real(x) or is_real(y) or divisor <= 0:
        return -inf, inf
    if name == "%":
        return 0, min(divisor_high - 1, high if low >= 0 else inf)
    if name == "//":
        return quotient_bounds((low, high), (divisor, divisor_high))
    if name == "/":
        corners = [m / n for m in (low, high) for n in (divisor, divisor_high)]
        return min(corners), max(corners)
    return -inf, inf
