"""Lowering of kernel gradients with rounded operands: products, then a total."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from toolkit.backends.numpy.jit.calls import Call, Lowered, Reference, partition
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.kernels.conv import geometry
from toolkit.backends.numpy.jit.kernels.conv.problem import (
    element_strides,
    gradient_windows,
)
from toolkit.backends.numpy.jit.kernels.conv.rounded.grid import Grid, grid_of
from toolkit.backends.numpy.jit.kernels.conv.rounded.kernel_grad import (
    RoundedGradPlan,
    emit_rounded_blocks,
    emit_rounded_grad,
    emit_rounded_total,
)
from toolkit.backends.numpy.jit.kernels.conv.rounded.layout import pack_images
from toolkit.backends.numpy.jit.kernels.conv.rounded.lower import (
    RATES,
    can_round,
    part_size,
)
from toolkit.backends.numpy.jit.kernels.conv.rounded.planes import (
    Planes,
    PositionPairs,
    positions_of,
)
from toolkit.backends.numpy.jit.kernels.conv.rounded.unfold import (
    UNFOLDED_COST,
    unfolded,
)
from toolkit.backends.numpy.jit.kernels.gemm.amx import BLOCK_TERMS
from toolkit.backends.numpy.jit.kernels.gemm.call_list import CallList
from toolkit.backends.numpy.jit.processor import current
from toolkit.ir import Node, Spec
from toolkit.plans.operands import Operand

_MAX_UNROLLED_TAPS = 32
# The most bytes of a task's sums, which stay in the L2 cache.
_MAX_SUM_BYTES = 1 << 20
# The reads and writes of a task's sums from beyond that cache.
_SUM_MOVES = 5
_TOTAL_GRAIN = 1 << 14


def lower_rounded_grad(
    node: Node, inputs: Sequence[Operand], speedup: float
) -> Lowered | None:
    """Return the calls of a kernel gradient, or None if float32 is faster.

    Args:
        node: the gradient.
        inputs: of it.
        speedup: the speedup of the float32 algorithm over a direct computation.
    """
    if not can_round(node):
        return None
    lowering = _Lowering(node, inputs)
    return lowering.lower() if lowering.is_faster(speedup) else None


class _Lowering:
    """Collects the calls of one kernel gradient."""

    def __init__(self, node: Node, inputs: Sequence[Operand]) -> None:
        self.spec = node.outputs[0].spec
        self.steps = CallList()
        references: list[Reference] = [("in", 0), ("in", 1)]
        operands = []
        for i, operand in enumerate(inputs):
            if element_strides(operand)[-1] != 1:
                operand, references[i] = self.steps.copy_row_major(
                    operand, references[i]
                )
            operands.append(operand)
        (self.images, self.gradients), (self.x, self.g) = operands, references
        shape = self.gradients.spec.shape
        self.count: int = shape[0]
        self.flops: int = 2 * self.spec.size * prod(shape[:-1])
        attrs: Mapping[str, Any] = node.attrs
        sizes = attrs["kernel"]
        unfolding = unfolded(self.steps, self.images, self.x, attrs, sizes, shape[-2])
        self.cost: int = UNFOLDED_COST if unfolding else 1  # of a byte of the images
        if unfolding:
            self.images, self.x, attrs, sizes = unfolding
            channels = self.images.spec.shape[-1], shape[-1]
            self.spec = Spec((*sizes, *channels), self.spec.dtype)
        window_axes = gradient_windows(attrs, sizes, self.images, self.gradients)
        self.axes = geometry.forward(window_axes)
        self.pitches = tuple(window.step for window in window_axes)
        self.plan = self._plan()

    def _plan(self) -> RoundedGradPlan:
        full_plan = self._plan_of(self.axes[0].count)
        self.is_prepacked: bool = self._is_prepacked(full_plan)
        if self.is_prepacked:
            return full_plan
        nbytes = full_plan.planes.nbytes + full_plan.pairs.nbytes
        count = full_plan.planes.grid.sides[0].count
        return self._plan_of(part_size(count, nbytes, self.count, self.flops))

    def _is_prepacked(self, full_plan: RoundedGradPlan) -> bool:
        """Return whether an earlier call packs images, for less traffic of sums."""
        if full_plan.nbytes > _MAX_SUM_BYTES:
            return True
        packed = 2 * self.count * (full_plan.planes.nbytes + full_plan.pairs.nbytes)
        reread = min(
            self._reread_bytes(full_plan, by_rows) for by_rows in (False, True)
        )
        tasks = -(-self.count // partition(self.count))
        return packed + reread < _SUM_MOVES * full_plan.nbytes * tasks

    def _reread_bytes(self, plan: RoundedGradPlan, by_rows: bool) -> int:
        """Return the bytes that blocks read again from beyond the L2 cache.

        Args:
            plan: of whole images.
            by_rows: whether the outer loop is over blocks of inputs, not of gradients.
        """
        input_blocks, output_blocks = plan.blocks
        times, sweep_bytes = output_blocks, plan.planes.nbytes
        if by_rows:
            times, sweep_bytes = input_blocks, plan.pairs.nbytes
        sweep_bytes *= self.count
        return (
            0
            if sweep_bytes < current().cache_bytes * 3 // 4
            else (times - 1) * sweep_bytes
        )

    def _plan_of(self, part_size: int) -> RoundedGradPlan:
        if len(self.axes) == 1:
            # Pairs of positions must not extend into the next part.
            part_size = -(-part_size // BLOCK_TERMS) * BLOCK_TERMS
        grid: Grid = grid_of((self.axes,), part_size, is_shared=True)
        depth, width = self.spec.shape[-2:]
        positions = positions_of(grid, self.pitches)
        pairs = PositionPairs(positions, width, self.gradients.spec.dtype)
        planes = Planes(grid, depth, self.images.spec.dtype)
        return RoundedGradPlan(planes, pairs, self.axes)

    def is_faster(self, speedup: float) -> bool:
        """Return whether it is faster than float32 with a given gain."""
        plan = self.plan
        if not self.flops or plan.taps > _MAX_UNROLLED_TAPS:
            return False
        terms = (
            plan.planes.grid.part_count * plan.pairs.blocks * BLOCK_TERMS * self.count
        )
        sums = plan.taps * plan.planes.channels * plan.pairs.channels
        packed = self.images.spec.nbytes * self.cost + self.gradients.spec.nbytes
        return RATES.prefers_blocks(self.flops, 2 * terms * sums, packed, speedup)

    def lower(self) -> Lowered:
        """Return all calls, in order."""
        slots = self._lower_prepacked() if self.is_prepacked else self._lower_parts()
        if slots:
            plan, rows = self.plan, self.plan.taps * self.plan.planes.depth
            total = Call(
                Code(emit_rounded_total, plan),
                (self.sums, ("out", 0)),
                (slots,),
                rows=rows,
                grain=max(1, _TOTAL_GRAIN // plan.pairs.depth),
                nbytes=slots * plan.nbytes + self.spec.nbytes,
            )
            self.steps.append(total)
        return self.steps.lower()

    def _take_sums(self, slots: int) -> bool:
        """Set the destination of sums. Return whether a reduction follows."""
        is_total = slots == 1 and self.plan.is_whole
        self.sums: Reference = ("out", 0)
        if not is_total:
            self.sums = self.steps.allocate(slots * self.plan.nbytes)
        return not is_total

    def _lower_parts(self) -> int:
        """Append the call for parts of images. Return the number of partial results."""
        plan = self.plan
        rows = self.count * plan.planes.grid.part_count
        grain = partition(rows)
        slots = -(-rows // grain)
        is_part = self._take_sums(slots)
        memory = self.steps.allocate(slots * (plan.planes.nbytes + plan.pairs.nbytes))
        by_images = rows == self.count
        pitches = element_strides(self.images)[0], element_strides(self.gradients)[0]
        call = Call(
            Code(emit_rounded_grad, plan),
            (self.x, self.g, self.sums, memory),
            (*pitches, grain),
            rows=rows,
            grain=grain,
            row_operands=frozenset((self.x, self.g) if by_images else ()),
            flops=self.flops,
            nbytes=self.images.spec.nbytes + self.gradients.spec.nbytes,
        )
        self.steps.append(call)
        return slots if is_part else 0

    def _lower_prepacked(self) -> int:
        """Append the calls for blocks of the result, with packed images."""
        plan = self.plan
        x = pack_images(self.steps, plan.planes, self.images, self.x)
        g = pack_images(self.steps, plan.pairs, self.gradients, self.g)
        is_part = self._take_sums(1)
        rows = prod(plan.blocks)
        by_rows = self._reread_bytes(plan, True) < self._reread_bytes(plan, False)
        call = Call(
            Code(emit_rounded_blocks, plan, by_rows),
            (x, g, self.sums),
            (self.count,),
            rows=rows,
            grain=partition(rows),
            flops=self.flops,
            nbytes=self.images.spec.nbytes + self.gradients.spec.nbytes,
        )
        self.steps.append(call)
        return 1 if is_part else 0
