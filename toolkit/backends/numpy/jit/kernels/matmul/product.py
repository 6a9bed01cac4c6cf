"""The kernel of products: blocks of the result as tiles, followed by the epilogue."""

from __future__ import annotations

from dataclasses import replace

from toolkit.backends.numpy.jit.builder import Index, Number, Pointer, Range, Value
from toolkit.backends.numpy.jit.epilogue import BodyStructure, Epilogue
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.gemm.problem import LINES
from toolkit.backends.numpy.jit.kernels.gemm.writer import MatrixWriter
from toolkit.backends.numpy.jit.kernels.matmul.pack import PANELS_TOGETHER, Packer
from toolkit.backends.numpy.jit.kernels.matmul.plan import (
    BLOCK,
    ROW,
    ProductNumbers,
    ProductPlan,
)
from toolkit.backends.numpy.jit.kernels.matmul.tile import tile_function
from toolkit.backends.numpy.jit.kernels.matmul.tile_epilogue import (
    TileEpilogue,
    TileSums,
)
from toolkit.backends.numpy.jit.kernels.matmul.unpack import Panels, Unpacker
from toolkit.definitions.records import record


def emit_product(plan: ProductPlan, body: BodyStructure | None) -> Kernel:
    """Emit the function that computes units of a product.

    The table holds the addresses of the body's inputs and outputs, of packed tiles and
    panels if there are any, and of sums if the plan is chained. Without a body it holds
    the addresses of the operands and of the partial results, slot by slot. Then follow
    the address of scratch memory if the kernel packs, `ProductNumbers`, and the axes of
    the batch.
    """
    builder = Kernel(plan.tiling.lanes)
    _Product(builder, plan, body).write()
    return builder


@record
class _Block:
    """A block of a product: the addresses of its operands, and its ranges.

    It sums `depth` terms from `term` on.
    """

    a: Pointer
    b: Pointer
    b_term: Number
    b_panel: Number
    element: Number
    rows: Range
    panels: Range
    depth: Number
    term: Number = 0
    earlier: Number = 0
    is_last: Value = Value("true", "bool")


@record
class _Tile:
    """Rows of a block that are computed together."""

    a: Pointer
    a_row: Number
    a_term: Number
    rows: Number
    element: Number
    next: Pointer | None = None


