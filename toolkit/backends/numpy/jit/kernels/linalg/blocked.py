"""Gaussian elimination of larger matrices, one after another, in blocks.

A matrix and its right-hand side are copied side by side to scratch memory, in row-major
order. Both extents are padded to whole vectors. The padding continues the matrix by the
identity, so that it does not change a result. A block has as many columns as a vector
has lanes: a row of the block is one register. All later columns, which include the
right-hand side, are updated by matrix products.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import Index, Number, Pointer, Range, Value
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.linalg.stack import MatricesKernel
from toolkit.backends.numpy.jit.processor import current

# The rows and the vectors of a tile of a product, by the number of vector registers.
_TILE = {32: (8, 3), 16: (4, 2)}
# The terms of a product that an iteration adds.
_UNROLLED_TERMS = 4
# The smallest normal number: its reciprocal is finite.
_TINY = {"float32": 2.0**-126, "float64": 2.0**-1022}


def padded_sizes(n: int, k: int, lanes: int) -> tuple[int, int]:
    """Return the padded extent of a matrix, and the length of a row in elements.

    A row has an odd number of vectors: its columns would otherwise compete for a few
    lines of the cache.
    """
    rows, columns = (-(-extent // lanes) for extent in (n, k))
    return rows * lanes, (rows + columns | 1) * lanes


class BlockedKernel(MatricesKernel):
    """Writer of a kernel whose rows are single matrices.

    The table is the table of a `MatricesKernel`, and then the padded extent of the
    matrix and the length of a row, see `padded_sizes`. Rows of the operands are
    contiguous.

    Args:
        dtype: of the matrices.
        operands: the number of inputs.
        results: the number of outputs.
    """

    def __init__(self, dtype: str, operands: int, results: int) -> None:
        super().__init__(dtype, operands, results)
        self.rows, self.width = self.next_entry(), self.next_entry()
        # The end of the columns of the right-hand side.
        self.end: Number = self.rows
        if operands > 1:
            self.end = self.whole_vectors(0, self.k + (self.lanes - 1), self.lanes)
            self.end = self.end + self.rows
        self.a = Pointer(self, self.work.text, Value("", dtype).type)
        pivots = self.a + self.rows * self.width
        self.pivots: Pointer = Pointer(self, pivots.text, "i32")
        self.candidates: Pointer = self.memory(1, self.filled(0, "int32"))

    # --- memory -----------------------------------------------------------------------

    def row(self, i: Number, column: Number = 0) -> Pointer:
        """Return the address of an element in scratch memory."""
        return self.a + (i * self.width + column)

    def vector(self, i: Number, column: Number) -> Value:
        """Load a vector of a row."""
        return self.load(self.row(i), column, self.dtype, None)

    def put(self, x: Value, i: Number, column: Number) -> None:
        """Store a vector of a row."""
        self.store(x, self.row(i), column, None)

    def factor(self, i: Number, column: Number) -> Value:
        """Load an element, and broadcast it."""
        return self.splat(self.scalar(self.row(i, column), self.dtype))

    def load_matrices(self, index: Index) -> None:
        """Load the matrices with an index, and pad them."""
        zero = self.filled(0.0, self.dtype)
        with self.loop(0, self.rows * self.width, self.lanes) as e:
            self.store(zero, self.a, e, None)
        extents: list[Range] = [(0, self.n), (self.rows, self.k)]
        for number, base in enumerate(self.operands):
            (start, columns), (stack, step, _) = extents[number], self.strides[number]
            source = base + index * stack
            with self.loop(0, self.n) as i:
                line, target = source + i * step, self.row(i, start)
                for j, mask in self.run(0, columns):
                    x = self.load(line, j, self.dtype, mask)
                    self.store(x, target, j, mask)
        one = Value(self.constant(1.0, Value("", self.dtype)).text, self.dtype)
        with self.loop(self.n, self.rows) as i:
            self.put_scalar(one, self.row(i, i))

    def store_columns(
        self, index: Index, start: Number, columns: Number, number: int = 0
    ) -> None:
        """Store a range of columns as the result of the matrix with an index."""
        out = self.results[number] + index * (self.n * columns)
        with self.loop(0, self.n) as i:
            line, target = self.row(i, start), out + i * columns
            for j, mask in self.run(0, columns):
                self.store(self.load(line, j, self.dtype, mask), target, j, mask)

    # --- elimination ------------------------------------------------------------------

    def eliminate(self) -> None:
        """Replace the matrix by its LU decomposition, and the right-hand side.

        The right-hand side becomes the solution of the system of the lower triangle.
        """
        with self.loop(0, self.rows, self.lanes) as start:
            self._eliminate_block(start)
            later = start + self.lanes
            self._solve_unit_lower(start, (later, self.end))
            self.subtract_product(start, (later, self.rows), (later, self.end))

    def _eliminate_block(self, start: Index) -> None:
        """Eliminate the columns of a block, within the block."""
        state = self._best(None, self.vector(start, start), start)
        with self.accumulate(start + 1, self.rows, 1, state) as iteration:
            x = self.vector(iteration.index, start)
            iteration.next(self._best(iteration.values, x, iteration.index))
        self.store(iteration.values[1], self.candidates, 0, None)
        with self.loop(0, self.lanes) as lane:
            column = start + lane
            self._exchange(column, lane)
            scale = self._reciprocal(column)
            self._eliminate_column(start, lane, scale)

    def _best(self, state: Sequence[Value] | None, x: Value, row: Index) -> list[Value]:
        """Return the largest magnitude and its row, for each column of a block."""
        magnitude, number = self.s.abs(x), self.int32(self.int64(row))
        if state is None:
            return [magnitude, number]
        is_larger = self.s.less(state[0], magnitude)
        pairs = zip((magnitude, number), state, strict=True)
        return [self.select(is_larger, new, old) for new, old in pairs]

    def _exchange(self, column: Index, lane: Index) -> None:
        """Exchange a row and the row of its pivot, the candidate of a lane."""
        candidate = self.at(self.candidates, lane, "int32")
        pivot = self.integer_at(candidate, "int32")
        self.put_scalar(self.scalar(candidate, "int32"), self.pivots + column)
        with self.when(self.compare("ne", pivot, column)):
            first, second = self.row(column), self.row(pivot)
            with self.loop(0, self.end, self.lanes) as j:
                x, y = (self.load(p, j, self.dtype, None) for p in (first, second))
                self.store(y, first, j, None)
                self.store(x, second, j, None)

    def _reciprocal(self, column: Index) -> Value:
        """Return the factor that divides a column by its pivot.

        The reciprocal of a denormal number can be infinite. The column is then divided
        in memory, and the factor is 1. A column without a pivot is 0.
        """
        pivot = self.scalar(self.row(column, column), self.dtype)
        one = self.constant(1.0, pivot)
        tiny = self.constant(_TINY[self.dtype], pivot)
        is_zero = self.s.equal(pivot, self.constant(0.0, pivot))
        is_tiny = self.s.less(self.s.abs(pivot), tiny)
        divisor = self.select(is_zero, one, pivot)
        with self.when(is_tiny), self.loop(column + 1, self.rows) as i:
            at = self.row(i, column)
            self.put_scalar(self.s.divide(self.scalar(at, self.dtype), divisor), at)
        return self.s.divide(one, self.select(is_tiny, one, pivot))

    def _eliminate_column(self, start: Index, lane: Index, scale: Value) -> None:
        """Subtract multiples of the row of a pivot, and find the next candidates."""
        column = start + lane
        numbers = self.int32(self.int64(lane))
        is_later = self.s.less(numbers, self.lane_numbers())
        zero = self.filled(0.0, self.dtype)
        pivot_row = self.select(is_later, self.vector(column, start), zero)
        minus_row = self.s.negative(pivot_row)
        # A magnitude is larger than -1, except NaN.
        first = [self.filled(-1.0, self.dtype), self.int32(self.int64(column + 1))]
        with self.accumulate(column + 1, self.rows, 1, first) as iteration:
            i = iteration.index
            at = self.row(i, column)
            multiple = self.s.multiply(self.scalar(at, self.dtype), scale)
            x = self.vector(i, start)
            x = self.intrinsic("fma", self.splat(multiple), minus_row, x)
            self.put(x, i, start)
            self.put_scalar(multiple, at)
            iteration.next(self._best(iteration.values, x, i))
        self.store(iteration.values[1], self.candidates, 0, None)

    # --- triangles --------------------------------------------------------------------

    def _solve_unit_lower(self, start: Index, columns: Range) -> None:
        """Solve the system of a block's lower triangle, with a diagonal of ones."""
        lanes = range(self.lanes)
        with self.loop(*columns, self.lanes) as j:
            xs = [self.vector(start + i, j) for i in lanes]
            for i in lanes:
                self._subtract_row(start, xs, i, lanes[i + 1 :])
            for i, x in enumerate(xs):
                self.put(x, start + i, j)

    def _subtract_row(
        self, start: Index, xs: list[Value], i: int, others: range
    ) -> None:
        """Subtract multiples of the row i of a block from other rows."""
        minus_x = self.s.negative(xs[i])
        for other in others:
            factor = self.factor(start + other, start + i)
            xs[other] = self.intrinsic("fma", factor, minus_x, xs[other])

    def substitute(self, lower: bool) -> None:
        """Solve the system of a triangle for the right-hand side."""
        lanes, columns = range(self.lanes), (self.rows, self.end)
        with self.loop(0, self.rows, self.lanes) as step:
            start = step if lower else self.rows - self.lanes - step
            with self.loop(*columns, self.lanes) as j:
                xs = [self.vector(start + i, j) for i in lanes]
                for i in lanes if lower else reversed(lanes):
                    pivot = self.factor(start + i, start + i)
                    xs[i] = self.s.divide(xs[i], pivot)
                    self._subtract_row(
                        start, xs, i, lanes[i + 1 :] if lower else lanes[:i]
                    )
                for i, x in enumerate(xs):
                    self.put(x, start + i, j)
            remaining = (start + self.lanes, self.rows) if lower else (0, start)
            self.subtract_product(start, remaining, columns)

    def note_zero_pivots(self, index: Index) -> None:
        """Record an error if the diagonal of the matrix with an index has a zero."""
        with self.loop(0, self.n) as i:
            pivot = self.scalar(self.row(i, i), self.dtype)
            with self.when(self.s.equal(pivot, self.constant(0.0, pivot))):
                self.note_bad_index(self.error, self.int64(index), self.count)

    def subtract_product(self, start: Index, rows: Range, columns: Range) -> None:
        """Subtract the product of a block's columns and its rows, from a rectangle.

        Args:
            start: the first row and column of the block.
            rows, columns: the ranges of the rectangle.
        """
        height, vectors = _TILE[min(current().registers, 32)]
        height = min(height, self.lanes)
        size = vectors * self.lanes
        whole = (columns[1] - columns[0]) // size * size + columns[0]
        for low, high, count in ((columns[0], whole, vectors), (whole, columns[1], 1)):
            with self.loop(low, high, count * self.lanes) as j:
                with self.loop(*rows, height) as i:
                    self._subtract_tile(start, i, j, (height, count))

    def _subtract_tile(
        self, start: Index, i: Index, j: Index, shape: tuple[int, int]
    ) -> None:
        """Subtract the product of a block from a tile of rows and vectors."""
        height, count = map(range, shape)
        sums = [self.vector(i + r, j + v * self.lanes) for r in height for v in count]
        terms = min(_UNROLLED_TERMS, self.lanes)
        with self.accumulate(0, self.lanes, terms, sums) as iteration:
            sums = list(iteration.values)
            for term in range(terms):
                k = iteration.index + term + start
                line = self.row(k, j)
                xs = [self.load(line, v * self.lanes, self.dtype, None) for v in count]
                for r in height:
                    factor = self.s.negative(self.factor(i + r, k))
                    for v, x in enumerate(xs):
                        at = r * len(xs) + v
                        sums[at] = self.intrinsic("fma", factor, x, sums[at])
            iteration.next(sums)
        values = iter(iteration.values)
        for r in height:
            for v in count:
                self.put(next(values), i + r, j + v * self.lanes)


