"""Spans of elements as vectors: whole ones, and a last one under a mask."""

from __future__ import annotations

from collections.abc import Iterator

from toolkit.backends.numpy.jit.builder import Builder, Value


def spans(b: Builder, low: str, high: str) -> Iterator[tuple[str, str | None]]:
    """Loops over [low, high): yields (index, mask) twice, for the bodies of two loops.

    The first loop visits whole vectors, without a mask, the second what is left.
    """
    end = whole(b, low, high, b.lanes)
    with b.loop(low, end, b.lanes) as index:
        yield index, None
    with b.loop(end, high, b.lanes) as index:
        yield index, first_lanes(b, b.integer("sub", high, index))


def whole(b: Builder, low: str, high: str, width: int) -> str:
    """Where the part of [low, high) that is a multiple of `width` ends."""
    count = b.integer("sub", high, low)
    return b.integer("add", b.integer("and", count, -width), low)


def first_lanes(b: Builder, count: str) -> str:
    """The mask of the first `count` lanes, all of them if there are not so many."""
    limit = b.splat(b.convert("trunc", Value(count, "int64"), "int32"))
    return b.binary("icmp slt", lane_numbers(b.lanes), limit, "bool").text


def lane_numbers(lanes: int) -> Value:
    """0, 1, 2, ... as int32."""
    numbers = ", ".join(f"i32 {i}" for i in range(lanes))
    return Value(f"<{numbers}>", "int32", lanes)


def first(b: Builder, x: Value) -> str:
    """The first lane of a vector."""
    return b.let(f"extractelement {x.type} {x.text}, i64 0", x.dtype).text
