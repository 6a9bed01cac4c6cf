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


def transpose_quads(b: Kernel, quads: Sequence[Value]) -> list[Value]:
    """Return the columns of rows of four numbers, with one row per lane."""
    quarter = b.lanes // COLUMNS
    rows = [_concatenate(b, quads[i::COLUMNS]) for i in range(COLUMNS)]
    # Each group of four lanes holds a 4 x 4 square.
    low, high = (
        _select_lanes(quarter, (0, 4, 1, 5)),
        _select_lanes(quarter, (2, 6, 3, 7)),
    )
    first, second = (
        _select_lanes(quarter, (0, 1, 4, 5)),
        _select_lanes(quarter, (2, 3, 6, 7)),
    )
    columns = []
    for pattern in (low, high):
        x = b.shuffled(rows[0], rows[1], pattern)
        y = b.shuffled(rows[2], rows[3], pattern)
        columns += [b.shuffled(x, y, first), b.shuffled(x, y, second)]
    return columns


def _select_lanes(groups: int, pattern: Sequence[int]) -> list[int]:
    """Return lanes of two vectors, chosen in the same way from each group of four."""
    lanes = groups * COLUMNS
    return [
        COLUMNS * group + i % COLUMNS + (lanes if i >= COLUMNS else 0)
        for group in range(groups)
        for i in pattern
    ]


def _concatenate(b: Kernel, short_vectors: Sequence[Value]) -> Value:
    """Return the concatenation of short vectors."""
    vectors = list(short_vectors)
    while len(vectors) > 1:
        numbers = range(2 * vectors[0].lanes)
        vectors = [
            b.shuffled(x, y, numbers)
            for x, y in zip(vectors[::2], vectors[1::2], strict=True)
        ]
    return vectors[0]


def load_quad(b: Kernel, address: Pointer, dtype: str, mask: Mask = None) -> Value:
    """Load four contiguous numbers, zeros outside the mask, booleans as bytes."""
    kind, stored = MEMORY_TYPES[dtype], "int8" if dtype == "bool" else dtype
    size = dtypes.itemsize(dtype)
    vector = f"<{COLUMNS} x {kind}>"
    if mask is None:
        text = f"load {vector}, ptr {address}, align {size}"
        return b.let(text, stored, COLUMNS)
    letter = "f" if dtypes.is_float(dtype) else "i"
    name = f"@llvm.masked.load.v{COLUMNS}{letter}{8 * size}.p0"
    bits = f"<{COLUMNS} x i1>"
    b.declarations.add(f"declare {vector} {name}(ptr, i32, {bits}, {vector})")
    text = (
        f"call {vector} {name}(ptr {address}, i32 {size}, {bits} {mask}, "
        f"{vector} zeroinitializer)"
    )
    return b.let(text, stored, COLUMNS)


def gather_quad(b: Kernel, addresses: Sequence[Pointer], dtype: str) -> Value:
    """Load four numbers from any addresses, booleans as bytes."""
    kind, stored = MEMORY_TYPES[dtype], "int8" if dtype == "bool" else dtype
    quad = Value("poison", stored, COLUMNS)
    for i, address in enumerate(addresses):
        number = b.let(f"load {kind}, ptr {address}", stored)
        text = (
            f"insertelement <{COLUMNS} x {kind}> {quad.text}, "
            f"{kind} {number.text}, i64 {i}"
        )
        quad = b.let(text, stored, COLUMNS)
    return quad


def quad_mask(b: Kernel, count: Number) -> Value:
    """Return the mask of the first `count` of four lanes."""
    limit = Value("poison", "int64", COLUMNS)
    for i in range(COLUMNS):
        text = f"insertelement {limit.type} {limit.text}, i64 {count}, i64 {i}"
        limit = b.let(text, "int64", COLUMNS)
    lanes = integers(range(COLUMNS), "int64")
    return b.binary("icmp slt", lanes, limit, "bool")
