"""Packing of operands into panels whose terms are contiguous.

A panel is a number of lines: columns of the right operand, or rows of the left one. It
holds the first terms of all lines, then the second terms, and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import Mask, Number, Pointer, Value
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.gemm.problem import LINES, STRIDED
from toolkit.backends.numpy.jit.kernels.gemm.writer import MatrixWriter
from toolkit.backends.numpy.jit.math.narrow import convert

# Panels that are packed together, so that reads of a term are longer and there are
# fewer streams.
PANELS_TOGETHER = 4


class PackNumbers(NamedTuple):
    """The numbers after the addresses in the table. Strides are in bytes."""

    lines: Any
    depth: Any
    line: Any
    term: Any
    chunk: Any
    chunks: Any
    panels: Any


def pad_extent(extent: int, lanes: int) -> int:
    """Return the terms of a panel: `extent` rounded up to a multiple of the lanes."""
    return -(-extent // lanes) * lanes


def emit_pack(
    dtype: str, lanes: int, packing: str, lines: int, axes: int = 0, stored: str = ""
) -> Kernel:
    """Emit the function that packs one operand. A row is a chunk of a product's panel.

    A panel has `lines` lines, padded to whole vectors. The table holds the addresses of
    the operand and of the panels, `PackNumbers`, and the axes of the batch. `stored` is
    the dtype of the operand, a 16-bit float, or "": `dtype`.
    """
    w = MatrixWriter(Kernel(lanes), dtype)
    b = w.b
    source, target = w.b.next_address(), w.b.next_address()
    n = w.b.next_entries(PackNumbers)
    batch = [w.batch_entry() for _ in range(axes)]
    packer = Packer(w, packing, pad_extent(lines, lanes), stored)
    size = packer.panel_bytes(n.depth)
    with b.loop(b.low, b.high) as unit:
        panel, chunk = w.b.split(unit, n.chunks)
        product, line = w.b.split(panel, n.panels)
        first, end = w.b.tile_range(chunk, n.chunk, n.depth)
        x = w.batch_address(source, product, batch, "b")
        line = line * lines
        x = x + line * n.line + first * n.term
        y = target + panel * size + first * packer.term_bytes
        remaining = n.lines - line
        packer.write(x, y, n.line, n.term, remaining, end - first)
    return b


class _Panel(NamedTuple):
    """The address of the first term of the first line, strides, and extents."""

    source: Pointer
    target: Pointer
    line: Number
    term: Number
    lines: Number
    depth: Number


class Packer:
    """Emits the packing of a panel of `width` lines, a multiple of the lanes.

    Args:
        writer: of the dtype of the panel.
        packing: the contiguous axis of the operand.
        width: the lines of a panel.
        stored: the dtype of the operand; "": of the panel.
    """

    def __init__(
        self, writer: MatrixWriter, packing: str, width: int, stored: str = ""
    ) -> None:
        self.w = writer
        self.b: Kernel = writer.b
        self.packing = packing
        self.stored: str = stored or writer.dtype
        self.itemsize: int = dtypes.itemsize(self.stored)
        self.vectors: int = width // writer.b.lanes
        self.term_bytes: int = width * writer.itemsize

    def panel_bytes(self, depth: Number) -> Number:
        """Return the bytes of a panel."""
        lanes = self.b.lanes
        terms = depth + (lanes - 1) & -lanes
        return terms * self.term_bytes

    def write(
        self,
        source: Pointer,
        target: Pointer,
        line: Number,
        term: Number,
        count: Number,
        depth: Number,
    ) -> None:
        """Pack up to `count` lines. The rest of the panel is arbitrary.

        Args:
            source, target: the addresses of the first term of the first line.
            line, term: strides of the source.
            count: the number of lines from the first on.
            depth: the number of terms.
        """
        w, b = self.w, self.b
        panel = _Panel(source, target, line, term, count, depth)
        if self.packing == LINES:
            partial = b.compare("slt", count, self.vectors * b.lanes)
            with b.when(b.opposite(partial)):
                self._copy_lines(panel, [None] * self.vectors)
            with b.when(partial):
                self._copy_lines(panel, w.b.first_of_vectors(count, self.vectors))
            return
        if self.packing == STRIDED:
            self._gather_lines(panel)
            return
        is_short = b.compare("slt", depth, b.lanes)
        with b.when(is_short):
            self._gather_lines(panel)
        with b.when(b.opposite(is_short)):
            self._transpose_lines(panel)

    def write_panels(
        self,
        source: Pointer,
        target: Pointer,
        panel_bytes: Number,
        term: Number,
        depth: Number,
    ) -> None:
        """Pack `PANELS_TOGETHER` full panels with contiguous lines.

        Args:
            source, target: the addresses of the first term of the first line.
            panel_bytes: the stride of packed panels.
            term: the stride of the source's terms.
            depth: the number of terms.
        """
        w, b = self.w, self.b
        with b.loop(0, depth) as index:
            x, y = source + index * term, target + index * self.term_bytes
            for panel in range(PANELS_TOGETHER):
                start = y + panel * panel_bytes
                for j in range(self.vectors):
                    value = self._load(x + j * b.lanes * self.itemsize)
                    w.store_vector(value, start + j * w.vector_bytes)
                x = x + self.vectors * b.lanes * self.itemsize

    def _copy_lines(self, panel: _Panel, masks: Sequence[Mask]) -> None:
        """Copy vectors of contiguous lines."""
        w, b = self.w, self.b
        with b.loop(0, panel.depth) as index:
            x = panel.source + index * panel.term
            y = panel.target + index * self.term_bytes
            for j, mask in enumerate(masks):
                value = self._load(x + j * b.lanes * self.itemsize, mask)
                w.store_vector(value, y + j * w.vector_bytes)

    def _load(self, address: Pointer, mask: Mask = None) -> Value:
        """Load a vector of the operand in the dtype of the panel."""
        return self.w.load_converted(address, self.stored, mask)

    def _gather_lines(self, panel: _Panel) -> None:
        """Gather vectors of strided lines."""
        w, b = self.w, self.b
        with b.loop(0, panel.depth) as index, b.loop(0, self.vectors) as j:
            x = panel.source + index * panel.term
            y = panel.target + index * self.term_bytes
            first = j * b.lanes
            mask = w.b.first_lanes(panel.lines - first)
            value = w.b.gather(x, panel.line, first, self.stored, mask)
            if self.stored != w.dtype:
                value = convert(b, value, w.dtype)
            w.store_vector(value, y + j * w.vector_bytes)

    def _transpose_lines(self, panel: _Panel) -> None:
        """Transpose square blocks of lanes by lanes in registers."""
        w, b, lanes = self.w, self.b, self.b.lanes
        last_line = panel.lines - 1
        last_term = panel.depth - lanes
        strips = b.min(w.b.ceil_div(panel.lines, lanes), self.vectors)
        with b.loop(0, strips) as strip:
            first = strip * lanes
            # A line past the end is a copy of the last line.
            numbers = [first + i for i in range(lanes)]
            lines = [
                panel.source + b.min(number, last_line) * panel.line
                for number in numbers
            ]
            target = panel.target + strip * w.vector_bytes
            with b.loop(0, panel.depth, lanes) as index:
                # The last block may overlap the previous one, with the same values.
                term = b.min(index, last_term)
                offset = term * self.itemsize
                rows = [self._load(x + offset) for x in lines]
                address = target + term * self.term_bytes
                for i, column in enumerate(b.transposed(rows)):
                    w.store_vector(column, address + i * self.term_bytes)
