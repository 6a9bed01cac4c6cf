"""Packing into bfloat16 blocks: strips of 16 lines, each a sequence of blocks.

Lines are rows of the left operand and columns of the right one. A block of the left
operand has 16 lines of 32 terms. A block of the right operand has the first pair of
terms of each line, then the second pairs, and so on. Missing terms are 0 in both: 0
times arbitrary data could be NaN.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from toolkit.backends.numpy.jit.builder import Mask, Number, Pointer, Range, Value
from toolkit.backends.numpy.jit.calls import Call, Reference, partition
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.gemm.amx import (
    BLOCK_BYTES,
    BLOCK_LINES,
    BLOCK_TERMS,
    TILE_ROW_BYTES,
    pack_bfloat16,
    pack_interleaved,
)
from toolkit.backends.numpy.jit.kernels.gemm.problem import LINES, TERMS

# Strips, and blocks of each strip, in a row of a packing call, for contiguous terms and
# for contiguous lines.
_CHUNKS = {TERMS: (1, 16), LINES: (32, 2)}
# The least bytes of a task.
_TASK_BYTES = 1 << 18


class Factor(NamedTuple):
    """An operand, or several parts of the same lines. Strides are in bytes.

    Attributes:
        packing: the axis with stride 1.
        dtype: of its elements.
        lines, depth: extents.
        line, term: strides.
        factors, factor: the number of parts, and their stride.
    """

    packing: str
    dtype: str
    lines: int
    depth: int
    line: int
    term: int
    factors: int = 1
    factor: int = 0


def pack_call(
    factor: Factor, is_second: bool, source: Reference, target: Reference
) -> Call:
    """Return the call that packs an operand.

    Args:
        factor: the operand.
        is_second: whether the pairs of all lines are contiguous.
        source, target: the operand, and the destination of its strips.
    """
    lines, blocks = factor.lines, -(-factor.depth // BLOCK_TERMS)
    group, chunk = _CHUNKS[factor.packing]
    strips, chunks = -(-lines // BLOCK_LINES), -(-blocks // chunk)
    nbytes = strips * factor.factors * blocks * BLOCK_BYTES
    rows = -(-strips // group) * factor.factors * chunks
    return Call(
        Code(emit_strips, factor.packing, is_second, factor.dtype),
        (source, target),
        StripNumbers(
            *(lines, factor.depth, factor.line, factor.term),
            *(blocks, group, chunk, chunks, factor.factors, factor.factor),
        ),
        rows,
        partition(rows, nbytes // _TASK_BYTES),
        nbytes=3 * nbytes,
        # The product reads pairs of strips. The last strip may be arbitrary.
        prepares=nbytes + strips % 2 * (nbytes // strips) if is_second else 0,
    )


class StripNumbers(NamedTuple):
    """The numbers after the addresses in the table. Strides are in bytes.

    Attributes:
        lines, depth: extents of the operand.
        line, term: its strides.
        blocks: the blocks of a strip.
        group: the strips of a row of the call.
        chunk, chunks: the blocks of a row of the call, and the rows of a group.
        factors, factor: the number of parts of all strips, and their stride.
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
    """Emit the function that packs operands. A row is some blocks of strips.

    The table holds the addresses of the operand and of the blocks, and `StripNumbers`.

    Args:
        packing: the axis of the operand with stride 1.
        is_second: whether the pairs of all lines are contiguous.
        dtype: of the operand: float32, or bfloat16.
    """
    b = Kernel(BLOCK_LINES)
    source, target = b.next_address(), b.next_address()
    n = b.next_entries(StripNumbers)
    with b.loop(b.low, b.high) as unit:
        group_index, chunk = b.split(unit, n.chunks)
        group, factor = b.split(group_index, n.factors)
        strips = b.ceil_div(n.lines, BLOCK_LINES)
        line_range = b.tile_range(group, n.group, strips)
        term_range = b.tile_range(chunk, n.chunk, n.blocks)
        for strip, block in loop_over_blocks(b, packing, line_range, term_range):
            x = source + factor * n.factor
            x = x + strip * BLOCK_LINES * n.line + block * BLOCK_TERMS * n.term
            number = (strip * n.factors + factor) * n.blocks + block
            y = target + number * BLOCK_BYTES
            lines = n.lines - strip * BLOCK_LINES
            terms = n.depth - block * BLOCK_TERMS
            read = BlockFormat(packing, dtype, is_second, n.line, n.term)
            _pack_block(b, read, (x, y), (lines, terms))
    return b


