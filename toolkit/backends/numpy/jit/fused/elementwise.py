"""Lowering of fused bodies to calls: elementwise nodes and reductions."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import MEMORY_TYPES, MOVED
from toolkit.backends.numpy.jit.calls import (
    ERROR,
    Call,
    Lowered,
    Lowering,
    Reference,
    partition,
    redirect_operands,
)
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.fused.nest import emit_plan
from toolkit.backends.numpy.jit.fused.partials import emit_combination
from toolkit.backends.numpy.jit.kernels.interleave import (
    MAX_ROW,
    RowSegment,
    interleave_call,
)
from toolkit.backends.numpy.jit.math.narrow import converts
from toolkit.backends.numpy.jit.processor import current
from toolkit.backends.numpy.jit.scalars import LLVMScalars
from toolkit.ir import PRIMITIVES, Graph, Node, Value, cast_node
from toolkit.ir.extents import is_always, smallest, value_of
from toolkit.plans.loops.iteration_space import (
    REDUCTIONS,
    accesses_row_element,
    can_share_loop,
    index_problem,
    is_reduction,
    is_reshape_like,
    uniform_value,
)
from toolkit.plans.loops.nest import collapse_loops, contiguous_row_loops
from toolkit.plans.loops.phases import Phases, step_cost as cost_of
from toolkit.plans.loops.plan import COLUMN, FULL, ONE, SizedNest
from toolkit.plans.loops.planner import NestPlanner
from toolkit.plans.loops.rule_digests import scalar_operations_of
from toolkit.plans.loops.structure import structure_of
from toolkit.plans.operands import Operand, align_up, contiguous
from toolkit.plans.rules import rules

DTYPES = (
    *("bool", "int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64", "float32", "float64"),
)
# The fewest rows of a group for which vectorized interleaving pays.
_MIN_GROUP_ROWS = 64
# Elements of one task if no leading extent divides the work.
GRAIN = 32768
# Work with less memory traffic than this number of bytes is one task.
LEAST_BYTES = 1 << 15
# Lowered bodies by structure and operands: most networks repeat their layers.
_lowered_bodies: dict[Hashable, Lowered] = {}
_UNSUPPORTED = Lowered()  # represents None
_MAX_LOWERED_BODIES = 1024


def is_fusable(node: Node) -> bool:
    """Return whether a node can be part of a generated kernel."""
    dtypes = [v.spec.dtype for v in (*node.inputs, *node.outputs)]
    if node.op.name == "cast" and converts(*dtypes):
        return True
    if any(dtype not in DTYPES for dtype in dtypes):
        return False
    if node.op.name in REDUCTIONS:
        return is_reduction(node) or is_reshape_like(node)
    if accesses_row_element(node):
        return True
    if node.op.scalar is None:
        return False
    return all(
        LLVMScalars.has(name, dtype) for name, dtype in scalar_operations_of(node)
    )


def lower_fused(
    body: Graph, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Return the calls of a body: one for its loops, one for each sum over tasks."""
    structure = structure_of(body)
    if structure is None:
        return _lower(body, inputs, outputs)
    operands = tuple(inputs), tuple(outputs)
    key = structure, operands, current(), rules.rows_independent
    lowered = _lowered_bodies.get(key)
    if lowered is None:
        if len(_lowered_bodies) >= _MAX_LOWERED_BODIES:
            _lowered_bodies.clear()
        lowered = _lowered_bodies[key] = _lower(body, inputs, outputs) or _UNSUPPORTED
    return None if lowered is _UNSUPPORTED else lowered


