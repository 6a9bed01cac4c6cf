"""What the code of a product depends on, and the numbers that it is given."""

from __future__ import annotations

from typing import Any, NamedTuple

from toolkit.backends.numpy.jit.kernels.matmul.tile import Tiling
from toolkit.backends.numpy.jit.kernels.matmul.unpack import Unpacked
from toolkit.definitions.records import record

ROW, PRODUCT, BLOCK = "row", "product", "block"


@record
class ProductPlan:
    """What the code of a product depends on.

    Attributes:
        tiling: how it is cut.
        unit: what a row of the call is: a row of the result, a product of a batch, or a
            block of a product.
        axes: of the batch.
        a, b: which inputs of the body the factors are.
        across: whether the columns of the product are the rows of the result.
        panels: whether the second factor is not b, but panels that it was packed into.
        tiles: whether the first factor is not a, but tiles that it was packed into.
        runs: whether the terms of a row of the first factor are neighbours.
        chained: whether sums go on over parts of the depth, a step after the other.
        pack_a: how every tile of the first factor is packed before it is multiplied;
            "": it is read where it is.
        pack_b: the same for the second factor, for every product.
        unpacks: what the second factor is unpacked from, if it is of 4-bit numbers.
    """

    tiling: Tiling
    unit: str
    axes: int
    a: int
    b: int
    across: bool = False
    panels: bool = False
    tiles: bool = False
    runs: bool = False
    chained: bool = False
    pack_a: str = ""
    pack_b: str = ""
    unpacks: Unpacked | None = None


class ProductNumbers(NamedTuple):
    """What follows the addresses in the table; all strides are in bytes.

    Attributes:
        rows, depth, columns: extents of a product.
        a_row, a_term: strides of the first factor; a_row is from tile to tile if it is
            packed into such.
        b_line, b_term, b_panel: of the second one, from column to column (if it is to
            be packed), from term to term, and from panel to panel.
        block_rows, block_depth, block_panels: extents of a block.
        step_depth: terms of a step, if the plan is chained.
        row_blocks, slots, panel_blocks: how many blocks a product has.
        scratch: bytes of each task's memory for what it packs.
        scratch_a: where in it the tile of the first factor is, behind the panels.
        blocks: rows of scales, if the second factor is unpacked.
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
