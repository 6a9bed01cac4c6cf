"""Kernels that move elements without arithmetic, so only the element size matters."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from toolkit import dtypes
from toolkit.backends.cupy.cuda.body import kernel_text
from toolkit.backends.cupy.cuda.fused import generate_single
from toolkit.backends.cupy.cuda.launch import Buffer, Launch, make_kernel
from toolkit.backends.cupy.cuda.prelude import STORED
from toolkit.backends.cupy.cuda.scalars import SourceWriter, split
from toolkit.backends.cupy.cuda.threads import (
    Threads,
    in_units,
    offset_text,
    span,
    unit_type,
)
from toolkit.ir import Spec
from toolkit.plans.loops.nest import collapse_loops
from toolkit.plans.operands import Operand, contiguous

if TYPE_CHECKING:
    from toolkit.ir import Node

# The side of a tile that a block transposes in shared memory, and the number of its
# lines that the threads move at once.
TILE, LINES = 32, 8
# Maximum number of inputs that one launch concatenates; more add tests per element.
MAX_INPUTS = 8


def copy(
    source: Operand,
    target: Operand,
    buffers: tuple[Buffer, Buffer],
    aligned: bool,
    first: int = 0,
) -> list[Launch]:
    """Return the launch that copies an array into another of its shape, or into a part.

    Args:
        source, target: arrays of one shape and element size.
        buffers: their addresses.
        aligned: whether those are multiples of 16.
        first: the offset in the target's buffer, in elements.
    """
    if not source.spec.size:
        return []
    shape, (x, y) = _collapse_axes(source, target)
    if len(shape) > 1 and y.strides[-1] != x.strides[-1]:
        size = dtypes.itemsize(x.spec.dtype)
        inner = [a for a, stride in enumerate(x.strides) if stride == size]
        if inner and y.strides[-1] == size and min(shape[inner[0]], shape[-1]) >= 8:
            return [_transpose_tiled(x, y, inner[0], buffers, first)]
    unit, (x, y) = in_units((x, y), aligned, first)
    k = Threads("copy", x.spec.shape, x, y)
    k.array(f"const {unit_type(unit)}*", "x", buffers[0])
    k.array(f"{unit_type(unit)}*", "y", buffers[1])
    start = first * dtypes.itemsize(source.spec.dtype) // unit
    to = f"{offset_text(y, k.indices, unit)} + {start}"
    k(f"y[{to}] = x[{offset_text(x, k.indices, unit)}];")
    return [k.launch()]


def _collapse_axes(*operands: Operand) -> tuple[tuple[int, ...], list[Operand]]:
    """Return arrays of one shape, collapsed to the fewest axes."""
    spec = operands[0].spec
    loops, strides = collapse_loops(spec.shape, [x.strides for x in operands], 0)
    specs = (x.spec.with_shape(loops.extents) for x in operands)
    pairs = zip(specs, strides, strict=True)
    return loops.extents, [Operand(spec, row) for spec, row in pairs]


def _transpose_tiled(
    x: Operand, y: Operand, axis: int, buffers: tuple[Buffer, Buffer], first: int
) -> Launch:
    """Copy through tiles in shared memory, so that both accesses are coalesced.

    `axis` is contiguous in the source, and the last axis is contiguous in the target.
    """
    w, shape, last = SourceWriter(), x.spec.shape, x.spec.ndim - 1
    unit = dtypes.itemsize(x.spec.dtype)
    outer = [a for a in range(last) if a != axis]
    squares = [-(-shape[axis] // TILE), -(-shape[last] // TILE)]
    w(f"__shared__ {unit_type(unit)} tile[{TILE}][{TILE + 1}];")
    w("const int tx = threadIdx.x, ty = threadIdx.y;")
    counts = [*(shape[a] for a in outer), *squares]
    limit = max(span(x), span(y), first, prod(counts) * TILE * TILE)
    number = "int" if 2 * limit < 2**31 else "i64"
    *lead, row, column = split(w, f"({number})blockIdx.x", counts, "o", number)
    names = {axis: "a", last: "b", **dict(zip(outer, lead, strict=True))}
    indices = [names[a] for a in range(x.spec.ndim)]
    for one, other, line in (
        ("tx", "k", f"tile[k][tx] = x[{offset_text(x, indices, unit)}];"),
        ("k", "tx", f"y[{offset_text(y, indices, unit)} + {first}] = tile[tx][k];"),
    ):
        with w.block(f"for (int k = ty; k < {TILE}; k += {LINES})"):
            w(f"const {number} a = {row} * {TILE} + {one};")
            w(f"const {number} b = {column} * {TILE} + {other};")
            w(f"if (a < {shape[axis]} && b < {shape[last]}) {line}")
        w("__syncthreads();")
    ctype = unit_type(unit)
    parameters = [(f"const {ctype}*", "x", buffers[0]), (f"{ctype}*", "y", buffers[1])]
    text = kernel_text(parameters, TILE * LINES, w.text)
    kernel = make_kernel("turn", text, [p[0] for p in parameters])
    return Launch(kernel, (prod(counts), 1, 1), (TILE, LINES, 1), buffers)


def generate_copy(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand], aligned: bool
) -> Sequence[Launch] | None:
    """Return the launches that copy or bitcast a view into a new array."""
    (x,), (y,), attrs = inputs, outputs, node.attrs
    name, shape = node.op.name, y.spec.shape
    if name == "transpose":
        x = Operand(
            x.spec.with_shape(shape), tuple(x.strides[a] for a in attrs["axes"])
        )
    elif name == "broadcast_to":
        new_axes = len(shape) - x.spec.ndim
        pairs = zip(x.spec.shape, x.strides, strict=True)
        strides = [0] * new_axes + [0 if n == 1 else stride for n, stride in pairs]
        x = Operand(x.spec.with_shape(shape), tuple(strides))
    elif name == "stop_gradient" and x.is_contiguous and x.spec.dtype in STORED:
        # A flat kernel that can join a batched launch.
        return generate_single(node, inputs, outputs, aligned)
    else:
        # The same elements in the same order: the target takes the source's shape.
        y = contiguous(x.spec)
    return copy(x, y, (Buffer(0), Buffer(1)), aligned)


def generate_slice(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand], aligned: bool
) -> Sequence[Launch] | None:
    """Return the launches of a strided slice."""
    (x,), (y,) = inputs, outputs
    if not y.spec.size:
        return []
    k = Threads("slice", y.spec.shape, x, y)
    _declare(k, y, 1)
    rows = zip(k.indices, node.attrs["start"], node.attrs["step"], strict=True)
    names = [f"({start} + {i} * ({step}))" for i, start, step in rows]
    k(f"y[i] = x[{offset_text(x, names) if names else 0}];")
    return [k.launch()]


def _declare(k: Threads, y: Operand, out: int) -> None:
    """Declare the first input as x and the output as y, with opaque elements."""
    ctype = unit_type(dtypes.itemsize(y.spec.dtype))
    k.array(f"const {ctype}*", "x", Buffer(0))
    k.array(f"{ctype}*", "y", Buffer(out))


def generate_concatenate(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand], aligned: bool
) -> Sequence[Launch] | None:
    """Use one launch for row-major inputs, and one copy per input otherwise."""
    (y,), axis = outputs, node.attrs["axis"]
    if len(inputs) <= MAX_INPUTS and all(x.is_contiguous for x in inputs):
        return _concatenate_inputs(inputs, y, axis, aligned)
    launches, first = [], 0
    for number, x in enumerate(inputs):
        view = Operand(x.spec, y.strides)
        buffers = Buffer(number), Buffer(len(inputs))
        launches += copy(x, view, buffers, aligned, first)
        step = y.strides[axis] // dtypes.itemsize(y.spec.dtype)
        first += x.spec.shape[axis] * step
    return launches


def _concatenate_inputs(
    inputs: Sequence[Operand], y: Operand, axis: int, aligned: bool
) -> list[Launch]:
    """Return the launch in which every thread finds the input of its element."""
    if not y.spec.size:
        return []
    full = [i for i, x in enumerate(inputs) if x.spec.size]
    unit, (y, *inputs_read) = in_units((y, *(inputs[i] for i in full)), aligned)
    k = Threads("concatenate", y.spec.shape, y)
    for number in full:
        k.array(f"const {unit_type(unit)}*", f"x{number}", Buffer(number))
    k.array(f"{unit_type(unit)}*", "y", Buffer(len(inputs)))
    at, first, lines = k.indices[axis], 0, []
    for number, x in zip(full, inputs_read, strict=True):
        names = [*k.indices[:axis], f"({at} - {first})", *k.indices[axis + 1 :]]
        first += x.spec.shape[axis]
        line = f"y[i] = x{number}[{offset_text(x, names, unit)}];"
        lines.append(line if number == full[-1] else f"if ({at} < {first}) {line} else")
    k(*lines)
    return [k.launch()]


def generate_pad(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand], aligned: bool
) -> Sequence[Launch] | None:
    """Return the launches that pad an array with a number."""
    (x,), (y,), widths = inputs, outputs, node.attrs["widths"]
    if not y.spec.size:
        return []
    unit = dtypes.itemsize(y.spec.dtype)
    with np.errstate(over="ignore"):  # the number can be infinite in half precision
        kind = dtypes.numpy_dtype(y.spec.dtype)
        raw = np.asarray(node.attrs["value"], kind).tobytes()
    if widths and not any(widths[-1]) and not any(raw):
        unit, (x, y) = in_units((x, y), aligned)
    ctype = unit_type(unit)
    k = Threads("pad", y.spec.shape, x, y)
    k.array(f"const {ctype}*", "x", Buffer(0))
    k.array(f"{ctype}*", "y", Buffer(1))
    names, tests = [], ["true"]
    for i, n, (low, high) in zip(k.indices, x.spec.shape, widths, strict=True):
        names.append(f"({i} - {low})" if low else i)
        tests += [f"{names[-1]} >= 0"] * bool(low) + [f"{names[-1]} < {n}"] * bool(high)
    bits = int.from_bytes(raw, "little") if unit == len(raw) <= 8 else 0
    k(f"{ctype} value = {f'({ctype}){bits}ull' if bits else '{}'};")
    if x.spec.size:
        k(f"if ({' && '.join(tests)}) value = x[{offset_text(x, names, unit)}];")
    k("y[i] = value;")
    return [k.launch()]


def generate_dynamic_slice(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand], aligned: bool
) -> Sequence[Launch] | None:
    """Return the launches of a slice at starts that are computed on the device."""
    (x, *starts), (y,) = inputs, outputs
    if not y.spec.size:
        return []
    k = Threads("dynamic_slice", y.spec.shape, x, y)
    _declare(k, y, len(inputs))
    names = _clamp_starts(k, starts, 1, x.spec, y.spec)
    k(f"y[i] = x[{offset_text(x, names)}];")
    return [k.launch()]


def generate_dynamic_update_slice(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand], aligned: bool
) -> Sequence[Launch] | None:
    """Return the launches that copy x and overwrite a slice at computed starts."""
    (x, update, *starts), (y,) = inputs, outputs
    launches = copy(x, y, (Buffer(0), Buffer(len(inputs))), aligned)
    if not update.spec.size:
        return launches
    k = Threads("dynamic_update", update.spec.shape, update, y)
    ctype = unit_type(dtypes.itemsize(y.spec.dtype))
    k.array(f"const {ctype}*", "x", Buffer(1))
    k.array(f"{ctype}*", "y", Buffer(len(inputs)))
    names = _clamp_starts(k, starts, 2, y.spec, update.spec)
    k(f"y[{offset_text(y, names)}] = x[{offset_text(update, k.indices)}];")
    return [*launches, k.launch()]


def _clamp_starts(
    k: Threads, starts: Sequence[Operand], first: int, full: Spec, box: Spec
) -> list[str]:
    """Return the indices of a box, with its starts clamped so that it fits."""
    names = []
    for a, (start, i) in enumerate(zip(starts, k.indices, strict=True)):
        k.source(f"start{a}", start.spec.dtype, Buffer(first + a))
        limit = full.shape[a] - box.shape[a]
        k(f"const i64 asked{a} = start{a}[0];")
        k(f"const i64 at{a} = max(min(asked{a}, (i64){limit}), (i64)0);")
        names.append(f"({i} + at{a})")
    return names
