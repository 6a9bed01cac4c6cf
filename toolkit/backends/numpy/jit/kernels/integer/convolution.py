"""Lowering of integer convolutions to products of patches, or to depthwise kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from toolkit.backends.numpy.jit.calls import (
    Call,
    Lowered,
    Reference,
    partition,
)
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.epilogue import BodyStructure
from toolkit.backends.numpy.jit.kernels.conv.problem import correlation_windows
from toolkit.backends.numpy.jit.kernels.gemm.call_list import CallList, body_call
from toolkit.backends.numpy.jit.kernels.gemm.problem import contiguous_factors
from toolkit.backends.numpy.jit.kernels.integer.depthwise import (
    VECTORS,
    DepthwiseNumbers,
    DepthwisePlan,
    copied_bytes,
    emit_depthwise,
    emit_pack_depthwise,
)
from toolkit.backends.numpy.jit.kernels.integer.lower import Lowering
from toolkit.backends.numpy.jit.kernels.integer.pack import TASK_BYTES, WORD_BYTES
from toolkit.backends.numpy.jit.kernels.integer.patches import (
    PatchPlan,
    emit_pack_patches,
    loop_axes,
    patch_numbers,
)
from toolkit.backends.numpy.jit.kernels.integer.tiled_convolution import lower_tiled
from toolkit.backends.numpy.jit.kernels.integer.words import words_of
from toolkit.backends.numpy.jit.processor import current
from toolkit.ir import Graph
from toolkit.plans.loops.planner import TASKS
from toolkit.plans.operands import Operand, align_up

# Bytes of the packed rows of a block, which share the L1 cache with a panel.
_BLOCK_BYTES = 1 << 14
# The least output rows of a band, because bands copy shared rows, and the least taps of
# a task.
_MIN_BAND_ROWS, _TASK_TAPS = 2, 1 << 19
# The most unrolled taps of a depthwise output, and the sizes of its tiles, the best
# first.
_MAX_UNROLLED_TAPS, _TILES = 25, (8, 7, 6, 5, 4)
# From this number of rows on, rows are packed block by block: every block reads all
# panels.
_MIN_BLOCKED_ROWS = 128


def lower_conv_integer(
    body: Graph, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Lower an integer convolution, and the elementwise nodes after it."""
    factors, anchor = contiguous_factors(body, inputs), body.nodes[0]
    if factors is None:
        return None
    if not anchor.outputs[0].spec.size:
        return Lowered()
    a, b = factors
    if not body.inputs[b].spec.size:
        return None
    if anchor.attrs["groups"] == 1:
        tiled = lower_tiled(body, a, b, inputs[a])
        return tiled or _Convolution(body, a, b, inputs[a]).lower()
    return _lower_depthwise(body, a, b)


