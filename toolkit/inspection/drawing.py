"""Pictures of a program: its arena over time, and the graph of its kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from toolkit.ir import Graph, Node, Value
from toolkit.pictures.axes import bytes_text, count_text, seconds_text
from toolkit.pictures.blocks import Block, draw_blocks
from toolkit.pictures.boxes import Box, Cell, Cluster, truncate
from toolkit.pictures.diagram import draw
from toolkit.pictures.picture import Picture

if TYPE_CHECKING:
    from toolkit.inspection.inspection import Inspection, Kernel

_SMALL = 32  # limit up to which every node is shown
_LONG = 60  # maximum length of a kernel's name
_COLORS = {"fused loops": "first", "other kernels": "third", "workspace": "sixth"}


def draw_arena(inspection: Inspection) -> Picture:
    """Draw each buffer as a rectangle: its lifetime in steps by its bytes."""
    blocks = []
    for buffer in inspection.program.plan.distinct:
        kind = "fused loops" if buffer.label.startswith("fused") else "other kernels"
        if buffer.label.endswith("workspace"):
            kind = "workspace"
        lives = f"from step {buffer.first} to step {buffer.last}"
        size = f"{bytes_text(buffer.nbytes)} at {buffer.offset:,}"
        blocks.append(
            Block(
                buffer.first,
                buffer.last + 1,
                buffer.offset,
                buffer.offset + buffer.nbytes,
                kind,
                buffer.label,
                f"{buffer.label}: {size}, {lives}",
            )
        )
    peak, live = map(bytes_text, (inspection.peak_bytes, inspection.live_bytes))
    return draw_blocks(
        blocks,
        f"Arena of {inspection.name}: {peak}",
        f"at most {live} live at the same time"
        if blocks
        else "every value stays in registers",
        "step of the schedule",
        _COLORS,
    )


def draw_graph(inspection: Inspection, expand: bool | None) -> Picture:
    """Draw boxes for kernels, or frames with a box for each of their nodes."""
    graph = inspection.graph
    if expand is None:
        expand = sum(1 for _ in _members(graph)) <= _SMALL
    content = _Reader(inspection).nodes() if expand else _Reader(inspection).kernels()
    return draw(content, "TB", "ortho")


def _members(graph: Graph) -> Iterator[Node]:
    """Yield the nodes of a graph, with the members of fused nodes instead of these."""
    for node in graph.nodes:
        if node.op.name == "fused":
            yield from node.attrs["body"].nodes
        else:
            yield node


class _Reader:
    """Builder of a diagram of a program's graph."""

    def __init__(self, inspection: Inspection) -> None:
        self.inspection = inspection
        self.graph = inspection.graph
        self.content = Cluster(f"graph of {inspection.name}")
        self.producers = self.graph.producers()
        self.names = dict(self.graph.names)
        self.box_of: dict[Value, Box] = {}  # by the value that it computes

    def kernels(self) -> Cluster:
        """Add a box for each kernel; views are skipped."""
        boxes: dict[Node, Box] = {}
        for number, kernel in enumerate(self.inspection.kernels):
            box = Box(f"kernel {number}", truncate(kernel.name, _LONG), "weights", [])
            box.rows = [_cells(kernel)]
            self.content.children.append(box)
            boxes |= dict.fromkeys(kernel.nodes, box)
        for node in self.graph.nodes:
            for x in node.inputs:
                self._connect(x, boxes.get(node))
            source = self.box_of.get(node.inputs[0]) if node.inputs else None
            for y in node.outputs:
                owner = boxes.get(node) or source
                if owner is not None:
                    self.box_of[y] = owner
        return self.content

    def nodes(self) -> Cluster:
        """Add a frame for each kernel with nodes and views, and boxes for inputs."""
        for number, x in enumerate(self.graph.inputs):
            # Variables are shown in the nodes that read them
            if x not in self.graph.names:
                box = Box(f"input {number}", str(x.spec), "input", [])
                self._add(self.content, x, box)
        clusters: dict[Node, Cluster] = {}
        for number, kernel in enumerate(self.inspection.kernels):
            cluster = Cluster(f"kernel {number}")
            self.content.children.append(cluster)
            clusters |= dict.fromkeys(kernel.nodes, cluster)
        for node in self.graph.nodes:
            source = self.producers.get(node.inputs[0]) if node.inputs else None
            enclosing = clusters.get(source, self.content) if source else self.content
            cluster = clusters.setdefault(node, enclosing)
            if node.op.name == "fused":
                self._add_members(node, cluster)
            else:
                self._node(node, cluster)
        return self.content

    def _add_members(self, fused: Node, cluster: Cluster) -> None:
        """Add the members of a fused node, with its inputs and outputs."""
        body = fused.attrs["body"]
        for inner, outer in zip(body.inputs, fused.inputs, strict=True):
            if outer in self.box_of:
                self.box_of[inner] = self.box_of[outer]
            if outer in self.names:
                self.names[inner] = self.names[outer]
        for node in body.nodes:
            self._node(node, cluster)
        for inner, outer in zip(body.outputs, fused.outputs, strict=True):
            self.box_of[outer] = self.box_of[inner]

    def _node(self, node: Node, cluster: Cluster) -> None:
        is_view = node.outputs[0] in self.inspection.program.layouts.views
        spec = ", ".join(str(y.spec) for y in node.outputs)
        names = [self.names[x] for x in node.inputs if x in self.names]
        rows = [[Cell("reads", ", ".join(names))]] if names else []
        box = Box(node.op.name, spec, "plain" if is_view else "weights", rows)
        for y in node.outputs:
            self._add(cluster, y, box)
        for x in node.inputs:
            self._connect(x, box)

    def _add(self, cluster: Cluster, value: Any, box: Box) -> None:
        if box not in cluster.children:
            cluster.children.append(box)
        self.box_of[value] = box

    def _connect(self, value: Any, box: Box | None) -> None:
        source = self.box_of.get(value)
        if source is not None and box is not None and source is not box:
            self.content.edges[source, box] = None


def _cells(kernel: Kernel) -> list[Cell]:
    cells = []
    if kernel.flops:
        cells.append(Cell("flop", count_text(kernel.flops)))
    if kernel.nbytes:
        cells.append(Cell("traffic", bytes_text(kernel.nbytes)))
    if kernel.seconds is not None:
        cells.append(Cell("time", seconds_text(kernel.seconds)))
    return cells or [Cell("moment", ", ".join(map(str, kernel.moments)))]
