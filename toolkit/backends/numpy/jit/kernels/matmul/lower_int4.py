"""Lowering of products with 4-bit numbers: for few rows, or by unpacked panels."""

from __future__ import annotations

from collections.abc import Sequence

from toolkit import dtypes
from toolkit.backends.numpy.jit.calls import (
    ERROR,
    Call,
    Lowered,
    Reference,
    operands_of,
)
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.epilogue import BodyStructure
from toolkit.backends.numpy.jit.kernels.gemm.call_list import CallList
from toolkit.backends.numpy.jit.kernels.gemm.problem import contiguous_factors
from toolkit.backends.numpy.jit.kernels.integer.few_rows import divide_matrix
from toolkit.backends.numpy.jit.kernels.integer.words import Words
from toolkit.backends.numpy.jit.kernels.matmul.few_int4 import (
    FewInt4Numbers,
    FewInt4Plan,
    emit_few_int4,
    emit_runs,
    max_rows,
    runs_bytes,
)
from toolkit.backends.numpy.jit.kernels.matmul.few_int4_dots import (
    Int4DotsNumbers,
    emit_int4_dots,
    emit_int4_results,
)
from toolkit.backends.numpy.jit.kernels.matmul.int4_digits import (
    DIGITS,
    ENTRY_BYTES,
    Int4DotsPlan,
    digit_bytes,
    emit_digits,
    int4_words,
    run_bytes,
    segments_of,
)
from toolkit.backends.numpy.jit.kernels.matmul.lower import Lowering
from toolkit.backends.numpy.jit.kernels.matmul.problem import Problem
from toolkit.backends.numpy.jit.kernels.matmul.strategies import choose
from toolkit.backends.numpy.jit.kernels.matmul.unpack import Unpacked
from toolkit.backends.numpy.jit.processor import current
from toolkit.ir import Graph
from toolkit.plans.loops.iteration_space import index_problem
from toolkit.plans.loops.planner import TASKS
from toolkit.plans.operands import Operand
from toolkit.plans.rules import rules

# The least bytes of the matrix in a task.
_TASK_BYTES = 1 << 17


def lower_matmul_int4(
    body: Graph, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Lower a product with 4-bit numbers, which each block unpacks to panels."""
    indices = contiguous_factors(body, inputs)
    if indices is None or inputs[indices[0]].spec.dtype != "float32":
        return None
    first, *factors = indices
    x, packed, scale = (inputs[i] for i in (first, *factors[:2]))
    (rows, depth), columns = x.spec.shape, scale.spec.shape[-1]
    if not rows * columns:
        return Lowered()
    if rows <= max_rows() and not rules.rows_independent:
        return _lower_few_int4(body, (first, *factors), (rows, depth, columns))
    size = dtypes.itemsize(x.spec.dtype)
    p = Problem(
        x.spec.dtype,
        (),
        rows,
        depth,
        columns,
        a_row=depth * size,
        a_term=size,
        b_term=0,
        b_line=0,
        a=first,
        b=factors[0],
        a_dtype=x.spec.dtype,
        b_dtype=x.spec.dtype,
        is_batch_invariant=rules.rows_independent,
        unpack_source=Unpacked(tuple(factors), packed.spec.dtype == "int8"),
        blocks=scale.spec.shape[0],
    )
    return Lowering(p, choose(p), body).lower()


def _lower_few_int4(
    body: Graph, indices: tuple[int, ...], extents: tuple[int, int, int]
) -> Lowered:
    """Lower a product of few rows with 4-bit numbers, which stay packed in memory.

    Args:
        body: the product and its epilogue.
        indices: the inputs that are the operands.
        extents: rows, depth and columns.
    """
    depth = extents[1]
    size = runs_bytes(depth)
    steps = CallList()
    runs = steps.allocate(size)
    list_runs = Call(
        Code(emit_runs),
        (("in", indices[4]), runs),
        (depth,),
        1,
        nbytes=4 * depth + size,
        prepares=size,
    )
    steps.append(list_runs)
    words = int4_words(current())
    if words is None:
        steps.append(_multiply_floats(body, indices, extents, runs))
    else:
        _append_dots(steps, body, indices, extents, runs, words)
    return steps.lower()


def _multiply_floats(
    body: Graph,
    indices: tuple[int, ...],
    extents: tuple[int, int, int],
    runs: Reference,
) -> Call:
    """Return the call that multiplies numbers as float32."""
    (a, *factors), (rows, depth, columns) = indices, extents
    packed, scale = (body.inputs[i].spec for i in factors[:2])
    plan = FewInt4Plan(
        lanes=current().lanes,
        registers=current().registers,
        rows=rows,
        is_signed=packed.dtype == "int8",
        a=a,
        factors=tuple(factors),
    )
    tasks = max(1, min(TASKS, packed.nbytes // _TASK_BYTES))
    row_columns = -(-columns // (tasks * plan.columns)) * plan.columns
    return Call(
        Code(emit_few_int4, plan, BodyStructure(body)),
        (*operands_of(body), runs, ERROR),
        FewInt4Numbers(columns, depth, scale.shape[0], row_columns),
        -(-columns // row_columns),
        flops=2 * rows * depth * columns,
        nbytes=packed.nbytes,
        problem=index_problem("take", 0),
    )


def _append_dots(
    steps: CallList,
    body: Graph,
    indices: tuple[int, ...],
    extents: tuple[int, int, int],
    runs: Reference,
    words: Words,
) -> None:
    """Append the calls that multiply numbers by digits."""
    (a, *factors), (rows, depth, columns) = indices, extents
    packed, scale = (body.inputs[i].spec for i in factors[:2])
    is_signed = packed.dtype == "int8"
    segments = segments_of(current())
    plan = Int4DotsPlan(words, current().lanes, segments, rows, is_signed)
    digits = steps.allocate(digit_bytes(plan, depth))
    facts = steps.allocate(run_bytes(plan, depth))
    divide = Call(
        Code(emit_digits, plan),
        (("in", a), runs, digits, facts),
        (depth,),
        rows,
        rows,
        nbytes=2 * rows * depth * ENTRY_BYTES,
    )
    padded = -(-columns // plan.chunk) * plan.chunk
    panels, sections = divide_matrix(columns // 2, packed.nbytes)
    sections = min(sections, scale.shape[0])
    totals_bytes = sections * rows * padded * ENTRY_BYTES
    sums, totals = steps.allocate(DIGITS * totals_bytes), steps.allocate(totals_bytes)
    width = -(-columns // (panels * plan.chunk)) * plan.chunk
    panels = -(-columns // width)
    extents = columns, depth, scale.shape[0]
    numbers = Int4DotsNumbers(*extents, width, padded, sections)
    multiply = Call(
        Code(emit_int4_dots, plan),
        (*(("in", i) for i in factors), runs, digits, facts, sums, totals, ERROR),
        numbers,
        panels * sections,
        flops=2 * rows * depth * columns,
        nbytes=packed.nbytes,
        problem=index_problem("take", 0),
    )
    finish = Call(
        Code(emit_int4_results, plan, BodyStructure(body)),
        (*operands_of(body), totals),
        numbers,
        panels,
        nbytes=totals_bytes,
    )
    for call in (divide, multiply, finish):
        steps.append(call)
