"""The function of a plan: loops over rows, passes over each row, accumulators.

The table contains the addresses of operands, outputs and row buffers, then the numbers
of `Numbers` in order.
"""

from __future__ import annotations

from toolkit.backends.numpy.jit.builder import Number
from toolkit.backends.numpy.jit.fused.lane_rows import LaneRows
from toolkit.backends.numpy.jit.fused.partials import Partials
from toolkit.backends.numpy.jit.fused.row_index import RowElementValues
from toolkit.backends.numpy.jit.fused.rows import RegisterRow, StreamedRow
from toolkit.backends.numpy.jit.fused.transposed_tiles import TransposedTiles
from toolkit.backends.numpy.jit.fused.values import Bases
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.processor import current
from toolkit.dtypes import itemsize
from toolkit.plans.loops.plan import FULL, ROW, LoopNest

# A vector register holds this factor more bytes than float32 numbers.
_BYTE_FACTOR = 4


def emit_plan(plan: LoopNest) -> Kernel:
    """Emit the body of the function of a plan."""
    builder = Kernel(current().lanes * (_BYTE_FACTOR if _is_of_bytes(plan) else 1))
    _NestEmitter(builder, plan).write()
    return builder


def _is_of_bytes(plan: LoopNest) -> bool:
    """Return whether a plan has only vectors of bytes, from memory to memory."""
    is_streamed = not plan.register_vectors and not plan.lane_columns
    if not is_streamed or plan.transposed_loop >= 0 or plan.accesses_elements:
        return False
    if any(write.role not in (FULL, ROW) for write in plan.writes):
        return False
    dtypes = [x.dtype for values in (plan.reads, plan.steps) for x in values]
    dtypes += [x.dtype for x in plan.writes]
    return all(itemsize(dtype) == 1 for dtype in dtypes)


class _NestEmitter:
    """Emitter of the function of one plan."""

    def __init__(self, builder: Kernel, plan: LoopNest) -> None:
        self.b = builder
        self.plan = plan
        self.values = RowElementValues(builder, plan)
        self.partials = Partials(self.values)

    def write(self) -> None:
        """Emit the whole function."""
        b, plan = self.b, self.plan
        values, bases = self.values, self.values.bases
        unit = values.entry(values.numbers.unit)
        low, high = b.low * unit, b.high * unit
        if plan.lane_columns:
            LaneRows(values).write(low, high)
            return
        row = (RegisterRow if plan.register_vectors else StreamedRow)(
            values, self.partials
        )
        if isinstance(row, StreamedRow) and plan.transposed_loop >= 0:
            TransposedTiles(row).write(low, high)
        elif plan.is_flat:
            row.emit_range(bases, low, high)
        elif plan.is_single_row:
            self.partials.load(row.vectors)
            row.emit_row(bases, 0)
            self.partials.store(row.vectors)
        else:
            self._rows(row, 0, bases, low, high)

    def _rows(
        self,
        row: RegisterRow | StreamedRow,
        loop: int,
        bases: Bases,
        low: Number,
        high: Number,
    ) -> None:
        if loop < self.plan.row_loops - 1:
            with self.b.loop(low, high) as index:
                moved = self.values.bases_at(bases, loop, index)
                self._rows(row, loop + 1, moved, 0, self.values.extents[loop + 1])
            return
        with self.b.accumulate(
            low, high, 1, self.partials.load(row.vectors)
        ) as iteration:
            self.partials.set_registers(iteration.values)
            row.emit_row(
                self.values.bases_at(bases, loop, iteration.index), iteration.index
            )
            iteration.next(self.partials.values)
        self.partials.set_registers(iteration.values)
        self.partials.store(row.vectors)
