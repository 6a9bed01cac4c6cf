"""AMX: the layout of tile registers, their instructions, and packing to bfloat16.

A tile has 16 rows of 64 bytes. It holds a block of one of these matrices:

- the left operand: 32 bfloat16 or 64 int8 in each row,
- the right operand: 16 words of two bfloat16 or four int8 of 16 columns in each row,
- the sums: 16 float32 or int32 in each row.

An instruction multiplies two tiles and adds the products to a third. There are eight
tiles. Two tiles of the left operand and two of the right one give four tiles of sums,
so that each loaded tile serves two products.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from toolkit.backends.numpy.jit.builder import Number, Pointer, Value
from toolkit.backends.numpy.jit.kernel import Kernel, integers
from toolkit.backends.numpy.jit.math.bfloat16 import NARROW, narrowed
from toolkit.backends.numpy.jit.processor import TILE_LINES, current

# The rows of a tile, the terms in a row, and the bytes of a tile.
BLOCK_LINES, BLOCK_TERMS, BLOCK_BYTES = TILE_LINES, 32, 1024
TILE_ROW_BYTES = 64
# A register block of sums is SPAN rows by SPAN columns. The epilogue processes the sums
# of PANELS panels row by row: long rows let the hardware prefetcher work. SUMS_BYTES is
# the size of such a row.
SPAN = 2 * BLOCK_LINES
PANELS = 8
SUMS_BYTES = 4 * SPAN * PANELS
TILE_COUNT = 8
# The tile configuration as 32-bit words: palette 1, 64 bytes a row, 16 rows.
_SHAPES = (1, 0, 0, 0, *[64 << 16 | 64] * 4, 0, 0, 0, 0, *[0x10101010] * 2, 0, 0)
# The instructions that multiply bfloat16, int8, and rows of uint8 by columns of int8.
BFLOAT16, INT8, UINT8 = "tdpbf16ps", "tdpbssd", "tdpbusd"


class Run(NamedTuple):
    """Blocks of terms at constant strides.

    Attributes:
        length: the number of blocks.
        rows, columns: the stride in bytes of the left and of the right operand.
    """

    length: Number
    rows: Number
    columns: Number


class Tiles:
    """Emits tile instructions between `configure` and `release`.

    Args:
        b: the builder.
        instruction: the name of the multiplication.
    """

    def __init__(self, b: Kernel, instruction: str = BFLOAT16) -> None:
        self.b = b
        self.instruction = instruction
        self.shapes: Pointer = b.memory(1, b.filled(0, "int32"))

    def configure(self) -> None:
        """Load the tile configuration."""
        self.b.store(integers(_SHAPES, "int32"), self.shapes, 0, None)
        self._call("ldtilecfg", f"ptr {self.shapes}")

    def release(self) -> None:
        """Release the tiles: the system stops saving their registers."""
        self._call("tilerelease")

    def clear(self, count: int) -> None:
        """Set the first `count` tiles of sums to 0."""
        for tile in range(count):
            self._call("tilezero", f"i8 {tile}")

    def load_sums(self, addresses: Sequence[Pointer], stride: Number) -> None:
        """Load the sums from rows that are `stride` bytes apart."""
        for tile, address in enumerate(addresses):
            self._move("tileloadd64", tile, address, stride)

    def store_sums(self, addresses: Sequence[Pointer], stride: Number) -> None:
        """Store the sums to rows that are `stride` bytes apart."""
        for tile, address in enumerate(addresses):
            self._move("tilestored64", tile, address, stride)

    def multiply(
        self,
        rows: Sequence[Pointer],
        row: Number,
        columns: Sequence[Pointer],
        column: Number,
    ) -> None:
        """Add the products of each block of rows and of columns, rows outermost.

        Args:
            rows, columns: the addresses of the blocks.
            row, column: the bytes from one row of a block to the next.
        """
        sums = len(rows) * len(columns)
        column_tiles = range(TILE_COUNT - len(columns), TILE_COUNT)
        row_tiles = range(sums, column_tiles[0])
        for tile, address in zip(column_tiles, columns, strict=True):
            self._move("tileloadd64", tile, address, column)
        for i, address in enumerate(rows):
            row_tile = row_tiles[i % len(row_tiles)]
            self._move("tileloadd64", row_tile, address, row)
            for j, column_tile in enumerate(column_tiles):
                tile = i * len(columns) + j
                factors = f"i8 {row_tile}, i8 {column_tile}"
                self._call(self.instruction, f"i8 {tile}, {factors}")

    def sum_up(
        self,
        run: Run,
        rows: Sequence[Pointer],
        row: Number,
        columns: Sequence[Pointer],
        column: Number,
    ) -> None:
        """Add the products of a run of blocks.

        Args:
            run: the number of blocks and their strides.
            rows, columns: the addresses of the first blocks.
            row, column: the bytes from one row of a block to the next.
        """
        with self.b.loop(0, run.length) as block:
            row_addresses = [address + block * run.rows for address in rows]
            column_addresses = [address + block * run.columns for address in columns]
            self.multiply(row_addresses, row, column_addresses, column)

    def _move(self, name: str, tile: int, address: Pointer, stride: Number) -> None:
        self._call(name, f"i8 {tile}, ptr {address}, i64 {stride}")

    def _call(self, name: str, arguments: str = "") -> None:
        """Call an instruction. Tile numbers are immediate operands."""
        kinds = ", ".join(
            "i8 immarg" if x.startswith("i8") else x.split()[0]
            for x in arguments.split(", ")
            if x
        )
        self.b.declarations.add(f"declare void @llvm.x86.{name}({kinds})")
        self.b.emit(f"call void @llvm.x86.{name}({arguments})")


def sum_tile_addresses(address: Pointer, stride: Number) -> list[Pointer]:
    """Return the addresses of two by two tiles of sums in rows `stride` bytes apart."""
    below = address + BLOCK_LINES * stride
    return [at + n for at in (address, below) for n in (0, TILE_ROW_BYTES)]


def pack_bfloat16(b: Kernel, low: Value, high: Value) -> Value:
    """Return two vectors as bfloat16, `low` first, two numbers in each int32 lane."""
    if not current().has("avx512bf16"):
        low, high = (x if x.dtype == NARROW else narrowed(b, x) for x in (low, high))
    if low.dtype == NARROW:
        return _shuffle_pairs(b, low, high, range(BLOCK_TERMS))
    kind, narrow = low.type, f"<{BLOCK_TERMS} x bfloat>"
    name = "@llvm.x86.avx512bf16.cvtne2ps2bf16.512"
    b.declarations.add(f"declare {narrow} {name}({kind}, {kind})")
    text = f"call {narrow} {name}({kind} {high}, {kind} {low})"
    packed = b.let(text, "uint16", BLOCK_TERMS)
    return b.let(f"bitcast {narrow} {packed} to <{b.lanes} x i32>", "int32", b.lanes)


def pack_interleaved(b: Kernel, first: Value, second: Value) -> Value:
    """Return two vectors as bfloat16, interleaved, two numbers in each int32 lane."""
    order = [lane + start for lane in range(b.lanes) for start in (0, b.lanes)]
    if first.dtype == NARROW:
        return _shuffle_pairs(b, first, second, order)
    words = pack_bfloat16(b, first, second)
    numbers = f"<{BLOCK_TERMS} x i16>"
    halves = b.let(f"bitcast {words.type} {words} to {numbers}", "uint16", BLOCK_TERMS)
    interleaved = b.shuffled(halves, halves, order)
    return b.let(f"bitcast {numbers} {interleaved} to {words.type}", "int32", b.lanes)


def _shuffle_pairs(b: Kernel, x: Value, y: Value, order: Iterable[int]) -> Value:
    """Return two bfloat16 vectors in an order, two numbers in each int32 lane."""
    shuffled = b.shuffled(x, y, order)
    kind = f"<{b.lanes} x i32>"
    return b.let(f"bitcast {shuffled.type} {shuffled} to {kind}", "int32", b.lanes)
