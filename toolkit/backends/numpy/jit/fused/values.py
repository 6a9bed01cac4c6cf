"""The values of a fused body: reads, computed steps, and values of a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import Index, Mask, Number, Pointer, Value
from toolkit.backends.numpy.jit.fused.reducers import Reducer, reducer
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.scalars import LLVMScalars
from toolkit.ir import PRIMITIVES
from toolkit.plans.loops.plan import COLUMN, FULL, ROW, LoopNest, Source

# The address of every array at the current loop indices.
Bases = list[Pointer]
# The available values of one vector.
Available = dict[Source, Value]
# The columns of the current vector.
COLUMNS: Source = ("columns",)


class Numbers:
    """The entries of a plan's numbers in the table.

    unit: iterations of the outermost loop per row of the call; grain: rows of a task;
        count: the total number of elements. The next entries are the stride between the
        buffers of tasks, and between the buffers of a task. Then follow the extents of
        the loops, the stride between partial results of each write, and the strides of
        every array, outermost loop first. All strides are in bytes. The last entries
        are the bits of the parameters.
    """

    grain: int
    count: int
    task_buffers: int
    next_buffer: int

    def __init__(self, plan: LoopNest) -> None:
        arrays = len(plan.reads) + len(plan.writes)
        self.rank: int = plan.row_loops + plan.column_loops
        self.buffer = arrays
        self.error: int = arrays + 1
        self.unit: int = arrays + 1 + plan.accesses_elements
        self.grain, self.count, self.task_buffers, self.next_buffer = (
            self.unit + i for i in range(1, 5)
        )
        self.extents: int = self.unit + 5
        self.partials: int = self.extents + self.rank
        self.strides: int = self.partials + len(plan.writes)
        self.parameters: int = self.strides + arrays * self.rank

    def stride(self, array: int, loop: int) -> int:
        """Return the entry of an array's stride along a loop."""
        return self.strides + array * self.rank + loop


