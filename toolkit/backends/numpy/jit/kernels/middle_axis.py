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
# Rows of at most this number of vectors are reduced with one row in each lane. The
# reduction of the lanes of each row would take longer. Measured: argmax of 32, 48, 100.
_MAX_SHORT_ROW_VECTORS = 4
# Contiguous rows up to this length are loaded by vectors, and shuffles select their
# columns. Measured for argmax of 1e5 elements: rows of 2 take 11 us instead of 42.
_MAX_SHUFFLED_COLUMNS = 10
# Rows of at least this number of vectors use twice as many accumulators. Measured:
# argmax of 1e5 elements takes 4.1 us instead of 6.2 us.
_MIN_LONG_ROW_VECTORS = 16


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
                states += self.combine.add_following(state, element)
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


class _Line(Kernel):
    """Emits out[row] = the reduction of x[row, m] over m, for a single column.

    The table is the table of `_Middle`, without the last entry.

    Args:
        op: the reduction.
        dtype: of x.
        inner: the stride class of the reduced axis.
        accumulators: the number of vectors of an iteration.
    """

    def __init__(self, op: str, dtype: str, inner: int, accumulators: int = 1) -> None:
        super().__init__(current().lanes)
        self.dtype, self.inner, self.accumulators = dtype, inner, accumulators
        self.combine = reducer(op, dtype, self)
        self.x, self.out, self.count = self.address(0), self.address(1), self.entry(2)
        self.row_step, self.step = self.entry(4), self.entry(5)
        self.result_dtype = "int32" if op.startswith("arg") else dtype

    def write(self) -> None:
        """Emit the loop over rows, with vectors along the reduced axis."""
        with self.loop(self.low, self.high) as row:
            states = self._reduce(self.x + row * self.row_step)
            address = self.at(self.out, row, self.result_dtype)
            self.put_first(self.combine.finish_all(states), address)

    def _reduce(self, at: Pointer) -> list[list[Value]]:
        """Reduce a row of at least as many vectors as accumulators.

        The last vectors overlap earlier ones. An element that is added again is not
        better than the state, so the first index of an extremum stays.
        """
        width, initial = self.accumulators * self.lanes, self.combine.initial()
        last = self.count - width
        states = [initial] * self.accumulators
        size = len(initial)
        flat = [value for state in states for value in state]
        with self.accumulate(0, last, width, flat) as iteration:
            values = iteration.values
            states = [values[k : k + size] for k in range(0, len(values), size)]
            following = self._add_vectors(at, states, iteration.index)
            iteration.next([value for state in following for value in state])
        values = iteration.values
        states = [values[k : k + size] for k in range(0, len(values), size)]
        return self._add_vectors(at, states, last)

    def _add_vectors(
        self, at: Pointer, states: list[list[Value]], index: Index
    ) -> list[list[Value]]:
        """Accumulate a vector for each state, from an index on."""
        return [
            self._add(at, state, index + k * self.lanes)
            for k, state in enumerate(states)
        ]

    def _add(self, at: Pointer, state: list[Value], index: Index) -> list[Value]:
        """Accumulate the vector of a row that starts at an index."""
        if self.inner < 0:
            value = self.gather(at, self.step, index, self.dtype, None)
        else:
            value = self.load(at, index, self.dtype, None)
        return self.combine.add(state, value, None, index)

    def write_columns(self, count: int) -> None:
        """Emit the loop over vectors of contiguous rows of this number of elements."""
        size = dtypes.itemsize(self.dtype)
        for row, mask in self.run(self.low, self.high):
            state = self.combine.initial()
            for k in range(count):
                at = self.x + k * size
                value = self.load_strided(at, count, row, self.dtype, mask)
                state = self._add_column(state, value, k)
            self.store(self.combine.result(state), self.out, row, mask)

    def write_in_lanes(self) -> None:
        """Emit the loop over vectors of short rows, one row in each lane."""
        for row, mask in self.run(self.low, self.high):
            start, state = self._reduce_blocks(row, mask)
            with self.accumulate(start, self.count, 1, state) as iteration:
                at = self.x + iteration.index * self.step
                value = self.gather(at, self.row_step, row, self.dtype, mask)
                state = self._add_column(iteration.values, value, iteration.index)
                iteration.next(state)
            self.store(self.combine.result(iteration.values), self.out, row, mask)

    def _reduce_blocks(self, row: Index, mask: Mask) -> tuple[Number, list[Value]]:
        """Reduce square blocks of contiguous rows, and return the remaining start."""
        state = self.combine.initial()
        if mask is not None or self.inner < 0:
            return 0, state
        end = self.whole_vectors(0, self.count, self.lanes)
        rows = [self.x + (row + k) * self.row_step for k in range(self.lanes)]
        with self.accumulate(0, end, self.lanes, state) as iteration:
            block = [self.load(x, iteration.index, self.dtype, None) for x in rows]
            state = iteration.values
            for k, column in enumerate(self.transposed(block)):
                state = self._add_column(state, column, iteration.index + k)
            iteration.next(state)
        return end, iteration.values

    def _add_column(
        self, state: list[Value], column: Value, index: Number
    ) -> list[Value]:
        """Accumulate the elements of all rows at an index."""
        indices = self.int32(self.int64(index))
        return self.combine.add_following(state, [column, indices])


