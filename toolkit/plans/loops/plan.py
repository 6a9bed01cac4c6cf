"""The plan of a fused body: its reads, steps, writes and loops, as data.

The `repr` of a plan identifies a generated function. It contains dtypes and stride
classes but no extents, so one function serves every size.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from toolkit import dtypes
from toolkit.definitions.records import record
from toolkit.plans.loops.iteration_space import IterationSpace
from toolkit.plans.loops.nest import Loops

# Steps without a primitive: check an index, load an element of a row, update one.
CHECK_INDEX, GATHER_ELEMENT, UPDATE_ELEMENT = "place", "pick", "put"
# Roles: one element for each index, row or column, or one element.
FULL, ROW, COLUMN, ONE = "full", "row", "column", "one"
# The scalar operation that merges two partial results of a reduction.
MERGES = {
    "sum": "add",
    "prod": "multiply",
    "max": "maximum",
    "min": "minimum",
    "any": "logical_or",
    "all": "logical_and",
}
# The scalar operation that combines an element with an update, by scatter mode.
UPDATES = {"add": "add", "mul": "multiply", "max": "maximum", "min": "minimum"}
# ("read", k), ("step", k), ("number", its bytes in hexadecimal, dtype), or
# ("parameter", k, dtype): a number that the function receives.
Source = tuple[Any, ...]


def identity(op: str, dtype: str) -> float | int | bool:
    """Return the identity element of a reduction."""
    if op in ("sum", "any"):
        return 0
    if op in ("prod", "all"):
        return 1
    return dtypes.lowest(dtype) if op.endswith("max") else dtypes.highest(dtype)


@record
class Read:
    """One read of an array, with its stride classes.

    Attributes:
        operand: the index of the body's input.
        dtype: the dtype of the elements.
        inner: the stride class in the innermost loop.
        by_row, by_column: whether the value varies between rows, and within a row.
        is_transposed: whether the rows are strided, and the array is contiguous along
            the row loop `transposed_loop`.
    """

    operand: int
    dtype: str
    inner: int | None
    by_row: bool
    by_column: bool
    is_transposed: bool = False


@record
class Step:
    """One operation of the body; `reduces`: the role of the reduced operand, or ""."""

    op: str
    arguments: tuple[Source, ...]
    attrs: tuple[tuple[str, Any], ...]
    dtype: str
    role: str
    reduces: str = ""


@record
class Write:
    """One output array."""

    source: Source
    dtype: str
    role: str


@record
class LoopNest:
    """The loop nest of a generated function.

    Attributes:
        row_loops, column_loops: the numbers of loops over rows and within a row.
            Without row loops and without `is_single_row`, rows are ranges of the only
            loop.
        register_vectors: the number of vectors of a row that is kept in registers; 0:
            rows can be long.
        lane_columns: the elements of a row, if each lane of a vector computes one row
            of a few contiguous elements; otherwise 0.
        is_ragged: whether the last row is shorter.
        rule_digests: the digest of each step's scalar rule.
        has_fixed_order: whether the summation order of a row depends only on its
            length.
        has_fixed_accumulators: whether the number of accumulators of a row does not
            depend on the operations before a reduction.
        transposed_loop: the row loop along which transposed reads are contiguous; -1 if
            no read is transposed.
    """

    reads: tuple[Read, ...]
    steps: tuple[Step, ...]
    writes: tuple[Write, ...]
    row_loops: int
    column_loops: int
    is_single_row: bool = False
    register_vectors: int = 0
    lane_columns: int = 0
    is_ragged: bool = False
    rule_digests: tuple[str, ...] = ()
    has_fixed_order: bool = False
    has_fixed_accumulators: bool = False
    transposed_loop: int = -1

    @cached_property
    def accesses_elements(self) -> bool:
        """Whether a step reads or updates elements of rows by index."""
        return any(step.op == CHECK_INDEX for step in self.steps)

    @cached_property
    def combines_tasks(self) -> bool:
        """Whether partial results of several tasks are combined."""
        return any(write.role in (COLUMN, ONE) for write in self.writes)

    @cached_property
    def is_flat(self) -> bool:
        """Whether rows are ranges of one loop over elements."""
        return self.row_loops == 0 and not self.is_single_row


@record
class SizedNest:
    """A plan with concrete sizes: the extents, and the strides of every array.

    The strides are in the order of the reads, then of the writes. `parameters` are the
    bits of the numbers that the function receives.
    """

    plan: LoopNest
    space: IterationSpace
    loops: Loops
    strides: Sequence[tuple[int, ...]]
    leading: int
    parameters: tuple[int, ...] = ()
