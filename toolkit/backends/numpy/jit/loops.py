"""Writes the function of a plan: loops over rows, passes over each row, accumulators.

The table holds the addresses of what is read and written and of the row buffers, and
then the numbers of `Numbers`, in its order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import Builder, Value
from toolkit.backends.numpy.jit.engine import host
from toolkit.backends.numpy.jit.memory import Memory
from toolkit.backends.numpy.jit.plan import (
    COLUMN,
    FULL,
    ONE,
    PICK,
    PLACE,
    PUT,
    ROW,
    Plan,
    Source,
    Write,
)
from toolkit.backends.numpy.jit.reducers import Reducer, lane_numbers, reducer
from toolkit.backends.numpy.jit.rows import Bases, Held, Streamed
from toolkit.backends.numpy.jit.scalars import LLVMScalars
from toolkit.ir import PRIMITIVES

# The columns of the vector that is computed.
COLUMNS: Source = ("columns",)
_COMBINED = {"add": "add", "max": "maximum", "min": "minimum"}


class Numbers:
    """Where the numbers of a plan stand in the table.

    unit: turns of the outermost loop per row of the call; grain: rows of a task; count:
    elements in all. Then the bytes from a task's buffers to the next one's and from one
    buffer to the next, the loops' extents, the bytes from one partial result of each
    write to the next, and the strides of every array, from the outermost loop on.
    """

    def __init__(self, plan: Plan) -> None:
        arrays = len(plan.reads) + len(plan.writes)
        self.rank = plan.row_loops + plan.column_loops
        self.buffer = arrays
        self.error = arrays + 1
        self.unit = arrays + 1 + plan.picks
        self.grain, self.count, self.task_buffers, self.next_buffer = (
            self.unit + i for i in range(1, 5)
        )
        self.extents = self.unit + 5
        self.partials = self.extents + self.rank
        self.strides = self.partials + len(plan.writes)

    def stride(self, array: int, loop: int) -> int:
        """The entry of an array's stride along a loop."""
        return self.strides + array * self.rank + loop


def emit_plan(plan: Plan) -> Builder:
    """The body of the function of a plan."""
    builder = Builder(host().lanes)
    Writer(builder, plan).write()
    return builder


