"""Putting factors in order: panels whose terms follow each other in memory.

A panel is some lines - columns of the second factor, or rows of the first - of which
the first terms follow each other, then the second terms, and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from toolkit.backends.numpy.jit.builder import Builder, Value
from toolkit.backends.numpy.jit.matmul.writer import Writer

# What follows what in the factor: a line's terms, a term's lines, or nothing.
LINES, TERMS, APART = "lines", "terms", "apart"


class PackNumbers(NamedTuple):
    """What follows the addresses in the table; strides in bytes."""

    lines: Any
    depth: Any
    line: Any
    term: Any
    chunk: Any
    chunks: Any
    panels: Any


def packing_of(line: int, term: int, itemsize: int) -> str:
    """Which of a factor's strides is that of neighbours."""
    if line == itemsize:
        return LINES
    return TERMS if term == itemsize else APART


def padded(extent: int, lanes: int) -> int:
    """`extent` as a multiple of the lanes: panels have so many terms."""
    return -(-extent // lanes) * lanes


def emit_pack(dtype: str, lanes: int, packing: str, width: int, axes: int) -> Builder:
    """The function that packs one factor; a row is a chunk of a panel of a product.

    The table: addresses of the factor and of the panels; `PackNumbers`; the axes of the
    batch.
    """
    w = Writer(Builder(lanes), dtype)
    b = w.b
    source, target = w.entry("ptr"), w.entry("ptr")
    n = PackNumbers(*(w.entry() for _ in PackNumbers._fields))
    batch = [w.batch_entry() for _ in range(axes)]
    packer = Packer(w, packing, width)
    size = packer.panel_bytes(n.depth)
    with b.loop("%lo", "%hi") as unit:
        panel, chunk = w.split(unit, n.chunks)
        product, line = w.split(panel, n.panels)
        first, end = w.part(chunk, n.chunk, n.depth)
        x = w.moved(source, product, batch, "b")
        line = b.integer("mul", line, width)
        x = w.at(w.at(x, line, n.line), first, n.term)
        y = w.at(w.at(target, panel, size), first, packer.term_bytes)
        left = b.integer("sub", n.lines, line)
        packer.write(x, y, n.line, n.term, left, b.integer("sub", end, first))
    return b


class _Panel(NamedTuple):
    """Pointers to the first term of the first line, strides, and extents."""

    source: str
    target: str
    line: str
    term: str
    lines: str
    depth: str


class Packer:
    """Emits the packing of a panel of `width` lines, a multiple of the lanes."""

    def __init__(self, writer: Writer, packing: str, width: int) -> None:
        self.w = writer
        self.b = writer.b
        self.packing = packing
        self.vectors = width // writer.b.lanes
        self.term_bytes = width * writer.itemsize

    def panel_bytes(self, depth: str) -> str:
        """The size of a panel."""
        lanes = self.b.lanes
        terms = self.b.integer("and", self.b.integer("add", depth, lanes - 1), -lanes)
        return self.b.integer("mul", terms, self.term_bytes)

    def write(
        self, source: str, target: str, line: str, term: str, count: str, depth: str
    ) -> None:
        """Pack up to `count` lines; what is beyond them in the panel is arbitrary.

        Args:
            source, target: pointers to the first term of the first line.
            line, term: strides of the source.
            count: how many lines there are from the first on.
            depth: how many terms.
        """
        w, b = self.w, self.b
        panel = _Panel(source, target, line, term, count, depth)
        if self.packing == LINES:
            partial = w.is_less(count, str(self.vectors * b.lanes))
            with b.when(self._no(partial)):
                self._copied(panel, [None] * self.vectors)
            with b.when(partial):
                self._copied(panel, w.masks(count, self.vectors))
            return
        if self.packing == APART:
            self._gathered(panel)
            return
        few = w.is_less(depth, str(b.lanes))
        with b.when(few):
            self._gathered(panel)
        with b.when(self._no(few)):
            self._turned(panel)

    def _no(self, condition: str) -> str:
        return self.b.let(f"xor i1 {condition}, true", "bool").text

    def _copied(self, panel: _Panel, masks: Sequence[str | None]) -> None:
        """Vectors of neighbouring lines, as they are."""
        w = self.w
        with self.b.loop("0", panel.depth) as index:
            x = w.at(panel.source, index, panel.term)
            y = w.at(panel.target, index, self.term_bytes)
            for j, mask in enumerate(masks):
                step = j * w.vector_bytes
                w.put(w.vector(w.at(x, step), mask), w.at(y, step))

    def _gathered(self, panel: _Panel) -> None:
        """Vectors of lines that are apart."""
        w, b = self.w, self.b
        with b.loop("0", panel.depth) as index, b.loop("0", str(self.vectors)) as j:
            x = w.at(panel.source, index, panel.term)
            y = w.at(panel.target, index, self.term_bytes)
            first = b.integer("mul", j, b.lanes)
            mask = w.mask(b.integer("sub", panel.lines, first))
            value = w.memory.gather(x, panel.line, first, w.dtype, mask)
            w.put(value, w.at(y, j, w.vector_bytes))

    def _turned(self, panel: _Panel) -> None:
        """Square blocks of as many lines as lanes, turned in registers."""
        w, b, lanes = self.w, self.b, self.b.lanes
        last_line = b.integer("sub", panel.lines, 1)
        last_term = b.integer("sub", panel.depth, lanes)
        strips = b.least(w.ceil_div(panel.lines, lanes), self.vectors)
        with b.loop("0", strips) as strip:
            first = b.integer("mul", strip, lanes)
            # A line that does not exist is another time the last.
            numbers = [b.integer("add", first, i) for i in range(lanes)]
            lines = [
                w.at(panel.source, b.least(number, last_line), panel.line)
                for number in numbers
            ]
            target = w.at(panel.target, strip, w.vector_bytes)
            with b.loop("0", panel.depth, lanes) as index:
                # What the last block shares with the one before is the same again.
                term = b.least(index, last_term)
                offset = b.integer("mul", term, w.itemsize)
                rows = [w.vector(w.at(x, offset)) for x in lines]
                place = w.at(target, term, self.term_bytes)
                for i, column in enumerate(transposed(b, rows)):
                    w.put(column, w.at(place, i, self.term_bytes))


def transposed(b: Builder, rows: Sequence[Value]) -> list[Value]:
    """The columns of a square block of as many rows as lanes.

    Blocks of 1, 2, 4, ... elements beside the diagonal change places.
    """
    lanes, found = b.lanes, list(rows)
    step = 1
    while step < lanes:
        upper = [i + lanes - step if i & step else i for i in range(lanes)]
        lower = [i + lanes if i & step else i + step for i in range(lanes)]
        for i in range(lanes):
            if not i & step:
                x, y = found[i], found[i + step]
                found[i] = shuffled(b, x, y, upper)
                found[i + step] = shuffled(b, x, y, lower)
        step *= 2
    return found


def shuffled(b: Builder, x: Value, y: Value, chosen: Sequence[int]) -> Value:
    """Lanes of x, and of y behind them, in another order."""
    numbers = ", ".join(f"i32 {i}" for i in chosen)
    text = (
        f"shufflevector {x.type} {x.text}, {y.type} {y.text}, "
        f"<{b.lanes} x i32> <{numbers}>"
    )
    return b.let(text, x.dtype, b.lanes)
