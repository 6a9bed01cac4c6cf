"""CUDA code of a fused body: its operands, and how it loads and stores elements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.backends.cupy.cuda.launch import (
    Argument,
    Buffer,
    Launch,
    Problem,
    make_kernel,
)
from toolkit.backends.cupy.cuda.prelude import COMPUTED, PRELUDE, STORED
from toolkit.backends.cupy.cuda.scalars import (
    CUDAScalars,
    SourceWriter,
    Value,
    literal,
    split,
)
from toolkit.backends.memory import to_host
from toolkit.ir import PRIMITIVES, Graph, Kind
from toolkit.plans.loops.iteration_space import suffix_products
from toolkit.plans.loops.plan import (
    CHECK_INDEX,
    COLUMN,
    FULL,
    GATHER_ELEMENT,
    UPDATE_ELEMENT,
    SizedNest,
    Source,
)
from toolkit.plans.loops.planner import NestPlanner
from toolkit.plans.operands import Operand
from toolkit.plans.rules import rules

Values = dict[Source, Value]
# The column of the current element.
COLUMN_NUMBER: Source = ("column",)
# Bytes of the widest memory access.
MAX_ACCESS_BYTES = 16
# Rows of at least this many packs are worth extra code at their ends.
LONG_ROW = 32


class GPUPlanner(NestPlanner):
    """Planner without the blocks in which a CPU's threads share a sum."""

    def _split_in_blocks(self, loops: Any, strides: Any, writes: Any) -> Any:
        return loops, strides, False


