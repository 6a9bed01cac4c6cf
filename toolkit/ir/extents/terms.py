"""Terms of extents: products of factors, and the bounds of their values."""

from __future__ import annotations

from math import inf, isfinite
from typing import TypeAlias

# The factors of a term, in order; the empty tuple is the constant term.
Factors: TypeAlias = tuple["Factor", ...]


class Factor:
    """A free extent, or an operation on extents that is no polynomial.

    Attributes:
        number: the index in the domain; factors of a term are sorted by it.
        value: its value for the example.
        low, high: bounds of its value.
        text: its expression in Python, of factors with smaller numbers.
    """

    __slots__ = ("high", "low", "number", "text", "value")

    def __init__(
        self, number: int, value: int | float, low: float, high: float, text: str
    ) -> None:
        self.number = number
        self.value = value
        self.low, self.high = low, high
        self.text = text

    @property
    def name(self) -> str:
        return f"x{self.number}"


def divide_term(
    term: tuple[Factors, int], divisor: tuple[Factors, int]
) -> tuple[Factors, int] | None:
    """Return the quotient of two terms, or None if one does not divide the other."""
    remaining, (factors, n) = list(term[0]), divisor
    if term[1] % n:
        return None
    for factor in factors:
        if factor not in remaining:
            return None
        remaining.remove(factor)
    return tuple(remaining), term[1] // n


def product_bounds(
    x: tuple[float, float], y: tuple[float, float]
) -> tuple[float, float]:
    """Return bounds of the products of numbers in these bounds."""
    products = [0 if not m or not n else m * n for m in x for n in y]
    return min(products), max(products)


def quotient_bounds(
    x: tuple[float, float], y: tuple[float, float]
) -> tuple[float, float]:
    """Return bounds of the whole quotients of numbers in these bounds."""
    if y[0] <= 0:
        return -inf, inf
    corners = [
        m // n if isfinite(m) and isfinite(n) else m / n if isfinite(m) else m
        for m in x
        for n in y
    ]
    return min(corners), max(corners)
