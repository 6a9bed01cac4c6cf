"""Epilogues: nodes after a product or a convolution that can be part of its call."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, prod
from typing import Any

from toolkit.definitions.records import record
from toolkit.ir import Graph, Node
from toolkit.plans.loops.iteration_space import uniform_value

HALVES = ("float16", "bfloat16")


@record
class Epilogue:
    """Epilogue steps in order, and the extra values that they read.

    steps: "scale" multiplies by a number. "cast" converts float16 and bfloat16 to
    float32, the accumulation type of libraries. "bias" adds a vector along the last
    axis. "add" adds an array of the same shape. "relu" takes the maximum with 0.
    """

    steps: tuple[str, ...] = ()
    extra: tuple[Any, ...] = ()
    scale: float = 1.0


def match_epilogue(body: Graph) -> Epilogue | None:
    """Return the epilogue of a body's nodes after the first; None if one has no step.

    Each node must read the result of the previous one, and only the last can be an
    output.
    """
    if len(body.outputs) != 1:
        return None
    return match_chain(body.nodes, body.outputs[0])


def match_chain(nodes: Sequence[Node], last: Any = None) -> Epilogue | None:
    """Return the epilogue of nodes in order; `last` is the required final value."""
    value = nodes[0].outputs[0]
    vector = value.spec.shape[-1] if value.spec.ndim else 0
    steps: list[str] = []
    extra: list[Any] = []
    scale = 1.0
    for node in nodes[1:]:
        match = _step(node, value, vector)
        if match is None:
            return None
        step, other = match
        if step == "scale":
            scale = other
        elif other is not None:
            extra.append(other)
        steps += [step] if step else []
        value = node.outputs[0]
    if last is not None and value is not last:
        return None
    return Epilogue(tuple(steps), tuple(extra), scale)


def _step(node: Node, value: Any, vector: int) -> tuple[str, Any] | None:
    """Return a node's step ("" for none) and its second operand, if any."""
    operands = [x for x in node.inputs if x is not value]
    spec = node.outputs[0].spec
    if not operands and len(node.inputs) == 1:
        if node.op.name == "reshape":
            return "", None
        widens = value.spec.dtype in HALVES and spec.dtype == "float32"
        return ("cast", None) if node.op.name == "cast" and widens else None
    if len(operands) != 1 or len(node.inputs) != 2 or spec != value.spec:
        return None
    (other,) = operands
    number = uniform_value(other)
    if node.op.name == "maximum" and number is not None and number == 0:
        return "relu", None
    # A factor in memory, for example a loss scale, is excluded: beta would need it too.
    if node.op.name == "multiply" and number is not None:
        factor = float(number)
        return ("scale", factor) if factor and isfinite(factor) else None
    if node.op.name != "add" or number is not None or other.spec.dtype != spec.dtype:
        return None
    return _addition(other, spec.shape, vector)


def _addition(
    other: Any, shape: tuple[int, ...], vector: int
) -> tuple[str, Any] | None:
    """Return "add" for an operand of the same shape, "bias" for a shared vector.

    A reshape can split the last axis, which is the axis of the vector, into several.
    """
    if other.spec.shape == shape:
        return "add", other
    shape_of_other = other.spec.shape
    while shape_of_other and shape_of_other[0] == 1:
        shape_of_other = shape_of_other[1:]
    is_last = shape_of_other == shape[len(shape) - len(shape_of_other) :]
    if shape_of_other and is_last and prod(shape_of_other) == vector:
        return "bias", other
    return ("bias", other) if vector == 1 == other.spec.size else None
