"""Operands of kernels as data: how they lie in memory, and when they are used."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import NamedTuple

from toolkit import dtypes
from toolkit.definitions.records import record
from toolkit.ir import Spec


@record
class Operand:
    """An array as a kernel sees it: its shape, dtype, and strides in bytes.

    is_frozen: whether its elements are the same in every run, of a part of a library.
    is_replaced: whether the node makes its new value, as a rule in the same memory.
    """

    spec: Spec
    strides: tuple[int, ...]
    is_frozen: bool = False
    is_replaced: bool = False

    @property
    def is_contiguous(self) -> bool:
        """Whether its elements follow each other in row-major order."""
        return not self.spec.size or self.contiguous_from(0)

    def rows_kept_of(self, whole: Operand, offset: int) -> int:
        """How many rows of this view lie each in the same row of another array.

        Rows of as many leading axes as can be; 0 if not even those of the first do.

        Args:
            whole: the array that this one is a view of.
            offset: the first byte of the view in it.
        """
        shape, strides = self.spec.shape, self.strides
        rows, end = 0, offset + dtypes.itemsize(self.spec.dtype)
        if not self.spec.size or min(strides, default=0) < 0:
            return 0
        for axis in reversed(range(len(shape))):
            first = slice(axis + 1)
            same = shape[first] == whole.spec.shape[first]
            same = same and strides[first] == whole.strides[first]
            if not same or end > strides[axis]:
                rows = 0  # rows of more axes would not follow each other either
            elif not rows:
                rows = math.prod(shape[first])
            end += (shape[axis] - 1) * strides[axis]
        return rows

    def contiguous_from(self, axis: int) -> bool:
        """Whether the axes from this one on follow each other without gaps."""
        step = dtypes.itemsize(self.spec.dtype)
        for n, stride in zip(
            reversed(self.spec.shape[axis:]), reversed(self.strides[axis:]), strict=True
        ):
            if n != 1 and stride != step:
                return False
            step *= n
        return True


def contiguous(spec: Spec) -> Operand:
    """A whole array in row-major order."""
    strides, step = [], dtypes.itemsize(spec.dtype)
    for n in reversed(spec.shape):
        strides.append(step)
        step *= n
    return Operand(spec, tuple(reversed(strides)))


@record
class Move:
    """Where an array of a loop's body is in turn t: base + offset + t * stride, and
    `delta` bytes further in every other turn, beginning with turn `phase`.

    first, last: where it is in the first and the last turn instead.
    """

    base: tuple[str, int]
    offset: int = 0
    stride: int = 0
    phase: int = 0
    delta: int = 0
    first: tuple[str, int] | None = None
    last: tuple[str, int] | None = None


class Moment(NamedTuple):
    """When a node runs: its first step, that which writes its outputs first, the last.

    Nodes that run interleaved share a step.
    """

    first: int
    written: int
    last: int


@record
class Share:
    """The memory that an operand lies in.

    Attributes:
        owner: of the memory.
        nbytes: of the operand.
        whole: whether it is all of it, in order, or at least each row of it a part of
            the same row.
        rows: of how many rows that is so; None: of rows of any size.
    """

    owner: Hashable
    nbytes: int
    whole: bool
    rows: int | None = None

    def keeps(self, rows: int) -> bool:
        """Whether each of so many rows is a part of the same row of the memory."""
        return self.whole and (self.rows is None or self.rows % rows == 0)
