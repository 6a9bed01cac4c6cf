"""The kernel of integer products: tiles of words, followed by the epilogue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from toolkit.backends.numpy.jit.builder import Number, Pointer, Range, Value
from toolkit.backends.numpy.jit.epilogue import Described, Epilogue
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.integer.pack import WORD_BYTES
from toolkit.backends.numpy.jit.kernels.integer.words import Words


@dataclass(frozen=True)
class IntegerPlan:
    """What the code depends on.

    Attributes:
        words: how terms are multiplied.
        lanes: of a vector of sums.
        rows: of the largest tile.
        vectors: that a panel of columns is wide.
        full: whether there are panels of which all vectors exist.
        tail: vectors that exist of the last panel otherwise; 0: it is whole.
        a: where the words of rows are: an input of the body, or None: in front of the
            panels.
    """

    words: Words
    lanes: int
    rows: int
    vectors: int
    full: bool
    tail: int
    a: int | None = None

    @property
    def width(self) -> int:
        """Columns of a panel."""
        return self.vectors * self.lanes

    @property
    def heights(self) -> list[int]:
        """Rows of tiles: the largest, and powers of two for what remains."""
        powers = [1 << i for i in reversed(range(self.rows.bit_length()))]
        return [self.rows, *(n for n in powers if n < self.rows)]


class IntegerNumbers(NamedTuple):
    """What follows the addresses in the table; strides are in bytes.

    Attributes:
        rows, columns, words: extents of the product.
        row_bytes, panel_bytes: strides of rows of words, and of panels.
        block_rows, row_blocks: rows of a block, and how many blocks there are.
    """

    rows: Any
    columns: Any
    words: Any
    row_bytes: Any
    panel_bytes: Any
    block_rows: Any
    row_blocks: Any


def emit_integer_product(plan: IntegerPlan, body: Described) -> Kernel:
    """The function that computes blocks of rows of panels, each a row of the call.

    The table: the addresses of the body's inputs and outputs, of the rows as words, and
    of panels; `IntegerNumbers`.
    """
    builder = Kernel(plan.lanes)
    _Product(builder, plan, body).write()
    return builder


@dataclass(frozen=True)
class _Tile:
    """Rows of a panel that are computed together: its first column and its vectors."""

    row: Number
    rows: Number
    column: Number
    vectors: int
    is_tail: bool


class _Product:
    """Writes the function."""

    def __init__(self, b: Kernel, plan: IntegerPlan, body: Described) -> None:
        self.b = b
        self.plan = plan
        graph = body.body
        bases = [b.next_address() for _ in (*graph.inputs, *graph.outputs)]
        self.words = bases[plan.a] if plan.a is not None else b.next_address()
        self.panels = b.next_address()
        self.n = IntegerNumbers(*(b.next_entry() for _ in IntegerNumbers._fields))
        self.epilogue = Epilogue(graph, b, bases)
        self.sums = b.memory(plan.rows * plan.vectors, b.filled(0, "int32"))
        self.vector_bytes: int = plan.lanes * WORD_BYTES

    def write(self) -> None:
        """Loops over blocks, and over the tiles of each."""
        b, n, plan = self.b, self.n, self.plan
        full = n.columns // plan.width
        with b.loop(b.low, b.high) as unit:
            panel, block = b.split(unit, n.row_blocks)
            rows = b.part(block, n.block_rows, n.rows)
            is_full = b.compare("slt", panel, full)
            if plan.full:
                with b.when(is_full):
                    self._rows(rows, panel, plan.vectors, False)
            if plan.tail:
                with b.when(b.opposite(is_full)):
                    self._rows(rows, panel, plan.tail, True)

    def _rows(self, rows: Range, panel: Number, vectors: int, is_tail: bool) -> None:
        """The tiles of a block from the first row to the last."""
        b, (first, end) = self.b, rows
        whole, rest = b.split(end - first, self.plan.rows)
        # One smaller tile for each bit of what the largest leave over.
        smaller = b.index(f"call i64 @llvm.ctpop.i64(i64 {rest})")
        b.declarations.add("declare i64 @llvm.ctpop.i64(i64)")
        with b.accumulate(0, whole + smaller, 1, [b.int64(first)]) as iteration:
            row = iteration.index_of(0)
            height = self._height(end - row)
            column = panel * self.plan.width
            self._tile(_Tile(row, height, column, vectors, is_tail), panel)
            iteration.next([row + height])

    def _height(self, left: Number) -> Number:
        """The rows of the next tile, of the rows that are left."""
        b, (*larger, found) = self.b, self.plan.heights
        chosen: Number = found
        for height in reversed(larger):
            chosen = b.choose(b.compare("sge", left, height), height, chosen)
        return chosen

    def _tile(self, tile: _Tile, panel: Number) -> None:
        b, n, plan = self.b, self.n, self.plan
        name = "sum_tail" if tile.is_tail else "sum_tile"
        b.declarations |= _tile_function(name, plan, tile.vectors)
        places = (
            self.words + tile.row * n.row_bytes,
            self.panels + panel * n.panel_bytes,
            self.sums,
        )
        pointers = [f"ptr {p}" for p in places]
        numbers = [f"i64 {x}" for x in (tile.rows, n.words, n.row_bytes)]
        b.emit(f"call void @{name}({', '.join((*pointers, *numbers))})")
        self._finish(tile)

    def _finish(self, tile: _Tile) -> None:
        """Apply the epilogue to the sums of a tile."""
        b, n = self.b, self.n
        masks: list[Any] = [None] * tile.vectors
        if tile.is_tail:
            masks = b.first_of_vectors(n.columns - tile.column, tile.vectors)
        columns = [tile.column + j * b.lanes for j in range(tile.vectors)]
        pairs = list(zip(columns, masks, strict=True))
        of_columns = [self.epilogue.columns(*pair) for pair in pairs]
        with b.loop(0, tile.rows) as i:
            row = i + tile.row
            of_row = self.epilogue.of_row(row)
            place = self.sums + i * (tile.vectors * self.vector_bytes)
            for j, (column, mask) in enumerate(pairs):
                value = b.load(place + j * self.vector_bytes, 0, "int32", None)
                element = row * n.columns + column
                known = {**of_columns[j], **of_row}
                self.epilogue.apply(value, element, column, mask, known)


_PARAMETERS = (
    "ptr noalias %a",
    "ptr noalias %b",
    "ptr noalias %sums",
    "i64 %rows",
    "i64 %words",
    "i64 %a_row",
)


def _tile_function(name: str, plan: IntegerPlan, vectors: int) -> set[str]:
    """A function that sums a tile, of its own so that registers hold nothing else."""
    b, heights = Kernel(plan.lanes), plan.heights
    done, cases = b.fresh("done"), [b.fresh("rows") for _ in heights]
    targets = " ".join(
        f"i64 {n}, label %{case}" for n, case in zip(heights, cases, strict=True)
    )
    b.emit(f"switch i64 %rows, label %{done} [ {targets} ]")
    for rows, case in zip(heights, cases, strict=True):
        b.label(case)
        _sum_tile(b, plan, rows, vectors)
        b.emit(f"br label %{done}")
    b.label(done)
    text = b.function(name, _PARAMETERS).replace("define", "define internal", 1)
    return {*b.declarations, text}


def _sum_tile(b: Kernel, plan: IntegerPlan, rows: int, vectors: int) -> None:
    """Sum the products of all words of some rows, and store the sums."""
    panel, sums = b.pointer_parameter("b"), b.pointer_parameter("sums")
    vector_bytes = plan.lanes * WORD_BYTES
    line = plan.vectors * vector_bytes
    lines = _rows_of(b, rows)

    def line_of(place: Pointer) -> list[Value]:
        steps = [j * vector_bytes for j in range(vectors)]
        return [b.load(place + step, 0, "int32", None) for step in steps]

    initial = line_of(panel) * rows
    with b.accumulate(0, b.parameter("words"), 1, initial) as iteration:
        word, found = iteration.index, iteration.values
        ys = line_of(panel + (word + 1) * line)
        for i, first in enumerate(lines):
            x = b.splat(b.scalar(first + word * WORD_BYTES, "int32"))
            for j, y in enumerate(ys):
                k = i * vectors + j
                found[k] = plan.words.multiply_add(b, found[k], x, y)
        iteration.next(found)
    for k, value in enumerate(iteration.values):
        b.store(value, sums + k * vector_bytes, 0, None)


def _rows_of(b: Kernel, rows: int) -> list[Pointer]:
    """Pointers to the first words of rows."""
    first, stride = b.pointer_parameter("a"), b.parameter("a_row")
    return [first + i * stride for i in range(rows)]
