"""Bodies that reduce: rows of columns, with a group of threads along each row.

The threads of a block form a rectangle: `tx` along the columns, `ty` along the rows.
Dependent reductions each need another pass over a row. Values for later passes stay in
registers if a row is short enough, and are recomputed otherwise. A reduction over rows
combines within each thread, then within each block, and then in a second kernel. Only
shapes determine this order.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from toolkit.backends.base import align_up as aligned_bytes
from toolkit.backends.cupy.cuda.body import (
    COLUMN_NUMBER,
    Body,
    Known,
    body_dtype,
    narrowed,
)
from toolkit.backends.cupy.cuda.division import division_of
from toolkit.backends.cupy.cuda.launch import Argument, Launch, Scratch
from toolkit.backends.cupy.cuda.prelude import COMPUTED, STORED
from toolkit.backends.cupy.cuda.reduction import Reducer, combination
from toolkit.backends.cupy.cuda.scalars import Value
from toolkit.backends.loops.phases import Phase
from toolkit.backends.loops.plan import COLUMN, FULL, ONE, ROW
from toolkit.dtypes import itemsize


def emit_rows(body: Body, problem: str) -> list[Launch]:
    """Return the launch over rows, then one per reduction over rows of many blocks."""
    return _Rows(body).launches(problem)


class _Rows:
    def __init__(self, body: Body) -> None:
        self.body = body
        self.plan = body.plan
        self.w = body.w
        body.shift_rows()
        self.shape = division_of(body)
        self.phases = self.shape.phases
        self.held_reads = self.shape.held_reads
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
        self._declare_collected()
        unroll = ["#pragma unroll 4"] * (not shape.waits and shape.turns > 1)
        with w.block(*unroll, f"for (int turn = 0; turn < {shape.turns}; ++turn)"):
            self._row()
        self._finish()
        grid, block = (shape.blocks * shape.tiles, 1, 1), (shape.tx, shape.ty, 1)
        first = body.launch("rows", parameters, grid, block, problem)
        return [first, *self.combinations]

    def _parts(self, k: int) -> int:
        """Return the number of blocks with a partial result of a write."""
        role = self.plan.writes[k].role
        parts = {COLUMN: self.shape.blocks, ONE: self.shape.blocks * self.shape.tiles}
        if self.shape.waits:
            parts[ROW] = self.shape.tiles
        return parts.get(role, 1)

    def _output(self, k: int) -> tuple[str, str, Argument]:
        """Return the parameter of a write: its output, or scratch for partials."""
        write, parts = self.plan.writes[k], self._parts(k)
        ctype, name, buffer = self.body.output(k)
        if parts == 1 and not self._collects_in_memory(k):
            return ctype, name, buffer
        size = {COLUMN: self.body.columns, ROW: self.body.rows}.get(write.role, 1)
        dtype = "float32" if write.dtype in ("float16", "bfloat16") else write.dtype
        nbytes = aligned_bytes(parts * size * itemsize(dtype))
        place = Scratch(self.scratch, nbytes)
        self.scratch += nbytes
        op = self.plan.steps[write.source[1]].op
        made = combination(op, write.dtype, parts, size, place, buffer)
        self.combinations.append(made)
        return f"{COMPUTED[write.dtype]}*", name, place

    def _collects_in_memory(self, k: int) -> bool:
        """Return whether rows are too long for threads to hold sums of columns."""
        return self.plan.writes[k].role == COLUMN and not self.shape.held

    # --- accumulators over rows -------------------------------------------------------

    def _reducer(self, k: int) -> Reducer:
        write = self.plan.writes[k]
        return Reducer(self.plan.steps[write.source[1]].op, write.dtype, self.w)

    def _declare_collected(self) -> None:
        """Declare the accumulators of reductions over rows."""
        size = self.shape.items * self.body.lanes
        for k, write in enumerate(self.plan.writes):
            if write.role == ONE:
                self.states[k] = self._reducer(k).declare()
            elif write.role == COLUMN and self.shape.held:
                name, first = self.w.name(), self._reducer(k).initial[0]
                self.w(f"{COMPUTED[write.dtype]} {name}[{size}];")
                self.w("#pragma unroll")
                self.w(f"for (int k = 0; k < {size}; ++k) {name}[k] = {first.text};")
                self.states[k] = [Value(name, write.dtype)]

    def _collect(self, k: int, value: Value) -> None:
        """Add a value of a row, or of one of its elements, to the accumulator."""
        reducer, write = self._reducer(k), self.plan.writes[k]
        if self._collects_in_memory(k):
            place = f"q{k}[block * {self.body.columns} + column]"
            merged = reducer.merge([Value(place, write.dtype)], [value])[0]
            self.w(f"{place} = turn == 0 ? {value.text} : {merged.text};")
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
            reducer, whole = self._reducer(k), self._parts(k) == 1
            if write.role == ONE:
                threads = shape.tx * shape.ty
                total = reducer.across_block(self.states[k][0], 1, threads)
                text = narrowed(total, write.dtype) if whole else total.text
                w(f"if (thread == 0) q{k}[blockIdx.x] = {text};")
            elif write.role == COLUMN and shape.held:
                head = f"for (int held = 0; held < {shape.items * lanes}; ++held)"
                with w.block("#pragma unroll", head):
                    part = Value(f"{self.states[k][0].text}[held]", write.dtype)
                    if shape.ty > 1:
                        threads = shape.tx * shape.ty
                        part = reducer.across_block(part, shape.tx, threads)
                    text = narrowed(part, write.dtype) if whole else part.text
                    w(f"const i64 pack = {self._pack(f'held / {lanes}')};")
                    place = f"block * {self.body.columns} + pack * {lanes}"
                    test = f"if (ty == 0 && pack < {self.body.packs})"
                    w(f"{test} q{k}[{place} + held % {lanes}] = {text};")

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
        row = f"(block * {shape.turns} + turn) * {shape.ty} + ty"
        w(f"const i64 asked = {row};")
        w(f"const bool live = asked < {body.rows};")
        # Threads without a row repeat the last one and store nothing, because all
        # threads of a warp must take part in its shuffles.
        w(f"const {body.number} row = live ? asked : {body.rows - 1};")
        indices = body.split("row", body.extents[: body.row_loops], "r_")
        for k, read in enumerate(self.plan.reads):
            if not read.by_row:
                continue
            place = body.offset(k, 0, indices) or "0"
            if read.by_column:
                w(f"const {STORED[read.dtype]}* r{k} = {body.pointer(k)} + {place};")
            else:
                text = f"widen({body.pointer(k)}[{place}])"
                body.row["read", k] = w.let(read.dtype, text)
        for k, write in enumerate(self.plan.writes):
            if write.role == FULL:
                place = body.offset(body.first_write + k, 0, indices) or "0"
                w(f"{STORED[write.dtype]}* s{k} = q{k} + {place};")
        if body.shift is not None:
            place = body.offset(body.shift, 0, indices)
            w(f"const int shift = ({place}) % {body.lanes};")
        self._compute_rows(self.phases.row_steps_before)
        for phase in self.phases.phases:
            self._pass(phase)
            self._compute_rows(phase.row_steps_after)
        self._end_row()

    def _compute_rows(self, steps: list[int]) -> None:
        for i in steps:
            if not self.plan.steps[i].reduces:
                self.body.row["step", i] = self.body.compute(i, {})

    def _end_row(self) -> None:
        """Store the values of a row, and accumulate them."""
        shares = self.shape.waits or self.shape.tiles == 1
        tile = "" if shares else " && tile == 0"
        writes = list(enumerate(self.plan.writes))
        of_rows = [(k, w) for k, w in writes if w.role == ROW or self._of_rows(k)]
        if not of_rows:
            return
        with self.w.block(f"if (tx == 0 && live{tile})"):
            for k, write in of_rows:
                if write.role == ROW:
                    value = self.body.value(write.source, {})
                    if self._parts(k) == 1:
                        self.w(f"q{k}[row] = {narrowed(value, write.dtype)};")
                    else:
                        place = f"(i64)tile * {self.body.rows} + row"
                        self.w(f"q{k}[{place}] = {value.text};")
                else:
                    step = self.plan.steps[write.source[1]]
                    self._collect(k, self.body.value(step.arguments[0], {}))

    def _of_rows(self, k: int) -> bool:
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
            each = f"{ctype} read{k}[{shape.items * body.lanes}];"
            w(wide if body.is_wide(k) else each)
        heads = [f"for ({body.number} item = 0; item < {shape.items}; ++item)"]
        # Passes without held items are unrolled too, so that reads of several packs are
        # in flight.
        unroll = "#pragma unroll" if shape.held else "#pragma unroll 4"
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
            r.across_warp(state, min(32, shape.tx))
            if shape.tx > 32:
                r.across_warps(state, shape.tx // 32, shape.ty)
            body.row["step", i] = r.result(state)

    def _is_first(self, k: int) -> bool:
        """Return whether a read is held and not loaded yet."""
        return k in self.held_reads and k not in self.loaded

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
                w(f"const bool inside = whole || {self._inside('column')};")
            if self.shape.held:
                w(f"const int held = item * {lanes} + k;")
            known = self._known(phase, wide)
            for i, r, state in zip(phase.reductions, reducers, states, strict=True):
                value = body.value(self.plan.steps[i].arguments[0], known)
                with self._if_inside():
                    r.add(state, [value, Value("(int)column", "int32")][: len(state)])
            self._keep(phase, known)
            for k in phase.writes:
                write = self.plan.writes[k]
                if write.role != FULL:
                    step = self.plan.steps[write.source[1]]
                    with self._if_inside():
                        self._collect(k, body.value(step.arguments[0], known))
                    continue
                text = narrowed(body.value(write.source, known), write.dtype)
                place = body.offset(body.first_write + k, body.row_loops, indices)
                target = f"b{k}.of[k]" if lanes > 1 else f"s{k}[{place or 0}]"
                w(f"{target} = {text};")
        for k in full if lanes > 1 else ():
            self._store_pack(k, indices)

    def _inside(self, column: str) -> str:
        return f"({column} >= 0 && {column} < {self.body.columns})"

    def _if_inside(self) -> AbstractContextManager[None]:
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
        place = body.offset(body.first_write + k, body.row_loops, indices)
        if body.shift is None:
            w(f"*({pack}*)(s{k} + {place}) = b{k};")
            return
        w(f"if (whole) write_pack(({pack}*)(s{k} + {place}), b{k});")
        w(f"else for (int k = 0; k < {lanes}; ++k)")
        w(f"  if ({self._inside('c0 + k')}) s{k}[{place} + k] = b{k}.of[k];")

    def _load_packs(self, phase: Phase, indices: list[str]) -> dict[int, str]:
        """Load packs; return the element in lane k for each read of the columns."""
        body, w, lanes, found = self.body, self.w, self.body.lanes, {}
        for k in phase.reads:
            read, is_held = self.plan.reads[k], k in self.held_reads
            if not read.by_column:
                continue
            if k in body.counting:
                found[k] = body.counted(k, "column")
                continue
            pointer = f"r{k}" if read.by_row else body.pointer(k)
            place = body.offset(k, body.row_loops, indices) or "0"
            if body.is_wide(k):
                name = f"read{k}[item]" if is_held else f"a{k}"
                if k not in self.loaded:
                    self._load_pack(k, name, f"{pointer} + {place}")
                elif is_held:
                    w(f"renew({name});")
                found[k] = f"widen({name}.of[k])"
                continue
            inner = body.strides[k][-1]
            step = f" + k * {inner}" if lanes > 1 and inner else ""
            found[k] = f"widen({pointer}[{place}{step}])"
            if body.shift is not None:
                found[k] = f"inside ? {found[k]} : 0"
            if is_held:
                found[k] = f"widen(read{k}[item * {lanes} + k])"
            if is_held and k not in self.loaded:
                with w.block("#pragma unroll", f"for (int k = 0; k < {lanes}; ++k)"):
                    inside = f"if (whole || {self._inside('c0 + k')}) "
                    test = "" if body.shift is None else inside
                    target = f"read{k}[item * {lanes} + k]"
                    w(f"{test}{target} = {pointer}[{place}{step}];")
        return found

    def _load_pack(self, k: int, name: str, address: str) -> None:
        """Load a pack into registers."""
        body, w = self.body, self.w
        pack = f"Pack<{STORED[self.plan.reads[k].dtype]}, {body.lanes}>"
        if k not in self.held_reads:
            w(f"{pack} {name};")
        load = f"{name} = *(const {pack}*)({address});"
        if body.shift is None:
            w(load)
            return
        w(f"if (whole) {load}")
        with w.block("else"):
            w(f"{name} = {pack}();")
            w(f"for (int k = 0; k < {body.lanes}; ++k)")
            w(f"  if ({self._inside('c0 + k')}) {name}.of[k] = ({address})[k];")

    def _known(self, phase: Phase, wide: dict[int, str]) -> Known:
        """Return the values of one column."""
        body, known = self.body, Known()
        known[COLUMN_NUMBER] = Value("(int)column", "int32")
        for k, text in wide.items():
            known["read", k] = body.w.let(self.plan.reads[k].dtype, text)
        for i in phase.reloads:
            known["step", i] = Value(f"step{i}[held]", self.plan.steps[i].dtype)
        for i in phase.steps:
            known["step", i] = body.compute(i, known)
        return known

    def _keep(self, phase: Phase, known: Known) -> None:
        """Store values that later passes need in the thread's variables."""
        for i in phase.buffered:
            self.w(f"step{i}[held] = {known['step', i].text};")
