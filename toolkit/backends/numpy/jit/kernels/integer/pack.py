"""Packing into words: rows of the left operand, and panels of the right operand.

A panel starts with the initial sums of its columns. Then follow the first words of all
its columns, the second words, and so on. Missing terms of the last word, and words
after it, are 0 in a panel, so the rows may hold anything there. A matrix may consist of
several matrices: the taps of a convolution.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from toolkit.backends.numpy.jit.builder import Mask, Number, Pointer, Value
from toolkit.backends.numpy.jit.calls import Call, Reference, partition
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.integer.words import Words

WORD_BYTES = 4
# The least bytes of a packing task.
TASK_BYTES = 1 << 18


class RowNumbers(NamedTuple):
    """The numbers after the addresses: a row's terms, and the bytes of its words."""

    depth: Any
    row_bytes: Any


class PanelNumbers(NamedTuple):
    """The numbers after the addresses.

    Attributes:
        columns, depth: extents of the matrix, or of a tap.
        words: the words of a column of it.
        panel_bytes: the bytes of a panel.
        taps: the number of taps.
    """

    columns: Any
    depth: Any
    words: Any
    panel_bytes: Any
    taps: Any = 1


def panel_bytes(words: int, width: int) -> int:
    """Return the bytes of a panel."""
    return (1 + words) * width * WORD_BYTES


def pack_panels(
    words: Words,
    lanes: int,
    vectors: int,
    numbers: PanelNumbers,
    operands: tuple[Reference, Reference],
    prepares: int,
) -> Call:
    """Return the call that packs a matrix.

    Args:
        words: the format of the terms.
        lanes, vectors: the lanes of a vector, and the vectors of a panel.
        numbers: its extents.
        operands: the matrix and the panels.
        prepares: the bytes of the panels, which may include an arbitrary last panel.
    """
    panels = -(-numbers.columns // (lanes * vectors))
    packed = panels * numbers.panel_bytes
    nbytes = numbers.taps * numbers.depth * numbers.columns + packed
    return Call(
        Code(emit_pack_panels, words, lanes, vectors),
        operands,
        numbers,
        panels,
        partition(panels, nbytes // TASK_BYTES),
        nbytes=nbytes,
        prepares=prepares,
    )


def emit_pack_rows(words: Words, lanes: int) -> Kernel:
    """Emit the function that packs the rows of the left operand into words.

    The table holds the addresses of the operand and of the words, and `RowNumbers`.
    """
    b = Kernel(lanes * words.terms)
    source, target = b.next_address(), b.next_address()
    n = b.next_entries(RowNumbers)
    kind = "int8" if words.terms == 4 else "int16"

    def term(x: Value) -> Value:
        if kind == "int16":
            return b.convert("sext", x, kind)
        if not words.offset:
            return x
        return b.binary("xor", x, b.constant(-128, x))  # adds 128

    with b.loop(b.low, b.high) as row:
        x, y = source + row * n.depth, target + row * n.row_bytes
        full = b.whole_vectors(0, n.depth, b.lanes)
        with b.loop(0, full, b.lanes) as i:
            b.store(term(b.load(x, i, "int8", None)), y, i, None)
        with b.loop(full, n.depth) as i:
            b.put_scalar(term(b.scalar(x + i, "int8")), b.at(y, i, kind))
    return b


def emit_pack_panels(words: Words, lanes: int, vectors: int) -> Kernel:
    """Emit the function that packs the right operand. A row of the call is a panel.

    The table holds the addresses of the operand and of the panels, and `PanelNumbers`.
    """
    b = Kernel(lanes)
    source, target = b.next_address(), b.next_address()
    packer = _Panels(b, words, vectors)
    n = packer.n = b.next_entries(PanelNumbers)
    width = vectors * lanes
    with b.loop(b.low, b.high) as panel:
        first = panel * width
        x, y = source + first, target + panel * n.panel_bytes
        remaining = n.columns - first
        is_partial = b.compare("slt", remaining, width)
        with b.when(b.opposite(is_partial)):
            packer.write(x, y, [None] * vectors)
        with b.when(is_partial):
            packer.write(x, y, b.first_of_vectors(remaining, vectors))
    return b


class _Panels:
    """Emits the packing of a panel, one vector of columns at a time."""

    n: PanelNumbers

    def __init__(self, b: Kernel, words: Words, vectors: int) -> None:
        self.b = b
        self.words = words
        self.vector_bytes: int = b.lanes * WORD_BYTES
        self.line_bytes: int = vectors * self.vector_bytes

    def write(self, source: Pointer, target: Pointer, masks: Sequence[Mask]) -> None:
        """Pack the valid columns, and fill the rest with 0."""
        b, words, n = self.b, self.words, self.n
        lines = target + self.line_bytes
        zeros = [b.filled(0, "int32")] * len(masks)
        with b.accumulate(0, n.taps, 1, zeros) as loop:
            x = source + loop.index * n.depth * n.columns
            y = lines + loop.index * n.words * self.line_bytes
            loop.next(self._tap(x, y, masks, loop.values))
        for j, total in enumerate(loop.values):
            # The initial sum cancels the effect of the left operand's offset.
            offset = b.filled(-words.offset, "int32")
            first = b.binary("mul", total, offset) if words.offset else total
            b.store(first, target + j * self.vector_bytes, 0, None)

    def _tap(
        self,
        source: Pointer,
        lines: Pointer,
        masks: Sequence[Mask],
        sums: Sequence[Value],
    ) -> Sequence[Value]:
        """Pack a tap, and return the sums plus its terms."""
        b, words, n = self.b, self.words, self.n
        full, remainder = b.split(n.depth, words.terms)
        reader = TermReader(b, words, n.columns, n.depth)

        def pack(word: Number, sums: list[Value], count: Number | None) -> None:
            line = lines + word * self.line_bytes
            for j, mask in enumerate(masks):
                terms = reader.terms(source + j * b.lanes, word, mask, count)
                address = line + j * self.vector_bytes
                b.store(words.join_terms(b, terms), address, 0, None)
                for x in terms if words.offset else ():
                    sums[j] = b.binary("add", sums[j], x)

        with b.accumulate(0, full, 1, sums) as loop:
            pack(loop.index, loop.values, None)
            loop.next(loop.values)
        with b.accumulate(0, b.min(remainder, 1), 1, loop.values) as last:
            pack(full, last.values, remainder)
            last.next(last.values)
        with b.loop(b.ceil_div(n.depth, words.terms), n.words) as word:
            for j in range(len(masks)):
                address = lines + word * self.line_bytes + j * self.vector_bytes
                b.store(b.filled(0, "int32"), address, 0, None)
        return last.values


class TermReader:
    """Loads vectors of columns of the right operand, the terms of a word at a time."""

    def __init__(self, b: Kernel, words: Words, columns: Number, depth: Number) -> None:
        self.b = b
        self.count: int = words.terms
        self.columns, self.depth = columns, depth

    def terms(
        self, source: Pointer, word: Number, mask: Mask, count: Number | None = None
    ) -> list[Value]:
        """Return the terms of a word, and 0 from term `count` on."""
        b, terms = self.b, []
        for i in range(self.count):
            row: Number = word * self.count + i
            if count is not None:
                row = b.min(row, self.depth - 1)
            x = b.load(source + row * self.columns, 0, "int8", mask)
            x = b.convert("sext", x, "int32")
            if count is not None:
                exists = b.compare("sgt", count, i)
                text = f"select i1 {exists}, {x.type} {x}, {x.type} zeroinitializer"
                x = b.let(text, "int32", b.lanes)
            terms.append(x)
        return terms
