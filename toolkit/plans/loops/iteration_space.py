"""Iteration spaces: how the values of a fused body share one flat index.

If nodes reduce rows, the flat index splits into rows and columns. A value is then full
(one element for each index) or has one element for each row. No node of the same body
reads a sum over all rows. A reshape does not change the flat index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from math import prod
from typing import Any

from toolkit import dtypes
from toolkit.definitions.records import record
from toolkit.ir import Kind, Node, Value
from toolkit.ir.extents import is_always
from toolkit.plans.rules import rules

Shape = tuple[int, ...]

# One thread computes a reduction of all elements if another node reads its result.
MAX_ROW_ELEMENTS = 16384

_ANCHORS = (Kind.CONTRACT, Kind.POOL)
# Anchors with epilogues that can read one number for each row of the result.
ROW_ANCHORS = frozenset({"matmul_integer"})
REDUCTIONS = frozenset("sum prod max min any all argmax argmin".split())


def classify_reduction(node: Node) -> str:
    """Return which axes of its input a reduction reduces, without axes of extent 1.

    If rows must be independent, kept axes of extent 1 count: one can be the batch.

    Returns:
        "none", "trailing", "leading", "all", or "other".
    """
    axis = node.attrs["axis"]
    axes = axis if isinstance(axis, tuple) else (axis,)
    return _classify_axes(node.inputs[0].spec.shape, axes, rules.rows_independent)


@lru_cache(maxsize=1024)
def _classify_axes(shape: Shape, axes: tuple[int, ...], keeps: bool) -> str:
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


def uniform_value(value: Any) -> Any:
    """Return the value of all elements of a constant, or None if they differ.

    Also return None if the constant depends on extents: kernels are generic in extents.
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
    """Return whether a node reduces leading or trailing axes of extent above 1."""
    return node.op.name in REDUCTIONS and classify_reduction(node) not in (
        "none",
        "other",
    )


def accesses_row_element(node: Node) -> bool:
    """Return whether a node reads or updates one element of each row (last axis)."""
    if node.op.name not in ("take_along_axis", "put_along_axis"):
        return False
    x, indices = node.inputs[0].spec, node.inputs[1].spec
    is_last = node.attrs["axis"] == x.ndim - 1
    return bool(is_last and indices.shape[-1] == 1 and x.shape[-1] > 1)


def index_problem(name: str, axis: int, shifted: bool = False) -> str:
    """Return the message for an index that is out of range.

    Args:
        name: the operation.
        axis: the axis.
        shifted: whether negative indices are shifted out of range: see
            `ops.index.reject_negative`.
    """
    index = "{original}" if shifted else "{index}"
    return (
        f"{name}: index {index} is out of range for axis {axis} with {{limit}} elements"
    )


def format_problem(problem: str, index: int, limit: int) -> str:
    """Return the message for an index, which a kernel has found out of range."""
    original = index + limit if index < -limit else index
    return problem.format(index=index, original=original, limit=limit)


def is_reshape_like(node: Node) -> bool:
    """Return whether the output has the elements of the input in the same order."""
    return node.op.name == "reshape" or (
        node.op.name in REDUCTIONS
        and not node.op.name.startswith("arg")
        and classify_reduction(node) == "none"
    )


def is_elementwise(node: Node, x: Any) -> bool:
    """Return whether output element i depends on element i of x only, for all i.

    This is true for elementwise nodes and for the elementwise epilogue of an anchor.
    Reshapes inside a body keep the order, unless a node repeats elements in between.
    """
    members = node.attrs["body"].nodes if node.op.name == "fused" else (node,)
    readers = [m for m in members if any(y is x for y in m.inputs)]
    body_nodes = members[1:] if members[0].op.kind in _ANCHORS else members
    reshapes = [m for m in body_nodes if is_reshape_like(m)]
    if reshapes and any(
        y.spec.size != x.spec.size for m in body_nodes for y in m.outputs
    ):
        return False
    plain = all(m.op.kind is Kind.ELEMENTWISE or m in reshapes for m in body_nodes)
    return plain and all(
        m in reshapes
        or (m.op.kind is Kind.ELEMENTWISE and m.outputs[0].spec.shape == x.spec.shape)
        for m in readers
    )


@record
class IterationSpace:
    """The iteration space of a body.

    Attributes:
        size: the number of elements of a full value.
        rows: the number of rows; None: no node needs rows.
    """

    size: int
    rows: int | None = None

    @property
    def columns(self) -> int | None:
        """The number of elements of a row."""
        return None if self.rows is None else self.size // self.rows

    def is_full(self, value: Any) -> bool:
        """Return whether a value has one element for each index."""
        return bool(value.spec.size == self.size)