class Writer:
    """Writes one function with a builder."""

    def __init__(self, builder: Builder, plan: Plan) -> None:
        self.b = builder
        self.plan = plan
        self.memory = Memory(builder)
        self.scalars = LLVMScalars(builder)
        self.numbers = Numbers(plan)
        self.first_write = len(plan.reads)
        self.strides: dict[tuple[int, int], str] = {}
        # What stays the same for the whole call, and for a row.
        self.constant: dict[Source, Value] = {}
        self.row: dict[Source, Value] = {}

    # --- the table --------------------------------------------------------------------

    def entry(self, index: int, kind: str = "i64") -> str:
        place = self.memory.offset("%table", str(index), "i64")
        return self.b.let(f"load {kind}, ptr {place}", "int64").text

    def _load_table(self) -> Bases:
        plan, numbers = self.plan, self.numbers
        arrays = len(plan.reads) + len(plan.writes)
        bases = [self.entry(i, "ptr") for i in range(arrays)]
        self.extents = [self.entry(numbers.extents + i) for i in range(numbers.rank)]
        self.count = self.entry(numbers.count) if plan.ragged else ""
        last = numbers.rank - 1
        for array in range(arrays):
            for loop in range(numbers.rank):
                gathers = array < self.first_write and plan.reads[array].inner < 0
                if (loop < last or gathers) and self._moves(array, loop):
                    entry = self.entry(numbers.stride(array, loop))
                    self.strides[array, loop] = entry
        return bases

    def _moves(self, array: int, loop: int) -> bool:
        """Whether an array's address may change along a loop."""
        in_row = loop >= self.plan.row_loops
        if array < self.first_write:
            read = self.plan.reads[array]
            return read.by_column if in_row else read.by_row
        role = self.plan.writes[array - self.first_write].role
        return role in ((FULL, COLUMN) if in_row else (FULL, ROW))

    # --- the nest ---------------------------------------------------------------------

    def write(self) -> None:
        """The whole function."""
        b, plan = self.b, self.plan
        bases = self._load_table()
        self._hoist(bases)
        self._find_partials(bases)
        unit = self.entry(self.numbers.unit)
        low, high = b.integer("mul", "%lo", unit), b.integer("mul", "%hi", unit)
        row = Held(self, bases) if plan.held else Streamed(self)
        if plan.is_flat:
            row.part(bases, low, high)
        elif plan.one_row:
            row.whole(bases, "0")
        else:
            self._rows(row, 0, bases, low, high)

    def _rows(
        self, row: Held | Streamed, loop: int, bases: Bases, low: str, high: str
    ) -> None:
        with self.b.loop(low, high) as index:
            moved = self.moved(bases, loop, index)
            if loop == self.plan.row_loops - 1:
                row.whole(moved, index)
            else:
                self._rows(row, loop + 1, moved, "0", self.extents[loop + 1])

    def moved(self, bases: Bases, loop: int, index: str) -> Bases:
        """The addresses at an index of a loop."""
        return [
            self.memory.offset(
                base, self.memory.times(index, self.strides[array, loop])
            )
            if (array, loop) in self.strides
            else base
            for array, base in enumerate(bases)
        ]

    def _hoist(self, bases: Bases) -> None:
        """Load what never changes."""
        for k, read in enumerate(self.plan.reads):
            if not read.by_row and not read.by_column:
                self.constant["read", k] = self.splat(bases[k], read.dtype)

    def splat(self, base: str, dtype: str) -> Value:
        return self.b.splat(self.memory.scalar(base, dtype))

    # --- values -----------------------------------------------------------------------

    def _number(self, source: Source) -> Value:
        _, content, dtype = source
        number = np.frombuffer(bytes.fromhex(content), dtypes.numpy_dtype(dtype))[0]
        return self.b.constant(number, Value("", dtype, self.b.lanes))

    def compute(self, step: int, known: dict[Source, Value]) -> Value:
        """A step's value from those of its arguments."""
        record = self.plan.steps[step]
        if record.op == PICK:
            return self._pick(*record.arguments)
        arguments = [self.value(a, known) for a in record.arguments]
        if record.op == PLACE:
            return self._place(*arguments)
        if record.op == PUT:
            row, place, update = arguments
            return self._put(row, place, update, known[COLUMNS], record.attrs[0][1])
        rule: Any = PRIMITIVES[record.op].scalar
        value: Value = rule(self.scalars, *arguments, **dict(record.attrs))
        return value

    def value(self, source: Source, known: dict[Source, Value]) -> Value:
        if source[0] == "number":
            return self._number(source)
        for found in (known, self.row, self.constant):
            if source in found:
                return found[source]
        raise KeyError(source)

    def compute_rows(self, steps: Sequence[int]) -> None:
        for i in steps:
            if not self.plan.steps[i].reduces:
                self.row["step", i] = self.compute(i, {})

    def load(self, k: int, base: str, index: str, mask: str | None) -> Value:
        """One vector of what is read, at an index of the innermost loop."""
        read = self.plan.reads[k]
        if read.inner == 0:
            return self.splat(base, read.dtype)
        if read.inner < 0:
            stride = self.strides[k, self.numbers.rank - 1]
            return self.memory.gather(base, stride, index, read.dtype, mask)
        return self.memory.load(base, index, read.dtype, mask)

    # --- rows -------------------------------------------------------------------------

    def begin_row(self, bases: Bases, before: Sequence[int]) -> None:
        """Load and compute what is the same for a whole row."""
        self.row, self.bases = {}, bases
        for k, read in enumerate(self.plan.reads):
            if read.by_row and not read.by_column:
                self.row["read", k] = self.splat(bases[k], read.dtype)
        self.compute_rows(before)

    def end_row(self, bases: Bases) -> None:
        """Write what a row has one of."""
        for k, write in enumerate(self.plan.writes):
            step = self.plan.steps[write.source[1]]
            if write.role == ROW:
                value = self.value(write.source, {})
                self.memory.put(value, bases[self.first_write + k])
            elif write.role == ONE and step.reduces == ROW:
                self.add_to_total(k, bases, self.value(step.arguments[0], {}))

    def row_extent(self, index: str) -> str:
        """How many turns the outermost loop in a row takes."""
        extent = self.extents[self.plan.row_loops]
        if not self.plan.ragged:
            return extent
        start = self.b.integer("mul", index, extent)
        return self.b.least(self.b.integer("sub", self.count, start), extent)

    # --- elements of rows by index ----------------------------------------------------

    def columns(self, start: str) -> Value:
        """The columns of a vector that starts at one."""
        first = self.b.convert("trunc", Value(start, "int64"), "int32")
        return self.b.binary("add", self.b.splat(first), lane_numbers(self.b.lanes))

    def _place(self, index: Value) -> Value:
        """An index from the row's start on; -1, and an error, if it is out of range."""
        b, s = self.b, self.scalars
        index = s.cast(index, "int64")
        extent = b.splat(Value(self.extents[-1], "int64"))
        zero, none = s.const(0, index), s.const(-1, index)
        wrapped = s.select(s.less(index, zero), s.add(index, extent), index)
        valid = s.logical_and(s.less(none, wrapped), s.less(wrapped, extent))
        bad = self._first(s.logical_not(valid))
        with b.when(bad):
            error = self.entry(self.numbers.error, "ptr")
            words = ["1", self._first(index), self.extents[-1]]
            for k, word in enumerate(words):
                place = self.memory.offset(error, str(k), "i64")
                b.emit(f"store i64 {word}, ptr {place}")
        return s.cast(s.select(valid, wrapped, none), "int32")

    def _first(self, x: Value) -> str:
        """The first lane of a vector."""
        text = f"extractelement {x.type} {x.text}, i64 0"
        return self.b.let(text, x.dtype).text

    def _put(
        self, row: Value, place: Value, update: Value, columns: Value, mode: str
    ) -> Value:
        s = self.scalars
        if mode != "set":
            update = getattr(s, _COMBINED[mode])(row, update)
        return s.select(s.equal(columns, place), update, row)

    def _pick(self, source: Source, place: Source) -> Value:
        """A full value at one column, computed for it alone."""
        at = self.value(place, {})
        column = self.b.most(self._first(self.scalars.cast(at, "int64")), "0")
        known: dict[Source, Value] = {COLUMNS: at}
        for k, read in enumerate(self.plan.reads):
            if read.by_column and self._needs(source, ("read", k)):
                known["read", k] = self._element(k, column)
        for i, step in enumerate(self.plan.steps):
            if step.role == FULL and self._needs(source, ("step", i)):
                known["step", i] = self.compute(i, known)
        return self.value(source, known)

    def _needs(self, source: Source, other: Source) -> bool:
        """Whether a full value is computed from another, or is it."""
        if source == other:
            return True
        if source[0] != "step" or self.plan.steps[source[1]].role != FULL:
            return False
        arguments = self.plan.steps[source[1]].arguments
        return any(self._needs(a, other) for a in arguments)

    def _element(self, k: int, column: str) -> Value:
        """What is read at one column of the row."""
        read, base = self.plan.reads[k], self.bases[k]
        stride = str(dtypes.itemsize(read.dtype))
        if read.inner < 0:
            stride = self.strides[k, self.numbers.rank - 1]
        place = self.memory.offset(base, self.memory.times(column, stride))
        return self.splat(place, read.dtype)

    # --- partial results --------------------------------------------------------------

    def reducer_of(self, step: int) -> Reducer:
        """What combines the elements that a reduction reads."""
        record = self.plan.steps[step]
        return reducer(record.op, self._dtype(record.arguments[0]), self.b)

    def _dtype(self, source: Source) -> str:
        kind, index, *rest = source
        if kind == "number":
            return str(rest[0])
        of: Any = self.plan.reads if kind == "read" else self.plan.steps
        return str(of[index].dtype)

    def _find_partials(self, bases: Bases) -> None:
        """Go to this task's partial results; empty them if this is its beginning."""
        partial = [
            (self.first_write + k, write)
            for k, write in enumerate(self.plan.writes)
            if write.role in (COLUMN, ONE)
        ]
        if not partial:
            return
        for k, _ in partial:
            entry = self.numbers.partials + k - self.first_write
            offset = self.memory.times("%slot", self.entry(entry))
            bases[k] = self.memory.offset(bases[k], offset)
        start = self.memory.times("%slot", self.entry(self.numbers.grain))
        begins = self.b.let(f"icmp eq i64 %lo, {start}", "bool").text
        with self.b.when(begins):
            for k, write in partial:
                self._empty(bases[k], write)

    def _empty(self, base: str, write: Write) -> None:
        (nothing,) = self.reducer_of(write.source[1]).initial()
        if write.role == ONE:
            self.memory.put(nothing, base)
            return
        count = "1"
        for extent in self.extents[self.plan.row_loops :]:
            count = self.b.integer("mul", extent, count)
        for index, mask in self.vectors("0", count):
            self.memory.store(nothing, base, index, mask)

    def add_to_total(self, write: int, bases: Bases, value: Value) -> None:
        """Combine a row's value with the partial result of a write."""
        record, base = self.plan.writes[write], bases[self.first_write + write]
        combine = self.reducer_of(record.source[1])
        (total,) = combine.merge([self.splat(base, value.dtype)], [value])
        self.memory.put(total, base)

    def add_to_column(
        self, write: int, base: str, index: str, mask: str | None, value: Value
    ) -> None:
        """Combine a vector of a row with the partial results of its columns."""
        combine = self.reducer_of(self.plan.writes[write].source[1])
        total = self.memory.load(base, index, value.dtype, mask)
        (total,) = combine.merge([total], [value])
        self.memory.store(total, base, index, mask)

    # --- vectors ----------------------------------------------------------------------

    def vectors(self, low: str, high: str) -> Iterator[tuple[str, str | None]]:
        """Twice the body of a loop over elements: (index, mask), the second masked."""
        lanes = self.b.lanes
        whole = self.whole(low, high, lanes)
        with self.b.loop(low, whole, lanes) as index:
            yield index, None
        with self.b.loop(whole, high, lanes) as index:
            yield index, self.mask(self.b.integer("sub", high, index))

    def whole(self, low: str, high: str, width: int) -> str:
        """Where the part of [low, high) that is a multiple of `width` ends."""
        count = self.b.integer("sub", high, low)
        return self.b.integer("add", self.b.integer("and", count, -width), low)

    def mask(self, count: str) -> str:
        """The first `count` lanes."""
        b = self.b
        limit = b.splat(b.convert("trunc", Value(count, "int64"), "int32"))
        return b.binary("icmp slt", lane_numbers(b.lanes), limit, "bool").text


def emit_combination(op: str, dtype: str) -> Builder:
    """Combine partial results, in the order of the tasks.

    The table: the address of the partial results and of the result, how many there are,
    and the bytes from one to the next. A row is an element.
    """
    b = Builder(host().lanes)
    writer = Writer(b, Plan((), (), (), 0, 1))
    partials, result = writer.entry(0, "ptr"), writer.entry(1, "ptr")
    count, step = writer.entry(2), writer.entry(3)
    combine = reducer(op, dtype, b)
    for index, mask in writer.vectors("%lo", "%hi"):
        with b.accumulate("0", count, 1, combine.initial()) as turn:
            place = writer.memory.offset(
                partials, writer.memory.times(turn.index, step)
            )
            more = writer.memory.load(place, index, dtype, mask)
            turn.next(combine.merge(turn.values, [more]))
        writer.memory.store(turn.values[0], result, index, mask)
    return b