def emit_blocked_solve(dtype: str) -> Kernel:
    """Emit x with a @ x = b, for each pair of a and b."""
    e = BlockedKernel(dtype, operands=2, results=1)
    with e.loop(e.low, e.high) as index:
        e.load_matrices(index)
        e.eliminate()
        e.note_zero_pivots(index)
        e.substitute(lower=False)
        e.store_columns(index, e.rows, e.k)
    return e


def emit_blocked_triangular(dtype: str, lower: bool) -> Kernel:
    """Emit x with a @ x = b for a triangle of a, for each pair of a and b."""
    e = BlockedKernel(dtype, operands=2, results=1)
    with e.loop(e.low, e.high) as index:
        e.load_matrices(index)
        e.note_zero_pivots(index)
        e.substitute(lower)
        e.store_columns(index, e.rows, e.k)
    return e


def emit_blocked_slogdet(dtype: str) -> Kernel:
    """Emit the sign and the logarithm of the determinant of each matrix."""
    e = BlockedKernel(dtype, operands=1, results=2)
    s = e.s
    with e.loop(e.low, e.high) as index:
        e.load_matrices(index)
        e.eliminate()
        one = e.constant(1.0, Value("", dtype))
        with e.accumulate(0, e.n, 1, [one, e.constant(0.0, one)]) as iteration:
            sign, logarithm = iteration.values
            i = iteration.index
            pivot = e.scalar(e.row(i, i), dtype)
            moves = e.compare("ne", e.integer_at(e.pivots + i, "int32"), i)
            sign = s.multiply(e.select(moves, s.negative(sign), sign), s.sign(pivot))
            logarithm = s.add(logarithm, s.log(s.abs(pivot)))
            iteration.next([sign, logarithm])
        for out, value in zip(e.results, iteration.values, strict=True):
            e.put_scalar(value, out + index)
    return e


