"""Lowering of convolutions and input gradients to calls: packing, then correlation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from math import prod
from typing import Any

from toolkit import dtypes
from toolkit.backends.numpy.jit.calls import Call, Lowered, Reference, partition
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.epilogue import BodyStructure
from toolkit.backends.numpy.jit.kernels.conv import geometry
from toolkit.backends.numpy.jit.kernels.conv.correlate import emit_correlation
from toolkit.backends.numpy.jit.kernels.conv.input_loader import channels
from toolkit.backends.numpy.jit.kernels.conv.pack import (
    Layout,
    emit_pack,
    emit_pack_points,
)
from toolkit.backends.numpy.jit.kernels.conv.plan import CorrelationPlan
from toolkit.backends.numpy.jit.kernels.conv.problem import (
    correlation_windows,
    element_strides,
    select_strided_pixels,
    tap_stride,
)
from toolkit.backends.numpy.jit.kernels.conv.rounded import lower_rounded
from toolkit.backends.numpy.jit.kernels.conv.tiles import (
    best_vectors,
    max_rows,
    register_count,
)
from toolkit.backends.numpy.jit.kernels.conv.winograd.correlation import (
    WinogradPlan,
    emit_winograd,
    winograd_plan,
)
from toolkit.backends.numpy.jit.kernels.gemm.call_list import (
    CallList,
    body_call,
    full_operands,
)
from toolkit.backends.numpy.jit.kernels.gemm.problem import (
    LINES,
    STRIDED,
    TERMS,
    factor_indices,
)
from toolkit.backends.numpy.jit.math.bfloat16 import NARROW
from toolkit.backends.numpy.jit.processor import lanes_of
from toolkit.ir import Graph
from toolkit.plans.loops.planner import TASKS
from toolkit.plans.operands import Operand
from toolkit.plans.rules import rules

# The least output channels for which a copy of their input pixels pays.
_MIN_COPY_FILTERS = 64
# The least multiply-adds of a task, and the least weights for packing in parallel.
_MIN_STRIP_WORK, _MIN_PARALLEL_WEIGHTS = 1 << 19, 1 << 16
# The cost of a multiply-add of few channels: loads, stores and epilogues dominate short
# sums.
_SHORT_SUM_COST = 4
# The most images of a batch in which each image would be one task.
_MAX_FEW_IMAGES = 2
# Dot products of a tile. Each ends with a reduction, which takes much code.
_DOTS_PER_TILE = 12
# Pixels of a block: two tiles on processors with the widest vectors.
_MIN_BLOCK_PIXELS = 28
# The least tiles of a batch for which transforming the weights pays, for a convolution
# and for an input gradient. The second bound keeps the training of one image as fast.
_MIN_TILES, _MIN_GRAD_TILES = 16, 32
# The same bound if the weights exceed the nearest caches: transformed weights are
# larger.
_MIN_FAR_TILES = 48
# Multiply-adds that take as long as one number of the transformed weights.
_WEIGHT_TRANSFORM_COST = 40


def lower_conv(
    body: Graph, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Lower a convolution and its epilogue."""
    return _lower(body, inputs, is_input_grad=False)


