"""Copies: strided views, concatenation, padding, and slices at dynamic starts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import MOVED, Number, Pointer
from toolkit.backends.numpy.jit.calls import Call, Lowered, Reference, partition
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.fused.elementwise import LEAST_BYTES
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.interleave import (
    MAX_ROW,
    RowPadding,
    RowSegment,
    interleave_call,
)
from toolkit.backends.numpy.jit.processor import current
from toolkit.ir.extents import has_extent, is_always, value_of
from toolkit.plans.loops.nest import collapse_loops
from toolkit.plans.loops.planner import TASKS
from toolkit.plans.operands import Operand

if TYPE_CHECKING:
    from toolkit.ir import Node

# The most arrays, and elements of a row times arrays, that are joined row by row, in
# one pass over the result. Measured for rows of 1, 56 and 1 floats in 7 MB: 0.5 ms
# instead of 1.5.
_MAX_JOINED, _MAX_JOINED_ROW = 8, 1 << 13
# The elements of the longest run that is copied one by one.
_MAX_STRIDED = 32
# The vectors of a run that are copied without a loop.
_MAX_UNROLLED = 8
# Rows with fewer bytes are joined to one row of `emit_pad`. Measured for 400 kB, padded
# on the leading axis: rows of 4 bytes take 1550 us, of 64 bytes 71 us, of 128 bytes
# 46 us.
# One row takes 40 us.
SHORT_ROW = 128


def emit_run(dtype: str, is_cut: bool) -> Kernel:
    """Emit out[row, offset:] = x[row], a run of elements.

    Args:
        dtype: of an element.
        is_cut: whether each run is split into parts, which are the rows of the call.
    """
    b = Kernel(current().lanes)
    x, out = b.address(0), b.address(1, dtype)
    run, size, offset, step, part_count, part_size = (b.entry(2 + k) for k in range(6))
    with b.loop(b.low, b.high) as unit:
        row, number = b.split(unit, part_count) if is_cut else (unit, 0)
        first, end = b.tile_range(number, part_size, run) if is_cut else (0, run)
        source = b.at(x + row * step, first, dtype)
        b.copy(source, out + (row * size + offset + first), end - first, dtype)
    return b


def emit_runs(dtype: str, runs: tuple[tuple[int, int], ...]) -> Kernel:
    """Emit out[row] = the concatenation of x[row] for each x.

    Args:
        dtype: of an element.
        runs: the number of elements in a row of each x, and their stride in bytes.
    """
    b = Kernel(current().lanes)
    arrays = [b.next_address() for _ in runs]
    out, steps = b.next_address(dtype), [b.next_entry() for _ in runs]
    with b.loop(b.low, b.high) as row:
        target = out + row * sum(count for count, _ in runs)
        for x, step, (count, stride) in zip(arrays, steps, runs, strict=True):
            _copy_run(b, x + row * step, stride, target, count, dtype)
            target = target + count
    return b


def _copy_run(
    b: Kernel, source: Pointer, stride: int, target: Pointer, count: int, dtype: str
) -> None:
    """Copy a known number of elements. The last vectors can overlap."""
    if count < b.lanes or stride != dtypes.itemsize(dtype):
        for i in range(count):
            b.put_scalar(b.scalar(source + i * stride, dtype), target + i)
        return
    source = Pointer(b, source.text, target.kind)
    if count <= _MAX_UNROLLED * b.lanes:
        starts = [*range(0, count - b.lanes, b.lanes), count - b.lanes]
        for i in starts:
            b.store(b.load(source, i, dtype, None), target, i, None)
    else:
        b.copy(source, target, count, dtype)


def lower_concatenate(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Lower the concatenation of arrays along an axis."""
    axis, spec = node.attrs["axis"], outputs[0].spec
    if not spec.size:
        return Lowered()
    nonempty = {i: x for i, x in enumerate(inputs) if x.spec.size}
    size = prod(spec.shape[axis:])
    if axis and size <= MAX_ROW:
        if not all(x.is_contiguous for x in inputs):
            return None
        segments = [
            RowSegment(("in", i), prod(x.spec.shape[axis:]))
            for i, x in nonempty.items()
        ]
        by_rows = {("out", 0), *(segment.reference for segment in segments)}
        rows = prod(spec.shape[:axis])
        dtype = MOVED[dtypes.itemsize(spec.dtype)]
        return Lowered((interleave_call(dtype, segments, rows, rows, by_rows),))
    rows, few = prod(spec.shape[:axis]), len(nonempty) <= _MAX_JOINED
    is_short = value_of(size) * len(nonempty) < _MAX_JOINED_ROW
    if few and axis and value_of(rows) >= TASKS and is_short:
        strides = {i: _row_strides(x, axis) for i, x in nonempty.items()}
        known = {i: pair for i, pair in strides.items() if pair is not None}
        if len(known) == len(strides):
            return Lowered((_copy_rows(nonempty, known, axis, rows),))
    calls, offset = [], 0
    for i, x in nonempty.items():
        step = _run_stride(x, axis)
        if step is None:
            return None
        calls.append(_copy_runs(i, x, axis, step, (size, offset)))
        offset += prod(x.spec.shape[axis:])
    return Lowered(tuple(calls))


