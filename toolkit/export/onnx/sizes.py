"""Extents as functions of free sizes, inferred from samples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

Sizes: TypeAlias = Mapping[str, int]
Product: TypeAlias = tuple[str, ...]


class Extent:
    """Integer that depends on free sizes: a polynomial of their products.

    Attributes:
        terms: the coefficient of each product of sizes, by their names. The empty
            product is the constant.
    """

    __slots__ = ("terms",)

    def __init__(self, terms: Mapping[Product, int]) -> None:
        self.terms: dict[Product, int] = {p: k for p, k in terms.items() if k}

    def evaluate(self, sizes: Sizes) -> int:
        """Return its value for these sizes."""
        return sum(
            factor * math.prod(sizes[name] for name in product)
            for product, factor in self.terms.items()
        )

    def __add__(self, number: int) -> Extent:
        return Extent({**self.terms, (): self.terms.get((), 0) + number})

    def constant_difference(self, other: Extent) -> int | None:
        """Return the difference to another extent, or None if it is not constant."""
        products = {*self.terms, *other.terms} - {()}
        if any(self.terms.get(p) != other.terms.get(p) for p in products):
            return None
        return self.terms.get((), 0) - other.terms.get((), 0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Extent) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

    def __repr__(self) -> str:
        return " + ".join("*".join([str(k), *p]) for p, k in self.terms.items())


Length: TypeAlias = int | Extent


def sample_sizes(names: Sequence[str], size_class: int = 0) -> list[dict[str, int]]:
    """Return sizes to trace at: base sizes, then one varied at a time, then all.

    A fit to all but the last must also match the last.

    Args:
        names: the names of the free sizes.
        size_class: 0 for small sizes, 1 for larger ones, 2 for image sizes.
    """
    if not names:
        return [{}]
    first, second, third = ((7, 12, 18), (37, 42, 53), (96, 161, 225))[size_class]
    base = {name: first + 13 * i for i, name in enumerate(names)}
    varied = {name: second + 13 * i for i, name in enumerate(names)}
    last = {name: third + 13 * i for i, name in enumerate(names)}
    return [base, *({**base, name: varied[name]} for name in names), last]


def fit(values: Sequence[int], samples: Sequence[Sizes]) -> Length | None:
    """Return a function of the sizes with these values, or None without a fit."""
    if all(value == values[0] for value in values):
        return values[0]
    for fit_function in (_fit_sum, _fit_product):
        extent = fit_function(values, samples)
        if extent is not None:
            pairs = zip(values, samples, strict=True)
            if all(extent.evaluate(sizes) == value for value, sizes in pairs):
                return extent
    return None


def _fit_sum(values: Sequence[int], samples: Sequence[Sizes]) -> Extent | None:
    """Fit a constant and a multiple of each size."""
    terms: dict[Product, int] = {}
    for i, name in enumerate(samples[0], start=1):
        slope = Fraction(values[i] - values[0], samples[i][name] - samples[0][name])
        if slope.denominator != 1:
            return None
        terms[name,] = int(slope)
    constant = values[0] - Extent(terms).evaluate(samples[0])
    return Extent({**terms, (): constant})


def _fit_product(values: Sequence[int], samples: Sequence[Sizes]) -> Extent | None:
    """Fit a multiple of the product of some sizes."""
    base = samples[0]
    names = tuple(
        name for i, name in enumerate(base, start=1) if values[i] != values[0]
    )
    factor = Fraction(values[0], math.prod(base[name] for name in names))
    return Extent({names: int(factor)}) if factor.denominator == 1 else None


def fit_all(shapes: Sequence[Sequence[int]], samples: Sequence[Sizes]) -> Any:
    """Fit a tuple of extents from the integers of each sample; None without a fit."""
    return tuple(fit(column, samples) for column in zip(*shapes, strict=True))
