"""Unpacking of 4-bit numbers into panels of dequantized values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from toolkit.backends.numpy.jit.builder import (
    Mask,
    Number,
    Pointer,
    Range,
    Value,
    literal,
)
from toolkit.backends.numpy.jit.kernel import Kernel, constant_mask, integers
from toolkit.backends.numpy.jit.processor import CACHE_LINE
from toolkit.definitions.records import record

# The bits of the float32 2 ** 23, where adjacent floats are adjacent integers. These
# bits combined with a small integer are the float 2 ** 23 plus the integer.
_FLOAT_2_POW_23_BITS = 0x4B000000
# The most panels of a block.
PANELS = 16
# The prefetch distance in rows of the matrix.
_PREFETCH_ROWS = 16
# Columns of 4 bits in a word.
_COLUMNS = 8


class Unpacked(NamedTuple):
    """The inputs of a product whose right operand is unpacked.

    Attributes:
        factors: the input numbers of the packed numbers (rows, bytes), with two in a
        byte, the first in its lower half; of scales and zeros (blocks, columns); and of
        the block of each row (rows,).
        is_signed: whether numbers are from -8 to 7. Otherwise they are from 0 to 15.
    """

    factors: tuple[int, ...]
    is_signed: bool


@record
class Panels:
    """The destination of panels, and their range of the matrix.

    Attributes:
        target: the address of the first panel.
        size: the bytes of a panel.
        panels: the range of their numbers.
        first, depth: the first term, and the number of terms.
        full: the number of panels of the matrix with all columns.
    """

    target: Pointer
    size: Number
    panels: Range
    first: Number
    depth: Number
    full: Number


class _Term(NamedTuple):
    """A row of the matrix, and its address in the first panel."""

    source: Pointer
    target: Pointer
    destination: Panels


def load_block_number(
    b: Kernel, stored: Value, blocks: Number, error: Pointer
) -> Number:
    """Return a block number that is stored as float32. Note and clamp a bad one."""
    name = "@llvm.fptosi.sat.i64.f32"
    b.declarations.add(f"declare i64 {name}(float)")
    block = b.index(f"call i64 {name}(float {stored})")
    safe = b.max(b.min(block, blocks - 1), 0)
    with b.when(b.compare("ne", block, safe)):
        b.note_bad_index(error, block, blocks)
    return safe


def load_zeros(
    b: Kernel, zeros: Pointer, index: Number, mask: Mask, is_signed: bool
) -> Value:
    """Load a vector of zeros as float32. See `Unpacked`."""
    dtype, extend = ("int8", "sext") if is_signed else ("uint8", "zext")
    widened = b.convert(extend, b.load(zeros, index, dtype, mask), "int32")
    return b.convert("sitofp", widened, "float32")


class Unpacker:
    """Emits the unpacking of panels of `vectors` vectors of columns.

    Args:
        b: the builder.
        factors: the addresses of the factors of `Unpacked`.
        is_signed: see `Unpacked`.
        error: the address of the error block for bad blocks.
        blocks, columns: extents.
        vectors: the vectors in a row of a panel.
        tail: the vectors of the last, narrower panel, or 0.
    """

    def __init__(
        self,
        b: Kernel,
        factors: Sequence[Pointer],
        is_signed: bool,
        error: Pointer,
        blocks: Number,
        columns: Number,
        vectors: int,
        tail: int,
    ) -> None:
        self.b = b
        self.packed, self.scale, self.zero, self.block = factors
        self.is_signed, self.error = is_signed, error
        self.blocks, self.columns = blocks, columns
        self.vectors, self.tail = vectors, tail
        self.line: Number = b.ceil_div(columns, 2)
        self.width: int = vectors * b.lanes
        memory = b.filled(0.0, "float32")
        # The scales and zeros of the last row's block: most rows have the same block.
        self.scales = b.memory(PANELS * vectors, memory)
        self.origins = b.memory(PANELS * vectors, memory)

    @property
    def term_bytes(self) -> int:
        """Return the bytes of a term of a panel."""
        return 4 * self.width

    def write(self, panels: Panels) -> None:
        """Unpack the panels, row by row of the matrix."""
        b, (first, last) = self.b, panels.panels
        no_block = Value(literal(float("nan"), "float32"), "float32")
        with b.accumulate(0, panels.depth, 1, [no_block]) as loop:
            k = panels.first + loop.index
            stored = b.scalar(b.at(self.block, k, "float32"), "float32")
            with b.when(b.binary("fcmp une", stored, loop.values[0], "bool")):
                self._read_block(stored, panels)
            source = self.packed + k * self.line
            target = panels.target + loop.index * self.term_bytes
            self._prefetch_row(source, first, last)
            term = _Term(source, target, panels)
            with b.loop(first, b.min(last, panels.full)) as panel:
                for j in range(self.vectors):
                    self._write(term, panel, j)
            with b.loop(b.max(first, panels.full), last) as panel:
                self._write_tail(term, panel)
            loop.next([stored])

    def _prefetch_row(self, source: Pointer, first: Number, last: Number) -> None:
        """Prefetch a later row of the panels, because the rows are far apart."""
        b, half = self.b, self.width // 2
        b.declarations.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        with b.loop(first * half, last * half, CACHE_LINE) as byte:
            address = source + self.line * _PREFETCH_ROWS + byte
            b.emit(f"call void @llvm.prefetch.p0(ptr {address}, i32 0, i32 3, i32 1)")

    def _write_tail(self, term: _Term, panel: Number) -> None:
        """Unpack the last panel. Its last vector may have fewer columns."""
        b, last = self.b, self.tail - 1
        for j in range(last):
            self._write(term, panel, j)
        remaining = self.columns - (panel * self.width + last * b.lanes)
        is_part = b.compare("slt", remaining, b.lanes)
        with b.when(b.opposite(is_part)):
            self._write(term, panel, last)
        with b.when(is_part):
            self._write(term, panel, last, b.first_lanes(remaining))

    def _masks(self, panel: Number) -> list[Value]:
        remaining = self.columns - panel * self.width
        return self.b.first_of_vectors(remaining, self.vectors)

    def _read_block(self, stored: Value, panels: Panels) -> None:
        """Load scales and zeros of a block. An invalid number is clamped."""
        b, (first, last) = self.b, panels.panels
        block = load_block_number(b, stored, self.blocks, self.error)
        with b.loop(first, last) as panel:
            for j, mask in enumerate(self._masks(panel)):
                column = panel * self.width + j * b.lanes
                index = block * self.columns + column
                lane_index = (panel - first) * self.width + j * b.lanes
                scale = b.load(self.scale, index, "float32", mask)
                b.store(scale, self.scales, lane_index, None)
                b.store(self._origin(index, mask), self.origins, lane_index, None)

    def _origin(self, index: Number, mask: Mask) -> Value:
        """Return zeros plus the same bias as `_numbers`."""
        zeros = load_zeros(self.b, self.zero, index, mask, self.is_signed)
        bias = self.b.filled(2.0**23 + (8 if self.is_signed else 0), "float32")
        return self.b.binary("fadd", zeros, bias)

    def _write(
        self, term: _Term, panel: Number, number: int, mask: Mask = None
    ) -> None:
        """Unpack a vector of a term of a panel."""
        b, step = self.b, number * self.b.lanes
        panel_index = panel - term.destination.panels[0]
        numbers = self._numbers(term.source, panel * self.width + step, mask)
        index = panel_index * self.width + step
        origin = b.load(self.origins, index, "float32", None)
        scale = b.load(self.scales, index, "float32", None)
        value = b.binary("fmul", b.binary("fsub", numbers, origin), scale)
        b.store(value, term.target + panel_index * term.destination.size, step, None)

    def _numbers(self, source: Pointer, column: Number, mask: Mask) -> Value:
        """Return the numbers plus 2 ** 23, and plus 8 if they are signed."""
        b, lanes = self.b, self.b.lanes
        byte = source + column // 2
        if mask is None:
            words = self._words(byte)
            steps = [4 * (i % _COLUMNS) for i in range(lanes)]
        else:
            halves = integers([i // 2 for i in range(lanes)], "int64")
            pairs = b.gather_at(byte, halves, "i8", "int8", mask)
            words = b.convert("zext", pairs, "int32")
            steps = [4 * (i % 2) for i in range(lanes)]
        shifted = b.binary("lshr", words, integers(steps, "int32"))
        number = b.binary("and", shifted, b.filled(15, "int32"))
        bias_bits = _FLOAT_2_POW_23_BITS + (8 if self.is_signed else 0)
        merged = b.binary("xor", number, b.filled(bias_bits, "int32"))
        return b.convert("bitcast", merged, "float32")

    def _words(self, byte: Pointer) -> Value:
        """Return in each lane the word, or half word, that contains its column."""
        b, lanes = self.b, self.b.lanes
        if lanes < _COLUMNS:
            bits = 4 * lanes
            chunk = b.let(f"load i{bits}, ptr {byte}, align 1", "int16")
            return b.splat(b.convert("zext", chunk, "int32"))
        chunks = []
        for start in range(0, lanes, _COLUMNS):
            word = b.let(f"load i32, ptr {byte + start // 2}, align 1", "int32")
            chunks.append(b.splat(word))
        result = chunks.pop()
        for number, chunk in reversed(list(enumerate(chunks, 1))):
            mask = constant_mask(number * _COLUMNS, lanes)
            assert mask is not None
            result = b.select(mask, chunk, result)
        return result