class _Product(MatrixWriter):
    """Emits the function."""

    def __init__(
        self, builder: Kernel, plan: ProductPlan, body: BodyStructure | None
    ) -> None:
        super().__init__(builder, plan.tiling.dtype)
        self.plan = plan
        self.tiling = plan.tiling
        self.tile_epilogue = self._load_addresses(body)
        packs = plan.pack_a or plan.pack_b or plan.unpack_source
        if packs:
            self.scratch = self.b.next_address()
        error = self.b.next_address() if plan.unpack_source else None
        self.n = self.b.next_entries(ProductNumbers)
        self.batch = [self.batch_entry() for _ in range(plan.axes)]
        if packs:
            self.scratch = self.scratch + builder.slot * self.n.scratch
        # The number of full panels, and of all panels.
        self.full = self.n.columns // self.tiling.width
        self.panels = (
            self.b.ceil_div(self.n.columns, self.tiling.width)
            if self.tiling.is_open
            else self.full + int(self.tiling.tail > 0)
        )
        if error is not None:
            self.unpacker = self._unpacker(error)

    def _load_addresses(self, body: BodyStructure | None) -> TileEpilogue | None:
        """Load the addresses of operands and result. Return the epilogue or None."""
        if body is None:
            self.left_address, self.right_address, self.result = (
                self.b.next_address() for _ in "abc"
            )
            return None
        epilogue = Epilogue.of_table(body, self.b)
        self.bases = bases = epilogue.addresses
        self.left_address, self.right_address = bases[self.plan.a], bases[self.plan.b]
        self.result = bases[-1]
        if self.plan.has_tiles:
            self.left_address = self.b.next_address()
        if self.plan.has_panels:
            self.right_address = self.b.next_address()
        if not epilogue.nodes and not self.plan.is_across:
            return None
        if self.plan.is_chained:
            self.result = self.b.next_address()
        return TileEpilogue(self.b, self.plan, epilogue)

    # --- units ------------------------------------------------------------------------

    def write(self) -> None:
        """Emit the loop over units."""
        n = self.n
        full = _Block(
            self.left_address,
            self.right_address,
            n.b_term,
            n.b_panel,
            0,
            (0, n.rows),
            (0, self.panels),
            n.depth,
        )
        if self.plan.unit == ROW:
            self._steps(replace(full, rows=(self.b.low, self.b.high)))
            return
        with self.b.loop(self.b.low, self.b.high) as unit:
            section = full
            number: Number = unit
            product: Number = unit
            if self.plan.unit == BLOCK:
                section, number, product = self._locate_block(full, unit)
            size = n.rows * n.columns
            block = replace(
                section,
                a=self.batch_address(section.a, product, self.batch, "a"),
                b=self.batch_address(section.b, product, self.batch, "b"),
                element=number * size,
            )
            self._steps(block)

    def _locate_block(
        self, full: _Block, unit: Number
    ) -> tuple[_Block, Number, Number]:
        """Return a block (slots, then rows, then panels), its result and product."""
        n = self.n
        block_index, panels = self.b.split(unit, n.panel_blocks)
        number, rows = self.b.split(block_index, n.row_blocks)
        product, slot = self.b.split(number, n.slots)
        first, end = self.b.tile_range(slot, n.block_depth, n.depth)
        block = replace(
            full,
            a=full.a + first * n.a_term,
            b=full.b + first * n.b_term,
            rows=self.b.tile_range(rows, n.block_rows, n.rows),
            panels=self.b.tile_range(panels, n.block_panels, self.panels),
            depth=end - first,
            term=first,
        )
        # Every slot of a product has a separate result.
        return block, number, product

    def _prepare_panels(self, block: _Block) -> _Block:
        """Pack or unpack the right operand of a block, if the plan says so."""
        if self.plan.unpack_source:
            return self._unpack_right(block)
        return self._pack_right(block) if self.plan.pack_b else block

    def _unpacker(self, error: Pointer) -> Unpacker:
        unpacked, n = self.plan.unpack_source, self.n
        assert unpacked is not None
        return Unpacker(
            self.b,
            [self.bases[i] for i in unpacked.factors],
            unpacked.is_signed,
            error,
            n.blocks,
            n.columns,
            self.tiling.vectors,
            self.tiling.tail,
        )

    def _unpack_right(self, block: _Block) -> _Block:
        """Return the block with its panels unpacked."""
        packer, first = self.unpacker, block.panels[0]
        size = block.depth * packer.term_bytes
        packer.write(
            Panels(self.scratch, size, block.panels, block.term, block.depth, self.full)
        )
        start = self.scratch + (0 - first) * size
        return replace(block, b=start, b_term=packer.term_bytes, b_panel=size)

    def _pack_right(self, block: _Block) -> _Block:
        """Return the block with its panels packed."""
        b, n, (first, last) = self.b, self.n, block.panels
        packer = Packer(self, self.plan.pack_b, self.tiling.width, self.plan.b_dtype)
        size = packer.panel_bytes(block.depth)
        # Panel numbers start at the product's first panel.
        start = self.scratch + (0 - first) * size
        remaining: Number = first
        if packer.packing == LINES:
            groups = (b.min(last, self.full) - first) // PANELS_TOGETHER
            remaining = first + groups * PANELS_TOGETHER
            with b.loop(first, remaining, PANELS_TOGETHER) as panel:
                source, target = block.b + panel * n.b_panel, start + panel * size
                packer.write_panels(source, target, size, n.b_term, block.depth)
        with b.loop(remaining, last) as panel:
            source, target = block.b + panel * n.b_panel, start + panel * size
            lines = n.columns - panel * self.tiling.width
            packer.write(source, target, n.b_line, n.b_term, lines, block.depth)
        return replace(block, b=start, b_term=packer.term_bytes, b_panel=size)

    def _steps(self, block: _Block) -> None:
        """Compute a block, in steps of its depth if the plan is chained."""
        if not self.plan.is_chained:
            self._block(self._prepare_panels(block))
            return
        b, n = self.b, self.n
        with b.loop(0, self.b.ceil_div(block.depth, n.step_depth)) as step:
            first, end = self.b.tile_range(step, n.step_depth, block.depth)
            step_block = replace(
                block,
                a=block.a + first * n.a_term,
                b=block.b + first * block.b_term,
                depth=end - first,
                term=block.term + first,
                earlier=b.min(step, 1),
                is_last=b.compare("slt", block.depth - 1, end),
            )
            self._block(self._prepare_panels(step_block))

    # --- tiles ------------------------------------------------------------------------

    def _block(self, block: _Block) -> None:
        """Compute tiles from the first row to the last, each with all panels."""
        b, (first, end) = self.b, block.rows
        count = end - first
        # The remainder has one smaller tile for each set bit.
        full, remainder = self.b.split(count, self.tiling.rows)
        smaller = Index(b, b.intrinsic("ctpop", b.int64(remainder)).text)
        tiles = full + smaller
        with b.accumulate(0, tiles, 1, [b.int64(first)]) as iteration:
            row = iteration.index_of(0)
            rows = self._height(end - row)
            tile = self._tile_at(row, rows, block)
            self._tile(self._pack_tile(tile, block.depth), block)
            iteration.next([row + rows])

    def _tile_at(self, row: Index, rows: Number, block: _Block) -> _Tile:
        """Return the tile of some rows from `row` on."""
        n, element = self.n, row * self.n.columns + block.element
        if not self.plan.has_tiles:
            return _Tile(block.a + row * n.a_row, n.a_row, n.a_term, rows, element)
        number, row_in_tile = self.b.split(row, self.tiling.rows)
        a = block.a + number * n.a_row + row_in_tile * self.itemsize
        return _Tile(a, self.itemsize, n.a_term, rows, element)

    def _height(self, remaining: Index) -> Number:
        """Return the number of rows of the next tile, given the remaining rows."""
        b, heights = self.b, self.tiling.heights
        rows: Number = heights[-1]
        cases = [(height, "sge", height) for height in reversed(heights[:-1])]
        third, remainder = divmod(self.tiling.rows, 3)
        if not remainder and 2 * third in heights and not self.plan.has_tiles:
            # Two tiles of two thirds are faster than a full one and a third.
            cases.append((4 * third, "eq", 2 * third))
        for limit, relation, height in cases:
            fits = b.compare(relation, remaining, limit)
            rows = b.choose(fits, height, rows)
        return rows

    def _pack_tile(self, tile: _Tile, depth: Number) -> _Tile:
        if not self.plan.pack_a:
            return tile
        packer = Packer(self, self.plan.pack_a, self.tiling.padded_rows)
        address = self.scratch + self.n.scratch_a
        packer.write(tile.a, address, tile.a_row, tile.a_term, tile.rows, depth)
        row, term = self.itemsize, packer.term_bytes
        last = tile.rows * 2 + -1
        following = tile.a + last * tile.a_row
        return replace(tile, a=address, a_row=row, a_term=term, next=following)

    def _tile(self, tile: _Tile, block: _Block) -> None:
        b, (first, last) = self.b, block.panels
        if self.tiling.full:
            with b.loop(first, b.min(last, self.full)) as panel:
                self._sums(tile, block, panel, self.tiling.vectors, False)
        if self.tiling.tail:
            with b.loop(b.max(first, self.full), last) as panel:
                self._sums(tile, block, panel, self.tiling.tail, True)

    def _sums(
        self, tile: _Tile, block: _Block, panel: Number, vectors: int, is_tail: bool
    ) -> None:
        """Sum a tile and a panel into the result, or for the epilogue."""
        b = self.b
        column = panel * self.tiling.width
        remaining = self.n.columns - column
        element = tile.element + column
        if self.tile_epilogue is None or self.plan.is_chained:
            address = self.result + element * self.itemsize
            stride = self.n.columns * self.itemsize
        else:
            address, stride = self.tile_epilogue.sums, vectors * self.vector_bytes
        if self.tile_epilogue is not None and not self.plan.is_across:
            with b.when(block.is_last):
                self.tile_epilogue.prefetch(self.n, tile.rows, element, vectors)
        name = "sum_tail" if is_tail else "sum_tile"
        b.declarations |= tile_function(name, self.plan, vectors, is_tail)
        factor = block.b + panel * block.b_panel
        counts = (tile.rows, block.depth, remaining)
        strides = (stride, tile.a_row, tile.a_term, block.b_term)
        following = tile.next or Pointer(b, "null")
        numbers = (*counts, *strides, block.earlier, following, self.n.a_term)
        b.call(name, tile.a, factor, address, *numbers)
        if self.tile_epilogue is not None and self.plan.is_across:
            self.tile_epilogue.apply_columns(self.n, block.element, column, vectors)
        elif self.tile_epilogue is not None:
            tile_sums = TileSums(address, stride, element, column)
            with self.b.when(block.is_last):
                self.tile_epilogue.apply_rows(
                    self.n, tile.rows, tile_sums, vectors, is_tail
                )
