"""Values that a program computes once, because they depend on frozen inputs only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolkit.backends.target import Target
from toolkit.ir import Graph, Kind, Value

# Bytes of a result that may be cached although its operands are smaller.
SMALL_NBYTES = 1 << 16
# Kinds whose nodes are one call; other kinds may need several calls, and memory in
# between.
_SINGLE_CALLS = (Kind.ELEMENTWISE, Kind.VIEW)


def is_fixed(value: Value) -> bool:
    """Return whether a value is a constant that depends on no free extent.

    Args:
        value: a value of a graph.
    """
    return value.constant is not None and value.extent is None


def is_worth_caching(result: Value, inputs: Sequence[Any]) -> bool:
    """Return whether a result takes no more memory than its operands, or only little.

    Args:
        result: result of a node.
        inputs: its inputs, or operands for them.
    """
    input_nbytes = sum(x.spec.nbytes for x in inputs)
    return bool(result.spec.nbytes <= max(input_nbytes, SMALL_NBYTES))


def constant_subexpressions(graph: Graph, target: Target) -> set[Value]:
    """Return the frozen inputs, and the values that lowering can compute once."""
    if target.is_body or not target.backend.generator.can_specialize:
        return set()
    constants = {graph.inputs[number] for number in target.frozen}
    if not constants:
        return constants
    returned = set(graph.outputs)
    for node in reversed(graph.nodes):
        if node.op.kind is Kind.VIEW and node.outputs[0] in returned:
            returned.update(node.inputs)
    for node in graph.nodes:
        y, *other_outputs = node.outputs
        if other_outputs or y in returned or node.op.kind not in _SINGLE_CALLS:
            continue
        changing = [x for x in node.inputs if not is_fixed(x)]
        is_known = bool(changing) and all(x in constants for x in changing)
        if is_known and is_worth_caching(y, node.inputs):
            constants.add(y)
    return constants