class Body:
    """Common state of the kernels of a fused body.

    Attributes:
        plan: the loop nest: its reads, steps and writes.
        extents: of the loops, rows first.
        strides: of every read, then of every write, along the loops, in elements.
        lanes: the number of adjacent elements that a thread accesses at once.
        shift: an array that gives the misalignment of the start of rows; None if all
            rows are aligned to the lanes.
        is_merged: whether packs cross row boundaries, for any extents.
        has_fixed_order: whether the order of sums depends on the extents only.
        counting: the reads that hold the index of each column, so they need no memory.
        number: the C type of an index.
    """

    def __init__(
        self,
        graph: Graph,
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
        aligned: bool,
    ) -> None:
        planned: SizedNest = GPUPlanner(graph, inputs).plan(0)
        self.plan = planned.plan
        self.extents: tuple[int, ...] = planned.loops.extents
        self.row_loops: int = self.plan.row_loops
        arrays: list[Any] = [*self.plan.reads, *self.plan.writes]
        self.strides: list[tuple[int, ...]] = [
            tuple(stride // dtypes.itemsize(array.dtype) for stride in row)
            for array, row in zip(arrays, planned.strides, strict=True)
        ]
        self.rows: int = prod(self.extents[: self.row_loops])
        self.columns: int = prod(self.extents[self.row_loops :])
        self.counting: frozenset[int] = frozenset(
            k
            for k, read in enumerate(self.plan.reads)
            if read.by_column and not read.by_row and self._is_counting(k, graph)
        )
        self.aligned = aligned
        # The lanes determine the order of a sum. It must not depend on the address of
        # rows in a batch, so these kernels have the lanes of aligned operands.
        self.has_fixed_order: bool = rules.rows_independent and any(
            node.op.kind is Kind.REDUCE for node in graph.nodes
        )
        self.lanes: int = self._lanes() if aligned or self.has_fixed_order else 1
        self.shift: int | None = None
        self.is_merged: bool = False
        steps = ((n - 1) * abs(s) for r in self.strides for n, s in self._along(r))
        size = max(prod(self.extents), *steps, 0)
        self.number = "int" if 2 * size < 2**31 else "i64"
        self.first_write: int = len(self.plan.reads)
        self.number_of_inputs: int = len(inputs)
        self.w: SourceWriter = SourceWriter()
        self.s: CUDAScalars = CUDAScalars(self.w)
        self.constant: Values = {}
        self.row: Values = {}

    def _along(self, row: Sequence[int]) -> Iterable[tuple[int, int]]:
        return zip(self.extents, row, strict=True)

    def _lanes(self) -> int:
        """Return the largest vector width that every contiguous array allows."""
        arrays: list[Any] = [*self.plan.reads, *self.plan.writes]
        wide = [
            (array, row)
            for k, (array, row) in enumerate(zip(arrays, self.strides, strict=True))
            if row[-1] == 1 and self.extents[-1] > 1 and k not in self.counting
        ]
        if not wide or len(self.extents) == self.row_loops:
            return 1
        lanes = MAX_ACCESS_BYTES // max(
            dtypes.itemsize(array.dtype) for array, _ in wide
        )
        while lanes > 1 and (
            self.extents[-1] % lanes
            or any(stride % lanes for _, row in wide for stride in row[:-1])
        ):
            lanes //= 2
        return lanes

    def _is_counting(self, k: int, graph: Graph) -> bool:
        """Return whether a read is the constant 0, 1, 2, ... along the columns."""
        read = self.plan.reads[k]
        constant = graph.inputs[read.operand].constant
        if constant is None or not dtypes.is_integer(read.dtype):
            return False
        is_along = len(self.extents) == self.row_loops + 1 and self.strides[k][-1] == 1
        numbers = to_host(constant).ravel()
        return is_along and np.array_equal(numbers, np.arange(self.columns))

    def column_index(self, k: int, column: str) -> str:
        """Return the index of a column as an element of a counting read."""
        return f"({COMPUTED[self.plan.reads[k].dtype]})({column})"

    @property
    def packs(self) -> int:
        """Return the maximum number of packs in a row."""
        if self.shift is None:
            return self.columns // self.lanes
        return -(-(self.columns + self.lanes - 1) // self.lanes)

    def is_wide(self, array: int) -> bool:
        """Return whether a pack of an array is one vector access."""
        return self.aligned and self.has_packs(array)

    def has_packs(self, array: int) -> bool:
        """Return whether a pack of an array is one vector access if it is aligned."""
        in_rows = self.shift is None or any(self.strides[array][: self.row_loops])
        if array in self.counting:
            return False
        return self.lanes > 1 and self.strides[array][-1] == 1 and in_rows

    def align_rows(self) -> None:
        """Align packs to memory accesses instead of row starts, if rows are odd.

        The first and last pack of a row then have only some of its columns.
        """
        loops, roles = self.row_loops, {w.role for w in self.plan.writes}
        arrays: list[Any] = [*self.plan.reads, *self.plan.writes]
        wide = [
            k for k, row in enumerate(self.strides) if row[-1] == 1 and any(row[:loops])
        ]
        if not self.aligned or self.has_fixed_order or not wide or COLUMN in roles:
            return
        lanes = MAX_ACCESS_BYTES // max(dtypes.itemsize(arrays[k].dtype) for k in wide)
        steps = {tuple(s % lanes for s in self.strides[k][:loops]) for k in wide}
        is_long = self.columns >= LONG_ROW * lanes
        if len(self.extents) != loops + 1 or not is_long or len(steps) > 1:
            return
        if lanes > self.lanes and min(min(self.strides[k]) for k in wide) >= 0:
            self.lanes = lanes
            self.shift = wide[0]

    def is_whole(self, array: int) -> bool:
        """Return whether an array is contiguous in the order of the loops."""
        return tuple(self.strides[array]) == tuple(suffix_products(self.extents)[1:])

    def merge_rows(self) -> None:
        """Let packs cross row boundaries, if that makes them much wider.

        This applies if the last extent is odd, for example three colour channels.
        """
        arrays: list[Any] = [*self.plan.reads, *self.plan.writes]
        contiguous_arrays = [a for k, a in enumerate(arrays) if self.is_whole(k)]
        sizes = [dtypes.itemsize(array.dtype) for array in contiguous_arrays]
        lanes = MAX_ACCESS_BYTES // max(sizes, default=MAX_ACCESS_BYTES)
        if self.aligned and not self.has_fixed_order and lanes >= 4 * self.lanes:
            self.is_merged = prod(self.extents) % lanes == 0
            self.lanes = lanes if self.is_merged else self.lanes

    # --- offsets ----------------------------------------------------------------------

    def split(self, index: str, extents: Sequence[int], prefix: str) -> list[str]:
        """Return the names of the loop indices that a flat index decomposes into."""
        return split(self.w, index, extents, prefix, self.number)

    def pack_indices(self) -> list[str]:
        """Return the names of the column loop indices at the start of a pack."""
        if self.shift is not None:
            self.w(
                f"const bool whole = c0 >= 0 && c0 + {self.lanes} <= {self.columns};"
            )
            return ["c0"]
        *outer, last = self.extents[self.row_loops :]
        indices = self.split("pack", [*outer, last // self.lanes], "c_")
        if self.lanes > 1:
            self.w(f"const {self.number} c0 = {indices[-1]} * {self.lanes};")
            indices[-1] = "c0"
        return indices

    def offset(self, array: int, first: int, indices: Sequence[str]) -> str:
        """Return the array offset of the loop indices from `first` on, or ''."""
        strides = self.strides[array][first : first + len(indices)]
        terms = [
            index if stride == 1 else f"{index} * {stride}"
            for index, stride in zip(indices, strides, strict=True)
            if stride
        ]
        return " + ".join(terms)

    def pointer(self, array: int) -> str:
        """Return the name of an array's pointer."""
        if array < self.first_write:
            return f"p{self.plan.reads[array].operand}"
        return f"q{array - self.first_write}"

    # --- values -----------------------------------------------------------------------

    def load_constants(self) -> None:
        """Load values that are the same for all elements."""
        needed = {
            source
            for step in self.plan.steps
            if FULL in (step.role, step.reduces)
            for source in step.arguments
        }
        for k in range(self.first_write):
            if self._is_constant(("read", k)) and ("read", k) in needed:
                self.constant["read", k] = self._constant(k)

    def _is_constant(self, source: Source) -> bool:
        if source[0] != "read":
            return False
        read = self.plan.reads[source[1]]
        return not read.by_row and not read.by_column

    def _constant(self, k: int) -> Value:
        read = self.plan.reads[k]
        return self.w.let(read.dtype, f"widen({self.pointer(k)}[0])")

    def value(self, source: Source, values: Values) -> Value:
        """Return the value of a number, a computed value, or one per row or per kernel.

        Values that only rows need load there; otherwise they occupy registers
        throughout.
        """
        if source[0] == "number":
            _, content, dtype = source
            raw = np.frombuffer(bytes.fromhex(content), dtypes.numpy_dtype(dtype))[0]
            return Value(literal(raw, dtype), dtype)
        for cache in (values, self.row, self.constant):
            if source in cache:
                return cache[source]
        if not self._is_constant(source):
            raise KeyError(source)
        self.row[source] = self._constant(source[1])
        return self.row[source]

    def compute(self, step: int, values: Values) -> Value:
        """Return the value of a step, computed from the values of its arguments."""
        record = self.plan.steps[step]
        if record.op == GATHER_ELEMENT:
            return self._element_at(*record.arguments)
        arguments = [self.value(a, values) for a in record.arguments]
        if record.op == CHECK_INDEX:
            # Threads without a row have no reduction result, so they have no valid
            # index.
            text = f"live ? checked({arguments[0].text}, {self.columns}, problem) : 0"
            return self.w.let("int32", text)
        if record.op == UPDATE_ELEMENT:
            mode = record.attrs[0][1]
            return self._update_element(arguments, values[COLUMN_NUMBER], mode)
        rule: Any = PRIMITIVES[record.op].scalar
        value: Value = rule(self.s, *arguments, **dict(record.attrs))
        return value

    def _update_element(
        self, arguments: Sequence[Value], column: Value, mode: str
    ) -> Value:
        """Return an element of a row, or its updated value."""
        (row, index, update), s = arguments, self.s
        names = {"add": "add", "mul": "multiply", "max": "maximum", "min": "minimum"}
        if mode != "set":
            update = getattr(s, names[mode])(row, update)
        return s.select(s.equal(column, index), update, row)

    def _element_at(self, source: Source, index: Source) -> Value:
        """Return a full value at one column, which every thread of the row computes."""
        at = self.value(index, {})
        # For a bad index any column is valid.
        column = self.w.let("int32", f"{at.text} < 0 ? 0 : {at.text}")
        needed = self.dependencies(source)
        values: Values = {COLUMN_NUMBER: at}
        for k, read in enumerate(self.plan.reads):
            if read.by_column and ("read", k) in needed:
                values["read", k] = self.load(k, [column.text])
        for i in range(len(self.plan.steps)):
            if ("step", i) in needed:
                values["step", i] = self.compute(i, values)
        return self.value(source, values)

    def dependencies(self, source: Source) -> set[Source]:
        """Return the full values that a value depends on, and itself."""
        sources: set[Source] = set()
        stack = [source]
        while stack:
            source = stack.pop()
            if source not in sources:
                is_step = source[0] == "step"
                if is_step and self.plan.steps[source[1]].role != FULL:
                    continue
                sources.add(source)
                if is_step:
                    stack += self.plan.steps[source[1]].arguments
        return sources

    def load(self, k: int, columns: Sequence[str]) -> Value:
        """Return one element of a read, at a column of the row."""
        if k in self.counting:
            return self.w.let(
                self.plan.reads[k].dtype, self.column_index(k, columns[-1])
            )
        offset = self.offset(k, self.row_loops, columns)
        pointer = f"r{k}" if self.plan.reads[k].by_row else self.pointer(k)
        return self.w.let(self.plan.reads[k].dtype, f"widen({pointer}[{offset or 0}])")

    # --- the kernel -------------------------------------------------------------------

    def parameters(self) -> list[tuple[str, str, Argument]]:
        """Return (type, name, argument) of the reads and of the problem."""
        operands = {read.operand: read.dtype for read in self.plan.reads}
        parameters: list[tuple[str, str, Argument]] = [
            (f"const {STORED[dtype]}*", f"p{k}", Buffer(k))
            for k, dtype in sorted(operands.items())
        ]
        if self.plan.accesses_elements:
            parameters.append(("i64*", "problem", Problem()))
        return parameters

    def output(self, write: int) -> tuple[str, str, Argument]:
        """Return (type, name, argument) of an output."""
        dtype = self.plan.writes[write].dtype
        buffer = Buffer(self.number_of_inputs + write)
        return f"{STORED[dtype]}*", f"q{write}", buffer

    def launch(
        self,
        family: str,
        parameters: Sequence[tuple[str, str, Argument]],
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        problem: str = "",
    ) -> Launch:
        """Return the launch of the generated kernel."""
        text = kernel_text(parameters, prod(block), self.w.text)
        kernel = make_kernel(family, text, [ctype for ctype, _, _ in parameters])
        arguments = tuple(argument for _, _, argument in parameters)
        return Launch(kernel, grid, block, arguments, problem=problem)


def kernel_text(
    parameters: Sequence[tuple[str, str, Argument]],
    threads: int,
    body: str,
    extra: str = "",
) -> str:
    """Return the source of a kernel: its helpers, then its body.

    Args:
        parameters: (type, name, argument) of each.
        threads: threads per block.
        body: the statements.
        extra: additional text of the prelude.
    """
    declared = ", ".join(f"{ctype} {name}" for ctype, name, _ in parameters)
    head = f'extern "C" __global__ void __launch_bounds__({threads}, 1)'
    return f"{PRELUDE}{extra}\n{head}\nKERNEL({declared}) {{\n{body}\n}}\n"


def to_storage(value: Value, dtype: str) -> str:
    """Return a value as an element in memory."""
    return f"Narrow<{STORED[dtype]}>::of({value.text})"


def body_dtype(body: Body, step: int) -> str:
    """Return the dtype that a step reduces."""
    kind, index, *options = body.plan.steps[step].arguments[0]
    if kind == "number":
        return str(options[0])
    of = body.plan.reads if kind == "read" else body.plan.steps
    return of[index].dtype
