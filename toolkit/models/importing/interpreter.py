"""Interpreter of ONNX graphs: eager, in traces, or for shape inference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from toolkit.core.naming import name_scope
from toolkit.core.tensor import state
from toolkit.core.trace import no_trace
from toolkit.errors import ModelFileError, ToolkitError, UnsupportedError
from toolkit.models.importing.call import Call, NeedsValuesError
from toolkit.models.importing.ledger import MAX_STATIC_SIZE, Ledger, StaticLimitExceeded
from toolkit.models.importing.operators import OPERATORS, explain_unsupported
from toolkit.models.importing.values import Value, ValueList
from toolkit.reading.file_errors import convert_errors
from toolkit.reading.onnx.graph import OnnxGraph, OnnxNode

Values = dict[str, Value]


class Interpreter:
    """Interpreter that runs graphs node by node.

    Args:
        opset: the version of the operators.
        ledger: the ledger of live values.
        scopes: node -> the name scope of its operations.

    Attributes:
        shapes: scope -> the shape of its last result.
        deferred: the names of the nodes that `run_static` cannot run.
        reason: the reason for the first of them.
    """

    def __init__(self, opset: int, ledger: Ledger, scopes: Mapping[str, str]) -> None:
        self._opset, self._ledger, self._scopes = opset, ledger, scopes
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.deferred: set[str] = set()
        self.reason = ""
        self._deferred_values: set[str] = set()  # values of deferred nodes

    def run(
        self, graph: OnnxGraph, inputs: Sequence[Value], outer: Values
    ) -> list[Value]:
        """Return the outputs of a graph.

        Args:
            graph: the graph; its initializers are arrays, or are in `outer`.
            inputs: one value for each input of the graph.
            outer: the values of the enclosing graph, and its weights.
        """
        values = self._run_nodes(graph, inputs, outer, self._run_node)
        results = [values[v.name] for v in graph.outputs]
        self._ledger.free(values.pop_created(list(values)))
        return results

    def run_static(
        self, graph: OnnxGraph, inputs: Sequence[Value], outer: Values
    ) -> list[Value | None]:
        """Return the outputs whose shapes need no values; None for the rest."""
        values = self._run_nodes(graph, inputs, outer, self._run_or_defer)
        return [
            None if v.name in self._deferred_values else values[v.name]
            for v in graph.outputs
        ]

    def _run_nodes(
        self,
        graph: OnnxGraph,
        inputs: Sequence[Value],
        outer: Values,
        run_node: Callable[[OnnxNode, _Scope], None],
    ) -> _Scope:
        if len(inputs) != len(graph.inputs):
            raise ModelFileError(
                f"expected {len(graph.inputs)} inputs of a nested graph; received "
                f"{len(inputs)}"
            )
        values = _Scope(outer)
        values.update((k, Value.of(v)) for k, v in graph.initializers.items())
        values.update((v.name, x) for v, x in zip(graph.inputs, inputs, strict=True))
        last_use = _last_uses(graph)
        for index, node in enumerate(graph.nodes):
            run_node(node, values)
            used = dict.fromkeys((*node.inputs, *node.outputs))
            unused = [n for n in used if last_use.get(n, index) == index and n]
            self._ledger.free(values.pop_created(unused))
        return values

    def _run_or_defer(self, node: OnnxNode, values: _Scope) -> None:
        """Run a node, or defer it if it or its inputs need values."""
        if self._deferred_values.isdisjoint(_inputs_of(node)):
            try:
                return self._run_node(node, values)
            except NeedsValuesError as error:
                self.reason = self.reason or str(error)
        self.deferred.add(node.name)
        self._deferred_values.update(filter(None, node.outputs))
        return None

    def _run_node(self, node: OnnxNode, values: _Scope) -> None:
        self._ledger.step()
        title = f"the node {node.name!r} ({node.op})"
        try:
            with convert_errors(title, "the computation failed"):
                results = self._compute(node, values)
        except ToolkitError as error:
            if "the node " not in str(error):
                error.args = (f"{title}: {error}",)
            raise
        if len(results) < sum(1 for name in node.outputs if name):
            raise ModelFileError(f"{title} has only {len(results)} outputs")
        self._ledger.count_constants(state.trace)
        pairs = zip(node.outputs, results, strict=False)
        values.add({name: value for name, value in pairs if name}, self._ledger)

    def _compute(self, node: OnnxNode, values: _Scope) -> tuple[Value, ...]:
        operator = OPERATORS.get(node.op)
        if operator is None:
            raise UnsupportedError(explain_unsupported(node.op))
        inputs = [values[name] if name else None for name in node.inputs]
        minimum, maximum = operator.counts
        if not minimum <= len(inputs) <= maximum:
            raise ModelFileError(
                f"expected {minimum} to {maximum} inputs; received {len(inputs)}"
            )
        if any(x is None for x in inputs[:minimum]):
            raise ModelFileError(
                f"the first {minimum} inputs are required, but one is missing"
            )
        present = [x for x in inputs if x is not None]
        is_small = sum(x.reach for x in present) <= MAX_STATIC_SIZE
        is_small = is_small and operator.needs_data and not operator.has_graphs
        if is_small and all(x.static_array is not None for x in present):
            try:
                with no_trace():
                    computed = self._call_operator(
                        operator, node, inputs, values, is_static=True
                    )
                    return tuple(_as_static(x) for x in computed)
            except StaticLimitExceeded:
                pass
        name = self._scopes.get(node.name)
        with name_scope(name) if name else nullcontext():
            results = self._call_operator(
                operator, node, inputs, values, is_static=False
            )
        if name and results:
            self.shapes[name] = results[0].shape
        return results

    def _call_operator(
        self,
        operator: Any,
        node: OnnxNode,
        inputs: Iterable[Value | None],
        values: _Scope,
        is_static: bool,
    ) -> tuple[Value, ...]:
        def run(graph: OnnxGraph, inputs: Sequence[Value]) -> list[Value]:
            return self.run(graph, inputs, values.inner())

        call = Call(node, self._opset, self._ledger, run, is_static)
        results = operator.function(call, *inputs)
        call.finish()
        return (results,) if isinstance(results, Value) else tuple(results)


def _as_static(value: Value) -> Value:
    """Return the value, as a static value if it is a tensor."""
    if value.static_array is not None or isinstance(value, ValueList):
        return value
    return Value.of(np.asarray(value.tensor))


def _last_uses(graph: OnnxGraph) -> dict[str, int]:
    """Return the index of the last node that reads a value; outputs: past the end."""
    results: dict[str, int] = {}
    for index, node in enumerate(graph.nodes):
        results.update(dict.fromkeys(_inputs_of(node), index))
    results.update(dict.fromkeys((v.name for v in graph.outputs), len(graph.nodes)))
    return results


def _inputs_of(node: OnnxNode) -> Iterable[str]:
    yield from node.inputs
    for value in node.attributes.values():
        if isinstance(value, OnnxGraph):
            for inner in value.nodes:
                yield from _inputs_of(inner)
            yield from (output.name for output in value.outputs)


class _Scope(Values):
    """Values of a graph by name, with lookup in the enclosing graph."""

    def __init__(self, outer: Values) -> None:
        super().__init__()
        self._outer = outer
        self._created: set[str] = set()

    def __missing__(self, name: str) -> Value:
        # A transpose inside a nested graph belongs to the trace of that graph.
        value = self[name] = self._outer[name].copy()
        return value

    def inner(self) -> Values:
        """Return the values that are visible to a nested graph."""
        return self

    def add(self, values: Values, ledger: Ledger) -> None:
        """Add the results of a node."""
        ledger.count_values(values.values())
        self.update(values)
        self._created.update(values)

    def pop_created(self, names: list[str]) -> list[Value]:
        """Remove and return the values of these names that nodes have created."""
        present = [name for name in names if name in self._created]
        self._created.difference_update(present)
        return [self.pop(name) for name in present]
