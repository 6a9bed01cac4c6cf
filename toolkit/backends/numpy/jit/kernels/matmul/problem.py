"""What is to be multiplied: extents and strides, with as few axes as can be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from toolkit import dtypes
from toolkit.backends.base import Operand
from toolkit.backends.numpy.jit.kernels.matmul.pack import padded
from toolkit.backends.numpy.jit.kernels.matmul.tile import most_rows
from toolkit.backends.numpy.jit.kernels.matmul.unpack import PANELS, Unpacked
from toolkit.backends.numpy.jit.processor import current
from toolkit.backends.target import rules
from toolkit.definitions.records import record
from toolkit.ir import Graph

# Of results. Integers of fewer bits are multiplied by kernels of their own, or NumPy.
_DTYPES = ("float32", "float64", "int32", "int64", "uint32", "uint64")
# Fewer columns than this would leave most lanes of a vector of columns idle.
_DOT_COLUMNS = 4
# Bytes of a block of the second factor that stays in the second-level cache beside
# everything else, and the most terms that it multiplies in a step.
RESIDENT, _STEP = 1 << 20, 384
# The same where tiles of the first factor are packed: bytes of a tile and a panel that
# stay in the first-level cache, which is larger where there are more registers.
_NEAR, _LARGE_NEAR, _PACKED_STEP = 24 << 10, 36 << 10, 256
# The same where they are unpacked: what that writes is read from the nearest cache.
_UNPACKED_STEP = 128


@record
class Axis:
    """An axis of a batch: its extent, and the bytes between a factor's matrices."""

    extent: int
    a: int
    b: int


