"""Reductions over middle axes, such as the pixels of channels-last images.

The operand may be a view: rows, reduced elements and columns have any strides.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import Index, Mask, Number, Pointer, Value
from toolkit.backends.numpy.jit.calls import Call, Lowered, Reference, partition
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.fused.elementwise import DTYPES
from toolkit.backends.numpy.jit.fused.reducers import reducer
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.processor import current
from toolkit.plans.loops.nest import collapse_loops, stride_class
from toolkit.plans.operands import Operand

if TYPE_CHECKING:
    from toolkit.ir import Node

# Vectors of columns per iteration: several chains hide the latency of an addition.
_VECTORS = 4


class _Middle(Kernel):
    """Emits out[row, c] = the reduction of x[row, m, c] over m, vectors along c.

    The table holds x, the result, the extents of the middle and of the columns, and the
    byte strides of rows, reduced elements and columns.

    Args:
        op: the reduction.
        dtype: of x.
        inner: the stride class of the columns.
    """

    def __init__(self, op: str, dtype: str, inner: int) -> None:
        super().__init__(current().lanes)
        self.dtype = dtype
        self.inner = inner
        self.combine = reducer(op, dtype, self)
        self.returns_index = op.startswith("arg")
        self.x, self.out = self.address(0), self.address(1)
        self.middle, self.columns = self.entry(2), self.entry(3)
        self.row_step, self.step, self.column_step = map(self.entry, (4, 5, 6))

    def write(self) -> None:
        """Emit the loops over rows and columns."""
        lanes = self.lanes
        with self.loop(self.low, self.high) as row:
            x = self.x + row * self.row_step
            first = row * self.columns
            end = self.whole_vectors(0, self.columns, _VECTORS * lanes)
            with self.loop(0, end, _VECTORS * lanes) as column:
                blocks = [(column + k * lanes, None) for k in range(_VECTORS)]
                self.reduce(x, first, blocks)
            for column, mask in self.run(end, self.columns):
                self.reduce(x, first, [(column, mask)])

    def reduce(
        self, x: Pointer, first: Number, blocks: Sequence[tuple[Index, Mask]]
    ) -> None:
        """Reduce some vectors of the columns of a row.

        Args:
            x: the address of the row.
            first: the index of the row's first result.
            blocks: the first column and the mask of each vector.
        """
        empty = self.combine.initial()
        size = len(empty)
        with self.accumulate(0, self.middle, 1, empty * len(blocks)) as iteration:
            at = x + iteration.index * self.step
            states: list[Value] = []
            for k, (column, mask) in enumerate(blocks):
                element = [self._load(at, column, mask)]
                if self.returns_index:
                    element.append(self.int32(self.int64(iteration.index)))
                state = iteration.values[k * size : (k + 1) * size]
                states += self.combine.merge(state, element)
            iteration.next(states)
        for k, (column, mask) in enumerate(blocks):
            state = iteration.values[k * size : (k + 1) * size]
            self.store(self.combine.result(state), self.out, first + column, mask)

    def _load(self, at: Pointer, column: Index, mask: Mask) -> Value:
        if self.inner < 0:
            return self.gather(at, self.column_step, column, self.dtype, mask)
        return self.load(at, column, self.dtype, mask)


def emit_middle(op: str, dtype: str, inner: int) -> Kernel:
    """Emit a kernel that reduces the middle axes."""
    b = _Middle(op, dtype, inner)
    b.write()
    return b


def emit_line(op: str, dtype: str, inner: int) -> Kernel:
    """Emit a kernel for a single column, with vectors along the reduced axis."""
    b = Kernel(current().lanes)
    x, out, count = b.address(0), b.address(1), b.entry(2)
    row_step, step = b.entry(4), b.entry(5)
    combine = reducer(op, dtype, b)
    full = b.whole_vectors(0, count, b.lanes)
    with b.loop(b.low, b.high) as row:
        at, state = x + row * row_step, combine.initial()
        for low, high in ((0, full), (full, count)):
            with b.accumulate(low, high, b.lanes, state) as iteration:
                index = iteration.index
                mask = b.first_lanes(count - index) if low is full else None
                value = (
                    b.gather(at, step, index, dtype, mask)
                    if inner < 0
                    else b.load(at, index, dtype, mask)
                )
                iteration.next(combine.add(iteration.values, value, mask, index))
            state = iteration.values
        address = b.at(out, row, "int32" if op.startswith("arg") else dtype)
        b.put_first(combine.finish(state), address)
    return b


def lower_middle(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Lower a reduction over adjacent axes, with other axes before or after them."""
    x, result, op = inputs[0], outputs[0].spec, node.op.name
    axes = node.attrs["axis"]
    axes = axes if isinstance(axes, tuple) else (axes,)
    if not axes or list(axes) != list(range(axes[0], axes[-1] + 1)):
        return None
    dtype = x.spec.dtype
    if dtype not in DTYPES or (dtype != result.dtype and not op.startswith("arg")):
        return None
    if not result.size:
        return Lowered()
    groups = (
        slice(0, axes[0]),
        slice(axes[0], axes[-1] + 1),
        slice(axes[-1] + 1, None),
    )
    extents = [prod(x.spec.shape[group]) for group in groups]
    steps = [_axis_stride(x, group) for group in groups]
    if None in steps:
        return None
    (rows, middle, columns), itemsize = extents, dtypes.itemsize(dtype)
    is_line = columns == 1 and op.startswith("arg")
    inner = stride_class(steps[1 if is_line else 2] or 0, itemsize)
    operands: tuple[Reference, ...] = (("in", 0), ("out", 0))
    call = Call(
        Code(emit_line if is_line else emit_middle, op, dtype, 1 if inner == 1 else -1),
        operands,
        (middle, columns, *(step or 0 for step in steps)),
        rows,
        partition(rows),
        frozenset(operands),
        flops=x.spec.size,
        nbytes=x.spec.nbytes + result.nbytes,
    )
    return Lowered((call,))


def _axis_stride(x: Operand, axes: slice) -> int | None:
    """Return the byte stride along some axes, or None if it varies."""
    loops, (strides,) = collapse_loops(x.spec.shape[axes], [x.strides[axes]], 0)
    if not loops.extents:
        return dtypes.itemsize(x.spec.dtype)
    return strides[0] if len(strides) == 1 else None
