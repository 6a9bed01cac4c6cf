"""Node and Graph: applications of operations, in order, and as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from toolkit.definitions.records import record
from toolkit.ir.value import Value


class Node:
    """One application of an operation: op(*inputs, **attrs) -> outputs.

    device: where the user wants it computed, None: wherever its inputs are.
    """

    __slots__ = ("attrs", "device", "inputs", "op", "outputs")

    def __init__(
        self,
        op: Any,
        inputs: Sequence[Any],
        attrs: Mapping[str, Any],
        outputs: Sequence[Any],
        device: str | None = None,
    ) -> None:
        self.op: Any = op
        self.device: str | None = device
        self.inputs: tuple[Any, ...] = tuple(inputs)
        self.attrs: Mapping[str, Any] = attrs
        self.outputs: tuple[Any, ...] = tuple(outputs)

    @property
    def origin(self) -> str:
        """The path of the layer that it was traced in; "" where that is not known."""
        values = list(self.outputs)
        for graph in self.subgraphs:  # of a fused node: the last of its nodes
            values += [y for node in reversed(graph.nodes) for y in node.outputs]
        found = (y.origin for y in values)
        return "/".join(next(filter(None, found), ()))

    def with_inputs(self, inputs: Sequence[Any]) -> Node:
        """The same application to other inputs, defining the same outputs."""
        return Node(self.op, inputs, self.attrs, self.outputs, self.device)

    @property
    def subgraphs(self) -> list[Graph]:
        """The graphs that a control primitive holds among its attributes."""
        return [value for value in self.attrs.values() if isinstance(value, Graph)]


@record(eq=False)
class Graph:
    """A pure function in static single assignment form.

    Every value is defined once: as one of `inputs`, by a node, or as a constant that
    carries its data with it. `names` maps a value to a name to print.
    """

    inputs: tuple[Any, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Any, ...]
    names: Mapping[Value, str] = field(default_factory=dict)

    def replace(
        self,
        nodes: Iterable[Node] | None = None,
        outputs: Iterable[Any] | None = None,
    ) -> Graph:
        """The same graph with other nodes or outputs."""
        return Graph(
            self.inputs,
            self.nodes if nodes is None else tuple(nodes),
            self.outputs if outputs is None else tuple(outputs),
            self.names,
        )

    def pruned(self) -> Graph:
        """The graph without the nodes that no output depends on."""
        needed = set(self.outputs)
        kept = []
        for node in reversed(self.nodes):
            if any(value in needed for value in node.outputs):
                kept.append(node)
                needed.update(node.inputs)
        return self.replace(reversed(kept))

    def producers(self) -> dict[Value, Node]:
        """The node that defines each value."""
        return {out: node for node in self.nodes for out in node.outputs}

    def last_uses(self) -> dict[Value, int]:
        """The index of the last node that reads each value; outputs live to the end."""
        last = {v: i for i, node in enumerate(self.nodes) for v in node.inputs}
        last.update((v, len(self.nodes)) for v in self.outputs)
        return last

    def walk(self) -> Iterator[Node]:
        """Every node, those of sub-graphs included."""
        for node in self.nodes:
            yield node
            for graph in node.subgraphs:
                yield from graph.walk()

    def slice(self, feeds: Sequence[Any], fetches: Sequence[Any]) -> Graph:
        """The part that computes `fetches` when `feeds` are given.

        Any value may be fed or fetched. Inputs of this graph that are still needed
        come after the feeds.
        """
        fed = set(feeds)
        producers = self.producers()
        needed: set[Value] = set()
        stack = [value for value in fetches if value not in fed]
        while stack:
            value = stack.pop()
            if value in needed:
                continue
            needed.add(value)
            node = producers.get(value)
            if node is not None:
                stack += [v for v in node.inputs if v not in fed]
        inputs = [*feeds, *(v for v in self.inputs if v in needed)]
        nodes = [n for n in self.nodes if any(v in needed for v in n.outputs)]
        return Graph(tuple(inputs), tuple(nodes), tuple(fetches), self.names)

    def verify(self) -> None:
        """Check that all is defined once, before use, with the specs of the rules.

        Raises:
            AssertionError: naming the node that breaks one.
        """
        defined = set(self.inputs)
        for node in self.nodes:
            for value in node.inputs:
                known = value in defined or value.constant is not None
                assert known, f"{node.op}: reads a value that nothing defines"
            assert len(node.inputs) == 0 or node.op is not None
            expected = node.op.spec(*(v.spec for v in node.inputs), **node.attrs)
            specs = expected if isinstance(expected, tuple) else (expected,)
            found = tuple(value.spec for value in node.outputs)
            assert specs == found, f"{node.op}: expected {specs}, found {found}"
            for value in node.outputs:
                assert value not in defined, f"{node.op}: defines a value again"
                defined.add(value)
        for value in self.outputs:
            known = value in defined or value.constant is not None
            assert known, "an output is never defined"

    def __str__(self) -> str:
        return format_graph(self)


def format_graph(graph: Graph, marks: Mapping[Node, str] | None = None) -> str:
    """The graph as text, one line per node: `%3: float32[2, 5] = matmul(x, w)`.

    Args:
        graph: what to show.
        marks: what to write before each of its nodes.
    """
    names = dict(graph.names)

    def name(value: Any) -> str:
        if value in names:
            return names[value]
        if value.constant is not None and value.spec.size == 1:
            return str(value.constant.reshape(())[()])
        kind = "const " if value.constant is not None else "?"
        return f"{kind}{value.spec}"

    for i, value in enumerate(graph.inputs):
        names.setdefault(value, f"%in{i}")
    signature = ", ".join(f"{name(v)}: {v.spec}" for v in graph.inputs)
    lines = [f"graph({signature})"]
    count = 0
    marks = marks or {}
    margin = " " * max(map(len, marks.values()), default=0)

    def write(node: Node, indent: str) -> None:
        nonlocal count
        indent = marks.get(node, margin) + indent
        if node.op.name == "fused":
            lines.append(f"{indent}one loop:")
            for member in node.attrs["body"].nodes:
                write(member, indent[len(margin) :] + "  ")
            return
        for value in node.outputs:
            names[value] = f"%{count}"
            count += 1
        targets = ", ".join(f"{name(v)}: {v.spec}" for v in node.outputs)
        attrs = "".join(f", {k}={_brief(v)}" for k, v in node.attrs.items())
        inputs = ", ".join(name(v) for v in node.inputs)
        lines.append(f"{indent}{targets} = {node.op.name}({inputs}{attrs})")

    for node in graph.nodes:
        write(node, "  ")
    lines.append(f"  return {', '.join(name(v) for v in graph.outputs)}")
    return "\n".join(lines)


def _brief(attribute: Any) -> str:
    if isinstance(attribute, Graph):
        return f"<graph of {len(attribute.nodes)} nodes>"
    return str(attribute)
