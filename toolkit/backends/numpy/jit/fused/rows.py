"""One row of a fused body: in passes over memory, or in registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from itertools import chain

from toolkit.backends.numpy.jit.builder import Mask, Number, Pointer, Value
from toolkit.backends.numpy.jit.fused.partials import Partials
from toolkit.backends.numpy.jit.fused.reducers import Reducer, State
from toolkit.backends.numpy.jit.fused.values import COLUMNS, Available, Bases, Values
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.dtypes import is_float
from toolkit.plans.loops.phases import Phase, Phases, step_cost as cost_of
from toolkit.plans.loops.plan import COLUMN, FULL, ONE, ROW, LoopNest, Source

# (bases, index, column, mask, states) -> states, for one vector of a pass: `index` is
# relative to the innermost loop, `column` to the whole row.
PassStep = Callable[[Bases, Number, Number, Mask, list[State]], list[State]]
# Independent accumulators. Above this cost in additions, one accumulator is enough.
_ACCUMULATORS, _MAX_UNROLLED_COST = 4, 8
# Elements of a row that are summed separately. The rounding error of a sum then depends
# on the additions of each lane in a block, and not on the length of the row.
_BLOCK_ELEMENTS = 4096
# Reductions whose result is decided by one element, and the elements between checks.
# Rows that decide nothing take as long with checks as without.
_DECIDABLE = ("any", "all")
_CHECKED_ELEMENTS = 1024


def _store_row_results(v: Values, partials: Partials, bases: Bases) -> None:
    """Store the values with one element for each row."""
    for k, write in enumerate(v.plan.writes):
        step = v.plan.steps[write.source[1]]
        if write.role == ROW:
            v.b.put_first(v.value(write.source, {}), bases[v.first_write + k])
        elif write.role == ONE and step.reduces == ROW:
            partials.add(k, v.value(step.arguments[0], {}))


class StreamedRow:
    """Rows of any length, with one loop over vectors for each phase."""

    def __init__(self, values: Values, partials: Partials) -> None:
        self.v = values
        self.b: Kernel = values.b
        self.plan: LoopNest = values.plan
        self.partials = partials
        self.phases: Phases = Phases(values.plan)
        self.buffers: list[Pointer] = []
        self.vectors: list[tuple[Number, Mask]] = []  # no row values are in registers
        if self.phases.buffered_steps:
            self._find_buffers()

    def _find_buffers(self) -> None:
        v, numbers = self.v, self.v.numbers
        offset = self.b.slot * v.entry(numbers.task_buffers)
        base = self.b.address(numbers.buffer) + offset
        step = v.entry(numbers.next_buffer)
        for i in range(len(self.phases.buffered_steps)):
            self.buffers.append(base + i * step)

    def emit_range(self, bases: Bases, low: Number, high: Number) -> None:
        """Emit a range of elements of the only loop."""
        self._pass(self.phases.phases[0], bases, low, high)

    def emit_row(self, bases: Bases, index: Number) -> None:
        """Emit the row with this index."""
        self.v.begin_row(bases, self.phases.row_steps_before)
        extent = self.v.row_extent(index)
        for phase in self.phases.phases:
            self._pass(phase, bases, 0, extent)
            self.v.compute_rows(phase.row_steps_after)
        _store_row_results(self.v, self.partials, bases)

    def _pass(self, phase: Phase, bases: Bases, low: Number, high: Number) -> None:
        writes = self.plan.writes
        totals = [k for k in phase.writes if writes[k].role == ONE]
        reduced = [*phase.reductions, *(writes[k].source[1] for k in totals)]
        reducers = [self.v.reducer_of(i) for i in reduced]
        arguments = [self.plan.steps[i].arguments[0] for i in reduced]

        def step(
            bases: Bases,
            index: Number,
            column: Number,
            mask: Mask,
            states: list[State],
        ) -> list[State]:
            values = self._values(phase, bases, index, column, mask)
            following = [
                r.add(state, self.v.value(x, values), mask, column)
                for r, x, state in zip(reducers, arguments, states, strict=True)
            ]
            self._store(phase, bases, index, column, mask, values)
            return following

        is_effect_free = not phase.buffered and len(totals) == len(phase.writes)
        loops = _Columns(
            self.v,
            step,
            reducers,
            *self._count_accumulators(phase, reduced),
            can_stop=is_effect_free and all(r.op in _DECIDABLE for r in reducers),
        )
        initial = [r.initial() for r in reducers]
        if loops.can_stop and totals:
            # The results of earlier rows may be decided.
            first = len(initial) - len(totals)
            initial[first:] = [self.partials.registers[k] for k in totals]
        states = loops.run(self.plan.row_loops, bases, low, high, 0, initial)
        for r, i, state in zip(reducers, reduced, states, strict=True):
            self.v.row["step", i] = r.finish(state)
        for k in totals:
            self.partials.add(k, self.v.row[writes[k].source])

    def _count_accumulators(
        self, phase: Phase, reduced: Sequence[int]
    ) -> tuple[int, int]:
        """Return the numbers of independent accumulators and of unrolled vectors.

        The accumulators hide the latency of an addition.
        """
        cost = sum(cost_of(self.plan.steps[i].op) for i in phase.steps)
        unroll = 1 if not reduced or cost > _MAX_UNROLLED_COST else _ACCUMULATORS
        plan = self.plan
        is_fixed = plan.has_fixed_order or plan.has_fixed_accumulators
        return _ACCUMULATORS if reduced and is_fixed else unroll, unroll

    def _values(
        self, phase: Phase, bases: Bases, index: Number, column: Number, mask: Mask
    ) -> Available:
        """Return the values that a pass loads and computes for one vector."""
        v, values = self.v, Available()
        if self.plan.accesses_elements:
            values[COLUMNS] = v.columns(column)
        for k in phase.reads:
            if self.plan.reads[k].by_column:
                values["read", k] = v.load(k, bases[k], index, mask)
        for i in phase.reloads:
            base, at = self._locate_stored(i, bases, index, column)
            dtype = self.plan.steps[i].dtype
            values["step", i] = v.b.load(base, at, dtype, mask)
        for i in phase.steps:
            values["step", i] = v.compute(i, values)
        return values

    def _locate_stored(
        self, step: int, bases: Bases, index: Number, column: Number
    ) -> tuple[Pointer, Number]:
        """Return the address of a stored full value, and the index relative to it."""
        for k, write in enumerate(self.plan.writes):
            if write.source == ("step", step):
                return bases[self.v.first_write + k], index
        return self.buffers[self.phases.buffered_steps.index(step)], column

    def _store(
        self,
        phase: Phase,
        bases: Bases,
        index: Number,
        column: Number,
        mask: Mask,
        values: Available,
    ) -> None:
        v, b = self.v, self.b
        for i in phase.buffered:
            buffer = self.buffers[self.phases.buffered_steps.index(i)]
            b.store(values["step", i], buffer, column, mask)
        for k in phase.writes:
            write, base = self.plan.writes[k], bases[v.first_write + k]
            if write.role == FULL:
                b.store(v.value(write.source, values), base, index, mask)
            elif write.role != ONE:
                value = v.value(self.plan.steps[write.source[1]].arguments[0], values)
                self.partials.add_in_memory(k, base, index, mask, value)


class _Columns:
    """The loops over the columns of a row for one pass.

    Args:
        values: the values of the function.
        step: emits the computation of a pass for one vector.
        reducers: the reducers of the pass.
        chains: the number of independent accumulators, used for vectors in rotation.
        unroll: the number of vectors of an iteration: `chains`, or one.
        can_stop: whether the pass does nothing after its results are decided.
    """

    def __init__(
        self,
        values: Values,
        step: PassStep,
        reducers: Sequence[Reducer],
        chains: int,
        unroll: int,
        can_stop: bool = False,
    ) -> None:
        self.v = values
        self.can_stop = can_stop and bool(reducers)
        self.b = values.b
        self.step = step
        self.reducers = reducers
        self.accumulators = chains
        self.unroll = unroll

    def run(
        self,
        loop: int,
        bases: Bases,
        low: Number,
        high: Number,
        column: Number,
        states: list[State],
    ) -> list[State]:
        """Emit the loops from `loop` on; `column` is their start in the row."""
        if loop == self.v.numbers.rank - 1:
            adds = any(r.op == "sum" and is_float(r.dtype) for r in self.reducers)
            innermost = self._emit_blocks if adds else self._vectors
            innermost = self._emit_until_decided if self.can_stop else innermost
            return innermost(bases, low, high, column, states)
        inner = self.v.extents[loop + 1]
        with self.b.accumulate(low, high, 1, _flatten(states)) as iteration:
            moved = self.v.bases_at(bases, loop, iteration.index)
            position = iteration.index + column
            start = position * inner
            states = self._unflatten(iteration.values)
            states = self.run(loop + 1, moved, 0, inner, start, states)
            iteration.next(_flatten(states))
        return self._unflatten(iteration.values)

    def _emit_blocks(
        self,
        bases: Bases,
        low: Number,
        high: Number,
        column: Number,
        states: list[State],
    ) -> list[State]:
        """Emit the innermost loop in blocks, to limit the rounding error of sums."""
        with self.b.accumulate(
            low, high, _BLOCK_ELEMENTS, _flatten(states)
        ) as iteration:
            end = self.b.min(iteration.index + _BLOCK_ELEMENTS, high)
            fresh = [r.initial() for r in self.reducers]
            block_states = self._vectors(bases, iteration.index, end, column, fresh)
            states = self._merge(self._unflatten(iteration.values), block_states)
            iteration.next(_flatten(states))
        return self._unflatten(iteration.values)

    def _emit_until_decided(
        self,
        bases: Bases,
        low: Number,
        high: Number,
        column: Number,
        states: list[State],
    ) -> list[State]:
        """Emit the innermost loop in blocks, which are empty after the decision."""
        b = self.b
        with b.accumulate(low, high, _CHECKED_ELEMENTS, _flatten(states)) as iteration:
            states = self._unflatten(iteration.values)
            end = b.min(iteration.index + _CHECKED_ELEMENTS, high)
            end = b.choose(self._are_decided(states), iteration.index, end)
            states = self._vectors(bases, iteration.index, end, column, states)
            iteration.next(_flatten(states))
        return self._unflatten(iteration.values)

    def _are_decided(self, states: list[State]) -> Value:
        """Return whether further elements change no result."""
        decided = [
            self.b.across_lanes("or", state[0])
            if r.op == "any"
            else self.b.opposite(self.b.across_lanes("and", state[0]))
            for r, state in zip(self.reducers, states, strict=True)
        ]
        return reduce(partial(self.b.binary, "and"), decided)

    def _vectors(
        self,
        bases: Bases,
        low: Number,
        high: Number,
        column: Number,
        states: list[State],
    ) -> list[State]:
        """Emit iterations of several vectors, then the remainder."""
        b, lanes, count = self.b, self.b.lanes, self.accumulators
        end = b.whole_vectors(low, high, lanes * count)
        parallel = [states, *[[r.initial() for r in self.reducers]] * (count - 1)]
        initial = [v for group in parallel for v in _flatten(group)]
        with b.accumulate(low, end, lanes * self.unroll, initial) as iteration:
            size = len(initial) // count
            # Rotate the accumulators: after a full rotation all are in order again.
            following: list[Value] = list(iteration.values[self.unroll * size :])
            for i in range(self.unroll):
                index = iteration.index + i * lanes
                position = index + column
                current_states = self._unflatten(
                    iteration.values[i * size : (i + 1) * size]
                )
                following += _flatten(
                    self.step(bases, index, position, None, current_states)
                )
            iteration.next(following)
        parallel = [
            self._unflatten(iteration.values[i * size : (i + 1) * size])
            for i in range(count)
        ]
        with b.accumulate(end, high, lanes, _flatten(parallel[0])) as iteration:
            mask = b.first_lanes(high - iteration.index)
            position = iteration.index + column
            current_states = self._unflatten(iteration.values)
            iteration.next(
                _flatten(
                    self.step(bases, iteration.index, position, mask, current_states)
                )
            )
        parallel[0] = self._unflatten(iteration.values)
        while len(parallel) > 1:
            pairs = zip(parallel[0::2], parallel[1::2], strict=True)
            parallel = [self._merge(a, b) for a, b in pairs]
        return parallel[0]

    def _merge(self, a: list[State], b: list[State]) -> list[State]:
        rows = zip(self.reducers, a, b, strict=True)
        return [r.merge(x, y) for r, x, y in rows]

    def _unflatten(self, values: Sequence[Value]) -> list[State]:
        """Group a flat list of values into the states of the reducers."""
        remaining, states = list(values), []
        for r in self.reducers:
            size = len(r.initial())
            states.append(remaining[:size])
            remaining = remaining[size:]
        return states


def _flatten(states: Sequence[State]) -> list[Value]:
    return list(chain.from_iterable(states))


class RegisterRow:
    """Short rows: every value of a row is computed once and stays in registers."""

    def __init__(self, values: Values, partials: Partials) -> None:
        self.v = values
        self.b: Kernel = values.b
        self.plan: LoopNest = values.plan
        self.partials = partials
        lanes, extent = self.b.lanes, values.extents[-1]
        self.starts: list[int] = [i * lanes for i in range(self.plan.register_vectors)]
        remainder = extent - self.starts[-1]
        self.masks: list[Mask] = [None] * (self.plan.register_vectors - 1)
        self.masks.append(self.b.first_lanes(remainder))
        self.vectors: list[tuple[int, Mask]] = list(
            zip(self.starts, self.masks, strict=True)
        )
        self.fixed: dict[Source, list[Value]] = {
            ("read", k): self._load(k, values.bases)
            for k, read in enumerate(self.plan.reads)
            if read.by_column and not read.by_row
        }

    def _load(self, k: int, bases: Bases) -> list[Value]:
        return [self.v.load(k, bases[k], start, mask) for start, mask in self.vectors]

    def emit_range(self, bases: Bases, low: Number, high: Number) -> None:
        """Raise an error: a single loop over elements has no rows in registers."""
        raise AssertionError("a loop over elements cannot be in registers")

    def emit_row(self, bases: Bases, index: Number) -> None:
        """Emit the row with this index."""
        v = self.v
        v.begin_row(bases, ())
        vectors = dict(self.fixed)
        if self.plan.accesses_elements:
            vectors[COLUMNS] = [v.columns(start) for start in self.starts]
        for k, read in enumerate(self.plan.reads):
            if read.by_column and read.by_row:
                vectors["read", k] = self._load(k, bases)
        for i, step in enumerate(self.plan.steps):
            if step.role == FULL:
                vectors["step", i] = [
                    v.compute(
                        i, {s: registers[vector] for s, registers in vectors.items()}
                    )
                    for vector in range(self.plan.register_vectors)
                ]
            elif step.role == ROW and not step.reduces:
                v.compute_rows([i])
            elif step.reduces == FULL and step.role in (ROW, ONE):
                v.row["step", i] = self._reduce(i, vectors)
        self._store(bases, vectors)
        _store_row_results(v, self.partials, bases)

    def _vectors(
        self, source: Source, available: dict[Source, list[Value]]
    ) -> list[Value]:
        if source in available:
            return available[source]
        return [self.v.value(source, {})] * self.plan.register_vectors

    def _reduce(self, step: int, available: dict[Source, list[Value]]) -> Value:
        r = self.v.reducer_of(step)
        state = r.initial()
        vectors = self._vectors(self.plan.steps[step].arguments[0], available)
        for x, (start, mask) in zip(vectors, self.vectors, strict=True):
            state = r.add(state, x, mask, start)
        return r.finish(state)

    def _store(self, bases: Bases, available: dict[Source, list[Value]]) -> None:
        v = self.v
        for k, write in enumerate(self.plan.writes):
            step, base = self.plan.steps[write.source[1]], bases[v.first_write + k]
            if write.role == ONE and step.reduces == FULL:
                self.partials.add(k, v.row[write.source])
            elif write.role == FULL:
                for value, (start, mask) in zip(
                    available[write.source], self.vectors, strict=True
                ):
                    v.b.store(value, base, start, mask)
            elif write.role == COLUMN:
                vectors = self._vectors(step.arguments[0], available)
                for index, value in enumerate(vectors):
                    self.partials.add(k, value, index)
