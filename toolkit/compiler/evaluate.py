"""Evaluation of values of a graph from other values, as a separate program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolkit.backends.target import Target
from toolkit.compiler.execute import Executable
from toolkit.compiler.pipeline import compile_program
from toolkit.core.tensor import Tensor, backend
from toolkit.errors import ArgumentError, ShapeError
from toolkit.ir import Graph, Value


def evaluate(
    graph: Graph, fetches: Sequence[Value], feeds: Mapping[Value, Any]
) -> list[Tensor]:
    """Compute values of a graph from other values; only the required nodes run.

    Args:
        fetches: values of the graph to compute.
        feeds: an array or tensor for each value that it replaces.

    Returns:
        One tensor for each fetch.

    Raises:
        ArgumentError: a fetch needs inputs that are not fed.
        ShapeError: a fed array has another shape than its value.
    """
    subgraph = graph.slice(list(feeds), fetches)
    missing = [value for value in subgraph.inputs if value not in feeds]
    if missing:
        specs = ", ".join(repr(value.spec) for value in missing)
        raise ArgumentError(f"evaluate: the fetches also need inputs {specs}")
    arrays = []
    for value in subgraph.inputs:
        array = backend().memory.asarray(feeds[value], value.spec.dtype)
        if array.shape != value.spec.shape:
            raise ShapeError(
                f"evaluate: expected {value.spec} to be fed; "
                f"received shape {array.shape}"
            )
        arrays.append(array)
    run = Executable(compile_program(subgraph, Target(backend())))
    return [Tensor(array) for array in run(arrays)]
