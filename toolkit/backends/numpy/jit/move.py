"""Copies: of strided views, of arrays one behind the other, of padded arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.backends.base import aligned
from toolkit.backends.numpy.jit.builder import MEMORY_TYPES, Builder, Value
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.elementwise import lower_fused
from toolkit.backends.numpy.jit.engine import host
from toolkit.backends.numpy.jit.lowering import (
    Call,
    Lowered,
    Operand,
    Reference,
    contiguous,
    partition,
)
from toolkit.backends.numpy.jit.memory import Memory
from toolkit.ir import PRIMITIVES, Graph, Node, Value as GraphValue


def lower_copy(
    node: Any, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """The elements of a view, in its order, one after the other."""
    source = inputs[0]
    if source.spec.dtype not in MEMORY_TYPES:
        moved = _MOVED[dtypes.itemsize(source.spec.dtype)]
        source = Operand(source.spec.with_dtype(moved), source.strides)
    spec = source.spec
    x, y = GraphValue(spec), GraphValue(spec)
    copy = Node(PRIMITIVES["stop_gradient"], (x,), {}, (y,))
    return lower_fused(Graph((x,), (copy,), (y,)), [source], [contiguous(spec)])


def with_copy(number: int, source: Operand, lowered: Lowered | None) -> Lowered | None:
    """What was lowered for a contiguous input, with a copy of it made before.

    Args:
        number: of the input.
        source: the input as it is.
        lowered: what reads it.
    """
    copy = lower_copy(None, [source], [])
    if lowered is None or copy is None or copy.work:
        return None
    place: Reference = ("work", aligned(lowered.work))
    calls = [
        _elsewhere(call, {("in", 0): ("in", number), ("out", 0): place})
        for call in copy.calls
    ]
    calls += [_elsewhere(call, {("in", number): place}) for call in lowered.calls]
    return Lowered(calls, place[1] + aligned(source.spec.nbytes))


def _elsewhere(call: Call, places: dict[Reference, Reference]) -> Call:
    """The call on operands that are elsewhere."""
    return replace(
        call,
        operands=tuple(places.get(o, o) for o in call.operands),
        row_operands=frozenset(places.get(o, o) for o in call.row_operands),
    )


# Any element of so many bytes is moved as an integer.
_MOVED = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}


class _Writer:
    """Writes one function that moves elements."""

    def __init__(self, dtype: str) -> None:
        self.b = Builder(host().lanes)
        self.memory = Memory(self.b)
        self.dtype = dtype

    def entry(self, index: int, kind: str = "i64") -> str:
        place = self.memory.offset("%table", str(index), "i64")
        return self.b.let(f"load {kind}, ptr {place}", "int64").text

    def at(self, base: str, element: str) -> str:
        return self.memory.offset(base, element, MEMORY_TYPES[self.dtype])

    def fill(self, target: str, count: str | int, source: Any) -> None:
        """Write a run: `source(index, mask)` is the vector at an index."""
        for i, mask in self._vectors(str(count)):
            self.memory.store(source(i, mask), target, i, mask)

    def copy(self, source: str, target: str, count: str | int) -> None:
        """Copy a run of elements."""

        def load(i: str, mask: str | None) -> Value:
            return self.memory.load(source, i, self.dtype, mask)

        self.fill(target, count, load)

    def _vectors(self, count: str) -> Iterator[tuple[str, str | None]]:
        b, lanes = self.b, self.b.lanes
        rest = b.integer("and", int(count) if count.isdecimal() else count, lanes - 1)
        whole = b.integer("sub", count, rest)
        with b.loop("0", whole, lanes) as i:
            yield i, None
        with b.loop(whole, count, lanes) as i:
            numbers = ", ".join(f"i32 {k}" for k in range(lanes))
            left = b.splat(b.convert("trunc", Value(rest, "int64"), "int32"))
            first = Value(f"<{numbers}>", "int32", lanes)
            yield i, b.binary("icmp slt", first, left, "bool").text


def emit_run(dtype: str) -> Builder:
    """out[row, offset:] = x[row], a run of elements."""
    w = _Writer(dtype)
    b = w.b
    x, out = w.entry(0, "ptr"), w.entry(1, "ptr")
    run, size, offset = (w.entry(2 + k) for k in range(3))
    with b.loop("%lo", "%hi") as row:
        start = b.integer("add", b.integer("mul", row, size), offset)
        w.copy(w.at(x, b.integer("mul", row, run)), w.at(out, start), run)
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
    code = Code(emit_run, _MOVED[dtypes.itemsize(spec.dtype)])
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
) -> Builder:
    """out = x with `content` around it; a row is one index of the leading axis.

    Args:
        inner: the extents of x behind its leading axis.
        widths: elements before and after, of every axis.
        content: the element to fill with, as hexadecimal bytes.
    """
    w = _Writer(dtype)
    b = w.b
    x, out, rows = w.entry(0, "ptr"), w.entry(1, "ptr"), w.entry(2)
    number = int.from_bytes(bytes.fromhex(content), "little")
    value = b.constant(number, Value("", dtype, b.lanes))
    outer = [n + low + high for n, (low, high) in zip(inner, widths[1:], strict=True)]

    def blank(target: str, count: int) -> None:
        if count:
            w.fill(target, count, lambda i, mask: value)

    def write(axis: int, source: str, target: str) -> None:
        if axis == len(inner):
            w.copy(source, target, 1)
            return
        low, high = widths[axis + 1]
        taken, made = prod(inner[axis + 1 :]), prod(outer[axis + 1 :])
        blank(target, low * made)
        middle = w.at(target, str(low * made))
        if inner[axis + 1 :] == tuple(outer[axis + 1 :]):
            w.copy(source, middle, inner[axis] * taken)
        else:
            with b.loop("0", str(inner[axis])) as i:
                begin = w.at(source, b.integer("mul", i, taken))
                write(axis + 1, begin, w.at(middle, b.integer("mul", i, made)))
        blank(w.at(middle, str(inner[axis] * made)), high * made)

    with b.loop("%lo", "%hi") as row:
        target = w.at(out, b.integer("mul", row, prod(outer)))
        index = b.integer("sub", row, widths[0][0])
        inside = b.let(f"icmp ult i64 {index}, {rows}", "bool").text
        with b.when(inside):
            write(0, w.at(x, b.integer("mul", index, prod(inner))), target)
        outside = b.let(f"icmp uge i64 {index}, {rows}", "bool").text
        with b.when(outside):
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
    moved = _MOVED[dtypes.itemsize(spec.dtype)]
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


def emit_box(dtype: str, index_dtypes: tuple[str, ...], updates: bool) -> Builder:
    """out = a box of x, or x with a box replaced; a row is a line of the box.

    The table holds x, the box or the result, then each axis's start, and as numbers
    each axis's extent in x and in the box. Starts are moved so that the box fits.
    """
    w = _Writer(dtype)
    b, ndim = w.b, len(index_dtypes)
    whole, box = w.entry(0, "ptr"), w.entry(1, "ptr")
    starts = [w.entry(2 + k, "ptr") for k in range(ndim)]
    extents = [w.entry(2 + ndim + k) for k in range(ndim)]
    sizes = [w.entry(2 + 2 * ndim + k) for k in range(ndim)]
    first = []
    for place, extent, size, kind in zip(
        starts, extents, sizes, index_dtypes, strict=True
    ):
        integer = MEMORY_TYPES[kind]
        given = b.let(f"load {integer}, ptr {place}", "int64").text
        if integer != "i64":
            given = b.let(f"sext {integer} {given} to i64", "int64").text
        first.append(b.most(0, b.least(given, b.integer("sub", extent, size))))
    with b.loop("%lo", "%hi") as row:
        left, number, scale = row, first[-1], extents[-1]
        for axis in reversed(range(ndim - 1)):
            index = b.integer("srem", left, sizes[axis])
            left = b.integer("sdiv", left, sizes[axis])
            moved = b.integer("add", index, first[axis])
            number = b.integer("add", number, b.integer("mul", moved, scale))
            scale = b.integer("mul", scale, extents[axis])
        inside = w.at(whole, number)
        line = w.at(box, b.integer("mul", row, sizes[-1]))
        if updates:
            w.copy(line, inside, sizes[-1])
        else:
            w.copy(inside, line, sizes[-1])
    return b


def _boxed(
    x: Operand,
    box: Operand,
    starts: Sequence[Operand],
    operands: tuple[Reference, ...],
    updates: bool,
) -> Call:
    dtype = _MOVED[dtypes.itemsize(x.spec.dtype)]
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


def lower_dynamic_update_slice(
    node: Any, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """x with a box replaced, at starts that are known when it runs."""
    x, update, *starts = inputs
    if not starts or not x.is_contiguous or not update.is_contiguous:
        return None
    copied = lower_copy(node, inputs[:1], outputs)
    if copied is None:
        return None
    places: list[Reference] = [("in", 2 + k) for k in range(len(starts))]
    operands: tuple[Reference, ...] = (("out", 0), ("in", 1), *places)
    boxed = _boxed(x, update, starts, operands, True)
    return Lowered((*copied.calls, boxed), copied.work)
