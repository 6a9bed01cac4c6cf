"""Depthwise integer convolutions, with channels in the lanes.

The input rows of a band of output rows are copied with padding. The elements of
vertically adjacent rows form words, which several outputs of a tile share.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from toolkit.backends.numpy.jit.builder import Mask, Number, Pointer, Value
from toolkit.backends.numpy.jit.epilogue import BodyStructure, Epilogue
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.integer.pack import WORD_BYTES
from toolkit.backends.numpy.jit.kernels.integer.patches import MIN_VECTOR, vectors_of
from toolkit.backends.numpy.jit.kernels.integer.words import Words, as_int8
from toolkit.definitions.records import record

# Vectors of channels that are computed and packed to bytes together.
VECTORS = 2
# Bytes of a copy's vector, and the bytes that may be read after the copied rows.
_COPIED = 32


@record
class DepthwisePlan:
    """The properties that the code depends on.

    Attributes:
        words: the format of the terms.
        lanes: of a vector of sums.
        dtype: of the images: int8 or uint8.
        offset: the difference between a term and the element that it represents.
        size, strides: of windows, vertical and horizontal.
        tile: the number of unrolled outputs of a row.
        has_partial_vector: whether the last channels fill only part of the lanes.
    """

    words: Words
    lanes: int
    dtype: str
    offset: int
    size: tuple[int, int]
    strides: tuple[int, int]
    tile: int
    has_partial_vector: bool

    @property
    def channels(self) -> int:
        """Return the number of channels that are computed together."""
        return VECTORS * self.lanes

    @property
    def column_words(self) -> int:
        """Return the number of words that hold the taps of a column."""
        return -(-self.size[0] // self.words.terms)

    @property
    def start(self) -> int:
        """Return the byte offset of the initial sums, after the weights."""
        return self.column_words * self.size[1] * self.channels * WORD_BYTES

    @property
    def weight_bytes(self) -> int:
        """Return the bytes of the weights of channels that are computed together."""
        return self.start + self.channels * WORD_BYTES


class DepthwiseNumbers(NamedTuple):
    """The numbers after the addresses in the table.

    Attributes:
        channels: of the images.
        height, width: of an image.
        rows, columns: of its outputs.
        top, left: the padding before it.
        band, bands: the output rows of a band, and the bands of an image.
        line: the pixels of a copied row.
        memory: the bytes of a task's copied rows.
    """

    channels: Any
    height: Any
    width: Any
    rows: Any
    columns: Any
    top: Any
    left: Any
    band: Any
    bands: Any
    line: Any
    memory: Any


def copied_bytes(line: int, rows: int, channels: int) -> int:
    """Return the bytes of the copied rows."""
    return line * rows * channels + 4 * _COPIED


def emit_pack_depthwise(plan: DepthwisePlan) -> Kernel:
    """Emit the function that packs weights into words. A row is a block of channels.

    The table holds the addresses of the weights and of the words, and the number of
    channels.
    """
    b = Kernel(plan.lanes)
    source, target, channels = b.next_address(), b.next_address(), b.next_entry()
    rows, columns = plan.size

    def tap(row: int, column: int, first: Number) -> Value:
        if row >= rows:
            return b.filled(0, "int32")
        address = source + channels * (row * columns + column) + first
        x = b.load(address, 0, "int8", b.first_lanes(channels - first))
        return b.convert("sext", x, "int32")

    with b.loop(b.low, b.high) as group:
        address = target + group * plan.weight_bytes
        totals = [b.filled(0, "int32")] * VECTORS
        for word, column, j in _weights(plan):
            first = group * plan.channels + j * plan.lanes
            numbers = range(word * plan.words.terms, (word + 1) * plan.words.terms)
            taps = [tap(row, column, first) for row in numbers]
            for x in taps:
                totals[j] = b.binary("add", totals[j], x)
            at = address + _word_offset(plan, word, column, j)
            b.store(plan.words.join_terms(b, taps), at, 0, None)
        for j, total in enumerate(totals):
            # The initial sum cancels the effect of the offset.
            start = b.binary("mul", total, b.filled(-plan.offset, "int32"))
            offset = plan.start + j * plan.lanes * WORD_BYTES
            b.store(start, address + offset, 0, None)
    return b


def _weights(plan: DepthwisePlan) -> Iterator[tuple[int, int, int]]:
    """Yield the words of each channel: part of a column, column, vector of channels."""
    for word in range(plan.column_words):
        for column in range(plan.size[1]):
            for j in range(VECTORS):
                yield word, column, j


def _word_offset(plan: DepthwisePlan, word: int, column: int, j: int) -> int:
    """Return the byte offset of a vector of words."""
    vector = (word * plan.size[1] + column) * VECTORS + j
    return vector * plan.lanes * WORD_BYTES


def emit_depthwise(plan: DepthwisePlan, body: BodyStructure, images: int) -> Kernel:
    """Emit the function that computes bands of rows, each a row of the call.

    The table holds the addresses of the body's inputs and outputs, of the weights as
    words, and of the tasks' memory, then `DepthwiseNumbers`.

    Args:
        plan: the properties of the code.
        body: the convolution and its epilogue.
        images: the input of the body that holds the images.
    """
    b = Kernel(plan.lanes)
    _Depthwise(b, plan, body, images).write()
    return b


class _Depthwise:
    """Emits the function."""

    def __init__(
        self, b: Kernel, plan: DepthwisePlan, body: BodyStructure, images: int
    ) -> None:
        self.b, self.plan = b, plan
        self.epilogue = Epilogue.of_table(body, b)
        self.images = self.epilogue.addresses[images]
        self.weights = b.next_address()
        self.memory = b.next_address()
        self.n = b.next_entries(DepthwiseNumbers)

    def write(self) -> None:
        """Emit the loop over bands: copy input rows, then compute output rows."""
        b, n, plan = self.b, self.n, self.plan
        with b.loop(b.low, b.high) as unit:
            image, band = b.split(unit, n.bands)
            first, end = b.tile_range(band, n.band, n.rows)
            memory = self.memory + b.slot * n.memory
            count = (end - first - 1) * plan.strides[0] + plan.size[0]
            self._copy(image, first * plan.strides[0] - n.top, count, memory)
            with b.loop(first, end) as row:
                down = (row - first) * plan.strides[0] * n.line * n.channels
                element = (image * n.rows + row) * n.columns
                self._row(memory + down, element)

    # --- copies -----------------------------------------------------------------------

    def _copy(
        self, image: Number, first: Number, count: Number, memory: Pointer
    ) -> None:
        """Copy rows of an image, with padding."""
        b, n = self.b, self.n
        left_padding = b.min(n.left, n.line)
        valid = b.min(n.width, n.line - left_padding) * n.channels
        line, left_padding = n.line * n.channels, left_padding * n.channels
        with b.loop(0, count) as i:
            row, target = first + i, memory + i * line
            is_inside = b.is_inside(row, n.height)
            with b.when(is_inside):
                offset = (image * n.height + row) * n.width * n.channels
                self._clear(target, left_padding)
                self._copy_run(self.images + offset, target + left_padding, valid)
                self._clear(target + left_padding + valid, line - left_padding - valid)
            with b.when(b.opposite(is_inside)):
                self._clear(target, line)

    def _copy_run(self, source: Pointer, target: Pointer, count: Number) -> None:
        b = self.b
        with b.of_lanes(_COPIED):
            for at in vectors_of(b, count):
                value = self.plan.words.shift_bytes(b, b.load(source, at, "int8", None))
                b.store(value, target, at, None)
        with b.loop(count & -MIN_VECTOR, count) as at:
            value = self.plan.words.shift_bytes(b, b.scalar(source + at, "int8"))
            b.put_scalar(value, target + at)

    def _clear(self, target: Pointer, count: Number) -> None:
        """Fill with padding. A later copy overwrites the overrun."""
        b, fill = self.b, as_int8(self.plan.offset)
        with b.of_lanes(_COPIED), b.loop(0, count, _COPIED) as at:
            b.store(b.filled(fill, "int8"), target, at, None)

    # --- sums -------------------------------------------------------------------------

    def _row(self, source: Pointer, element: Number) -> None:
        """Compute a row of outputs: tiles, then a remainder loop."""
        b, n, plan = self.b, self.n, self.plan
        full = n.columns - n.columns % plan.tile
        step = n.channels * plan.strides[1]
        for size, low, high in ((plan.tile, 0, full), (1, full, n.columns)):
            with b.loop(low, high, size) as column:
                self._tile(source + column * step, element + column, size)

    def _tile(self, source: Pointer, element: Number, size: int) -> None:
        """Compute some neighbouring outputs, in a loop over channels."""
        b, n, plan = self.b, self.n, self.plan
        full = n.channels - n.channels % plan.channels
        with b.loop(0, full, plan.channels) as channel:
            self._channels(source, element, channel, size, None)
        if plan.has_partial_vector:
            with b.of_lanes(plan.channels):
                mask = b.first_lanes(n.channels - full)
            self._channels(source, element, full, size, mask)

    def _channels(
        self, source: Pointer, element: Number, channel: Number, size: int, mask: Mask
    ) -> None:
        b, n, plan = self.b, self.n, self.plan
        address = self.weights + channel // plan.channels * plan.weight_bytes
        weights = {
            key: b.load(address + _word_offset(plan, *key), 0, "int32", None)
            for key in _weights(plan)
        }
        with b.of_lanes(plan.channels):
            loaded = self.epilogue.columns(channel, mask)
        start = address + plan.start
        at = [j * plan.lanes for j in range(VECTORS)]
        starts = [b.load(start, k, "int32", None) for k in at]
        sums = [list(starts) for _ in range(size)]
        width, step = plan.size[1], plan.strides[1]
        for column in range((size - 1) * step + width):
            words = self._words(source + channel + n.channels * column)
            for i, tap in self._taps_of_column(column, size):
                for word, vectors in enumerate(words):
                    for j, x in enumerate(vectors):
                        y = weights[word, tap, j]
                        sums[i][j] = plan.words.multiply_add(b, sums[i][j], x, y)
                if tap == width - 1:
                    at = (element + i) * n.channels + channel
                    self._apply_epilogue(sums[i], at, channel, mask, loaded)

    def _taps_of_column(self, column: int, size: int) -> Iterator[tuple[int, int]]:
        """Yield the outputs of a tile that read a column, and their taps."""
        for i in range(size):
            tap = column - i * self.plan.strides[1]
            if 0 <= tap < self.plan.size[1]:
                yield i, tap

    def _words(self, address: Pointer) -> list[list[Value]]:
        """Load the words of a column: for each part, vectors of channels.

        Where there are no more rows, weights are 0 and words may be anything.
        """
        b, n, plan = self.b, self.n, self.plan
        line, terms = n.line * n.channels, plan.words.terms
        with b.of_lanes(plan.channels):
            rows = [
                b.load(address + line * i, 0, plan.dtype, None)
                for i in range(plan.size[0])
            ]
        rows += rows[:1] * (plan.column_words * terms - len(rows))
        return [
            [
                self._join_rows(rows[i : i + terms], first)
                for first in range(0, plan.channels, plan.lanes)
            ]
            for i in range(0, len(rows), terms)
        ]

    def _join_rows(self, rows: list[Value], first: int) -> Value:
        """Return a vector of words from the channels of some rows, from `first`."""
        b, plan = self.b, self.plan
        channels = range(first, first + plan.lanes)
        pairs = [
            b.shuffled(
                rows[i], rows[i + 1], _interleave_indices(channels, plan.channels)
            )
            for i in range(0, len(rows), 2)
        ]
        if len(pairs) == 1:
            extend = "sext" if plan.dtype == "int8" else "zext"
            x = b.convert(extend, pairs[0], "int16")
        else:
            kind = f"<{plan.lanes} x i16>"
            low, high = (
                b.let(f"bitcast {x.type} {x} to {kind}", "int16", plan.lanes)
                for x in pairs
            )
            x = b.shuffled(
                low, high, _interleave_indices(range(plan.lanes), plan.lanes)
            )
        text = f"bitcast {x.type} {x} to <{plan.lanes} x i32>"
        return b.let(text, "int32", plan.lanes)

    def _apply_epilogue(
        self,
        sums: list[Value],
        element: Number,
        channel: Number,
        mask: Mask,
        loaded: dict[Any, Value],
    ) -> None:
        """Apply the epilogue to the sums of an output."""
        b, plan = self.b, self.plan
        low, high = sums
        value = b.shuffled(low, high, range(plan.channels))
        with b.of_lanes(plan.channels):
            self.epilogue.apply(value, element, channel, mask, loaded)


def _interleave_indices(numbers: Sequence[int], distance: int) -> list[int]:
    """Return each number n followed by n + other."""
    return [k for n in numbers for k in (n, n + distance)]
