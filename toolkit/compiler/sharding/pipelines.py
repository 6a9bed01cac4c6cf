"""Pipelines: the operations of the stages of a step, in a static order.

All ranks have the same ordered list of all runs of pieces and all moves of values, in
which each operation is after its dependencies. A rank executes its own entries. So
nothing is negotiated, and no deadlock is possible: the first incomplete operation can
always run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from toolkit.compiler.sharding.layouts import Split
from toolkit.compiler.sharding.micro_batches import EXITS, MicroBatches
from toolkit.compiler.sharding.pieces import Piece, Pieces, cut
from toolkit.compiler.sharding.pipeline_schedule import schedule_pipeline
from toolkit.compiler.sharding.stages import Stages
from toolkit.definitions.records import record
from toolkit.ir import Graph, Node, Value

# A value and the index of its micro-batch; None: all micro-batches.
Key = tuple[Value, int | None]


class Run(NamedTuple):
    """Run of a piece by a stage, for a micro-batch or once.

    Attributes:
        piece: the piece.
        micro_batch: index of the micro-batch, if it has one.
    """

    piece: Piece
    micro_batch: int | None = None


class Move(NamedTuple):
    """Transfer of values from one stage to another.

    Attributes:
        source, target: the stages.
        values: the values, sent together.
        micro_batch: index of the micro-batch, if they have one.
    """

    source: int
    target: int
    values: tuple[Value, ...]
    micro_batch: int | None = None

    def __str__(self) -> str:
        layers = dict.fromkeys("/".join(x.origin) for x in self.values)
        words = [f"stage {self.source} to stage {self.target}", *filter(None, layers)]
        if self.micro_batch is not None:
            words.append(f"micro-batch {self.micro_batch}")
        return ", ".join(words)


@record(eq=False)
class Pipeline:
    """A step in stages.

    Attributes:
        source: the traced graph.
        step: the same graph over micro-batches.
        stages: number of stages.
        pieces: pieces of the step.
        order: operations of all stages, in order.
        name: name of the traced function.
    """

    source: Graph
    step: MicroBatches
    stages: int
    pieces: Pieces
    order: Sequence[Run | Move]
    name: str = "a step"

    def key(self, value: Value, micro_batch: int | None) -> Key:
        """Return the key of a value that is read or computed in a micro-batch."""
        return value, micro_batch if value in self.pieces.micro else None

    @cached_property
    def splits(self) -> dict[Value, Split]:
        """Return the shardings of the inputs that are parts of the batch."""
        return self.step.split

    @cached_property
    def exits(self) -> dict[Value, list[Node]]:
        """Return the sums and joins of each micro-batch value."""
        exits_of: dict[Value, list[Node]] = {}
        for node in self.pieces.edges.values():
            if node.op in EXITS:
                exits_of.setdefault(node.inputs[0], []).append(node)
        return exits_of

    @cached_property
    def stored_values(self) -> set[Value]:
        """Return the values that are read outside the piece that computes them."""
        stored = set(self.step.first.outputs)
        for entry in self.order:
            if isinstance(entry, Move):
                stored.update(entry.values)
            else:
                stored.update(map(self.pieces.read, entry.piece.inputs))
        return stored

    @cached_property
    def last_reads(self) -> list[list[tuple[int, Key]]]:
        """Return for each entry of the order the stages and keys of last reads.

        Results of the step are excluded.
        """
        last: dict[tuple[int, Key], int] = {}
        for number, entry in enumerate(self.order):
            if isinstance(entry, Move):
                keys = [
                    (entry.source, self.key(x, entry.micro_batch)) for x in entry.values
                ]
            else:
                stage, read = (
                    entry.piece.stage,
                    map(self.pieces.read, entry.piece.inputs),
                )
                keys = [(stage, self.key(x, entry.micro_batch)) for x in read]
            last.update(dict.fromkeys(keys, number))
        per_entry: list[list[tuple[int, Key]]] = [[] for _ in self.order]
        results = set(self.step.first.outputs)
        for key, number in last.items():
            if key[1][0] not in results:
                per_entry[number].append(key)
        return per_entry

    def described(self) -> Iterator[str]:
        """Yield lines that describe everything that must be equal on all ranks."""
        yield f"takes {', '.join(str(x.spec) for x in self.source.inputs)}"
        for entry in self.order:
            number = "" if entry.micro_batch is None else f" of {entry.micro_batch}"
            if isinstance(entry, Move):
                specs = ", ".join(str(x.spec) for x in entry.values)
                yield f"stage {entry.source} to {entry.target}{number}: {specs}"
            else:
                yield f"{entry.piece.name}{number}"
        yield from (node.op.name for node in self.source.nodes)


def pipeline(
    source: Graph,
    step: MicroBatches,
    stages: Stages,
    owners: Mapping[Value, int],
    takers: Sequence[int | None],
    name: str,
) -> Pipeline:
    """Return the pipeline of a step.

    Args:
        source: the traced graph.
        step: the same graph over micro-batches.
        stages: stages of the layers.
        owners: the stages that hold inputs of the step's graph; all stages hold the
            remaining ones.
        takers: for each output the stage that needs it; None: all stages.
        name: name of the function.

    Raises:
        UnsupportedError: if the step cannot be split.
    """
    pieces = cut(step, stages, owners)
    planner = _Planner(step, pieces, stages.count)
    order = [*planner.order(takers)]
    return Pipeline(source, step, stages.count, pieces, order, name)


class _Planner:
    def __init__(self, step: MicroBatches, pieces: Pieces, stages: int) -> None:
        self.step = step
        self.pieces = pieces
        self.stages = stages
        # The stages that already received a value of one stage.
        self.received: set[tuple[int, Value]] = set()

    def order(self, takers: Sequence[int | None]) -> Iterator[Run | Move]:
        pieces = self.pieces
        early = [*pieces.before, *pieces.along.values()]
        stored = set(self.step.first.inputs)
        for piece in early:  # variables of other stages
            yield from self._bring(
                (x for x in self._once_operands(piece) if x in stored), piece
            )
        yield from (Run(piece) for piece in pieces.before)
        yield from self._along()
        for piece in pieces.after:
            yield from self._bring(self._once_operands(piece), piece)
            yield Run(piece)
        yield from self._results(takers)

    def _once_operands(self, piece: Piece) -> Iterator[Value]:
        """Yield the (whole) operands of a piece that are computed or stored once."""
        operands = dict.fromkeys(map(self.pieces.read, piece.inputs))
        return (x for x in operands if x not in self.pieces.micro)

    def _bring(self, values: Iterable[Value], piece: Piece) -> Iterator[Move]:
        return self._to(piece.stage, values)

    def _to(self, target: int, values: Iterable[Value]) -> Iterator[Move]:
        """Yield the moves of values that a stage does not have."""
        ways: dict[int, list[Value]] = {}
        for x in values:
            source = self.pieces.where.get(x, target)
            if source != target and (target, x) not in self.received:
                self.received.add((target, x))
                ways.setdefault(source, []).append(x)
        for source, moved in sorted(ways.items()):
            yield Move(source, target, tuple(moved))

    def _along(self) -> Iterator[Run | Move]:
        """Yield the schedule of all stages, with the moves from each to later ones."""
        along = self.pieces.along
        moves = self._between()
        back = any(position >= self.stages for position in along)
        events: list[tuple[int, int, int, Run | Move]] = []
        for start, end, position, number in schedule_pipeline(
            self.stages, self.step.count, back
        ):
            if position not in along:
                continue
            events.append((start, 1, position, Run(along[position], number)))
            for source, target, values in moves.get(position, ()):
                events.append((end, 0, position, Move(source, target, values, number)))
        # Results are sent before the next operation starts.
        return (event[-1] for event in sorted(events, key=lambda event: event[:3]))

    def _between(self) -> dict[int, list[tuple[int, int, tuple[Value, ...]]]]:
        """Return the values that each position sends, with their target stages."""
        along = self.pieces.along
        producer_of = {y: p for p, piece in along.items() for y in piece.outputs}
        ways: dict[tuple[int, int], dict[Value, None]] = {}
        for piece in along.values():
            for x in piece.inputs:
                if x in producer_of and along[producer_of[x]].stage != piece.stage:
                    ways.setdefault((producer_of[x], piece.stage), {})[x] = None
        transfers: dict[int, list[tuple[int, int, tuple[Value, ...]]]] = {}
        for (position, target), values in sorted(ways.items(), key=lambda way: way[0]):
            source = along[position].stage
            transfers.setdefault(position, []).append((source, target, tuple(values)))
        return transfers

    def _results(self, takers: Sequence[int | None]) -> Iterator[Move]:
        for target in range(self.stages):
            pairs = zip(self.step.first.outputs, takers, strict=True)
            yield from self._to(target, [y for y, t in pairs if t in (None, target)])
