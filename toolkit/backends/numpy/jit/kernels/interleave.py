"""Short rows of several arrays one behind the other, put together in registers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import Number, Pointer, Value
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.lowering import Call, Reference, partition
from toolkit.backends.numpy.jit.processor import current
from toolkit.definitions.records import record

# Elements of the longest row that is put together so.
LONGEST = 8
# Bytes of the shortest vectors that are put together.
_VECTOR = 16


@record
class Part:
    """What an array gives to each row.

    Attributes:
        place: the array.
        run: how many elements it gives; those of the rows follow each other.
        offset: the bytes in front of its first element.
        step: bytes from the first element of a group of rows to that of the next one.
    """

    place: Reference
    run: int = 1
    offset: int = 0
    step: int = 0


def interleaved(
    dtype: str, parts: Sequence[Part], rows: int, count: int, by_rows: set[Reference]
) -> Call:
    """The call that writes rows of the parts, one behind the other.

    Args:
        dtype: as which elements are moved.
        rows: in all.
        count: of a group.
        by_rows: the operands that fall apart along the rows.
    """
    runs = tuple(part.run for part in parts)
    out: Reference = ("out", 0)
    return Call(
        Code(emit_interleaved, dtype, runs),
        (*(part.place for part in parts), out),
        (count, *(n for part in parts for n in (part.offset, part.step))),
        rows,
        partition(rows),
        frozenset(by_rows),
        nbytes=2 * rows * sum(runs) * dtypes.itemsize(dtype),
    )


def emit_interleaved(dtype: str, runs: tuple[int, ...]) -> Kernel:
    """out[row] = the runs of each array for that row; rows are in groups."""
    b = Kernel(current().lanes)
    arrays = [b.next_address(dtype) for _ in runs]
    out, count = b.next_address(dtype), b.next_entry()
    places = [(b.next_entry(), b.next_entry()) for _ in runs]
    size = sum(runs)
    with b.loop(b.low // count, b.ceil_div(b.high, count)) as group:
        start = group * count
        low, high = b.most(b.low - start, 0), b.least(b.high - start, count)
        sources = [
            x.element(offset + group * step, "i8")
            for x, (offset, step) in zip(arrays, places, strict=True)
        ]
        _write(
            b,
            dtype,
            list(zip(sources, runs, strict=True)),
            out + start * size,
            (low, high),
        )
    return b


def _write(
    b: Kernel,
    dtype: str,
    sources: Sequence[tuple[Pointer, int]],
    out: Pointer,
    rows: tuple[Number, Number],
) -> None:
    """Rows of a group: as many as a vector has lanes together, then one by one."""
    (low, high), runs = rows, [run for _, run in sources]
    lanes, size = max(b.lanes, _VECTOR // dtypes.itemsize(dtype)), sum(runs)
    whole = b.whole_vectors(low, high, lanes)
    with b.of_lanes(lanes), b.loop(low, whole, lanes) as row:
        vectors = [
            b.load(x, row * run + k * lanes, dtype, None)
            for x, run in sources
            for k in range(run)
        ]
        for k in range(size):
            b.store(_joined(b, vectors, runs, k), out, row * size + k * lanes, None)
    with b.loop(whole, high) as row:
        place = out + row * size
        for (x, run), start in zip(sources, accumulate(runs, initial=0), strict=False):
            for k in range(run):
                b.put_scalar(b.scalar(x + (row * run + k), dtype), place + (start + k))


def _joined(
    b: Kernel, vectors: Sequence[Value], runs: Sequence[int], number: int
) -> Value:
    """The number-th vector of the rows."""
    size, starts = sum(runs), list(accumulate(runs, initial=0))
    columns = [(i, k) for i, run in enumerate(runs) for k in range(run)]
    wanted = []
    for place in range(number * b.lanes, (number + 1) * b.lanes):
        row, (i, k) = place // size, columns[place % size]
        vector, lane = divmod(row * runs[i] + k, b.lanes)
        wanted.append((starts[i] + vector, lane))
    first, *others = sorted({vector for vector, _ in wanted})
    # A lane that comes from a later vector is replaced then.
    found = b.shuffled(vectors[first], vectors[first], [lane for _, lane in wanted])
    for other in others:
        lanes = [
            b.lanes + lane if vector == other else i
            for i, (vector, lane) in enumerate(wanted)
        ]
        found = b.shuffled(found, vectors[other], lanes)
    return found
