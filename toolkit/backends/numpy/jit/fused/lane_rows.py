"""Contiguous rows of a few elements: each lane of a vector computes one row.

The elements of a column are selected from the vectors of adjacent rows by shuffles.
Reductions need no exchange of lanes, and functions of a row fill whole vectors.
"""

from __future__ import annotations

from toolkit.backends.numpy.jit.builder import Index, Mask, Number, Value
from toolkit.backends.numpy.jit.fused.values import Available, Values
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.plans.loops.plan import FULL, LoopNest


class LaneRows:
    """Emitter of a plan with `lane_columns`."""

    def __init__(self, values: Values) -> None:
        self.v = values
        self.b: Kernel = values.b
        self.plan: LoopNest = values.plan
        self.count: int = values.plan.lane_columns
        # The values of each column that are equal in all rows.
        self.fixed: list[Available] = [
            {
                ("read", k): self.b.splat(
                    self.b.scalar(
                        self.b.at(values.bases[k], column, read.dtype), read.dtype
                    )
                )
                for k, read in enumerate(values.plan.reads)
                if read.by_column and not read.by_row
            }
            for column in range(self.count)
        ]

    def write(self, low: Number, high: Number) -> None:
        """Emit the loop over vectors of rows."""
        for row, mask in self.b.run(low, high):
            remaining = None if mask is None else (high - row) * self.count
            masks: list[Mask] = (
                [None] * self.count
                if remaining is None
                else list(self.b.first_of_vectors(remaining, self.count))
            )
            self._write_rows(row, mask, masks)

    def _write_rows(self, row: Index, mask: Mask, masks: list[Mask]) -> None:
        v, columns = self.v, [Available(values) for values in self.fixed]
        v.row = {}
        for k, read in enumerate(self.plan.reads):
            if read.by_row and read.by_column:
                for values, x in zip(columns, self._load(k, row, masks), strict=True):
                    values["read", k] = x
            elif read.by_row:
                v.row["read", k] = self.b.load(v.bases[k], row, read.dtype, mask)
        for i, step in enumerate(self.plan.steps):
            if step.role == FULL:
                for values in columns:
                    values["step", i] = v.compute(i, values)
            elif step.reduces:
                v.row["step", i] = self._reduce(i, columns)
            else:
                v.compute_rows([i])
        for k, write in enumerate(self.plan.writes):
            if write.role == FULL:
                vectors = [v.value(write.source, values) for values in columns]
                self._store(k, row, masks, vectors)
            else:
                base = v.bases[v.first_write + k]
                self.b.store(v.value(write.source, {}), base, row, mask)

    def _load(self, k: int, row: Index, masks: list[Mask]) -> list[Value]:
        """Load the columns of a vector of rows."""
        b, lanes, dtype = self.b, self.b.lanes, self.plan.reads[k].dtype
        first = row * self.count
        vectors = [
            b.load(self.v.bases[k], first + i * lanes, dtype, mask)
            for i, mask in enumerate(masks)
        ]
        return [
            b.select_lanes(
                vectors,
                [divmod(i * self.count + column, lanes) for i in range(lanes)],
            )
            for column in range(self.count)
        ]

    def _store(
        self, k: int, row: Index, masks: list[Mask], columns: list[Value]
    ) -> None:
        """Store the columns of a vector of rows."""
        b, lanes, base = self.b, self.b.lanes, self.v.bases[self.v.first_write + k]
        for i, mask in enumerate(masks):
            elements = (
                divmod(element, self.count)
                for element in range(i * lanes, (i + 1) * lanes)
            )
            vector = b.select_lanes(columns, [(c, lane) for lane, c in elements])
            b.store(vector, base, row * self.count + i * lanes, mask)

    def _reduce(self, step: int, columns: list[Available]) -> Value:
        """Reduce adjacent columns in pairs, which rounds less than in order."""
        reducer = self.v.reducer_of(step)
        source = self.plan.steps[step].arguments[0]
        states = [
            [self.v.value(source, values), self.b.int32(column)]
            for column, values in enumerate(columns)
        ]
        while len(states) > 1:
            unpaired = states[len(states) & -2 :]
            pairs = zip(states[::2], states[1::2], strict=False)
            states = [reducer.add_following(*pair) for pair in pairs] + unpaired
        return reducer.result(states[0])