def iteration_space_of(nodes: Sequence[Node]) -> IterationSpace:
    """Return the common iteration space of the nodes of a body.

    A reduction of all elements forms one row only if another node reads its result.
    """
    size, non_elementwise = 0, []
    for node in nodes:
        values = node.outputs
        if node.op.kind not in (Kind.ELEMENTWISE, Kind.VIEW):
            values = (*values, *node.inputs[:1])
            non_elementwise.append(node)
        size = max(size, *(value.spec.size for value in values))
    rows = None
    for node in non_elementwise:
        if accesses_row_element(node):
            return IterationSpace(size, node.inputs[1].spec.size)
        if not is_reduction(node) or node.inputs[0].spec.size != size:
            continue
        axes_reduced, result = classify_reduction(node), node.outputs[0]
        if axes_reduced == "trailing":
            return IterationSpace(size, result.spec.size)
        if axes_reduced == "leading":
            rows = size // result.spec.size
        elif rows is None and (
            node.op.name.startswith("arg")
            or any(x is result for reader in nodes for x in reader.inputs)
        ):
            rows = 1
    return IterationSpace(size, rows)


def can_share_loop(nodes: Sequence[Node]) -> bool:
    """Return whether nodes, in this order, can form one body over one space."""
    if any(v.spec.size == 0 for n in nodes for v in (*n.inputs, *n.outputs)):
        return False
    space = iteration_space_of(nodes)
    if space.size == 0 or (space.rows == 1 and _is_long_row(nodes, space)):
        return False
    computed: set[Value] = set()
    row_sums: set[Value] = set()  # sums over rows
    for node in nodes:
        if any(x in row_sums for x in node.inputs) or not _fits_space(
            node, space, computed
        ):
            return False
        result = node.outputs[0]
        computed.add(result)
        if is_reduction(node) and not _has_row_results(node, space):
            row_sums.add(result)
    steps = loop_steps(nodes, space)
    if rules.rows_independent and not _keeps_summation_order(nodes, space, steps):
        return False
    return bool(steps)


def _is_long_row(nodes: Sequence[Node], space: IterationSpace) -> bool:
    """Return whether a single row is too long for one thread."""
    if space.size <= MAX_ROW_ELEMENTS:
        return False
    axes_reduced = (classify_reduction(node) for node in nodes if is_reduction(node))
    return not rules.rows_independent or "trailing" not in axes_reduced


def _keeps_summation_order(
    nodes: Sequence[Node], space: IterationSpace, steps: Sequence[int]
) -> bool:
    """Return whether fusion keeps the summation order of each sum of a body.

    Fusion decisions depend on the sizes of values, so they must not change results.
    """
    members = [node for node in nodes if node.op.name != "reshape"]
    sums = [node for node in members if _is_rounded_sum(node)]
    if len(members) == 1 or not sums:
        return True
    axes_reduced = {classify_reduction(node) for node in sums}
    columns = space.columns or 1
    if "trailing" in axes_reduced and any(1 < step < columns for step in steps):
        return False
    if axes_reduced == {"trailing"}:
        return True
    shape = sums[0].inputs[0].spec.shape
    full_shapes = {v.spec.shape for v in _values(nodes) if space.is_full(v)}
    if full_shapes != {shape}:
        return False
    if "all" not in axes_reduced:
        return True
    # The loop nest splits such a sum into blocks of a single loop over elements.
    sizes = {v.spec.size for v in _values(nodes)}
    return axes_reduced == {"all"} and space.rows is None and sizes <= {1, space.size}


def _is_rounded_sum(node: Node) -> bool:
    if node.op.name not in ("sum", "prod") or not is_reduction(node):
        return False
    return dtypes.is_float(node.outputs[0].spec.dtype)


def _has_row_results(node: Node, space: IterationSpace) -> bool:
    """Return whether a reduction has one result for each row."""
    if not space.is_full(node.inputs[0]):
        return False
    return space.rows == 1 or classify_reduction(node) == "trailing"


def _fits_space(node: Node, space: IterationSpace, computed: set[Value]) -> bool:
    result, sizes = node.outputs[0].spec, (space.size, space.rows)
    if is_reduction(node):
        return _reduction_fits_space(node, space)
    if accesses_row_element(node):
        x, indices = node.inputs[0].spec, node.inputs[1].spec
        return bool(x.size == space.size and indices.size == space.rows)
    if result.size not in sizes:
        return False
    return all(
        x.spec.size == result.size
        or _is_row_shape_of(x.spec.shape, result.shape, space)
        for x in node.inputs
        if x in computed
    )


def _reduction_fits_space(node: Node, space: IterationSpace) -> bool:
    x, y, axes_reduced = (
        node.inputs[0].spec,
        node.outputs[0].spec,
        classify_reduction(node),
    )
    is_index = node.op.name.startswith("arg")
    if x.size != space.size:
        return x.size == space.rows and axes_reduced == "all" and not is_index
    if axes_reduced == "all":
        return space.rows == 1 or not is_index
    if axes_reduced == "leading":
        return y.size == space.columns and not is_index
    return axes_reduced == "trailing" and y.size == space.rows


