"""Sums over axes that are apart, for which libraries choose an order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from toolkit import dtypes
from toolkit.backends.layout import Layouts
from toolkit.backends.loops.iteration_space import reduced_part
from toolkit.backends.target import Target
from toolkit.ir import PRIMITIVES, Graph, Node, Value


def separate_sums(graph: Graph, target: Target) -> Graph:
    """Sum over axes that are apart one after the other, if rows are independent.

    There is generated code for axes side by side only, of values that lie row by row.
    """
    if not target.rows_independent:
        return graph
    layouts = Layouts(graph, target.inputs)
    nodes: list[Node] = []
    for node in graph.nodes:
        is_apart = _is_rounded(node) and reduced_part(node) == "other"
        nodes += _separated(node, layouts) if is_apart else [node]
    return graph.replace(nodes)


def _is_rounded(node: Node) -> bool:
    """Whether the order of what a node combines shows in the bits."""
    return node.op.name in ("sum", "prod") and dtypes.is_float(
        node.outputs[0].spec.dtype
    )


def _separated(node: Node, layouts: Layouts) -> Iterator[Node]:
    value, keepdims = node.inputs[0], node.attrs["keepdims"]
    if not layouts.operand(value).is_contiguous:
        value, source = Value(value.spec), value
        yield Node(PRIMITIVES["stop_gradient"], [source], {}, [value])
    first, *others = _runs(node.attrs["axis"])
    for axes in reversed(others):  # so the axes in front keep their numbers
        attrs = {"axis": axes, "keepdims": keepdims}
        value, source = Value(node.op.spec(value.spec, **attrs)), value
        yield Node(node.op, [source], attrs, [value])
    attrs = {"axis": first, "keepdims": keepdims}
    yield Node(node.op, [value], attrs, node.outputs, node.device)


def _runs(axes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Axes that are neighbours, together."""
    runs = [[axes[0]]]
    for before, axis in pairwise(axes):
        if axis > before + 1:
            runs.append([])
        runs[-1].append(axis)
    return [tuple(run) for run in runs]