class Values:
    """Emitter of loads and computations.

    Args:
        builder: the builder of the function.
        plan: the plan of the function.
    """

    def __init__(self, builder: Kernel, plan: LoopNest) -> None:
        self.b = builder
        self.plan = plan
        self.scalars: LLVMScalars = LLVMScalars(builder)
        self.entry = self.b.entry
        self.numbers: Numbers = Numbers(plan)
        self.first_write: int = len(plan.reads)
        self.strides: dict[tuple[int, int], Index] = {}
        # Values that are constant during the call, and during a row.
        self.constant: Available = {}
        self.row: Available = {}
        self.bases = self._load_table()
        self._hoist(self.bases)

    # --- the table --------------------------------------------------------------------

    def _load_table(self) -> Bases:
        plan, numbers = self.plan, self.numbers
        arrays = len(plan.reads) + len(plan.writes)
        bases = [self.b.address(i) for i in range(arrays)]
        self.extents: list[Index] = [
            self.entry(numbers.extents + i) for i in range(numbers.rank)
        ]
        self.count: Number = self.entry(numbers.count) if plan.is_ragged else 0
        last = numbers.rank - 1
        for array in range(arrays):
            for loop in range(numbers.rank):
                jumps = array < self.first_write and plan.reads[array].inner != 1
                if (loop < last or jumps) and self._varies_along(array, loop):
                    entry = self.entry(numbers.stride(array, loop))
                    self.strides[array, loop] = entry
        return bases

    def _varies_along(self, array: int, loop: int) -> bool:
        """Return whether an array's address can vary along a loop."""
        in_row = loop >= self.plan.row_loops
        if array < self.first_write:
            read = self.plan.reads[array]
            return read.by_column if in_row else read.by_row
        role = self.plan.writes[array - self.first_write].role
        return role in ((FULL, COLUMN) if in_row else (FULL, ROW))

    def bases_at(self, bases: Bases, loop: int, index: Number) -> Bases:
        """Return the addresses at an index of a loop."""
        return [
            base + index * self.strides[array, loop]
            if (array, loop) in self.strides
            else base
            for array, base in enumerate(bases)
        ]

    def _hoist(self, bases: Bases) -> None:
        """Load the values that are constant during the call."""
        for k, read in enumerate(self.plan.reads):
            if not read.by_row and not read.by_column:
                self.constant["read", k] = self.splat(bases[k], read.dtype)
        for source in dict.fromkeys(a for s in self.plan.steps for a in s.arguments):
            if source[0] == "parameter":
                self.constant[source] = self._parameter(source)

    def _parameter(self, source: Source) -> Value:
        """Load a parameter into all lanes of a vector."""
        _, index, dtype = source
        bits: Value = self.entry(self.numbers.parameters + index)
        if dtypes.itemsize(dtype) == 4:
            bits = self.b.convert("trunc", bits, "int32")
        return self.b.splat(self.b.convert("bitcast", bits, dtype))

    def splat(self, base: Pointer, dtype: str) -> Value:
        """Broadcast the element at an address to a vector."""
        return self.b.splat(self.b.scalar(base, dtype))

    # --- values -----------------------------------------------------------------------

    def _number(self, source: Source) -> Value:
        _, content, dtype = source
        number = np.frombuffer(bytes.fromhex(content), dtypes.numpy_dtype(dtype))[0]
        return self.b.filled(number, dtype)

    def compute(self, step: int, available: Available) -> Value:
        """Compute the value of a step from its arguments."""
        record = self.plan.steps[step]
        arguments = [self.value(a, available) for a in record.arguments]
        rule: Any = PRIMITIVES[record.op].scalar
        value: Value = rule(self.scalars, *arguments, **dict(record.attrs))
        return value

    def value(self, source: Source, available: Available) -> Value:
        """Return a number, an available value, or a value of the row or the call."""
        if source[0] == "number":
            return self._number(source)
        for values in (available, self.row, self.constant):
            if source in values:
                return values[source]
        raise KeyError(source)

    def compute_rows(self, steps: Sequence[int]) -> None:
        """Compute the steps with one element for each row."""
        for i in steps:
            if not self.plan.steps[i].reduces:
                self.row["step", i] = self.compute(i, {})

    def load(self, k: int, base: Pointer, index: Number, mask: Mask) -> Value:
        """Load one vector of a read, at an index of the innermost loop."""
        read = self.plan.reads[k]
        if read.inner == 0:
            return self.splat(base, read.dtype)
        if read.inner == 1 or read.is_transposed:
            return self.b.load(base, index, read.dtype, mask)
        if read.inner is not None:
            return self.b.load_strided(base, read.inner, index, read.dtype, mask)
        stride = self.strides[k, self.numbers.rank - 1]
        return self.b.gather(base, stride, index, read.dtype, mask)

    def columns(self, start: Number) -> Value:
        """Emit the columns of the vector that starts at a column."""
        first = self.b.int32(self.b.int64(start))
        return self.b.binary("add", first, self.b.lane_numbers())

    # --- rows -------------------------------------------------------------------------

    def begin_row(self, bases: Bases, before: Sequence[int]) -> None:
        """Load and compute the values that are constant during a row."""
        self.row, self.row_bases = {}, bases
        for k, read in enumerate(self.plan.reads):
            if read.by_row and not read.by_column:
                self.row["read", k] = self.splat(bases[k], read.dtype)
        self.compute_rows(before)

    def row_extent(self, index: Number) -> Number:
        """Return the extent of the outermost loop within a row."""
        extent = self.extents[self.plan.row_loops]
        if not self.plan.is_ragged:
            return extent
        start = index * extent
        return self.b.min(self.count - start, extent)

    def reducer_of(self, step: int) -> Reducer:
        """Return the reducer of a reduction."""
        record = self.plan.steps[step]
        return reducer(record.op, self._dtype(record.arguments[0]), self.b)

    def _dtype(self, source: Source) -> str:
        kind, index, *fields = source
        if kind in ("number", "parameter"):
            return str(fields[0])
        of: Any = self.plan.reads if kind == "read" else self.plan.steps
        return str(of[index].dtype)
