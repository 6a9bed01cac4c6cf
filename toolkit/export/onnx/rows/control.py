"""ONNX rules of loops and branches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolkit.export.onnx.nodes import Body
from toolkit.export.onnx.rows.reduce import flipped
from toolkit.export.onnx.table import row
from toolkit.export.onnx.writer import Writer, as_body
from toolkit.ir import Graph, Node, Value


def _named(write: Writer, values: Sequence[Value], what: str) -> dict[Value, str]:
    """Return names for the inputs of a body."""
    return {value: write.names(f"{what}_{i}") for i, value in enumerate(values)}


def _typed(names: dict[Value, str]) -> list[tuple[str, str, int]]:
    return [(name, x.spec.dtype, x.spec.ndim) for x, name in names.items()]


def _outer(
    write: Writer, graph: Graph, first: int, inputs: Sequence[Value]
) -> dict[Value, str]:
    """Map loop-invariant values to their names in the outer graph."""
    pairs = zip(graph.inputs[first:], inputs[first:], strict=True)
    return {inner: write(outer) for inner, outer in pairs}


@row("scan")
def _scan(write: Writer, node: Node) -> list[str]:
    attrs = write.family.attrs(node)
    body, carry, count = attrs["body"], attrs["carry"], attrs["xs"]
    first = carry + count
    inputs = [write(x) for x in node.inputs[:first]]
    names = _named(write, body.inputs[:first], "scan")
    given = _typed(names)
    if attrs["reverse"]:  # few runtimes support a reverse Scan
        inputs[carry:] = [flipped(write, name) for name in inputs[carry:]]
    if not count:  # a Scan needs a sequence input
        bounds = [write.scalar(0, "int64"), "", write.scalar(1, "int64")]
        bounds[1] = write.node("Squeeze", [write.size(attrs["length"])])
        inputs.append(write.node("Range", bounds))
        given.append((write.names("step"), "int64", 0))
    names |= _outer(write, body, first, node.inputs)
    inner = write.body(body, names)
    found = write.several(
        "Scan",
        inputs,
        len(node.outputs),
        body=as_body(inner, given, body.outputs),
        num_scan_inputs=max(count, 1),
    )
    if attrs["reverse"]:
        found[carry:] = [flipped(write, name) for name in found[carry:]]
    return found


@row("cond")
def _cond(write: Writer, node: Node) -> list[str]:
    predicate, *inputs = node.inputs
    branches = []
    for name in ("true", "false"):
        graph = node.attrs[name]
        inner = write.body(graph, _outer(write, graph, 0, inputs))
        branches.append(as_body(inner, [], graph.outputs))
    count = len(node.outputs)
    attrs: dict[str, Any] = dict(
        zip(("then_branch", "else_branch"), branches, strict=True)
    )
    return write.several("If", [write(predicate)], count, **attrs)


@row("while_loop")
def _while_loop(write: Writer, node: Node) -> list[str]:
    attrs = node.attrs
    condition, body, carry = attrs["condition"], attrs["body"], attrs["carry"]
    start = _outer(write, condition, 0, node.inputs)
    begins = write.body(condition, start)
    running = write.result_of(begins, condition.outputs[0])
    names = _named(write, body.inputs[:carry], "loop")
    given = [(write.names("step"), "int64", 0), (write.names("running"), "bool", 0)]
    given += _typed(names)
    names |= _outer(write, body, carry, node.inputs)
    inner = write.body(body, names)
    # The condition of the next step reads the results of this step.
    after = dict(zip(condition.inputs, map(inner, body.outputs), strict=False))
    after |= _outer(write, condition, carry, node.inputs)
    tested = inner.body(condition, after)
    goes_on = inner.result_of(tested, condition.outputs[0])
    limit = attrs["maximum_iterations"]
    limit_name = "" if limit is None else write.scalar(limit, "int64")
    whole: Body = as_body(inner, given, body.outputs, [(goes_on, "bool", 0)])
    inputs = [limit_name, running, *(write(x) for x in node.inputs[:carry])]
    return write.several("Loop", inputs, carry, body=whole)
