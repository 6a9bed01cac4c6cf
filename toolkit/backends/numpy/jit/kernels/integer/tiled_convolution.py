"""Lowering of integer convolutions to AMX tiles.

The images are bytes on a grid, on which each tap is a shift. The kernel is that of
convolutions in bfloat16.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from toolkit.backends.numpy.jit.builder import Pointer, Range
from toolkit.backends.numpy.jit.calls import Lowered, Reference, partition
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.epilogue import BodyStructure
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.conv.geometry import Window, sweeps
from toolkit.backends.numpy.jit.kernels.conv.problem import (
    correlation_windows,
    element_strides,
)
from toolkit.backends.numpy.jit.kernels.conv.rounded.correlation import (
    RoundedPlan,
    emit_rounded_correlation,
    emit_rounded_panels,
)
from toolkit.backends.numpy.jit.kernels.conv.rounded.grid import grid_of
from toolkit.backends.numpy.jit.kernels.conv.rounded.layout import pack_images
from toolkit.backends.numpy.jit.kernels.conv.rounded.pixels import Pixels
from toolkit.backends.numpy.jit.kernels.conv.rounded.unfold import unfolded
from toolkit.backends.numpy.jit.kernels.gemm.amx import (
    BLOCK_LINES,
    INT8,
    PANELS,
    SPAN,
    TILE_ROW_BYTES,
    UINT8,
)
from toolkit.backends.numpy.jit.kernels.gemm.call_list import (
    CallList,
    body_call,
    full_operands,
)
from toolkit.backends.numpy.jit.kernels.integer.lower import TILE_SPEEDUP
from toolkit.backends.numpy.jit.kernels.integer.pack import (
    WORD_BYTES,
    PanelNumbers,
    pack_panels,
)
from toolkit.backends.numpy.jit.kernels.integer.words import Words, as_int8
from toolkit.backends.numpy.jit.processor import current
from toolkit.definitions.records import record
from toolkit.dtypes import itemsize
from toolkit.ir import Graph
from toolkit.plans.loops.planner import TASKS
from toolkit.plans.operands import Operand, contiguous

# The least FLOPs of a part of an image, and the most taps: their code is unrolled.
_TASK_FLOPS, _MAX_TAPS = 1 << 26, 32
_FLOAT_BYTES = 4


@record
class BytePixels(Pixels):
    """The layout of the channels of cells, with any values up to whole blocks.

    Attributes:
        fill_value: the value of the padding.
    """

    fill_value: int = 0

    # Processors pack two vectors into bytes as quickly as one.
    sum_dtype, lanes = "int32", 2 * BLOCK_LINES
    block_terms, initial_bytes = TILE_ROW_BYTES, TILE_ROW_BYTES

    @property
    def instruction(self) -> str:
        """Return the name of the multiplication."""
        return INT8 if self.dtype == "int8" else UINT8

    def fill(self, b: Kernel, address: Pointer, byte_range: Range) -> None:
        """Store cells of the padding."""
        with b.of_lanes(TILE_ROW_BYTES), b.loop(*byte_range, TILE_ROW_BYTES) as i:
            value = b.filled(as_int8(self.fill_value), "int8")
            b.store(value, address + i, 0, None)

    def pack_block(
        self, b: Kernel, source: Pointer, target: Pointer, count: int
    ) -> None:
        """Copy a block, of which `count` channels are valid."""
        with b.of_lanes(TILE_ROW_BYTES):
            b.store(b.load(source, 0, "int8", b.existing(count)), target, 0, None)


def lower_tiled(body: Graph, a: int, b: int, images: Operand) -> Lowered | None:
    """Return the calls of a convolution with one group, or None if tiles are slower.

    Args:
        body: the convolution and its epilogue.
        a, b: the inputs that are the images and the weights.
        images: the images.
    """
    processor = current()
    if not (processor.has_tiles and processor.has("amx-int8")):
        return None
    lowering = _TiledConvolution(body, a, b, images)
    return lowering.lower() if lowering.is_faster else None


class _TiledConvolution:
    """Collects the calls of a convolution."""

    def __init__(self, body: Graph, a: int, b: int, images: Operand) -> None:
        self.body, self.a, self.b = body, a, b
        self.steps = CallList()
        anchor = body.nodes[0]
        result, weights = anchor.outputs[0].spec, body.inputs[b].spec
        *size, self.depth, self.width = weights.shape
        self.offset: int = anchor.attrs["offset"]
        self.terms: int = prod(size) * self.depth * prod(result.shape)
        attrs, self.x = anchor.attrs, ("in", a)
        out = result.shape[-2]
        unfolding = unfolded(self.steps, images, self.x, attrs, size, out, self.offset)
        self.is_unfolded: bool = unfolding is not None
        if unfolding:
            images, self.x, attrs, size = unfolding
            self.depth = images.spec.shape[-1]
        windows = correlation_windows(attrs, size, images, result)
        self.batch: int = images.spec.shape[0]
        (first, *others) = windows
        if not others and first.is_trivial and images.is_contiguous:
            # The pixels of all images are consecutive; unfolded ones overlap.
            extent, self.batch = self.batch * first.extent, 1
            merged = replace(first, extent=extent, out=extent, pitch=self.depth)
            windows = (merged,)
            pitch = prod(images.spec.shape)
            images = contiguous(images.spec.with_shape((1, pitch)))
        self.images = images
        self.windows: tuple[Window, ...] = windows
        self.dtype: str = images.spec.dtype
        # Sums of fewer panels stay in the L1 cache. But floats need long lines, which
        # the hardware prefetches.
        element = sum(_itemsize(body, kind, i) for kind, i in full_operands(body))
        self.max_panels: int = PANELS if element >= _FLOAT_BYTES else PANELS // 2
        self.plan = self._plan()

    @property
    def is_faster(self) -> bool:
        """Return whether tiles take less time than vectors."""
        plan = self.plan
        if not self.terms or prod(plan.sizes) > _MAX_TAPS:
            return False
        pixels, grid = plan.pixels, plan.pixels.grid
        positions = grid.part_count * grid.part_size * grid.steps[0]
        rows = -(-positions // SPAN) * SPAN * self.batch * prod(plan.sizes)
        in_blocks = rows * pixels.blocks * pixels.block_terms * plan.panels * SPAN
        # Vectors copy short runs of taps if there are few channels.
        speedup = TILE_SPEEDUP * (2 if self.is_unfolded else 1)
        return in_blocks < speedup * self.terms

    def _plan(self) -> RoundedPlan:
        count = self.windows[0].out
        plan = self._plan_of(count)
        self.is_prepacked: bool = plan.weight_bytes > current().cache_bytes // 2
        if self.is_prepacked:
            return plan
        batch = max(1, self.batch)
        parts = -(-plan.pixels.nbytes // (current().cache_bytes // 4))
        parts = max(
            parts, min(-(-TASKS // batch), 2 * self.terms // batch // _TASK_FLOPS)
        )
        return self._plan_of(-(-count // max(1, min(count, parts))))

    def _plan_of(self, part_size: int) -> RoundedPlan:
        """Return the plan for parts of `part_size` positions along the first axis."""
        axes = sweeps(self.windows, False)
        pixels = BytePixels(
            grid_of(axes, part_size), self.depth, self.dtype, self.offset
        )
        sizes = tuple(window.size for window in self.windows)
        plan = RoundedPlan(pixels, axes, sizes, False, self.width, 1)
        panels_in_cache = current().cache_bytes // 2 // (2 * plan.strip_bytes)
        panels = min(panels_in_cache, self.max_panels, plan.panels)
        return replace(plan, group=max(1, panels))

    def lower(self) -> Lowered:
        """Return all calls, in order."""
        plan, pixels = self.plan, self.plan.pixels
        strips, body = self._pack_weights(), BodyStructure(self.body)
        if not self.is_prepacked:
            rows = self.batch * pixels.grid.part_count
            memory = self.steps.allocate(-(-rows // partition(rows)) * pixels.nbytes)
            code = Code(emit_rounded_correlation, body, plan)
            pitch = element_strides(self.images)[0]
            self._correlate(code, (strips, self.x, memory), (pitch,), rows)
            return self.steps.lower()
        packed = pack_images(self.steps, pixels, self.images, self.x)
        images_per_row = -(-self.batch // min(self.batch, -(-TASKS // plan.groups)))
        image_groups = -(-self.batch // images_per_row)
        code = Code(emit_rounded_panels, body, plan)
        numbers = self.batch, images_per_row, image_groups
        self._correlate(code, (strips, packed), numbers, plan.groups * image_groups)
        return self.steps.lower()

    def _correlate(
        self,
        code: Code,
        operands: Sequence[Reference],
        numbers: tuple[int, ...],
        rows: int,
    ) -> None:
        """Append the call that computes the body's outputs."""
        grain = partition(rows)
        flops = 2 * self.terms
        self.steps.append(
            body_call(code, self.body, operands, numbers, rows, grain, flops)
        )

    def _pack_weights(self) -> Reference:
        """Append the call that packs the weights, and return their destination."""
        plan = self.plan
        words = plan.pixels.blocks * TILE_ROW_BYTES // WORD_BYTES
        strips = self.steps.allocate(plan.weight_bytes)
        numbers = PanelNumbers(
            self.width, self.depth, words, plan.strip_bytes, prod(plan.sizes)
        )
        operands = ("in", self.b), strips
        call = pack_panels(
            Words(4, self.offset), BLOCK_LINES, 1, numbers, operands, plan.weight_bytes
        )
        self.steps.append(call)
        return strips


def _itemsize(body: Graph, kind: str, number: int) -> int:
    """Return the bytes of an element of an input or output of a body."""
    values = body.inputs if kind == "in" else body.outputs
    return itemsize(values[number].spec.dtype)
