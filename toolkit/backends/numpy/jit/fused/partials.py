"""Sums over rows: one partial result for each task, and their combination.

A function loads the partial results of its task from memory. It initializes them at the
start of the task. Single numbers, and the columns of short rows, stay in registers
during the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from toolkit.backends.numpy.jit.builder import Mask, Number, Pointer, Value
from toolkit.backends.numpy.jit.fused.reducers import reducer
from toolkit.backends.numpy.jit.fused.values import Values
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.processor import current
from toolkit.plans.loops.plan import COLUMN, ONE


class Partials:
    """The partial results of one function.

    Args:
        values: the values of the function. The addresses of partial results become the
            addresses of the task's slot.
    """

    def __init__(self, values: Values) -> None:
        self.v = values
        self.b: Kernel = values.b
        self.bases = values.bases
        self.writes = {
            k: write
            for k, write in enumerate(values.plan.writes)
            if write.role in (COLUMN, ONE)
        }
        self.reducers = {
            k: values.reducer_of(write.source[1]) for k, write in self.writes.items()
        }
        # The values in registers, in the order of the parts of a row.
        self.registers: dict[int, list[Value]] = {}
        if self.writes:
            self._locate_partials()

    def _locate_partials(self) -> None:
        v = self.v
        for k in self.writes:
            offset = self.b.slot * v.entry(v.numbers.partials + k)
            array = v.first_write + k
            self.bases[array] = self.bases[array] + offset
        start = self.b.slot * v.entry(v.numbers.grain)
        with self.b.when(self.b.compare("eq", self.b.low, start)):
            for k in self.writes:
                self._initialize(k)

    def _address(self, write: int) -> Pointer:
        return self.bases[self.v.first_write + write]

    def _initialize(self, write: int) -> None:
        (identity,) = self.reducers[write].initial()
        if self.writes[write].role == ONE:
            self.b.put_first(identity, self._address(write))
            return
        count: Number = 1
        for extent in self.v.extents[self.v.plan.row_loops :]:
            count = extent * count
        for index, mask in self.b.run(0, count):
            self.b.store(identity, self._address(write), index, mask)

    def load(self, vectors: Sequence[tuple[Number, Mask]]) -> list[Value]:
        """Load the partial results that stay in registers.

        Args:
            vectors: the (column, mask) of each vector of a row in registers.
        """
        b = self.b
        for k, write in self.writes.items():
            dtype = write.dtype
            if write.role == ONE:
                self.registers[k] = [self.v.splat(self._address(k), dtype)]
            elif vectors:
                self.registers[k] = [
                    b.load(self._address(k), start, dtype, mask)
                    for start, mask in vectors
                ]
        return self.values

    def store(self, vectors: Sequence[tuple[Number, Mask]]) -> None:
        """Store the partial results that are in registers."""
        b = self.b
        for k, values in self.registers.items():
            if self.writes[k].role == ONE:
                b.put_first(values[0], self._address(k))
                continue
            for value, (start, mask) in zip(values, vectors, strict=True):
                b.store(value, self._address(k), start, mask)

    @property
    def values(self) -> list[Value]:
        """The values in registers, in order."""
        return list(chain.from_iterable(self.registers.values()))

    def set_registers(self, values: Sequence[Value]) -> None:
        """Replace the values in registers."""
        remaining = list(values)
        for k, old in self.registers.items():
            self.registers[k], remaining = remaining[: len(old)], remaining[len(old) :]

    def add(self, write: int, value: Value, vector: int = 0) -> None:
        """Merge a value into a partial result in a register."""
        registers = self.registers[write]
        (registers[vector],) = self.reducers[write].merge([registers[vector]], [value])

    def add_in_memory(
        self, write: int, base: Pointer, index: Number, mask: Mask, value: Value
    ) -> None:
        """Merge a vector of a row into the partial results of its columns."""
        total = self.b.load(base, index, value.dtype, mask)
        (total,) = self.reducers[write].merge([total], [value])
        self.b.store(total, base, index, mask)


def emit_combination(op: str, dtype: str) -> Kernel:
    """Emit the combination of partial results, in the order of the tasks.

    The table contains the addresses of the partial results and of the result, the
    number of partial results, and their stride in bytes. A row is an element.
    """
    b = Kernel(current().lanes)
    combine = reducer(op, dtype, b)
    partials, result = b.address(0), b.address(1)
    count, step = b.entry(2), b.entry(3)
    for index, mask in b.run(b.low, b.high):
        with b.accumulate(0, count, 1, combine.initial()) as iteration:
            partial = partials + iteration.index * step
            value = b.load(partial, index, dtype, mask)
            iteration.next(combine.merge(iteration.values, [value]))
        b.store(iteration.values[0], result, index, mask)
    return b
