"""The arithmetic of extents: bounds contain all values."""

from __future__ import annotations

import random
from itertools import product

import pytest

from toolkit.ir.extents import Domain, Extent, largest, share_of, smallest, upper_bound

OPERATIONS = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "divide": lambda x, y: x // (y * y + 1),
    "round up": lambda x, y: -(-x // (y * y + 1)),
    "remainder": lambda x, y: x % (y * y + 1),
    "largest": largest,
    "smallest": smallest,
    "shares": lambda x, y: -(-(x * x) // share_of(x * x, 5)),
    "many shares": lambda x, y: -(-(x * x) // smallest(3, share_of(x * x, 5))),
    "few shares": lambda x, y: -(-(x * x) // largest(share_of(x * x, 5), y)),
}


@pytest.mark.parametrize("seed", range(60))
def test_bounds_contain_the_values_of_expressions(seed: int) -> None:
    draw = random.Random(seed)
    limits = [(draw.randint(2, 6), draw.randint(7, 20)) for _ in range(1 + seed % 2)]
    domain = Domain(limits)
    extents = list(domain.extents)
    for _ in range(6):
        x, y = draw.choice(extents), draw.choice([*extents, draw.randint(-9, 9)])
        result = OPERATIONS[draw.choice(list(OPERATIONS))](x, y)
        if type(result) is Extent and max(map(abs, result.bounds)) < 1e6:
            extents.append(result)
    compute = domain.evaluator(extents)
    for values in product(*[range(low, high + 1) for low, high in limits]):
        for x, number in zip(extents, compute(*values), strict=True):
            assert x.bounds[0] <= number <= x.bounds[1]


def test_shares_have_a_small_bound() -> None:
    (x,) = Domain([(2, 1009)]).extents
    share = share_of(x, 16)
    assert upper_bound(-(-x // share)) == 16
    assert upper_bound(-(-x // largest(share, 3))) == 16
    assert upper_bound(-(-x // smallest(512, share))) == 16


def test_a_text_of_an_extent_is_that_of_its_value() -> None:
    domain = Domain([(2, 17)])
    (x,) = domain.extents
    assert f"{x:3d}" == " 17"
    assert domain.holds((17,))
    assert not domain.holds((16,))


def test_extents_are_integers_for_checks_of_types() -> None:
    (n,) = Domain([(2, 17)]).extents
    assert isinstance(n, int)
    assert isinstance(n, Extent)
    assert isinstance(n / 2, float)
    assert not isinstance(n / 2, int)
