"""Traced bodies of control flow: captured values become inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from toolkit import dtypes, tree
from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor, state
from toolkit.core.trace import Trace, reread_p
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError, ShapeError
from toolkit.ir import Graph, Value


@dataclass
class Body:
    """A traced body: its trace, its result, and the leaves of the result as tensors."""

    trace: Trace
    structure: Any
    outputs: list[Tensor]

    def placeholder_for(self, source: Tensor | Variable) -> Tensor:
        """Return the placeholder of an outer value inside the body."""
        return self.trace.capture(source)

    def graph(
        self,
        inputs: Sequence[Tensor],
        sources: Sequence[Any],
        outputs: Sequence[Tensor],
    ) -> Graph:
        """Return the body as a graph of `inputs` and the outer values `sources`."""
        placeholders = [self.placeholder_for(source) for source in sources]
        return Graph((*inputs, *placeholders), tuple(self.trace.nodes), tuple(outputs))


def trace_body(name: str, function: Callable[..., Any], *args: Any) -> tuple[Body, Any]:
    """Trace `function` on placeholders for the tensors in `args`."""
    outer_tapes = () if state.trace is None else state.trace.tapes
    with Trace(name, tapes=(*outer_tapes, *state.tapes)) as trace:
        placeholders = tree.map_structure(lambda x: trace.placeholder(x.spec), args)
        structure = function(*placeholders)
        leaves = tree.flatten(structure)
        outputs = [trace.localize(convert(x)) for x in leaves if x is not None]
    template = tree.map_structure(lambda x: x if x is None else tree.LEAF, structure)
    return Body(trace, template, outputs), placeholders


def pack(structure: Any, values: Sequence[Any]) -> Any:
    """Pack values into the structure that a body returned; None stays None."""
    remaining = iter(values)
    return tree.map_structure(lambda x: x if x is None else next(remaining), structure)


def written_variables(bodies: Sequence[Body]) -> list[Variable]:
    """Return the Variables that any of the bodies assigns, each once."""
    return list(dict.fromkeys(v for body in bodies for v in body.trace.writes))


def captured_sources(bodies: Sequence[Body], excluded: Sequence[Any] = ()) -> list[Any]:
    """Return the outer values that the bodies read, each once, without `excluded`."""
    excluded_sources = set(excluded)
    sources = (source for body in bodies for source in body.trace.captures)
    return [
        source for source in dict.fromkeys(sources) if source not in excluded_sources
    ]


def outer_values(sources: Sequence[Any]) -> list[Tensor]:
    """Return the outer values of the captured sources."""
    return [x.read() if isinstance(x, Variable) else x for x in sources]


def carried_values(body: Body, variables: Sequence[Variable]) -> list[Tensor]:
    """Return the value of each Variable for the next iteration."""
    pairs = zip(final_values(body, variables), variables, strict=True)
    trace = body.trace
    return [
        trace.emit(reread_p, (value, body.placeholder_for(variable)), {})
        if variable in trace.writes and value.dtype in dtypes.INEXACT
        else value
        for value, variable in pairs
    ]


def final_values(body: Body, variables: Sequence[Variable]) -> list[Tensor]:
    """Return the value of each Variable at the end of the body."""
    return [
        body.trace.writes[v] if v in body.trace.writes else body.placeholder_for(v)
        for v in variables
    ]


def check_carry(op: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
    """Raise if the shape or dtype of a carried value changes."""
    expected, received = ([x.spec for x in xs] for xs in (inputs, outputs))
    if expected != received:
        raise ShapeError(
            f"{op}: the body must keep the shapes and dtypes of its loop variables: "
            f"expected {expected}; received {received}"
        )


def check_condition(condition: Body) -> None:
    """Raise if the condition of a loop is not one boolean, or has side effects."""
    if len(condition.outputs) != 1 or condition.outputs[0].size != 1:
        raise ShapeError("while_loop: expected `cond` to return one boolean scalar")
    if condition.trace.writes:
        paths = ", ".join(repr(v.path) for v in condition.trace.writes)
        raise ArgumentError(
            "while_loop: a traced `cond` must not assign Variables, but it assigns "
            f"{paths} (random ops assign the state of their seed). Move the "
            "assignment to the body"
        )


def find_equal_carries(body: Graph, carry: int) -> list[int]:
    """Return for each carried value of a body one that is equal after every step.

    This is the value itself, unless the body does not read it: then the same output may
    also be another carried value.
    """
    used_values = {x for node in body.nodes for x in node.inputs}
    used_values |= set(body.outputs)
    is_read = [x in used_values for x in body.inputs[:carry]]
    first_index: dict[Value, int] = {}
    for i in sorted(range(carry), key=lambda i: not is_read[i]):
        first_index.setdefault(body.outputs[i], i)
    return [i if is_read[i] else first_index[body.outputs[i]] for i in range(carry)]
