"""Substitution in triangular systems, and the Cholesky decomposition."""

from __future__ import annotations

from toolkit.backends.numpy.jit.builder import Index, Number
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.linalg.stack import Matrix, StackKernel


def substitute(e: StackKernel, a: Matrix, x: Matrix, lower: bool) -> None:
    """Solve a @ y = x for a triangle of a, and replace x by y.

    A zero on the diagonal is noted as an error.
    """
    with e.loop(0, e.n) as step:
        row = step if lower else e.n - 1 - step
        pivot = a.get(row, row)
        e.note_problem(e.s.equal(pivot, e.filled(0.0, e.dtype)))
        e.divide_row(x, row, pivot)
        remaining: tuple[Number, Number] = (row + 1, e.n) if lower else (0, row)
        for block in e.row_blocks(*remaining):
            x.subtract_row(row, [(i, a.get(i, row)) for i in block], (0, x.columns))


def emit_solve_triangular(dtype: str, lower: bool) -> Kernel:
    """Emit x with a @ x = b, for groups of triangular matrices a, and matrices b."""
    e = StackKernel(dtype, operands=2, results=1)
    with e.loop(e.low, e.high) as group:
        a, x = e.load_system(group)
        substitute(e, a, x, lower)
        e.store_result(x)
    return e


def emit_cholesky(dtype: str) -> Kernel:
    """Emit the lower triangular factors, for groups of matrices."""
    e = StackKernel(dtype, operands=1, results=1)
    with e.loop(e.low, e.high) as group:
        e.begin_group(group)
        a = e.matrix(e.n)
        e.load_operand(0, a)
        with e.loop(0, e.n) as column:
            _factor_column(e, a, column)
        e.store_result(a)
    return e


def _factor_column(e: StackKernel, a: Matrix, column: Index) -> None:
    """Compute a column of the factor, and update the columns after it."""
    zero, square = e.filled(0.0, e.dtype), a.get(column, column)
    # NaN is not an error, as in LAPACK.
    e.note_problem(e.s.less_equal(square, zero))
    root = e.s.sqrt(square)
    a.put(root, column, column)
    with e.loop(0, column) as i:
        a.put(zero, i, column)
    with e.loop(column + 1, e.n) as i:
        a.put(e.s.divide(a.get(i, column), root), i, column)
    for block in e.row_blocks(column + 1, e.n):
        factors = [(i, a.get(i, column)) for i in block]
        # The elements above the diagonal have no effect.
        with e.loop(column + 1, block[-1] + 1) as j:
            a.subtract(a.get(j, column), factors, j)
