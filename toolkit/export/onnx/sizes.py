"""Extents that depend on free sizes: found from samples, at several sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

Sizes: TypeAlias = Mapping[str, int]
Product: TypeAlias = tuple[str, ...]


class Extent:
    """An integer that depends on free sizes: a sum of multiples of their products.

    Attributes:
        terms: the factor of each product of sizes, by their names; that of the empty
            product is the constant.
    """

    __slots__ = ("terms",)

    def __init__(self, terms: Mapping[Product, int]) -> None:
        self.terms: dict[Product, int] = {p: k for p, k in terms.items() if k}

    def at(self, sizes: Sizes) -> int:
        """Its value for these sizes."""
        return sum(
            factor * math.prod(sizes[name] for name in product)
            for product, factor in self.terms.items()
        )

    def __add__(self, number: int) -> Extent:
        return Extent({**self.terms, (): self.terms.get((), 0) + number})

    def without(self, other: Extent) -> int | None:
        """What is left if another one is taken away; None if that is no number."""
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


def samples_of(names: Sequence[str], spread: int = 0) -> list[dict[str, int]]:
    """Sizes to trace at: some, others for one name after the other, and for all.

    What is found from all but the last must hold for those, too.

    Args:
        names: of the free sizes.
        spread: 0 for small sizes, 1 for larger ones, 2 for those of images.
    """
    if not names:
        return [{}]
    first, second, third = ((7, 12, 18), (37, 42, 53), (96, 161, 225))[spread]
    base = {name: first + 13 * i for i, name in enumerate(names)}
    others = {name: second + 13 * i for i, name in enumerate(names)}
    last = {name: third + 13 * i for i, name in enumerate(names)}
    return [base, *({**base, name: others[name]} for name in names), last]


def fit(values: Sequence[int], samples: Sequence[Sizes]) -> Length | None:
    """What depends on the sizes as these values do; None if nothing known does."""
    if all(value == values[0] for value in values):
        return values[0]
    for guess in (_sum, _product):
        found = guess(values, samples)
        if found is not None:
            pairs = zip(values, samples, strict=True)
            if all(found.at(sizes) == value for value, sizes in pairs):
                return found
    return None


def _sum(values: Sequence[int], samples: Sequence[Sizes]) -> Extent | None:
    """A constant and a multiple of each size."""
    terms: dict[Product, int] = {}
    for i, name in enumerate(samples[0], start=1):
        slope = Fraction(values[i] - values[0], samples[i][name] - samples[0][name])
        if slope.denominator != 1:
            return None
        terms[name,] = int(slope)
    rest = values[0] - Extent(terms).at(samples[0])
    return Extent({**terms, (): rest})


def _product(values: Sequence[int], samples: Sequence[Sizes]) -> Extent | None:
    """A multiple of the product of some of the sizes."""
    base = samples[0]
    names = tuple(
        name for i, name in enumerate(base, start=1) if values[i] != values[0]
    )
    factor = Fraction(values[0], math.prod(base[name] for name in names))
    return Extent({names: int(factor)}) if factor.denominator == 1 else None


def fit_all(shapes: Sequence[Sequence[int]], samples: Sequence[Sizes]) -> Any:
    """A tuple of lengths from one of integers for each sample; None where none fits."""
    return tuple(fit(column, samples) for column in zip(*shapes, strict=True))
