"""Triangular systems of any size with few columns: vectors along the matrix."""

from __future__ import annotations

from functools import reduce

from toolkit.backends.numpy.jit.builder import Index, Number, Pointer, Value
from toolkit.backends.numpy.jit.fused.reducers import Reducer
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.linalg.stack import lanes_of
from toolkit.backends.numpy.jit.scalars import LLVMScalars

# Independent accumulators, which hide the latency of an addition.
_ACCUMULATORS = 4


class _VectorSystem(Kernel):
    """Emits x with a @ x = b for each column of b.

    A row of the call is a pair of a matrix and a column. The table is the table of a
    `StackKernel` with two operands and one result.

    Args:
        dtype: of the operands.
        lower: whether to read the lower triangle.
    """

    def __init__(self, dtype: str, lower: bool) -> None:
        super().__init__(lanes_of(dtype))
        self.s, self.dtype, self.lower = LLVMScalars(self), dtype, lower
        a, b = self.next_address(), self.next_address()
        self.out, work = self.next_address(dtype), self.next_address()
        self.error: Pointer = self.next_address()
        self.n, self.k, _, task = (self.next_entry() for _ in range(4))
        strides = [[self.next_entry() for _ in range(3)] for _ in range(2)]
        (stack, self.row, self.column), (stack_b, row_b, column_b) = strides
        self.x = Pointer(self, (work + self.slot * task).text, Value("", dtype).type)
        self.a = a
        with self.loop(self.low, self.high) as pair:
            matrix, column = self.split(pair, self.k)
            self.a = a + matrix * stack
            source = b + (matrix * stack_b + column * column_b)
            with self.loop(0, self.n) as i:
                self.put_scalar(self.scalar(source + i * row_b, dtype), self.x + i)
            self.solve()
            with self.loop(0, self.n) as i:
                target = self.out + ((matrix * self.n + i) * self.k + column)
                self.put_scalar(self.scalar(self.x + i, dtype), target)

    def solve(self) -> None:
        """Solve the system in scratch memory."""
        with self.loop(0, self.n) as step:
            row = step if self.lower else self.n - 1 - step
            pivot = self.scalar(self.a + row * (self.row + self.column), self.dtype)
            zero = self.constant(0.0, pivot)
            with self.when(self.s.equal(pivot, zero)):
                self.note_bad_index(self.error, self.int64(row), self.n)
            self.solve_row(row, pivot)

    def solve_row(self, row: Index, pivot: Value) -> None:
        """Compute one element of the result."""
        raise NotImplementedError

    def earlier_rows(self, row: Index) -> tuple[Number, Number]:
        """Return the range of the elements that are computed before one."""
        return (0, row) if self.lower else (row + 1, self.n)

    def divide_element(self, row: Index, total: Value | None, pivot: Value) -> Value:
        """Return the element minus a sum, divided by the pivot, and store it."""
        element = self.scalar(self.x + row, self.dtype)
        if total is not None:
            element = self.s.subtract(element, total)
        element = self.s.divide(element, pivot)
        self.put_scalar(element, self.x + row)
        return element


class _ByRows(_VectorSystem):
    """Substitution for contiguous rows: a scalar product for each row."""

    def solve_row(self, row: Index, pivot: Value) -> None:
        """Subtract the product of the row with the earlier elements."""
        line, (low, high) = self.a + row * self.row, self.earlier_rows(row)
        width = _ACCUMULATORS * self.lanes
        end = self.whole_vectors(low, high, width)
        zeros: list[Value] = [self.filled(0.0, self.dtype)] * _ACCUMULATORS
        with self.accumulate(low, end, width, zeros) as iteration:
            iteration.next(
                [
                    self._add(line, iteration.index + k * self.lanes, total)
                    for k, total in enumerate(iteration.values)
                ]
            )
        total = reduce(self.s.add, iteration.values)
        with self.accumulate(end, high, self.lanes, [total]) as iteration:
            index, (total,) = iteration.index, iteration.values
            iteration.next([self._add(line, index, total, high)])
        total = Reducer("sum", self.dtype, self).finish(iteration.values)
        self.divide_element(row, self.first_lane(total), pivot)

    def _add(
        self, line: Pointer, index: Number, total: Value, high: Number | None = None
    ) -> Value:
        """Add the products of a vector, which ends before `high`."""
        mask = None if high is None else self.first_lanes(high - index)
        x = self.load(self.x, index, self.dtype, mask)
        return self.intrinsic("fma", self.load(line, index, self.dtype, mask), x, total)


class _ByColumns(_VectorSystem):
    """Substitution for contiguous columns: each element updates the later ones."""

    def solve_row(self, row: Index, pivot: Value) -> None:
        """Subtract the multiple of the column from the later elements."""
        element = self.divide_element(row, None, pivot)
        factor = self.splat(self.s.negative(element))
        column = self.a + row * self.column
        later = (row + 1, self.n) if self.lower else (0, row)
        for index, mask in self.run(*later):
            entry = self.load(column, index, self.dtype, mask)
            x = self.load(self.x, index, self.dtype, mask)
            self.store(self.intrinsic("fma", entry, factor, x), self.x, index, mask)


def emit_solve_vector(dtype: str, lower: bool, by_rows: bool) -> Kernel:
    """Emit x with a @ x = b, for each column of b."""
    return (_ByRows if by_rows else _ByColumns)(dtype, lower)
