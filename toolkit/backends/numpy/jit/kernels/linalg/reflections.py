"""The QR decomposition by Householder reflections."""

from __future__ import annotations

from toolkit.backends.numpy.jit.builder import Index, Number, Value
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.linalg.stack import Matrix, StackKernel


class _Reflections(StackKernel):
    """Emits the reflections of matrices with at least as many rows as columns.

    The numbers of the table are the rows and columns of a matrix, the number of
    matrices, the bytes of scratch memory, the strides of the operand, and the columns
    of q.
    """

    def __init__(self, dtype: str) -> None:
        super().__init__(dtype, operands=1, results=2)
        self.q_columns: Index = self.next_entry()
        self.r = self.matrix(self.k)
        self.q = self.matrix(self.q_columns, after=self.r)
        # A row of products, and the factor of each reflection.
        self.products = self.matrix(self.q_columns, after=self.q)
        self.factors = Matrix(
            self, dtype, self.products.element(1, 0, 0), self.q_columns
        )

    def reflect_column(self, column: Index) -> None:
        """Compute the reflection of a column, and apply it to the later columns.

        The vector of the reflection is 1, and then the elements below the diagonal.
        """
        s, r, zero = self.s, self.r, self.filled(0.0, self.dtype)
        one, alpha = self.filled(1.0, self.dtype), r.get(column, column)
        with self.accumulate(column + 1, self.n, 1, [zero]) as iteration:
            element = s.abs(r.get(iteration.index, column))
            iteration.next([s.maximum(iteration.values[0], element)])
        largest = iteration.values[0]
        is_reduced = s.equal(largest, zero)
        largest = s.maximum(largest, s.abs(alpha))
        scale = s.select(s.equal(largest, zero), one, largest)
        ratio = s.divide(alpha, scale)
        first = s.multiply(ratio, ratio)
        with self.accumulate(column + 1, self.n, 1, [first]) as iteration:
            ratio = s.divide(r.get(iteration.index, column), scale)
            iteration.next([self.intrinsic("fma", ratio, ratio, iteration.values[0])])
        norm = s.multiply(scale, s.sqrt(iteration.values[0]))
        beta = s.negative(self.intrinsic("copysign", norm, alpha))
        # LAPACK keeps a column that is reduced already, with its sign.
        beta = s.select(is_reduced, alpha, beta)
        safe_beta = s.select(is_reduced, one, beta)
        factor = s.divide(s.subtract(beta, alpha), safe_beta)
        divisor = s.select(is_reduced, one, s.subtract(alpha, beta))
        with self.loop(column + 1, self.n) as i:
            r.put(s.divide(r.get(i, column), divisor), i, column)
        self.factors.put(factor, 0, column)
        r.put(beta, column, column)
        self.apply(column, r, column + 1)

    def apply(self, column: Index, x: Matrix, start: Number) -> None:
        """Apply the reflection of a column to the columns of x from `start` on."""
        s, r, products = self.s, self.r, self.products
        with self.loop(start, x.columns) as j:
            products.put(x.get(column, j), 0, j)
        for block in self.row_blocks(column + 1, self.n):
            vector = [r.get(i, column) for i in block]
            with self.loop(start, x.columns) as j:
                total = products.get(0, j)
                for i, element in zip(block, vector, strict=True):
                    total = self.intrinsic("fma", element, x.get(i, j), total)
                products.put(total, 0, j)
        factor = self.factors.get(0, column)
        with self.loop(start, x.columns) as j:
            product = s.multiply(factor, products.get(0, j))
            products.put(product, 0, j)
            x.put(s.subtract(x.get(column, j), product), column, j)
        for block in self.row_blocks(column + 1, self.n):
            vectors: list[tuple[Number, Value]] = [(i, r.get(i, column)) for i in block]
            with self.loop(start, x.columns) as j:
                x.subtract(products.get(0, j), vectors, j)

    def write_q(self) -> None:
        """Apply all reflections to the identity matrix, the last one first."""
        zero, one = (self.filled(number, self.dtype) for number in (0.0, 1.0))
        with self.loop(0, self.n) as i, self.loop(0, self.q_columns) as j:
            self.q.put(zero, i, j)
        with self.loop(0, self.q_columns) as i:
            self.q.put(one, i, i)
        with self.loop(0, self.k) as step:
            column = self.k - 1 - step
            self.apply(column, self.q, column)

    def clear_vectors(self) -> None:
        """Set the elements of r below the diagonal to 0."""
        zero = self.filled(0.0, self.dtype)
        with self.loop(0, self.k) as column, self.loop(column + 1, self.n) as i:
            self.r.put(zero, i, column)


def emit_qr(dtype: str) -> Kernel:
    """Emit orthonormal columns and an upper triangle, for groups of matrices."""
    e = _Reflections(dtype)
    with e.loop(e.low, e.high) as group:
        e.begin_group(group)
        e.load_operand(0, e.r)
        with e.loop(0, e.k) as column:
            e.reflect_column(column)
        e.write_q()
        e.clear_vectors()
        e.store_result(e.q)
        e.store_result(e.r, 1, e.q_columns)
    return e
