"""Bodies that reduce: rows of columns, with a group of threads along each row.

The threads of a block form a rectangle: `tx` along the columns, `ty` along the rows.
Dependent reductions each need another pass over a row. Values for later passes stay in
registers if a row is short enough, and are recomputed otherwise. A reduction over rows
combines within each thread, then within each block, and then in a second kernel. Only
shapes determine this order.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from toolkit.backends.cupy.cuda.body import (
    COLUMN_NUMBER,
    Body,
    Values,
    body_dtype,
    to_storage,
)
from toolkit.backends.cupy.cuda.division import divide_work
from toolkit.backends.cupy.cuda.launch import Argument, Launch, Scratch
from toolkit.backends.cupy.cuda.prelude import COMPUTED, STORED
from toolkit.backends.cupy.cuda.reduction import Reducer, combine_partials
from toolkit.backends.cupy.cuda.scalars import Value
from toolkit.dtypes import itemsize
from toolkit.plans.loops.phases import Phase
from toolkit.plans.loops.plan import COLUMN, FULL, ONE, ROW
from toolkit.plans.operands import align_up as aligned_bytes


def emit_rows(body: Body, problem: str) -> list[Launch]:
    """Return the launch over rows, then one per reduction over rows of many blocks."""
    return _Rows(body).launches(problem)


class _Rows:
    def __init__(self, body: Body) -> None:
        self.body = body
        self.plan = body.plan
        self.w = body.w
        body.align_rows()
        self.shape = divide_work(body)
        self.phases = self.shape.phases
        self.register_reads = self.shape.register_reads
        self.loaded: set[int] = set()
        self.states: dict[int, list[Value]] = {}
        self.scratch = 0
        self.combinations: list[Launch] = []

    # --- the launches -----------------------------------------------------------------

    def launches(self, problem: str) -> list[Launch]:
        """Return all launches, in order."""
        body, shape, w = self.body, self.shape, self.w
        parameters = body.parameters()
        parameters += [self._output(k) for k in range(len(self.plan.writes))]
        w("const int tx = threadIdx.x, ty = threadIdx.y;")
        w(f"const int thread = ty * {shape.tx} + tx;")
        w(f"const {body.number} tile = blockIdx.x % {shape.tiles};")
        w(f"const i64 block = blockIdx.x / {shape.tiles};")
        body.load_constants()
        self._declare_accumulators()
        unroll = ["#pragma unroll 4"] * (
            not shape.needs_barrier and shape.iterations > 1
        )
        with w.block(*unroll, f"for (int turn = 0; turn < {shape.iterations}; ++turn)"):
            self._row()
        self._finish()
        grid, block = (shape.blocks * shape.tiles, 1, 1), (shape.tx, shape.ty, 1)
        first = body.launch("rows", parameters, grid, block, problem)
        return [first, *self.combinations]

    def _partial_count(self, k: int) -> int:
        """Return the number of blocks with a partial result of a write."""
        role = self.plan.writes[k].role
        partials = {
            COLUMN: self.shape.blocks,
            ONE: self.shape.blocks * self.shape.tiles,
        }
        if self.shape.needs_barrier:
            partials[ROW] = self.shape.tiles
        return partials.get(role, 1)

    def _output(self, k: int) -> tuple[str, str, Argument]:
        """Return the parameter of a write: its output, or scratch for partials."""
        write, partials = self.plan.writes[k], self._partial_count(k)
        ctype, name, buffer = self.body.output(k)
        if partials == 1 and not self._accumulates_in_memory(k):
            return ctype, name, buffer
        size = {COLUMN: self.body.columns, ROW: self.body.rows}.get(write.role, 1)
        dtype = "float32" if write.dtype in ("float16", "bfloat16") else write.dtype
        nbytes = aligned_bytes(partials * size * itemsize(dtype))
        scratch = Scratch(self.scratch, nbytes)
        self.scratch += nbytes
        op = self.plan.steps[write.source[1]].op
        combined = combine_partials(op, write.dtype, partials, size, scratch, buffer)
        self.combinations.append(combined)
        return f"{COMPUTED[write.dtype]}*", name, scratch

    def _accumulates_in_memory(self, k: int) -> bool:
        """Return whether rows are too long for threads to hold sums of columns."""
        return self.plan.writes[k].role == COLUMN and not self.shape.is_in_registers

    # --- accumulators over rows -------------------------------------------------------

    def _reducer(self, k: int) -> Reducer:
        write = self.plan.writes[k]
        return Reducer(self.plan.steps[write.source[1]].op, write.dtype, self.w)

    def _declare_accumulators(self) -> None:
        """Declare the accumulators of reductions over rows."""
        size = self.shape.items * self.body.lanes
        for k, write in enumerate(self.plan.writes):
            if write.role == ONE:
                self.states[k] = self._reducer(k).declare()
            elif write.role == COLUMN and self.shape.is_in_registers:
                name, first = self.w.name(), self._reducer(k).identity[0]
                self.w(f"{COMPUTED[write.dtype]} {name}[{size}];")
                self.w("#pragma unroll")
                self.w(f"for (int k = 0; k < {size}; ++k) {name}[k] = {first.text};")
                self.states[k] = [Value(name, write.dtype)]

    def _accumulate(self, k: int, value: Value) -> None:
        """Add a value of a row, or of one of its elements, to the accumulator."""
        reducer, write = self._reducer(k), self.plan.writes[k]
        if self._accumulates_in_memory(k):
            slot = f"q{k}[block * {self.body.columns} + column]"
            merged = reducer.merge([Value(slot, write.dtype)], [value])[0]
            self.w(f"{slot} = turn == 0 ? {value.text} : {merged.text};")
            return
        state = self.states[k]
        if write.role == COLUMN:
            state = [Value(f"{state[0].text}[held]", write.dtype)]
        reducer.add(state, [value])

    def _finish(self) -> None:
        """Combine the accumulators of the block's threads, and store the result."""
        shape, w, lanes = self.shape, self.w, self.body.lanes
        if self.states:
            w(f"__shared__ u64 shared[{shape.tx * shape.ty}];")
        for k, write in enumerate(self.plan.writes):
            reducer, is_complete = self._reducer(k), self._partial_count(k) == 1
            if write.role == ONE:
                threads = shape.tx * shape.ty
                total = reducer.reduce_block(self.states[k][0], 1, threads)
                text = to_storage(total, write.dtype) if is_complete else total.text
                w(f"if (thread == 0) q{k}[blockIdx.x] = {text};")
            elif write.role == COLUMN and shape.is_in_registers:
                head = f"for (int held = 0; held < {shape.items * lanes}; ++held)"
                with w.block("#pragma unroll", head):
                    partial = Value(f"{self.states[k][0].text}[held]", write.dtype)
                    if shape.ty > 1:
                        threads = shape.tx * shape.ty
                        partial = reducer.reduce_block(partial, shape.tx, threads)
                    text = (
                        to_storage(partial, write.dtype)
                        if is_complete
                        else partial.text
                    )
                    w(f"const i64 pack = {self._pack(f'held / {lanes}')};")
                    offset = f"block * {self.body.columns} + pack * {lanes}"
                    test = f"if (ty == 0 && pack < {self.body.packs})"
                    w(f"{test} q{k}[{offset} + held % {lanes}] = {text};")

    def _pack(self, item: str) -> str:
        """Return the index of a thread's pack of columns."""
        shape = self.shape
        first = f" + tile * {shape.items * shape.tx}" if shape.tiles > 1 else ""
        return f"({item}) * {shape.tx} + tx{first}"

    # --- a row ------------------------------------------------------------------------

    def _row(self) -> None:
        body, w, shape = self.body, self.w, self.shape
        body.row = {}
        self.loaded = set()
        row = f"(block * {shape.iterations} + turn) * {shape.ty} + ty"
        w(f"const i64 asked = {row};")
        w(f"const bool live = asked < {body.rows};")
        # Threads without a row repeat the last one and store nothing, because all
        # threads of a warp must take part in its shuffles.
        w(f"const {body.number} row = live ? asked : {body.rows - 1};")
        indices = body.split("row", body.extents[: body.row_loops], "r_")
        for k, read in enumerate(self.plan.reads):
            if not read.by_row:
                continue
            offset = body.offset(k, 0, indices) or "0"
            if read.by_column:
                w(f"const {STORED[read.dtype]}* r{k} = {body.pointer(k)} + {offset};")
            else:
                text = f"widen({body.pointer(k)}[{offset}])"
                body.row["read", k] = w.let(read.dtype, text)
        for k, write in enumerate(self.plan.writes):
            if write.role == FULL:
                offset = body.offset(body.first_write + k, 0, indices) or "0"
                w(f"{STORED[write.dtype]}* s{k} = q{k} + {offset};")
        if body.shift is not None:
            offset = body.offset(body.shift, 0, indices)
            w(f"const int shift = ({offset}) % {body.lanes};")
        self._compute_rows(self.phases.row_steps_before)
        for phase in self.phases.phases:
            self._pass(phase)
            self._compute_rows(phase.row_steps_after)
        self._store_row()

    def _compute_rows(self, steps: list[int]) -> None:
        for i in steps:
            if not self.plan.steps[i].reduces:
                self.body.row["step", i] = self.body.compute(i, {})

    def _store_row(self) -> None:
        """Store the values of a row, and accumulate them."""
        shares = self.shape.needs_barrier or self.shape.tiles == 1
        tile = "" if shares else " && tile == 0"
        writes = list(enumerate(self.plan.writes))
        of_rows = [(k, w) for k, w in writes if w.role == ROW or self._reduces_rows(k)]
        if not of_rows:
            return
        with self.w.block(f"if (tx == 0 && live{tile})"):
            for k, write in of_rows:
                if write.role == ROW:
                    value = self.body.value(write.source, {})
                    if self._partial_count(k) == 1:
                        self.w(f"q{k}[row] = {to_storage(value, write.dtype)};")
                    else:
                        offset = f"(i64)tile * {self.body.rows} + row"
                        self.w(f"q{k}[{offset}] = {value.text};")
                else:
                    step = self.plan.steps[write.source[1]]
                    self._accumulate(k, self.body.value(step.arguments[0], {}))

    def _reduces_rows(self, k: int) -> bool:
        """Return whether a write reduces one value per row."""
        write = self.plan.writes[k]
        return write.role == ONE and self.plan.steps[write.source[1]].reduces == ROW

    # --- a pass over a row ------------------------------------------------------------

    def _pass(self, phase: Phase) -> None:
        w, shape, body = self.w, self.shape, self.body
        if not (phase.reductions or phase.writes or phase.buffered):
            return
        reducers = [
            Reducer(s.op, body_dtype(body, i), w)
            for i, s in ((i, self.plan.steps[i]) for i in phase.reductions)
        ]
        states = [r.declare() for r in reducers]
        for i in phase.buffered:
            ctype = COMPUTED[self.plan.steps[i].dtype]
            w(f"{ctype} step{i}[{shape.items * body.lanes}];")
        first = [k for k in phase.reads if self._is_first(k)]
        for k in first:
            ctype = STORED[self.plan.reads[k].dtype]
            wide = f"Pack<{ctype}, {body.lanes}> read{k}[{shape.items}];"
            declaration = f"{ctype} read{k}[{shape.items * body.lanes}];"
            w(wide if body.is_wide(k) else declaration)
        heads = [f"for ({body.number} item = 0; item < {shape.items}; ++item)"]
        # Passes without held items are unrolled too, so that reads of several packs are
        # in flight.
        unroll = "#pragma unroll" if shape.is_in_registers else "#pragma unroll 4"
        with w.block(unroll, *heads):
            w(f"const {body.number} pack = {self._pack('item')};")
            test = f"pack < {body.packs}"
            if body.shift is not None:
                w(f"const {body.number} c0 = pack * {body.lanes} - shift;")
                test = f"c0 < {body.columns}"
            with w.block(f"if (live && {test})"):
                self._item(phase, reducers, states)
        self.loaded |= set(first)
        for i, r, state in zip(phase.reductions, reducers, states, strict=True):
            r.reduce_warp(state, min(32, shape.tx))
            if shape.tx > 32:
                r.reduce_warps(state, shape.tx // 32, shape.ty)
            body.row["step", i] = r.result(state)

    def _is_first(self, k: int) -> bool:
        """Return whether a read is held and not loaded yet."""
        return k in self.register_reads and k not in self.loaded

    def _item(
        self, phase: Phase, reducers: list[Reducer], states: list[list[Value]]
    ) -> None:
        """Emit the columns of one pack."""
        body, w, lanes = self.body, self.w, self.body.lanes
        indices = body.pack_indices()
        wide = self._load_packs(phase, indices)
        full = [k for k in phase.writes if self.plan.writes[k].role == FULL]
        if lanes > 1:
            for k in full:
                w(f"Pack<{STORED[self.plan.writes[k].dtype]}, {lanes}> b{k};")
        with w.block("#pragma unroll", f"for (int k = 0; k < {lanes}; ++k)"):
            first = f"pack * {lanes}" if body.shift is None else "c0"
            w(f"const {body.number} column = {first} + k;")
            if body.shift is not None:
                w(f"const bool inside = whole || {self._inside_test('column')};")
            if self.shape.is_in_registers:
                w(f"const int held = item * {lanes} + k;")
            values = self._column_values(phase, wide)
            for i, r, state in zip(phase.reductions, reducers, states, strict=True):
                value = body.value(self.plan.steps[i].arguments[0], values)
                with self._guard_column():
                    r.add(state, [value, Value("(int)column", "int32")][: len(state)])
            self._cache_values(phase, values)
            for k in phase.writes:
                write = self.plan.writes[k]
                if write.role != FULL:
                    step = self.plan.steps[write.source[1]]
                    with self._guard_column():
                        self._accumulate(k, body.value(step.arguments[0], values))
                    continue
                text = to_storage(body.value(write.source, values), write.dtype)
                offset = body.offset(body.first_write + k, body.row_loops, indices)
                target = f"b{k}.of[k]" if lanes > 1 else f"s{k}[{offset or 0}]"
                w(f"{target} = {text};")
        for k in full if lanes > 1 else ():
            self._store_pack(k, indices)

    def _inside_test(self, column: str) -> str:
        return f"({column} >= 0 && {column} < {self.body.columns})"

    def _guard_column(self) -> AbstractContextManager[None]:
        """Open a block for statements that only columns inside the row need.

        All other statements run for every column of a pack: branches would prevent
        vector stores of its elements.
        """
        if self.body.shift is None:
            return nullcontext()
        return self.w.block("if (inside)")

    def _store_pack(self, k: int, indices: list[str]) -> None:
        """Store a pack of an output."""
        body, w, lanes = self.body, self.w, self.body.lanes
        pack = f"Pack<{STORED[self.plan.writes[k].dtype]}, {lanes}>"
        offset = body.offset(body.first_write + k, body.row_loops, indices)
        if body.shift is None:
            w(f"*({pack}*)(s{k} + {offset}) = b{k};")
            return
        w(f"if (whole) write_pack(({pack}*)(s{k} + {offset}), b{k});")
        w(f"else for (int k = 0; k < {lanes}; ++k)")
        w(f"  if ({self._inside_test('c0 + k')}) s{k}[{offset} + k] = b{k}.of[k];")

    def _load_packs(self, phase: Phase, indices: list[str]) -> dict[int, str]:
        """Load packs; return the element in lane k for each read of the columns."""
        body, w, lanes, names = self.body, self.w, self.body.lanes, {}
        for k in phase.reads:
            read, is_held = self.plan.reads[k], k in self.register_reads
            if not read.by_column:
                continue
            if k in body.counting:
                names[k] = body.column_index(k, "column")
                continue
            pointer = f"r{k}" if read.by_row else body.pointer(k)
            offset = body.offset(k, body.row_loops, indices) or "0"
            if body.is_wide(k):
                name = f"read{k}[item]" if is_held else f"a{k}"
                if k not in self.loaded:
                    self._load_pack(k, name, f"{pointer} + {offset}")
                elif is_held:
                    w(f"renew({name});")
                names[k] = f"widen({name}.of[k])"
                continue
            inner = body.strides[k][-1]
            step = f" + k * {inner}" if lanes > 1 and inner else ""
            names[k] = f"widen({pointer}[{offset}{step}])"
            if body.shift is not None:
                names[k] = f"inside ? {names[k]} : 0"
            if is_held:
                names[k] = f"widen(read{k}[item * {lanes} + k])"
            if is_held and k not in self.loaded:
                with w.block("#pragma unroll", f"for (int k = 0; k < {lanes}; ++k)"):
                    guard = f"if (whole || {self._inside_test('c0 + k')}) "
                    test = "" if body.shift is None else guard
                    target = f"read{k}[item * {lanes} + k]"
                    w(f"{test}{target} = {pointer}[{offset}{step}];")
        return names

    def _load_pack(self, k: int, name: str, address: str) -> None:
        """Load a pack into registers."""
        body, w = self.body, self.w
        pack = f"Pack<{STORED[self.plan.reads[k].dtype]}, {body.lanes}>"
        if k not in self.register_reads:
            w(f"{pack} {name};")
        load = f"{name} = *(const {pack}*)({address});"
        if body.shift is None:
            w(load)
            return
        w(f"if (whole) {load}")
        with w.block("else"):
            w(f"{name} = {pack}();")
            w(f"for (int k = 0; k < {body.lanes}; ++k)")
            w(f"  if ({self._inside_test('c0 + k')}) {name}.of[k] = ({address})[k];")

    def _column_values(self, phase: Phase, wide: dict[int, str]) -> Values:
        """Return the values of one column."""
        body, values = self.body, Values()
        values[COLUMN_NUMBER] = Value("(int)column", "int32")
        for k, text in wide.items():
            values["read", k] = body.w.let(self.plan.reads[k].dtype, text)
        for i in phase.reloads:
            values["step", i] = Value(f"step{i}[held]", self.plan.steps[i].dtype)
        for i in phase.steps:
            values["step", i] = body.compute(i, values)
        return values

    def _cache_values(self, phase: Phase, values: Values) -> None:
        """Store values that later passes need in the thread's variables."""
        for i in phase.buffered:
            self.w(f"step{i}[held] = {values['step', i].text};")
