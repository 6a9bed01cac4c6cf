"""Elements of rows by index, inside the loops of a fused body."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import Value
from toolkit.backends.numpy.jit.plan import FULL, Source
from toolkit.backends.numpy.jit.spans import first, lane_numbers

if TYPE_CHECKING:
    from toolkit.backends.numpy.jit.loops import Writer

# The columns of the vector that is computed.
COLUMNS: Source = ("columns",)
_COMBINED = {"add": "add", "max": "maximum", "min": "minimum"}


def columns(w: Writer, start: str) -> Value:
    """The columns of a vector that starts at one."""
    number = w.b.convert("trunc", Value(start, "int64"), "int32")
    return w.b.binary("add", w.b.splat(number), lane_numbers(w.b.lanes))


def place(w: Writer, index: Value) -> Value:
    """An index from the row's start on; -1, and an error, if it is out of range."""
    b, s = w.b, w.scalars
    index = s.cast(index, "int64")
    extent = b.splat(Value(w.extents[-1], "int64"))
    zero, none = s.const(0, index), s.const(-1, index)
    wrapped = s.select(s.less(index, zero), s.add(index, extent), index)
    valid = s.logical_and(s.less(none, wrapped), s.less(wrapped, extent))
    with b.when(first(b, s.logical_not(valid))):
        error = w.entry(w.numbers.error, "ptr")
        for k, word in enumerate(["1", first(b, index), w.extents[-1]]):
            b.emit(f"store i64 {word}, ptr {w.memory.offset(error, str(k), 'i64')}")
    return s.cast(s.select(valid, wrapped, none), "int32")


def put(
    w: Writer, row: Value, place: Value, update: Value, columns: Value, mode: str
) -> Value:
    """A vector of a row with an update at one column."""
    s = w.scalars
    if mode != "set":
        update = getattr(s, _COMBINED[mode])(row, update)
    return s.select(s.equal(columns, place), update, row)


def pick(w: Writer, source: Source, place: Source) -> Value:
    """A full value at one column, computed for it alone."""
    at = w.value(place, {})
    # Where the index was bad, any column will do.
    column = w.b.most(first(w.b, w.scalars.cast(at, "int64")), "0")
    needed = _needed(w, source)
    known: dict[Source, Value] = {COLUMNS: at}
    for k, read in enumerate(w.plan.reads):
        if read.by_column and ("read", k) in needed:
            known["read", k] = _element(w, k, column)
    for i, step in enumerate(w.plan.steps):
        if step.role == FULL and ("step", i) in needed:
            known["step", i] = w.compute(i, known)
    return w.value(source, known)


def _needed(w: Writer, source: Source) -> set[Source]:
    """The full values that one is computed from, and itself."""
    found, stack = set(), [source]
    while stack:
        source = stack.pop()
        if source not in found:
            found.add(source)
            if source[0] == "step" and w.plan.steps[source[1]].role == FULL:
                stack += w.plan.steps[source[1]].arguments
    return found


def _element(w: Writer, k: int, column: str) -> Value:
    """What is read at one column of the row."""
    read = w.plan.reads[k]
    stride = str(dtypes.itemsize(read.dtype))
    if read.inner < 0:
        stride = w.strides[k, w.numbers.rank - 1]
    place = w.memory.offset(w.bases[k], w.memory.times(column, stride))
    return w.splat(place, read.dtype)