def loop_over_blocks(
    b: Kernel, packing: str, strips: Range, blocks: Range
) -> Iterator[tuple[Number, Number]]:
    """Loop over strips and their blocks. The inner loop follows the contiguous axis.

    Yield once, in the loop.
    """
    if packing == LINES:
        with b.loop(*blocks) as block, b.loop(*strips) as strip:
            yield strip, block
    else:
        with b.loop(*strips) as strip, b.loop(*blocks) as block:
            yield strip, block


class BlockFormat(NamedTuple):
    """The format of a block's source.

    Attributes:
        packing: the axis of the operand with stride 1.
        dtype: of its elements.
        is_second: whether the pairs of all lines are contiguous.
        line, term: byte strides of the operand.
    """

    packing: str
    dtype: str
    is_second: bool
    line: Any
    term: Any


# The number of valid lines and terms of a block. None: all.
_Partial = tuple[Number, Number] | None


def _pack_block(
    b: Kernel,
    block: BlockFormat,
    addresses: tuple[Pointer, Pointer],
    remaining: tuple[Number, Number],
) -> None:
    """Round one block, given the remaining lines and terms."""
    lines, terms = remaining
    is_whole = b.binary(
        "and",
        b.compare("sge", lines, BLOCK_LINES),
        b.compare("sge", terms, BLOCK_TERMS),
    )
    for condition, partial in ((is_whole, None), (b.opposite(is_whole), remaining)):
        with b.when(condition):
            write_block(b, block, addresses, partial)


def write_block(
    b: Kernel,
    block: BlockFormat,
    addresses: tuple[Pointer, Pointer],
    partial: _Partial = None,
) -> None:
    """Round one block.

    Args:
        b: the builder.
        block: the format of its source.
        addresses: the source and the destination.
        partial: the number of valid lines and terms. None: all.
    """
    x, y = addresses
    read = _pairs if block.packing == LINES else _lines
    vectors = read(b, x, block, partial)
    if block.is_second != (block.packing == LINES):
        vectors = b.transposed(vectors)
    for i, pairs in enumerate(vectors):
        b.store(pairs, y + i * TILE_ROW_BYTES, 0, None)


def _lines(b: Kernel, x: Pointer, block: BlockFormat, partial: _Partial) -> list[Value]:
    """Return the 16 pairs of terms of each line. Terms are contiguous."""
    masks: Sequence[Mask] = (None, None)
    numbers: list[Number] = list(range(BLOCK_LINES))
    if partial is not None:
        lines, terms = partial
        masks = b.first_of_vectors(terms, 2)
        # A line past the end is a copy of the last line.
        numbers = [b.min(i, lines - 1) for i in numbers]
    pairs = []
    for number in numbers:
        line = x + number * block.line
        low, high = (
            b.load(line, i * BLOCK_LINES, block.dtype, mask)
            for i, mask in enumerate(masks)
        )
        pairs.append(pack_bfloat16(b, low, high))
    return pairs


def _pairs(b: Kernel, x: Pointer, block: BlockFormat, partial: _Partial) -> list[Value]:
    """Return the pairs of terms of all lines, for each pair. Lines are contiguous."""
    rows = []
    for i in range(BLOCK_TERMS):
        mask: Mask = None
        if partial is not None:
            lines, terms = partial
            mask = b.first_lanes(b.choose(b.compare("sgt", terms, i), lines, 0))
        rows.append(b.load(x + block.term * i, 0, block.dtype, mask))
    return [
        pack_interleaved(b, *pair) for pair in zip(rows[::2], rows[1::2], strict=True)
    ]
