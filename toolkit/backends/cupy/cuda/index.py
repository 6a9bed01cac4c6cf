"""Gather and scatter kernels, with indices that are computed on the device.

Several updates of one element combine in their order. A sort groups updates by
destination, and the first update of each run combines the run. So results are
deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from toolkit.backends.cupy.cuda.launch import Buffer, Launch
from toolkit.backends.cupy.cuda.move import copy
from toolkit.backends.cupy.cuda.prelude import COMPUTED, STORED
from toolkit.backends.cupy.cuda.reduction import power_of_two
from toolkit.backends.cupy.cuda.scalars import CUDAScalars, Value, split
from toolkit.backends.cupy.cuda.sort import PAIRS, pairs_in, sort_pairs
from toolkit.backends.cupy.cuda.threads import Threads, in_units, offset_text, unit_type
from toolkit.plans.loops.iteration_space import index_problem
from toolkit.plans.loops.plan import UPDATES
from toolkit.plans.operands import Operand

if TYPE_CHECKING:
    from toolkit.ir import Node


def generate_gather(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand], aligned: bool
) -> Sequence[Launch] | None:
    """Return the launches of x[..., indices, ...] along an axis."""
    (x, index), (y,), axis = inputs, outputs, node.attrs["axis"]
    extent = x.spec.shape[axis]
    unit, (x, y) = in_units((x, y), aligned and axis < x.spec.ndim - 1)
    return _generate_read(node, x, index, y, unit, extent, index.spec.ndim)


def generate_take_along_axis(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand], aligned: bool
) -> Sequence[Launch] | None:
    """Return the launches that take elements at indices along an axis, elementwise."""
    (x, index), (y,), axis = inputs, outputs, node.attrs["axis"]
    unit, _ = in_units((y,), False)
    return _generate_read(node, x, index, y, unit, x.spec.shape[axis], None)


def _generate_read(
    node: Node,
    x: Operand,
    index: Operand,
    y: Operand,
    unit: int,
    extent: int,
    axes: int | None,
) -> list[Launch]:
    """Return the launches that take elements along an axis.

    `axes` is the number of index axes of the output; None means all.
    """
    name, axis = node.op.name, node.attrs["axis"]
    if not y.spec.size:
        return []
    k = Threads(name, y.spec.shape, x, y)
    k.array(f"const {unit_type(unit)}*", "x", Buffer(0))
    k.source("index", index.spec.dtype, Buffer(1))
    k.array(f"{unit_type(unit)}*", "y", Buffer(2))
    middle = k.indices if axes is None else k.indices[axis : axis + axes]
    k(
        f"const i64 at = checked(index[{offset_text(index, middle)}], "
        f"{extent}, problem);"
    )
    width = 1 if axes is None else axes
    names = [*k.indices[:axis], "at", *k.indices[axis + width :]]
    k(f"if (at >= 0) y[i] = x[{offset_text(x, names, unit)}];")
    return [k.launch(index_problem(name, axis, node.attrs.get("shifted", False)))]


def generate_scatter(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand], aligned: bool
) -> Sequence[Launch] | None:
    """Return the launches that copy x and combine updates into x[..., indices, ...]."""
    (x, index, updates), (y,), axis = inputs, outputs, node.attrs["axis"]
    launches = copy(x, y, (Buffer(0), Buffer(3)), aligned)
    if not updates.spec.size:
        return launches
    launches += _sort_updates(node, index, x.spec.shape[axis], None, 0)
    count, shape = index.spec.size, x.spec.shape
    before, after = shape[:axis], shape[axis + 1 :]
    k = Threads("scatter", (*before, count, *after), updates, y)
    k("const i64 run = " + k.indices[axis] + ";")
    names = [*k.indices[:axis], "key", *k.indices[axis + 1 :]]
    _load_run_target(k, count, shape[axis], f"y[{offset_text(y, names)}]", y)
    with k.block("#pragma unroll 8", "for (i64 n = run; n < end; ++n)"):
        k("const i64 j = pairs[n].at;")
        middle = split(k, "j", index.spec.shape, "j", "i64")
        target_indices = [*k.indices[:axis], *middle, *k.indices[axis + 1 :]]
        _combine(k, node, offset_text(updates, target_indices), y)
    k(f"y[{offset_text(y, names)}] = Narrow<{STORED[y.spec.dtype]}>::of(sum);")
    return [*launches, k.launch()]


def generate_put_along_axis(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand], aligned: bool
) -> Sequence[Launch] | None:
    """Return the launches that copy x and combine updates at indices along an axis."""
    (x, index, updates), (y,), axis = inputs, outputs, node.attrs["axis"]
    launches = copy(x, y, (Buffer(0), Buffer(3)), aligned)
    if not updates.spec.size:
        return launches
    launches += _sort_updates(node, index, x.spec.shape[axis], y, y.spec.size)
    count = index.spec.size
    k = Threads("put_along_axis", (count,), updates, y)
    k("const i64 run = i;")
    _load_run_target(k, count, y.spec.size, "y[key]", y)
    with k.block("#pragma unroll 8", "for (i64 n = run; n < end; ++n)"):
        k("const i64 j = pairs[n].at;")
        target_indices = split(k, "j", index.spec.shape, "j", "i64")
        _combine(k, node, offset_text(updates, target_indices), y)
    k(f"y[key] = Narrow<{STORED[y.spec.dtype]}>::of(sum);")
    return [*launches, k.launch()]


def _sort_updates(
    node: Node, index: Operand, extent: int, y: Operand | None, bad: int
) -> list[Launch]:
    """Return the launches that sort (destination, number of the update) pairs.

    Args:
        node: the node; its axis is the axis of the indices.
        index: the indices.
        extent: of that axis.
        y: the array whose elements are the destinations; None: positions along the
            axis.
        bad: the destination of an index out of range, after all valid ones.
    """
    axis, count = node.attrs["axis"], index.spec.size
    length = power_of_two(count)
    scratch = pairs_in(1, length)
    k = Threads("places", (length,), index, *([y] if y else []))
    k.extra = PAIRS
    k.source("index", index.spec.dtype, Buffer(1))
    k.array("Pair*", "pairs", scratch)
    k("Pair pair;", "pair.at = i;", "pair.key = ~0ull;")
    with k.block(f"if (i < {count})"):
        names = split(k, "i", index.spec.shape, "j", "i64")
        k(
            f"const i64 at = checked(index[{offset_text(index, names)}], "
            f"{extent}, problem);"
        )
        goal = "at"
        if y is not None:
            goal = offset_text(y, [*names[:axis], "at", *names[axis + 1 :]])
        k(f"pair.key = at < 0 ? (u64){bad or extent} : (u64)({goal});")
    k("pairs[i] = pair;")
    first = k.launch(index_problem(node.op.name, axis))
    return [first, *sort_pairs(1, length, scratch)]


def _load_run_target(
    k: Threads, count: int, limit: int, target: str, y: Operand
) -> None:
    """Load the destination element of a run, in the thread of its first update."""
    k.extra = PAIRS
    k.array("const Pair*", "pairs", pairs_in(1, power_of_two(count)))
    k.source("updates", y.spec.dtype, Buffer(2))
    k.target("y", y.spec.dtype, Buffer(3))
    k("const u64 key = pairs[run].key;")
    k(f"if (key >= {limit} || (run && pairs[run - 1].key == key)) return;")
    # A search for the end of the run lets a thread load several updates at once.
    k(f"i64 end = run + 1, behind = {count};")
    with k.block("while (end < behind)"):
        k("const i64 middle = (end + behind) / 2;")
        k("if (pairs[middle].key == key) end = middle + 1; else behind = middle;")
    k(f"{COMPUTED[y.spec.dtype]} sum = widen({target});")


def _combine(k: Threads, node: Node, where: str, y: Operand) -> None:
    """Combine one update into the accumulator of a thread."""
    dtype, mode = y.spec.dtype, node.attrs["mode"]
    update = k.let(dtype, f"widen(updates[{where}])")
    if mode != "set":
        rule = getattr(CUDAScalars(k), UPDATES[mode])
        update = rule(Value("sum", dtype), update)
    k(f"sum = {update.text};")
