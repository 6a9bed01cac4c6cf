"""The choice between a kernel for stacks of matrices and LAPACK."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from toolkit import dtypes
from toolkit.backends.numpy.jit.calls import ERROR, Call, Lowered, Reference, partition
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.kernels.linalg.blocked import (
    emit_blocked_lu,
    emit_blocked_slogdet,
    emit_blocked_solve,
    emit_blocked_triangular,
    padded_sizes,
    task_bytes,
)
from toolkit.backends.numpy.jit.kernels.linalg.elimination import (
    emit_slogdet,
    emit_solve,
)
from toolkit.backends.numpy.jit.kernels.linalg.reflections import emit_qr
from toolkit.backends.numpy.jit.kernels.linalg.stack import lanes_of
from toolkit.backends.numpy.jit.kernels.linalg.substitution import (
    emit_cholesky,
    emit_solve_triangular,
)
from toolkit.backends.numpy.jit.kernels.linalg.vector_system import emit_solve_vector
from toolkit.errors import ArgumentError
from toolkit.plans.loops.nest import collapse_loops
from toolkit.plans.operands import Operand, align_up
from toolkit.plans.rules import rules

if TYPE_CHECKING:
    from toolkit.ir import Node

_DTYPES = ("float32", "float64")
# The vector operations up to which a single matrix is solved in one lane. Measured: a
# system of n = 32 with one column takes 14 us, and 18 us with LAPACK.
_MAX_SINGLE_WORK = 1 << 15
# The vector operations of the load of one element.
_LOAD_WORK = 10
# The number of matrices from which larger ones are solved in lanes. Measured for 8
# systems of n = 96 with 8 columns: 276 us, and 360 us with LAPACK.
_MIN_STACK = 8
# The largest matrices of a stack, and the largest triangular ones. The BLAS is faster
# for larger triangular ones, because it only loads a triangle.
_MAX_EXTENT, _MAX_TRIANGULAR_EXTENT = 256, 64
# The columns of a right-hand side, if they are more than the rows of its matrix.
_MAX_COLUMNS = 8
# The smallest matrices that are decomposed in blocks, one after another: in any stack,
# with a square right-hand side, and of a few matrices. Measured for systems with one
# column, as a share of the time in lanes or with LAPACK: 0.32 for one matrix of n = 48,
# 1.04 for 64. With 64 matrices and square right-hand sides: 1.42 for n = 24, 0.60 for
# n = 32. One matrix of n = 16: 0.85.
_MIN_BLOCKED_EXTENT, _MIN_SQUARE_EXTENT, _MIN_SINGLE_EXTENT = 48, 32, 16
# The largest ones. The BLAS can use several threads for one matrix.
_MAX_BLOCKED_EXTENT = 512
# The fewest columns of a block.
_MIN_BLOCK = 4
# Bytes of the scratch memory of all tasks.
_MAX_SCRATCH_BYTES = 1 << 26


def lower_solve(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Lower the solution of linear systems."""
    dtype, problem = inputs[0].spec.dtype, "solve: Singular matrix"
    if not _prefers_blocks(inputs, outputs):
        return _lower_stack(Code(emit_solve, dtype), inputs, outputs, 3, problem)
    return _lower_blocks(Code(emit_blocked_solve, dtype), inputs, outputs, problem)


