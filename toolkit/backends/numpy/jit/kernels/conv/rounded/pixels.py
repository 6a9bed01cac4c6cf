"""Inputs as bfloat16 on a grid: the channels of a cell are contiguous."""

from __future__ import annotations

from toolkit.backends.numpy.jit.builder import Number, Pointer
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.conv.rounded.grid import lines
from toolkit.backends.numpy.jit.kernels.conv.rounded.layout import (
    Layout,
    avoid_shared_sets,
    clear,
)
from toolkit.backends.numpy.jit.kernels.gemm.amx import (
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

    @property
    def blocks(self) -> int:
        """Return the blocks of terms of a cell."""
        return -(-self.depth // BLOCK_TERMS)

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
            clear(b, address, (0, low * pitch))
            with b.loop(low, high) as cell:
                _pack(b, self, line.source + cell * line.pitch, address + cell * pitch)
            clear(b, address, (high * pitch, cells * pitch))


def _pack(b: Kernel, pixels: Pixels, source: Pointer, target: Pointer) -> None:
    """Round the channels of one input."""
    full_blocks, remainder = divmod(pixels.depth, BLOCK_TERMS)
    with b.loop(0, full_blocks) as block:
        x, y = source + block * BLOCK_TERMS, target + block * TILE_ROW_BYTES
        _block(b, pixels.dtype, (x, y), BLOCK_TERMS)
    if remainder:
        x, y = source + full_blocks * BLOCK_TERMS, target + full_blocks * TILE_ROW_BYTES
        _block(b, pixels.dtype, (x, y), remainder)


def _block(
    b: Kernel, dtype: str, addresses: tuple[Pointer, Pointer], count: int
) -> None:
    """Round a block, of which `count` channels are valid."""
    source, target = addresses
    low, high = (
        b.load(source, start, dtype, b.existing(min(count - start, BLOCK_LINES)))
        if start < count
        else b.filled(0, dtype)
        for start in (0, BLOCK_LINES)
    )
    b.store(pack_bfloat16(b, low, high), target, 0, None)
