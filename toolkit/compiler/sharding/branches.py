"""Branches over the variables of several stages, split into one for each stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from toolkit.ir import Graph, Node, Value


def split_branches(graph: Graph, takers: Sequence[int | None]) -> Graph:
    """Split a branch over several stages, so that each stage evaluates its part.

    An optimizer writes all weights or none in one branch, for loss scaling and for
    gradient accumulation.

    Args:
        graph: graph of a step.
        takers: for each output the stage that needs it; None: all stages.
    """
    stages = dict(zip(graph.outputs[::-1], takers[::-1], strict=True))
    nodes: list[Node] = []
    for node in graph.nodes:
        groups: dict[int | None, list[int]] = {}
        for number, y in enumerate(node.outputs):
            groups.setdefault(stages.get(y), []).append(number)
        if node.op.name == "cond" and len(groups) > 1:
            nodes += (_select_outputs(node, numbers) for numbers in groups.values())
        else:
            nodes.append(node)
    return graph.replace(nodes)


def _select_outputs(node: Node, numbers: Sequence[int]) -> Node:
    """Return a branch with some of the results, and the inputs that they need."""
    predicate, *operands = node.inputs
    bodies: dict[str, Graph] = {}
    inputs: set[int] = set()
    for name in ("true", "false"):
        body = node.attrs[name]
        bodies[name] = body.replace(outputs=[body.outputs[i] for i in numbers]).pruned()
        read = set(_read(bodies[name]))
        inputs |= {i for i, x in enumerate(body.inputs) if x in read}
    attrs = dict(node.attrs)
    for name, body in bodies.items():
        body_inputs = tuple(body.inputs[i] for i in sorted(inputs))
        attrs[name] = Graph(body_inputs, body.nodes, body.outputs, body.names)
    operands = [predicate, *(operands[i] for i in sorted(inputs))]
    outputs = [node.outputs[i] for i in numbers]
    return Node(node.op, operands, attrs, outputs, node.device)


def _read(body: Graph) -> Iterator[Value]:
    for node in body.nodes:
        yield from node.inputs
    yield from body.outputs