def _lower(
    body: Graph, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    if any(y.spec.size == 0 for y in outputs):
        return Lowered()
    if not can_share_loop(body.nodes) or _reads_constant_arrays(body):
        return None
    planned = NestPlanner(body, inputs, has_parameters=True).plan(current().lanes)
    if planned.plan.accesses_elements and planned.plan.column_loops > 1:
        return None
    transposed_operands = _find_transposed_operands(planned)
    nbytes = sum(inputs[i].spec.nbytes for i in transposed_operands)
    if transposed_operands and value_of(nbytes) > LEAST_BYTES:
        copies = {i: contiguous(inputs[i].spec) for i in transposed_operands}
        return lower_with_copies(copies, lower_fused, body, inputs, outputs)
    return _FusedLowering(planned, inputs, outputs, _index_message(body)).lower()


def _reads_constant_arrays(body: Graph) -> bool:
    """Return whether a node reads an array that no input of the body supplies.

    In a program such an array is an input. The body of a composite can contain one.
    """
    supplied = {*body.inputs, *(y for node in body.nodes for y in node.outputs)}
    read = {x for node in body.nodes for x in node.inputs}
    return any(uniform_value(x) is None for x in read - supplied)


def _find_transposed_operands(planned: SizedNest) -> list[int]:
    """Return the operands that are contiguous across rows but not transposed."""
    operands = [
        read.operand
        for read, strides in zip(planned.plan.reads, planned.strides, strict=False)
        if not read.is_transposed
        and contiguous_row_loops(
            planned.loops,
            strides,
            dtypes.itemsize(read.dtype),
            4 * current().lanes,
        )
    ]
    return list(dict.fromkeys(operands))


def _index_message(body: Graph) -> str:
    """Return the message for a bad index."""
    for node in body.nodes:
        if accesses_row_element(node):
            shifted = node.attrs.get("shifted", False)
            return index_problem(node.op.name, node.attrs["axis"], shifted)
    return ""


@dataclass
class _FusedLowering:
    """Builder of the calls of a plan."""

    planned: SizedNest
    inputs: Sequence[Operand]
    outputs: Sequence[Operand]
    problem: str

    def __post_init__(self) -> None:
        self.plan = self.planned.plan
        extents = self.planned.loops.extents
        self.nbytes = sum(x.spec.nbytes for x in (*self.inputs, *self.outputs))
        self.first = 1 if self.plan.is_single_row else extents[0]
        self.rows = 1 if self.plan.is_single_row else self.planned.leading
        self.grain = self._grain()
        self.tasks = -(-self.rows // self.grain)
        self.work = 0

    def _grain(self) -> int:
        if self.plan.has_fixed_order and self.plan.combines_tasks:
            return partition(self.rows)
        if value_of(self.nbytes) <= LEAST_BYTES:
            return self.rows
        is_undivided = self.plan.is_flat and self.rows == self.first
        grain = partition(self.rows)
        return smallest(GRAIN, grain) if is_undivided else grain

    def _allocate_scratch(self, nbytes: int) -> Reference:
        """Allocate scratch memory."""
        start, self.work = self.work, self.work + align_up(nbytes)
        return "work", start

    def lower(self) -> Lowered:
        """Return the calls with their shared scratch memory."""
        plan, loops = self.plan, self.planned.loops
        operands: list[Reference] = [("in", read.operand) for read in plan.reads]
        partials, combinations = [], []
        for k, write in enumerate(plan.writes):
            step = 0
            if write.role in (COLUMN, ONE) and value_of(self.tasks) > 1:
                step = align_up(self.outputs[k].spec.nbytes)
                partials_at = self._allocate_scratch(step * self.tasks)
                operands.append(partials_at)
                combinations.append(self._combination(k, partials_at, step))
            else:
                operands.append(("out", k))
            partials.append(step)
        columns = 1
        for n in loops.extents[loops.rows :]:
            columns *= n
        buffer = align_up(8 * columns)
        buffered_steps = [] if plan.register_vectors else Phases(plan).buffered_steps
        buffers = (
            self._allocate_scratch(buffer * len(buffered_steps) * self.tasks)
            if buffered_steps
            else None
        )
        operands.append(buffers or operands[0])
        if plan.accesses_elements:
            operands.append(ERROR)
        call = Call(
            Code(emit_plan, plan),
            tuple(operands),
            (
                self.first // self.rows,
                self.grain,
                self.planned.space.size,
                buffer * len(buffered_steps),
                buffer,
                *loops.extents,
                *partials,
                *(n for row in self.planned.strides for n in row),
                *self.planned.parameters,
            ),
            rows=self.rows,
            grain=self.grain,
            row_operands=self._row_operands(operands),
            flops=self._flops(),
            nbytes=self.nbytes,
            problem=self.problem,
        )
        return Lowered((call, *combinations), self.work)

    def _combination(self, write: int, partials: Reference, step: int) -> Call:
        spec = self.outputs[write].spec
        op = self.plan.steps[self.plan.writes[write].source[1]].op
        return Call(
            Code(emit_combination, op, spec.dtype),
            (partials, ("out", write)),
            (self.tasks, step),
            rows=spec.size,
            grain=spec.size,
            nbytes=spec.nbytes * (self.tasks + 1),
        )

    def _row_operands(self, operands: Sequence[Reference]) -> frozenset[Reference]:
        """Return the operands that divide along the rows of the call."""
        plan, row_operands = self.plan, []
        if plan.is_single_row or plan.is_ragged:
            return frozenset()
        arrays = [self.inputs[read.operand] for read in plan.reads]
        arrays += [self.outputs[k] for k in range(len(plan.writes))]
        for operand, array, strides in zip(
            operands, arrays, self.planned.strides, strict=False
        ):
            if operand[0] == "work":
                continue
            step = strides[0] * self.first
            covers_array = array.is_contiguous and is_always(step, array.spec.nbytes)
            if covers_array or (
                array.count_local_rows(array, 0) > 0
                and is_always(step, array.spec.shape[0] * array.strides[0])
            ):
                row_operands.append(operand)
        return frozenset(row_operands)

    def _flops(self) -> int:
        cost = sum(cost_of(s.op) for s in self.plan.steps if s.role == FULL)
        cost += sum(1 for s in self.plan.steps if s.reduces == FULL)
        return cost * self.planned.space.size


# --- copies -------------------------------------------------------------------------


def lower_copy(
    node: Any, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Lower a copy of a view to a contiguous array."""
    source = inputs[0]
    short_copy = _copy_short_rows(source)
    if short_copy:
        return Lowered((short_copy,))
    if source.spec.dtype not in MEMORY_TYPES:
        moved_dtype = MOVED[dtypes.itemsize(source.spec.dtype)]
        source = Operand(source.spec.with_dtype(moved_dtype), source.strides)
    spec = source.spec
    x, y = Value(spec), Value(spec)
    copy = Node(PRIMITIVES["stop_gradient"], (x,), {}, (y,))
    return lower_fused(Graph((x,), (copy,), (y,)), [source], [contiguous(spec)])


def _copy_short_rows(x: Operand) -> Call | None:
    """Return a copy of strided rows of a few elements, if columns are contiguous.

    This covers channels that move after pixels, and repeated elements.
    """
    itemsize, columns = dtypes.itemsize(x.spec.dtype), x.spec.shape[-1:]
    if not x.spec.size or not columns or not 1 < columns[0] <= MAX_ROW:
        return None
    loops, (strides,) = collapse_loops(x.spec.shape, [x.strides], x.spec.ndim - 1)
    *steps, last, column_stride = 0, *strides
    count = loops.extents[loops.rows - 1] if loops.rows else 0
    if loops.rows not in (1, 2) or last != itemsize or count < _MIN_GROUP_ROWS:
        return None
    reference: Reference = ("in", 0)
    segments = [
        RowSegment(reference, 1, k * column_stride, steps[-1])
        for k in range(columns[0])
    ]
    rows = prod(loops.extents[: loops.rows])
    return interleave_call(MOVED[itemsize], segments, rows, count, {("out", 0)})


def lower_with_copies(
    copies: Mapping[int, Operand],
    lower_node: Lowering,
    argument: Any,
    inputs: Sequence[Operand],
    outputs: Sequence[Operand],
) -> Lowered | None:
    """Return the calls of a node after copies of some inputs.

    Args:
        copies: the operands that the node reads instead, by input number.
        lower_node, argument, inputs, outputs: the lowering and its arguments.
    """
    read = [copies.get(i, x) for i, x in enumerate(inputs)]
    lowered = lower_node(argument, read, outputs)
    if lowered is None:
        return None
    calls: list[Any] = []
    references: dict[Reference, Reference] = {}
    work = lowered.work
    for i, copy in copies.items():
        reference = references["in", i] = "work", align_up(work)
        replacements = {("in", 0): ("in", i), ("out", 0): reference}
        size = align_up(copy.spec.nbytes)
        copying = (
            replace(call, prepares=size) for call in _copy_calls(inputs[i], copy)
        )
        calls += [redirect_operands(call, replacements) for call in copying]
        work = reference[1] + size
    calls += [redirect_operands(call, references) for call in lowered.calls]
    return Lowered(calls, work)


def _copy_calls(source: Operand, copy: Operand) -> Sequence[Call]:
    """Return the calls that copy an operand in row-major order."""
    if source.spec.dtype == copy.spec.dtype:
        lowered = lower_copy(None, [source], [copy])
    else:
        cast = cast_node(Value(source.spec), Value(copy.spec))
        body = Graph(cast.inputs, (cast,), cast.outputs)
        lowered = lower_fused(body, [source], [copy])
    assert lowered is not None and not lowered.work
    return lowered.calls
