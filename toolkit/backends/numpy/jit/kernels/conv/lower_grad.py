"""Lowering of kernel gradients to calls: partial sums of tasks, then their total."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

from toolkit import dtypes
from toolkit.backends.numpy.jit.calls import Call, Lowered, partition
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.kernels.conv import geometry
from toolkit.backends.numpy.jit.kernels.conv.grad_plan import KernelGradPlan
from toolkit.backends.numpy.jit.kernels.conv.input_loader import Channels, channels
from toolkit.backends.numpy.jit.kernels.conv.kernel_grad import emit_kernel_grad
from toolkit.backends.numpy.jit.kernels.conv.partial_sums import (
    emit_total,
    emit_transposed_total,
)
from toolkit.backends.numpy.jit.kernels.conv.problem import (
    element_strides,
    gradient_windows,
)
from toolkit.backends.numpy.jit.kernels.conv.rounded import lower_rounded_grad
from toolkit.backends.numpy.jit.kernels.conv.tiles import (
    max_rows,
    register_count,
    split_evenly,
    split_panels,
    step_cycles,
)
from toolkit.backends.numpy.jit.kernels.conv.winograd.exactness import is_exact_enough
from toolkit.backends.numpy.jit.kernels.conv.winograd.kernel_grad import (
    WinogradGradPlan,
    emit_winograd_grad,
    winograd_grad_plan,
)
from toolkit.backends.numpy.jit.kernels.conv.winograd.transforms import (
    OUTPUTS,
    POINTS,
)
from toolkit.backends.numpy.jit.kernels.gemm.call_list import CallList
from toolkit.backends.numpy.jit.math.bfloat16 import NARROW
from toolkit.backends.numpy.jit.processor import lanes_of
from toolkit.definitions.records import record
from toolkit.ir import Node
from toolkit.plans.loops.planner import TASKS
from toolkit.plans.operands import Operand

# Pixels per pass of a tile: few enough to stay in the L1 cache for the next tile, and
# enough to hide the loads and stores of the tile.
_PIXELS_PER_PASS = 128
# Larger weights have no partial sum for each task: tasks compute parts of them.
_MAX_PARTIAL_BYTES = 1 << 20
_TOTAL_GRAIN = 1 << 14
# The least tiles of a task for which transforming its sums pays. A task with a block of
# channels needs more tiles, because its sums are as large as possible.
_MIN_TILES, _MIN_BLOCK_TILES = 32, 128


def lower_conv_kernel_grad(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Lower the gradient with respect to the weights."""
    (images, gradients), spec = inputs, node.outputs[0].spec
    if spec.dtype not in ("float32", "float64"):
        return None
    if not spec.size:
        return Lowered()
    x, g, steps = ("in", 0), ("in", 1), CallList()
    if node.attrs["groups"] > 1 and element_strides(images)[-1] != 1:
        images, x = steps.copy_row_major(images, x)
    if element_strides(gradients)[-1] != 1:
        gradients, g = steps.copy_row_major(gradients, g)
    plan = _plan(node, images, gradients)
    batch, size = images.spec.shape[0], dtypes.itemsize(plan.dtype)
    stored = (images.spec.dtype, gradients.spec.dtype)
    winograd = winograd_grad_plan(plan, stored) if is_exact_enough(1, OUTPUTS) else None
    if winograd and not _is_worth_transforming(winograd, batch):
        winograd = None
    rounded = lower_rounded_grad(node, inputs, winograd.speedup if winograd else 1)
    if rounded is not None:
        return rounded
    if NARROW in stored and not winograd:
        return None
    division = _divide_work(plan, winograd, batch)
    slots, is_transposed = division.slots, plan.channels.is_dot_product
    is_total = slots == 1 and not is_transposed
    result = ("out", 0) if is_total else steps.allocate(slots * plan.pitch * size)
    operands, code = [x, g, result], Code(emit_kernel_grad, plan)
    work = batch * plan.weights * prod(axis.count for axis in plan.axes)
    if winograd:
        tasks = -(-division.rows // division.grain)
        operands.append(steps.allocate(tasks * winograd.scratch * size))
        code = Code(emit_winograd_grad, winograd)
        work = batch * prod(winograd.tiles) * POINTS**2 * plan.weights // plan.taps
    grad = Call(
        code,
        tuple(operands),
        numbers=(
            element_strides(images)[0],
            element_strides(gradients)[0],
            batch,
            division.images,
        ),
        rows=division.rows,
        grain=division.grain,
        row_operands=frozenset((x, g) if division.by_images else ()),
        flops=2 * work,
        nbytes=images.spec.nbytes + gradients.spec.nbytes,
    )
    emit = emit_transposed_total if is_transposed else emit_total
    total = Call(
        Code(emit, plan.dtype, plan.lanes),
        (result, ("out", 0)),
        numbers=(slots, plan.pitch, plan.channels.depth, plan.channels.width),
        rows=spec.size,
        grain=_TOTAL_GRAIN,
        nbytes=(slots + 1) * spec.nbytes,
    )
    steps.calls += [grad] if is_total else [grad, total]
    return steps.lower()


@record
class _WorkDivision:
    """The partition of the work.

    Attributes:
        rows, grain: of the call.
        slots: the partial results that are added up in the end.
        images: the images of a slot, unless rows are parts of the weights.
        by_images: whether rows are images.
    """

    rows: int
    grain: int
    slots: int
    images: int
    by_images: bool


def _divide_work(
    plan: KernelGradPlan, winograd: WinogradGradPlan | None, batch: int
) -> _WorkDivision:
    """Divide the work by images, or by the weights where they are many."""
    if winograd and winograd.blocks > 1:
        tiles = batch * prod(winograd.tiles)
        groups = min(batch, TASKS // winograd.blocks, tiles // _MIN_BLOCK_TILES)
        images = -(-batch // max(1, groups))
        groups = -(-batch // images)
        rows = winograd.blocks * groups
        return _WorkDivision(rows, partition(rows), groups, images, by_images=False)
    rows = plan.part_count if plan.by_weights else batch
    grain = partition(rows)
    slots = 1 if plan.by_weights else -(-rows // grain)
    return _WorkDivision(rows, grain, slots, grain, by_images=not plan.by_weights)


def _is_worth_transforming(winograd: WinogradGradPlan, batch: int) -> bool:
    """Return whether a task has enough tiles to transform its sums."""
    tiles = prod(winograd.tiles)
    if winograd.blocks > 1:
        return batch * tiles >= _MIN_BLOCK_TILES
    return partition(batch) * tiles >= _MIN_TILES


def _plan(node: Node, x: Operand, g: Operand) -> KernelGradPlan:
    attrs, spec = node.attrs, node.outputs[0].spec
    dtype = spec.dtype
    window_axes = gradient_windows(attrs, attrs["kernel"], x, g)
    axes = geometry.forward(window_axes)
    groups, lanes = attrs["groups"], lanes_of(dtype)
    filters = spec.shape[-1] // groups
    depth, pitch = spec.shape[-2], element_strides(x)[-1]
    at = channels(groups, depth, filters, pitch, lanes)
    if at.is_dot_product:
        at = Channels(1, filters, depth, 0, pitch=1, is_dot_product=True)
    vectors, rows = _best_tile(at, axes[-1].taps, lanes)
    strip = max(1, _PIXELS_PER_PASS // prod(window.out for window in window_axes[1:]))
    return KernelGradPlan(
        dtype=dtype,
        lanes=lanes,
        axes=axes,
        pitches=tuple(window.step for window in window_axes),
        channels=at,
        vectors=vectors,
        rows=rows,
        strip=strip,
        images=max(1, strip // window_axes[0].out),
        by_weights=spec.nbytes > _MAX_PARTIAL_BYTES,
    )


def _best_tile(at: Channels, taps: int, lanes: int) -> tuple[int, int]:
    """Return the vectors and the most rows of the fastest tile with the least code."""
    available = register_count()

    def cost(tile: tuple[int, int]) -> tuple[float, int, int]:
        vectors, rows = tile
        tap_count = min(taps, rows // at.depth)
        sizes = [(size, count * taps) for size, count in split_evenly(at.depth, rows)]
        if tap_count > 1:
            sizes = [
                (n * at.depth, count) for n, count in split_evenly(taps, tap_count)
            ]
        panel_list = split_panels(at.width, vectors, lanes)
        steps = sum(
            panel.count * count * step_cycles(size, panel.vectors)
            for panel, (size, count) in product(panel_list, sizes)
        )
        return steps, len(panel_list) * len(sizes), -rows

    largest = min(available // 4, -(-at.width // lanes))
    tiles = (
        (vectors, rows)
        for vectors in range(1, largest + 1)
        for rows in range(1, max_rows(vectors, available) + 1)
    )
    return min(tiles, key=cost)
