"""The kernel of products of many terms, which packs and multiplies parts of the terms.

The packed part and the sums stay in the cache. So memory is read once and hardly
written, which dominates the time of a product with more terms than rows and columns. An
example is the gradient of a layer's weights.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from toolkit.backends.numpy.jit.builder import Number, Pointer, Range, Value
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.gemm.amx import (
    BLOCK_BYTES,
    BLOCK_LINES,
    BLOCK_TERMS,
    SPAN,
    TILE_ROW_BYTES,
    Run,
    Tiles,
    sum_tile_addresses,
)
from toolkit.backends.numpy.jit.kernels.gemm.dot_product_tiles import create_tiles
from toolkit.backends.numpy.jit.kernels.gemm.strips import (
    BlockFormat,
    loop_over_blocks,
    write_block,
)

# Blocks of a strip that are packed at a time.
PART = 8
_STRIP_BYTES = PART * BLOCK_BYTES


class SplitKNumbers(NamedTuple):
    """The numbers after the addresses in the table.

    Attributes:
        rows, columns: extents of the product, multiples of SPAN.
        blocks: the blocks of a strip, a multiple of PART.
        a_row, a_term, b_line, b_term: byte strides of the operands.
        slot_blocks: the blocks of a slot, which is a row of the call; a multiple of
            PART.
        scratch: the bytes of a slot's memory for packed blocks.
    """

    rows: Any
    columns: Any
    blocks: Any
    a_row: Any
    a_term: Any
    b_line: Any
    b_term: Any
    slot_blocks: Any
    scratch: Any


class OperandFormat(NamedTuple):
    """The axis of an operand with stride 1, and its dtype."""

    packing: str
    dtype: str


def emit_split_k_product(a_format: OperandFormat, b_format: OperandFormat) -> Kernel:
    """Emit the function that sums the products of the terms of slots.

    The table holds the addresses of both operands, of the sums of all slots, and of
    scratch memory, then `SplitKNumbers`.

    Args:
        a_format, b_format: the format of the operands.
    """
    b = Kernel(BLOCK_LINES)
    addresses = [b.next_address() for _ in range(4)]
    n = b.next_entries(SplitKNumbers)
    _SplitKProduct(b, addresses, n).write(a_format, b_format)
    return b


class _SplitKProduct:
    """Emits the function."""

    def __init__(self, b: Kernel, addresses: list[Pointer], n: SplitKNumbers) -> None:
        self.b, self.n = b, n
        self.a, self.right_address, self.sums, self.scratch = addresses
        self.tiles: Tiles = create_tiles(b)

    def write(self, a_format: OperandFormat, b_format: OperandFormat) -> None:
        """Emit the loop over parts of the terms of each slot."""
        b, n = self.b, self.n
        first_factor = BlockFormat(*a_format, False, n.a_row, n.a_term)
        second_factor = BlockFormat(*b_format, True, n.b_line, n.b_term)
        self.tiles.configure()
        with b.loop(b.low, b.high) as slot:
            sums = self.sums + slot * (n.rows * n.columns * 4)
            rows = self.scratch + slot * n.scratch
            columns = rows + n.rows // BLOCK_LINES * _STRIP_BYTES
            first, end = b.tile_range(slot, n.slot_blocks, n.blocks)
            with b.loop(first, end, PART) as low:
                block_range = (low, low + PART)
                self._pack(first_factor, (self.a, rows), n.rows, block_range)
                self._pack(
                    second_factor, (self.right_address, columns), n.columns, block_range
                )
                self._multiply(rows, columns, sums, b.compare("eq", low, first))
        self.tiles.release()

    def _pack(
        self,
        read: BlockFormat,
        addresses: tuple[Pointer, Pointer],
        lines: Number,
        block_range: Range,
    ) -> None:
        """Round a part of the terms of all lines."""
        b, (source, target) = self.b, addresses
        strips: Range = (0, lines // BLOCK_LINES)
        for strip, block in loop_over_blocks(b, read.packing, strips, block_range):
            x = source + strip * BLOCK_LINES * read.line
            x = x + block * BLOCK_TERMS * read.term
            y = target + strip * _STRIP_BYTES + (block - block_range[0]) * BLOCK_BYTES
            write_block(b, read, (x, y))

    def _multiply(
        self, rows: Pointer, columns: Pointer, sums: Pointer, is_first: Value
    ) -> None:
        """Add the products of a part of the terms to all sums."""
        b, n, tiles = self.b, self.n, self.tiles
        stride = n.columns * 4
        with b.loop(0, n.rows, SPAN) as row, b.loop(0, n.columns, SPAN) as column:
            addresses = sum_tile_addresses(sums + row * stride + column * 4, stride)
            with b.when(is_first):
                tiles.clear(len(addresses))
            with b.when(b.opposite(is_first)):
                tiles.load_sums(addresses, stride)
            first = rows + row // BLOCK_LINES * _STRIP_BYTES
            second = columns + column // BLOCK_LINES * _STRIP_BYTES
            row_addresses, column_addresses = (
                [x, x + _STRIP_BYTES] for x in (first, second)
            )
            run = Run(PART, BLOCK_BYTES, BLOCK_BYTES)
            tiles.sum_up(
                run, row_addresses, TILE_ROW_BYTES, column_addresses, TILE_ROW_BYTES
            )
            tiles.store_sums(addresses, stride)
