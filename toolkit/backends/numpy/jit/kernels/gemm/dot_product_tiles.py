"""Products of bfloat16 blocks by dot products, for processors without tiles.

An instruction multiplies a pair of bfloat16 by a pair in each lane and adds both
products to the float32 of the lane: `vdpbf16ps` of AVX512_BF16, `bfdot` of NEON. The
sums of a tile are in memory, in the L1 cache. During a product of blocks, the sums of a
few rows are in registers.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolkit.backends.numpy.jit.builder import Number, Pointer, Value
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.gemm.amx import (
    BFLOAT16,
    BLOCK_BYTES,
    BLOCK_LINES,
    TILE_COUNT,
    TILE_ROW_BYTES,
    Run,
    Tiles,
)
from toolkit.backends.numpy.jit.processor import current

_WORD_BYTES = 4
_PARAMETERS = (
    "ptr noalias %rows",
    "ptr noalias %first",
    "ptr noalias %second",
    "ptr noalias %sums",
    "i64 %row",
    "i64 %column",
    "i64 %length",
    "i64 %next_row",
    "i64 %next_column",
)


def create_tiles(b: Kernel, instruction: str = BFLOAT16) -> Tiles:
    """Return the emitter of block products for the target processor."""
    if current().has_tiles:
        return Tiles(b, instruction)
    assert instruction == BFLOAT16
    return DotProductTiles(b)


class DotProductTiles(Tiles):
    """Emits the operations of `Tiles` as dot products."""

    def __init__(self, b: Kernel) -> None:
        self.b = b
        self.sums: Pointer = b.memory(TILE_COUNT * BLOCK_LINES, b.filled(0, "float32"))

    def configure(self) -> None:
        """Do nothing: there are no tiles."""

    def release(self) -> None:
        """Do nothing."""

    def clear(self, count: int) -> None:
        """Set the first `count` tiles of sums to 0."""
        b = self.b
        with b.loop(0, count * BLOCK_BYTES, TILE_ROW_BYTES) as i:
            b.store(b.filled(0, "float32"), self.sums + i, 0, None)

    def load_sums(self, addresses: Sequence[Pointer], stride: Number) -> None:
        """Load the sums from rows that are `stride` bytes apart."""
        for tile, address in enumerate(addresses):
            self._copy((address, stride), (self._tile(tile), TILE_ROW_BYTES))

    def store_sums(self, addresses: Sequence[Pointer], stride: Number) -> None:
        """Store the sums to rows that are `stride` bytes apart."""
        for tile, address in enumerate(addresses):
            self._copy((self._tile(tile), TILE_ROW_BYTES), (address, stride))

    def sum_up(
        self,
        run: Run,
        rows: Sequence[Pointer],
        row: Number,
        columns: Sequence[Pointer],
        column: Number,
    ) -> None:
        """Add the products of a run of blocks with one or two blocks of columns.

        The sums of a few rows stay in registers until the end of the run.
        """
        b, count = self.b, len(columns)
        name = f"sum_up_{count}"
        b.declarations |= _define_function(name, count)
        for i, address in enumerate(rows):
            pointers = address, columns[0], columns[-1], self._tile(i * count)
            b.call(name, *pointers, row, column, *run)

    def _tile(self, number: int) -> Pointer:
        return self.sums + number * BLOCK_BYTES

    def _copy(
        self, source: tuple[Pointer, Number], target: tuple[Pointer, Number]
    ) -> None:
        """Copy the rows of a tile. Each address has its stride."""
        b = self.b
        with b.loop(0, BLOCK_LINES) as i:
            x, y = (address + i * stride for address, stride in (source, target))
            b.store(b.load(x, 0, "float32", None), y, 0, None)


def _define_function(name: str, blocks: int) -> set[str]:
    """Return a function that adds the products of a run of blocks.

    A separate function keeps other values out of the registers.
    """
    processor = current()
    b = Kernel(processor.lanes)
    starts = range(0, TILE_ROW_BYTES, 4 * processor.lanes)
    # Sums occupy half of the registers.
    lines = processor.registers // 2 // (blocks * len(starts))
    row_base, sum_base = b.pointer_parameter("rows"), b.pointer_parameter("sums")
    columns = [b.pointer_parameter(x) for x in ("first", "second")[:blocks]]
    row, column = b.parameter("row"), b.parameter("column")
    run = Run(*(b.parameter(x) for x in ("length", "next_row", "next_column")))
    with b.loop(0, BLOCK_LINES, lines) as first:
        low = sum_base + first * TILE_ROW_BYTES
        addresses = [
            low + (block * BLOCK_BYTES + line * TILE_ROW_BYTES + start)
            for line in range(lines)
            for block in range(blocks)
            for start in starts
        ]
        initial = [b.load(address, 0, "float32", None) for address in addresses]
        with b.accumulate(0, run.length, 1, initial) as iteration:
            block = iteration.index
            line = row_base + first * row + block * run.rows
            words = [line + i * row for i in range(lines)]
            ys = [
                address + block * run.columns + start
                for address in columns
                for start in starts
            ]
            iteration.next(_add_block(b, words, ys, column, iteration.values))
        for address, value in zip(addresses, iteration.values, strict=True):
            b.store(value, address, 0, None)
    return b.internal_function(name, _PARAMETERS)


def _add_block(
    b: Kernel,
    words: Sequence[Pointer],
    vectors: Sequence[Pointer],
    column: Number,
    sums: Sequence[Value],
) -> list[Value]:
    """Add the products of a block to the sums of some rows and column vectors."""
    with b.accumulate(0, TILE_ROW_BYTES // _WORD_BYTES, 1, sums) as iteration:
        word, results = iteration.index, []
        ys = [b.load(address + word * column, 0, "int32", None) for address in vectors]
        for i, address in enumerate(words):
            # The address of a row is a multiple of 2, not of 4.
            at = address + word * _WORD_BYTES
            x = b.splat(b.let(f"load i32, ptr {at}, align 2", "int32"))
            for j, y in enumerate(ys):
                previous = iteration.values[i * len(ys) + j]
                results.append(_add_dot_products(b, previous, x, y))
        iteration.next(results)
    return iteration.values


def _add_dot_products(b: Kernel, sums: Value, x: Value, y: Value) -> Value:
    """Return `sums` plus both products of the words of x and y in each lane."""
    kind = f"<{2 * b.lanes} x bfloat>"
    name = "@llvm.x86.avx512bf16.dpbf16ps.512"
    if current().is_arm64:
        name = f"@llvm.aarch64.neon.bfdot.v{b.lanes}f32.v{2 * b.lanes}bf16"
    b.declarations.add(f"declare {sums.type} {name}({sums.type}, {kind}, {kind})")
    words = [b.let(f"bitcast {v.type} {v} to {kind}", "uint16") for v in (x, y)]
    operands = ", ".join(f"{kind} {v.text}" for v in words)
    text = f"call {sums.type} {name}({sums.type} {sums}, {operands})"
    return b.let(text, "float32", b.lanes)