class _Convolution(Lowering):
    """The calls of a convolution with a single group."""

    def __init__(self, body: Graph, a: int, b: int, images: Operand) -> None:
        out, kernel = body.nodes[0].outputs[0].spec.shape, body.inputs[b].spec.shape
        shape = images.spec.shape
        anchor = body.nodes[0]
        window_axes = correlation_windows(
            anchor.attrs, kernel[:-2], images, anchor.outputs[0].spec
        )
        self.is_pixels: bool = len(window_axes) == 1 and window_axes[0].is_trivial
        super().__init__(body, a, b, prod(out[:-1]), prod(kernel[:-1]))
        axes = [] if self.is_pixels else loop_axes(window_axes)
        self.patches = PatchPlan(
            self.words,
            self.plan.tiling.lanes,
            images.spec.dtype,
            self.offset,
            None if self.is_pixels else len(axes) - 1,
        )
        self.numbers: list[int] = patch_numbers(
            self.count * WORD_BYTES,
            self.depth if self.is_pixels else shape[-1],
            prod(shape[1:]),
            axes,
        )

    @property
    def is_plain(self) -> bool:
        return self.is_pixels and super().is_plain

    def _shares_panels(self) -> bool:
        return False  # filters are small

    def _caches_packing(self, nbytes: int) -> bool:
        return True  # filters are small

    def lower(self) -> Lowered:
        return (
            self._lower_blocks() if self.rows >= _MIN_BLOCKED_ROWS else super().lower()
        )

    def _pack_rows(self, destination: Reference) -> Call:
        """Return the call that packs the patch of each output position."""
        nbytes = self.rows * self.count * WORD_BYTES
        return Call(
            Code(emit_pack_patches, self.patches),
            (("in", self.a), destination),
            tuple(self.numbers),
            self.rows,
            partition(self.rows, nbytes // TASK_BYTES),
            nbytes=self.body.inputs[self.a].spec.nbytes + nbytes,
        )

    def _lower_blocks(self) -> Lowered:
        """Return calls that pack the panels, and multiply them by blocks of rows."""
        plan = replace(self.plan, by_rows=True, images=self.a)
        factors = [self._pack_panels()]
        if plan.a is None:
            plan = replace(plan, patches=self.patches)
            # Its size depends on the number of tasks.
            factors.insert(0, self.steps.allocate(0))
        even = -(-self.rows // TASKS)
        cached_tiles = max(1, _BLOCK_BYTES // self.row_bytes // plan.tiling.rows)
        tiles = min(cached_tiles, -(-even // plan.tiling.rows))
        multiply = self._multiply_blocks(plan, factors, tiles, self.numbers)
        if plan.a is None:
            self.steps.allocate(
                multiply.tasks * tiles * plan.tiling.rows * self.row_bytes
            )
        self.steps.append(multiply)
        return self.steps.lower()


def _lower_depthwise(body: Graph, a: int, b: int) -> Lowered | None:
    """Lower a depthwise convolution over one or two axes."""
    anchor, channels = body.nodes[0], body.inputs[a].spec.shape[-1]
    attrs, size = anchor.attrs, body.inputs[b].spec.shape[:-2]
    filters = anchor.outputs[0].spec.shape[-1]
    is_plain = channels == attrs["groups"] == filters and {*attrs["dilation"]} == {1}
    if not is_plain or len(size) > 2 or prod(size) > _MAX_UNROLLED_TAPS:
        return None
    # A sequence is an image of one row.
    row: tuple[int, ...] = (1,) * (2 - len(size))
    columns = anchor.outputs[0].spec.shape[-2]
    lanes, dtype = current().lanes, body.inputs[a].spec.dtype
    words = words_of(current(), dtype, attrs["bits"])
    plan = DepthwisePlan(
        words,
        lanes,
        dtype,
        words.offset + attrs["offset"],
        (*row, *size),
        (*row, *attrs["strides"]),
        next((n for n in _TILES if columns % n == 0), _TILES[-1]),
        channels % (VECTORS * lanes) > 0,
    )
    return _depthwise_calls(plan, body, a, b, _depthwise_numbers(plan, body, a, row))


def _depthwise_numbers(
    plan: DepthwisePlan, body: Graph, a: int, row: tuple[int, ...]
) -> DepthwiseNumbers:
    """Return the numbers of a convolution. `row` replaces a missing first axis."""
    anchor, images = body.nodes[0], body.inputs[a].spec.shape
    batch, channels = images[0], images[-1]
    height, width = row + tuple(images[1:-1])
    rows, columns = row + tuple(anchor.outputs[0].spec.shape[1:-1])
    (top, _), (left, _) = ((0, 0),) * len(row) + tuple(anchor.attrs["padding"])
    band = min(max(-(-rows * batch // TASKS), _MIN_BAND_ROWS), rows)
    line = (columns - 1) * plan.strides[1] + plan.size[1]
    copied_rows = (band - 1) * plan.strides[0] + plan.size[0]
    memory = align_up(copied_bytes(line, copied_rows, channels))
    return DepthwiseNumbers(
        *(channels, height, width, rows, columns, top, left),
        *(band, -(-rows // band), line, memory),
    )


def _depthwise_calls(
    plan: DepthwisePlan, body: Graph, a: int, b: int, numbers: DepthwiseNumbers
) -> Lowered:
    """Return calls that pack the weights into words, and compute bands of rows."""
    out = body.nodes[0].outputs[0].spec.shape
    products = prod(out) * prod(plan.size)
    units = out[0] * numbers.bands
    grain = partition(units, products // _TASK_TAPS)
    groups = -(-numbers.channels // plan.channels)
    weights = groups * plan.weight_bytes
    calls = CallList()
    packed = calls.allocate(weights)
    memory = calls.allocate(-(-units // grain) * numbers.memory)
    pack = Call(
        Code(emit_pack_depthwise, plan),
        (("in", b), packed),
        (numbers.channels,),
        groups,
        groups,
        nbytes=weights,
        prepares=weights,
    )
    calls.append(pack)
    multiply = body_call(
        Code(emit_depthwise, plan, BodyStructure(body), a),
        body,
        (packed, memory),
        numbers,
        units,
        grain,
        2 * products,
    )
    calls.append(multiply)
    return calls.lower()
