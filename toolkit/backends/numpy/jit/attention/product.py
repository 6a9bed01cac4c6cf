"""Products of matrices that lie in the cache: a function of its own for each width.

    c[i] += sum of a[i, k] * b[k] over k

The terms of `a` are single numbers, anywhere; rows of `b` and `c` are a few vectors.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence

from toolkit.backends.numpy.jit.builder import Builder, Value
from toolkit.backends.numpy.jit.engine import host
from toolkit.backends.numpy.jit.matmul.writer import Writer

# The first terms of a, b and c; how many rows and terms; strides in bytes; and whether
# (0 or 1) there are sums in c to go on from.
PARAMETERS = (
    "ptr noalias %a",
    "ptr noalias %b",
    "ptr noalias %c",
    "i64 %rows",
    "i64 %depth",
    "i64 %a_row",
    "i64 %a_term",
    "i64 %b_term",
    "i64 %c_row",
    "i64 %earlier",
)
# Rows whose addresses are formed from one pointer: x86 adds 0, 1, 2, 4 times a stride.
_ROWS_PER_POINTER = 5


def heights() -> tuple[int, ...]:
    """Rows of tiles of two vectors: as many as registers hold, then for the rest."""
    many = host().lanes == 16 or platform.machine() in ("aarch64", "arm64")
    return (8, 4, 1) if many else (6, 2, 1)


def product_function(
    name: str, dtype: str, lanes: int, vectors: int, tail: int
) -> set[str]:
    """The function and what it declares.

    Args:
        name: of the function.
        dtype, lanes: of its vectors.
        vectors: of a row of b and c.
        tail: lanes of the last of them that exist; 0: all.
    """
    w = Writer(Builder(lanes), dtype)
    masks: list[str | None] = [None] * vectors
    if tail:
        masks[-1] = first_lanes(lanes, tail)
    first = "0"
    for height in heights():
        left = w.b.integer("sub", "%rows", first)
        whole = w.b.integer("mul", w.b.integer("sdiv", left, height), height)
        end = w.b.integer("add", first, whole)
        with w.b.loop(first, end, height) as row:
            _tile(w, row, height, masks)
        first = end
    text = w.b.function(name, PARAMETERS).replace("define", "define internal", 1)
    return {*w.b.declarations, text}


def first_lanes(lanes: int, count: int) -> str | None:
    """A mask of so many lanes; None if those are all."""
    if count >= lanes:
        return None
    bits = ", ".join(f"i1 {'true' if i < count else 'false'}" for i in range(lanes))
    return f"<{bits}>"


def _tile(w: Writer, row: str, height: int, masks: Sequence[str | None]) -> None:
    """Sum some rows in registers."""
    a, c = w.at("%a", row, "%a_row"), w.at("%c", row, "%c_row")
    rows = [w.at(c, i, "%c_row") for i in range(height)]
    places = [
        (w.at(place, j, w.vector_bytes), mask)
        for place in rows
        for j, mask in enumerate(masks)
    ]
    zeros = [w.zero] * len(places)
    with w.b.accumulate("0", "%earlier", 1, zeros) as turn:
        turn.next([w.vector(place, mask) for place, mask in places])
    sums = _sums(w, a, height, masks, turn.values)
    for value, (place, mask) in zip(sums, places, strict=True):
        w.put(value, place, mask)


def _sums(
    w: Writer, a: str, height: int, masks: Sequence[str | None], sums: Sequence[Value]
) -> list[Value]:
    b, zero = w.b, Value("0", "int64")
    firsts = [w.at(a, i, "%a_row") for i in range(0, height, _ROWS_PER_POINTER)]
    third = b.integer("mul", "%a_row", 3)
    with b.accumulate("0", "%depth", 1, [zero, zero, *sums]) as turn:
        a_offset, b_offset, *sums = turn.values
        columns = w.at("%b", b_offset.text)
        ys = [
            w.vector(w.at(columns, j * w.vector_bytes), mask)
            for j, mask in enumerate(masks)
        ]
        pointers = [w.at(first, a_offset.text) for first in firsts]
        for i in range(height):
            pointer, r = pointers[i // _ROWS_PER_POINTER], i % _ROWS_PER_POINTER
            place = w.at(pointer, third) if r == 3 else w.at(pointer, r, "%a_row")
            x = b.splat(w.memory.scalar(place, w.dtype))
            for j, y in enumerate(ys):
                k = i * len(ys) + j
                sums[k] = b.intrinsic("fma", x, y, sums[k])
        a_next = b.integer("add", a_offset.text, "%a_term")
        b_next = b.integer("add", b_offset.text, "%b_term")
        turn.next([Value(a_next, "int64"), Value(b_next, "int64"), *sums])
    return turn.values[2:]
