"""Execution of pipelines: the pieces of a rank's stages, and its transfers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from toolkit import comm, dtypes
from toolkit.backends.base import Backend
from toolkit.backends.target import Target
from toolkit.comm import Group
from toolkit.comm.ordered import OPERATIONS
from toolkit.compiler.execute import Executable
from toolkit.compiler.pipeline import compile_program
from toolkit.compiler.sharding.layouts import Partial, Split
from toolkit.compiler.sharding.micro_batches import EXITS, first_p, join_p
from toolkit.compiler.sharding.pieces import Piece, counterparts
from toolkit.compiler.sharding.pipelines import Key, Move, Pipeline, Run
from toolkit.definitions.records import record
from toolkit.ir import Node, Spec, Value

Array = Any
# Smaller arrays are sent together, at the cost of one more copy.
_SMALL_NBYTES = 64 << 10


@record(eq=False)
class StagedProgram:
    """A step in stages, for one rank.

    Attributes:
        pipeline: operations of a step.
        backend: the backend.
    """

    pipeline: Pipeline
    backend: Backend

    in_place = False

    @property
    def name(self) -> str:
        """Return the name of the traced function."""
        return self.pipeline.name

    @property
    def source(self) -> Any:
        """Return the traced graph."""
        return self.pipeline.source


class StagedExecutable:
    """Pipeline that all ranks call as one program at the same time.

    Args:
        pipeline: operations of a step.
        target: compilation target of the pieces.
        group: group of the ranks.
        ranks: the rank of each stage.
        settle: called before results become valid; it may raise.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        target: Target,
        group: Group,
        ranks: Sequence[int],
        settle: Callable[[], None] | None = None,
    ) -> None:
        self.program = StagedProgram(pipeline, target.backend)
        self.group = group
        self.ranks = ranks
        self._settle = settle
        self.local_stages: list[int] = [
            s for s, rank in enumerate(ranks) if rank == group.rank
        ]
        self._data = Executable(
            compile_program(pipeline.step.data, target, f"{pipeline.name}, data")
        )
        self._runs: dict[tuple[Piece, int], Executable] = {}
        for entry in pipeline.order:
            if isinstance(entry, Run) and entry.piece.stage in self.local_stages:
                for rows, graph in entry.piece.graphs.items():
                    if (entry.piece, rows) not in self._runs:
                        name = f"{pipeline.name}, {entry.piece.name}"
                        program = compile_program(graph, target, name)
                        self._runs[entry.piece, rows] = Executable(program)
        # The specs of values in a micro-batch, by number of rows.
        self.specs: dict[int, Mapping[Value, Spec]] = {
            rows: {
                a: b.spec
                for a, b in counterparts(pipeline.step.first, graph)[0].items()
            }
            for rows, graph in pipeline.step.graphs.items()
        }

    def __call__(
        self, inputs: Sequence[Array], outs: Sequence[Array | None] | None = None
    ) -> list[Array]:
        """Run on the whole batch, with the interface of `Executable`.

        Variables of other ranks are not read, and their arrays in `outs` do not change.
        """
        with self.program.backend.kernels.errstate():
            data_graph = self.program.pipeline.step.data
            data = self._data.run(inputs[: len(data_graph.inputs)])
            step = _Step(self, [*inputs, *data])
            step.run()
            results = step.results(outs)
        if self._settle is not None:
            self._settle()
        return results


