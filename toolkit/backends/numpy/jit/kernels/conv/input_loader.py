"""Loads of inputs for the lanes of the output channels."""

from __future__ import annotations

from collections.abc import Sequence

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import MEMORY_TYPES, Pointer, Value, vector_type
from toolkit.backends.numpy.jit.kernel import constant_mask
from toolkit.backends.numpy.jit.kernels.conv.writer import ConvolutionWriter
from toolkit.definitions.records import record

# The most vectors of inputs for a vector of outputs. Other inputs are scalar loads.
_MAX_INPUT_VECTORS = 8


@record
class Channels:
    """The channels of a convolution, in blocks that are computed separately.

    Usually a block's outputs, in the lanes, have the same inputs, which are broadcast
    scalars. If `group_outputs` is positive, `group_outputs` outputs have `depth`
    inputs, the next outputs the next inputs. If `is_dot_product`, inputs are in the
    lanes, and outputs are dot products.

    Attributes:
        blocks: the number of blocks, usually the groups.
        depth: the input channels of an output channel, or vectors of them if
            `is_dot_product`.
        width: the output channels of a block.
        group_outputs: 0, or the outputs of a group.
        pitch: the stride in elements along `depth`.
        is_dot_product: whether there are too few outputs for a vector.
    """

    blocks: int
    depth: int
    width: int
    group_outputs: int
    pitch: int
    is_dot_product: bool = False


def channels(groups: int, depth: int, filters: int, pitch: int, lanes: int) -> Channels:
    """Return blocks for `groups` times `filters` outputs of `depth` inputs each.

    A group of few outputs would leave most lanes idle. Instead several groups share a
    vector, or the lanes hold the inputs of the only group.
    """
    is_narrow = filters * 4 <= lanes and pitch == 1
    if is_narrow and groups == 1 and depth and depth % lanes == 0:
        return Channels(1, depth // lanes, filters, 0, lanes, is_dot_product=True)
    if (
        is_narrow
        and groups > 1
        and lanes % filters == 0
        and depth <= _MAX_INPUT_VECTORS * filters
    ):
        return Channels(1, depth, groups * filters, filters, pitch)
    return Channels(groups, depth, filters, 0, pitch)


class InputLoader(ConvolutionWriter):
    """Emits the loads of inputs, as vectors to multiply with weights."""

    def __init__(self, writer: ConvolutionWriter, channels: Channels) -> None:
        super().__init__(writer.b, writer.dtype)
        self.channels = channels
        self.span: int = 0
        if channels.group_outputs:
            self.span = self.b.lanes // channels.group_outputs * channels.depth

    def load(self, x: Pointer, channel: int, lane_counts: Sequence[int]) -> list[Value]:
        """Return the factor for the weights of each vector of a panel.

        Args:
            x: the address of a pixel, at the panel's first input channel.
            channel: the input channel relative to it.
            lane_counts: the number of output channels of each vector.
        """
        address = x + channel * self.channels.pitch
        if self.channels.is_dot_product:
            return [self.b.load(address, 0, self.dtype, None)] * len(lane_counts)
        if not self.span:
            scalar = self.b.scalar(address, self.dtype)
            return [self.b.splat(scalar)] * len(lane_counts)
        return [
            self._broadcast_groups(x + j * self.span, channel, count)
            for j, count in enumerate(lane_counts)
        ]

    def _broadcast_groups(
        self, address: Pointer, channel: int, lane_counts: int
    ) -> Value:
        """Return the inputs of several groups, broadcast to their outputs."""
        at, lanes = self.channels, self.b.lanes
        span = max(self.span, lanes)
        inputs = self._load_wide(
            address, -(-lane_counts // at.group_outputs) * at.depth, span
        )
        sources = [
            lane // at.group_outputs * at.depth + channel for lane in range(lanes)
        ]
        if sources == list(range(span)):
            return inputs
        indices = ", ".join(f"i32 {source}" for source in sources)
        return self.b.let(
            f"shufflevector {inputs.type} {inputs.text}, {inputs.type} poison, "
            f"<{lanes} x i32> <{indices}>",
            self.dtype,
            lanes,
        )

    def _load_wide(self, address: Pointer, lane_counts: int, span: int) -> Value:
        """Load the first `live` elements of a vector of `span`, then zeros."""
        size = dtypes.itemsize(self.dtype)
        vector = vector_type(MEMORY_TYPES[self.dtype], span)
        bits = constant_mask(lane_counts, span)
        if bits is None:
            return self.b.let(
                f"load {vector}, ptr {address}, align {size}", self.dtype, span
            )
        name, kind = f"@llvm.masked.load.v{span}f{8 * size}.p0", f"<{span} x i1>"
        self.b.declarations.add(f"declare {vector} {name}(ptr, i32, {kind}, {vector})")
        return self.b.let(
            f"call {vector} {name}(ptr {address}, i32 {size}, {kind} {bits}, "
            f"{vector} zeroinitializer)",
            self.dtype,
            span,
        )