def _row_strides(x: Operand, axis: int) -> tuple[int, int] | None:
    """Return the byte strides of the runs at `axis` and of their elements.

    The result is None if they vary, or if a long run is not contiguous.
    """
    itemsize = dtypes.itemsize(x.spec.dtype)
    loops, (strides,) = collapse_loops(x.spec.shape, [x.strides], axis)
    inner = strides[loops.rows :]
    if loops.rows > 1 or len(inner) > 1:
        return None
    step = inner[0] if inner else itemsize
    if step != itemsize and prod(x.spec.shape[axis:]) > _MAX_STRIDED:
        return None
    return (strides[0] if loops.rows else 0), step


def _copy_rows(
    inputs: dict[int, Operand],
    strides: dict[int, tuple[int, int]],
    axis: int,
    rows: int,
) -> Call:
    """Return the call that joins the runs of all inputs, row by row."""
    runs = tuple((prod(x.spec.shape[axis:]), strides[i][1]) for i, x in inputs.items())
    dtype = MOVED[dtypes.itemsize(next(iter(inputs.values())).spec.dtype)]
    out: Reference = ("out", 0)
    references: list[Reference] = [("in", i) for i in inputs]
    by_rows = [("in", i) for i, x in inputs.items() if x.is_contiguous]
    return Call(
        Code(emit_runs, dtype, runs),
        (*references, out),
        tuple(strides[i][0] for i in inputs),
        rows,
        partition(rows),
        frozenset({out, *by_rows}),
        nbytes=2 * sum(x.spec.nbytes for x in inputs.values()),
    )


