"""Layouts of images as bfloat16, and the call that packs images."""

from __future__ import annotations

from abc import ABC, abstractmethod

from toolkit.backends.numpy.jit.builder import Number, Pointer, Range
from toolkit.backends.numpy.jit.calls import Call, Reference, partition
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.conv.problem import element_strides
from toolkit.backends.numpy.jit.kernels.conv.rounded.grid import Grid
from toolkit.backends.numpy.jit.kernels.gemm.amx import (
    BLOCK_LINES,
    SPAN,
    TILE_ROW_BYTES,
)
from toolkit.backends.numpy.jit.kernels.gemm.call_list import CallList
from toolkit.definitions.records import record
from toolkit.plans.operands import Operand

# Strides of a multiple of this many cache lines map to the same L1 cache set.
_SET_PERIOD_LINES = 4


def avoid_shared_sets(nbytes: int) -> int:
    """Return the bytes in cache lines, plus a line if rows would share sets."""
    lines = -(-nbytes // TILE_ROW_BYTES)
    return (lines + (lines % _SET_PERIOD_LINES == 0)) * TILE_ROW_BYTES


@record
class Layout(ABC):
    """The layout of a part of an image.

    Attributes:
        grid: of the cells.
        depth: the channels.
        dtype: of the images.
    """

    grid: Grid
    depth: int
    dtype: str

    # Whether `pack` requires zeros in the destination.
    is_cleared = False

    @property
    def channels(self) -> int:
        """Return the channels with padding to pairs of tiles."""
        return -(-self.depth // SPAN) * SPAN

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Return the bytes of a part."""

    @abstractmethod
    def pack(self, b: Kernel, image: Pointer, first: Number, target: Pointer) -> None:
        """Pack a part of an image.

        Args:
            b: the builder.
            image: the address of the elements.
            first: the part's first position.
            target: the destination of the part.
        """


def pack_images(
    steps: CallList, layout: Layout, operand: Operand, reference: Reference
) -> Reference:
    """Append the call that packs all images, and return their destination."""
    count = operand.spec.shape[0]
    packed = steps.allocate(count * layout.nbytes)
    call = Call(
        Code(emit_pack_images, layout),
        (reference, packed),
        (element_strides(operand)[0],),
        rows=count,
        grain=partition(count),
        row_operands=frozenset([reference]),
        nbytes=2 * operand.spec.nbytes,
    )
    steps.append(call)
    return packed


def emit_pack_images(layout: Layout) -> Kernel:
    """Emit a function that packs images, each a row.

    The table holds the addresses of the images and of their destination, and the
    elements from one image to the next.
    """
    b = Kernel(BLOCK_LINES)
    images, target = b.next_address(layout.dtype), b.next_address()
    pitch = b.next_entry()
    with b.loop(b.low, b.high) as image:
        address = target + image * layout.nbytes
        if layout.is_cleared:
            clear(b, address, (0, layout.nbytes))
        layout.pack(b, images + image * pitch, 0, address)
    return b


def clear(b: Kernel, address: Pointer, byte_range: Range) -> None:
    """Store zeros in whole cache lines."""
    with b.loop(*byte_range, TILE_ROW_BYTES) as i:
        b.store(b.filled(0, "int32"), address + i, 0, None)
