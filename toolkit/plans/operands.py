"""Operands of kernels as data: their memory layout and lifetime."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import NamedTuple

from toolkit import dtypes
from toolkit.definitions.records import record
from toolkit.ir import Spec
from toolkit.ir.extents import are_always

# The alignment of arenas and scratch memory in bytes.
ALIGNMENT = 64


def align_up(nbytes: int) -> int:
    """Return `nbytes`, rounded up to the alignment of arenas and scratch memory."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


@record
class Operand:
    """Array operand of a kernel: its shape, dtype, and strides in bytes.

    is_frozen: whether its elements are the same in every run, for a part of a library.
    is_replaced: whether the node computes its new value, usually in the same memory.
    """

    spec: Spec
    strides: tuple[int, ...]
    is_frozen: bool = False
    is_replaced: bool = False

    @property
    def is_contiguous(self) -> bool:
        """Return whether it is contiguous in row-major order."""
        return not self.spec.size or self.contiguous_from(0)

    def count_local_rows(self, base: Operand, offset: int) -> int:
        """Return the number of rows of this view that are inside rows of `base`.

        Each row is inside the same row of `base`. Rows have the maximum possible
        number of leading axes. The result is 0 if not even the first axis qualifies.

        Args:
            base: the base array of this view.
            offset: the first byte of the view in it.
        """
        shape, strides = self.spec.shape, self.strides
        rows, end = 0, offset + dtypes.itemsize(self.spec.dtype)
        if not self.spec.size or min(strides, default=0) < 0:
            return 0
        for axis in reversed(range(len(shape))):
            first = slice(axis + 1)
            same = are_always(shape[first], base.spec.shape[first])
            same = same and are_always(strides[first], base.strides[first])
            if not same or end > strides[axis]:
                rows = 0  # rows of more axes would have gaps too
            elif not rows:
                rows = math.prod(shape[first])
            end += (shape[axis] - 1) * strides[axis]
        return rows

    def contiguous_from(self, axis: int) -> bool:
        """Return whether the axes from `axis` on are contiguous."""
        step = dtypes.itemsize(self.spec.dtype)
        for n, stride in zip(
            reversed(self.spec.shape[axis:]), reversed(self.strides[axis:]), strict=True
        ):
            if n != 1 and stride != step:
                return False
            step *= n
        return True


def contiguous(spec: Spec) -> Operand:
    """Return a whole array in row-major order."""
    strides, step = [], dtypes.itemsize(spec.dtype)
    for n in reversed(spec.shape):
        strides.append(step)
        step *= n
    return Operand(spec, tuple(reversed(strides)))


@record
class LoopOperand:
    """Location of a loop body's array in iteration t: base + offset + t * stride.

    It is `delta` bytes further in every other iteration, starting with iteration
    `phase`.

    first, last: the locations in the first and the last iteration instead.
    """

    base: tuple[str, int]
    offset: int = 0
    stride: int = 0
    phase: int = 0
    delta: int = 0
    first: tuple[str, int] | None = None
    last: tuple[str, int] | None = None


class StepSpan(NamedTuple):
    """Schedule of a node: its first, its first writing, and its last step.

    Nodes that run interleaved share a step.
    """

    first: int
    written: int
    last: int


@record
class OperandMemory:
    """Memory of an operand.

    Attributes:
        owner: of the memory.
        nbytes: of the operand.
        is_row_local: whether the operand is the complete memory, in order, or each
            of its rows is inside the same row of the memory.
        rows: the number of rows for which that is true; None: any number.
    """

    owner: Hashable
    nbytes: int
    is_row_local: bool
    rows: int | None = None

    def keeps_rows(self, rows: int) -> bool:
        """Return whether each of `rows` rows is inside the same row of the memory."""
        return self.is_row_local and (self.rows is None or self.rows % rows == 0)
