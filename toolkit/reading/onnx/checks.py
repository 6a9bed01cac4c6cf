"""Checks of graphs from ONNX files or configs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace

from toolkit.errors import ModelFileError
from toolkit.reading.onnx.convert import MAX_NODES, MAX_SUBGRAPHS
from toolkit.reading.onnx.graph import OnnxGraph, OnnxNode

OLDEST, NEWEST = 6, 28  # supported opsets
_MAX_NAME = 4_000  # characters; unrolled functions add prefixes


def check_graph(
    graph: OnnxGraph, opset: int, external_names: Collection[str] = ()
) -> OnnxGraph:
    """Return the graph with unique node names, after a check that it can run in order.

    Args:
        graph: the graph.
        opset: the version of its operators.
        external_names: the names of external values.

    Raises:
        ModelFileError: a value does not have exactly one source, or a limit is
            exceeded.
    """
    if type(opset) is not int or not OLDEST <= opset <= NEWEST:
        raise ModelFileError(
            f"it is of opset {opset}; expected {OLDEST} to {NEWEST}. convert the "
            "file with onnx.version_converter"
        )
    if any(count >= MAX_NODES for count, _ in enumerate(_walk_nodes(graph, 0))):
        raise ModelFileError(f"the file has more than {MAX_NODES:,} nodes")
    if len(set(external_names)) != len(external_names):
        raise ModelFileError("a value is defined twice")
    _check_values(graph, (set(external_names),))
    if not graph.outputs:
        raise ModelFileError("its graph has no outputs")
    return _name_nodes(graph, Counter())


def _walk_nodes(graph: OnnxGraph, depth: int) -> Iterator[OnnxNode]:
    if depth > MAX_SUBGRAPHS:
        raise ModelFileError(f"subgraphs are nested more than {MAX_SUBGRAPHS} deep")
    for node in graph.nodes:
        yield node
        for value in node.attributes.values():
            if isinstance(value, OnnxGraph):
                yield from _walk_nodes(value, depth + 1)


def _check_values(graph: OnnxGraph, outer_scopes: tuple[set[str], ...]) -> None:
    """Check that each value is computed once, before its use."""
    defined: set[str] = set()
    scopes = (*outer_scopes, defined)

    def is_defined(name: str) -> bool:
        return any(name in scope for scope in scopes)

    def define(name: str, source: str) -> None:
        if not name or len(name) > _MAX_NAME:
            raise ModelFileError(f"{source} has a name of {len(name)} characters")
        if is_defined(name):
            raise ModelFileError(f"{source} makes {name!r}, which exists already")
        defined.add(name)

    for value in graph.inputs:
        define(value.name, "an input")
    for name in graph.initializers:
        define(name, "an initializer")
    for node in graph.nodes:
        label = f"the node {node.name!r} ({node.op})"
        for name in node.inputs:
            if name and not is_defined(name):
                raise ModelFileError(
                    f"{label} needs {name!r}, which no earlier node computes"
                )
        for value in node.attributes.values():
            if isinstance(value, OnnxGraph):
                _check_values(value, scopes)
        for name in node.outputs:
            if name:
                define(name, label)
    for value in graph.outputs:
        if not is_defined(value.name):
            raise ModelFileError(f"no node computes the output {value.name!r}")


def _name_nodes(graph: OnnxGraph, counts: Counter[str]) -> OnnxGraph:
    """Return the graph with unique node names."""
    nodes = []
    for node in graph.nodes:
        base = node.name or node.op
        counts[base] += 1
        name = base if counts[base] == 1 else f"{base}_{counts[base] - 1}"
        while name != base and counts[name]:
            name += "_"
        counts[name] += name != base
        attributes = {
            key: _name_nodes(value, counts) if isinstance(value, OnnxGraph) else value
            for key, value in node.attributes.items()
        }
        nodes.append(replace(node, name=name, attributes=attributes))
    return replace(graph, nodes=tuple(nodes))
