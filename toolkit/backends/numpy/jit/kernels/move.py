"""Copies: of strided views, of arrays one behind the other, of padded arrays."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import MEMORY_TYPES, MOVED, Number, Pointer
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.fused.elementwise import lower_fused
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.lowering import (
    Call,
    Lowered,
    Operand,
    Reference,
    contiguous,
    partition,
)
from toolkit.backends.numpy.jit.processor import current
from toolkit.ir import PRIMITIVES, Graph, Node, Value as GraphValue


def lower_copy(
    node: Any, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """The elements of a view, in its order, one after the other."""
    source = inputs[0]
    if source.spec.dtype not in MEMORY_TYPES:
        moved = MOVED[dtypes.itemsize(source.spec.dtype)]
        source = Operand(source.spec.with_dtype(moved), source.strides)
    spec = source.spec
    x, y = GraphValue(spec), GraphValue(spec)
    copy = Node(PRIMITIVES["stop_gradient"], (x,), {}, (y,))
    return lower_fused(Graph((x,), (copy,), (y,)), [source], [contiguous(spec)])


def emit_run(dtype: str) -> Kernel:
    """out[row, offset:] = x[row], a run of elements."""
    b = Kernel(current().lanes)
    x, out = b.address(0, dtype), b.address(1, dtype)
    run, size, offset = (b.entry(2 + k) for k in range(3))
    with b.loop(b.low, b.high) as row:
        target = out + (row * size + offset)
        b.copy(x + row * run, target, run, dtype)
    return b


def lower_concatenate(
    node: Any, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Arrays one behind the other along an axis: a call for each."""
    axis, spec = node.attrs["axis"], outputs[0].spec
    if not all(x.is_contiguous for x in inputs):
        return None
    rows, calls, offset = prod(spec.shape[:axis]), [], 0
    size = prod(spec.shape[axis:])
    code = Code(emit_run, MOVED[dtypes.itemsize(spec.dtype)])
    for i, x in enumerate(inputs):
        run = prod(x.spec.shape[axis:])
        operands: tuple[Reference, ...] = (("in", i), ("out", 0))
        call = Call(
            code,
            operands,
            (run, size, offset),
            rows if run else 0,
            partition(rows),
            frozenset(operands) if axis else frozenset(),
            nbytes=2 * x.spec.nbytes,
        )
        calls.append(call)
        offset += run
    return Lowered(tuple(calls))


def emit_pad(
    dtype: str,
    inner: tuple[int, ...],
    widths: tuple[tuple[int, int], ...],
    content: str,
) -> Kernel:
    """out = x with `content` around it; a row is one index of the leading axis.

    Args:
        inner: the extents of x behind its leading axis.
        widths: elements before and after, of every axis.
        content: the element to fill with, as hexadecimal bytes.
    """
    b = Kernel(current().lanes)
    x, out, rows = b.address(0, dtype), b.address(1, dtype), b.entry(2)
    number = int.from_bytes(bytes.fromhex(content), "little")
    value = b.filled(number, dtype)
    outer = [n + low + high for n, (low, high) in zip(inner, widths[1:], strict=True)]

    def blank(target: Pointer, count: int) -> None:
        if count:
            for index, mask in b.run(0, count):
                b.store(value, target, index, mask)

    def write(axis: int, source: Pointer, target: Pointer) -> None:
        if axis == len(inner):
            b.copy(source, target, 1, dtype)
            return
        low, high = widths[axis + 1]
        taken, made = prod(inner[axis + 1 :]), prod(outer[axis + 1 :])
        blank(target, low * made)
        middle = target + low * made
        if inner[axis + 1 :] == tuple(outer[axis + 1 :]):
            b.copy(source, middle, inner[axis] * taken, dtype)
        else:
            with b.loop(0, inner[axis]) as i:
                begin = source + i * taken
                write(axis + 1, begin, middle + i * made)
        blank(middle + inner[axis] * made, high * made)

    with b.loop(b.low, b.high) as row:
        target = out + row * prod(outer)
        index = row - widths[0][0]
        with b.when(b.compare("ult", index, rows)):
            write(0, x + index * prod(inner), target)
        with b.when(b.compare("uge", index, rows)):
            blank(target, prod(outer))
    return b


