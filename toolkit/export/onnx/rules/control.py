"""ONNX rules of loops and branches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolkit.export.onnx.nodes import Body
from toolkit.export.onnx.rules.reduce import reverse_axis
from toolkit.export.onnx.table import rule
from toolkit.export.onnx.writer import Writer, as_body
from toolkit.ir import Graph, Node, Value


def _name_inputs(
    writer: Writer, values: Sequence[Value], prefix: str
) -> dict[Value, str]:
    """Return names for the inputs of a body."""
    return {value: writer.names(f"{prefix}_{i}") for i, value in enumerate(values)}


def _typed_ports(names: dict[Value, str]) -> list[tuple[str, str, int]]:
    return [(name, x.spec.dtype, x.spec.ndim) for x, name in names.items()]


def _outer_names(
    writer: Writer, graph: Graph, first: int, inputs: Sequence[Value]
) -> dict[Value, str]:
    """Map loop-invariant values to their names in the outer graph."""
    pairs = zip(graph.inputs[first:], inputs[first:], strict=True)
    return {inner: writer(outer) for inner, outer in pairs}


@rule("scan")
def _scan(writer: Writer, node: Node) -> list[str]:
    attrs = writer.family.attrs(node)
    body, carry, count = attrs["body"], attrs["carry"], attrs["xs"]
    first = carry + count
    inputs = [writer(x) for x in node.inputs[:first]]
    names = _name_inputs(writer, body.inputs[:first], "scan")
    ports = _typed_ports(names)
    if attrs["reverse"]:  # few runtimes support a reverse Scan
        inputs[carry:] = [reverse_axis(writer, name) for name in inputs[carry:]]
    if not count:  # a Scan needs a sequence input
        bounds = [writer.scalar(0, "int64"), "", writer.scalar(1, "int64")]
        bounds[1] = writer.node("Squeeze", [writer.size(attrs["length"])])
        inputs.append(writer.node("Range", bounds))
        ports.append((writer.names("step"), "int64", 0))
    names |= _outer_names(writer, body, first, node.inputs)
    inner = writer.body(body, names)
    results = writer.node_with_outputs(
        "Scan",
        inputs,
        len(node.outputs),
        body=as_body(inner, ports, body.outputs),
        num_scan_inputs=max(count, 1),
    )
    if attrs["reverse"]:
        results[carry:] = [reverse_axis(writer, name) for name in results[carry:]]
    return results


@rule("cond")
def _cond(writer: Writer, node: Node) -> list[str]:
    predicate, *inputs = node.inputs
    branches = []
    for name in ("true", "false"):
        graph = node.attrs[name]
        inner = writer.body(graph, _outer_names(writer, graph, 0, inputs))
        branches.append(as_body(inner, [], graph.outputs))
    count = len(node.outputs)
    attrs: dict[str, Any] = dict(
        zip(("then_branch", "else_branch"), branches, strict=True)
    )
    return writer.node_with_outputs("If", [writer(predicate)], count, **attrs)


@rule("while_loop")
def _while_loop(writer: Writer, node: Node) -> list[str]:
    attrs = node.attrs
    condition, body, carry = attrs["condition"], attrs["body"], attrs["carry"]
    start = _outer_names(writer, condition, 0, node.inputs)
    first_test = writer.body(condition, start)
    running = writer.result_of(first_test, condition.outputs[0])
    names = _name_inputs(writer, body.inputs[:carry], "loop")
    ports = [(writer.names("step"), "int64", 0), (writer.names("running"), "bool", 0)]
    ports += _typed_ports(names)
    names |= _outer_names(writer, body, carry, node.inputs)
    inner = writer.body(body, names)
    # The condition of the next step reads the results of this step.
    next_names = dict(zip(condition.inputs, map(inner, body.outputs), strict=False))
    next_names |= _outer_names(writer, condition, carry, node.inputs)
    next_test = inner.body(condition, next_names)
    continues = inner.result_of(next_test, condition.outputs[0])
    limit = attrs["maximum_iterations"]
    limit_name = "" if limit is None else writer.scalar(limit, "int64")
    loop_body: Body = as_body(inner, ports, body.outputs, [(continues, "bool", 0)])
    inputs = [limit_name, running, *(writer(x) for x in node.inputs[:carry])]
    return writer.node_with_outputs("Loop", inputs, carry, body=loop_body)
