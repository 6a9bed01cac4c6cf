"""The description of a product: extents and strides, with the fewest axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from toolkit import dtypes
from toolkit.backends.numpy.jit.kernels.gemm.problem import (
    factor_indices,
    is_small_packing,
    packing_of,
)
from toolkit.backends.numpy.jit.kernels.gemm.tiling import max_rows
from toolkit.backends.numpy.jit.kernels.matmul.pack import pad_extent
from toolkit.backends.numpy.jit.kernels.matmul.unpack import PANELS, Unpacked
from toolkit.backends.numpy.jit.processor import current, lanes_of
from toolkit.definitions.records import record
from toolkit.ir import Graph
from toolkit.ir.extents import are_always, is_always, largest, value_of
from toolkit.plans.operands import Operand
from toolkit.plans.rules import rules

# Dtypes of results. Narrower integers have separate kernels, or use NumPy.
_DTYPES = ("float32", "float64", "int32", "int64", "uint32", "uint64")
# Fewer columns than this would leave most lanes of a vector of columns idle.
_DOT_COLUMNS = 4
# From this number of rows on, a product hides the packing of its right operand.
_MIN_HIDING_ROWS = 32
# Bytes of a block of the right operand that stays in the L2 cache with the other data,
# and the most terms of a step.
RESIDENT_BYTES, _MAX_STEP_TERMS = 1 << 20, 384
# The limits if tiles of the left operand are packed: bytes of a tile and a panel that
# stay in the L1 cache, which is larger on processors with more registers, and the most
# terms of a step.
_L1_BYTES, _LARGE_L1_BYTES, _MAX_PACKED_STEP_TERMS = 24 << 10, 36 << 10, 256
# The most terms of a step if panels are unpacked: they are read from the L1 cache.
_MAX_UNPACKED_STEP_TERMS = 128


@record
class Axis:
    """An axis of a batch: its extent, and the byte strides of the operands."""

    extent: int
    a: int
    b: int


@record
class Problem:
    """The products of a batch of matrices with another one. The result is contiguous.

    Attributes:
        dtype: of the result.
        batch: axes, from the outermost on.
        rows, depth, columns: extents of a product.
        a_row, a_term: byte strides of the left operand.
        b_term, b_line: byte strides of the right operand. b_line is the stride of
            columns.
        a, b: the inputs that are the operands.
        a_dtype, b_dtype: the dtypes of the unpacked operands: as the result, or
            narrower.
        is_transposed: whether this is the transposed product.
        is_batch_invariant: whether the order of the terms depends only on their number.
        is_frozen: whether the right operand is the same in every run.
        unpack_source: the source from which panels of the right operand are unpacked,
        or None.
        blocks: the rows of scales of that source.
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
    is_transposed: bool = False
    is_batch_invariant: bool = False
    is_frozen: bool = False
    unpack_source: Unpacked | None = None
    blocks: int = 0

    @property
    def itemsize(self) -> int:
        """Return the bytes of an element."""
        return dtypes.itemsize(self.dtype)

    @property
    def items(self) -> tuple[int, int]:
        """Return the bytes of an element of each operand."""
        return dtypes.itemsize(self.a_dtype), dtypes.itemsize(self.b_dtype)

    @property
    def is_mixed(self) -> bool:
        """Return whether an operand has a different dtype than the result."""
        return {self.a_dtype, self.b_dtype} != {self.dtype}

    @property
    def packings(self) -> tuple[str, str]:
        """Return the contiguous axis of each operand."""
        a_itemsize, b_itemsize = self.items
        return (
            packing_of(self.a_row, self.a_term, a_itemsize),
            packing_of(self.b_line, self.b_term, b_itemsize),
        )

    @property
    def lanes(self) -> int:
        """Return the number of elements of a vector register."""
        return lanes_of(self.dtype)

    @property
    def products(self) -> int:
        """Return the number of products."""
        return prod(axis.extent for axis in self.batch)

    @property
    def is_shared(self) -> bool:
        """Return whether all products of a batch have the same right operand."""
        return bool(self.batch) and not any(axis.b for axis in self.batch)

    @property
    def size(self) -> int:
        """Return the number of elements of one product."""
        return self.rows * self.columns

    @property
    def flops(self) -> int:
        """Return the FLOPs of all products."""
        return 2 * self.products * self.size * self.depth

    @property
    def nbytes(self) -> int:
        """Return the memory traffic of all products, each matrix once."""
        a = self.rows * self.depth * prod(x.extent for x in self.batch if x.a)
        b = self.columns * self.depth * prod(x.extent for x in self.batch if x.b)
        a_itemsize, b_itemsize = self.items
        return (
            a_itemsize * a + b_itemsize * b + self.itemsize * self.products * self.size
        )

    @property
    def invariant_step(self) -> int:
        """Return the terms of a step, as a function of the number of terms only."""
        widest = PANELS * 2 * self.lanes * self.itemsize
        is_long = (
            value_of(self.depth) * widest > RESIDENT_BYTES
            or self.unpack_source is not None
        )
        return self.step(self.depth) if is_long else largest(1, self.depth)

    @property
    def packed_step(self) -> int:
        """Return the most terms of a step if tiles of the left operand are packed."""
        cache_bytes = _LARGE_L1_BYTES if current().registers >= 32 else _L1_BYTES
        lines = pad_extent(max_rows(), self.lanes) + 2 * self.lanes
        return min(_MAX_PACKED_STEP_TERMS, cache_bytes // (lines * self.itemsize))

    def step(self, depth: int, limit: int = _MAX_STEP_TERMS) -> int:
        """Return the terms of a step for `depth` terms in steps of at most `limit`."""
        limit = min(limit, _MAX_UNPACKED_STEP_TERMS) if self.unpack_source else limit
        return pad_extent(-(-depth // largest(1, -(-depth // limit))), self.lanes)

    @property
    def is_across(self) -> bool:
        """Return whether the columns of this product are the rows of the result."""
        return self.is_transposed and self.rows > 1 and self.columns > 1

    @property
    def is_row(self) -> bool:
        """Return whether this is a single row and the right operand exceeds the cache.

        The row must also be longer than the sums that fit registers.
        """
        is_single = self.rows == 1 and not self.batch
        is_long = value_of(self.columns) > current().registers // 2 * self.lanes
        is_far = value_of(self.nbytes) > current().cache_bytes // 2
        return is_single and is_long and is_far and self.b_line == self.items[1]

    @property
    def is_worth_packing(self) -> bool:
        """Return whether a packed copy of the right operand is worth its memory.

        A single row reads a large operand in memory order, at the speed of memory. Many
        rows hide the packing: it took 3 to 8 % of the time of 32 to 128 rows and
        matrices of 9 to 16 MB, and half of the time of 4 rows.
        """
        if is_small_packing(self.columns * self.depth * self.items[1]):
            return True
        return not self.is_row and value_of(self.rows) < _MIN_HIDING_ROWS

    @property
    def is_dot(self) -> bool:
        """Return whether sums along the rows of the left operand are the fastest."""
        has_few_columns = self.columns == 1 or (
            value_of(self.columns) <= min(_DOT_COLUMNS, self.lanes)
            and value_of(self.depth) >= 2 * self.lanes
        )
        if self.is_batch_invariant or self.is_across:
            return False
        return has_few_columns and self.a_term == self.items[0]


def problem_of(body: Graph, inputs: Sequence[Operand]) -> Problem | None:
    """Return the problem of a body's first node, or None if it is not supported."""
    factors, dtype = factor_indices(body, inputs), body.nodes[0].outputs[0].spec.dtype
    if factors is None or dtype not in _DTYPES:
        return None
    a, b = factors
    problem = _simplify(_problem(inputs[a], inputs[b], dtype, a, b))
    return replace(problem, is_frozen=inputs[problem.b].is_frozen)


def _problem(x: Operand, y: Operand, dtype: str, a: int, b: int) -> Problem:
    (rows, depth), columns = x.spec.shape[-2:], y.spec.shape[-1]
    ndim = max(x.spec.ndim, y.spec.ndim) - 2
    extents = [1] * ndim
    steps: list[list[int]] = []
    for operand in (x, y):
        missing_axes = ndim - (operand.spec.ndim - 2)
        shape = (*[1] * missing_axes, *operand.spec.shape[:-2])
        strides = (*[0] * missing_axes, *operand.strides[:-2])
        extents = [m if n == 1 else n for m, n in zip(extents, shape, strict=True)]
        pairs = zip(shape, strides, strict=True)
        steps.append([0 if n == 1 else stride for n, stride in pairs])
    axes = [Axis(*numbers) for numbers in zip(extents, *steps, strict=True)]
    # The stride of a single row, term or column is arbitrary: contiguous is best.
    a_row, a_term = _contiguous_strides(x, (rows, depth))
    b_term, b_line = _contiguous_strides(y, (depth, columns))
    a_size = dtypes.itemsize(x.spec.dtype)
    return Problem(
        dtype,
        _merge_axes(axes),
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
        # Rows of a transposed matrix are not a batch: the product sums over the batch.
        is_batch_invariant=rules.rows_independent
        and not (ndim == 0 and a_row == a_size < a_term),
    )


def _contiguous_strides(factor: Operand, shape: tuple[int, int]) -> tuple[int, int]:
    size, (outer, inner) = dtypes.itemsize(factor.spec.dtype), factor.strides[-2:]
    if shape[1] == 1:
        inner = size
    if shape[0] == 1:
        outer = size * shape[1]
    return outer, inner


def _merge_axes(axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """Return the fewest axes that visit the same matrices."""
    merged: list[Axis] = []
    for axis in axes:
        if axis.extent == 1:
            continue
        n = axis.extent
        steps = axis.a * n, axis.b * n
        if merged and are_always((merged[-1].a, merged[-1].b), steps):
            axis = Axis(merged.pop().extent * n, axis.a, axis.b)
        merged.append(axis)
    return tuple(merged)


def _simplify(p: Problem) -> Problem:
    """Return an equal problem with fewer, larger products, or a faster one."""
    batch, rows, a_row = list(p.batch), p.rows, p.a_row
    while (
        batch
        and batch[-1].b == 0
        and (rows == 1 or is_always(batch[-1].a, rows * a_row))
    ):
        axis = batch.pop()
        a_row = axis.a if rows == 1 else a_row
        rows *= axis.extent
    simplified = replace(p, batch=tuple(batch), rows=rows, a_row=a_row)
    transposed = _transpose(simplified)
    if simplified.columns == 1 and not simplified.is_dot:
        return transposed
    if (
        simplified.rows == 1
        and simplified.b_term == simplified.items[1]
        and not simplified.is_batch_invariant
    ):
        return transposed
    return (
        transposed if _is_narrow(simplified) and not simplified.is_dot else simplified
    )


def _is_narrow(p: Problem) -> bool:
    """Return whether rows of the left operand fill vectors better than columns."""
    if (
        p.is_batch_invariant and p.invariant_step < p.depth
    ):  # a transposed product has a single step
        return False
    columns, rows = value_of(p.columns), value_of(p.rows)
    has_few_columns = columns <= max_rows() and columns * 4 <= p.lanes * 3
    return has_few_columns and p.a_row == p.items[0] and rows >= 2 * p.lanes


def _transpose(p: Problem) -> Problem:
    """Return the transposed product."""
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
        is_transposed=True,
        is_batch_invariant=p.is_batch_invariant,
    )