def lower_solve_triangular(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Lower the solution of triangular systems."""
    dtype, lower = inputs[0].spec.dtype, node.attrs["lower"]
    problem = "solve_triangular: Singular matrix"
    if inputs[1].spec.shape[-1] > _MAX_COLUMNS and _prefers_blocks(inputs, outputs):
        code = Code(emit_blocked_triangular, dtype, lower)
        return _lower_blocks(code, inputs, outputs, problem)
    code = Code(emit_solve_triangular, dtype, lower)
    lowered = _lower_stack(code, inputs, outputs, 0, problem, _MAX_TRIANGULAR_EXTENT)
    is_known = dtype in _DTYPES and inputs[1].spec.shape[-1] <= _MAX_COLUMNS
    if lowered is not None or not is_known:
        return lowered
    steps = inputs[0].strides[-2:]
    if dtypes.itemsize(dtype) not in steps:
        return None
    code = Code(emit_solve_vector, dtype, lower, steps[1] == dtypes.itemsize(dtype))
    return _lower_vector(code, inputs, outputs, problem)


def lower_slogdet(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Lower the signs and logarithms of determinants."""
    dtype = inputs[0].spec.dtype
    if not _prefers_blocks(inputs, outputs):
        return _lower_stack(Code(emit_slogdet, dtype), inputs, outputs, 3, "")
    return _lower_blocks(Code(emit_blocked_slogdet, dtype), inputs, outputs, "")


def lower_lu(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Lower the LU decomposition of square matrices."""
    *_, m, n = inputs[0].spec.shape
    if m != n or not _prefers_blocks(inputs, outputs):
        return None
    code = Code(emit_blocked_lu, inputs[0].spec.dtype)
    return _lower_blocks(code, inputs, outputs, "")


def lower_cholesky(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Lower the triangular factors of positive definite matrices."""
    code = Code(emit_cholesky, inputs[0].spec.dtype)
    problem = "cholesky: Matrix is not positive definite"
    return _lower_stack(code, inputs, outputs, 6, problem)


def lower_qr(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Lower the QR decomposition of matrices with at least as many rows as columns."""
    x, dtype = inputs[0], inputs[0].spec.dtype
    *batch, m, n = x.spec.shape
    strides = _stack_strides(x, tuple(batch))
    if dtype not in _DTYPES or not n <= m <= _MAX_EXTENT or strides is None:
        return None
    if not all(y.spec.size for y in outputs):
        return None
    columns, count = outputs[0].spec.shape[-1], prod(batch)
    multiplications = 2 * m * n * (n + columns)
    if not _prefers_lanes(multiplications + _LOAD_WORK * m * n, count):
        return None
    lanes = lanes_of(dtype)
    elements = m * n + m * columns + 2 * columns
    task = align_up(elements * lanes * dtypes.itemsize(dtype))
    groups = -(-count // lanes)
    call = Call(
        Code(emit_qr, dtype),
        _references(inputs, outputs),
        (m, n, count, task, *strides, columns),
        groups,
        partition(groups, _MAX_SCRATCH_BYTES // task),
        flops=2 * count * multiplications,
        nbytes=sum(y.spec.nbytes for y in (*inputs, *outputs)),
        error=ArgumentError,
    )
    return Lowered((call,), task * call.tasks)


def _lower_stack(
    code: Code,
    inputs: Sequence[Operand],
    outputs: Sequence[Operand],
    divisor: int,
    problem: str,
    max_extent: int = _MAX_EXTENT,
) -> Lowered | None:
    """Lower to groups of matrices, or return None if LAPACK is faster.

    Args:
        code: the kernel.
        inputs, outputs: the operands.
        divisor: n**3 over the multiplications of the decomposition; 0: none.
        problem: the message of an error.
        max_extent: the largest extent of a matrix.
    """
    a, b = inputs[0].spec, inputs[-1].spec
    n, k = a.shape[-1], b.shape[-1] if len(inputs) > 1 else 0
    if a.dtype not in _DTYPES or n > max_extent or k > max(n, _MAX_COLUMNS):
        return None
    if not outputs[0].spec.size:
        return Lowered()
    batch = b.shape[:-2] if len(inputs) == 1 else outputs[0].spec.shape[:-2]
    strides = [_stack_strides(x, batch) for x in inputs]
    multiplications = n * n * k + (n**3 // divisor if divisor else 0)
    count, lanes = prod(batch), lanes_of(a.dtype)
    work = multiplications + _LOAD_WORK * n * (n + k)
    if None in strides or not _prefers_lanes(work, count):
        return None
    task = align_up(n * (n + k) * lanes * dtypes.itemsize(a.dtype))
    groups = -(-count // lanes)
    grain = partition(groups, _MAX_SCRATCH_BYTES // max(1, task))
    numbers = [n, k, count, task, *(step for x in strides for step in x or ())]
    call = Call(
        code,
        _references(inputs, outputs),
        tuple(numbers),
        groups,
        grain,
        flops=2 * count * multiplications,
        nbytes=sum(x.spec.nbytes for x in (*inputs, *outputs)),
        problem=problem,
        error=ArgumentError,
    )
    return Lowered((call,), task * call.tasks)


def _prefers_blocks(inputs: Sequence[Operand], outputs: Sequence[Operand]) -> bool:
    """Return whether matrices are decomposed one after another, in blocks."""
    a, n = inputs[0].spec, inputs[0].spec.shape[-1]
    is_known = a.dtype in _DTYPES and lanes_of(a.dtype) >= _MIN_BLOCK
    if not is_known or n > _MAX_BLOCKED_EXTENT or not outputs[0].spec.size:
        return False
    smallest = _MIN_BLOCKED_EXTENT
    if len(inputs) > 1 and 2 * inputs[1].spec.shape[-1] >= n:
        smallest = _MIN_SQUARE_EXTENT
    result = outputs[0].spec.shape if len(inputs) > 1 else a.shape
    count = prod(result[:-2])
    if count < _MIN_STACK and not rules.rows_independent:
        smallest = _MIN_SINGLE_EXTENT
    return n >= smallest


def _lower_blocks(
    code: Code, inputs: Sequence[Operand], outputs: Sequence[Operand], problem: str
) -> Lowered | None:
    """Lower to single matrices; None if the rows of an operand are not contiguous."""
    a, b = inputs[0].spec, inputs[-1].spec
    n, k = a.shape[-1], b.shape[-1] if len(inputs) > 1 else 0
    batch = outputs[0].spec.shape[:-2] if len(inputs) > 1 else a.shape[:-2]
    strides = [_stack_strides(x, batch) for x in inputs]
    if None in strides or not all(map(_has_contiguous_rows, inputs)):
        return None
    count, lanes = prod(batch), lanes_of(a.dtype)
    task = align_up(task_bytes(n, k, a.dtype, lanes))
    numbers = [n, k, count, task, *(step for x in strides for step in x or ())]
    call = Call(
        code,
        _references(inputs, outputs),
        (*numbers, *padded_sizes(n, k, lanes)),
        count,
        partition(count, _MAX_SCRATCH_BYTES // task),
        flops=2 * count * (n**3 // 3 + n * n * k),
        nbytes=sum(x.spec.nbytes for x in (*inputs, *outputs)),
        problem=problem,
        error=ArgumentError,
    )
    return Lowered((call,), task * call.tasks)


def _has_contiguous_rows(x: Operand) -> bool:
    """Return whether the rows of matrices are contiguous."""
    return x.spec.shape[-1] == 1 or x.strides[-1] == dtypes.itemsize(x.spec.dtype)


def _lower_vector(
    code: Code, inputs: Sequence[Operand], outputs: Sequence[Operand], problem: str
) -> Lowered | None:
    """Lower to pairs of a matrix and a column."""
    *batch, n, k = outputs[0].spec.shape
    strides = [_stack_strides(x, tuple(batch)) for x in inputs]
    if None in strides:
        return None
    count, task = prod(batch), align_up(n * dtypes.itemsize(inputs[0].spec.dtype))
    numbers = [n, k, count, task, *(step for x in strides for step in x or ())]
    call = Call(
        code,
        _references(inputs, outputs),
        tuple(numbers),
        count * k,
        partition(count * k),
        flops=count * n * n * k,
        nbytes=sum(x.spec.nbytes for x in (*inputs, *outputs)),
        problem=problem,
        error=ArgumentError,
    )
    return Lowered((call,), task * call.tasks)


def _references(
    inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> tuple[Reference, ...]:
    """Return the operands of a call, its scratch memory and the error block."""
    operands: list[Reference] = [("in", i) for i in range(len(inputs))]
    operands += [("out", i) for i in range(len(outputs))]
    return (*operands, ("work", 0), ERROR)


def _prefers_lanes(work: int, count: int) -> bool:
    """Return whether the kernel is faster than LAPACK.

    If rows must be independent, the choice does not depend on the number of matrices:
    a matrix then has the same bits in any stack.

    Args:
        work: the vector operations of a group.
        count: the number of matrices.
    """
    is_stack = count >= _MIN_STACK and not rules.rows_independent
    return is_stack or work <= _MAX_SINGLE_WORK


def _stack_strides(x: Operand, batch: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the byte strides of a matrix, a row and a column; None if they vary."""
    missing = len(batch) - (x.spec.ndim - 2)
    extents = (1,) * missing + x.spec.shape[:-2]
    strides = (0,) * missing + x.strides[:-2]
    steps = [0 if n == 1 else step for n, step in zip(extents, strides, strict=True)]
    _, (collapsed,) = collapse_loops(batch, [steps], 0)
    if len(collapsed) > 1:
        return None
    return (*(collapsed or (0,)), *x.strides[-2:])
