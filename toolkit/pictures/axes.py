"""Axes: round ticks, their labels, and the scale from values to positions."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, isfinite, log10
from typing import NamedTuple

# The range of an axis is at least this fraction of its values, if they need exponents.
_FLAT = 20
_UNITS = ("B", "KB", "MB", "GB", "TB")


class Scale(NamedTuple):
    """A scale from values to positions: linear, or logarithmic to base 10.

    Attributes:
        low, high: the values at both ends.
        start, end: the positions of both ends.
    """

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.logarithmic:
            value, low, high = log10(value), log10(low), log10(high)
        share = (value - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)


def round_step(span: float, count: int, integers_only: bool = False) -> float:
    """Return 1, 2 or 5 times a power of 10 that divides a span into about `count`
    steps."""
    if not span > 0:
        return 1.0
    power = 10.0 ** floor(log10(span / count))
    step = next(m * power for m in (1, 2, 5, 10) if m * power * count >= span * 0.999)
    return max(1.0, step) if integers_only else step


def ticks(
    low: float, high: float, count: int = 5, integers_only: bool = False
) -> list[float]:
    """Return round values from `low` to `high`."""
    step = round_step(high - low, count, integers_only)
    first, last = ceil(low / step - 1e-9), floor(high / step + 1e-9)
    return [step * i for i in range(first, last + 1)]


def value_scale(
    values: Sequence[float], start: float, end: float, logarithmic: bool = False
) -> tuple[Scale, list[float]]:
    """Return a scale that starts and ends at a tick around the values, and its
    ticks."""
    finite = [v for v in values if isfinite(v) and (v > 0 or not logarithmic)]
    low, high = (min(finite), max(finite)) if finite else (0.1, 1.0)
    if logarithmic:
        first, last = floor(log10(low)), ceil(log10(high))
        last += first == last
        tick_stride = ceil((last - first) / 6)
        marks = [10.0**power for power in range(first, last + 1, tick_stride)]
        return Scale(marks[0], max(10.0**last, high), start, end, True), marks
    largest = max(abs(low), abs(high))
    if high - low <= 1e-12 * max(abs(low), abs(high), 1e-280):
        low, high = low - (abs(low) or 1.0) / 2, high + (abs(high) or 1.0) / 2
    if largest >= 10**6 or largest < 10**-3:  # ticks have an exponent, and few digits
        missing = max(0.0, largest / _FLAT - (high - low))
        low, high = low - missing / 2, high + missing / 2
    step = round_step(high - low, 5)
    # A float32 learning rate can be slightly above 0.001 and must keep this tick.
    first, last = floor(low / step + 1e-6), ceil(high / step - 1e-6)
    marks = [step * i for i in range(first, last + 1)]
    return Scale(marks[0], marks[-1], start, end), marks


def number_text(value: float, digits: int = 4) -> str:
    """Format a number with its first digits only: 0.03125, 12.5, 1.2e-05."""
    if value == 0 or not isfinite(value):
        return f"{value:g}"
    if abs(value) >= 10**6 or abs(value) < 10**-3:
        mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
        if "." in mantissa:
            mantissa = mantissa.rstrip("0").rstrip(".")
        return f"{mantissa}e{int(exponent)}"
    return f"{value:.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"


def tick_texts(marks: Sequence[float], logarithmic: bool = False) -> list[str]:
    """Return the tick labels; those on a linear scale have the same number of
    decimals."""
    step = min((b - a for a, b in zip(marks, marks[1:], strict=False)), default=1.0)
    largest = max(map(abs, marks), default=0.0)
    if logarithmic or largest >= 10**6 or (0 < largest < 10**-3):
        digits = 3 if logarithmic else max(3, 2 + floor(log10(largest / step)))
        return [number_text(mark, digits) for mark in marks]
    decimals = max(0, -floor(log10(step) + 1e-9))
    return [f"{mark + 0.0:.{decimals}f}" for mark in marks]


def count_text(count: float) -> str:
    """Format a count: 576, 82.4 K, 1.2 M."""
    unit = 0
    while count >= 1000 and unit < 4:
        count, unit = count / 1000, unit + 1
    return f"{count:.3g} {' KMGT'[unit]}".rstrip()


def bytes_text(count: float) -> str:
    """Format a number of bytes with a unit of 1024."""
    unit = 0
    while count >= 1024 and unit < len(_UNITS) - 1:
        count, unit = count / 1024, unit + 1
    text = f"{count:.0f}" if unit == 0 or count >= 100 else f"{count:.3g}"
    return f"{text} {_UNITS[unit]}"


def seconds_text(seconds: float) -> str:
    """Format a time with the unit that gives the shortest text."""
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "µs")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
