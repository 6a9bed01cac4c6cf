"""Separate reductions for axes that are not adjacent.

Generated code reduces adjacent axes only.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import prod

from toolkit.backends.target import Target
from toolkit.ir import PRIMITIVES, Graph, Node, Value
from toolkit.plans.layout import Layouts
from toolkit.plans.loops.iteration_space import classify_reduction
from toolkit.plans.loops.plan import MERGES

# From this number of elements on, trailing axes are reduced first, fused with their
# producer. With fewer elements a vector would hold many rows. Leading axes are then
# reduced first, with vectors along the trailing axes.
_MIN_TRAILING_SIZE = 32


def separate_reductions(graph: Graph, target: Target) -> Graph:
    """Reduce axes that are not adjacent in separate reductions."""
    layouts = Layouts(graph, target.inputs)
    nodes: list[Node] = []
    for node in graph.nodes:
        is_apart = node.op.name in MERGES and classify_reduction(node) == "other"
        nodes += _separate_reduction(node, layouts, target) if is_apart else [node]
    return graph.replace(nodes)


def _separate_reduction(node: Node, layouts: Layouts, target: Target) -> Iterator[Node]:
    value, keepdims = node.inputs[0], node.attrs["keepdims"]
    if target.rows_independent and not layouts.operand(value).is_contiguous:
        # The summation order must be the order of a contiguous array.
        value, source = Value(value.spec), value
        yield Node(PRIMITIVES["stop_gradient"], [source], {}, [value])
    runs = _group_adjacent_axes(node.attrs["axis"])
    last = prod(value.spec.shape[a] for a in runs[-1])
    if runs[-1][-1] != value.spec.ndim - 1 or last >= _MIN_TRAILING_SIZE:
        runs.reverse()
    reduced_axes: list[int] = []
    for axes in runs[:-1]:
        attrs = {
            "axis": _renumber_axes(axes, reduced_axes, keepdims),
            "keepdims": keepdims,
        }
        reduced_axes += axes
        value, source = Value(node.op.spec(value.spec, **attrs)), value
        yield Node(node.op, [source], attrs, [value])
    attrs = {
        "axis": _renumber_axes(runs[-1], reduced_axes, keepdims),
        "keepdims": keepdims,
    }
    yield Node(node.op, [value], attrs, node.outputs, node.device)


def _renumber_axes(
    axes: tuple[int, ...], reduced_axes: list[int], keepdims: bool
) -> tuple[int, ...]:
    """Renumber axes after the reduction of other axes."""
    if keepdims:
        return axes
    return tuple(a - sum(b < a for b in reduced_axes) for a in axes)


def _group_adjacent_axes(axes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Group adjacent axes."""
    runs = [[axes[0]]]
    for before, axis in pairwise(axes):
        if axis > before + 1:
            runs.append([])
        runs[-1].append(axis)
    return [tuple(run) for run in runs]