@record
class Problem:
    """Products of a batch of matrices with another; the result is contiguous.

    Attributes:
        dtype: of the result.
        batch: axes, from the outermost on.
        rows, depth, columns: extents of a product.
        a_row, a_term: strides of the first factor, in bytes.
        b_term, b_line: strides of the second one: b_line is between columns.
        a, b: which inputs the factors are.
        a_dtype, b_dtype: of the factors, unpacked: that of the result, or narrower.
        turned: whether this is the transposed product.
        even: whether the order of the terms follows from their number alone.
        is_frozen: whether the second factor is the same in every run.
        unpacks: what panels of the second factor are unpacked from, if they are.
        blocks: rows of scales of that.
    """

    dtype: str
    batch: tuple[Axis, ...]
    rows: int
    depth: int
    columns: int
    a_row: int
    a_term: int
    b_term: int
    b_line: int
    a: int
    b: int
    a_dtype: str
    b_dtype: str
    turned: bool = False
    even: bool = False
    is_frozen: bool = False
    unpacks: Unpacked | None = None
    blocks: int = 0

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return dtypes.itemsize(self.dtype)

    @property
    def items(self) -> tuple[int, int]:
        """Bytes of an element of each factor."""
        return dtypes.itemsize(self.a_dtype), dtypes.itemsize(self.b_dtype)

    @property
    def is_mixed(self) -> bool:
        """Whether a factor has another dtype than the result."""
        return {self.a_dtype, self.b_dtype} != {self.dtype}

    @property
    def lanes(self) -> int:
        """Elements of a vector register."""
        return current().lanes * 4 // self.itemsize

    @property
    def products(self) -> int:
        """How many products there are."""
        return prod(axis.extent for axis in self.batch)

    @property
    def is_shared(self) -> bool:
        """Whether all products of a batch have the same second factor."""
        return bool(self.batch) and not any(axis.b for axis in self.batch)

    @property
    def size(self) -> int:
        """Elements of one product."""
        return self.rows * self.columns

    @property
    def flops(self) -> int:
        """Arithmetic of all products."""
        return 2 * self.products * self.size * self.depth

    @property
    def nbytes(self) -> int:
        """Memory traffic of all products, each matrix once."""
        a = self.rows * self.depth * prod(x.extent for x in self.batch if x.a)
        b = self.columns * self.depth * prod(x.extent for x in self.batch if x.b)
        of_a, of_b = self.items
        return of_a * a + of_b * b + self.itemsize * self.products * self.size

    @property
    def even_step(self) -> int:
        """The terms that are summed at a time if nothing but their number matters."""
        widest = PANELS * 2 * self.lanes * self.itemsize
        is_long = self.depth * widest > RESIDENT or self.unpacks is not None
        return self.step(self.depth) if is_long else max(1, self.depth)

    @property
    def packed_step(self) -> int:
        """The most terms of a step where tiles of the first factor are packed."""
        near = _LARGE_NEAR if current().registers >= 32 else _NEAR
        lines = padded(most_rows(), self.lanes) + 2 * self.lanes
        return min(_PACKED_STEP, near // (lines * self.itemsize))

    def step(self, depth: int, most: int = _STEP) -> int:
        """The terms of a step, where so many are summed in several."""
        most = min(most, _UNPACKED_STEP) if self.unpacks else most
        return padded(-(-depth // max(1, -(-depth // most))), self.lanes)

    @property
    def is_across(self) -> bool:
        """Whether the columns of this product are the rows of the result."""
        return self.turned and self.rows > 1 and self.columns > 1

    @property
    def is_row(self) -> bool:
        """Whether it is a single row whose second factor is read from afar.

        A row of that is also longer than registers have sums.
        """
        is_single = self.rows == 1 and not self.batch
        is_long = self.columns > current().registers // 2 * self.lanes
        is_far = self.nbytes > current().cache_bytes // 2
        return is_single and is_long and is_far and self.b_line == self.itemsize

    @property
    def is_dot(self) -> bool:
        """Whether the elements are best summed along the rows of the first factor."""
        few = self.columns == 1 or (
            self.columns <= min(_DOT_COLUMNS, self.lanes)
            and self.depth >= 2 * self.lanes
        )
        if self.even or self.is_across:
            return False
        return few and self.a_term == self.itemsize


def problem_of(body: Graph, inputs: Sequence[Operand]) -> Problem | None:
    """The problem of a body's first node; None if no code can be generated for it."""
    anchor, places = body.nodes[0], {v: i for i, v in enumerate(body.inputs)}
    read_again = {x for node in body.nodes[1:] for x in node.inputs}
    for key, i in places.items():
        if key in read_again and not inputs[i].is_contiguous:
            return None
    if any(x not in places for x in anchor.inputs):
        return None
    a, b = (places[x] for x in anchor.inputs)
    dtype = anchor.outputs[0].spec.dtype
    if dtype not in _DTYPES:
        return None
    found = _simplified(_problem(inputs[a], inputs[b], dtype, a, b))
    return replace(found, is_frozen=inputs[found.b].is_frozen)


def _problem(x: Operand, y: Operand, dtype: str, a: int, b: int) -> Problem:
    (rows, depth), columns = x.spec.shape[-2:], y.spec.shape[-1]
    ndim = max(x.spec.ndim, y.spec.ndim) - 2
    extents = [1] * ndim
    steps: list[list[int]] = []
    for operand in (x, y):
        missing = ndim - (operand.spec.ndim - 2)
        shape = (*[1] * missing, *operand.spec.shape[:-2])
        strides = (*[0] * missing, *operand.strides[:-2])
        extents = [m if n == 1 else n for m, n in zip(extents, shape, strict=True)]
        pairs = zip(shape, strides, strict=True)
        steps.append([0 if n == 1 else stride for n, stride in pairs])
    axes = [Axis(*found) for found in zip(extents, *steps, strict=True)]
    # The stride of a single row, term or column is free: neighbours are best.
    a_row, a_term = _neighbours(x, (rows, depth))
    b_term, b_line = _neighbours(y, (depth, columns))
    a_size = dtypes.itemsize(x.spec.dtype)
    return Problem(
        dtype,
        _collapsed(axes),
        rows,
        depth,
        columns,
        a_row,
        a_term,
        b_term,
        b_line,
        a,
        b,
        x.spec.dtype,
        y.spec.dtype,
        # Rows of a transposed matrix are no batch: a batch is what is summed over.
        even=rules.rows_independent and not (ndim == 0 and a_row == a_size < a_term),
    )


def _neighbours(factor: Operand, shape: tuple[int, int]) -> tuple[int, int]:
    size, (outer, inner) = dtypes.itemsize(factor.spec.dtype), factor.strides[-2:]
    if shape[1] == 1:
        inner = size
    if shape[0] == 1:
        outer = size * shape[1]
    return outer, inner


def _collapsed(axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """The fewest axes that visit the same matrices."""
    found: list[Axis] = []
    for axis in axes:
        if axis.extent == 1:
            continue
        n = axis.extent
        if found and (found[-1].a, found[-1].b) == (axis.a * n, axis.b * n):
            axis = Axis(found.pop().extent * n, axis.a, axis.b)
        found.append(axis)
    return tuple(found)


def _simplified(p: Problem) -> Problem:
    """The same result as fewer, larger products, or as one that is quicker."""
    batch, rows, a_row = list(p.batch), p.rows, p.a_row
    while batch and batch[-1].b == 0 and (rows == 1 or batch[-1].a == rows * a_row):
        axis = batch.pop()
        a_row = axis.a if rows == 1 else a_row
        rows *= axis.extent
    found = replace(p, batch=tuple(batch), rows=rows, a_row=a_row)
    turned = _turned(found)
    if found.columns == 1 and not found.is_dot:
        return turned
    if found.rows == 1 and found.b_term == found.itemsize and not found.even:
        return turned
    return turned if _is_narrow(found) and not found.is_dot else found


def _is_narrow(p: Problem) -> bool:
    """Whether the rows of the first factor fill vectors better than the columns do."""
    if p.even and p.even_step < p.depth:  # in a transposed product all are one step
        return False
    few = p.columns <= most_rows() and p.columns * 4 <= p.lanes * 3
    return few and p.a_row == p.itemsize and p.rows >= 2 * p.lanes


def _turned(p: Problem) -> Problem:
    """The transposed product."""
    return Problem(
        p.dtype,
        tuple(Axis(x.extent, x.b, x.a) for x in p.batch),
        p.columns,
        p.depth,
        p.rows,
        p.b_line,
        p.b_term,
        p.a_term,
        p.a_row,
        p.b,
        p.a,
        p.b_dtype,
        p.a_dtype,
        turned=True,
        even=p.even,
    )
