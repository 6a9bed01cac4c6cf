"""Stacks of small matrices in scratch memory, with one matrix in each lane.

An algorithm on matrices has loops over their elements only. Its decisions, such as the
choice of a pivot row, are masks of lanes. So it has no vectors that are not full.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import Index, Number, Pointer, Value
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.processor import current
from toolkit.backends.numpy.jit.scalars import LLVMScalars

# The rows that an iteration updates with one load of the subtracted row.
_ROW_BLOCK = 4


def lanes_of(dtype: str) -> int:
    """Return the number of matrices of a group: the elements of a vector."""
    return max(1, current().lanes * 4 // dtypes.itemsize(dtype))


class Matrix:
    """One matrix of each lane, in scratch memory, in row-major order.

    Args:
        b: the builder.
        dtype: of the elements.
        start: the address of the scratch memory.
        columns: the number of columns.
    """

    def __init__(self, b: Kernel, dtype: str, start: Pointer, columns: Number) -> None:
        self.b, self.dtype, self.start, self.columns = b, dtype, start, columns

    def get(self, i: Number, j: Number) -> Value:
        """Return the element (i, j) of all lanes."""
        return self.b.load(self.start, self._index(i, j), self.dtype, None)

    def put(self, value: Value, i: Number, j: Number) -> None:
        """Set the element (i, j) of all lanes."""
        self.b.store(value, self.start, self._index(i, j), None)

    def element(self, i: Number, j: Number, lane: Number) -> Pointer:
        """Return the address of the element (i, j) of one lane."""
        return self.b.at(self.start, self._index(i, j) + lane, self.dtype)

    def subtract_row(
        self,
        row: Number,
        factors: Sequence[tuple[Number, Value]],
        columns: tuple[Number, Number],
    ) -> None:
        """Subtract the multiples of a row from other rows, in a range of columns.

        Args:
            row: the subtracted row.
            factors: pairs of another row and its factor.
            columns: the first column, and the end.
        """
        with self.b.loop(*columns) as j:
            self.subtract(self.get(row, j), factors, j)

    def subtract(
        self, x: Value, factors: Sequence[tuple[Number, Value]], j: Number
    ) -> None:
        """Subtract the multiples of a value from the elements of column j."""
        minus_x = LLVMScalars(self.b).negative(x)
        for i, factor in factors:
            self.put(self.b.intrinsic("fma", factor, minus_x, self.get(i, j)), i, j)

    def _index(self, i: Number, j: Number) -> Number:
        return (i * self.columns + j) * self.b.lanes


class MatricesKernel(Kernel):
    """Writer of a kernel on matrices: its table.

    The table holds the addresses of the operands, the scratch memory and the error
    block. The numbers are the extents n and k, the number of matrices, the bytes of a
    task's scratch memory, and the byte strides of a matrix, a row and a column of each
    operand.

    Args:
        dtype: of the matrices.
        operands: the number of inputs.
        results: the number of outputs.
    """

    def __init__(self, dtype: str, operands: int, results: int) -> None:
        super().__init__(lanes_of(dtype))
        self.s = LLVMScalars(self)
        self.dtype = dtype
        self.operands = [self.next_address() for _ in range(operands)]
        self.results = [self.next_address(dtype) for _ in range(results)]
        work, self.error = self.next_address(), self.next_address()
        self.n, self.k, self.count, task = (self.next_entry() for _ in range(4))
        self.strides = [[self.next_entry() for _ in range(3)] for _ in range(operands)]
        self.work: Pointer = work + self.slot * task


class StackKernel(MatricesKernel):
    """Writer of a kernel whose rows are groups of as many matrices as lanes."""

    def __init__(self, dtype: str, operands: int, results: int) -> None:
        super().__init__(dtype, operands, results)
        # The first matrix of a group, and the number of its matrices.
        self.first: Index = self.low
        self.size: Number = self.lanes

    def begin_group(self, group: Index) -> None:
        """Select a group of matrices, and the lanes that hold one."""
        self.first = self.index(f"add i64 0, {group * self.lanes}")
        self.size = self.min(self.count - self.first, self.lanes)
        self.active = self.first_lanes(self.size)

    def load_system(self, group: Index) -> tuple[Matrix, Matrix]:
        """Select a group, and load its matrices and its right-hand sides."""
        self.begin_group(group)
        a = self.matrix(self.n)
        x = self.matrix(self.k, after=a)
        self.load_operand(0, a)
        self.load_operand(1, x)
        return a, x

    def matrix(self, columns: Number, after: Matrix | None = None) -> Matrix:
        """Return scratch memory for a matrix: the first one, or the next one."""
        start = self.work
        if after is not None:
            elements = self.n * after.columns * self.lanes
            start = after.start + elements * dtypes.itemsize(self.dtype)
        return Matrix(self, self.dtype, start, columns)

    def load_operand(self, number: int, target: Matrix) -> None:
        """Load the matrices of a group."""
        base, (stack, row, column) = self.operands[number], self.strides[number]
        itemsize, size = dtypes.itemsize(self.dtype), self.n * target.columns
        is_packed = self.s.logical_and(
            self.compare("eq", column, itemsize),
            self.compare("eq", row, target.columns * itemsize),
        )
        start = base + self.first * stack
        blocks = self._end_of_blocks(size, is_packed)
        with self.loop(0, blocks, self.lanes) as e:
            rows = [
                self.load(start + stack * lane, e, self.dtype, None)
                for lane in range(self.lanes)
            ]
            for k, column_of_block in enumerate(self.transposed(rows)):
                self.store(column_of_block, target.start, (e + k) * self.lanes, None)
        with self.loop(blocks, size) as e:
            i, j = self.split(e, target.columns)
            at = start + (i * row + j * column)
            element = self.gather(at, stack, 0, self.dtype, self.active)
            self.store(element, target.start, e * self.lanes, None)

    def store_result(
        self, source: Matrix, number: int = 0, rows: Number | None = None
    ) -> None:
        """Store the first rows of the matrices of a group in consecutive memory."""
        size = (self.n if rows is None else rows) * source.columns
        out = self.results[number] + self.first * size
        blocks = self._end_of_blocks(size, Value("true", "bool"))
        with self.loop(0, blocks, self.lanes) as e:
            block = [
                self.load(source.start, (e + k) * self.lanes, self.dtype, None)
                for k in range(self.lanes)
            ]
            for k, elements in enumerate(self.transposed(block)):
                self.store(elements, out + size * k, e, None)
        with self.loop(0, self.size) as lane, self.loop(blocks, size) as e:
            element = self.at(source.start, e * self.lanes + lane, self.dtype)
            self.put_scalar(self.scalar(element, self.dtype), out + (lane * size + e))

    def _end_of_blocks(self, size: Number, is_packed: Value) -> Index:
        """Return the end of the elements that are moved in square blocks.

        Only a group without unused lanes of packed matrices has blocks.
        """
        is_full = self.compare("eq", self.size, self.lanes)
        full = self.whole_vectors(0, size, self.lanes)
        return self.choose(self.s.logical_and(is_full, is_packed), full, 0)

    def divide_row(self, x: Matrix, row: Number, divisor: Value) -> None:
        """Divide a row of each lane."""
        with self.loop(0, x.columns) as j:
            x.put(self.s.divide(x.get(row, j), divisor), row, j)

    def row_blocks(self, low: Number, high: Number) -> Iterator[list[Number]]:
        """Emit loops over rows.

        Yield the rows of an iteration twice, for the bodies of two loops. The first
        loop visits several rows, the second the remainder.
        """
        end = self.whole_vectors(low, high, _ROW_BLOCK)
        with self.loop(low, end, _ROW_BLOCK) as i:
            yield [i + row for row in range(_ROW_BLOCK)]
        with self.loop(end, high) as i:
            yield [i]

    def note_problem(self, is_bad: Value) -> None:
        """Record an error if a condition is true for a matrix of the group."""
        is_bad = self.s.logical_and(is_bad, self.active)
        with self.when(self.across_lanes("or", is_bad)):
            self.note_bad_index(self.error, self.int64(self.first), self.count)
