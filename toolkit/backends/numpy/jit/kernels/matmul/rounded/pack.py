"""Factors as blocks of bfloat16: strips of 16 lines, each a sequence of blocks.

Lines are rows of the first factor and columns of the second one. A block of the first
has a line of 32 terms after the other; one of the second has a pair of terms of each
line, then the next pairs. Terms that do not exist are 0 in both: 0 times what may be
there otherwise could be NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from toolkit.backends.numpy.jit.builder import Mask, Number, Pointer, Value
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.amx import (
    BLOCK_BYTES,
    BLOCK_LINES,
    BLOCK_TERMS,
    TILE_ROW_BYTES,
    paired,
    rounded,
)
from toolkit.backends.numpy.jit.kernels.matmul.pack import LINES


class StripNumbers(NamedTuple):
    """What follows the addresses in the table; strides in bytes.

    Attributes:
        lines, depth: extents of the factor.
        line, term: strides of it.
        blocks: of a strip.
        group: strips of a row of the call.
        chunk, chunks: blocks of a row of the call, and rows of a group.
        factors, factor: how many there are, each another part of all strips, and the
            stride from one to the next.
    """

    lines: Any
    depth: Any
    line: Any
    term: Any
    blocks: Any
    group: Any
    chunk: Any
    chunks: Any
    factors: Any = 1
    factor: Any = 0


def emit_strips(packing: str, is_second: bool, dtype: str) -> Kernel:
    """The function that packs factors; a row is some blocks of strips.

    Args:
        packing: the axis of the factor with stride 1.
        is_second: whether pairs of all lines follow each other.
        dtype: of the factor: float32, or bfloat16.

    The table: addresses of the factor and of the blocks; `StripNumbers`.
    """
    b = Kernel(BLOCK_LINES)
    source, target = b.next_address(), b.next_address()
    n = StripNumbers(*(b.next_entry() for _ in StripNumbers._fields))
    with b.loop(b.low, b.high) as unit:
        part, chunk = b.split(unit, n.chunks)
        group, factor = b.split(part, n.factors)
        strips = b.ceil_div(n.lines, BLOCK_LINES)
        of_lines = b.part(group, n.group, strips)
        of_terms = b.part(chunk, n.chunk, n.blocks)
        # The inner loop goes along what follows each other in memory.
        outer, inner = (
            (of_terms, of_lines) if packing == LINES else (of_lines, of_terms)
        )
        with b.loop(*outer) as i, b.loop(*inner) as j:
            block, strip = (i, j) if packing == LINES else (j, i)
            x = source + factor * n.factor
            x = x + strip * BLOCK_LINES * n.line + block * BLOCK_TERMS * n.term
            number = (strip * n.factors + factor) * n.blocks + block
            y = target + number * BLOCK_BYTES
            lines = n.lines - strip * BLOCK_LINES
            terms = n.depth - block * BLOCK_TERMS
            read = Block(packing, dtype, is_second, n.line, n.term)
            _pack_block(b, read, (x, y), (lines, terms))
    return b


class Block(NamedTuple):
    """How the elements of a block are read.

    Attributes:
        packing: the axis of the factor with stride 1.
        dtype: of its elements.
        is_second: whether pairs of all lines follow each other.
        line, term: strides of the factor, in bytes.
    """

    packing: str
    dtype: str
    is_second: bool
    line: Any
    term: Any


# How many lines and terms of a block exist; None: all.
_Partial = tuple[Number, Number] | None


def _pack_block(
    b: Kernel,
    block: Block,
    places: tuple[Pointer, Pointer],
    left: tuple[Number, Number],
) -> None:
    """Round one block, of which so many lines and terms are left."""
    lines, terms = left
    is_whole = b.binary(
        "and",
        b.compare("sge", lines, BLOCK_LINES),
        b.compare("sge", terms, BLOCK_TERMS),
    )
    for condition, partial in ((is_whole, None), (b.opposite(is_whole), left)):
        with b.when(condition):
            write_block(b, block, places, partial)


def write_block(
    b: Kernel, block: Block, places: tuple[Pointer, Pointer], partial: _Partial = None
) -> None:
    """Round one block.

    Args:
        b: emits the function.
        block: how it is read.
        places: where it is, and where it goes.
        partial: how many lines and terms exist; None: all.
    """
    x, y = places
    read = _pairs if block.packing == LINES else _lines
    found = read(b, x, block, partial)
    if block.is_second != (block.packing == LINES):
        found = b.transposed(found)
    for i, pairs in enumerate(found):
        b.store(pairs, y + i * TILE_ROW_BYTES, 0, None)


def _lines(b: Kernel, x: Pointer, block: Block, partial: _Partial) -> list[Value]:
    """The 16 pairs of terms of each line, whose terms follow each other."""
    masks: Sequence[Mask] = (None, None)
    numbers: list[Number] = list(range(BLOCK_LINES))
    if partial is not None:
        lines, terms = partial
        masks = b.first_of_vectors(terms, 2)
        # A line that does not exist is another time the last.
        numbers = [b.least(i, lines - 1) for i in numbers]
    found = []
    for number in numbers:
        line = x + number * block.line
        low, high = (
            b.load(line, i * BLOCK_LINES, block.dtype, mask)
            for i, mask in enumerate(masks)
        )
        found.append(rounded(b, low, high))
    return found


def _pairs(b: Kernel, x: Pointer, block: Block, partial: _Partial) -> list[Value]:
    """The pair of terms of all lines, for each pair; lines follow each other."""
    rows = []
    for i in range(BLOCK_TERMS):
        mask: Mask = None
        if partial is not None:
            lines, terms = partial
            mask = b.first_lanes(b.choose(b.compare("sgt", terms, i), lines, 0))
        rows.append(b.load(x + block.term * i, 0, block.dtype, mask))
    return [paired(b, *pair) for pair in zip(rows[::2], rows[1::2], strict=True)]
