"""Transposition of rows, four columns at a time."""

from __future__ import annotations

from collections.abc import Sequence

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import (
    MEMORY_TYPES,
    Mask,
    Number,
    Pointer,
    Value,
)
from toolkit.backends.numpy.jit.kernel import Kernel, integers

# Columns that are transposed together.
COLUMNS = 4


def transposed_quads(b: Kernel, quads: Sequence[Value]) -> list[Value]:
    """Return the columns of rows of four numbers, with one row per lane."""
    quarter = b.lanes // COLUMNS
    rows = [_joined(b, quads[i::COLUMNS]) for i in range(COLUMNS)]
    # Each group of four lanes holds a 4 x 4 square.
    low, high = _picked(quarter, (0, 4, 1, 5)), _picked(quarter, (2, 6, 3, 7))
    first, second = _picked(quarter, (0, 1, 4, 5)), _picked(quarter, (2, 3, 6, 7))
    found = []
    for chosen in (low, high):
        x = b.shuffled(rows[0], rows[1], chosen)
        y = b.shuffled(rows[2], rows[3], chosen)
        found += [b.shuffled(x, y, first), b.shuffled(x, y, second)]
    return found


def _picked(groups: int, chosen: Sequence[int]) -> list[int]:
    """Return lanes of two vectors, chosen in the same way from each group of four."""
    lanes = groups * COLUMNS
    return [
        COLUMNS * group + i % COLUMNS + (lanes if i >= COLUMNS else 0)
        for group in range(groups)
        for i in chosen
    ]


def _joined(b: Kernel, parts: Sequence[Value]) -> Value:
    """Return the concatenation of short vectors."""
    found = list(parts)
    while len(found) > 1:
        numbers = range(2 * found[0].lanes)
        found = [
            b.shuffled(x, y, numbers)
            for x, y in zip(found[::2], found[1::2], strict=True)
        ]
    return found[0]


def load_quad(b: Kernel, place: Pointer, dtype: str, mask: Mask = None) -> Value:
    """Load four contiguous numbers, zeros outside the mask, booleans as bytes."""
    kind, stored = MEMORY_TYPES[dtype], "int8" if dtype == "bool" else dtype
    size = dtypes.itemsize(dtype)
    vector = f"<{COLUMNS} x {kind}>"
    if mask is None:
        text = f"load {vector}, ptr {place}, align {size}"
        return b.let(text, stored, COLUMNS)
    letter = "f" if dtypes.is_float(dtype) else "i"
    name = f"@llvm.masked.load.v{COLUMNS}{letter}{8 * size}.p0"
    bits = f"<{COLUMNS} x i1>"
    b.declarations.add(f"declare {vector} {name}(ptr, i32, {bits}, {vector})")
    text = (
        f"call {vector} {name}(ptr {place}, i32 {size}, {bits} {mask}, "
        f"{vector} zeroinitializer)"
    )
    return b.let(text, stored, COLUMNS)


def gather_quad(b: Kernel, places: Sequence[Pointer], dtype: str) -> Value:
    """Load four numbers from any addresses, booleans as bytes."""
    kind, stored = MEMORY_TYPES[dtype], "int8" if dtype == "bool" else dtype
    found = Value("poison", stored, COLUMNS)
    for i, place in enumerate(places):
        number = b.let(f"load {kind}, ptr {place}", stored)
        text = (
            f"insertelement <{COLUMNS} x {kind}> {found.text}, "
            f"{kind} {number.text}, i64 {i}"
        )
        found = b.let(text, stored, COLUMNS)
    return found


def quad_mask(b: Kernel, count: Number) -> Value:
    """Return the mask of the first `count` of four lanes."""
    limit = Value("poison", "int64", COLUMNS)
    for i in range(COLUMNS):
        text = f"insertelement {limit.type} {limit.text}, i64 {count}, i64 {i}"
        limit = b.let(text, "int64", COLUMNS)
    lanes = integers(range(COLUMNS), "int64")
    return b.binary("icmp slt", lanes, limit, "bool")
