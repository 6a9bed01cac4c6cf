"""Tests of rectangles in an arena: no overlaps, and each at its documented offset."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from toolkit.compiler.packing import Rectangle, pack_by_time, pack_lowest


@st.composite
def rectangles(draw):
    first = draw(st.integers(0, 12))
    extent = 64 * draw(st.integers(0, 5))
    return Rectangle(first, first + draw(st.integers(0, 6)), extent)


def overlap_in_time(a, b):
    return a.first <= b.last and b.first <= a.last


def is_free(rectangles, offsets, number, offset):
    """Return whether a rectangle at an offset overlaps no earlier one."""
    rectangle = rectangles[number]
    return all(
        not overlap_in_time(rectangle, other)
        or offset + rectangle.extent <= start
        or start + other.extent <= offset
        for other, start in zip(rectangles[:number], offsets, strict=False)
    )


@pytest.mark.parametrize("pack", [pack_lowest, pack_by_time])
@given(packed=st.lists(rectangles(), max_size=24))
def test_rectangles_do_not_overlap(pack, packed):
    size, offsets = pack(packed)
    assert all(is_free(packed, offsets, i, offsets[i]) for i in range(len(packed)))
    ends = [at + r.extent for at, r in zip(offsets, packed, strict=True)]
    assert size == max(ends, default=0)
    assert all(offset % 64 == 0 for offset in offsets)


@given(packed=st.lists(rectangles(), max_size=16))
def test_each_rectangle_has_the_lowest_free_offset(packed):
    _, offsets = pack_lowest(packed)
    for i, rectangle in enumerate(packed):
        lower = range(0, offsets[i], 64)
        assert not any(is_free(packed, offsets, i, at) for at in lower), rectangle


def test_disjoint_lifetimes_share_an_offset():
    chain = [Rectangle(i, i, 64) for i in range(1000)]
    assert pack_by_time(chain)[0] == 64


def test_nested_lifetimes_need_only_the_peak():
    nested = [Rectangle(i, 200 - i, 64 * (1 + i % 3)) for i in range(100)]
    assert pack_by_time(nested)[0] == sum(r.extent for r in nested)
