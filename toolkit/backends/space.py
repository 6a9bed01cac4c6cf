"""Iteration spaces: how the values of a fused body share one flat index.

Where nodes reduce rows, the index falls apart into rows and columns: a value is then
full (an element for each index) or has one element for each row. Sums over all rows are
left to the end: nothing in the same body reads them. A reshape changes no flat index.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from toolkit.ir import Kind, Node

Shape = tuple[int, ...]

REDUCTIONS = frozenset("sum prod max min any all argmax argmin".split())


def reduced_part(node: Node) -> str:
    """Which part of its input's axes a reduction reduces, but for those of extent 1.

    Returns:
        "none", "trailing", "leading", "all", or "other".
    """
    shape, axis = node.inputs[0].spec.shape, node.attrs["axis"]
    axes = axis if isinstance(axis, tuple) else (axis,)
    marks = [a in axes for a, n in enumerate(shape) if n != 1]
    if not any(marks):
        return "none"
    if all(marks):
        return "all"
    if marks == sorted(marks):
        return "trailing"
    return "leading" if marks == sorted(marks, reverse=True) else "other"


def is_reduction(node: Node) -> bool:
    """Whether a node reduces more than axes of extent 1."""
    return node.op.name in REDUCTIONS and reduced_part(node) != "none"


def is_relabelling(node: Node) -> bool:
    """Whether the output has the elements of the input, in the same order."""
    return node.op.name == "reshape" or (
        node.op.name in REDUCTIONS
        and not node.op.name.startswith("arg")
        and reduced_part(node) == "none"
    )


@dataclass(frozen=True)
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
    wide = [v for node in nodes for v in (*node.outputs, *_reduced_inputs(node))]
    size = max(value.spec.size for value in wide)
    rows = None
    read = {id(x) for node in nodes for x in node.inputs}
    for node in nodes:
        if not is_reduction(node) or node.inputs[0].spec.size != size:
            continue
        part, result = reduced_part(node), node.outputs[0]
        if part == "trailing":
            return Space(size, result.spec.size)
        if part == "leading":
            rows = size // result.spec.size
        elif rows is None and (id(result) in read or node.op.name.startswith("arg")):
            rows = 1
    return Space(size, rows)


def _reduced_inputs(node: Node) -> Sequence[Any]:
    return node.inputs[:1] if node.op.kind is Kind.REDUCE else ()


def suffix_products(shape: Shape) -> list[int]:
    """How many elements lie behind each axis, and behind none: (2, 3) -> [6, 3, 1]."""
    products = [1]
    for n in reversed(shape):
        products.append(products[-1] * n)
    return products[::-1]


def refine(size: int, shapes: Iterable[Shape], cuts: Iterable[int] = ()) -> list[int]:
    """The steps of the fewest loops that every shape of this many elements fits.

    Args:
        size: the number of elements, not 0.
        shapes: of so many elements each.
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
