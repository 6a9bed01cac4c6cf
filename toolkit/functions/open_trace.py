"""A trace with open extents, from which graphs for given extents follow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from toolkit import tree
from toolkit.core.extents import Extent, OpenExtents, deferred_p, evaluate
from toolkit.core.naming import scopes
from toolkit.core.tensor import Tensor, bind, state
from toolkit.core.trace import Trace
from toolkit.ir import Graph, Node, Spec, Value

# Limit of the runs of the Python code with open extents, for one signature.
MAX_ATTEMPTS = 4
# Python code often does something else for an extent of 0, 1 or 2. A guard would make
# the trace valid for that extent only, so that hints are larger.
_LARGEST_SPECIAL, _OFFSET = 4, 61


# A trace and the nest that the Python code returns.
Traced = tuple[Trace, object]
Recorder = Callable[[Sequence[Spec]], Traced]


class OpenTraces:
    """The traces of a signature with open extents.

    Args:
        signature: specs with the shape and dtype of each argument, None for an extent
            that is open.
    """

    def __init__(self, signature: Sequence[Any]) -> None:
        self._signature = signature
        self._traces: list[OpenTrace] = []
        self._remaining_attempts = MAX_ATTEMPTS

    def specialize(
        self,
        specs: Sequence[Spec],
        record: Recorder,
    ) -> Traced | None:
        """Return the trace and the outputs for these specs.

        Args:
            specs: of the arguments.
            record: runs the Python code on placeholders with such specs.

        Returns:
            None if the Python code needs the number of an extent, or fails.
        """
        values = self._open_values(specs)
        for trace in self._traces:
            if trace.accepts(values):
                return trace.specialize(values)
        general = [n if n > _LARGEST_SPECIAL else n + _OFFSET for n in values]
        for hints in (general, values):
            new = self._record(specs, hints, record)
            if new is not None and new.accepts(values):
                return new.specialize(values)
            if general == values:
                break
        return None

    def _record(
        self, specs: Sequence[Spec], hints: Sequence[int], record: Recorder
    ) -> OpenTrace | None:
        """Return a new trace, or None if there is none."""
        if not self._remaining_attempts:
            return None
        self._remaining_attempts -= 1
        extents = OpenExtents(hints)
        try:
            trace, outputs = record(self._open(specs, extents))
        except Exception:  # the trace for the numbers raises an error of the user
            trace = None
        if extents.has_read_number:
            self._remaining_attempts = 0
            return None
        if trace is None:
            return None
        self._traces.append(OpenTrace(trace, outputs, extents))
        return self._traces[-1]

    def _open_values(self, specs: Sequence[Spec]) -> list[int]:
        """Return the extents of specs that are open in the signature."""
        return [
            n
            for spec, open_spec in zip(specs, self._signature, strict=True)
            for n, expected in zip(spec.shape, open_spec.shape, strict=True)
            if expected is None
        ]

    def _open(self, specs: Sequence[Spec], extents: OpenExtents) -> list[Spec]:
        """Return specs with open extents."""
        remaining: Iterator[Any] = iter(extents.inputs)
        return [
            Spec(
                [
                    next(remaining) if expected is None else n
                    for n, expected in zip(spec.shape, open_spec.shape, strict=True)
                ],
                spec.dtype,
            )
            for spec, open_spec in zip(specs, self._signature, strict=True)
        ]


class OpenTrace:
    """A trace with open extents and its outputs.

    Args:
        trace: the trace, whose nodes and values contain `Extent`s.
        outputs: the returned nest.
        extents: its open extents, with the guards.
    """

    def __init__(self, trace: Trace, outputs: object, extents: OpenExtents) -> None:
        self._trace = trace
        self._outputs = outputs
        self._extents = extents

    def accepts(self, values: Sequence[int]) -> bool:
        """Return whether the Python code does the same for these extents."""
        return self._extents.accept(values)

    def specialize(self, values: Sequence[int]) -> Traced:
        """Return the trace and the outputs for these extents."""
        source = self._trace
        with Trace(source.name, creates_variables=False) as trace:
            mapping: dict[Value, Tensor] = {
                x: trace.placeholder(_specialize(x.spec, values)) for x in source.inputs
            }
            mapping.update((x, trace.capture(o)) for o, x in source.captures.items())
            _replay(source.nodes, mapping, values)
            for variable, written in source.writes.items():
                trace.write(variable, _find(written, mapping))
            outputs = tree.map_structure(
                lambda y: (
                    _find(y, mapping) if isinstance(y, Tensor) else evaluate(y, values)
                ),
                self._outputs,
            )
        return trace, outputs


def _replay(
    nodes: Iterable[Node], mapping: dict[Value, Tensor], values: Sequence[int]
) -> None:
    """Apply nodes to the values of another trace, for these extents."""
    for node in nodes:
        attrs = {name: _specialize(x, values) for name, x in node.attrs.items()}
        outer, scopes.names = scopes.names, node.outputs[0].origin
        try:
            with state.override(device=node.device):
                if node.op is deferred_p:
                    results: Any = attrs["function"](*attrs["arguments"])
                else:
                    inputs = [_find(x, mapping) for x in node.inputs]
                    results = bind(node.op, *inputs, **attrs)
        finally:
            scopes.names = outer
        results = results if isinstance(results, tuple) else (results,)
        mapping.update(zip(node.outputs, results, strict=True))


def _find(x: Value, mapping: Mapping[Value, Tensor]) -> Any:
    """Return the value of the new trace; a constant is the same in both."""
    return mapping.get(x, x)


def _specialize(x: object, values: Sequence[int]) -> Any:
    """Return an attribute in which all open extents are replaced by numbers."""
    if isinstance(x, Extent):
        return x.value(values)
    if isinstance(x, Spec):
        return Spec(_specialize(x.shape, values), x.dtype)
    if isinstance(x, Graph):
        return _specialize_graph(x, values)
    if isinstance(x, slice):
        return slice(*(_specialize(n, values) for n in (x.start, x.stop, x.step)))
    if isinstance(x, (tuple, list)):
        items = [_specialize(item, values) for item in x]
        return type(x)(*items) if hasattr(x, "_fields") else type(x)(items)
    if isinstance(x, dict):
        return {key: _specialize(item, values) for key, item in x.items()}
    return x


def _specialize_graph(graph: Graph, values: Sequence[int]) -> Graph:
    """Return the body of a loop or branch for these extents."""
    with Trace() as trace:
        mapping: dict[Value, Tensor] = {
            x: trace.placeholder(_specialize(x.spec, values)) for x in graph.inputs
        }
        _replay(graph.nodes, mapping, values)
    return trace.finish([_find(x, mapping) for x in graph.outputs])
