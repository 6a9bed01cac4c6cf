"""Code generation that the attention kernels share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

from toolkit.backends.numpy.jit.builder import Index, Mask, Number, Pointer, Value
from toolkit.backends.numpy.jit.kernel import Kernel, constant_mask
from toolkit.backends.numpy.jit.kernels.attention.product import (
    product_function,
)
from toolkit.backends.numpy.jit.kernels.attention.transpose import (
    COLUMNS,
    load_quad,
    transpose_quads,
)
from toolkit.backends.numpy.jit.kernels.gemm.writer import MatrixWriter
from toolkit.backends.numpy.jit.math.exponential import exp_of_moderate
from toolkit.backends.numpy.jit.math.vector import Vector
from toolkit.definitions.records import record

# Vectors of queries in a block.
VECTORS = 2
# Arrays with a row for each source.
PACKED = ("key", "value", "key_grad", "value_grad")
# The value of masked logits: see `toolkit.ops.attention`.
MASKED_LOGIT = -2.0e38
# The initial maximum, so that exp(LOWEST - MASKED) is 0.
INITIAL_MAXIMUM = {"float32": -3.4e38, "float64": -1.7e308}
# exp is 0 below this: the result would be smaller than any normal number.
_MIN_EXPONENT = {"float32": -87.0, "float64": -708.0}


class Extra(NamedTuple):
    """A bias or mask.

    `layout` is "one" if all targets share it, "next" if its sources are contiguous,
    else "apart".
    """

    name: str
    dtype: str
    layout: str


@record
class AttentionPlan:
    """The properties that the code of a kernel depends on.

    Attributes:
        dtype, lanes: of its vectors.
        features, value_features: of queries and keys, and of values.
        scale: of the logits.
        causal: whether targets attend to no later sources.
        extras: the bias and the mask, if present.
        rows_apart: the names of per-row arrays that are not contiguous.
        keys: the keys of a block.
        is_packed: whether the rows of `PACKED` are packed, because their stride is so
        large that few of them fit the cache.
    """

    dtype: str
    lanes: int
    features: int
    value_features: int
    scale: float
    causal: bool
    extras: tuple[Extra, ...]
    rows_apart: tuple[str, ...]
    keys: int
    is_packed: bool

    def features_of(self, name: str) -> int:
        """Return the features of an array of `PACKED`."""
        return self.features if name.startswith("key") else self.value_features

    @property
    def per_target(self) -> list[Extra]:
        """Return the extras that differ between targets."""
        return [extra for extra in self.extras if extra.layout != "one"]

    @property
    def width(self) -> int:
        """Return the number of queries in a block."""
        return VECTORS * self.lanes


class Strides(NamedTuple):
    """The strides of an array in bytes. A row is a target or a source."""

    batch: Number
    head: Number
    row: Number


class Numbers(NamedTuple):
    """The numbers between the addresses and the strides in the table.

    A unit of work is a piece of the targets, for some key heads of one batch element.
    """

    targets: int
    sources: int
    group: int  # query heads per key head
    head_groups: int  # of the key heads
    heads: int  # key heads of a part
    pieces: int  # of the targets
    piece: int  # targets of a piece
    scratch: int  # bytes


class AttentionWriter(MatrixWriter):
    """Emits one of the two functions of a kernel.

    Args:
        plan: the properties of the code.
        operands: the names of the arrays, in the order of the table.
    """

    def __init__(self, plan: AttentionPlan, operands: Sequence[str]) -> None:
        super().__init__(Kernel(plan.lanes), plan.dtype)
        self.plan = plan
        self.pointers: dict[str, Pointer] = {
            name: self.b.next_address() for name in operands
        }
        scratch = self.b.next_address()
        self.n: dict[str, Index] = {
            name: self.b.next_entry() for name in Numbers._fields
        }
        self.strides: dict[str, Strides] = {
            name: Strides(self.b.next_entry(), self.b.next_entry(), self.b.next_entry())
            for name in operands
        }
        self.steps: dict[str, Index] = {
            extra.name: self.b.next_entry() for extra in plan.extras
        }
        self.scratch: Pointer = scratch + self.b.slot * self.n["scratch"]
        self.line: int = VECTORS * self.vector_bytes

    def head_address(self, name: str, batch: Number, head: Number) -> Pointer:
        """Return the address of a head in an array."""
        strides = self.strides[name]
        return self.pointers[name] + batch * strides.batch + head * strides.head

    def row_stride(self, name: str) -> Number:
        """Return the byte stride of an array's rows, as blocks access them."""
        if self.plan.is_packed and name in PACKED:
            return self.plan.features_of(name) * self.itemsize
        return self.strides[name].row

    def areas(self, sizes: Sequence[int]) -> list[Pointer]:
        """Return the areas of the scratch memory, for their sizes in lines."""
        starts = accumulate(sizes[:-1], initial=0)
        return [self.scratch + start * self.line for start in starts]

    def lane_numbers(self, first: Number) -> list[Value]:
        """Return the numbers of the queries of a block that starts at `first`."""
        b = self.b
        start = b.splat(b.int64(first))
        numbers = [b.binary("add", start, b.lane_numbers("int64"))]
        for _ in range(VECTORS - 1):
            step = b.constant(b.lanes, numbers[-1])
            numbers.append(b.binary("add", numbers[-1], step))
        return numbers

    # --- products ---------------------------------------------------------------------

    def multiply(
        self,
        a: Pointer,
        b: Pointer,
        c: Pointer,
        rows: Number,
        depth: Number,
        strides: Sequence[Number],
        earlier: Number = 0,
        vectors: int = VECTORS,
        tail: int = 0,
    ) -> None:
        """Compute c = a @ b, or c += a @ b if `earlier` is 1.

        strides: of a's rows and terms, and of the rows of b and of c.
        """
        name = f"product_{vectors}_{tail}"
        plan = self.plan
        self.b.declarations |= product_function(
            name, plan.dtype, plan.lanes, vectors, tail
        )
        self.b.call(name, a, b, c, rows, depth, *strides, earlier)

    def multiply_wide(
        self,
        a: Pointer,
        b: Pointer,
        c: Pointer,
        rows: Number,
        depth: Number,
        strides: Sequence[Number],
        columns: int,
    ) -> None:
        """Compute c += a @ b, where the rows of b and c have `columns` numbers."""
        lanes = self.plan.lanes
        for first in range(0, columns, VECTORS * lanes):
            count = min(VECTORS * lanes, columns - first)
            start = first * self.itemsize
            self.multiply(
                a,
                b + start,
                c + start,
                rows,
                depth,
                strides,
                1,
                -(-count // lanes),
                count % lanes,
            )

    # --- transposing ------------------------------------------------------------------

    def transpose_in(
        self,
        source: Pointer,
        step: Number,
        first: Number,
        target: Pointer,
        columns: int,
        scale: float,
    ) -> None:
        """Transpose rows of queries: line j has feature j of each, times `scale`."""
        b = self.b
        with b.loop(0, VECTORS) as vector:
            rows = self.rows(source, step, vector * self.plan.lanes + first)
            lines = target + vector * self.vector_bytes
            for low, high, mask in _ranges(columns, COLUMNS):
                with b.loop(low, high, COLUMNS) as column:
                    offset = column * self.itemsize
                    addresses = [row + offset for row in rows]
                    quads = [
                        load_quad(b, address, self.dtype, mask) for address in addresses
                    ]
                    vectors = transpose_quads(b, quads)[
                        : columns % COLUMNS if mask else None
                    ]
                    line = lines + column * self.line
                    for j, value in enumerate(vectors):
                        if scale != 1.0:
                            value = b.binary("fmul", value, b.constant(scale, value))
                        self.store_vector(value, line + j * self.line)

    def transpose_out(
        self,
        source: Pointer,
        target: Pointer,
        step: Number,
        first: Number,
        columns: int,
        factors: Pointer | None = None,
    ) -> None:
        """Transpose lines to rows, with an optional factor for each query."""
        b, lanes = self.b, self.plan.lanes
        count = self.n["targets"] - first
        last = b.min(count, self.plan.width) - 1
        base = target + first * step
        for low, high, mask in _ranges(columns, lanes):
            valid = columns % lanes if mask else lanes
            with b.loop(low, high, lanes) as column:
                line = source + column * self.line
                lines = [line + min(i, valid - 1) * self.line for i in range(lanes)]
                rows = base + column * self.itemsize
                with b.loop(0, last + 1, COLUMNS) as query:
                    offset = query * self.itemsize
                    addresses = [line + offset for line in lines]
                    quads = [load_quad(b, address, self.dtype) for address in addresses]
                    vectors = list(enumerate(transpose_quads(b, quads)))
                    # Queries after the last one write to its row, before the last one
                    # does.
                    for j, value in reversed(vectors):
                        number = b.min(query + j, last)
                        if factors is not None:
                            address = factors + number * self.itemsize
                            factor = b.splat(self.b.scalar(address, self.dtype))
                            value = b.binary("fmul", value, factor)
                        self.store_vector(value, rows + number * step, mask)

    def rows(self, base: Pointer, step: Number, first: Number) -> list[Pointer]:
        """Return the row addresses of a vector's lanes, clamped to the last row."""
        b = self.b
        last = self.n["targets"] - 1
        numbers = [first + i for i in range(self.plan.lanes)]
        return [base + b.min(number, last) * step for number in numbers]

    # --- numbers per row --------------------------------------------------------------

    def load_rows(self, name: str, base: Pointer, first: Number) -> list[Value]:
        """Load the numbers of a block's rows, zeros after the last row."""
        step = self.strides[name].row
        vectors = []
        for j, mask in enumerate(self._row_masks(first)):
            number = first + j * self.plan.lanes
            if name in self.plan.rows_apart:
                vectors.append(self.b.gather(base, step, number, self.dtype, mask))
            else:
                vectors.append(self.b.load(base, number, self.dtype, mask))
        return vectors

    def store_rows(self, values: Sequence[Value], base: Pointer, first: Number) -> None:
        """Store numbers of a block's rows contiguously."""
        for j, mask in enumerate(self._row_masks(first)):
            number = first + j * self.plan.lanes
            self.b.store(values[j], base, number, mask)

    def _row_masks(self, first: Number) -> list[Mask]:
        return [*self.b.first_of_vectors(self.n["targets"] - first, VECTORS)]

    # --- loops over keys --------------------------------------------------------------

    def each_key(
        self,
        low: Number,
        high: Number,
        initial: Sequence[Value],
        body: Callable[[Index, list[Value]], Sequence[Value]],
    ) -> list[Value]:
        """Loop over the keys of a block with body(key, values) -> values."""
        with self.b.accumulate(low, high, 1, initial) as iteration:
            iteration.next(body(iteration.index, iteration.values))
        return iteration.values

    def load_line(self, area: Pointer, key: Number) -> list[Value]:
        """Load the vectors of a line."""
        address = area + key * self.line
        return [
            self.load_vector(address + j * self.vector_bytes) for j in range(VECTORS)
        ]

    def store_line(self, values: Sequence[Value], area: Pointer, key: Number) -> None:
        """Store a line."""
        address = area + key * self.line
        for j, value in enumerate(values):
            self.store_vector(value, address + j * self.vector_bytes)

    def exponential(self, x: Value) -> Value:
        """Return e**x for x <= 0."""
        limit = self.b.constant(_MIN_EXPONENT[self.dtype], x)
        is_small = self.b.binary("fcmp olt", x, limit, "bool")
        zero = self.b.constant(0.0, x)
        return self.b.select(is_small, zero, exp_of_moderate(Vector(self.b, x)).value)

    def maximum(self, a: Value, b: Value) -> Value:
        """Return the maximum, or b if either is NaN."""
        return self.b.select(self.b.binary("fcmp ogt", a, b, "bool"), a, b)


def _ranges(columns: int, step: int) -> list[tuple[int, int, Mask]]:
    """Return the range of whole steps and the remainder, with its mask."""
    full, remainder = columns - columns % step, columns % step
    ranges: list[tuple[int, int, Mask]] = []
    if full:
        ranges.append((0, full, None))
    if remainder:
        ranges.append((full, columns, constant_mask(remainder, step)))
    return ranges