def emit_blocked_lu(dtype: str) -> Kernel:
    """Emit the LU decomposition, the pivots and the source of each row."""
    e = BlockedKernel(dtype, operands=1, results=3)
    out_pivots, sources = (Pointer(e, out.text, "i32") for out in e.results[1:])
    with e.loop(e.low, e.high) as index:
        e.load_matrices(index)
        e.eliminate()
        e.store_columns(index, 0, e.n)
        offset = index * e.n
        with e.loop(0, e.n) as i:
            number = e.convert("trunc", e.int64(i), "int32")
            e.put_scalar(number, sources + (offset + i))
        with e.loop(0, e.n) as i:
            pivot = e.scalar(e.pivots + i, "int32")
            e.put_scalar(pivot, out_pivots + (offset + i))
            pair = [sources + (offset + i)]
            pair.append(sources + (offset + e.integer_at(e.pivots + i, "int32")))
            numbers = [e.scalar(at, "int32") for at in pair]
            for at, number in zip(pair, reversed(numbers), strict=True):
                e.put_scalar(number, at)
    return e


def task_bytes(n: int, k: int, dtype: str, lanes: int) -> int:
    """Return the bytes of the scratch memory of a task."""
    rows, width = padded_sizes(n, k, lanes)
    return rows * (width * dtypes.itemsize(dtype) + dtypes.itemsize("int32"))
