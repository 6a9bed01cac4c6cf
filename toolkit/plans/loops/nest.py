"""Loop nests: collapsed loops over arrays, and the strides of arrays along them."""

from __future__ import annotations

from collections.abc import Sequence

from toolkit.definitions.records import record
from toolkit.ir.extents import are_always
from toolkit.plans.loops.iteration_space import Shape, suffix_products
from toolkit.plans.operands import Operand

# Strides, in elements, for which code loads whole vectors and then selects lanes.
NEAR_STRIDES = (-1, 0, 1, 2, 3, 4)


@record
class Loops:
    """Extents of loops, outermost first; the first `rows` loops are over rows."""

    extents: tuple[int, ...]
    rows: int


def broadcast_strides(operand: Operand, shape: Shape) -> list[int]:
    """Return an operand's byte strides along the axes of a broadcast shape."""
    new_axes = len(shape) - operand.spec.ndim
    rows = zip(operand.spec.shape, operand.strides, strict=True)
    return [0] * new_axes + [0 if n == 1 else stride for n, stride in rows]


def split_strides(
    strides: Sequence[int], shape: Shape, steps: Sequence[int]
) -> list[int]:
    """Convert strides along the axes of a shape to strides along loops."""
    products = suffix_products(shape)
    result = []
    for step in steps[1:]:
        # The axis of this loop: the last axis that covers more than one step.
        axis = max((a for a, n in enumerate(products[:-1]) if n > step), default=None)
        stride = 0 if axis is None else strides[axis] * (step // products[axis + 1])
        result.append(stride)
    return result


def collapse_loops(
    extents: Sequence[int], strides: Sequence[Sequence[int]], rows: int
) -> tuple[Loops, list[tuple[int, ...]]]:
    """Collapse loops to the smallest nest that visits the same elements.

    Args:
        extents: extents of the loops, outermost first.
        strides: for each array, the stride along each loop.
        rows: the number of loops over rows. They are not joined with column loops.
    """
    collapsed: list[int] = []
    columns: list[list[int]] = []
    collapsed_rows = 0
    for i, n in enumerate(extents):
        if n == 1:
            continue
        step = [row[i] for row in strides]
        joins = collapsed and (i < rows or collapsed_rows < len(collapsed))
        if joins and are_always(columns[-1], [stride * n for stride in step]):
            collapsed[-1] *= n
            columns[-1] = step
        else:
            collapsed.append(n)
            columns.append(step)
            collapsed_rows += i < rows
    array_strides = [tuple(step[k] for step in columns) for k in range(len(strides))]
    return Loops(tuple(collapsed), collapsed_rows), array_strides


def stride_class(stride: int, itemsize: int) -> int | None:
    """Return the stride in elements if it is small; otherwise None."""
    step, remainder = divmod(stride, itemsize)
    return step if step in NEAR_STRIDES and not remainder else None


def contiguous_row_loops(
    loops: Loops, strides: Sequence[int], itemsize: int, vector: int
) -> list[int]:
    """Return the row loops along which the elements of an array are contiguous.

    Return no loop if the elements of a row are near too, or if the loop is shorter than
    a vector of this number of bytes.
    """
    if stride_class(strides[-1], itemsize) is not None:
        return []
    return [
        loop
        for loop, extent in enumerate(loops.extents[: loops.rows])
        if strides[loop] == itemsize and extent * itemsize >= vector
    ]