class _Step:
    """One step: the values that the stages of this rank store."""

    def __init__(self, executable: StagedExecutable, inputs: Sequence[Array]) -> None:
        self.executable = executable
        self.pipeline = pipeline = executable.program.pipeline
        self.step = pipeline.step
        self.inputs: dict[Value, Array] = dict(
            zip(self.step.first.inputs, inputs, strict=True)
        )
        self.stored: dict[int, dict[Key, Array]] = {
            stage: {} for stage in executable.local_stages
        }

    def run(self) -> None:
        """Execute the operations of this rank; release values after their last read."""
        for entry, over in zip(
            self.pipeline.order, self.pipeline.last_reads, strict=True
        ):
            if isinstance(entry, Move):
                self._move(entry)
            elif entry.piece.stage in self.stored:
                self._run(entry)
            for stage, key in over:
                if stage in self.stored:
                    self.stored[stage].pop(key, None)

    # --- computing --------------------------------------------------------------------

    def _run(self, run_entry: Run) -> None:
        piece, number = run_entry
        rows = 0 if number is None else len(self.step.row_range(number))
        run = self.executable._runs[piece, rows]
        outputs = run.run([self._value(piece.stage, x, number) for x in piece.inputs])
        stored = self.stored[piece.stage]
        for y, array in zip(piece.outputs, outputs, strict=True):
            if y in self.pipeline.stored_values:
                stored[self.pipeline.key(y, number)] = array
            for node in self.pipeline.exits.get(y, ()):
                self._accumulate(stored, node, array, number)

    def _value(self, stage: int, value: Value, number: int | None) -> Array:
        """Return an operand of a piece."""
        edge = self.pipeline.pieces.edges.get(value)
        if edge is None or edge.op in EXITS:
            split = self.pipeline.splits.get(value)
            if split is None:
                return self._find_stored(stage, value, number)
            assert number is not None
            return rows_of(self.inputs[value], split, self.step.row_range(number))
        full = self._find_stored(stage, edge.inputs[0], None)
        assert number is not None
        if edge.op is first_p:
            return full if number == 0 else np.zeros_like(full)
        return rows_of(full, edge.attrs["layout"], self.step.row_range(number))

    def _find_stored(self, stage: int, value: Value, number: int | None) -> Array:
        if value.constant is not None:
            return value.constant
        stored = self.stored[stage].get(self.pipeline.key(value, number))
        return self.inputs[value] if stored is None else stored

    def _accumulate(
        self, stored: dict[Key, Array], node: Node, array: Array, number: int | None
    ) -> None:
        """Add a term to a sum, or rows to a whole value."""
        assert number is not None
        (result,) = node.outputs
        layout, key = node.attrs["layout"], (result, None)
        if node.op is join_p:
            if key not in stored:
                dtype = dtypes.numpy_dtype(result.spec.dtype)
                stored[key] = np.empty(result.spec.shape, dtype)
            put_rows(stored[key], layout, self.step.row_range(number), array)
            return
        assert isinstance(layout, Partial)
        if key not in stored:
            stored[key] = array
            return
        # Other nodes may also read the first term, so it is not overwritten.
        total = stored[key] if number > 1 else np.empty_like(array)
        stored[key] = OPERATIONS[layout.op](stored[key], array, out=total)

    # --- moving -----------------------------------------------------------------------

    def _move(self, entry: Move) -> None:
        source, target = (
            self.executable.ranks[s] for s in (entry.source, entry.target)
        )
        rank = self.executable.group.rank
        if rank not in (source, target):
            return
        if source == target:
            for x in entry.values:
                array = self._find_stored(entry.source, x, entry.micro_batch)
                self.stored[entry.target][self.pipeline.key(x, entry.micro_batch)] = (
                    array
                )
            return
        with comm.named(str(entry)):
            if rank == source:
                self._send(entry, target)
            else:
                self._receive(entry, source)

    def _send(self, entry: Move, target: int) -> None:
        arrays = [
            self._find_stored(entry.source, x, entry.micro_batch) for x in entry.values
        ]
        arrays = [np.asarray(array, order="C") for array in arrays]
        small = [array for array in arrays if array.nbytes <= _SMALL_NBYTES]
        if small:
            raw = [array.reshape(-1).view(np.uint8) for array in small]
            self.executable.group.send(np.concatenate(raw), target)
        for array in arrays:
            if array.nbytes > _SMALL_NBYTES:
                self.executable.group.send(array, target)

    def _receive(self, entry: Move, source: int) -> None:
        specs = [self._spec(x, entry.micro_batch) for x in entry.values]
        stored = self.stored[entry.target]
        together = sum(spec.nbytes for spec in specs if spec.nbytes <= _SMALL_NBYTES)
        raw, start = np.empty(together, np.uint8), 0
        if any(spec.nbytes <= _SMALL_NBYTES for spec in specs):
            self.executable.group.receive(raw, source)
        for x, spec in zip(entry.values, specs, strict=True):
            dtype = dtypes.numpy_dtype(spec.dtype)
            array = np.empty(spec.shape, dtype)
            if spec.nbytes <= _SMALL_NBYTES:
                flat = array.reshape(-1).view(np.uint8)
                flat[:] = raw[start : start + spec.nbytes]
                start += spec.nbytes
            else:
                self.executable.group.receive(array, source)
            stored[self.pipeline.key(x, entry.micro_batch)] = array

    def _spec(self, value: Value, number: int | None) -> Spec:
        if number is None:
            return value.spec
        return self.executable.specs[len(self.step.row_range(number))][value]

    # --- results ----------------------------------------------------------------------

    def results(self, outs: Sequence[Array | None] | None) -> list[Array]:
        """Return a new array for each output, or the given array in `outs`."""
        outputs = self.step.first.outputs
        destinations = outs or [None] * len(outputs)
        return [
            self._result(y, out) for y, out in zip(outputs, destinations, strict=True)
        ]

    def _result(self, value: Value, out: Array | None) -> Array:
        array = value.constant
        for stage in self.stored:
            if array is None:
                array = self.stored[stage].get((value, None))
        if array is None:
            where = self.pipeline.pieces.where.get(value)
            if where is not None and where not in self.stored:  # another rank stores it
                return np.zeros(value.spec.shape) if out is None else out
            array = self.inputs[value]
        if out is None:
            return np.array(array)
        out[...] = array
        return out


def rows_of(array: Array, split: Split, rows: range) -> Array:
    """Return a range of the units of a whole value."""
    rows_view = _split_units(array, split)[_index(split, rows)]
    shape = list(array.shape)
    shape[split.axis] = split.major * len(rows) * split.minor
    return rows_view.reshape(shape)


def put_rows(full: Array, split: Split, rows: range, array: Array) -> None:
    """Write a range of the units of a whole value."""
    target = _split_units(full, split)[_index(split, rows)]
    target[...] = array.reshape(target.shape)


def _split_units(array: Array, split: Split) -> Array:
    """Return a view with separate axes for units and for the elements inside a unit."""
    axis, shape = split.axis, list(array.shape)
    units = shape[axis] // (split.major * split.minor)
    shape[axis : axis + 1] = [split.major, units, split.minor]
    return array.reshape(shape)


def _index(split: Split, rows: range) -> tuple[slice, ...]:
    return (*[slice(None)] * (split.axis + 1), slice(rows.start, rows.stop))
