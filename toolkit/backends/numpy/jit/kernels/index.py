"""Gather, scatter and related primitives: rows of bytes moved by checked indices.

A negative index counts from the end, once. An index out of range is noted in the error
block and skipped. The program stops before it writes anything that outlives the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import MOVED, Index, Pointer
from toolkit.backends.numpy.jit.calls import ERROR, Call, Lowered, Reference, partition
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.gather import (
    emit_gather_elements,
    emit_take_along_axis,
    valid_index,
)
from toolkit.backends.numpy.jit.kernels.scatter import (
    emit_put_along_axis,
    emit_scatter,
    emit_scatter_elements,
)
from toolkit.backends.numpy.jit.processor import CACHE_LINE, current
from toolkit.ir.extents import largest, value_of
from toolkit.plans.loops.iteration_space import index_problem
from toolkit.plans.loops.planner import TASKS
from toolkit.plans.operands import Operand

if TYPE_CHECKING:
    from toolkit.ir import Node

# The least bytes of a task of a scatter, and the least bytes of a row for each task.
# Each task reads all indices. An index takes about the time of 32 bytes of a row.
_TASK_BYTES, _TASK_ROW_BYTES = 1 << 20, 32
# The prefetch distance in indices, and the most cache lines of a row to prefetch.
_PREFETCH_INDICES, _PREFETCH_LINES = 12, 8
_COMBINED = ("float32", "float64", "int32", "int64")


def _prefetch_row(b: Kernel, row: Pointer, run: Index, dtype: str) -> None:
    """Prefetch the first cache lines of a run of elements."""
    step = CACHE_LINE // dtypes.itemsize(dtype)
    with b.loop(0, b.min(run, step * _PREFETCH_LINES), step) as i:
        b.prefetch(row + i)


def emit_gather(dtype: str, index_dtype: str) -> Kernel:
    """Emit out[o, j] = x[o, indices[j]], runs of elements. Rows are pairs (o, j)."""
    b = Kernel(current().lanes)
    x, out = b.address(0, dtype), b.address(2, dtype)
    indices, error = b.address(1, index_dtype), b.address(3)
    count, limit, run = (b.entry(4 + k) for k in range(3))
    with b.loop(b.low // count, (b.high + count - 1) // count) as outer:
        start = outer * count
        low, high = b.max(b.low - start, 0), b.min(b.high - start, count)
        with b.loop(low, high) as position:
            # No hardware prefetcher follows indices. A prefetch of a bad index is
            # harmless.
            prefetch_position = b.min(position + _PREFETCH_INDICES, count - 1)
            prefetch_index = b.integer_at(indices + prefetch_position, index_dtype)
            _prefetch_row(b, x + (outer * limit + prefetch_index) * run, run, dtype)
            with valid_index(b, indices, position, index_dtype, limit, error) as index:
                source = x + (outer * limit + index) * run
                b.copy(source, out + (start + position) * run, run, dtype)
    return b


# --- lowering -------------------------------------------------------------------------


def _moved_dtype(dtype: str) -> str:
    return MOVED[dtypes.itemsize(dtype)]


def _is_near(indices: Operand, elements: int) -> bool:
    """Return whether 32-bit lanes can hold the position of every element."""
    return indices.spec.dtype in ("int32", "int64") and elements < 1 << 31


def _all_contiguous(operands: Sequence[Operand]) -> bool:
    return all(x.is_contiguous for x in operands)


def lower_gather(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Lower a gather of runs of x by indices along an axis."""
    x, indices = inputs
    axis = node.attrs["axis"]
    if not _all_contiguous(inputs):
        return None
    if not outputs[0].spec.size:
        return Lowered()
    shape, count = x.spec.shape, indices.spec.size
    rows = prod(shape[:axis]) * count
    run = prod(shape[axis + 1 :])
    numbers = (count, shape[axis], run)
    by_rows: set[Reference] = {("out", 0)}
    if axis == 0:
        by_rows.add(("in", 1))
    kinds = _moved_dtype(x.spec.dtype), indices.spec.dtype
    code = Code(emit_gather, *kinds)
    if run == 1:
        code = Code(emit_gather_elements, *kinds, _is_near(indices, shape[axis]))
    operands = (("in", 0), ("in", 1), ("out", 0), ERROR)
    return _lower_call(code, operands, numbers, rows, by_rows, node, "gather", outputs)


