"""Patches of images at Winograd's points, for the products.

The points are stored in the order of access: vectors of channels, then points, then the
tiles of a block, with a vector for each.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolkit.backends.numpy.jit.builder import Mask, Number, Pointer, Value
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.conv.geometry import Axis
from toolkit.backends.numpy.jit.kernels.conv.winograd.transforms import (
    TAPS,
    Line,
    Transforms,
    transforms,
)
from toolkit.backends.numpy.jit.kernels.conv.writer import ConvolutionWriter
from toolkit.backends.numpy.jit.math.bfloat16 import NARROW, widened
from toolkit.definitions.records import record


@record
class Side:
    """One axis of the images from which patches are cut.

    Attributes:
        extent: of the images.
        pitch: the elements between neighbouring pixels.
        offset: the start of the first tile's patch.
    """

    extent: int
    pitch: int
    offset: int = 0


@record
class Patches:
    """The source and destination of patches.

    Attributes:
        images: the address of the images.
        dtype: of their elements.
        image: the elements from one image to the next.
        sides: the two spatial axes.
        size: the pixels of a patch along each axis.
        channels: of the images, in whole vectors.
        line: the transform of a line of a patch.
        points: the destination of the transformed patches.
    """

    images: Pointer
    dtype: str
    image: Number
    sides: tuple[Side, Side]
    size: int
    channels: int
    line: Line
    points: Pointer


@record
class Grid:
    """The tiles of images, and the layout of the points of a block.

    Attributes:
        lanes: of a vector.
        axes: the two axes of the outputs.
        block: the tiles of a block.
        outputs: the outputs of a tile along each axis.
    """

    lanes: int
    axes: tuple[Axis, Axis]
    block: int
    outputs: int

    @property
    def points(self) -> int:
        """Return the points along each axis of a tile."""
        return self.outputs + TAPS - 1

    @property
    def tiles(self) -> tuple[int, int]:
        """Return the number of tiles of an image along each axis."""
        y, x = (-(-axis.count // self.outputs) for axis in self.axes)
        return y, x

    @property
    def point(self) -> int:
        """Return the elements from one point of a block's tiles to the next.

        It is not a power of 2: the points of a tile should not share a cache set.
        """
        return (self.block + 1) * self.lanes

    @property
    def vector(self) -> int:
        """Return the elements from one vector of channels to the next."""
        return self.points**2 * self.point

    def whole_vectors(self, elements: int) -> int:
        """Return the number of elements, rounded up to a multiple of a vector.

        `PatchWriter.clear` writes whole vectors, and the scratch memory of every task
        starts at a vector.
        """
        return -(-elements // self.lanes) * self.lanes


def can_be_tiled(axes: Sequence[Axis]) -> bool:
    """Return whether there are two axes, of three taps without gaps."""
    dense_taps = (TAPS, 1, 1, 1)
    taps = {(axis.taps, axis.stride, axis.gap, axis.every) for axis in axes}
    return len(axes) == 2 and taps == {dense_taps}


class PatchWriter(ConvolutionWriter):
    """Emits the code that all kernels on tiles share.

    Attributes:
        lines: the address of a vector for each point, set by the subclass.
        zeros: the address of the zeros for rows outside the images.
    """

    lines: Pointer
    zeros: Pointer

    def __init__(self, builder: Kernel, dtype: str, grid: Grid) -> None:
        super().__init__(builder, dtype)
        self.grid = grid
        self.transforms: Transforms = transforms(builder, grid.outputs)

    def clear(self, address: Pointer, count: int) -> None:
        """Fill with zeros, in whole vectors."""
        with self.b.loop(0, count, self.b.lanes) as index:
            self.b.store(self.zero, address, index, None)

    def corner(self, tile: Number) -> tuple[Number, Number, Number]:
        """Return the image of a tile, and its first output along each axis."""
        down, across = self.grid.tiles
        image = tile // (down * across)
        tile = tile % (down * across)
        y, x = tile // across, tile % across
        return image, y * self.grid.outputs, x * self.grid.outputs

    def transform(self, source: Patches, tile: Number, slot: Number) -> None:
        """Transform the patch of a tile: its columns, then the rows of the result."""
        b, (vertical, horizontal) = self.b, source.sides
        image, y, x = self.corner(tile)
        first_column = x + horizontal.offset
        origin = source.images + image * source.image
        origin = origin + first_column * horizontal.pitch
        tops = [y + (vertical.offset + i) for i in range(source.size)]
        rows = [self._row(origin, top, vertical) for top in tops]
        target = source.points + slot * b.lanes
        with b.loop(0, source.channels, b.lanes) as channel:
            with b.loop(0, source.size) as j:
                mask = self._column_mask(first_column + j, horizontal)
                addresses = [row + j * horizontal.pitch for row in rows]
                pixels = [self._pixel(source, p, channel, mask) for p in addresses]
                self.store_column(j, source.line(pixels))
            vector = target + channel * (self.grid.vector // b.lanes)
            with b.loop(0, self.grid.points) as i:
                line = vector + i * (self.grid.points * self.grid.point)
                for k, value in enumerate(source.line(self.load_row(i, source.size))):
                    self.b.store(value, line, k * self.grid.point, None)

    def _pixel(
        self, source: Patches, address: Pointer, channel: Number, mask: Mask
    ) -> Value:
        """Load some channels of a pixel, in the dtype of the computation."""
        pixel = self.b.load(address, channel, source.dtype, mask)
        return widened(self.b, pixel) if source.dtype == NARROW else pixel

    def _row(self, origin: Pointer, row: Number, side: Side) -> Pointer:
        """Return a row of the image from the patch's left edge, or zeros outside."""
        is_inside = self.b.is_inside(row, side.extent)
        address = origin + row * side.pitch
        text = f"select i1 {is_inside}, ptr {address}, ptr {self.zeros}"
        return self.b.pointer(text, address.kind)

    def _column_mask(self, column: Number, side: Side) -> Value:
        """Return a mask, of all lanes or none: whether a column is in the image."""
        columns = self.b.int32(self.b.int64(column))
        limit = self.b.constant(side.extent, columns)
        return self.b.binary("icmp ult", columns, limit, "bool")

    def store_column(self, j: Number, values: Sequence[Value]) -> None:
        """Store a transformed column of a tile."""
        for i, value in enumerate(values):
            index = j * self.b.lanes + i * self.grid.points * self.b.lanes
            self.b.store(value, self.lines, index, None)

    def load_row(self, i: Number, size: int) -> list[Value]:
        """Load a row of the stored columns."""
        line = self.lines + i * (self.grid.points * self.b.lanes)
        return [self.load(line, j * self.b.lanes) for j in range(size)]

    def load(self, address: Pointer, index: Number, bits: Mask = None) -> Value:
        """Load a vector."""
        return self.b.load(address, index, self.dtype, bits)
