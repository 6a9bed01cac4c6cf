"""ONNX rules of reductions, cumulative operations and sorting."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.export.onnx.nodes import Body, Operation
from toolkit.export.onnx.rows.elementwise import WIDE
from toolkit.export.onnx.rows.shape import moved_axis
from toolkit.export.onnx.table import row
from toolkit.export.onnx.writer import Writer
from toolkit.ir import Node

_OPERATORS = {
    "sum": "ReduceSum",
    "prod": "ReduceProd",
    "max": "ReduceMax",
    "min": "ReduceMin",
    "any": "ReduceSum",
    "all": "ReduceMin",
}


@row("sum", "prod", "max", "min", "any", "all")
def _reduce(write: Writer, node: Node) -> Any:
    (x,), (y,) = node.inputs, node.outputs
    axes, keepdims = node.attrs["axis"], node.attrs["keepdims"]
    rank, operator = x.spec.ndim, _OPERATORS[node.op.name]
    wide = WIDE.get(x.spec.dtype)
    is_first = write.only_first(x) and (keepdims or _keeps_order(axes, rank))
    name = write.first[x] if is_first else write(x)
    if is_first:
        axes = sorted(moved_axis(axis, rank) for axis in axes)
    if wide is not None:
        name = write.cast(name, wide)
    name = write.reduce(operator, name, axes, keepdims)
    if wide is not None:
        name = write.cast(name, y.spec.dtype)
    if is_first and keepdims:
        write.first[y] = name
        return ()
    return name


def _keeps_order(axes: Any, rank: int) -> bool:
    """Return whether the remaining axes have the same order in both layouts."""
    left = [axis for axis in range(rank) if axis not in axes]
    return sorted(left, key=lambda axis: moved_axis(axis, rank)) == left


@row("argmax", "argmin")
def _argument(write: Writer, node: Node) -> str:
    (x,), attrs = node.inputs, node.attrs
    name, wide = write(x), WIDE.get(x.spec.dtype)
    name = name if wide is None else write.cast(name, wide)
    operator = "ArgMax" if node.op.name == "argmax" else "ArgMin"
    keep = int(attrs["keepdims"])
    found = write.node(operator, [name], axis=attrs["axis"], keepdims=keep)
    return write.cast(found, "int32")


@row("cumsum")
def _cumsum(write: Writer, node: Node) -> str:
    (x,), attrs = node.inputs, node.attrs
    dtype = x.spec.dtype
    name, wide = write(x), WIDE.get(dtype)
    name = name if wide is None else write.cast(name, wide)
    axis = write.scalar(attrs["axis"], "int64")
    name = write.node("CumSum", [name, axis], reverse=int(attrs["reverse"]))
    return name if wide is None else write.cast(name, dtype)


@row("cumprod")
def _cumprod(write: Writer, node: Node) -> str:
    """Write a loop over the axis that carries the product."""
    (x,), attrs = node.inputs, node.attrs
    axis, rank, dtype = attrs["axis"], x.spec.ndim, x.spec.dtype
    order = [axis, *(i for i in range(rank) if i != axis)]
    name = write.node("Transpose", [write(x)], perm=order)
    name = flipped(write, name) if attrs["reverse"] else name
    shape = write.known_shape(x, node)
    start = write.constants.add(np.ones([1] * (rank - 1), dtypes.numpy_dtype(dtype)))
    start = write.node("Expand", [start, write.lengths([shape[i] for i in order[1:]])])
    carried, factor, product, copy = (
        write.names(f"{node.op.name}_{part}") for part in ("before", "x", "after", "y")
    )
    body = Body(
        [(carried, dtype, rank - 1), (factor, dtype, rank - 1)],
        [(product, dtype, rank - 1), (copy, dtype, rank - 1)],
        [
            Operation(write.names("Mul"), "Mul", [carried, factor], [product]),
            Operation(write.names("Identity"), "Identity", [product], [copy]),
        ],
    )
    found = write.several("Scan", [start, name], 2, body=body, num_scan_inputs=1)[1]
    found = flipped(write, found) if attrs["reverse"] else found
    inverse = [order.index(i) for i in range(rank)]
    return write.node("Transpose", [found], perm=inverse)


def flipped(write: Writer, name: str, axis: int = 0) -> str:
    """Return a tensor reversed along an axis."""
    bounds = ([np.iinfo(np.int64).max], [np.iinfo(np.int64).min], [axis], [-1])
    return write.node("Slice", [name, *map(write.ints, bounds)])


@row("argsort")
def _argsort(write: Writer, node: Node) -> str:
    (x,), axis = node.inputs, node.attrs["axis"]
    name, wide = write(x), WIDE.get(x.spec.dtype)
    name = name if wide is None else write.cast(name, wide)
    count = write.size(write.known_shape(x, node)[axis])
    found = write.several("TopK", [name, count], 2, axis=axis, largest=0, sorted=1)
    return write.cast(found[1], "int32")


@row("searchsorted")
def _searchsorted(write: Writer, node: Node) -> str:
    """Count the edges that are smaller, or smaller or equal."""
    edges, x = node.inputs
    names, wide = [write(edges), write(x)], WIDE.get(x.spec.dtype)
    if wide is not None:
        names = [write.cast(name, wide) for name in names]
    column = write.node("Unsqueeze", [names[1], write.ints([-1])])
    operator = "Less" if node.attrs["side"] == "left" else "LessOrEqual"
    found = write.node(operator, [names[0], column])
    if x.spec.dtype in dtypes.INEXACT:  # NaN sorts last
        found = write.node("Or", [found, write.node("IsNaN", [column])])
    below = write.cast(found, "int32")
    return write.reduce("ReduceSum", below, [x.spec.ndim], False)
