"""A fused body as data: what is read, computed and written, and in which loops.

A plan tells a generated function apart from others by its `repr`: it knows dtypes and
classes of strides, but no extents, so that one function serves every size.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from toolkit import dtypes
from toolkit.backends.loops.iteration_space import Space
from toolkit.backends.loops.nest import Loops
from toolkit.definitions.records import record

# Steps of their own: a checked index, an element of a row, a row but for an element.
PLACE, PICK, PUT = "place", "pick", "put"
# Roles: an element per index, per row, per column, or one.
FULL, ROW, COLUMN, ONE = "full", "row", "column", "one"
# The scalar operation that merges what a reduction has of two parts.
MERGES = {
    "sum": "add",
    "prod": "multiply",
    "max": "maximum",
    "min": "minimum",
    "any": "logical_or",
    "all": "logical_and",
}
# The scalar operation that combines an element with an update, by a scatter's mode.
UPDATES = {"add": "add", "mul": "multiply", "max": "maximum", "min": "minimum"}
# ("read", k), ("step", k), or ("number", its bytes in hexadecimal, dtype).
Source = tuple[Any, ...]


def identity(op: str, dtype: str) -> float | int | bool:
    """The element that changes nothing when a reduction merges it."""
    if op in ("sum", "any"):
        return 0
    if op in ("prod", "all"):
        return 1
    return dtypes.lowest(dtype) if op.endswith("max") else dtypes.highest(dtype)


@record
class Read:
    """One read of an array, with its strides' classes.

    Attributes:
        operand: which input of the body.
        dtype: of its elements.
        inner: the class of the stride in the innermost loop.
        by_row, by_column: whether it varies from row to row, and within a row.
        turned: whether rows jump from element to element, and those of the loop over
            rows that the plan names lie next to one another.
    """

    operand: int
    dtype: str
    inner: int | None
    by_row: bool
    by_column: bool
    turned: bool = False


@record
class Step:
    """One operation of the body; `reduces`: the role of what it reduces, or ""."""

    op: str
    arguments: tuple[Source, ...]
    attrs: tuple[tuple[str, Any], ...]
    dtype: str
    role: str
    reduces: str = ""


@record
class Write:
    """An array that is written."""

    source: Source
    dtype: str
    role: str


@record
class LoopNest:
    """What a generated function does.

    Attributes:
        row_loops, column_loops: how many loops there are over rows and in a row; no row
            loop and not `one_row`: rows are parts of the only loop.
        held: how many vectors a row fills, all kept in registers; 0: rows may be long.
        ragged: whether the last row is shorter.
        formulas: what the scalar rule of each step says.
        even: whether rows are summed in an order that follows from their length alone.
        turn: the loop over rows along which turned reads are contiguous; -1 if there
            are none.
    """

    reads: tuple[Read, ...]
    steps: tuple[Step, ...]
    writes: tuple[Write, ...]
    row_loops: int
    column_loops: int
    one_row: bool = False
    held: int = 0
    ragged: bool = False
    formulas: tuple[str, ...] = ()
    even: bool = False
    turn: int = -1

    @cached_property
    def picks(self) -> bool:
        """Whether it takes or changes elements of rows by their indices."""
        return any(step.op == PLACE for step in self.steps)

    @cached_property
    def adds_rows(self) -> bool:
        """Whether results of several tasks are combined."""
        return any(write.role in (COLUMN, ONE) for write in self.writes)

    @cached_property
    def is_flat(self) -> bool:
        """Whether rows are parts of one loop over elements."""
        return self.row_loops == 0 and not self.one_row


@record
class SizedNest:
    """A plan with what it leaves open: the extents, and every array's strides.

    The strides are those of the reads, then of the writes.
    """

    plan: LoopNest
    space: Space
    loops: Loops
    strides: Sequence[tuple[int, ...]]
    leading: int
