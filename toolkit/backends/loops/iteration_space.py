"""Iteration spaces: how the values of a fused body share one flat index.

Where nodes reduce rows, the index falls apart into rows and columns: a value is then
full (an element for each index) or has one element for each row. Sums over all rows are
left to the end: nothing in the same body reads them. A reshape changes no flat index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from math import prod
from typing import Any

from toolkit import dtypes
from toolkit.backends.target import rules
from toolkit.definitions.records import record
from toolkit.ir import Kind, Node, Value

Shape = tuple[int, ...]

# A reduction of everything whose result is read is the work of one thread.
LONGEST_ROW = 16384

_ANCHORS = (Kind.CONTRACT, Kind.POOL)
# Their epilogues may read a number for each row of the result.
ROW_ANCHORS = frozenset({"matmul_integer"})
REDUCTIONS = frozenset("sum prod max min any all argmax argmin".split())


def reduced_part(node: Node) -> str:
    """Which part of its input's axes a reduction reduces, but for those of extent 1.

    If rows are to be independent, those that are kept count: one may be the batch.

    Returns:
        "none", "trailing", "leading", "all", or "other".
    """
    axis = node.attrs["axis"]
    axes = axis if isinstance(axis, tuple) else (axis,)
    return _part(node.inputs[0].spec.shape, axes, rules.rows_independent)


@lru_cache(maxsize=1024)
def _part(shape: Shape, axes: tuple[int, ...], keeps: bool) -> str:
    marks = [
        a in axes for a, n in enumerate(shape) if n != 1 or (keeps and a not in axes)
    ]
    if not any(marks):
        return "none"
    if all(marks):
        return "all"
    if marks == sorted(marks):
        return "trailing"
    return "leading" if marks == sorted(marks, reverse=True) else "other"


def number_of(value: Any) -> Any:
    """The number that all elements of a constant are, None if they differ.

    None too if they follow from extents, which no kernel is to know.
    """
    array = value.constant
    if array is None or array.size == 0 or value.is_open:
        return None
    first, last = array[(0,) * array.ndim], array[(-1,) * array.ndim]
    if first.tobytes() != last.tobytes():
        return None
    same = array.size == 1 or not any(array.strides) or (array == first).all()
    return first if same else None


def is_reduction(node: Node) -> bool:
    """Whether a node reduces more than axes of extent 1, all in front or all behind."""
    return node.op.name in REDUCTIONS and reduced_part(node) not in ("none", "other")


def picks_in_rows(node: Node) -> bool:
    """Whether a node takes or changes one element of each row, the last axis."""
    if node.op.name not in ("take_along_axis", "put_along_axis"):
        return False
    x, indices = node.inputs[0].spec, node.inputs[1].spec
    is_last = node.attrs["axis"] == x.ndim - 1
    return bool(is_last and indices.shape[-1] == 1 and x.shape[-1] > 1)


def index_problem(name: str, axis: int) -> str:
    """What to say of an index that is out of range."""
    return (
        f"{name}: index {{index}} is out of range for axis {axis} "
        "with {limit} elements"
    )


def is_relabelling(node: Node) -> bool:
    """Whether the output has the elements of the input, in the same order."""
    return node.op.name == "reshape" or (
        node.op.name in REDUCTIONS
        and not node.op.name.startswith("arg")
        and reduced_part(node) == "none"
    )


def is_elementwise(node: Node, x: Any) -> bool:
    """Whether each element of the outputs depends on no element of x but the same.

    True of elementwise nodes, and of what follows an anchor elementwise. Reshapes
    inside change no order, as long as nothing repeats elements in between.
    """
    members = node.attrs["body"].nodes if node.op.name == "fused" else (node,)
    readers = [m for m in members if any(y is x for y in m.inputs)]
    rest = members[1:] if members[0].op.kind in _ANCHORS else members
    reshapes = [m for m in rest if is_relabelling(m)]
    if reshapes and any(y.spec.size != x.spec.size for m in rest for y in m.outputs):
        return False
    plain = all(m.op.kind is Kind.ELEMENTWISE or m in reshapes for m in rest)
    return plain and all(
        m in reshapes
        or (m.op.kind is Kind.ELEMENTWISE and m.outputs[0].spec.shape == x.spec.shape)
        for m in readers
    )


@record
class Space:
    """The iteration space of a body.

    Attributes:
        size: how many elements a full value has.
        rows: how many rows they fall apart into; None: nothing asks for rows.
    """

    size: int
    rows: int | None = None

    @property
    def columns(self) -> int | None:
        """How many elements a row has."""
        return None if self.rows is None else self.size // self.rows

    def is_full(self, value: Any) -> bool:
        """Whether a value has an element for each index."""
        return bool(value.spec.size == self.size)


def space_of(nodes: Sequence[Node]) -> Space:
    """The space that the nodes of a body agree on.

    A reduction over everything makes one row of all only if another node reads it.
    """
    size, heavy = 0, []
    for node in nodes:
        values = node.outputs
        if node.op.kind not in (Kind.ELEMENTWISE, Kind.VIEW):
            values = (*values, *node.inputs[:1])
            heavy.append(node)
        size = max(size, *(value.spec.size for value in values))
    rows = None
    read = {x for node in nodes for x in node.inputs} if heavy else ()
    for node in heavy:
        if picks_in_rows(node):
            return Space(size, node.inputs[1].spec.size)
        if not is_reduction(node) or node.inputs[0].spec.size != size:
            continue
        part, result = reduced_part(node), node.outputs[0]
        if part == "trailing":
            return Space(size, result.spec.size)
        if part == "leading":
            rows = size // result.spec.size
        elif rows is None and (result in read or node.op.name.startswith("arg")):
            rows = 1
    return Space(size, rows)


def fits(nodes: Sequence[Node]) -> bool:
    """Whether nodes, in order, can be one body: all values are in one space."""
    if any(v.spec.size == 0 for n in nodes for v in (*n.inputs, *n.outputs)):
        return False
    space = space_of(nodes)
    if space.size == 0 or (space.rows == 1 and _is_long(nodes, space)):
        return False
    made: set[Value] = set()
    ends: set[Value] = set()  # sums over rows
    for node in nodes:
        if any(x in ends for x in node.inputs) or not _fits(node, space, made):
            return False
        result = node.outputs[0]
        made.add(result)
        if is_reduction(node) and not _is_of_rows(node, space):
            ends.add(result)
    steps = loop_steps(nodes, space)
    if rules.rows_independent and not _adds_as_alone(nodes, space, steps):
        return False
    return bool(steps)


def _is_long(nodes: Sequence[Node], space: Space) -> bool:
    """Whether a single row is too long for one thread."""
    if space.size <= LONGEST_ROW:
        return False
    parts = (reduced_part(node) for node in nodes if is_reduction(node))
    return not rules.rows_independent or "trailing" not in parts


def _adds_as_alone(nodes: Sequence[Node], space: Space, steps: Sequence[int]) -> bool:
    """Whether each sum of a body is added in the order that it has in one of its own.

    Which nodes are together depends on how large their values are.
    """
    members = [node for node in nodes if node.op.name != "reshape"]
    sums = [node for node in members if _is_rounded_sum(node)]
    if len(members) == 1 or not sums:
        return True
    parts = {reduced_part(node) for node in sums}
    columns = space.columns or 1
    if "trailing" in parts and any(1 < step < columns for step in steps):
        return False
    if parts == {"trailing"}:
        return True
    shape = sums[0].inputs[0].spec.shape
    wide = {v.spec.shape for v in _values(nodes) if space.is_full(v)}
    if wide != {shape}:
        return False
    if "all" not in parts:
        return True
    # Such a sum goes through blocks of a single loop over elements.
    sizes = {v.spec.size for v in _values(nodes)}
    return parts == {"all"} and space.rows is None and sizes <= {1, space.size}


def _is_rounded_sum(node: Node) -> bool:
    if node.op.name not in ("sum", "prod") or not is_reduction(node):
        return False
    return dtypes.is_float(node.outputs[0].spec.dtype)


def _is_of_rows(node: Node, space: Space) -> bool:
    """Whether a reduction has a result for each row."""
    if not space.is_full(node.inputs[0]):
        return False
    return space.rows == 1 or reduced_part(node) == "trailing"


def _fits(node: Node, space: Space, made: set[Value]) -> bool:
    result, sizes = node.outputs[0].spec, (space.size, space.rows)
    if is_reduction(node):
        return _reduction_fits(node, space)
    if picks_in_rows(node):
        x, indices = node.inputs[0].spec, node.inputs[1].spec
        return bool(x.size == space.size and indices.size == space.rows)
    if result.size not in sizes:
        return False
    return all(
        x.spec.size == result.size or _is_row_of(x.spec.shape, result.shape, space)
        for x in node.inputs
        if x in made
    )


def _reduction_fits(node: Node, space: Space) -> bool:
    x, y, part = node.inputs[0].spec, node.outputs[0].spec, reduced_part(node)
    is_place = node.op.name.startswith("arg")
    if x.size != space.size:
        return x.size == space.rows and part == "all" and not is_place
    if part == "all":
        return space.rows == 1 or not is_place
    if part == "leading":
        return y.size == space.columns and not is_place
    return part == "trailing" and y.size == space.rows


def _is_row_of(shape: Shape, whole: Shape, space: Space) -> bool:
    """Whether a shape has an element for each row of the whole, which it extends to."""
    if prod(shape) != space.rows or prod(whole) != space.size:
        return False
    padded = (1,) * (len(whole) - len(shape)) + shape
    inside = [n for n, m in zip(padded, whole, strict=True) if m != 1]
    outer = [m for m in whole if m != 1]
    k = next((i for i, n in enumerate(inside) if n == 1), len(inside))
    return inside[:k] == outer[:k] and all(n == 1 for n in inside[k:])


def loop_steps(nodes: Sequence[Node], space: Space) -> list[int]:
    """What one turn of each loop over the space covers; empty if shapes do not fit."""
    columns = space.columns or 1
    shapes = {v.spec.shape for v in _values(nodes) if space.is_full(v)}
    rows = {
        value.spec.shape
        for node in nodes
        for value in node.outputs
        if value.spec.size == space.rows
    }
    cuts = {columns * step for shape in rows for step in suffix_products(shape)}
    return refine(space.size, shapes, {columns, *cuts})


def _values(nodes: Sequence[Node]) -> Iterator[Any]:
    for node in nodes:
        yield from node.outputs
        yield from node.inputs


def suffix_products(shape: Shape) -> list[int]:
    """The elements of all axes, of all but the first, ...: (2, 3) -> [6, 3, 1]."""
    products = [1]
    for n in reversed(shape):
        products.append(products[-1] * n)
    return products[::-1]


def refine(size: int, shapes: Iterable[Shape], cuts: Iterable[int] = ()) -> list[int]:
    """The steps of the fewest loops that every shape of this many elements fits.

    Args:
        size: the number of elements, not 0.
        shapes: of equally many elements.
        cuts: further steps to have.

    Returns:
        The elements that one turn of each loop covers, decreasing, behind `size`;
        empty if the shapes do not fit each other.
    """
    found = {size, 1, *cuts}
    for shape in shapes:
        found.update(suffix_products(shape))
    steps = sorted(found, reverse=True)
    fits = all(a % b == 0 for a, b in zip(steps, steps[1:], strict=False))
    return steps if fits else []


def follows(nodes: Sequence[Node], is_contiguous: Callable[[Any], bool]) -> bool:
    """Whether nodes can be one body that starts with the only one not elementwise.

    The others are applied to each finished vector of that one's result. What else they
    read has as many elements, in the same order, or one for each index of the result's
    last axis, or one; some anchors let them read one for each row, too.
    """
    first = [node for node in nodes if not _is_light(node)]
    if len(first) != 1 or len(first[0].outputs) != 1:
        return False
    (anchor,), made = first, {node.outputs[0] for node in nodes}
    result = anchor.outputs[0].spec
    if result.size == 0 or any(x in made for x in anchor.inputs):
        return False
    takes_rows = anchor.op.name in ROW_ANCHORS

    def is_beside(x: Any, whole: Shape) -> bool:
        if takes_rows and has_rows(x, result.size):
            return _is_for_rows(x.spec.shape, whole, result.shape) and is_contiguous(x)
        return _is_beside(x, whole, result.shape, is_contiguous)

    return all(
        y.spec.size == result.size and (x in made or is_beside(x, y.spec.shape))
        for node in nodes
        if node is not anchor
        for y in node.outputs
        for x in node.inputs
    )


def has_rows(x: Any, size: int) -> bool:
    """Whether what an epilogue reads has an element for each row of a result."""
    return x.spec.size not in (1, size) and bool(x.spec.shape[-1] == 1)


def _is_for_rows(shape: Shape, whole: Shape, result: Shape) -> bool:
    """Whether a shape has the axes of the whole that are rows of the result."""
    padded = (1,) * (len(whole) - len(shape)) + shape
    k = len(padded)
    while k and padded[k - 1] == 1:
        k -= 1
    return padded[:k] == whole[:k] and prod(whole[k:]) == result[-1]


def _is_light(node: Node) -> bool:
    return node.op.kind is Kind.ELEMENTWISE or is_relabelling(node)


def _is_beside(
    x: Any, whole: Shape, result: Shape, is_contiguous: Callable[[Any], bool]
) -> bool:
    """Whether an epilogue can read a value beside vectors of a result."""
    size = x.spec.size
    if size == 1:
        return True
    axes = [n for n in x.spec.shape if n != 1]
    inside = [n for n in whole if n != 1]
    is_full = size == prod(whole)
    is_column = size == result[-1] and inside[-len(axes) :] == axes
    # The extents of 1 have to stand in front: (3, 1) beside (3, 3) is no column.
    is_column = is_column and list(x.spec.shape[-len(axes) :]) == axes
    return (is_full or is_column) and is_contiguous(x)