def emit_line(op: str, dtype: str, inner: int, accumulators: int) -> Kernel:
    """Emit a kernel for a single column, with vectors along the reduced axis."""
    b = _Line(op, dtype, inner, accumulators)
    b.write()
    return b


def emit_short_lines(op: str, dtype: str, inner: int) -> Kernel:
    """Emit a kernel for a single column and short rows, one row in each lane."""
    b = _Line(op, dtype, inner)
    b.write_in_lanes()
    return b


def emit_columns(op: str, dtype: str, count: int) -> Kernel:
    """Emit a kernel for contiguous rows of a few elements, one row in each lane."""
    b = _Line(op, dtype, 1)
    b.write_columns(count)
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
    if columns == 1 and is_few_columns(x, axes):
        code = Code(emit_columns, op, dtype, middle)
    else:
        code = _code(op, dtype, 1 if inner == 1 else -1, middle if is_line else 0)
    call = Call(
        code,
        operands,
        (middle, columns, *(step or 0 for step in steps)),
        rows,
        partition(rows),
        frozenset(operands),
        flops=x.spec.size,
        nbytes=x.spec.nbytes + result.nbytes,
    )
    return Lowered((call,))


def is_few_columns(x: Operand, axes: Sequence[int]) -> bool:
    """Return whether the reduced axes are the last ones, contiguous and short."""
    count = prod(x.spec.shape[axis] for axis in axes)
    is_last = [*axes] == [*range(x.spec.ndim - len(axes), x.spec.ndim)]
    return is_last and x.is_contiguous and 1 < count <= _MAX_SHUFFLED_COLUMNS


def _code(op: str, dtype: str, inner: int, line: int) -> Code:
    """Return the function for lines of this number of elements; 0: for columns."""
    lanes = current().lanes
    if not line:
        return Code(emit_middle, op, dtype, inner)
    if line <= _MAX_SHORT_ROW_VECTORS * lanes:
        return Code(emit_short_lines, op, dtype, inner)
    is_long = line >= _MIN_LONG_ROW_VECTORS * lanes
    return Code(emit_line, op, dtype, inner, _VECTORS * (2 if is_long else 1))


def _axis_stride(x: Operand, axes: slice) -> int | None:
    """Return the byte stride along some axes, or None if it varies."""
    loops, (strides,) = collapse_loops(x.spec.shape[axes], [x.strides[axes]], 0)
    if not loops.extents:
        return dtypes.itemsize(x.spec.dtype)
    return strides[0] if len(strides) == 1 else None
