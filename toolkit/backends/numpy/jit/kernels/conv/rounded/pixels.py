"""Inputs as bfloat16 or bytes on a grid: the channels of a cell are contiguous."""

from __future__ import annotations

from toolkit.backends.numpy.jit.builder import Number, Pointer, Range
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.conv.rounded.grid import lines
from toolkit.backends.numpy.jit.kernels.conv.rounded.layout import (
    Layout,
    avoid_shared_sets,
    clear,
)
from toolkit.backends.numpy.jit.kernels.gemm.amx import (
    BFLOAT16,
    BLOCK_LINES,
    BLOCK_TERMS,
    SPAN,
    TILE_ROW_BYTES,
    pack_bfloat16,
)
from toolkit.definitions.records import record


@record
class Pixels(Layout):
    """The layout of the channels of cells, padded with zeros to whole blocks."""

    # The dtype of sums, and the lanes of the epilogue.
    sum_dtype, lanes = "float32", BLOCK_LINES
    # The terms of a block, and the bytes of initial sums before a strip of weights.
    block_terms, initial_bytes = BLOCK_TERMS, 0

    @property
    def instruction(self) -> str:
        """Return the name of the multiplication."""
        return BFLOAT16

    @property
    def blocks(self) -> int:
        """Return the blocks of terms of a cell."""
        return -(-self.depth // self.block_terms)

    @property
    def pitch(self) -> int:
        """Return the bytes from one cell to the next."""
        return avoid_shared_sets(self.blocks * TILE_ROW_BYTES)

    @property
    def nbytes(self) -> int:
        """Return the bytes of a part. The last tile may start at the last cell."""
        return (self.grid.phases * self.grid.size + SPAN) * self.pitch

    def pack(self, b: Kernel, image: Pointer, first: Number, target: Pointer) -> None:
        """Pack the pixels of a part of an image."""
        cells, pitch = self.grid.cells[-1], self.pitch
        for line in lines(b, self.grid, image, first):
            number = line.phase * self.grid.lines + line.index
            address = target + number * (cells * pitch)
            low, high = line.valid_cells
            self.fill(b, address, (0, low * pitch))
            with b.loop(low, high) as cell:
                source = line.source + cell * line.pitch
                self._pack_cell(b, source, address + cell * pitch)
            self.fill(b, address, (high * pitch, cells * pitch))

    def fill(self, b: Kernel, address: Pointer, byte_range: Range) -> None:
        """Store cells of the padding."""
        clear(b, address, byte_range)

    def _pack_cell(self, b: Kernel, source: Pointer, target: Pointer) -> None:
        """Pack the channels of one input."""
        terms = self.block_terms
        full_blocks, remainder = divmod(self.depth, terms)
        with b.loop(0, full_blocks) as block:
            x, y = source + block * terms, target + block * TILE_ROW_BYTES
            self.pack_block(b, x, y, terms)
        if remainder:
            x, y = source + full_blocks * terms, target + full_blocks * TILE_ROW_BYTES
            self.pack_block(b, x, y, remainder)

    def pack_block(
        self, b: Kernel, source: Pointer, target: Pointer, count: int
    ) -> None:
        """Pack a block, of which `count` channels are valid."""
        low, high = (
            b.load(
                source, start, self.dtype, b.existing(min(count - start, BLOCK_LINES))
            )
            if start < count
            else b.filled(0, self.dtype)
            for start in (0, BLOCK_LINES)
        )
        b.store(pack_bfloat16(b, low, high), target, 0, None)
