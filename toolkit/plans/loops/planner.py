"""The planner: computes the plan of a fused body from its nodes and strides."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from math import prod
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.ir import PRIMITIVES, Graph, Node, Value
from toolkit.ir.extents import are_always, has_extent, is_always, value_of
from toolkit.plans.loops.iteration_space import (
    IterationSpace,
    Shape,
    accesses_row_element,
    classify_reduction,
    is_reduction,
    is_reshape_like,
    iteration_space_of,
    loop_steps,
    uniform_value,
)
from toolkit.plans.loops.nest import (
    Loops,
    broadcast_strides,
    collapse_loops,
    contiguous_row_loops,
    split_strides,
    stride_class,
)
from toolkit.plans.loops.plan import (
    CHECK_INDEX,
    COLUMN,
    FULL,
    GATHER_ELEMENT,
    ONE,
    ROW,
    UPDATE_ELEMENT,
    LoopNest,
    Read,
    SizedNest,
    Source,
    Step,
    Write,
)
from toolkit.plans.loops.rule_digests import rule_digest
from toolkit.plans.operands import Operand
from toolkit.plans.rules import rules

# Number of tasks for the rows of a batch. It does not depend on the thread count.
TASKS = 16
# Rows of up to this number of vectors are kept in registers.
MAX_REGISTER_VECTORS = 2
# Contiguous rows of up to this number of elements are computed with one row in each
# lane. Measured: logsumexp over 2 of 1e5 elements takes 54 us instead of 1040.
MAX_LANE_COLUMNS = 10
# The same for rows without a reduction: their results need shuffles too. Measured for
# 1e5 elements: x > row takes 41 us instead of 13 with 8 columns, 19 both with 4.
_MAX_PLAIN_LANE_COLUMNS = 4
# A sum of all elements is computed in rows of this number of elements.
SUM_BLOCK = 2048


# Operations whose rules treat all numbers alike, and dtypes of their parameters.
_SCALINGS = ("divide", "multiply")
_PARAMETER_DTYPES = ("float32", "float64")


# Larger numbers are no exact counts.
_MAX_COUNT = 1 << 53


def _is_count(number: np.float32 | np.float64) -> bool:
    """Return whether a number is an integer from 3, or the reciprocal of one."""
    value = float(number)  # without a warning for an overflow
    count = value if value >= 1 or value <= 0 else 1 / value
    if not 2 < count <= _MAX_COUNT:
        return False
    nearest = round(count)
    is_exact = nearest == count or type(number)(1 / nearest) == number
    return bool(nearest >= 3 and is_exact)


def _digest_of_step(step: Step) -> str:
    record = PRIMITIVES.get(step.op)
    rule = record.scalar if record else None
    return rule_digest(rule, len(step.arguments), step.attrs)


class NestPlanner:
    """Planner of the loop nest of a body, for operands with given strides.

    Args:
        body: the body.
        inputs: its operands.
        has_parameters: whether the generated function can receive numbers.
    """

    def __init__(
        self, body: Graph, inputs: Sequence[Operand], has_parameters: bool = False
    ) -> None:
        self.body = body
        self._has_parameters = has_parameters
        self.space: IterationSpace = iteration_space_of(body.nodes)
        self.operands: dict[Any, Operand] = dict(zip(body.inputs, inputs, strict=True))
        self.index: dict[Any, int] = {value: k for k, value in enumerate(body.inputs)}
        self.sources: dict[Value, Source] = {}
        self.steps: list[Step] = []
        self.reads: dict[tuple[int, tuple[int, ...]], int] = {}
        # The bits of numbers that are parameters, and their indices.
        self.parameters: dict[int, int] = {}
        columns = self.space.columns or 1
        self.loop_steps: list[int] = loop_steps(body.nodes, self.space)
        self.row_steps: list[int] = [
            s // columns for s in self.loop_steps if s >= columns
        ]
        for node in body.nodes:
            self._visit(node)

    def _full_shapes(self) -> list[Shape]:
        """Return the shapes in which full values are computed."""
        values = [y for node in self.body.nodes for y in node.outputs]
        values += [n.inputs[0] for n in self.body.nodes if is_reduction(n)]
        return [v.spec.shape for v in values if self.space.is_full(v)]

    def _visit(self, node: Node) -> None:
        result = node.outputs[0]
        if is_reshape_like(node):
            x = node.inputs[0]
            self.sources[result] = self._source(x, x.spec.shape)
            return
        if accesses_row_element(node):
            self._add_element_access(node)
            return
        frame = result.spec.shape
        reduces, role = "", self._role_of(frame)
        if is_reduction(node):
            frame = node.inputs[0].spec.shape
            reduces, role = self._role_of(frame), self._reduced_role(node)
        arguments = tuple(self._source(x, frame) for x in node.inputs)
        if self._has_parameters and node.op.name in _SCALINGS:
            arguments = tuple(map(self._as_parameter, arguments))
        attrs = () if reduces else tuple(sorted(node.attrs.items()))
        self.sources[result] = ("step", len(self.steps))
        self.steps.append(
            Step(node.op.name, arguments, attrs, result.spec.dtype, role, reduces)
        )

    def _add_element_access(self, node: Node) -> None:
        """Add a step that reads or updates one element of each row."""
        x, indices, *updates = node.inputs
        index = self._index_check(self._source(indices, indices.spec.shape))
        row = self._source(x, x.spec.shape)
        dtype = node.outputs[0].spec.dtype
        if updates:
            update = self._source(updates[0], indices.spec.shape)
            attrs = (("mode", node.attrs["mode"]),)
            step = Step(UPDATE_ELEMENT, (row, index, update), attrs, dtype, FULL)
        else:
            step = Step(GATHER_ELEMENT, (row, index), (), dtype, ROW)
        self.sources[node.outputs[0]] = ("step", len(self.steps))
        self.steps.append(step)

    def _index_check(self, index: Source) -> Source:
        """Return the step that checks an index; add it if it is new."""
        step = Step(CHECK_INDEX, (index,), (), "int32", ROW)
        if step not in self.steps:
            self.steps.append(step)
        return "step", self.steps.index(step)

    def _role_of(self, frame: Shape) -> str:
        return FULL if prod(frame) == self.space.size else ROW

    def _reduced_role(self, node: Node) -> str:
        if not self.space.is_full(node.inputs[0]):
            return ONE  # it reduces a value with one element for each row
        axes_reduced = classify_reduction(node)
        if axes_reduced == "trailing" or self.space.rows == 1:
            return ROW
        return COLUMN if axes_reduced == "leading" else ONE

    def _source(self, value: Any, frame: Shape) -> Source:
        """Return the source of a value that is read in an iteration over a shape."""
        if value in self.sources:
            return self.sources[value]
        number = uniform_value(value)
        if number is not None:
            return "number", number.tobytes().hex(), value.spec.dtype
        key = (self.index[value], self._strides(value, frame))
        return "read", self.reads.setdefault(key, len(self.reads))

    def _as_parameter(self, source: Source) -> Source:
        """Return a number as a parameter of the function, if it is a count of elements.

        One function then computes means over axes of any extent.
        """
        if source[0] != "number" or source[2] not in _PARAMETER_DTYPES:
            return source
        _, content, dtype = source
        number = np.frombuffer(bytes.fromhex(content), dtype)[0]
        if not _is_count(number):
            return source
        bits = int.from_bytes(bytes.fromhex(content), sys.byteorder)
        index = self.parameters.setdefault(bits, len(self.parameters))
        return "parameter", index, dtype

    def _strides(self, value: Any, frame: Shape) -> tuple[int, ...]:
        """Return the strides of a value along the loops."""
        along = broadcast_strides(self.operands[value], frame)
        if prod(frame) == self.space.size:
            return tuple(split_strides(along, frame, self.loop_steps))
        inner = len(self.loop_steps) - len(self.row_steps)
        return (*split_strides(along, frame, self.row_steps), *[0] * inner)

    def plan(self, lanes: int) -> SizedNest:
        """Return the plan with concrete sizes, for vectors of this number of lanes."""
        steps, split = self.loop_steps, self.space.rows is not None
        extents = [a // b for a, b in zip(steps, steps[1:], strict=False)]
        rows = len(self.row_steps) - 1 if split else 0
        writes = [self._write(y) for y in self.body.outputs]
        strides = [row for _, row in self.reads]
        strides += [self._contiguous_strides(w.role, w.dtype) for w in writes]
        loops, strides = collapse_loops(extents, strides, rows)
        if not loops.extents:
            loops = Loops((1,), 0)
            strides = [*[(0,)] * len(self.reads), *[(1,)] * len(writes)]
        if loops.rows == len(loops.extents):  # each row has one element
            loops = Loops((*loops.extents, 1), loops.rows)
            strides = [(*row, 0) for row in strides]
        loops, strides, ragged = self._split_in_blocks(loops, strides, writes)
        if not split and not ragged:
            loops = Loops(loops.extents, len(loops.extents) - 1)
        across = self._find_transposed_loops(loops, strides, lanes)
        votes = Counter(chain.from_iterable(across))
        transposed_loop = max(votes, key=votes.__getitem__, default=-1)
        registers = (
            self._count_register_vectors(loops, lanes)
            if (split or loops.rows) and transposed_loop < 0
            else 0
        )
        reduces = any(step.reduces for step in self.steps)
        plan = LoopNest(
            reads=tuple(
                self._read(k, row, loops.rows, transposed_loop in loops_across_rows)
                for (k, _), row, loops_across_rows in zip(
                    self.reads, strides, across, strict=False
                )
            ),
            steps=tuple(self.steps),
            writes=tuple(writes),
            row_loops=loops.rows,
            column_loops=len(loops.extents) - loops.rows,
            is_single_row=split and not loops.rows,
            register_vectors=registers,
            lane_columns=self._count_lane_columns(loops, strides, writes)
            if registers and not ragged
            else 0,
            is_ragged=ragged,
            rule_digests=tuple(map(_digest_of_step, self.steps)),
            has_fixed_order=rules.rows_independent and reduces,
            has_fixed_accumulators=rules.keeps_bits and reduces,
            transposed_loop=transposed_loop,
        )
        leading = self._leading_extent(loops, plan)
        parameters = tuple(self.parameters)
        return SizedNest(plan, self.space, loops, strides, leading, parameters)

    def _write(self, value: Any) -> Write:
        source = self.sources[value]
        if source[0] != "step":  # an output that is an input
            role, dtype = self._role_of(value.spec.shape), value.spec.dtype
            copy = Step("stop_gradient", (source,), (), dtype, role)
            source = ("step", len(self.steps))
            self.steps.append(copy)
        step = self.steps[source[1]]
        return Write(source, step.dtype, step.role)

    def _contiguous_strides(self, role: str, dtype: str) -> tuple[int, ...]:
        """Return the strides of a contiguous array of this role."""
        size, rank = dtypes.itemsize(dtype), len(self.loop_steps) - 1
        if role == FULL:
            return tuple(size * step for step in self.loop_steps[1:])
        outer = len(self.row_steps) - 1
        if role == ROW:
            along = [size * step for step in self.row_steps[1:]]
            return (*along, *[0] * (rank - outer))
        if role == COLUMN:
            return (
                *[0] * outer,
                *[size * step for step in self.loop_steps[1 + outer :]],
            )
        return (0,) * rank

    def _split_in_blocks(
        self, loops: Loops, strides: list[tuple[int, ...]], writes: list[Write]
    ) -> tuple[Loops, list[tuple[int, ...]], bool]:
        """Split a sum of all elements into blocks; the last can be shorter."""
        total = any(w.role == ONE for w in writes)
        if not total or self.space.rows is not None or len(loops.extents) > 1:
            return loops, strides, False
        (count,) = loops.extents
        cut: list[tuple[int, ...]] = [(SUM_BLOCK * n, n) for (n,) in strides]
        return Loops((-(-count // SUM_BLOCK), SUM_BLOCK), 1), cut, True

    def _find_transposed_loops(
        self, loops: Loops, strides: list[tuple[int, ...]], lanes: int
    ) -> list[list[int]]:
        """Return, for each read, the row loops along which it is contiguous."""
        columns = len(loops.extents) - loops.rows
        is_plain = all(step.role == FULL and not step.reduces for step in self.steps)
        if columns != 1 or not is_plain or not lanes:
            return [[] for _ in self.reads]
        return [
            contiguous_row_loops(loops, row, self._itemsize(key), 4 * lanes)
            for (key, _), row in zip(self.reads, strides, strict=False)
        ]

    def _read(
        self, key: int, strides: tuple[int, ...], rows: int, is_transposed: bool
    ) -> Read:
        dtype = self.body.inputs[key].spec.dtype
        inner = stride_class(strides[-1], self._itemsize(key))
        by_row, by_column = any(strides[:rows]), any(strides[rows:])
        return Read(key, dtype, inner, by_row, by_column, is_transposed)

    def _itemsize(self, key: int) -> int:
        return dtypes.itemsize(self.body.inputs[key].spec.dtype)

    def _count_register_vectors(self, loops: Loops, lanes: int) -> int:
        """Return the number of vectors in a short row; 0 if rows are long."""
        columns = loops.extents[loops.rows :]
        if has_extent(tuple(columns)):
            return 0
        if len(columns) > 1 or columns[0] > MAX_REGISTER_VECTORS * lanes:
            return 0
        return -(-columns[0] // lanes)

    def _count_lane_columns(
        self, loops: Loops, strides: Sequence[tuple[int, ...]], writes: Sequence[Write]
    ) -> int:
        """Return the elements of a row if each lane can compute one row; otherwise 0.

        Rows then have no fixed order of summation: a single row is a vector.
        """
        if loops.rows != 1 or rules.rows_independent:
            return 0
        columns = loops.extents[1]
        is_plain = all(
            step.role in (FULL, ROW)
            and step.reduces in ("", FULL)
            and step.op in PRIMITIVES
            for step in self.steps
        )
        reduces = any(step.reduces for step in self.steps)
        maximum = MAX_LANE_COLUMNS if reduces else _MAX_PLAIN_LANE_COLUMNS
        if not is_plain or not 1 < columns <= maximum:
            return 0
        sizes = [self._itemsize(key) for key, _ in self.reads]
        sizes += [dtypes.itemsize(write.dtype) for write in writes]
        for (row, column), size in zip(strides, sizes, strict=True):
            # An operand has contiguous rows, one element for each row, or one row.
            expected = (columns * size, size), (size, 0), (0, size), (0, 0)
            if not any(are_always((row, column), pair) for pair in expected):
                return 0
        return columns

    def _leading_extent(self, loops: Loops, plan: LoopNest) -> int:
        """Return the extent to divide into tasks: the leading extent of the values."""
        first = loops.extents[0]
        if plan.has_fixed_order and plan.combines_tasks:
            if plan.is_ragged:
                return first
            # Only summed values count, so fusion does not change the order of sums.
            summed_shapes = [
                node.inputs[0].spec.shape
                for node in self.body.nodes
                if is_reduction(node)
            ]
            leading = next((n for n in summed_shapes[0] if n > 1), 1)
            return leading if is_always(first % leading, 0) else first
        shapes = [shape for shape in self._full_shapes() if any(n > 1 for n in shape)]
        leading = min((next(n for n in s if n > 1) for s in shapes), default=1)
        # A few large images: divide further, so that all threads have tasks.
        is_few = value_of(leading) < TASKS and value_of(first // leading) >= TASKS
        is_divided = is_always(first % leading, 0)
        return leading if is_divided and not is_few else first
