"""Lowering of Fourier transforms to calls."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import Number, Pointer
from toolkit.backends.numpy.jit.calls import Call, Lowered, Reference, partition
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.fourier.plan import (
    DTYPES,
    fills_vectors,
    is_axis_supported,
    is_real_supported,
    radices,
    vector_lanes,
)
from toolkit.backends.numpy.jit.kernels.fourier.real import RealTransform
from toolkit.backends.numpy.jit.kernels.fourier.stages import (
    LaneRows,
    Planes,
    RealPairs,
    Stages,
    plane_bytes,
)
from toolkit.backends.numpy.jit.processor import CACHE_LINE, current
from toolkit.plans.operands import Operand

if TYPE_CHECKING:
    from toolkit.ir import Node

# Bytes of the buffers of all tasks.
_MAX_BUFFER_BYTES = 1 << 26


class _Rows:
    """The kernel of a row, with its operands as real and imaginary planes."""

    def __init__(self, dtype: str, n: int, vectors: int = 0) -> None:
        self.dtype, self.n = dtype, n
        self.b = Kernel(vector_lanes(dtypes.itemsize(dtype)))
        self.vectors = vectors

    def stages(self) -> Stages:
        """Return the emitter of stages, with the buffers of the task."""
        factors = radices(self.n)
        assert factors is not None
        work = self.b.next_address()
        task = work + self.b.slot * _task_bytes(self.n, self.vectors, self.dtype)
        return Stages(self.b, self.dtype, factors, self.vectors, task)

    def planes(self, start: Sequence[Pointer], offset: Number) -> Planes:
        """Return a row of a complex operand."""
        real, imag = (plane + offset for plane in start)
        return Planes(self.b, self.dtype, real, imag)

    def addresses(self, count: int) -> list[Pointer]:
        """Return the addresses of the next operands."""
        return [self.b.next_address(self.dtype) for _ in range(count)]


def _task_bytes(n: int, vectors: int, dtype: str) -> int:
    """Return the bytes of two buffers of two planes each."""
    lanes = vector_lanes(dtypes.itemsize(dtype))
    return 4 * plane_bytes(n * max(1, vectors * lanes), dtype)


def emit_rows(dtype: str, n: int) -> Kernel:
    """Emit (out, out)[row] = the transform of (x, x)[row]."""
    kernel = _Rows(dtype, n)
    x, y = kernel.addresses(2), kernel.addresses(2)
    stages = kernel.stages()
    with kernel.b.loop(kernel.b.low, kernel.b.high) as row:
        stages.write(kernel.planes(x, row * n), kernel.planes(y, row * n))
    stages.twiddles.declare()
    return kernel.b


def emit_rows_in_lanes(dtype: str, n: int) -> Kernel:
    """Emit the transform of rows, one row in each lane."""
    kernel = _Rows(dtype, n, vectors=1)
    b = kernel.b
    x, y = kernel.addresses(2), kernel.addresses(2)
    stages = kernel.stages()
    for row, mask in b.run(b.low, b.high):
        count = None if mask is None else b.high - row
        source, target = (
            LaneRows(b, dtype, real + row * n, imag + row * n, n, count)
            for real, imag in (x, y)
        )
        stages.write(source, target)
    stages.twiddles.declare()
    return b


def emit_columns(dtype: str, n: int, vectors: int, ragged: bool) -> Kernel:
    """Emit the transform along an axis before the last.

    A row of the call is a block of columns.

    Args:
        dtype: of the parts.
        n: the extent of the axis.
        vectors: the vectors of columns in a block.
        ragged: whether the last block may have fewer columns.
    """
    kernel = _Rows(dtype, n, vectors)
    b, width = kernel.b, vectors * kernel.b.lanes
    x, y = kernel.addresses(2), kernel.addresses(2)
    stages = kernel.stages()
    columns, blocks = b.next_entry(), b.next_entry()
    with b.loop(b.low, b.high) as row:
        outer, block = b.split(row, blocks)
        first = block * width
        offset = outer * n * columns + first
        masks: Sequence[Any] = [None] * vectors
        if ragged:
            masks = b.first_of_vectors(columns - first, vectors)
        source, target = (
            Planes(b, dtype, real + offset, imag + offset, columns, masks)
            for real, imag in (x, y)
        )
        stages.write(source, target)
    stages.twiddles.declare()
    return b


def emit_real(dtype: str, half: int) -> Kernel:
    """Emit (out, out)[row] = the first half of the transform of x[row]."""
    kernel = _Rows(dtype, half)
    x, y = kernel.addresses(1), kernel.addresses(2)
    stages = kernel.stages()
    halves = RealTransform(kernel.b, dtype, half, stages.twiddles)
    with kernel.b.loop(kernel.b.low, kernel.b.high) as row:
        numbers = RealPairs(kernel.b, dtype, x[0] + row * (2 * half), is_swapped=False)
        between = stages.buffers[(len(stages.radices) - 1) % 2]
        stages.write(numbers, between)
        halves.spectrum(between, kernel.planes(y, row * (half + 1)))
    stages.twiddles.declare()
    return kernel.b


def emit_inverse_real(dtype: str, half: int) -> Kernel:
    """Emit out[row] = the real inverse transform of the half spectrum (x, x)[row]."""
    kernel = _Rows(dtype, half)
    x, y = kernel.addresses(2), kernel.addresses(1)
    stages = kernel.stages()
    halves = RealTransform(kernel.b, dtype, half, stages.twiddles)
    with kernel.b.loop(kernel.b.low, kernel.b.high) as row:
        numbers = RealPairs(kernel.b, dtype, y[0] + row * (2 * half), is_swapped=True)
        halves.numbers(kernel.planes(x, row * (half + 1)), stages.buffers[1])
        stages.write(stages.buffers[1], numbers)
    stages.twiddles.declare()
    return kernel.b


# --- lowering -------------------------------------------------------------------------


def lower_dft(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Lower the transform of complex numbers along an axis."""
    spec, axis = inputs[0].spec, node.attrs["axis"]
    n, columns = spec.shape[axis], math.prod(spec.shape[axis + 1 :])
    if not _has_supported_inputs(inputs) or not is_axis_supported(spec.shape, axis):
        return None
    if not spec.size:
        return Lowered()
    dtype, rows = spec.dtype, spec.size // (n * columns)
    order = (1, 0) if node.attrs["inverse"] else (0, 1)  # it exchanges the parts
    operands: list[Reference] = [(kind, i) for kind in ("in", "out") for i in order]
    facts = {"flops": _flops(n) * rows * columns, "nbytes": 4 * spec.nbytes}
    lanes = vector_lanes(dtypes.itemsize(dtype))
    if columns > 1:
        vectors = _vectors_per_block(dtype, n, columns)
        blocks = -(-columns // (vectors * lanes))
        is_ragged = columns % (vectors * lanes) != 0
        call = Call(
            Code(emit_columns, dtype, n, vectors, is_ragged),
            tuple(operands),
            (columns, blocks),
            rows * blocks,
            row_operands=frozenset(operands if blocks == 1 else ()),
            **facts,
        )
        return _add_buffers(call, _task_bytes(n, vectors, dtype))
    if fills_vectors(n):
        code, by_rows = Code(emit_rows, dtype, n), frozenset(operands)
        call = Call(code, tuple(operands), (), rows, row_operands=by_rows, **facts)
        return _add_buffers(call, _task_bytes(n, 0, dtype))
    call = Call(Code(emit_rows_in_lanes, dtype, n), tuple(operands), (), rows, **facts)
    return _add_buffers(call, _task_bytes(n, 1, dtype), together=lanes)


def lower_rdft(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Lower the transform of real numbers along the last axis."""
    return _lower_real(emit_real, inputs[0].spec.shape[-1], inputs, outputs)


def lower_irdft(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Lower the inverse transform to real numbers along the last axis."""
    return _lower_real(emit_inverse_real, node.attrs["length"], inputs, outputs)


def _lower_real(
    emit: Any, n: int, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    if not _has_supported_inputs(inputs) or not is_real_supported(n):
        return None
    spec, half = inputs[0].spec, n // 2
    if not spec.size:
        return Lowered()
    operands: list[Reference] = [("in", i) for i in range(len(inputs))]
    operands += [("out", i) for i in range(len(outputs))]
    rows = spec.size // spec.shape[-1]
    call = Call(
        Code(emit, spec.dtype, half),
        tuple(operands),
        (),
        rows,
        row_operands=frozenset(operands),
        flops=_flops(half) * rows,
        nbytes=sum(x.spec.nbytes for x in (*inputs, *outputs)),
    )
    return _add_buffers(call, _task_bytes(half, 0, spec.dtype))


def _has_supported_inputs(inputs: Sequence[Operand]) -> bool:
    return inputs[0].spec.dtype in DTYPES and all(x.is_contiguous for x in inputs)


def _flops(n: int) -> int:
    """Return the FLOPs of a transform, by the formula for powers of two."""
    return round(5 * n * math.log2(n))


def _vectors_per_block(dtype: str, n: int, columns: int) -> int:
    """Return the vectors of columns per transform: at most a cache line."""
    itemsize = dtypes.itemsize(dtype)
    size = vector_lanes(itemsize) * itemsize
    limit = max(1, CACHE_LINE // size)
    while limit > 1 and (
        columns * itemsize <= size * (limit // 2)
        or 4 * n * limit * size > current().cache_bytes // 2
    ):
        limit //= 2
    return limit


def _add_buffers(call: Call, task: int, together: int = 1) -> Lowered:
    """Return a call whose tasks have work memory.

    Args:
        call: the call, not partitioned yet.
        task: the bytes of work memory of a task.
        together: the number of rows that are computed at once.
    """
    grain = partition(call.rows, max(1, _MAX_BUFFER_BYTES // task))
    grain = -(-grain // together) * together
    operands = (*call.operands, ("work", 0))
    call = replace(call, operands=operands, grain=grain)
    return Lowered((call,), task * call.tasks)
