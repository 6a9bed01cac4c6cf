"""Interleaving of short rows of several arrays, in registers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import Number, Pointer, Value, literal
from toolkit.backends.numpy.jit.calls import Call, Reference, partition
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.processor import current
from toolkit.definitions.records import record

# Elements of the longest row that is interleaved in registers.
MAX_ROW = 8
# Bytes of the shortest vector.
_MIN_VECTOR_BYTES = 16


@record
class RowSegment:
    """The contribution of an array to each row.

    Attributes:
        reference: the array.
        run: the number of elements per row. They are contiguous over the rows of a
            group.
        offset: the byte offset of the first element.
        step: the stride in bytes from one group of rows to the next.
    """

    reference: Reference
    run: int = 1
    offset: int = 0
    step: int = 0


@record
class RowPadding:
    """The padding of each row.

    Attributes:
        low, high: the number of elements before and after the parts.
        number: the bytes of an element, as an unsigned integer.
    """

    low: int = 0
    high: int = 0
    number: int = 0


_NO_EDGE = RowPadding()


def interleave_call(
    dtype: str,
    segments: Sequence[RowSegment],
    rows: int,
    count: int,
    by_rows: set[Reference],
    edge: RowPadding = _NO_EDGE,
) -> Call:
    """Return the call that writes rows, each the concatenation of the parts.

    Args:
        dtype: the type as which elements are moved.
        segments: the contributions of the arrays.
        rows: the number of rows.
        count: the number of rows in a group.
        by_rows: the operands that are partitioned along the rows.
        edge: the padding of each row.
    """
    runs = tuple(segment.run for segment in segments)
    out: Reference = ("out", 0)
    return Call(
        Code(emit_interleave, dtype, runs, edge),
        (*(segment.reference for segment in segments), out),
        (count, *(n for segment in segments for n in (segment.offset, segment.step))),
        rows,
        partition(rows),
        frozenset(by_rows),
        nbytes=rows * (2 * sum(runs) + edge.low + edge.high) * dtypes.itemsize(dtype),
    )


def emit_interleave(dtype: str, runs: tuple[int, ...], edge: RowPadding) -> Kernel:
    """Emit out[row] = the runs of each array for that row. Rows are in groups."""
    b = Kernel(current().lanes)
    arrays = [b.next_address(dtype) for _ in runs]
    out, count = b.next_address(dtype), b.next_entry()
    layouts = [(b.next_entry(), b.next_entry()) for _ in runs]
    writer = _Rows(b, dtype, runs, edge)
    with b.loop(b.low // count, b.ceil_div(b.high, count)) as group:
        start = group * count
        low, high = b.max(b.low - start, 0), b.min(b.high - start, count)
        sources = [
            x.element(offset + group * step, "i8")
            for x, (offset, step) in zip(arrays, layouts, strict=True)
        ]
        writer.write(sources, out + start * len(writer.columns), (low, high))
    return b


class _Rows:
    """Emits the rows of a group.

    Attributes:
        columns: the array and the index in its run for each element of a row, or None
        for padding.
    """

    def __init__(
        self, builder: Kernel, dtype: str, runs: Sequence[int], edge: RowPadding
    ) -> None:
        self.b = builder
        self.dtype, self.runs, self.number = dtype, runs, edge.number
        inner = [(i, k) for i, run in enumerate(runs) for k in range(run)]
        self.columns: list[tuple[int, int] | None] = [
            *[None] * edge.low,
            *inner,
            *[None] * edge.high,
        ]

    def write(
        self, sources: Sequence[Pointer], out: Pointer, rows: tuple[Number, Number]
    ) -> None:
        """Write the rows: first one per lane of a vector, then a remainder loop."""
        b, size, (low, high) = self.b, len(self.columns), rows
        lanes = max(b.lanes, _MIN_VECTOR_BYTES // dtypes.itemsize(self.dtype))
        full = b.whole_vectors(low, high, lanes)
        with b.of_lanes(lanes), b.loop(low, full, lanes) as row:
            vectors = [
                b.load(x, row * run + k * lanes, self.dtype, None)
                for x, run in zip(sources, self.runs, strict=True)
                for k in range(run)
            ]
            for k in range(size):
                b.store(
                    self._shuffle_output(vectors, k), out, row * size + k * lanes, None
                )
        edge = Value(literal(self.number, self.dtype), self.dtype)
        with b.loop(full, high) as row:
            for index, column in enumerate(self.columns):
                value = edge
                if column:
                    x, run = sources[column[0]], self.runs[column[0]]
                    value = b.scalar(x + (row * run + column[1]), self.dtype)
                b.put_scalar(value, out + (row * size + index))

    def _shuffle_output(self, vectors: Sequence[Value], number: int) -> Value:
        """Return one output vector, shuffled from the loaded vectors."""
        b, starts = self.b, list(accumulate(self.runs, initial=0))
        sources = []
        for element in range(number * b.lanes, (number + 1) * b.lanes):
            row, column = divmod(element, len(self.columns))
            array, k = self.columns[column] or (len(self.runs), 0)
            run = self.runs[array] if array < len(self.runs) else 0
            vector, lane = divmod(row * run + k, b.lanes)
            sources.append((starts[array] + vector, lane))
        candidates = [*vectors, b.filled(self.number, self.dtype)]
        return b.select_lanes(candidates, sources)