def lower_conv_input_grad(
    body: Graph, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Lower an input gradient and its epilogue."""
    return _lower(body, inputs, is_input_grad=True)


def _lower(
    body: Graph, inputs: Sequence[Operand], is_input_grad: bool
) -> Lowered | None:
    """Lower a body.

    Args:
        body: the anchor and its epilogue.
        inputs: of the body.
        is_input_grad: whether the weights are transposed, and their taps reversed.
    """
    operands, spec = factor_indices(body, inputs), body.nodes[0].outputs[0].spec
    if operands is None or spec.dtype not in ("float32", "float64"):
        return None
    if not spec.size:
        return Lowered()
    lowering = _Lowering(body, inputs, operands, is_input_grad)
    rounded = lower_rounded(body, inputs, operands, is_input_grad, lowering.speedup)
    return lowering.lower() if rounded is None else rounded


def _skips_pixels(attrs: Mapping[str, Any], weights: Operand) -> bool:
    """Return whether outputs skip pixels, and a copy of the used pixels pays.

    In the copy, neighbours are contiguous: tiles extend over the ends of rows, and
    pixels map to different cache sets, which strided pixels often do not.
    """
    *size, _, filters = weights.spec.shape
    is_padded = any(map(any, attrs["padding"]))
    is_single = prod(size) == 1 and attrs["groups"] == 1 and not is_padded
    return is_single and max(attrs["strides"]) > 1 and filters >= _MIN_COPY_FILTERS


class _Lowering:
    """Collects the calls: copies, packing, and the correlation."""

    def __init__(
        self,
        body: Graph,
        inputs: Sequence[Operand],
        operands: tuple[int, ...],
        is_input_grad: bool,
    ) -> None:
        self.body = body
        self.is_input_grad = is_input_grad
        self.steps = CallList()
        self.attrs = body.nodes[0].attrs
        self.spec = body.nodes[0].outputs[0].spec
        (images, x), (weights, w) = ((inputs[i], ("in", i)) for i in operands)
        if self.attrs["groups"] > 1 and element_strides(images)[-1] != 1:
            images, x = self.steps.copy_row_major(images, x)
        elif not is_input_grad and _skips_pixels(self.attrs, weights):
            images, x = self.steps.copy_row_major(
                select_strided_pixels(self.attrs, images), x
            )
            self.attrs = {**self.attrs, "strides": (1,) * len(self.attrs["strides"])}
        if tap_stride(weights) is None:
            weights, w = self.steps.copy_row_major(weights, w)
        self.images, self.weights, self.x, self.w = images, weights, x, w
        self.plan = self._plan()
        winograd = winograd_plan(self.plan, self.images.spec.dtype)
        self.winograd = (
            winograd if winograd and self._is_worth_transforming(winograd) else None
        )

    def _plan(self) -> CorrelationPlan:
        *size, depth, filters = self.weights.spec.shape
        groups, filters = self.attrs["groups"], filters // self.attrs["groups"]
        if self.is_input_grad:
            depth, filters = filters, depth
        window_axes = correlation_windows(
            self.attrs, size, self.images, self.spec, self.is_input_grad
        )
        # The blocks of an image, and the neighbourhood of their outputs.
        window_axes = geometry.blocks(window_axes, TASKS, _MIN_BLOCK_PIXELS)
        sweeps = geometry.sweeps(window_axes, self.is_input_grad)
        dtype = self.spec.dtype
        lanes, available = lanes_of(dtype), register_count()
        at = channels(groups, depth, filters, element_strides(self.images)[-1], lanes)
        if at.group_outputs:
            # The other half holds inputs, which the taps of a row share.
            available //= 2
        extents = [axes[-1].count for axes in sweeps]
        vectors = best_vectors(at.width, lanes, extents, available)
        rows = max_rows(1, available)
        if at.is_dot_product:
            vectors, rows = at.width, max(4, _DOTS_PER_TILE // at.width)
        plan = CorrelationPlan(
            dtype=dtype,
            lanes=lanes,
            registers=available,
            sweeps=sweeps,
            taps=tuple(window.size for window in window_axes),
            channels=at,
            vectors=vectors,
            rows=rows,
            has_few_images=self.spec.shape[0] <= _MAX_FEW_IMAGES
            and len(window_axes) == 1,
        )
        return plan.shortened()

    @property
    def speedup(self) -> float:
        """Return the speedup over a direct float32 convolution."""
        if not self.winograd:
            return 1
        pixels = self.images.spec if self.is_input_grad else self.spec
        work = prod(pixels.shape[:-1]) * self.weights.spec.size
        transformed = 0 if self.weights.is_frozen else self.winograd.weights
        return 1 / (
            1 / self.winograd.speedup + _WEIGHT_TRANSFORM_COST * transformed / work
        )

    def lower(self) -> Lowered | None:
        """Return the calls of the faster algorithm, or None if it lacks bfloat16."""
        if self.winograd and self.weights.spec.dtype != NARROW:
            self._lower_winograd(self.winograd)
        elif NARROW in (self.images.spec.dtype, self.weights.spec.dtype):
            return None
        else:
            self._lower_direct()
        return self.steps.lower()

    def _is_worth_transforming(self, plan: WinogradPlan) -> bool:
        """Return whether there are enough tiles to transform and read the weights."""
        min_tiles = _MIN_GRAD_TILES if self.is_input_grad else _MIN_TILES
        min_tiles = _MIN_FAR_TILES if plan.is_far else min_tiles
        tiles = self.spec.shape[0] * prod(plan.tiles)
        return rules.rows_independent or tiles >= min_tiles

    def _lower_direct(self) -> None:
        plan, at, w = self.plan, self.plan.channels, self.w
        if self.is_input_grad or not self.weights.is_contiguous or not plan.is_packed:
            emit = emit_pack, plan.dtype, plan.lanes, at.group_outputs
            rows = at.blocks * prod(plan.taps)
            w = self._pack(emit, plan.vectors, plan.weights, rows)
        outer = [axes[0].count for axes in plan.sweeps if len(axes) > 1]
        if plan.is_split_by_panels:
            outer = [sum(panel.count for panel in plan.panels)]
        steps = at.depth * plan.lanes if at.is_dot_product else at.depth
        work = steps * prod((*self.spec.shape[1:], *plan.taps))
        cost = work * _SHORT_SUM_COST if at.group_outputs else work
        strips = self._strips(min(outer, default=1), cost)
        code = Code(emit_correlation, BodyStructure(self.body), plan)
        self._correlate(code, (w,), strips, self.spec.shape[0] * work)

    def _lower_winograd(self, plan: WinogradPlan) -> None:
        at = plan.channels
        emit = emit_pack_points, plan.dtype, plan.lanes, plan.outputs
        rows = at.depth // plan.lanes if self._packing == TERMS else at.depth
        w = self._pack(emit, plan.vectors, plan.weights, rows)
        tiles, min_strips = prod(plan.tiles), 2 if self.spec.shape[0] == 1 else 1
        work = plan.points**2 * tiles * at.depth * at.width
        strips = self._strips(max(min_strips, tiles // plan.strip), work)
        rows = self.spec.shape[0] * strips
        grain = min(plan.block // tiles, max(2, rows // 8), -(-rows // 2))
        grain = max(partition(rows), grain)
        tasks = -(-rows // grain)
        scratch = self.steps.allocate(
            tasks * plan.scratch * dtypes.itemsize(plan.dtype)
        )
        code = Code(emit_winograd, BodyStructure(self.body), plan)
        self._correlate(code, (w, scratch), strips, self.spec.shape[0] * work, grain)

    def _strips(self, max_strips: int, work: int) -> int:
        """Return the parts of an image: a small batch has few rows.

        Args:
            max_strips: the most parts that are possible.
            work: the multiply-adds of an image, or an equal cost.
        """
        task_strips: int = -(-TASKS // self.spec.shape[0])
        work_strips = max(1, -(-work // _MIN_STRIP_WORK))
        # A power of two divides evenly among threads.
        return min(task_strips, max_strips, 1 << (work_strips - 1).bit_length())

    def _correlate(
        self,
        code: Code,
        extra_operands: Sequence[Reference],
        strips: int,
        work: int,
        grain: int = 0,
    ) -> None:
        """Append the call that computes the body's outputs.

        Args:
            code: its function.
            extra_operands: the other operands after the body's operands and the images.
            strips: the parts of an image.
            work: the multiply-adds.
            grain: the rows of a task, or 0 for the default.
        """
        body, count = self.body, self.spec.shape[0]
        rows = count * strips
        call = body_call(
            code,
            body,
            (self.x, *extra_operands),
            (strips, element_strides(self.images)[0], count),
            rows,
            grain or partition(rows),
            2 * work,
            (self.x, *full_operands(body)) if strips == 1 else (),
        )
        self.steps.append(call)

    @property
    def _strides(self) -> tuple[int, int]:
        """Return the strides of input channels and output channels in elements."""
        first, last = element_strides(self.weights)[-2:]
        is_swapped = self.is_input_grad != self.plan.channels.is_dot_product
        return (last, first) if is_swapped else (first, last)

    @property
    def _group(self) -> int:
        """Return the elements from one group's first output to the next one's."""
        at, last = self.plan.channels, element_strides(self.weights)[-1]
        return (at.depth if self.is_input_grad else at.group_outputs or at.width) * last

    @property
    def _packing(self) -> str:
        """Return the contiguous axis of the weights."""
        at, (inputs, outputs) = self.plan.channels, self._strides
        if outputs == 1 and (not at.group_outputs or self._group == at.group_outputs):
            return LINES
        return TERMS if inputs == 1 else STRIDED

    def _pack(
        self, emit: tuple[Any, ...], vectors: int, size: int, rows: int
    ) -> Reference:
        """Append the call that packs the weights, and return their destination.

        Args:
            emit: the function's generator, and all of its arguments but the last.
            vectors: the vectors in a row of a panel.
            size: the elements of the packed weights.
            rows: of the call.
        """
        at, lanes, taps = self.plan.channels, self.plan.lanes, prod(self.plan.taps)
        step, group = tap_stride(self.weights) or 0, self._group
        depth, width = at.depth, at.width
        if at.is_dot_product:
            depth, width, vectors = at.width, at.depth * lanes, at.depth
        inputs, outputs = self._strides
        layout = Layout(
            taps=taps,
            depth=depth,
            width=width,
            vectors=vectors,
            start=(taps - 1) * step if self.is_input_grad else 0,
            block=group,
            tap=-step if self.is_input_grad else step,
            input=inputs,
            output=outputs,
            group=group,
            vector=lanes // at.group_outputs * group
            if at.group_outputs
            else lanes * outputs,
        )
        packed = self.steps.allocate(size * dtypes.itemsize(self.plan.dtype))
        call = Call(
            Code(*emit, self._packing),
            (self.w, packed),
            numbers=astuple(layout),
            rows=rows,
            grain=rows if size < _MIN_PARALLEL_WEIGHTS else partition(rows),
            nbytes=2 * self.weights.spec.nbytes,
            prepares=size * dtypes.itemsize(self.plan.dtype),
        )
        self.steps.append(call)
        return packed
