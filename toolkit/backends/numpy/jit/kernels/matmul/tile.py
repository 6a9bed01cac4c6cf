"""Tiles: what one core multiplies and adds in registers, and how large they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import Mask, Number, Pointer, Value
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.matmul.writer import MatrixWriter
from toolkit.backends.numpy.jit.processor import CACHE_LINE, current
from toolkit.definitions.records import record

# Terms that a panel's cache lines are asked for before they are needed.
_AHEAD = 6
# Terms that a tile of many rows adds in one turn of its loop, where the next term of a
# row is its neighbour: what a turn costs beside the arithmetic is then half as much.
_TERMS = 2
# With so few rows tiles are flat.
FLAT_ROWS = 3
# Rows whose addresses are formed from one pointer: x86 adds 0, 1, 2, 4 times a stride.
_ROWS_PER_POINTER = 5


@record
class Tiling:
    """How a product is cut.

    Attributes:
        dtype, lanes: of its vectors.
        rows: of the largest tile.
        vectors: that a panel of columns is wide.
        full: whether there are panels of that width.
        tail: vectors of the last, narrower panel; 0: there is none.
        exact: whether all tiles have that many rows.
    """

    dtype: str
    lanes: int
    rows: int
    vectors: int
    full: bool
    tail: int
    exact: bool = False

    @property
    def width(self) -> int:
        """Columns of a panel."""
        return self.vectors * self.lanes

    @property
    def padded_rows(self) -> int:
        """Rows of the largest tile when its terms are vectors."""
        return -(-self.rows // self.lanes) * self.lanes

    @property
    def heights(self) -> list[int]:
        """Rows of tiles: the largest, and powers of two for what remains."""
        if self.exact:
            return [self.rows]
        powers = [1 << i for i in reversed(range(self.rows.bit_length()))]
        return [self.rows, *(n for n in powers if n < self.rows)]


def most_rows() -> int:
    """The rows of a tile that is two vectors wide."""
    return 12 if current().registers >= 32 else 6


def tiling(rows: int, columns: int, dtype: str, exact: bool = False) -> Tiling:
    """How to cut a product.

    Args:
        rows, columns: of the product.
        dtype: of both factors.
        exact: whether there shall be a single tile of rows.
    """
    lanes = current().lanes * 4 // dtypes.itemsize(dtype)
    height, vectors = most_rows(), 2
    if exact or rows <= FLAT_ROWS:
        # Columns have to keep the core busy where rows do not.
        height = rows if exact else min(rows, 2)
        vectors = max(1, min(most_rows() * 2 // height, 8))
        widest = current().registers // 2
        if height == 1 and columns % (widest * lanes) == 0:
            vectors = widest
    count, rest = divmod(columns, vectors * lanes)
    return Tiling(dtype, lanes, height, vectors, count > 0, -(-rest // lanes), exact)


def tile_function(
    name: str,
    tiling: Tiling,
    vectors: int,
    tail: bool,
    chained: bool,
    packed: bool,
    runs: bool,
    ahead: bool = False,
) -> set[str]:
    """A function that sums a tile: each element a chain of its terms in order.

    It is one of its own so that its registers hold nothing but the tile.

    Args:
        name: of the function.
        tiling: says how many rows it can be called for.
        vectors: of columns.
        tail: whether only some of the columns exist.
        chained: whether it may go on from sums that are there already.
        packed: whether the first factor's tile is packed.
        runs: whether the terms of its rows are neighbours.
        ahead: whether the next tile of the first factor is asked for, which is not
            packed yet.
    """
    w = MatrixWriter(Kernel(tiling.lanes), tiling.dtype)
    b, heights = w.b, tiling.heights
    masks = (
        w.b.first_of_vectors(b.parameter("columns"), vectors)
        if tail
        else [None] * vectors
    )
    done, cases = b.fresh("done"), [b.fresh("rows") for _ in heights]
    targets = " ".join(
        f"i64 {n}, label %{case}" for n, case in zip(heights, cases, strict=True)
    )
    b.emit(f"switch i64 %rows, label %{done} [ {targets} ]")
    for rows, case in zip(heights, cases, strict=True):
        b.label(case)
        _tile(w, tiling, rows, masks, chained, packed, runs, ahead)
        b.emit(f"br label %{done}")
    b.label(done)
    text = b.function(name, _PARAMETERS).replace("define", "define internal", 1)
    return {*b.declarations, text}


# The first terms of the tile's rows and columns, where the sums go, how many rows and
# terms there are, strides in bytes, how many columns exist, and whether (0 or 1) there
# are sums to go on from.
_PARAMETERS = (
    "ptr noalias %a",
    "ptr noalias %b",
    "ptr noalias %sums",
    "i64 %rows",
    "i64 %depth",
    "i64 %columns",
    "i64 %sums_row",
    "i64 %a_row",
    "i64 %a_term",
    "i64 %b_term",
    "i64 %earlier",
    "ptr %next",
    "i64 %next_term",
)


def _tile(
    w: MatrixWriter,
    tiling: Tiling,
    rows: int,
    masks: Sequence[Mask],
    chained: bool,
    packed: bool,
    runs: bool,
    ahead: bool,
) -> None:
    """Sum a tile of some rows and store it."""
    starts = [
        w.b.pointer_parameter("sums") + i * w.b.parameter("sums_row")
        for i in range(rows)
    ]
    places = [
        (start + j * w.vector_bytes, mask)
        for start in starts
        for j, mask in enumerate(masks)
    ]
    for place, _ in places:
        w.b.prefetch(place, write=True)
    sums = _Sums(w, tiling, rows, masks, packed, runs, ahead).total()
    if chained:
        sums = _added(w, sums, places)
    for value, (place, mask) in zip(sums, places, strict=True):
        w.put(value, place, mask)


def _added(
    w: MatrixWriter, sums: Sequence[Value], places: Sequence[tuple[Pointer, Mask]]
) -> list[Value]:
    """The sums and those that are there already, unless these are the first."""
    with w.b.accumulate(0, w.b.parameter("earlier"), 1, sums) as iteration:
        pairs = zip(iteration.values, places, strict=True)
        iteration.next([w.sum(x, w.vector(*place)) for x, place in pairs])
    return iteration.values


class _Rows:
    """Where the terms of a tile's rows are.

    What is packed is at distances that are known; otherwise few pointers serve many
    rows, as x86 adds 1, 2 or 4 times a stride for free.
    """

    def __init__(
        self, w: MatrixWriter, tiling: Tiling, rows: int, packed: bool, runs: bool
    ) -> None:
        self.w = w
        self.rows = rows
        self.stride: Number = w.itemsize if packed else w.b.parameter("a_row")
        self.term: Number = w.itemsize if runs else w.b.parameter("a_term")
        if packed:
            self.term = tiling.padded_rows * w.itemsize
        self.every = rows if packed else _ROWS_PER_POINTER
        firsts = range(0, rows, self.every)
        self.pointers = [w.b.pointer_parameter("a") + i * self.stride for i in firsts]
        self.third = 3 * self.stride

    def places(self, offset: Number) -> Iterator[Pointer]:
        """Pointers to a term of each row."""
        pointers = [first + offset for first in self.pointers]
        for i in range(self.rows):
            pointer, step = pointers[i // self.every], i % self.every
            yield (
                (pointer + self.third) if step == 3 else (pointer + step * self.stride)
            )


class _Sums:
    """Writes the loop over all terms of a tile."""

    def __init__(
        self,
        w: MatrixWriter,
        tiling: Tiling,
        rows: int,
        masks: Sequence[Mask],
        packed: bool,
        runs: bool,
        ahead: bool,
    ) -> None:
        self.w = w
        self.masks = masks
        self.rows = rows
        self.ahead = ahead
        # A single row has so little arithmetic that asking would take longer.
        self.asks = tiling.rows > 1
        self.lines = _Rows(w, tiling, rows, packed, runs)
        is_large = 2 * rows > tiling.rows > FLAT_ROWS
        self.terms: int = _TERMS if is_large and (packed or runs) else 1

    def total(self) -> list[Value]:
        """The sums of the products of all terms."""
        b, zero = self.w.b, Value("0", "int64")
        values = [zero, zero, *[self.w.zero] * (self.rows * len(self.masks))]
        depth = b.parameter("depth")
        whole = b.whole_vectors(0, depth, self.terms)
        values = self._loop(0, whole, self.terms, values)
        if self.terms > 1:
            values = self._loop(whole, depth, 1, values)
        return values[2:]

    def _loop(
        self, first: Number, end: Number, terms: int, values: list[Value]
    ) -> list[Value]:
        """Some terms in a turn; how far both factors are goes from turn to turn."""
        b, term, b_term = self.w.b, self.lines.term, self.w.b.parameter("b_term")
        with b.accumulate(first, end, terms, values) as iteration:
            a_offset, b_offset = iteration.index_of(0), iteration.index_of(1)
            sums = iteration.values[2:]
            if self.ahead:
                following = iteration.index * b.parameter("next_term")
                b.prefetch(b.pointer_parameter("next") + following, near=2)
            for k in range(terms):
                a_place, b_place = a_offset + k * term, b_offset + k * b_term
                sums = self._term(a_place, b_place, sums)
            moved = [a_offset + terms * term, b_offset + terms * b_term]
            iteration.next([*moved, *sums])
        return iteration.values

    def _term(
        self, a_offset: Number, b_offset: Number, sums: list[Value]
    ) -> list[Value]:
        """One term of every row and column."""
        w, b = self.w, self.w.b
        columns = b.pointer_parameter("b") + b_offset
        if self.asks:
            ahead = columns + b.parameter("b_term") * _AHEAD
            for j in range(0, len(self.masks) * w.vector_bytes, CACHE_LINE):
                b.prefetch(ahead + j)
        ys = [
            w.vector(columns + j * w.vector_bytes, mask)
            for j, mask in enumerate(self.masks)
        ]
        found = []
        for i, place in enumerate(self.lines.places(a_offset)):
            x = b.splat(b.scalar(place, w.dtype))
            for j, y in enumerate(ys):
                found.append(w.plus_product(sums[i * len(ys) + j], x, y))
        return found
