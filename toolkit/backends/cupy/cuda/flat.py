"""Elementwise bodies: each thread computes adjacent elements with vector accesses."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from toolkit import dtypes
from toolkit.backends.cupy.cuda.batched_launch import make_batched_kernel
from toolkit.backends.cupy.cuda.body import Body, Values, to_storage
from toolkit.backends.cupy.cuda.launch import Launch, Scalar
from toolkit.backends.cupy.cuda.prelude import STORED

THREADS = 256


def emit_flat(body: Body) -> Launch:
    """Return one launch over all elements."""
    body.merge_rows()
    w, count = body.w, prod(body.extents) // body.lanes
    parameters = body.parameters()
    parameters += [body.output(k) for k in range(len(body.plan.writes))]
    parameters.append(("i64", "count", Scalar(count)))
    blocks = -(-count // THREADS)
    w(f"const {body.number} i = ({body.number})blockIdx.x * {THREADS} + threadIdx.x;")
    w("if (i >= count) return;")
    first = len(w.lines)
    _emit_pack(body)
    launch = body.launch("flat", parameters, (blocks, 1, 1), (THREADS, 1, 1))
    if len(body.extents) > 1:
        return launch
    # Without extents in its text, one kernel serves every size and batched launches.
    batched = make_batched_kernel(
        [(ctype, name) for ctype, name, _ in parameters], w.lines[first:]
    )
    return replace(
        launch, kernel=replace(launch.kernel, batched=batched, strides=_strides(body))
    )


def _strides(body: Body) -> tuple[int, ...]:
    """Return the bytes per pack of each pointer's array; 0 for a broadcast scalar."""
    operands: dict[int, int] = {}
    for read, row in zip(body.plan.reads, body.strides, strict=False):
        nbytes = abs(row[-1]) * body.lanes * dtypes.itemsize(read.dtype)
        operands[read.operand] = max(nbytes, operands.get(read.operand, 0))
    writes = [body.lanes * dtypes.itemsize(w.dtype) for w in body.plan.writes]
    return (*(nbytes for _, nbytes in sorted(operands.items())), *writes)


def _emit_pack(body: Body) -> None:
    """Emit the computation of the i-th pack."""
    w, extents, lanes = body.w, list(body.extents), body.lanes
    body.load_constants()
    if body.is_merged:
        _emit_merged(body)
        return
    indices = body.split("i", [*extents[:-1], extents[-1] // lanes], "i")
    if lanes > 1:
        w(f"const {body.number} j0 = {indices[-1]} * {lanes};")
        indices[-1] = "j0"
    values: Values = {}
    wide = []
    for k, read in enumerate(body.plan.reads):
        if ("read", k) in body.constant:
            continue
        if k in body.counting:
            column = f"{indices[-1]} + k" if lanes > 1 else indices[-1]
            wide.append((k, body.column_index(k, column)))
            continue
        offset = body.offset(k, 0, indices)
        pointer = f"{body.pointer(k)} + {offset or 0}"
        if body.strides[k][-1] == 0 or lanes == 1:
            values["read", k] = w.let(read.dtype, f"widen(*({pointer}))")
        elif body.strides[k][-1] == 1:
            pack = f"Pack<{STORED[read.dtype]}, {lanes}>"
            w(f"const {pack} a{k} = *(const {pack}*)({pointer});")
            wide.append((k, f"a{k}.of[k]"))
        else:
            w(f"const {STORED[read.dtype]}* a{k} = {pointer};")
            wide.append((k, f"a{k}[k * {body.strides[k][-1]}]"))
    writes = list(enumerate(body.plan.writes))
    offsets = [body.offset(body.first_write + k, 0, indices) or "0" for k, _ in writes]
    if lanes == 1:
        _emit_lane(body, values, wide)
        for k, _ in writes:
            w(f"q{k}[{offsets[k]}] = y{k};")
        return
    _emit_lanes(body, values, wide, offsets)


def _emit_lanes(
    body: Body, values: Values, wide: list[tuple[int, str]], offsets: list[str]
) -> None:
    """Emit the computation and the store of a pack's elements."""
    w, lanes, writes = body.w, body.lanes, list(enumerate(body.plan.writes))
    for k, write in writes:
        w(f"Pack<{STORED[write.dtype]}, {lanes}> b{k};")
    with w.block("#pragma unroll", f"for (int k = 0; k < {lanes}; ++k)"):
        if body.is_merged:
            w(f"const {body.number} j = j0 + k;")
            indices = body.split("j", body.extents, "i")
            wide = [*wide, *_load_strided(body, indices)]
        _emit_lane(body, values, wide)
        for k, _ in writes:
            w(f"b{k}.of[k] = y{k};")
    for k, write in writes:
        w(f"*(Pack<{STORED[write.dtype]}, {lanes}>*)(q{k} + {offsets[k]}) = b{k};")


def _emit_merged(body: Body) -> None:
    """Emit the i-th pack of whole arrays, which crosses row boundaries."""
    w, wide = body.w, []
    w(f"const {body.number} j0 = i * {body.lanes};")
    for k, read in enumerate(body.plan.reads):
        if body.is_whole(k) and k not in body.counting:
            pack = f"Pack<{STORED[read.dtype]}, {body.lanes}>"
            w(f"const {pack} a{k} = *(const {pack}*)({body.pointer(k)} + j0);")
            wide.append((k, f"a{k}.of[k]"))
    _emit_lanes(body, {}, wide, ["j0"] * len(body.plan.writes))


def _load_strided(body: Body, indices: list[str]) -> list[tuple[int, str]]:
    """Emit loads of the arrays that are not contiguous, at the indices."""
    loads = []
    for k in range(len(body.plan.reads)):
        if k in body.counting:
            loads.append((k, body.column_index(k, indices[-1])))
        elif not body.is_whole(k) and ("read", k) not in body.constant:
            text = f"{body.pointer(k)}[{body.offset(k, 0, indices) or 0}]"
            loads.append((k, text))
    return loads


def _emit_lane(body: Body, values: Values, wide: list[tuple[int, str]]) -> None:
    """Emit one element of each output, named y0, y1, and so on."""
    values = dict(values)
    for k, text in wide:
        values["read", k] = body.w.let(body.plan.reads[k].dtype, f"widen({text})")
    for i in range(len(body.plan.steps)):
        values["step", i] = body.compute(i, values)
    for k, write in enumerate(body.plan.writes):
        text = to_storage(body.value(write.source, values), write.dtype)
        body.w(f"const {STORED[write.dtype]} y{k} = {text};")
