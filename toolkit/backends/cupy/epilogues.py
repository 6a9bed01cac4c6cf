"""What follows a product or a convolution and can be part of the same call."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, prod
from typing import Any

from toolkit.backends.loops.iteration_space import number_of
from toolkit.definitions.records import record
from toolkit.ir import Graph, Node

HALVES = ("float16", "bfloat16")


@record
class Epilogue:
    """Steps in order, and the values that they read beside the result so far.

    steps: "scale" multiplies with a number, "cast" makes halves float32 (what a library
    adds up in), "bias" adds a vector along the last axis, "add" an array of the same
    shape, "relu" takes the maximum with 0.
    """

    steps: tuple[str, ...] = ()
    extra: tuple[Any, ...] = ()
    scale: float = 1.0


def epilogue_of(body: Graph) -> Epilogue | None:
    """The elementwise nodes of a body behind its first node; None if one is no step.

    Each of them must read what the one before made, and only the last be an output.
    """
    if len(body.outputs) != 1:
        return None
    return chain_of(body.nodes, body.outputs[0])


def chain_of(nodes: Sequence[Node], last: Any = None) -> Epilogue | None:
    """The same for nodes in order; `last` is what they must end with, if given."""
    value = nodes[0].outputs[0]
    vector = value.spec.shape[-1] if value.spec.ndim else 0
    steps: list[str] = []
    extra: list[Any] = []
    scale = 1.0
    for node in nodes[1:]:
        found = _step(node, value, vector)
        if found is None:
            return None
        step, other = found
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
    """A node's step, "" if it changes nothing, and what it reads beside `value`."""
    others = [x for x in node.inputs if x is not value]
    spec = node.outputs[0].spec
    if not others and len(node.inputs) == 1:
        if node.op.name == "reshape":
            return "", None
        widens = value.spec.dtype in HALVES and spec.dtype == "float32"
        return ("cast", None) if node.op.name == "cast" and widens else None
    if len(others) != 1 or len(node.inputs) != 2 or spec != value.spec:
        return None
    (other,) = others
    number = number_of(other)
    if node.op.name == "maximum" and number is not None and number == 0:
        return "relu", None
    # A factor that is in memory, such as a loss scale, is left: beta had to be as well.
    if node.op.name == "multiply" and number is not None:
        factor = float(number)
        return ("scale", factor) if factor and isfinite(factor) else None
    if node.op.name != "add" or number is not None or other.spec.dtype != spec.dtype:
        return None
    return _addition(other, spec.shape, vector)


def _addition(
    other: Any, shape: tuple[int, ...], vector: int
) -> tuple[str, Any] | None:
    """Whether what is added is of the same shape, or the same for all rows.

    A reshape may have split the last axis, along which a vector lies, into several.
    """
    if other.spec.shape == shape:
        return "add", other
    own = other.spec.shape
    while own and own[0] == 1:
        own = own[1:]
    is_last = own == shape[len(shape) - len(own) :]
    if own and is_last and prod(own) == vector:
        return "bias", other
    return ("bias", other) if vector == 1 == other.spec.size else None
