"""Test round ticks and short numbers."""

import math

import pytest
from hypothesis import given, strategies as st

from toolkit.pictures import axes

NUMBERS = st.floats(-1e9, 1e9).filter(lambda v: v == 0 or abs(v) > 1e-9)


@given(st.lists(NUMBERS, min_size=1, max_size=5), st.booleans())
def test_scale_has_its_values_between_ticks(values, logarithmic):
    if logarithmic:
        values = [abs(v) or 1.0 for v in values]
    scale, marks = axes.value_scale(values, 100, 0, logarithmic)
    assert 2 <= len(marks) <= 12 and marks == sorted(marks)
    for value in values:
        assert -1e-3 <= scale(value) <= 100 + 1e-3
    assert scale(marks[0]) == pytest.approx(100)
    assert len(set(axes.tick_texts(marks))) == len(marks)


def test_ticks_of_close_values_differ():
    for values in ([1e6, 1e6 + 1], [1e-4, 1.0001e-4], [5.0, 5.0001]):
        _, marks = axes.value_scale(values, 100, 0)
        assert len(set(axes.tick_texts(marks))) == len(marks), values


@pytest.mark.parametrize("value", [4.545278e10, 1.2345e-7, -8.76543e8])
def test_ticks_with_exponents_are_short(value):
    scale, marks = axes.value_scale([value, value * (1 + 1e-7)], 100, 0)
    assert max(map(len, axes.tick_texts(marks))) <= 8
    assert 0 <= scale(value) <= 100


@pytest.mark.parametrize(
    "low, high, count, integers_only, expected",
    [
        (0, 1, 5, False, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (1, 12, 6, True, [2, 4, 6, 8, 10, 12]),
        (1, 3, 6, True, [1, 2, 3]),
        (5, 5, 6, True, [5]),
        (0, 1000, 5, False, [0, 200, 400, 600, 800, 1000]),
    ],
)
def test_ticks(low, high, count, integers_only, expected):
    assert axes.ticks(low, high, count, integers_only) == pytest.approx(expected)


@pytest.mark.parametrize(
    "value, expected",
    [
        (0, "0"),
        (0.03125, "0.03125"),
        (12.5, "12.5"),
        (1.2e-5, "1.2e-5"),
        (2_000_000, "2e6"),
        (math.nan, "nan"),
    ],
)
def test_numbers(value, expected):
    assert axes.number_text(value) == expected


def test_sizes_and_times():
    texts = [axes.bytes_text(n) for n in (0, 1023, 1024, 600_000, 5 << 30)]
    assert texts == ["0 B", "1023 B", "1 KB", "586 KB", "5 GB"]
    assert [axes.count_text(n) for n in (576, 82_400, 1.2e6)] == [
        "576",
        "82.4 K",
        "1.2 M",
    ]
    texts = [axes.seconds_text(s) for s in (2, 0.0125, 4e-5, 3e-8)]
    assert texts == ["2 s", "12.5 ms", "40 µs", "30 ns"]