def lower_pad(
    node: Any, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """x with a constant around it."""
    spec, result, widths = inputs[0].spec, outputs[0].spec, node.attrs["widths"]
    if not inputs[0].is_contiguous or not spec.ndim:
        return None
    element = np.array(node.attrs["value"]).astype(dtypes.numpy_dtype(spec.dtype))
    moved = MOVED[dtypes.itemsize(spec.dtype)]
    operands: tuple[Reference, ...] = (("in", 0), ("out", 0))
    rows = result.shape[0] if result.size else 0
    call = Call(
        Code(emit_pad, moved, spec.shape[1:], widths, element.tobytes().hex()),
        operands,
        (spec.shape[0],),
        rows,
        partition(rows),
        frozenset(operands) if widths[0] == (0, 0) else frozenset({("out", 0)}),
        nbytes=spec.nbytes + result.nbytes,
    )
    return Lowered((call,))


def emit_box(dtype: str, index_dtypes: tuple[str, ...], updates: bool) -> Kernel:
    """out = a box of x, or x with a box replaced; a row is a line of the box.

    The table holds x, the box or the result, then each axis's start, and as numbers
    each axis's extent in x and in the box. Starts are moved so that the box fits.
    """
    b, ndim = Kernel(current().lanes), len(index_dtypes)
    whole, box = b.address(0, dtype), b.address(1, dtype)
    starts = [b.address(2 + k) for k in range(ndim)]
    extents = [b.entry(2 + ndim + k) for k in range(ndim)]
    sizes = [b.entry(2 + 2 * ndim + k) for k in range(ndim)]
    first = [
        b.most(0, b.least(b.integer_at(start, kind), extent - size))
        for start, extent, size, kind in zip(
            starts, extents, sizes, index_dtypes, strict=True
        )
    ]
    with b.loop(b.low, b.high) as row:
        left: Number = row
        number = first[-1]
        scale: Number = extents[-1]
        for axis in reversed(range(ndim - 1)):
            index, left = left % sizes[axis], left // sizes[axis]
            number = number + (index + first[axis]) * scale
            scale = scale * extents[axis]
        inside = whole + number
        line = box + row * sizes[-1]
        source, target = (line, inside) if updates else (inside, line)
        b.copy(source, target, sizes[-1], dtype)
    return b


def _boxed(
    x: Operand,
    box: Operand,
    starts: Sequence[Operand],
    operands: tuple[Reference, ...],
    updates: bool,
) -> Call:
    dtype = MOVED[dtypes.itemsize(x.spec.dtype)]
    kinds = tuple(start.spec.dtype for start in starts)
    rows = prod(box.spec.shape[:-1]) if box.spec.size else 0
    return Call(
        Code(emit_box, dtype, kinds, updates),
        operands,
        (*x.spec.shape, *box.spec.shape),
        rows,
        partition(rows),
        nbytes=2 * box.spec.nbytes,
    )


def lower_dynamic_slice(
    node: Any, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """A box of x at starts that are known when it runs."""
    x, *starts = inputs
    if not starts or not x.is_contiguous:
        return None
    places: list[Reference] = [("in", 1 + k) for k in range(len(starts))]
    operands: tuple[Reference, ...] = (("in", 0), ("out", 0), *places)
    return Lowered((_boxed(x, outputs[0], starts, operands, False),))


def emit_unless_same(dtype: str) -> Kernel:
    """out[row] = x[row], unless out is x: a Variable that is updated in place."""
    b = Kernel(current().lanes)
    x, out, run = b.address(0, dtype), b.address(1, dtype), b.entry(2)
    with (
        b.when(b.let(f"icmp ne ptr {x}, {out}", "bool")),
        b.loop(b.low, b.high) as row,
    ):
        b.copy(x + row * run, out + row * run, run, dtype)
    return b


def lower_dynamic_update_slice(
    node: Any, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """x with a box replaced, at starts that are known when it runs."""
    x, update, *starts = inputs
    if not starts or not x.is_contiguous or not update.is_contiguous:
        return None
    dtype = MOVED[dtypes.itemsize(x.spec.dtype)]
    run = x.spec.shape[-1]
    rows = x.spec.size // run if run else 0
    copied = Call(
        Code(emit_unless_same, dtype),
        (("in", 0), ("out", 0)),
        (run,),
        rows,
        rows if x.is_replaced else partition(rows),
        nbytes=0 if x.is_replaced else 2 * x.spec.nbytes,
    )
    places: list[Reference] = [("in", 2 + k) for k in range(len(starts))]
    operands: tuple[Reference, ...] = (("out", 0), ("in", 1), *places)
    boxed = _boxed(x, update, starts, operands, True)
    return Lowered((copied, boxed))
