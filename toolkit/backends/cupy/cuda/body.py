"""A fused body in CUDA: its operands, and how their elements become values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.backends.base import Operand, on_host
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
from toolkit.backends.loops.iteration_space import suffix_products
from toolkit.backends.loops.plan import (
    COLUMN,
    FULL,
    PICK,
    PLACE,
    PUT,
    SizedNest,
    Source,
)
from toolkit.backends.loops.planner import NestPlanner
from toolkit.ir import PRIMITIVES, Graph

Known = dict[Source, Value]
# The column of the element that is computed.
COLUMN_NUMBER: Source = ("column",)
# Bytes of the widest access to memory.
WIDEST = 16
# Rows of this many packs are worth some work at their ends.
LONG = 32


class GPUPlanner(NestPlanner):
    """Plans without the blocks that a processor's threads share a sum in."""

    def _in_blocks(self, loops: Any, strides: Any, writes: Any) -> Any:
        return loops, strides, False


class Body:
    """What is common to the kernels of fused bodies.

    Attributes:
        plan: what is read, computed and written.
        extents: of the loops, those over rows first.
        strides: of every read, then of every write, along the loops, in elements.
        lanes: how many neighbours a thread handles with one access.
        shift: an array that tells how far rows begin behind a multiple of the lanes;
            None if all begin at one.
        is_spread: whether packs are of whole arrays, whatever the extents are.
        counting: the reads that give each column its number: they need no memory.
        number: the type of an index.
    """

    def __init__(
        self,
        graph: Graph,
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
        aligned: bool,
    ) -> None:
        planned: SizedNest = GPUPlanner(graph, inputs, outputs).plan(0)
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
            if read.by_column and not read.by_row and self._counts(k, graph)
        )
        self.aligned = aligned
        self.lanes: int = self._lanes() if aligned else 1
        self.shift: int | None = None
        self.is_spread: bool = False
        steps = ((n - 1) * abs(s) for r in self.strides for n, s in self._along(r))
        size = max(prod(self.extents), *steps, 0)
        self.number = "int" if 2 * size < 2**31 else "i64"
        self.first_write: int = len(self.plan.reads)
        self.number_of_inputs: int = len(inputs)
        self.w: SourceWriter = SourceWriter()
        self.s: CUDAScalars = CUDAScalars(self.w)
        self.constant: Known = {}
        self.row: Known = {}

    def _along(self, row: Sequence[int]) -> Iterable[tuple[int, int]]:
        return zip(self.extents, row, strict=True)

    def _lanes(self) -> int:
        """The most neighbours that every contiguous array allows."""
        arrays: list[Any] = [*self.plan.reads, *self.plan.writes]
        wide = [
            (array, row)
            for k, (array, row) in enumerate(zip(arrays, self.strides, strict=True))
            if row[-1] == 1 and self.extents[-1] > 1 and k not in self.counting
        ]
        if not wide or len(self.extents) == self.row_loops:
            return 1
        lanes = WIDEST // max(dtypes.itemsize(array.dtype) for array, _ in wide)
        while lanes > 1 and (
            self.extents[-1] % lanes
            or any(stride % lanes for _, row in wide for stride in row[:-1])
        ):
            lanes //= 2
        return lanes

    def _counts(self, k: int, graph: Graph) -> bool:
        """Whether a read is of the constant 0, 1, 2, ... along the columns."""
        read = self.plan.reads[k]
        known = graph.inputs[read.operand].constant
        if known is None or not dtypes.is_integer(read.dtype):
            return False
        is_along = len(self.extents) == self.row_loops + 1 and self.strides[k][-1] == 1
        found = on_host(known).ravel()
        return is_along and np.array_equal(found, np.arange(self.columns))

    def counted(self, k: int, column: str) -> str:
        """The number of a column as an element of a read that counts."""
        return f"({COMPUTED[self.plan.reads[k].dtype]})({column})"

    @property
    def packs(self) -> int:
        """How many packs of columns a row has, at most."""
        if self.shift is None:
            return self.columns // self.lanes
        return -(-(self.columns + self.lanes - 1) // self.lanes)

    def is_wide(self, array: int) -> bool:
        """Whether a pack of an array is one access."""
        in_rows = self.shift is None or any(self.strides[array][: self.row_loops])
        if array in self.counting:
            return False
        return self.lanes > 1 and self.strides[array][-1] == 1 and in_rows

    def shift_rows(self) -> None:
        """Let packs begin where accesses can, not where rows do, if those are odd.

        The first and the last pack of a row then have some of its columns only.
        """
        loops, roles = self.row_loops, {w.role for w in self.plan.writes}
        arrays: list[Any] = [*self.plan.reads, *self.plan.writes]
        wide = [
            k for k, row in enumerate(self.strides) if row[-1] == 1 and any(row[:loops])
        ]
        if not self.aligned or not wide or COLUMN in roles:
            return
        lanes = WIDEST // max(dtypes.itemsize(arrays[k].dtype) for k in wide)
        steps = {tuple(s % lanes for s in self.strides[k][:loops]) for k in wide}
        is_long = self.columns >= LONG * lanes
        if len(self.extents) != loops + 1 or not is_long or len(steps) > 1:
            return
        if lanes > self.lanes and min(min(self.strides[k]) for k in wide) >= 0:
            self.lanes = lanes
            self.shift = wide[0]

    def is_whole(self, array: int) -> bool:
        """Whether an array has its elements in the order of the loops, without gaps."""
        return tuple(self.strides[array]) == tuple(suffix_products(self.extents)[1:])

    def spread(self) -> None:
        """Let packs go on from row to row, if that makes them much wider.

        So they do where the last extent is odd, as that of three colours.
        """
        arrays: list[Any] = [*self.plan.reads, *self.plan.writes]
        whole = [a for k, a in enumerate(arrays) if self.is_whole(k)]
        sizes = [dtypes.itemsize(array.dtype) for array in whole]
        lanes = WIDEST // max(sizes, default=WIDEST)
        if self.aligned and lanes >= 4 * self.lanes:
            self.is_spread = prod(self.extents) % lanes == 0
            self.lanes = lanes if self.is_spread else self.lanes

    # --- places -----------------------------------------------------------------------

    def split(self, index: str, extents: Sequence[int], prefix: str) -> list[str]:
        """Names of the indices of loops that a flat index falls apart into."""
        return split(self.w, index, extents, prefix, self.number)

    def pack_indices(self) -> list[str]:
        """Names of the indices of the loops over columns where a pack begins."""
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
        """Where in an array the indices of the loops from `first` on lead, or ''."""
        strides = self.strides[array][first : first + len(indices)]
        terms = [
            index if stride == 1 else f"{index} * {stride}"
            for index, stride in zip(indices, strides, strict=True)
            if stride
        ]
        return " + ".join(terms)

    def pointer(self, array: int) -> str:
        """The name of an array's address."""
        if array < self.first_write:
            return f"p{self.plan.reads[array].operand}"
        return f"q{array - self.first_write}"

    # --- values -----------------------------------------------------------------------

    def load_constants(self) -> None:
        """Read what is the same for all elements, and needed for each."""
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

    def value(self, source: Source, known: Known) -> Value:
        """A value that is a number, known, or the same for the row or the kernel.

        What only rows need is read there: registers would hold it all the time.
        """
        if source[0] == "number":
            _, content, dtype = source
            raw = np.frombuffer(bytes.fromhex(content), dtypes.numpy_dtype(dtype))[0]
            return Value(literal(raw, dtype), dtype)
        for found in (known, self.row, self.constant):
            if source in found:
                return found[source]
        if not self._is_constant(source):
            raise KeyError(source)
        self.row[source] = self._constant(source[1])
        return self.row[source]

    def compute(self, step: int, known: Known) -> Value:
        """A step's value from those of its arguments."""
        record = self.plan.steps[step]
        if record.op == PICK:
            return self._pick(*record.arguments)
        arguments = [self.value(a, known) for a in record.arguments]
        if record.op == PLACE:
            # Threads without a row have reduced nothing, and find no place.
            text = f"live ? checked({arguments[0].text}, {self.columns}, problem) : 0"
            return self.w.let("int32", text)
        if record.op == PUT:
            mode = record.attrs[0][1]
            return self._put(arguments, known[COLUMN_NUMBER], mode)
        rule: Any = PRIMITIVES[record.op].scalar
        value: Value = rule(self.s, *arguments, **dict(record.attrs))
        return value

    def _put(self, arguments: Sequence[Value], column: Value, mode: str) -> Value:
        """An element of a row, or what an update makes of it."""
        (row, place, update), s = arguments, self.s
        names = {"add": "add", "mul": "multiply", "max": "maximum", "min": "minimum"}
        if mode != "set":
            update = getattr(s, names[mode])(row, update)
        return s.select(s.equal(column, place), update, row)

    def _pick(self, source: Source, place: Source) -> Value:
        """A full value at one column, which every thread of the row computes."""
        at = self.value(place, {})
        # Where the index was bad, any column will do.
        column = self.w.let("int32", f"{at.text} < 0 ? 0 : {at.text}")
        needed = self.needed(source)
        known: Known = {COLUMN_NUMBER: at}
        for k, read in enumerate(self.plan.reads):
            if read.by_column and ("read", k) in needed:
                known["read", k] = self.load(k, [column.text])
        for i in range(len(self.plan.steps)):
            if ("step", i) in needed:
                known["step", i] = self.compute(i, known)
        return self.value(source, known)

    def needed(self, source: Source) -> set[Source]:
        """The full values that one is computed from, and itself."""
        found: set[Source] = set()
        stack = [source]
        while stack:
            source = stack.pop()
            if source not in found:
                is_step = source[0] == "step"
                if is_step and self.plan.steps[source[1]].role != FULL:
                    continue
                found.add(source)
                if is_step:
                    stack += self.plan.steps[source[1]].arguments
        return found

    def load(self, k: int, columns: Sequence[str]) -> Value:
        """One element of a read, at a column of the row."""
        if k in self.counting:
            return self.w.let(self.plan.reads[k].dtype, self.counted(k, columns[-1]))
        place = self.offset(k, self.row_loops, columns)
        pointer = f"r{k}" if self.plan.reads[k].by_row else self.pointer(k)
        return self.w.let(self.plan.reads[k].dtype, f"widen({pointer}[{place or 0}])")

    # --- the kernel -------------------------------------------------------------------

    def parameters(self) -> list[tuple[str, str, Argument]]:
        """(type, name, argument) of what is read, and of the problem."""
        operands = {read.operand: read.dtype for read in self.plan.reads}
        found: list[tuple[str, str, Argument]] = [
            (f"const {STORED[dtype]}*", f"p{k}", Buffer(k))
            for k, dtype in sorted(operands.items())
        ]
        if self.plan.picks:
            found.append(("i64*", "problem", Problem()))
        return found

    def output(self, write: int) -> tuple[str, str, Argument]:
        """(type, name, argument) of an output."""
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
        """The launch of the kernel that was written."""
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
    """The source of a kernel around its body, behind helpers of its own.

    Args:
        parameters: (type, name, argument) of each.
        threads: of a block.
        body: the statements.
        extra: one more part of the prelude.
    """
    declared = ", ".join(f"{ctype} {name}" for ctype, name, _ in parameters)
    head = f'extern "C" __global__ void __launch_bounds__({threads}, 1)'
    return f"{PRELUDE}{extra}\n{head}\nKERNEL({declared}) {{\n{body}\n}}\n"


def narrowed(value: Value, dtype: str) -> str:
    """A value as an element in memory."""
    return f"Narrow<{STORED[dtype]}>::of({value.text})"


def body_dtype(body: Body, step: int) -> str:
    """The dtype of what a step reduces."""
    kind, index, *rest = body.plan.steps[step].arguments[0]
    if kind == "number":
        return str(rest[0])
    of = body.plan.reads if kind == "read" else body.plan.steps
    return of[index].dtype