def _is_row_shape_of(shape: Shape, full: Shape, space: IterationSpace) -> bool:
    """Return whether a shape has one element for each row of a broadcast shape."""
    if prod(shape) != space.rows or prod(full) != space.size:
        return False
    padded = (1,) * (len(full) - len(shape)) + shape
    inner = [n for n, m in zip(padded, full, strict=True) if m != 1]
    outer = [m for m in full if m != 1]
    k = next((i for i, n in enumerate(inner) if n == 1), len(inner))
    return inner[:k] == outer[:k] and all(n == 1 for n in inner[k:])


def loop_steps(nodes: Sequence[Node], space: IterationSpace) -> list[int]:
    """Return the elements per iteration of each loop; empty if shapes do not fit."""
    columns = space.columns or 1
    shapes = {v.spec.shape for v in _values(nodes) if space.is_full(v)}
    rows = {
        value.spec.shape
        for node in nodes
        for value in node.outputs
        if space.rows is not None and is_always(value.spec.size, space.rows)
    }
    cuts = {columns * step for shape in rows for step in suffix_products(shape)}
    return refine_steps(space.size, shapes, {columns, *cuts})


def _values(nodes: Sequence[Node]) -> Iterator[Any]:
    for node in nodes:
        yield from node.outputs
        yield from node.inputs


def suffix_products(shape: Shape) -> list[int]:
    """Return the products of all suffixes of a shape: (2, 3) -> [6, 3, 1]."""
    products = [1]
    for n in reversed(shape):
        products.append(products[-1] * n)
    return products[::-1]


def refine_steps(
    size: int, shapes: Iterable[Shape], cuts: Iterable[int] = ()
) -> list[int]:
    """Return the steps of the smallest loop nest that fits every shape.

    Args:
        size: the number of elements, not 0.
        shapes: shapes with `size` elements each.
        cuts: additional steps.

    Returns:
        `size`, then the number of elements that one iteration of each loop covers, in
        decreasing order. Empty if the shapes do not fit together.
    """
    all_steps = {size, 1, *cuts}
    for shape in shapes:
        all_steps.update(suffix_products(shape))
    steps = sorted(all_steps, reverse=True)
    fits = all(a % b == 0 for a, b in zip(steps, steps[1:], strict=False))
    return steps if fits else []


def can_be_epilogue(
    nodes: Sequence[Node], is_contiguous: Callable[[Any], bool]
) -> bool:
    """Return whether nodes can form an anchor and its elementwise epilogue.

    The epilogue is applied to each finished vector of the anchor's result. Its other
    operands are contiguous. They have the size of the result, one element for each
    index of the result's last axis, or one element. The epilogues of `ROW_ANCHORS` can
    also read one element for each row.
    """
    first = [node for node in nodes if not _is_elementwise_or_reshape(node)]
    if len(first) != 1 or len(first[0].outputs) != 1:
        return False
    (anchor,), computed = first, {node.outputs[0] for node in nodes}
    result = anchor.outputs[0].spec
    if result.size == 0 or any(x in computed for x in anchor.inputs):
        return False
    supports_rows = anchor.op.name in ROW_ANCHORS

    def can_read(x: Any, full: Shape) -> bool:
        if supports_rows and is_row_operand(x, result.size):
            return _matches_result_rows(
                x.spec.shape, full, result.shape
            ) and is_contiguous(x)
        return _can_read_with_result(x, full, result.shape, is_contiguous)

    return all(
        y.spec.size == result.size and (x in computed or can_read(x, y.spec.shape))
        for node in nodes
        if node is not anchor
        for y in node.outputs
        for x in node.inputs
    )


def is_row_operand(x: Any, size: int) -> bool:
    """Return whether an operand of an epilogue has one element for each row."""
    return x.spec.size not in (1, size) and bool(x.spec.shape[-1] == 1)


def _matches_result_rows(shape: Shape, full: Shape, result: Shape) -> bool:
    """Return whether a shape has exactly the axes that are rows of the result."""
    padded = (1,) * (len(full) - len(shape)) + shape
    k = len(padded)
    while k and padded[k - 1] == 1:
        k -= 1
    return padded[:k] == full[:k] and prod(full[k:]) == result[-1]


def _is_elementwise_or_reshape(node: Node) -> bool:
    return node.op.kind is Kind.ELEMENTWISE or is_reshape_like(node)


def _can_read_with_result(
    x: Any, full: Shape, result: Shape, is_contiguous: Callable[[Any], bool]
) -> bool:
    """Return whether an epilogue can read a value together with result vectors."""
    size = x.spec.size
    if size == 1:
        return True
    axes = [n for n in x.spec.shape if n != 1]
    inner = [n for n in full if n != 1]
    is_full = size == prod(full)
    is_column = size == result[-1] and inner[-len(axes) :] == axes
    # The extents of 1 must lead: next to (3, 3), (3, 1) is not a vector of columns.
    is_column = is_column and list(x.spec.shape[-len(axes) :]) == axes
    return (is_full or is_column) and is_contiguous(x)
