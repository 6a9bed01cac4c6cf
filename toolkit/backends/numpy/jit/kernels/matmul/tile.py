"""Micro-kernel: multiplication and addition in registers, and its blocking."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import Mask, Number, Pointer, Value
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.gemm.tiling import FLAT_ROWS
from toolkit.backends.numpy.jit.kernels.gemm.writer import (
    LINES_PER_POINTER,
    MatrixWriter,
    line_addresses,
)
from toolkit.backends.numpy.jit.kernels.matmul.plan import ProductPlan
from toolkit.backends.numpy.jit.processor import CACHE_LINE

# The prefetch distance of a panel, in terms.
_PREFETCH_TERMS = 6
# Terms per iteration of a tile of many rows with contiguous terms. Two terms halve the
# loop overhead.
_TERMS_PER_ITERATION = 2


def tile_function(
    name: str, plan: ProductPlan, vectors: int, is_tail: bool
) -> set[str]:
    """Return a function that sums a tile: each element adds its terms in order.

    A separate function keeps other values out of its registers.

    Args:
        name: of the function.
        plan: the properties of the product.
        vectors: the vectors of columns.
        is_tail: whether only some of the columns are valid.
    """
    w = MatrixWriter(Kernel(plan.tiling.lanes), plan.tiling.dtype)
    b, heights = w.b, plan.tiling.heights
    masks = (
        w.b.first_of_vectors(b.parameter("columns"), vectors)
        if is_tail
        else [None] * vectors
    )
    done_label, cases = b.fresh("done"), [b.fresh("rows") for _ in heights]
    targets = " ".join(
        f"i64 {n}, label %{case}" for n, case in zip(heights, cases, strict=True)
    )
    b.emit(f"switch i64 %rows, label %{done_label} [ {targets} ]")
    for rows, case in zip(heights, cases, strict=True):
        b.label(case)
        _tile(w, plan, rows, masks)
        b.emit(f"br label %{done_label}")
    b.label(done_label)
    return b.internal_function(name, _PARAMETERS)


# The addresses of the tile's rows, columns and sums, the number of rows and terms, byte
# strides, the number of valid columns, and whether (0 or 1) there are earlier sums.
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


def _tile(w: MatrixWriter, plan: ProductPlan, rows: int, masks: Sequence[Mask]) -> None:
    """Sum a tile of some rows and store it."""
    starts = [
        w.b.pointer_parameter("sums") + i * w.b.parameter("sums_row")
        for i in range(rows)
    ]
    destinations = w.vectors_of(starts, masks)
    for address, _ in destinations:
        w.b.prefetch(address, write=True)
    sums = _Sums(w, plan, rows, masks).total()
    if plan.is_chained:
        sums = _add_earlier(w, sums, destinations)
    for value, (address, mask) in zip(sums, destinations, strict=True):
        w.store_vector(value, address, mask)


def _add_earlier(
    w: MatrixWriter, sums: Sequence[Value], destinations: Sequence[tuple[Pointer, Mask]]
) -> list[Value]:
    """Add the earlier sums, if there are any."""
    with w.b.accumulate(0, w.b.parameter("earlier"), 1, sums) as iteration:
        pairs = zip(iteration.values, destinations, strict=True)
        iteration.next([w.add(x, w.load_vector(*address)) for x, address in pairs])
    return iteration.values


class _Rows:
    """The addresses of the terms of a tile's rows.

    Packed terms have constant strides. Otherwise a few pointers serve many rows,
    because x86 addressing adds 1, 2 or 4 times a stride at no cost.
    """

    def __init__(self, w: MatrixWriter, plan: ProductPlan, rows: int) -> None:
        self.rows, is_packed = rows, plan.has_packed_rows
        self.stride: Number = w.itemsize if is_packed else w.b.parameter("a_row")
        self.term: Number = (
            w.itemsize if plan.has_contiguous_terms else w.b.parameter("a_term")
        )
        if is_packed:
            self.term = plan.tiling.padded_rows * w.itemsize
        self.every = rows if is_packed else LINES_PER_POINTER
        firsts = range(0, rows, self.every)
        self.pointers = [w.b.pointer_parameter("a") + i * self.stride for i in firsts]
        self.triple_stride = 3 * self.stride

    def addresses(self, offset: Number) -> Iterator[Pointer]:
        """Return the addresses of a term of each row."""
        pointers = [first + offset for first in self.pointers]
        strides = self.stride, self.triple_stride
        return line_addresses(pointers, self.rows, *strides, self.every)


class _Sums:
    """Emits the loop over all terms of a tile."""

    def __init__(
        self, w: MatrixWriter, plan: ProductPlan, rows: int, masks: Sequence[Mask]
    ) -> None:
        self.w = w
        self.masks = masks
        self.rows = rows
        # Whether to prefetch the next unpacked tile of the left operand.
        self.prefetches_next = bool(plan.pack_a)
        # A single row has too little arithmetic for prefetches to pay.
        self.prefetches = plan.tiling.rows > 1
        self.lines = _Rows(w, plan, rows)
        # The dtype and the bytes of a vector of the right operand.
        is_stored = plan.b_dtype and not (plan.has_panels or plan.pack_b)
        self.b_dtype: str = plan.b_dtype if is_stored else w.dtype
        self.b_bytes: int = w.b.lanes * dtypes.itemsize(self.b_dtype)
        is_large = 2 * rows > plan.tiling.rows > FLAT_ROWS
        has_constant_stride = plan.has_packed_rows or plan.has_contiguous_terms
        is_unrolled = is_large and has_constant_stride
        self.terms: int = _TERMS_PER_ITERATION if is_unrolled else 1

    def total(self) -> list[Value]:
        """Return the sums of the products of all terms."""
        b, zero = self.w.b, Value("0", "int64")
        values = [zero, zero, *[self.w.zero] * (self.rows * len(self.masks))]
        depth = b.parameter("depth")
        full = b.whole_vectors(0, depth, self.terms)
        values = self._loop(0, full, self.terms, values)
        if self.terms > 1:
            values = self._loop(full, depth, 1, values)
        return values[2:]

    def _loop(
        self, first: Number, end: Number, terms: int, values: list[Value]
    ) -> list[Value]:
        """Emit a loop over terms. The offsets of both operands are loop variables."""
        b, term, b_term = self.w.b, self.lines.term, self.w.b.parameter("b_term")
        with b.accumulate(first, end, terms, values) as iteration:
            a_offset, b_offset = iteration.index_of(0), iteration.index_of(1)
            sums = iteration.values[2:]
            if self.prefetches_next:
                following = iteration.index * b.parameter("next_term")
                b.prefetch(b.pointer_parameter("next") + following, near=2)
            for k in range(terms):
                a_place, b_place = a_offset + k * term, b_offset + k * b_term
                sums = self._term(a_place, b_place, sums)
            next_offsets = [a_offset + terms * term, b_offset + terms * b_term]
            iteration.next([*next_offsets, *sums])
        return iteration.values

    def _term(
        self, a_offset: Number, b_offset: Number, sums: list[Value]
    ) -> list[Value]:
        """Add one term of every row and column."""
        w, b = self.w, self.w.b
        columns = b.pointer_parameter("b") + b_offset
        if self.prefetches:
            prefetch_address = columns + b.parameter("b_term") * _PREFETCH_TERMS
            for j in range(0, len(self.masks) * self.b_bytes, CACHE_LINE):
                b.prefetch(prefetch_address + j)
        ys = [
            w.load_converted(columns + j * self.b_bytes, self.b_dtype, mask)
            for j, mask in enumerate(self.masks)
        ]
        results = []
        for i, address in enumerate(self.lines.addresses(a_offset)):
            x = b.splat(b.scalar(address, w.dtype))
            for j, y in enumerate(ys):
                results.append(w.multiply_add(sums[i * len(ys) + j], x, y))
        return results
