"""Node and Graph: applications of operations in order, and their text form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, fields, is_dataclass
from typing import Any

from toolkit.definitions.records import record
from toolkit.ir.value import Value


class Node:
    """One application of an operation: op(*inputs, **attrs) -> outputs.

    device: the device that the user selected; None: the device of its inputs.
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
        """Return the path of the layer that traced it, or "" if unknown."""
        values = list(self.outputs)
        for graph in self.subgraphs:  # for a fused node: the last of its nodes
            values += [y for node in reversed(graph.nodes) for y in node.outputs]
        origins = (y.origin for y in values)
        return "/".join(next(filter(None, origins), ()))

    def with_inputs(self, inputs: Sequence[Any]) -> Node:
        """Return the same application on other inputs, with the same outputs."""
        return Node(self.op, inputs, self.attrs, self.outputs, self.device)

    @property
    def subgraphs(self) -> list[Graph]:
        """Return the graphs among the attributes of a control primitive."""
        return [value for value in self.attrs.values() if isinstance(value, Graph)]


@record(eq=False)
class Graph:
    """A pure function in static single assignment form.

    Every value is defined once: as one of `inputs`, by a node, or as a constant with
    its data. `names` maps a value to its printed name.

    Args:
        inputs: the values that a caller passes.
        nodes: the nodes in the order of execution.
        outputs: the values that a caller receives.
        names: value -> its printed name.

    Example:
        >>> import toolkit
        >>> @toolkit.function
        ... def double(x):
        ...     return 2 * x
        ...
        >>> graph = double.get_concrete_function(toolkit.ops.ones((3,))).graph
        >>> len(graph.inputs), len(graph.outputs)
        (1, 1)
    """

    inputs: tuple[Any, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Any, ...]
    names: Mapping[Value, str] = field(default_factory=dict)

    def replace(
        self, nodes: Iterable[Node] | None = None, outputs: Iterable[Any] | None = None
    ) -> Graph:
        """Return the same graph with other nodes or outputs.

        Args:
            nodes: the new nodes; None keeps them.
            outputs: the new outputs; None keeps them.
        """
        return Graph(
            self.inputs,
            self.nodes if nodes is None else tuple(nodes),
            self.outputs if outputs is None else tuple(outputs),
            self.names,
        )

    def pruned(self) -> Graph:
        """Return the graph without the nodes that no output depends on."""
        return self.replace(needed_nodes(self.nodes, set(self.outputs)))

    def used_inputs(self) -> list[int]:
        """Return the indices of the inputs that an output depends on."""
        used = {*self.outputs}
        for node in needed_nodes(self.nodes, set(self.outputs)):
            used.update(node.inputs)
        return [i for i, x in enumerate(self.inputs) if x in used]

    def producers(self) -> dict[Value, Node]:
        """Return the node that defines each value."""
        return {out: node for node in self.nodes for out in node.outputs}

    def last_uses(self) -> dict[Value, int]:
        """Return the index of each value's last reader; outputs live to the end."""
        last = {v: i for i, node in enumerate(self.nodes) for v in node.inputs}
        last.update((v, len(self.nodes)) for v in self.outputs)
        return last

    def walk(self) -> Iterator[Node]:
        """Yield every node, including the nodes of sub-graphs."""
        for node in self.nodes:
            yield node
            for graph in node.subgraphs:
                yield from graph.walk()

    def slice(self, feeds: Sequence[Any], fetches: Sequence[Any]) -> Graph:
        """Return the part that computes `fetches` from `feeds`.

        Any value may be fed or fetched. Inputs of this graph that are still needed
        follow the feeds.

        Args:
            feeds: values that a caller passes.
            fetches: values that a caller receives.
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
        """Check that each value is defined once, before use, with the inferred spec.

        Raises:
            AssertionError: names the invalid node.
        """
        defined = set(self.inputs)
        for node in self.nodes:
            for value in node.inputs:
                is_defined = value in defined or value.constant is not None
                assert is_defined, f"{node.op}: reads an undefined value"
            assert len(node.inputs) == 0 or node.op is not None
            expected = node.op.spec(*(v.spec for v in node.inputs), **node.attrs)
            specs = expected if isinstance(expected, tuple) else (expected,)
            actual = tuple(value.spec for value in node.outputs)
            assert specs == actual, f"{node.op}: expected {specs}; received {actual}"
            for value in node.outputs:
                assert value not in defined, f"{node.op}: defines a value again"
                defined.add(value)
        for value in self.outputs:
            is_defined = value in defined or value.constant is not None
            assert is_defined, "an output is never defined"

    def __str__(self) -> str:
        return format_graph(self)


def needed_nodes(nodes: Sequence[Node], needed: set[Value]) -> list[Node]:
    """Return the nodes that compute these values; add their operands to the set."""
    live_nodes = []
    for node in reversed(nodes):
        if any(value in needed for value in node.outputs):
            live_nodes.append(node)
            needed.update(node.inputs)
    return live_nodes[::-1]


def format_graph(graph: Graph, marks: Mapping[Node, str] | None = None) -> str:
    """Format the graph, one line per node: `%3: float32[2, 5] = matmul(x, w)`.

    Args:
        graph: graph to format.
        marks: prefix of each of its nodes.
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
    """Return an attribute as text, with the numbers of nodes of its graphs."""
    if isinstance(attribute, Graph):
        return f"<graph of {len(attribute.nodes)} nodes>"
    if isinstance(attribute, (tuple, list)) and any(map(_has_graph, attribute)):
        return f"[{', '.join(map(_brief, attribute))}]"
    if _has_graph(attribute):  # of a record, only the graphs
        values = (getattr(attribute, item.name) for item in fields(attribute))
        graphs = ", ".join(_brief(value) for value in values if _has_graph(value))
        return f"{type(attribute).__name__}({graphs})"
    return str(attribute)


def _has_graph(attribute: object) -> bool:
    """Return whether an attribute is or contains a graph."""
    if isinstance(attribute, (tuple, list)):
        return any(map(_has_graph, attribute))
    if isinstance(attribute, type) or not is_dataclass(attribute):
        return False
    return isinstance(attribute, Graph) or any(
        _has_graph(getattr(attribute, item.name)) for item in fields(attribute)
    )
