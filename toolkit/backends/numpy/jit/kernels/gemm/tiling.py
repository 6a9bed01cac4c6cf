"""The register blocks of a product: rows times vectors of columns."""

from __future__ import annotations

from toolkit.backends.numpy.jit.processor import current, lanes_of
from toolkit.definitions.records import record
from toolkit.ir.extents import has_extent, value_of

# The most rows of flat tiles.
FLAT_ROWS = 3


@record
class Tiling:
    """The register blocking of a product.

    Attributes:
        dtype, lanes: of its vectors.
        rows: the rows of the largest tile.
        vectors: the vectors in a row of a panel.
        full: whether there are panels of that width.
        tail: the vectors of the last, narrower panel, or 0 if there is none.
        exact: whether all tiles have the same number of rows.
        is_open: whether the number of columns is a free extent; the last panel can then
            have any width.
    """

    dtype: str
    lanes: int
    rows: int
    vectors: int
    full: bool
    tail: int
    exact: bool = False
    is_open: bool = False

    @staticmethod
    def of(
        dtype: str, rows: int, vectors: int, columns: int, exact: bool = False
    ) -> Tiling:
        """Return the tiling of a product with this number of columns."""
        lanes = lanes_of(dtype)
        if has_extent(columns):
            return Tiling(dtype, lanes, rows, vectors, True, vectors, exact, True)
        count, remainder = divmod(columns, vectors * lanes)
        tail = -(-remainder // lanes)
        return Tiling(dtype, lanes, rows, vectors, count > 0, tail, exact)

    @property
    def width(self) -> int:
        """Return the columns of a panel."""
        return self.vectors * self.lanes

    @property
    def padded_rows(self) -> int:
        """Return the rows of the largest tile, padded to whole vectors."""
        return -(-self.rows // self.lanes) * self.lanes

    @property
    def heights(self) -> list[int]:
        """Return the heights of tiles: the largest, then powers of two."""
        if self.exact:
            return [self.rows]
        powers = [1 << i for i in reversed(range(self.rows.bit_length()))]
        return [self.rows, *(n for n in powers if n < self.rows)]


def max_rows() -> int:
    """Return the rows of a tile that is two vectors wide."""
    return 12 if current().registers >= 32 else 6


def tiling(rows: int, columns: int, dtype: str, exact: bool = False) -> Tiling:
    """Return the register blocking of a product.

    Args:
        rows, columns: of the product.
        dtype: of both operands.
        exact: whether a single tile must cover all rows.
    """
    lanes = lanes_of(dtype)
    height, vectors = max_rows(), 2
    if exact or value_of(rows) <= FLAT_ROWS:
        # With few rows, more columns keep the core busy.
        height = rows if exact else min(rows, 2)
        vectors = max(1, min(max_rows() * 2 // height, 8))
        widest = current().registers // 2
        if height == 1 and columns % (widest * lanes) == 0:
            vectors = widest
    return Tiling.of(dtype, height, vectors, columns, exact)
