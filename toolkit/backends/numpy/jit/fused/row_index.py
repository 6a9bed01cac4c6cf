"""Access to elements of rows by index, inside the loops of a fused body."""

from __future__ import annotations

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import Index, Number, Value
from toolkit.backends.numpy.jit.fused.values import COLUMNS, Available, Values
from toolkit.plans.loops.plan import (
    CHECK_INDEX,
    FULL,
    GATHER_ELEMENT,
    UPDATE_ELEMENT,
    UPDATES,
    Source,
)


class RowElementValues(Values):
    """Values of a function, with elements at an index that is computed."""

    def compute(self, step: int, values: Available) -> Value:
        record = self.plan.steps[step]
        if record.op == GATHER_ELEMENT:
            return self._gather_element(*record.arguments)
        if record.op not in (CHECK_INDEX, UPDATE_ELEMENT):
            return super().compute(step, values)
        arguments = [self.value(a, values) for a in record.arguments]
        if record.op == CHECK_INDEX:
            return self._check_index(*arguments)
        row, at, update = arguments
        return self._update_element(
            row, at, update, values[COLUMNS], record.attrs[0][1]
        )

    def _check_index(self, index: Value) -> Value:
        """Check an index and normalize it; -1, and an error, if it is out of range."""
        b, s = self.b, self.scalars
        index = s.cast(index, "int64")
        extent = b.splat(self.extents[-1])
        zero, none = s.const(0, index), s.const(-1, index)
        wrapped = s.select(s.less(index, zero), s.add(index, extent), index)
        valid = s.logical_and(s.less(none, wrapped), s.less(wrapped, extent))
        with b.when(b.first_lane(s.logical_not(valid))):
            error = b.address(self.numbers.error)
            b.note_bad_index(error, b.first_lane(index), self.extents[-1])
        return s.cast(s.select(valid, wrapped, none), "int32")

    def _update_element(
        self, row: Value, column: Value, update: Value, columns: Value, mode: str
    ) -> Value:
        """Emit a vector of a row with an update at one column."""
        s = self.scalars
        if mode != "set":
            update = getattr(s, UPDATES[mode])(row, update)
        return s.select(s.equal(columns, column), update, row)

    def _gather_element(self, source: Source, column_source: Source) -> Value:
        """Compute a full value for one column only."""
        at = self.value(column_source, {})
        # If the index is out of range, the result is unused: any column is valid.
        wide = self.b.first_lane(self.scalars.cast(at, "int64"))
        column = self.b.max(Index(self.b, wide.text), 0)
        needed = self._find_dependencies(source)
        values: Available = {COLUMNS: at}
        for k, read in enumerate(self.plan.reads):
            if read.by_column and ("read", k) in needed:
                values["read", k] = self._load_element(k, column)
        for i, step in enumerate(self.plan.steps):
            if step.role == FULL and ("step", i) in needed:
                values["step", i] = self.compute(i, values)
        return self.value(source, values)

    def _find_dependencies(self, source: Source) -> set[Source]:
        """Return the full values that a value depends on, with the value."""
        needed, stack = set(), [source]
        while stack:
            source = stack.pop()
            if source not in needed:
                needed.add(source)
                if source[0] == "step" and self.plan.steps[source[1]].role == FULL:
                    stack += self.plan.steps[source[1]].arguments
        return needed

    def _load_element(self, k: int, column: Number) -> Value:
        """Load the element at one column of the row."""
        read = self.plan.reads[k]
        stride: Number = dtypes.itemsize(read.dtype)
        if read.inner != 1:
            stride = self.strides[k, self.numbers.rank - 1]
        return self.splat(self.row_bases[k] + column * stride, read.dtype)
