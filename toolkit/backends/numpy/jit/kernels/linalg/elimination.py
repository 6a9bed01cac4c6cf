"""Gaussian elimination with partial pivoting: linear systems and determinants."""

from __future__ import annotations

from toolkit.backends.numpy.jit.builder import Index, Pointer, Value
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.linalg.stack import Matrix, StackKernel
from toolkit.backends.numpy.jit.kernels.linalg.substitution import substitute


class _Elimination(StackKernel):
    """Emits the elimination of the elements below the diagonal."""

    def __init__(self, dtype: str, operands: int, results: int) -> None:
        super().__init__(dtype, operands, results)
        self.pivots: Pointer = self.memory(1, self.filled(0, "int32"))

    def pivot(self, a: Matrix, column: Index) -> tuple[Value, Value]:
        """Return the row of the largest element from the diagonal down, and it."""
        first = [
            self.s.abs(a.get(column, column)),
            self.int32(self.int64(column)),
        ]
        with self.accumulate(column + 1, self.n, 1, first) as iteration:
            largest, row = iteration.values
            element = self.s.abs(a.get(iteration.index, column))
            is_larger = self.s.less(largest, element)
            index = self.int32(self.int64(iteration.index))
            iteration.next(
                [
                    self.select(is_larger, element, largest),
                    self.select(is_larger, index, row),
                ]
            )
        return iteration.values[1], self.s.equal(iteration.values[0], self._zero())

    def exchange(self, x: Matrix, i: Index, row: Index, lane: Index) -> None:
        """Exchange two rows of the matrix in one lane."""
        with self.loop(0, x.columns) as j:
            pair = [x.element(k, j, lane) for k in (i, row)]
            elements = [self.scalar(at, self.dtype) for at in pair]
            for at, element in zip(pair, reversed(elements), strict=True):
                self.put_scalar(element, at)

    def eliminate(self, a: Matrix, b: Matrix | None, column: Index) -> Value:
        """Eliminate a column; return the lanes in which rows were exchanged."""
        rows, is_zero = self.pivot(a, column)
        moves = self.s.logical_not(self.s.equal(rows, self.int32(self.int64(column))))
        with self.when(self.across_lanes("or", moves)):
            self.store(rows, self.pivots, 0, None)
            with self.loop(0, self.lanes) as lane:
                row = self.integer_at(self.at(self.pivots, lane, "int32"), "int32")
                with self.when(self.compare("ne", row, column)):
                    self.exchange(a, column, row, lane)
                    if b is not None:
                        self.exchange(b, column, row, lane)
        # All elements of a column without a pivot are 0.
        divisor = self.select(is_zero, self._one(), a.get(column, column))
        for block in self.row_blocks(column + 1, self.n):
            factors = [(i, self.s.divide(a.get(i, column), divisor)) for i in block]
            a.subtract_row(column, factors, (column + 1, self.n))
            if b is not None:
                b.subtract_row(column, factors, (0, b.columns))
        return moves

    def _zero(self) -> Value:
        return self.filled(0.0, self.dtype)

    def _one(self) -> Value:
        return self.filled(1.0, self.dtype)


def emit_solve(dtype: str) -> Kernel:
    """Emit x with a @ x = b, for groups of matrices a and b."""
    e = _Elimination(dtype, operands=2, results=1)
    with e.loop(e.low, e.high) as group:
        a, x = e.load_system(group)
        with e.loop(0, e.n) as column:
            e.eliminate(a, x, column)
        substitute(e, a, x, lower=False)
        e.store_result(x)
    return e


def emit_slogdet(dtype: str) -> Kernel:
    """Emit the sign and the logarithm of determinants, for groups of matrices."""
    e = _Elimination(dtype, operands=1, results=2)
    s = e.s
    with e.loop(e.low, e.high) as group:
        e.begin_group(group)
        a = e.matrix(e.n)
        e.load_operand(0, a)
        first = [e.filled(1.0, dtype), e.filled(0.0, dtype)]
        with e.accumulate(0, e.n, 1, first) as iteration:
            sign, logarithm = iteration.values
            moves = e.eliminate(a, None, iteration.index)
            pivot = a.get(iteration.index, iteration.index)
            sign = s.multiply(e.select(moves, s.negative(sign), sign), s.sign(pivot))
            logarithm = s.add(logarithm, s.log(s.abs(pivot)))
            iteration.next([sign, logarithm])
        for out, value in zip(e.results, iteration.values, strict=True):
            e.store(value, out, e.first, e.active)
    return e
