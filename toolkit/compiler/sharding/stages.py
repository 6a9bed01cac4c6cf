"""Stages: the stage and the position of each node in the graph of a micro-batch.

A node belongs to the stage of the layer that traced it. A micro-batch passes the stages
forward in order, and its gradients pass them backward. A node runs at the first
position of its stage at which all operands are available. A node outside the layers
with a stage runs where its operands are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property

from toolkit.definitions.records import record
from toolkit.errors import ArgumentError, UnsupportedError
from toolkit.ir import Graph, Kind, Node, Value

# Suffix that tapes add to the origins of nodes that compute gradients.
GRADIENT = "gradient"


@record
class Stages:
    """Map from layers to stages, by patterns of their paths.

    Attributes:
        patterns: regular expressions of layer paths, with their stages. Sublayers of a
            layer are in the same stage.
        count: number of stages.
    """

    patterns: Sequence[tuple[str, int]]
    count: int

    @cached_property
    def _stage_of_path(self) -> dict[str, int | None]:
        return {}

    def of(self, path: str) -> int | None:
        """Return the stage of a path of a layer or of its variable, or None.

        Raises:
            ArgumentError: if patterns of several stages fit.
        """
        if path not in self._stage_of_path:
            self._stage_of_path[path] = self._of(path)
        return self._stage_of_path[path]

    def _of(self, path: str) -> int | None:
        names = [name for name in path.split("/") if name != GRADIENT]
        text = "/".join([*names, ""])
        matches = {
            pattern: stage
            for pattern, stage in self.patterns
            if re.fullmatch(f"(.*/)?({pattern})(/.*)?", text)
        }
        if len(set(matches.values())) > 1:
            raise ArgumentError(
                "PipelineParallel: expected a path to match the patterns of one "
                f"stage; {path!r} matches {matches}"
            )
        return next(iter(matches.values()), None)

    def of_node(self, node: Node) -> int | None:
        """Return the stage of a node, or of all nodes in a loop or a branch.

        Raises:
            UnsupportedError: if its nodes are in several stages.
        """
        stage_of_origin = self.of(node.origin)
        if node.op.kind is not Kind.CONTROL:
            return stage_of_origin
        inner_stages: dict[int, str] = {}
        for graph in node.subgraphs:
            for inner in graph.walk():
                stage = self.of(inner.origin)
                if stage is not None:
                    inner_stages.setdefault(stage, inner.origin)
        if len(inner_stages) > 1:
            layers = ", ".join(
                f"{path!r} of stage {s}" for s, path in inner_stages.items()
            )
            raise UnsupportedError(
                f"{node.op.name}: a loop or a branch cannot be split into stages, "
                f"but it contains layers of several stages: {layers}"
            )
        return next(iter(inner_stages), stage_of_origin)


def positions(graph: Graph, micro: set[Value], stages: Stages) -> dict[Node, int]:
    """Return the positions of nodes on the path of a micro-batch; see `Turn`.

    Args:
        graph: graph of a micro-batch.
        micro: values that belong to a micro-batch.
        stages: stages of the layers.

    Returns:
        The nodes that have a position; all other nodes are recomputed where they are
        needed.

    Raises:
        UnsupportedError: names a layer whose stage is before the stage of its operands.
    """
    position_of: dict[Node, int] = {}
    at: dict[Value, Node] = {}
    for node in graph.nodes:
        if node.outputs[0] not in micro or node.op.kind is Kind.COLLECTIVE:
            continue
        read = [at[x] for x in node.inputs if x in at]
        latest = max(read, key=lambda n: position_of[n], default=None)
        earliest = -1 if latest is None else position_of[latest]
        position = _position(node, earliest, stages)
        if position is not None and position < earliest:
            assert latest is not None
            raise _backwards(node, latest, stages)
        if position is not None:
            position_of[node] = position
            at.update(dict.fromkeys(node.outputs, node))
    _delay_nodes(graph, position_of, stages)
    return position_of


def _position(node: Node, earliest: int, stages: Stages) -> int | None:
    """Return the first position of a node's stage that is not before `earliest`."""
    stage = stages.of_node(node)
    if stage is None:
        return None if earliest < 0 else earliest
    back = 2 * stages.count - 2 - stage
    return back if earliest > stage and _is_gradient(node) else stage


def _is_gradient(node: Node) -> bool:
    return GRADIENT in node.origin.split("/")


def _backwards(node: Node, read: Node, stages: Stages) -> UnsupportedError:
    stage, other = stages.of_node(node), stages.of_node(read)
    later = "a later one" if other is None else f"stage {other}"
    return UnsupportedError(
        f"PipelineParallel: layer {node.origin!r} of stage {stage} reads a result of "
        f"{read.origin or read.op.name!r} in {later}. Expected layers in the order "
        "of their stages. All calls of a layer, and the layers between them, must be "
        "in one stage"
    )


def _delay_nodes(graph: Graph, position_of: dict[Node, int], stages: Stages) -> None:
    """Delay nodes that only gradients need, if this stores no more bytes.

    So transposed operands are not stored, and neither are the values that a layer
    recomputes.
    """
    readers: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for x in node.inputs:
            readers.setdefault(x, []).append(node)
    for node in reversed(graph.nodes):
        position = position_of.get(node, stages.count)
        if position >= stages.count - 1 or not _is_gradient(node):
            continue
        back = 2 * stages.count - 2 - position
        reading = [n for y in node.outputs for n in readers.get(y, ())]
        if any(position_of.get(n, back) < back for n in reading):
            continue
        # Values that are stored anyway cost nothing.
        more = sum(
            x.spec.nbytes
            for x in node.inputs
            if not any(position_of.get(n, -1) == back for n in readers[x])
        )
        if node.op.kind is Kind.VIEW or more <= sum(
            y.spec.nbytes for y in node.outputs
        ):
            position_of[node] = back


def final_stages(
    graph: Graph, micro: set[Value], stages: Stages, initial: Mapping[Value, int]
) -> dict[Value, int]:
    """Return the stages of the nodes that run once, after all micro-batches.

    Args:
        graph: graph of a micro-batch.
        micro: values that belong to a micro-batch.
        stages: stages of the layers.
        initial: stages of variables, and of added or joined values.

    Returns:
        The stages of values that depend on these; all other values are computed where
        they are needed.
    """
    stage_of = dict(initial)
    for node in graph.nodes:
        if node.outputs[0] in micro or node.op.kind is Kind.COLLECTIVE:
            continue
        read = [x for x in node.inputs if x in stage_of]
        where = {stage_of[x] for x in read}
        if not where:
            continue
        node_stage = stages.of_node(node)
        largest = max(read, key=lambda x: (x.spec.nbytes, stage_of[x]))
        if node.op.kind is Kind.CONTROL:
            large = {stage_of[x] for x in read if x.spec.size > 1}
            if len(large) > 1:
                raise UnsupportedError(
                    f"{node.op.name}: a loop or a branch cannot be split into "
                    f"stages, but it reads values of the stages {sorted(large)}. An "
                    "example is a global norm for the clipping of accumulated "
                    "gradients"
                )
        home = node_stage if node_stage in where else stage_of[largest]
        assert home is not None
        stage_of.update(dict.fromkeys(node.outputs, home))
    return stage_of