def lower_scatter(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Lower a scatter: x with runs of updates combined at indices along an axis."""
    x, indices, updates = inputs
    axis, mode = node.attrs["axis"], node.attrs["mode"]
    dtype = _moved_dtype(x.spec.dtype) if mode == "set" else x.spec.dtype
    if mode != "set" and dtype not in _COMBINED:
        return None
    if not _all_contiguous(inputs):
        return None
    shape = x.spec.shape
    outer, run = prod(shape[:axis]), prod(shape[axis + 1 :])
    rows = outer * shape[axis] if x.spec.size else 0
    numbers = (indices.spec.size, shape[axis], run, outer)
    kinds = dtype, indices.spec.dtype, mode
    code = Code(emit_scatter, *kinds)
    if run == 1:
        code = Code(emit_scatter_elements, *kinds, _is_near(indices, shape[axis]))
    operands = (("in", 0), ("in", 1), ("in", 2), ("out", 0), ERROR)
    by_rows: set[Reference] = {("in", 0), ("out", 0)}
    lowered = _lower_call(
        code, operands, numbers, rows, by_rows, node, "scatter", outputs
    )
    copied_bytes = 0 if x.is_replaced else 2 * x.spec.nbytes
    nbytes = copied_bytes + 2 * updates.spec.nbytes
    row_bytes = value_of(run) * dtypes.itemsize(dtype)
    max_tasks = min(value_of(nbytes) // _TASK_BYTES, row_bytes // _TASK_ROW_BYTES)
    tasks = max(1, min(TASKS, max_tasks))
    call = replace(
        lowered.calls[0],
        grain=largest(1, -(-rows // tasks)),
        nbytes=nbytes,
        is_stream=True,
    )
    return Lowered((call,))


def _along_axis(
    node: Node, inputs: Sequence[Operand]
) -> tuple[tuple[int, int, int], int] | None:
    """Return (index count, extent of x, elements after the axis), and the rows."""
    x, indices = inputs[0].spec.shape, inputs[1].spec.shape
    axis = node.attrs["axis"]
    has_same_shape = x[:axis] == indices[:axis] and x[axis + 1 :] == indices[axis + 1 :]
    if not has_same_shape or not _all_contiguous(inputs):
        return None
    return (indices[axis], x[axis], prod(x[axis + 1 :])), prod(x[:axis])


def lower_take_along_axis(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Lower a gather of one element of x for each index."""
    layout = _along_axis(node, inputs)
    if layout is None:
        return None
    numbers, rows = layout
    if not outputs[0].spec.size:
        return Lowered()
    x, indices = inputs
    _, limit, run = numbers
    is_near = _is_near(indices, limit * run)
    kinds = _moved_dtype(x.spec.dtype), indices.spec.dtype
    code = Code(emit_take_along_axis, *kinds, is_near, run == 1)
    operands = (("in", 0), ("in", 1), ("out", 0), ERROR)
    by_rows = {o for o in operands if o != ERROR}
    return _lower_call(
        code, operands, numbers, rows, by_rows, node, "take_along_axis", outputs
    )


def lower_put_along_axis(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Lower a scatter of one element at each index."""
    layout = _along_axis(node, inputs)
    dtype, mode = inputs[0].spec.dtype, node.attrs["mode"]
    if layout is None or (mode != "set" and dtype not in _COMBINED):
        return None
    numbers, rows = layout
    if not outputs[0].spec.size:
        return Lowered()
    dtype = _moved_dtype(dtype) if mode == "set" else dtype
    is_near = numbers[2] == 1 and _is_near(inputs[1], numbers[1])
    code = Code(
        emit_put_along_axis, dtype, inputs[1].spec.dtype, mode, numbers[2] == 1, is_near
    )
    operands = (("in", 0), ("in", 1), ("in", 2), ("out", 0), ERROR)
    by_rows = {o for o in operands if o != ERROR}
    return _lower_call(
        code, operands, numbers, rows, by_rows, node, "put_along_axis", outputs
    )


def _lower_call(
    code: Code,
    operands: tuple[Reference, ...],
    numbers: tuple[int, ...],
    rows: int,
    by_rows: set[Reference],
    node: Node,
    name: str,
    outputs: Sequence[Operand],
) -> Lowered:
    call = Call(
        code,
        operands,
        numbers,
        rows,
        partition(rows),
        frozenset(by_rows),
        nbytes=2 * outputs[0].spec.nbytes,
        problem=index_problem(
            name, node.attrs["axis"], node.attrs.get("shifted", False)
        ),
    )
    return Lowered((call,))
