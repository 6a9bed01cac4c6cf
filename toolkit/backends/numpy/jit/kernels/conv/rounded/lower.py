"""Lowering of convolutions with rounded operands to calls: packing, then products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from toolkit import dtypes
from toolkit.backends.numpy.jit.calls import Lowered, Reference, partition
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.epilogue import BodyStructure
from toolkit.backends.numpy.jit.kernels.conv import geometry
from toolkit.backends.numpy.jit.kernels.conv.problem import (
    correlation_windows,
    element_strides,
    tap_stride,
)
from toolkit.backends.numpy.jit.kernels.conv.rounded.correlation import (
    RoundedPlan,
    emit_rounded_correlation,
    emit_rounded_panels,
)
from toolkit.backends.numpy.jit.kernels.conv.rounded.grid import grid_of
from toolkit.backends.numpy.jit.kernels.conv.rounded.layout import pack_images
from toolkit.backends.numpy.jit.kernels.conv.rounded.pixels import Pixels
from toolkit.backends.numpy.jit.kernels.conv.rounded.unfold import (
    UNFOLDED_COST,
    unfolded,
)
from toolkit.backends.numpy.jit.kernels.gemm.amx import (
    BLOCK_TERMS,
    PANELS,
    SPAN,
)
from toolkit.backends.numpy.jit.kernels.gemm.call_list import (
    CallList,
    body_call,
    full_operands,
)
from toolkit.backends.numpy.jit.kernels.gemm.cost_model import BlockRates
from toolkit.backends.numpy.jit.kernels.gemm.problem import STRIDED, packing_of
from toolkit.backends.numpy.jit.kernels.gemm.strips import Factor, pack_call
from toolkit.backends.numpy.jit.processor import current
from toolkit.backends.numpy.jit.products import can_round_factors
from toolkit.ir import Graph, Node, Spec
from toolkit.plans.loops.planner import TASKS
from toolkit.plans.operands import Operand, contiguous
from toolkit.plans.rules import rules

# For convolutions. The measurement is not recorded.
RATES = BlockRates(float32_flops=2e11, packed_bytes=3e10)
# The least FLOPs of a task, and the most unrolled taps.
_TASK_FLOPS, _MAX_UNROLLED_TAPS = 1 << 25, 32


def can_round(node: Node) -> bool:
    """Return whether the processor may round the operands of a node."""
    # Rows that must not depend on the batch use float32.
    is_free = current().rounds_factors and not rules.rows_independent
    return is_free and can_round_factors(node)


def lower_rounded(
    body: Graph,
    inputs: Sequence[Operand],
    operands: tuple[int, ...],
    is_input_grad: bool,
    speedup: float,
) -> Lowered | None:
    """Return the calls of a body, or None if float32 is faster.

    Args:
        body: a convolution or an input gradient, and its epilogue.
        inputs: of the body.
        operands: the inputs that are images and weights.
        is_input_grad: whether it is an input gradient.
        speedup: the speedup of the float32 algorithm over a direct convolution.
    """
    if not can_round(body.nodes[0]):
        return None
    lowering = _Lowering(body, inputs, operands, is_input_grad)
    return lowering.lower() if lowering.is_faster(speedup) else None


def part_size(count: int, nbytes: int, images: int, flops: int) -> int:
    """Return the positions of a part of an image along the first axis.

    Args:
        count, nbytes: the positions along this axis, and the bytes, of a whole image.
        images: the number of images.
        flops: of all images.
    """
    images = max(1, images)
    min_parts = -(-nbytes // (current().cache_bytes // 4))
    task_parts = min(-(-TASKS // images), flops // images // _TASK_FLOPS)
    return -(-count // max(1, min(count, max(min_parts, task_parts))))


class _Lowering:
    """Collects the calls of one convolution."""

    def __init__(
        self,
        body: Graph,
        inputs: Sequence[Operand],
        operands: tuple[int, ...],
        is_input_grad: bool,
    ) -> None:
        self.body, self.is_input_grad = body, is_input_grad
        self.steps = CallList()
        node = body.nodes[0]
        self.spec = node.outputs[0].spec
        (images, x), (weights, w) = ((inputs[i], ("in", i)) for i in operands)
        if element_strides(images)[-1] != 1:
            images, x = self.steps.copy_row_major(images, x)
        if tap_stride(weights) is None or self._packing(weights)[0] == STRIDED:
            weights, w = self.steps.copy_row_major(weights, w)
        attrs: Mapping[str, Any] = node.attrs
        self.cost: int = 1  # of a byte of the images
        if not is_input_grad and weights.is_contiguous:
            sizes, out = weights.spec.shape[:-2], self.spec.shape[-2]
            unfolding = unfolded(self.steps, images, x, attrs, sizes, out)
            if unfolding:
                images, x, attrs, sizes = unfolding
                self.cost = UNFOLDED_COST
                shape = (*sizes, images.spec.shape[-1], weights.spec.shape[-1])
                spec = Spec(shape, weights.spec.dtype)
                weights = replace(contiguous(spec), is_frozen=weights.is_frozen)
        self.images, self.weights, self.x, self.w = images, weights, x, w
        size = weights.spec.shape[:-2]
        window_axes = correlation_windows(attrs, size, images, self.spec, is_input_grad)
        self.sweeps = geometry.sweeps(window_axes, is_input_grad)
        self.sizes = tuple(window.size for window in window_axes)
        self.depth: int = images.spec.shape[-1]
        terms = prod(self.sizes) * self.depth * self.spec.shape[-1]
        pixels = images if is_input_grad else self.spec
        self.flops: int = 2 * terms * prod(_extents(pixels))
        self.plan = self._plan()

    def _plan(self) -> RoundedPlan:
        full_plan = self._plan_of(max(a[0].count for a in self.sweeps))
        self.is_prepacked: bool = full_plan.weight_bytes > current().cache_bytes // 2
        if self.is_prepacked:
            return full_plan
        pixels, images = full_plan.pixels, self.spec.shape[0]
        count = pixels.grid.sides[0].count
        return self._plan_of(part_size(count, pixels.nbytes, images, self.flops))

    def _plan_of(self, part_size: int) -> RoundedPlan:
        dtype = self.images.spec.dtype
        pixels = Pixels(grid_of(self.sweeps, part_size), self.depth, dtype)
        width = self.spec.shape[-1]
        plan = RoundedPlan(
            pixels, self.sweeps, self.sizes, self.is_input_grad, width, 1
        )
        # The weights of a group stay in the cache for all positions.
        panels_in_cache = current().cache_bytes // 2 // (2 * plan.strip_bytes)
        return replace(plan, group=max(1, min(panels_in_cache, PANELS, plan.panels)))

    def is_faster(self, speedup: float) -> bool:
        """Return whether it is faster than float32 with a given gain."""
        plan, images = self.plan, self.spec.shape[0]
        if not self.flops or prod(self.sizes) > _MAX_UNROLLED_TAPS:
            return False
        pixels, grid = plan.pixels, plan.pixels.grid
        positions = grid.part_count * grid.part_size * grid.steps[0]
        taps = sum(len(plan.taps(axes)) for axes in self.sweeps)
        rows = -(-positions // SPAN) * SPAN * images * taps
        in_blocks = 2 * rows * pixels.blocks * BLOCK_TERMS * plan.panels * SPAN
        packed = self.images.spec.nbytes * self.cost
        if not self.weights.is_frozen:
            packed += self.weights.spec.nbytes
        return RATES.prefers_blocks(self.flops, in_blocks, packed, speedup)

    def lower(self) -> Lowered:
        """Return all calls, in order."""
        plan, pixels = self.plan, self.plan.pixels
        strips = self._pack_weights()
        pitch, count = element_strides(self.images)[0], self.spec.shape[0]
        if self.is_prepacked:
            packed = pack_images(self.steps, pixels, self.images, self.x)
            images_per_row = -(-count // min(count, -(-TASKS // plan.groups)))
            image_groups = -(-count // images_per_row)
            rows = plan.groups * image_groups
            code = Code(emit_rounded_panels, BodyStructure(self.body), plan)
            self._correlate(
                code, (strips, packed), (count, images_per_row, image_groups), rows
            )
        else:
            rows = count * pixels.grid.part_count
            tasks = -(-rows // partition(rows))
            memory = self.steps.allocate(tasks * pixels.nbytes)
            code = Code(emit_rounded_correlation, BodyStructure(self.body), plan)
            self._correlate(code, (strips, self.x, memory), (pitch,), rows)
        return self.steps.lower()

    def _correlate(
        self,
        code: Code,
        extra_operands: Sequence[Reference],
        numbers: tuple[int, ...],
        rows: int,
    ) -> None:
        """Append the call that computes the body's outputs."""
        by_images = not self.is_prepacked and rows == self.spec.shape[0]
        call = body_call(
            code,
            self.body,
            extra_operands,
            numbers,
            rows,
            partition(rows),
            self.flops,
            (self.x, *full_operands(self.body)) if by_images else (),
        )
        self.steps.append(call)

    def _packing(self, weights: Operand) -> tuple[str, int, int]:
        """Return the axis with stride 1, and the byte strides of lines and terms."""
        item = dtypes.itemsize(weights.spec.dtype)
        first, last = (n * item for n in element_strides(weights)[-2:])
        line, term = (first, last) if self.is_input_grad else (last, first)
        return packing_of(line, term, item), line, term

    def _pack_weights(self) -> Reference:
        """Append the call that packs the weights, and return their destination."""
        packing, line, term = self._packing(self.weights)
        dtype, taps = self.weights.spec.dtype, prod(self.sizes)
        step = (tap_stride(self.weights) or 0) * dtypes.itemsize(dtype)
        extents = self.plan.width, self.depth
        factor = Factor(packing, dtype, *extents, line, term, taps, step)
        reference = self.steps.allocate(self.plan.weight_bytes)
        self.steps.append(pack_call(factor, True, self.w, reference))
        return reference


def _extents(value: Any) -> Sequence[int]:
    """Return the batch and the spatial extents of an operand or a spec."""
    shape = value.spec.shape if isinstance(value, Operand) else value.shape
    extents: Sequence[int] = shape[:-1]
    return extents
