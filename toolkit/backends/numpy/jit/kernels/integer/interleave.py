"""Words from rows of a matrix in memory, for products that read it only once.

Instructions interleave rows within sections of 16 bytes. So a vector of words holds
four columns of each section: the columns are not in order. The sums of a chunk of
columns, as many as a vector has bytes, are put in order once, after all words.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolkit.backends.numpy.jit.builder import Value
from toolkit.backends.numpy.jit.kernel import Kernel

# The bytes of a section, and its words.
_SECTION_BYTES, _SECTION_WORDS = 16, 4
_BITS = {"int8": 8, "int16": 16, "int32": 32}


def interleave_rows(b: Kernel, rows: Sequence[Value]) -> list[Value]:
    """Return the words of a chunk of columns, in vectors of int32.

    Args:
        b: the builder, with the lanes of a vector of words.
        rows: a vector of each term: two of int16, or four of int8.
    """
    if len(rows) == 2:
        return _interleave(b, rows[0], rows[1], "int32")
    firsts, seconds = (
        _interleave(b, rows[i], rows[i + 1], "int16") for i in range(0, len(rows), 2)
    )
    return [
        words
        for first, second in zip(firsts, seconds, strict=True)
        for words in _interleave(b, first, second, "int32")
    ]


def order_columns(b: Kernel, vectors: Sequence[Value]) -> list[Value]:
    """Return the vectors of a chunk with its columns in order."""
    section = _SECTION_WORDS * len(vectors)
    results = []
    for start in range(0, len(vectors) * b.lanes, b.lanes):
        sources = []
        for column in range(start, start + b.lanes):
            number, remainder = divmod(column, section)
            vector, lane = divmod(remainder, _SECTION_WORDS)
            sources.append((vector, number * _SECTION_WORDS + lane))
        results.append(b.select_lanes(vectors, sources))
    return results


def _interleave(b: Kernel, x: Value, y: Value, dtype: str) -> list[Value]:
    """Return the interleaved lower halves of all sections, and the upper halves.

    Args:
        b: the builder.
        x, y: the vectors.
        dtype: that holds an element of x and one of y.
    """
    lanes = x.lanes
    half = _SECTION_BYTES * 8 // _BITS[dtype]
    results = []
    for first in (0, half):
        order = [
            start + first + i + vector
            for start in range(0, lanes, 2 * half)
            for i in range(half)
            for vector in (0, lanes)
        ]
        mixed = b.shuffled(x, y, order)
        kind = f"<{lanes // 2} x i{_BITS[dtype]}>"
        results.append(
            b.let(f"bitcast {mixed.type} {mixed} to {kind}", dtype, lanes // 2)
        )
    return results
