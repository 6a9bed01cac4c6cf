"""The properties that the code of a product depends on, and its table of numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

from toolkit.backends.numpy.jit.kernels.gemm.tiling import Tiling
from toolkit.backends.numpy.jit.kernels.matmul.unpack import Unpacked
from toolkit.definitions.records import record

ROW, PRODUCT, BLOCK = "row", "product", "block"


@record
class ProductPlan:
    """The properties that the code of a product depends on.

    Attributes:
        tiling: the register blocking.
        unit: a row of the call: a row of the result, a product of a batch, or a block
        of a product.
        axes: the number of batch axes.
        a, b: the inputs of the body that are the operands.
        is_across: whether the columns of the product are the rows of the result.
        has_panels: whether the right operand is packed into panels by an earlier call.
        has_tiles: whether the left operand is packed into tiles by an earlier call.
        has_contiguous_terms: whether the terms of a row of the left operand are
            contiguous.
        is_chained: whether sums continue over steps of the depth.
        pack_a: the packing of each tile of the left operand before its product. "": it
        is read in place.
        pack_b: the packing of the right operand for each product, or "".
        b_dtype: of a right operand in memory, a 16-bit float, or "": of the result.
        unpack_source: the source of the right operand if it has 4-bit numbers.
    """

    tiling: Tiling
    unit: str
    axes: int
    a: int
    b: int
    is_across: bool = False
    has_panels: bool = False
    has_tiles: bool = False
    has_contiguous_terms: bool = False
    is_chained: bool = False
    pack_a: str = ""
    pack_b: str = ""
    b_dtype: str = ""
    unpack_source: Unpacked | None = None

    @property
    def has_packed_rows(self) -> bool:
        """Return whether tiles of the left operand are packed."""
        return self.has_tiles or bool(self.pack_a)


class ProductNumbers(NamedTuple):
    """The numbers after the addresses in the table. All strides are in bytes.

    Attributes:
        rows, depth, columns: extents of a product.
        a_row, a_term: strides of the left operand. a_row is the stride of tiles if it
        is packed.
        b_line, b_term, b_panel: strides of the right operand: of columns (if it is to
        be packed), of terms, and of panels.
        block_rows, block_depth, block_panels: extents of a block.
        step_depth: the terms of a step, if the plan is chained.
        row_blocks, slots, panel_blocks: the number of blocks of a product.
        scratch: the bytes of each task's memory for packing.
        scratch_a: the offset in it of the left operand's tile, after the panels.
        blocks: the rows of scales, if the right operand is unpacked.
    """

    rows: Any
    depth: Any
    columns: Any
    a_row: Any
    a_term: Any
    b_line: Any
    b_term: Any
    b_panel: Any
    block_rows: Any = 0
    block_depth: Any = 0
    block_panels: Any = 0
    step_depth: Any = 0
    row_blocks: Any = 1
    slots: Any = 1
    panel_blocks: Any = 1
    scratch: Any = 0
    scratch_a: Any = 0
    blocks: Any = 0