def _copy_runs(
    number: int, x: Operand, axis: int, step: int, target_layout: tuple[int, int]
) -> Call:
    """Return the call that copies the runs of an input.

    Args:
        number, x: the input.
        axis: the axis of the concatenation.
        step: the bytes from one run of x to the next.
        target_layout: the elements of a row of the result, and the offset of x in it.
    """
    operands: tuple[Reference, ...] = (("in", number), ("out", 0))
    rows, run = prod(x.spec.shape[:axis]), prod(x.spec.shape[axis:])
    part_size = -(-run // _parts_per_run(rows, x.spec.nbytes))
    part_count = -(-run // part_size)  # none is empty
    by_rows = operands if x.is_contiguous else operands[1:]
    return Call(
        Code(emit_run, MOVED[dtypes.itemsize(x.spec.dtype)], part_count > 1),
        operands,
        (run, *target_layout, step, part_count, part_size),
        rows * part_count,
        partition(rows * part_count),
        frozenset(by_rows) if axis and part_count == 1 else frozenset(),
        nbytes=2 * x.spec.nbytes,
    )


def _parts_per_run(rows: int, nbytes: int) -> int:
    """Return the number of parts of each run. Only few, long runs are split."""
    is_undivided = value_of(rows) >= TASKS or value_of(nbytes) < 2 * LEAST_BYTES
    return 1 if is_undivided else TASKS // value_of(rows)


def _run_stride(x: Operand, axis: int) -> int | None:
    """Return the stride in bytes of the runs at `axis`, or None if it varies."""
    itemsize = dtypes.itemsize(x.spec.dtype)
    loops, (strides,) = collapse_loops(x.spec.shape, [x.strides], axis)
    inner_strides = strides[loops.rows :]
    if loops.rows > 1 or inner_strides not in ((), (itemsize,)):
        return None
    return strides[0] if loops.rows else 0


def emit_pad(
    dtype: str,
    extents: tuple[int | None, ...],
    pads: tuple[tuple[int | None, ...], ...],
    content: str,
) -> Kernel:
    """Emit out = x with `content` around it. A row is one index of the leading axis.

    Args:
        extents: the extents of x after its leading axis; None: the table contains it.
        pads: the number of elements before and after, for every axis, or None.
        content: the fill element, as hexadecimal bytes.
    """
    b = Kernel(current().lanes)
    x, out, rows = b.next_address(dtype), b.next_address(dtype), b.next_entry()
    inner = [b.next_entry() if n is None else n for n in extents]
    widths = [[b.next_entry() if n is None else n for n in pair] for pair in pads]
    number = int.from_bytes(bytes.fromhex(content), "little")
    value = b.filled(number, dtype)
    outer = [n + low + high for n, (low, high) in zip(inner, widths[1:], strict=True)]

    def fill(target: Pointer, count: Number) -> None:
        if not isinstance(count, int) or count:
            for index, mask in b.run(0, count):
                b.store(value, target, index, mask)

    def write(axis: int, source: Pointer, target: Pointer) -> None:
        if axis == len(inner):
            b.copy(source, target, 1, dtype)
            return
        low, high = widths[axis + 1]
        inner_size, outer_size = prod(inner[axis + 1 :]), prod(outer[axis + 1 :])
        fill(target, low * outer_size)
        middle = target + low * outer_size
        if all(pair == (0, 0) for pair in pads[axis + 2 :]):
            b.copy(source, middle, inner[axis] * inner_size, dtype)
        else:
            with b.loop(0, inner[axis]) as i:
                inner_source = source + i * inner_size
                write(axis + 1, inner_source, middle + i * outer_size)
        fill(middle + inner[axis] * outer_size, high * outer_size)

    with b.loop(b.low, b.high) as row:
        target = out + row * prod(outer)
        index = row - widths[0][0]
        with b.when(b.compare("ult", index, rows)):
            write(0, x + index * prod(inner), target)
        with b.when(b.compare("uge", index, rows)):
            fill(target, prod(outer))
    return b


def lower_pad(
    node: Any, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Lower the padding of x with a constant."""
    spec, result, widths = inputs[0].spec, outputs[0].spec, node.attrs["widths"]
    if not inputs[0].is_contiguous or not spec.ndim:
        return None
    element = np.array(node.attrs["value"]).astype(dtypes.numpy_dtype(spec.dtype))
    moved_dtype = MOVED[dtypes.itemsize(spec.dtype)]
    operands: tuple[Reference, ...] = (("in", 0), ("out", 0))
    if spec.size and result.shape[-1] <= MAX_ROW and not _has_padding(widths[:-1]):
        low, high = widths[-1]
        edge = RowPadding(low, high, int.from_bytes(element.tobytes(), "little"))
        segment, rows = RowSegment(("in", 0), spec.shape[-1]), prod(spec.shape[:-1])
        by_rows = set(operands) if spec.ndim > 1 else set()
        return Lowered(
            (interleave_call(moved_dtype, [segment], rows, rows, by_rows, edge),)
        )
    shape, rows = spec.shape, result.shape[0] if result.size else 0
    by_rows = {operands[1]} if _has_padding(widths[:1]) else set(operands)
    inner_size = prod(shape[1:])
    row_bytes = value_of(inner_size) * dtypes.itemsize(spec.dtype)
    if row_bytes < SHORT_ROW and not _has_padding(widths[1:]):
        # One long row: a row of the kernel takes 10 ns, even if it is one element.
        low, high = widths[0]
        shape, rows = (1, spec.size), min(rows, 1)
        widths = ((0, 0), (low * inner_size, high * inner_size))
        by_rows = set()
    call = Call(
        Code(
            emit_pad,
            moved_dtype,
            _without_extents(shape[1:]),
            tuple(map(_without_extents, widths)),
            element.tobytes().hex(),
        ),
        operands,
        (shape[0], *filter(has_extent, chain(shape[1:], *widths))),
        rows,
        partition(rows),
        frozenset(by_rows),
        nbytes=spec.nbytes + result.nbytes,
    )
    return Lowered((call,))


def _has_padding(widths: Iterable[tuple[int, int]]) -> bool:
    """Return whether any axis is padded, for any value of the free extents."""
    return not all(is_always(n, 0) for n in chain.from_iterable(widths))


def _without_extents(numbers: Sequence[int]) -> tuple[int | None, ...]:
    """Return numbers with None for those that depend on free extents."""
    return tuple([None if has_extent(n) else n for n in numbers])


def emit_box(dtype: str, index_dtypes: tuple[str, ...], updates: bool) -> Kernel:
    """Emit out = a box of x, or x with a box replaced. A row is a line of the box.

    The table holds x, the box or the result, the start of each axis, the extents of x,
    and the extents of the box. Starts are clamped so that the box fits.
    """
    b, ndim = Kernel(current().lanes), len(index_dtypes)
    array, box = b.address(0, dtype), b.address(1, dtype)
    starts = [b.address(2 + k) for k in range(ndim)]
    extents = [b.entry(2 + ndim + k) for k in range(ndim)]
    sizes = [b.entry(2 + 2 * ndim + k) for k in range(ndim)]
    first = [
        b.max(0, b.min(b.integer_at(start, kind), extent - size))
        for start, extent, size, kind in zip(
            starts, extents, sizes, index_dtypes, strict=True
        )
    ]
    with b.loop(b.low, b.high) as row:
        remaining: Number = row
        number = first[-1]
        scale: Number = extents[-1]
        for axis in reversed(range(ndim - 1)):
            index, remaining = remaining % sizes[axis], remaining // sizes[axis]
            number = number + (index + first[axis]) * scale
            scale = scale * extents[axis]
        address = array + number
        line = box + row * sizes[-1]
        source, target = (line, address) if updates else (address, line)
        b.copy(source, target, sizes[-1], dtype)
    return b


def _copy_box(
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
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Lower a slice of x at dynamic starts."""
    x, *starts = inputs
    if not starts or not x.is_contiguous:
        return None
    start_references: list[Reference] = [("in", 1 + k) for k in range(len(starts))]
    operands: tuple[Reference, ...] = (("in", 0), ("out", 0), *start_references)
    return Lowered((_copy_box(x, outputs[0], starts, operands, False),))


def emit_copy_unless_alias(dtype: str) -> Kernel:
    """Emit out[row] = x[row], unless out is x: a Variable that is updated in place."""
    b = Kernel(current().lanes)
    x, out, run = b.address(0, dtype), b.address(1, dtype), b.entry(2)
    with b.when(b.let(f"icmp ne ptr {x}, {out}", "bool")):
        b.copy(x + b.low * run, out + b.low * run, (b.high - b.low) * run, dtype)
    return b


def lower_dynamic_update_slice(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Lower the replacement of a box of x at dynamic starts."""
    x, update, *starts = inputs
    if not starts or not x.is_contiguous or not update.is_contiguous:
        return None
    dtype = MOVED[dtypes.itemsize(x.spec.dtype)]
    run = x.spec.shape[-1]
    rows = x.spec.size // run if run else 0
    copy_call = Call(
        Code(emit_copy_unless_alias, dtype),
        (("in", 0), ("out", 0)),
        (run,),
        rows,
        rows if x.is_replaced else partition(rows),
        nbytes=0 if x.is_replaced else 2 * x.spec.nbytes,
    )
    start_references: list[Reference] = [("in", 2 + k) for k in range(len(starts))]
    operands: tuple[Reference, ...] = (("out", 0), ("in", 1), *start_references)
    box_call = _copy_box(x, update, starts, operands, True)
    return Lowered((copy_call, box_call))
