"""Test comparisons of symbols as in Keras: == is identity, < is an operation."""

import toolkit
from toolkit import KerasTensor


def test_lists_find_symbols_by_identity():
    x, y = KerasTensor((2,)), KerasTensor((2,))
    assert x in [y, x]
    assert x not in [y]
    assert [y, x].index(x) == 1
    assert (x == y) is False
    assert len({x, y}) == 2


def test_order_comparison_of_symbols_is_an_operation():
    x, y = toolkit.Input((2,)), toolkit.Input((2,))
    assert (x < y).dtype == (x != y).dtype == "bool"
