"""The epilogue of a tile, on vectors of each row."""

from __future__ import annotations

from toolkit.backends.numpy.jit.builder import Number, Pointer
from toolkit.backends.numpy.jit.epilogue import Epilogue
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.gemm.writer import MatrixWriter
from toolkit.backends.numpy.jit.kernels.matmul.plan import ProductNumbers, ProductPlan
from toolkit.backends.numpy.jit.processor import current
from toolkit.definitions.records import record


@record
class TileSums:
    """The address and stride of a tile's sums, and their elements of the result."""

    address: Pointer
    stride: Number
    element: Number
    column: Number


class TileEpilogue(MatrixWriter):
    """Applies an epilogue to tiles.

    Args:
        builder, plan: of the function.
        epilogue: the nodes after the product.
    """

    def __init__(self, builder: Kernel, plan: ProductPlan, epilogue: Epilogue) -> None:
        super().__init__(builder, plan.tiling.dtype)
        self.epilogue = epilogue
        # Two vectors hide the latency of an instruction. Measured with 16 registers.
        # Longer vectors keep a core busier.
        self.pairs: bool = current().registers < 32
        vectors, rows = plan.tiling.vectors, max(plan.tiling.rows, builder.lanes)
        if not plan.is_chained:
            self.sums = builder.memory(rows * vectors, self.zero)
        if plan.is_across:
            self.transposed_sums = builder.memory(builder.lanes * vectors, self.zero)

    def prefetch(
        self, n: ProductNumbers, rows: Number, element: Number, vectors: int
    ) -> None:
        """Prefetch the operands and results of the epilogue for the next tile.

        The hardware prefetcher does not follow from tile to tile. Measured as above.
        """
        if not self.pairs:
            return
        with self.b.loop(0, rows) as row:
            self.epilogue.prefetch(row * n.columns + element, vectors * self.b.lanes)

    def apply_rows(
        self,
        n: ProductNumbers,
        rows: Number,
        sums: TileSums,
        vectors: int,
        is_tail: bool,
    ) -> None:
        """Apply the epilogue to the sums of a tile."""
        b = self.b
        if self.pairs and vectors == 2:
            with b.of_lanes(2 * b.lanes):
                self._apply_rows(n, rows, sums, 1, is_tail)
            return
        self._apply_rows(n, rows, sums, vectors, is_tail)

    def _apply_rows(
        self,
        n: ProductNumbers,
        rows: Number,
        sums: TileSums,
        vectors: int,
        is_tail: bool,
    ) -> None:
        b, size = self.b, self.b.lanes * self.itemsize
        remaining = n.columns - sums.column
        masks = b.first_of_vectors(remaining, vectors) if is_tail else [None] * vectors
        columns = [sums.column + j * b.lanes for j in range(vectors)]
        pairs = list(zip(columns, masks, strict=True))
        loaded = [self.epilogue.columns(column, mask) for column, mask in pairs]
        with b.loop(0, rows) as row:
            first = row * n.columns + sums.element
            address = sums.address + row * sums.stride
            for j, (column, mask) in enumerate(pairs):
                value = self.load_vector(address + j * size, mask)
                element = first + j * b.lanes
                self.epilogue.apply(value, element, column, mask, loaded[j])

    def apply_columns(
        self, n: ProductNumbers, first: Number, row: Number, vectors: int
    ) -> None:
        """Apply the epilogue to the columns of a tile, which are rows of the result."""
        b, lanes, epilogue = self.b, self.b.lanes, self.epilogue
        # Without column operands, rows shorter than a vector are contiguous as in the
        # result.
        is_flat = not epilogue.has_columns
        line = n.rows * self.itemsize + 0
        line = line if is_flat else self.vector_bytes
        with b.loop(0, vectors) as j:
            first_line = self.sums + j * self.vector_bytes
            steps = range(0, lanes * vectors, vectors)
            addresses = [first_line + i * self.vector_bytes for i in steps]
            target = self.transposed_sums + j * (lanes * line)
            for i, x in enumerate(
                b.transposed([self.load_vector(x) for x in addresses])
            ):
                self.store_vector(x, target + i * line)
        remaining = n.columns - row
        count = b.min(remaining, vectors * lanes)
        element = row * n.rows + first
        if is_flat:
            loaded = epilogue.columns(0)
            for index, mask in b.run(0, count * n.rows):
                value = self.load_vector(
                    self.transposed_sums + index * self.itemsize, mask
                )
                position = element + index
                epilogue.apply(value, position, 0, mask, loaded)
            return
        mask = self.b.first_lanes(n.rows)
        loaded = epilogue.columns(0, mask)
        with b.loop(0, count) as index:
            value = self.load_vector(self.transposed_sums + index * self.vector_bytes)
            position = index * n.rows + element
            epilogue.apply(value, position, 0, mask, loaded)
