"""Extents: expressions of free extents, with the arithmetic of integers."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

from toolkit.ir.extents.conversions import Conversions
from toolkit.ir.extents.terms import (
    Factors,
    divide_term,
    product_bounds,
    quotient_bounds,
)

if TYPE_CHECKING:
    from toolkit.ir.extents.domain import Domain

Number: TypeAlias = "int | float | Extent"
T = TypeVar("T")


class Extent(Conversions):
    """An expression of free extents: a sum of products, or an operation on such sums.

    It is no `int`: an operation of Python that needs one calls a method of this class,
    which fixes the value by a condition. But `isinstance(extent, int)` is True, because
    code of layers checks its arguments so.
    """

    __slots__ = ("_bounds", "_key", "_terms", "_value", "domain")
    __hash__ = Conversions.__hash__  # a class with __eq__ inherits no hash
    domain: Domain

    def __init__(self, domain: Domain, terms: Mapping[Factors, int]) -> None:
        self.domain = domain
        self._terms = terms
        self._value: int | float | None = None
        self._bounds: tuple[float, float] | None = None
        self._key: tuple[object, ...] | None = None

    @property
    def value(self) -> int | float:
        """The value for the example."""
        if self._value is None:
            total: int | float = 0
            for factors, coefficient in self._terms.items():
                product: int | float = coefficient
                for factor in factors:
                    product *= factor.value
                total += product
            self._value = total
        return self._value

    @property
    def bounds(self) -> tuple[float, float]:
        """The lowest and the highest value in the limits of the domain."""
        if self._bounds is None:
            low, high = self._interval()
            narrow = self.domain.narrow_bounds.get(self.key, (low, high))
            self._bounds = max(low, narrow[0]), min(high, narrow[1])
        return self._bounds

    def _interval(self) -> tuple[float, float]:
        """Return the bounds by interval arithmetic.

        A factor of all terms is taken out: the bounds of n - n * n are those of
        n * (1 - n), which are narrower.
        """
        first, *further = self._terms
        for factor in first:
            if further and all(factor in factors for factors in further):
                reduced: dict[Factors, int] = {}
                for factors, n in self._terms.items():
                    i = factors.index(factor)
                    reduced[factors[:i] + factors[i + 1 :]] = n
                quotient = Extent(self.domain, reduced)
                return product_bounds(quotient.bounds, (factor.low, factor.high))
        low: float = 0
        high: float = 0
        for factors, coefficient in self._terms.items():
            term: tuple[float, float] = (coefficient, coefficient)
            for factor in factors:
                term = product_bounds(term, (factor.low, factor.high))
            low, high = low + term[0], high + term[1]
        return low, high

    def _within(self, bounds: tuple[float, float]) -> Extent:
        """Narrow the bounds. The bounds of the terms ignore that terms are related."""
        low, high = self.bounds
        narrow = max(low, bounds[0]), min(high, bounds[1])
        if narrow != (low, high):
            self._bounds = self.domain.narrow_bounds[self.key] = narrow
        return self

    @property
    def is_real(self) -> bool:
        """Whether it is a floating-point number."""
        return isinstance(self.value, float)

    @property
    def key(self) -> tuple[object, ...]:
        """An object that is equal for equal sums of products."""
        if self._key is None:
            items = [
                (tuple([x.number for x in factors]), n)
                for factors, n in self._terms.items()
            ]
            self._key = tuple(sorted(items))
        return self._key

    @property
    def text(self) -> str:
        """The expression in Python, of the factors of the domain."""
        terms = []
        for factors, coefficient in self._terms.items():
            names = [x.name for x in factors]
            if coefficient != 1 or not names:
                names.insert(0, str(coefficient))
            terms.append("*".join(names))
        return f"({' + '.join(terms)})"

    # --- arithmetic -------------------------------------------------------------------

    def _with(self, terms: Mapping[Factors, int]) -> int | Extent:
        """Return a sum of products, as an integer if no free extent is in it."""
        terms = {factors: n for factors, n in terms.items() if n}
        if not terms:
            return 0
        if len(terms) == 1 and () in terms:
            return terms[()]
        return self.domain.sum_of(terms)

    def _terms_of(self, x: object) -> Mapping[Factors, int] | None:
        """Return the terms of an integer operand; None: it is no integer."""
        if isinstance(x, Extent):
            is_foreign = x.domain is not self.domain
            return None if is_foreign or x.is_real else x._terms
        if isinstance(x, int):
            return {(): int(x)}
        return None

    def _operate(self, name: str, x: Number, y: Number) -> Number:
        """Return an operation whose result is a separate factor."""
        if not self._can_combine(y if x is self else x):
            return cast(Number, self._apply_to_traced(name, x, y))
        return self.domain.apply(name, x, y)

    def _apply_to_traced(self, name: str, x: Number, y: Number) -> object:
        """Return an operation on an extent of an earlier compilation.

        Extents of two compilations are never equal, because caches have such keys.
        """
        if name == "==" or not all(isinstance(z, (int, float)) for z in (x, y)):
            return NotImplemented
        a, b = _traced(x), _traced(y)
        if a is x and b is y:
            return NotImplemented
        return self.domain.operations[name](a, b)

    def _can_combine(self, other: object) -> bool:
        """Return whether an operand is a number, or an extent of the same domain."""
        if isinstance(other, Extent):
            return other.domain is self.domain
        return isinstance(other, (int, float))

    def _add(self, other: Number, sign: int) -> Number | None:
        terms = None if self.is_real else self._terms_of(other)
        if terms is None:
            return None
        result = dict(self._terms)
        for factors, n in terms.items():
            result[factors] = result.get(factors, 0) + sign * n
        total = self._with(result)
        if type(total) is Extent:
            (low, high), ends = self.bounds, bounds_of(other)
            first, last = ends if sign > 0 else (-ends[1], -ends[0])
            total._within((low + first, high + last))
        return total

    def __add__(self, other: Number) -> Number:
        result = self._add(other, 1)
        return self._operate("+", self, other) if result is None else result

    def __radd__(self, other: Number) -> Number:
        result = self._add(other, 1)
        return self._operate("+", other, self) if result is None else result

    def __sub__(self, other: Number) -> Number:
        result = self._add(other, -1)
        return self._operate("-", self, other) if result is None else result

    def __rsub__(self, other: Number) -> Number:
        if self.is_real or self._terms_of(other) is None:
            return self._operate("-", other, self)
        return -self + other

    def __neg__(self) -> Number:
        if self.is_real:
            return self._operate("-", 0, self)
        result = self._with({factors: -n for factors, n in self._terms.items()})
        low, high = self.bounds
        return result._within((-high, -low)) if isinstance(result, Extent) else result

    def __pos__(self) -> Extent:
        return self

    def __invert__(self) -> Number:
        return -self - 1

    def __abs__(self) -> Number:
        return -self if self < 0 else self

    def __mul__(self, other: Number) -> Number:
        terms = None if self.is_real else self._terms_of(other)
        if terms is None:
            return self._operate("*", self, other)
        result: dict[Factors, int] = {}
        if type(other) is int:
            result = {factors: n * other for factors, n in self._terms.items()}
            terms = {}
        for first, m in self._terms.items():
            for second, n in terms.items():
                factors = tuple(sorted((*first, *second), key=attrgetter("number")))
                result[factors] = result.get(factors, 0) + m * n
        product = self._with(result)
        if type(product) is Extent:
            product._within(product_bounds(self.bounds, bounds_of(other)))
        return product

    def __rmul__(self, other: Number) -> Number:
        is_integer = not self.is_real and self._terms_of(other) is not None
        return self * other if is_integer else self._operate("*", other, self)

    def __floordiv__(self, other: Number) -> Number:
        terms = None if self.is_real else self._terms_of(other)
        if terms is not None and other is not self:
            quotient, remainder = self._divide(terms)
            if not isinstance(remainder, Extent) and not remainder:
                return quotient
            divided = _low_quotient(remainder, other)
            if divided is not None:
                return quotient + divided
            if isinstance(quotient, Extent) or quotient:
                result = quotient + remainder // other
                limits = quotient_bounds(self.bounds, bounds_of(other))
                return result._within(limits) if isinstance(result, Extent) else result
        return 1 if other is self else self._operate("//", self, other)

    def __rfloordiv__(self, other: Number) -> Number:
        divided = _low_quotient(other, self) if isinstance(other, int) else None
        return self._operate("//", other, self) if divided is None else divided

    def __mod__(self, other: Number) -> Number:
        terms = None if self.is_real else self._terms_of(other)
        if terms is not None and other is not self:
            _, remainder = self._divide(terms)
            if not isinstance(remainder, Extent) and not remainder:
                return 0
            divided = _low_quotient(remainder, other)
            if divided is not None:
                return remainder - other * divided
            if remainder is not self and not is_same(remainder, self):
                return remainder % other
        return 0 if other is self else self._operate("%", self, other)

    def __rmod__(self, other: Number) -> Number:
        return other - self * (other // self)

    def _divide(
        self, terms: Mapping[Factors, int]
    ) -> tuple[int | Extent, int | Extent]:
        """Divide each term that a single term divides; return quotient and remainder.

        The quotient of a sum of multiples and a remainder is the sum of the quotients.
        """
        if len(terms) != 1:
            quotient = self._exact_quotient(terms)
            return (0, self) if quotient is None else (quotient, 0)
        ((divisors, n),) = terms.items()
        if not n:
            raise ZeroDivisionError("integer division or modulo by zero")
        quotients: dict[Factors, int] = {}
        remainder: dict[Factors, int] = {}
        for factors, m in self._terms.items():
            divided = divide_term((factors, m), (divisors, n))
            if divided is not None:
                quotients[divided[0]] = divided[1]
            elif not divisors and m // n:
                quotients[factors] = m // n
                remainder[factors] = m % n
            else:
                remainder[factors] = m
        return self._with(quotients), self._with(remainder)

    def _exact_quotient(self, terms: Mapping[Factors, int]) -> int | Extent | None:
        """Return the term by which a sum must be multiplied for this one, if any."""
        if len(terms) != len(self._terms):
            return None
        divisor = Extent(self.domain, terms)
        for term in self._terms.items():
            quotient = divide_term(term, next(iter(terms.items())))
            if quotient is not None:
                factor = self._with(dict([quotient]))
                if is_same(factor * divisor, self):
                    return factor
        return None

    def __divmod__(self, other: Number) -> tuple[Number, Number]:
        return self // other, self % other

    def __rdivmod__(self, other: Number) -> tuple[Number, Number]:
        return other // self, other % self

    def __truediv__(self, other: Number) -> Number:
        return self._operate("/", self, other)

    def __rtruediv__(self, other: Number) -> Number:
        return self._operate("/", other, self)

    def __pow__(self, other: Number) -> Number:
        if isinstance(other, int) and other >= 0 and not self.is_real:
            result: Number = 1
            for _ in range(other):
                result = result * self
            return result
        return self._operate("**", self, other)

    def __rpow__(self, other: Number) -> Number:
        return self._operate("**", other, self)

    def __lshift__(self, other: Number) -> Number:
        if isinstance(other, int):
            return self * (1 << other)
        return self._operate("<<", self, other)

    def __rshift__(self, other: Number) -> Number:
        if isinstance(other, int):
            return self // (1 << other)
        return self._operate(">>", self, other)

    def __and__(self, other: Number) -> Number:
        if isinstance(other, int) and other < 0 and not -other & (-other - 1):
            return self - self % -other  # the bits from a power of two on
        return self._operate("&", self, other)

    def __rand__(self, other: Number) -> Number:
        return self & other

    def __or__(self, other: Number) -> Number:
        return self._operate("|", self, other)

    def __ror__(self, other: Number) -> Number:
        return self._operate("|", self, other)

    def __xor__(self, other: Number) -> Number:
        return self._operate("^", self, other)

    def __rxor__(self, other: Number) -> Number:
        return self._operate("^", self, other)

    # --- comparisons ------------------------------------------------------------------

    def _compare(self, name: str, x: Number, y: Number) -> bool:
        if not self._can_combine(y if x is self else x):
            return cast(bool, self._apply_to_traced(name, x, y))
        return self.domain.compare(name, x, y)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (int, float, Extent)):
            return NotImplemented
        return other is self or self._compare("==", self, other)

    def __ne__(self, other: object) -> bool:
        result = self.__eq__(other)
        return result if result is NotImplemented else not result

    def __lt__(self, other: Number) -> bool:
        return False if other is self else self._compare("<", self, other)

    def __le__(self, other: Number) -> bool:
        return True if other is self else self._compare("<=", self, other)

    def __gt__(self, other: Number) -> bool:
        return False if other is self else self._compare("<", other, self)

    def __ge__(self, other: Number) -> bool:
        return True if other is self else self._compare("<=", other, self)

    def __bool__(self) -> bool:
        return not self.__eq__(0)


def value_of(x: T) -> T:
    """Return the value of a number for the example, without a condition.

    For estimates of the time or memory, and for bounds: both results of the decision
    must be right for every value.

    Args:
        x: a number or an extent.
    """
    return cast(T, x.value) if isinstance(x, Extent) else x


def _traced(x: Number) -> Number:
    """Return an extent of an earlier compilation in the call that was traced."""
    if type(x) is Extent and x.domain.is_sealed:
        return x.domain.fix(x)
    return x


def is_same(x: Number, y: Number) -> bool:
    """Return whether two numbers have the same terms."""
    if type(x) is Extent and type(y) is Extent:
        return x.domain is y.domain and x.key == y.key
    return type(x) is not Extent and type(y) is not Extent and x == y


def is_real(x: object) -> bool:
    """Return whether a number is a floating-point number."""
    return x.is_real if type(x) is Extent else isinstance(x, float)


def bounds_of(x: Number) -> tuple[float, float]:
    """Return the lowest and the highest value of a number."""
    return x.bounds if isinstance(x, Extent) else (x, x)


def _low_quotient(x: Number, y: Number) -> int | None:
    """Return the quotient if it is 0 or -1 for all values, else None."""
    if isinstance(x, Extent) and x.is_real:
        return None
    (low, high), (divisor, _) = bounds_of(x), bounds_of(y)
    if divisor <= 0:
        return None
    if 0 <= low and high < divisor:
        return 0
    return -1 if -divisor <= low and high < 0 else None
