"""ONNX rules of reductions, cumulative operations and sorting."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.export.onnx.nodes import Body, Operation
from toolkit.export.onnx.rules.elementwise import WIDE
from toolkit.export.onnx.rules.shape import nchw_axis
from toolkit.export.onnx.table import rule
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


@rule("sum", "prod", "max", "min", "any", "all")
def _reduce(writer: Writer, node: Node) -> Any:
    (x,), (y,) = node.inputs, node.outputs
    axes, keepdims = node.attrs["axis"], node.attrs["keepdims"]
    rank, operator = x.spec.ndim, _OPERATORS[node.op.name]
    wide = WIDE.get(x.spec.dtype)
    is_first = writer.is_only_nchw(x) and (keepdims or _keeps_order(axes, rank))
    name = writer.nchw_names[x] if is_first else writer(x)
    if is_first:
        axes = sorted(nchw_axis(axis, rank) for axis in axes)
    if wide is not None:
        name = writer.cast(name, wide)
    name = writer.reduce(operator, name, axes, keepdims)
    if wide is not None:
        name = writer.cast(name, y.spec.dtype)
    if is_first and keepdims:
        writer.nchw_names[y] = name
        return ()
    return name


def _keeps_order(axes: Any, rank: int) -> bool:
    """Return whether the remaining axes have the same order in both layouts."""
    remaining = [axis for axis in range(rank) if axis not in axes]
    return sorted(remaining, key=lambda axis: nchw_axis(axis, rank)) == remaining


@rule("argmax", "argmin")
def _arg_reduction(writer: Writer, node: Node) -> str:
    (x,), attrs = node.inputs, node.attrs
    name, wide = writer(x), WIDE.get(x.spec.dtype)
    name = name if wide is None else writer.cast(name, wide)
    operator = "ArgMax" if node.op.name == "argmax" else "ArgMin"
    keep = int(attrs["keepdims"])
    indices = writer.node(operator, [name], axis=attrs["axis"], keepdims=keep)
    return writer.cast(indices, "int32")


@rule("cumsum")
def _cumsum(writer: Writer, node: Node) -> str:
    (x,), attrs = node.inputs, node.attrs
    dtype = x.spec.dtype
    name, wide = writer(x), WIDE.get(dtype)
    name = name if wide is None else writer.cast(name, wide)
    axis = writer.scalar(attrs["axis"], "int64")
    name = writer.node("CumSum", [name, axis], reverse=int(attrs["reverse"]))
    return name if wide is None else writer.cast(name, dtype)


@rule("cumprod")
def _cumprod(writer: Writer, node: Node) -> str:
    """Write a loop over the axis that carries the product."""
    (x,), attrs = node.inputs, node.attrs
    axis, rank, dtype = attrs["axis"], x.spec.ndim, x.spec.dtype
    order = [axis, *(i for i in range(rank) if i != axis)]
    name = writer.node("Transpose", [writer(x)], perm=order)
    name = reverse_axis(writer, name) if attrs["reverse"] else name
    shape = writer.known_shape(x, node)
    start = writer.constants.add(np.ones([1] * (rank - 1), dtypes.numpy_dtype(dtype)))
    start = writer.node(
        "Expand", [start, writer.lengths([shape[i] for i in order[1:]])]
    )
    carried, factor, product, copy = (
        writer.names(f"{node.op.name}_{suffix}")
        for suffix in ("before", "x", "after", "y")
    )
    body = Body(
        [(carried, dtype, rank - 1), (factor, dtype, rank - 1)],
        [(product, dtype, rank - 1), (copy, dtype, rank - 1)],
        [
            Operation(writer.names("Mul"), "Mul", [carried, factor], [product]),
            Operation(writer.names("Identity"), "Identity", [product], [copy]),
        ],
    )
    products = writer.node_with_outputs(
        "Scan", [start, name], 2, body=body, num_scan_inputs=1
    )[1]
    products = reverse_axis(writer, products) if attrs["reverse"] else products
    inverse = [order.index(i) for i in range(rank)]
    return writer.node("Transpose", [products], perm=inverse)


def reverse_axis(writer: Writer, name: str, axis: int = 0) -> str:
    """Return a tensor reversed along an axis."""
    bounds = ([np.iinfo(np.int64).max], [np.iinfo(np.int64).min], [axis], [-1])
    return writer.node("Slice", [name, *map(writer.ints, bounds)])


@rule("argsort")
def _argsort(writer: Writer, node: Node) -> str:
    (x,), axis = node.inputs, node.attrs["axis"]
    name, wide = writer(x), WIDE.get(x.spec.dtype)
    name = name if wide is None else writer.cast(name, wide)
    count = writer.size(writer.known_shape(x, node)[axis])
    results = writer.node_with_outputs(
        "TopK", [name, count], 2, axis=axis, largest=0, sorted=1
    )
    return writer.cast(results[1], "int32")


@rule("searchsorted")
def _searchsorted(writer: Writer, node: Node) -> str:
    """Count the edges that are smaller, or smaller or equal."""
    edges, x = node.inputs
    names, wide = [writer(edges), writer(x)], WIDE.get(x.spec.dtype)
    if wide is not None:
        names = [writer.cast(name, wide) for name in names]
    column = writer.node("Unsqueeze", [names[1], writer.ints([-1])])
    operator = "Less" if node.attrs["side"] == "left" else "LessOrEqual"
    is_below = writer.node(operator, [names[0], column])
    if x.spec.dtype in dtypes.INEXACT:  # NaN sorts last
        is_below = writer.node("Or", [is_below, writer.node("IsNaN", [column])])
    flags = writer.cast(is_below, "int32")
    return writer.reduce("ReduceSum", flags, [x.spec.ndim], False)
