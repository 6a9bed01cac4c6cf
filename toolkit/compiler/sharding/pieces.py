"""Pieces: the graph of a step, split into parts that one stage computes alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from toolkit.compiler.sharding.micro_batches import ENTRIES, EXITS, MicroBatches
from toolkit.compiler.sharding.pipeline_schedule import stage_at
from toolkit.compiler.sharding.stages import Stages, final_stages, positions
from toolkit.definitions.records import record
from toolkit.ir import Graph, Kind, Node, Value, needed_nodes

# Views that are created again where they are needed, so that no copies are kept.
_RECOMPUTED_VIEWS = ("reshape", "transpose", "broadcast_to")


@record(eq=False)
class Piece:
    """Graph that one stage computes.

    Attributes:
        name: label for people.
        stage: index of its stage.
        inputs, outputs: values of the original graph.
        graphs: graphs by the rows of a micro-batch; key 0 if it runs once per step.
    """

    name: str
    stage: int
    inputs: Sequence[Value]
    outputs: Sequence[Value]
    graphs: Mapping[int, Graph]


@record
class Pieces:
    """All pieces of a step.

    Attributes:
        before: run once, before the first micro-batch.
        along: by position on the path of a micro-batch.
        after: run once, after the last micro-batch, in this order.
        micro: values that belong to a micro-batch.
        edges: by result: see `micro_batches`.
        where: the stages that hold each value that not all stages hold.
    """

    before: Sequence[Piece]
    along: Mapping[int, Piece]
    after: Sequence[Piece]
    micro: set[Value]
    edges: Mapping[Value, Node]
    where: Mapping[Value, int]

    def read(self, value: Value) -> Value:
        """Return the stored value for a reader: the whole value of its rows."""
        edge = self.edges.get(value)
        return edge.inputs[0] if edge is not None and edge.op in ENTRIES else value


def cut(step: MicroBatches, stages: Stages, owners: Mapping[Value, int]) -> Pieces:
    """Split a step into pieces.

    Args:
        step: the step over micro-batches.
        stages: stages of the layers.
        owners: the stages that hold inputs of the first graph; all stages hold the
            remaining ones.

    Raises:
        UnsupportedError: names a layer or a loop that cannot be split.
    """
    return _Cutter(step, stages, owners).cut()


class _Cutter:
    def __init__(
        self, step: MicroBatches, stages: Stages, owners: Mapping[Value, int]
    ) -> None:
        self.step = step
        self.stages = stages
        self.graph = graph = step.first.pruned()
        self.order = {node: i for i, node in enumerate(graph.nodes)}
        self.producers = graph.producers()
        self.micro = _micro_values(step, graph)
        self.at = positions(graph, self.micro, stages)
        self.edges = {
            node.outputs[0]: node
            for node in graph.nodes
            if node.op in (*ENTRIES, *EXITS)
        }
        homes = dict(owners)
        for y, node in self.edges.items():
            if node.op in EXITS:
                homes[y] = stage_at(self._position(node.inputs[0]), stages.count)
        self.where = final_stages(graph, self.micro, stages, homes)

    def cut(self) -> Pieces:
        along = self._along()
        return Pieces(
            self._before(along.values()),
            along,
            self._after(),
            self.micro,
            self.edges,
            self.where,
        )

    def _position(self, value: Value) -> int:
        """Return the position at which a micro-batch value is added or joined."""
        node = self.producers.get(value)
        return self.stages.count - 1 if node is None else self._of(node)

    def _of(self, node: Node) -> int:
        return self.at.get(node, self.stages.count - 1)

    # --- along the way of a micro-batch -----------------------------------------------

    def _along(self) -> dict[int, Piece]:
        """Return the piece of each position, with the nodes that it recomputes."""
        last = self.stages.count - 1
        members: dict[int, list[Node]] = defaultdict(list)
        for node, position in self.at.items():
            members[position].append(node)
        leaving = [node.inputs[0] for node in self.edges.values() if node.op in EXITS]
        for producer in (self.producers[x] for x in leaving if x in self.producers):
            if producer not in self.at and producer.op not in ENTRIES:
                members[last].append(producer)
        nodes = {
            position: self._closed(
                position_nodes, partial(self._is_recomputed, position)
            )
            for position, position_nodes in sorted(members.items())
        }
        needed = {*leaving, *_read(nodes.values())}
        pieces = {}
        for position, position_nodes in nodes.items():
            at_position = (
                node for node in position_nodes if self._of(node) == position
            )
            made_here = [y for node in at_position for y in node.outputs]
            stored = [y for y in made_here if y in needed and y in self.micro]
            stage = stage_at(position, self.stages.count)
            way = "" if position == last else (", forward", ", back")[position > last]
            pieces[position] = self._piece(
                f"stage {stage}{way}", stage, position_nodes, stored
            )
        return pieces

    def _is_recomputed(self, position: int, node: Node) -> bool:
        """Return whether the piece at a position recomputes a node."""
        if node.op.kind is Kind.COLLECTIVE:
            return False
        if node.outputs[0] not in self.micro:
            small = all(y.spec.size == 1 for y in node.outputs)
            return node.op.kind is Kind.VIEW or small
        if node not in self.at:
            return True
        count = self.stages.count
        is_same_stage = stage_at(self.at[node], count) == stage_at(position, count)
        return (
            is_same_stage
            and self.at[node] < position
            and node.op.name in _RECOMPUTED_VIEWS
        )

    # --- once in a step ---------------------------------------------------------------

    def _before(self, along: Iterable[Piece]) -> list[Piece]:
        """Return the pieces of each stage that run once, before the micro-batches."""
        needed: dict[int, dict[Value, None]] = defaultdict(dict)
        for piece in along:
            for x in piece.inputs:
                edge = self.edges.get(x)
                x = x if edge is None else edge.inputs[0]
                if x not in self.micro and x in self.producers:
                    needed[piece.stage][x] = None
        pieces = []
        for stage, values in sorted(needed.items()):
            nodes = self._closed([self.producers[x] for x in values], lambda _: True)
            name = f"stage {stage}, before"
            pieces.append(
                self._piece(name, stage, nodes, list(values), is_full_batch=True)
            )
        return pieces

    def _after(self) -> list[Piece]:
        """Return the pieces after all micro-batches, in rounds separated by moves."""
        needed: set[Value] = set(self.graph.outputs)
        members: dict[tuple[int, int], list[Node]] = defaultdict(list)
        rounds: dict[Value, int] = {}
        last = self.stages.count - 1
        for node in self._needed(needed):
            home = self.where.get(node.outputs[0])
            if home is None:  # only needed here if it is an output
                if any(y in needed for y in node.outputs):
                    members[0, last].append(node)
                continue
            read = [x for x in node.inputs if x in rounds]
            current_round = max(
                (rounds[x] + (self.where[x] != home) for x in read), default=0
            )
            rounds.update(dict.fromkeys(node.outputs, current_round))
            members[current_round, home].append(node)
        nodes = {
            key: self._closed(group_nodes, lambda n: n.outputs[0] not in self.where)
            for key, group_nodes in sorted(members.items())
        }
        read_later = {*self.graph.outputs, *_read(nodes.values())}
        pieces = []
        for (number, stage), group_nodes in nodes.items():
            results = [y for node in members[number, stage] for y in node.outputs]
            stored = [y for y in results if y in read_later]
            name = f"stage {stage}, after" + f" ({number + 1})" * (number > 0)
            pieces.append(
                self._piece(name, stage, group_nodes, stored, is_full_batch=True)
            )
            self.where.update(dict.fromkeys(stored, stage))
        return pieces

    def _needed(self, outputs: set[Value]) -> list[Node]:
        """Return the nodes that outputs need after the last micro-batch, in order."""
        late_nodes = [
            node
            for node in self.graph.nodes
            if node.outputs[0] not in self.micro and node.op.kind is not Kind.COLLECTIVE
        ]
        return needed_nodes(late_nodes, set(outputs))

    # --- graphs -----------------------------------------------------------------------

    def _closed(
        self, nodes: Iterable[Node], is_recomputed: Callable[[Node], bool]
    ) -> list[Node]:
        """Return nodes with their operands, as far as these are to be recomputed."""
        closed = dict.fromkeys(nodes)
        stack = list(closed)
        while stack:
            for x in stack.pop().inputs:
                node = self.producers.get(x)
                if node is None or node in closed or x in self.edges:
                    continue
                if is_recomputed(node):
                    closed[node] = None
                    stack.append(node)
        return sorted(closed, key=self.order.__getitem__)

    def _piece(
        self,
        name: str,
        stage: int,
        nodes: Sequence[Node],
        outputs: Sequence[Value],
        is_full_batch: bool = False,
    ) -> Piece:
        results = {y for node in nodes for y in node.outputs}
        read = dict.fromkeys(x for node in nodes for x in node.inputs)
        inputs = [x for x in read if x not in results and x.constant is None]
        graphs = {}
        for rows, graph in self.step.graphs.items():
            values, same = counterparts(self.step.first, graph)
            same_nodes = [same[node] for node in nodes]
            input_values = tuple(values[x] for x in inputs)
            graphs[0 if is_full_batch else rows] = Graph(
                input_values, tuple(same_nodes), tuple(values[y] for y in outputs)
            )
            if is_full_batch:
                break
        return Piece(name, stage, inputs, outputs, graphs)


def _read(pieces: Iterable[Sequence[Node]]) -> Iterator[Value]:
    """Yield the values that the nodes of pieces read but do not compute."""
    for nodes in pieces:
        results = {y for node in nodes for y in node.outputs}
        yield from (x for node in nodes for x in node.inputs if x not in results)


def counterparts(
    first: Graph, other: Graph
) -> tuple[dict[Value, Value], dict[Node, Node]]:
    """Return the corresponding values and nodes of a graph with the same nodes."""
    values = dict(zip(first.inputs, other.inputs, strict=True))
    nodes = dict(zip(first.nodes, other.nodes, strict=True))
    for a, b in nodes.items():
        values.update(zip(a.outputs, b.outputs, strict=True))
    return values, nodes


def _micro_values(step: MicroBatches, graph: Graph) -> set[Value]:
    """Return the values that belong to a micro-batch."""
    micro_values = {x for x in graph.inputs if x in step.split}
    for node in graph.nodes:
        is_entry = node.op in ENTRIES
        reads = any(x in micro_values for x in node.inputs)
        if is_entry or (reads and node.op not in EXITS):
            micro_values.update(node.outputs)
    return micro_values
