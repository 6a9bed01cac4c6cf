"""Decisions of the compiler about extents that record no condition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass, replace
from itertools import chain
from math import isfinite
from typing import TypeVar, cast

from toolkit.ir.extents.expressions import Extent, Number, bounds_of, is_same

T = TypeVar("T")


def upper_bound(x: T) -> T:
    """Return an integer that a number never exceeds.

    Args:
        x: an integer or an extent.
    """
    if not isinstance(x, Extent):
        return x
    high = x.bounds[1]
    return cast(T, int(high) if isfinite(high) else int(x))


def is_always(x: Number, y: Number) -> bool:
    """Return whether two integers are equal for every value of the free extents.

    It records no condition. If the answer is False, they may also be equal: the
    decision must be right for equal integers, too.

    Args:
        x, y: integers or extents.
    """
    if type(x) is Extent or type(y) is Extent:
        return is_same(x, y)
    return bool(x == y)


def are_always(x: Sequence[Number], y: Sequence[Number]) -> bool:
    """Return whether two sequences are equal for every value of the free extents.

    Args:
        x, y: sequences of integers or extents; see `is_always`.
    """
    return len(x) == len(y) and all(map(is_always, x, y))


def shape_key(shape: Iterable[object]) -> tuple[object, ...]:
    """Return a hashable object that is equal for shapes that are always equal.

    Args:
        shape: integers and extents.
    """
    return tuple([x.key if type(x) is Extent else x for x in shape])


def describe(x: object) -> str:
    """Return a text that is equal for equal attributes of nodes.

    1, 1.0 and True differ, and so do 0.0 and -0.0.

    Args:
        x: an attribute.
    """
    if isinstance(x, Extent):
        return x.text
    if not has_extent(x):
        return repr(x)
    return f"{type(x).__name__}({', '.join(map(describe, _items_of(x)))})"


def has_extent(x: object) -> bool:
    """Return whether an attribute contains a free extent.

    Args:
        x: an attribute: a nest of tuples, lists, dicts and records.
    """
    return isinstance(x, Extent) or any(map(has_extent, _items_of(x)))


def _items_of(x: object) -> Iterable[object]:
    """Return the items of a tuple, list, dict or record, else nothing."""
    if type(x) in (int, str, bool, float):
        return ()
    if isinstance(x, (tuple, list)):
        return x
    if isinstance(x, dict):
        return chain.from_iterable(x.items())
    # A graph is a record; its nodes have attributes of their own.
    if is_dataclass(x) and not isinstance(x, type) and not hasattr(x, "nodes"):
        return [getattr(x, f.name) for f in fields(x)]
    return ()


def largest(x: int, y: int) -> int:
    """Return the larger one of two integers, without a condition.

    Args:
        x, y: integers or extents.
    """
    return _extreme("max", x, y)


def smallest(x: int, y: int) -> int:
    """Return the smaller one of two integers, without a condition.

    Args:
        x, y: integers or extents.
    """
    return _extreme("min", x, y)


def _extreme(name: str, x: int, y: int) -> int:
    extent = next((n for n in (x, y) if has_extent(n)), None)
    if extent is None:
        return max(x, y) if name == "max" else min(x, y)
    low, high = bounds_of(x - y)
    if low >= 0:
        return x if name == "max" else y
    if high <= 0:
        return y if name == "max" else x
    return cast(int, cast(Extent, extent).domain.apply(name, x, y))


def share_of(total: int, count: int) -> int:
    """Return the size of `count` equal shares of a number, at least 1.

    The number of shares that a number contains is then known to be at most the count,
    so memory for each share has a small upper bound.

    Args:
        total: an integer or an extent.
        count: the number of shares.
    """
    share = largest(1, -(-total // count))
    if isinstance(share, Extent):
        share.domain.declare_share(total, share, count)
    return share


def range_length(start: int, stop: int, step: int) -> int:
    """Return the length of a range.

    Args:
        start, stop, step: integers or extents.
    """
    if has_extent((start, stop, step)):
        return largest(0, -((start - stop) // step))
    return len(range(start, stop, step))


def at_example(x: T) -> T:
    """Return a value with the example in place of its extents, without conditions.

    Args:
        x: a number, or a nest of tuples and records of numbers.
    """
    if isinstance(x, Extent):
        return cast(T, x.value)
    if isinstance(x, tuple):
        return cast(T, tuple(map(at_example, x))) if has_extent(x) else x
    if is_dataclass(x) and not isinstance(x, type):
        values = {f.name: getattr(x, f.name) for f in fields(x)}
        changed = {
            name: new
            for name, old in values.items()
            if (new := at_example(old)) is not old
        }
        return replace(x, **changed) if changed else x
    return x
