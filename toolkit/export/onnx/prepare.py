"""Preparation of a model: traces at several sizes, with Variables as constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from toolkit import dtypes
from toolkit.backends.target import Target
from toolkit.compiler.passes.rewriting import Substitution, expand, prune
from toolkit.compiler.passes.scans import tidy_scans
from toolkit.compiler.passes.simplify import fold, share, simplify
from toolkit.core.tensor import Tensor, backend, bind
from toolkit.core.trace import Trace, no_trace
from toolkit.definitions.records import record
from toolkit.errors import ShapeError, TraceError, UnsupportedError
from toolkit.export.inference import (
    InferenceGraph,
    ModelTensor,
    Signature,
    trace_inference,
)
from toolkit.export.onnx.family import Family, Grown, Misfit, where_is
from toolkit.export.onnx.sizes import samples_of
from toolkit.export.onnx.table import has_row
from toolkit.export.onnx.windows import check_windows
from toolkit.ir import Graph, Kind, Node, Value

_PASSES = (prune, simplify, fold, share, tidy_scans, simplify, prune)
RANDOM = (
    "a call draws random numbers; allow_random=True writes generators of ONNX, which "
    "draw others"
)
# Dtypes computed in float32, because most runtimes have few operators for them.
_NARROW = {"float16": "float32", "bfloat16": "float32"}


@record
class Prepared:
    """Model as one graph whose extents can depend on free sizes.

    Attributes:
        family: the graph; its inputs are the inputs of the model, then those of
            `grown`.
        inputs: the inputs of the model.
        names: the names of the outputs.
        grown: size-dependent constants; None if unused.
        samples: the data of each of these at each size.
        variables: the paths of Variables, by their constants.
    """

    family: Family
    inputs: Sequence[ModelTensor]
    names: Sequence[str]
    grown: Mapping[Value, Grown | None]
    samples: Mapping[Value, Sequence[Any]]
    variables: Mapping[Value, str]


def prepare(model: Any, signature: Signature, allow_random: bool = False) -> Prepared:
    """Trace a model at several sizes.

    Raises:
        UnsupportedError: the model has a state that a file cannot store, or an
            unsupported dependence on free sizes.
    """
    label = f"{model.name}.export"
    problem: Exception | None = None
    for spread in range(3 if signature.free else 1):
        samples = samples_of(signature.free, spread)
        try:
            traces = [trace_inference(model, signature, sizes) for sizes in samples]
            return _joined(label, signature, traces, samples, allow_random)
        except TraceError as error:
            raise UnsupportedError(f"{label}: {error}") from error
        except ShapeError as error:  # for example, too small for a window
            problem = problem or error
        except Misfit as error:
            problem = UnsupportedError(
                f"{label}: {error} computes something else for other sizes of "
                f"{signature.free}; give an input_signature with fixed extents"
            )
    raise problem  # type: ignore[misc]


def _joined(
    label: str,
    signature: Signature,
    traces: Sequence[InferenceGraph],
    samples: Sequence[Mapping[str, int]],
    allow_random: bool,
) -> Prepared:
    _check_state(label, traces[0], allow_random)
    constants = [Tensor(v.numpy()) for v in traces[0].variables]
    graphs = [_frozen(trace, constants) for trace in traces]
    if any(x.spec.dtype in _NARROW for x in _values(graphs[0])):
        widen = _Widening()
        graphs = [widen.graph(graph) for graph in graphs]
        constants = [widen.constant(x) for x in constants]
    for node in graphs[0].walk():
        if node.op.kind is Kind.RANDOM and not allow_random:
            raise UnsupportedError(f"{label}: {where_is(node)}: {RANDOM}")
    graphs, grown, arrays = _grown_apart(Family(graphs, samples, label))
    target = Target(backend())
    with no_trace():
        graphs = [_small(graph, target) for graph in graphs]
    family = Family(graphs, samples, label)
    check_windows(family)
    paths = [v.path for v in traces[0].variables]
    return Prepared(
        family,
        signature.inputs,
        traces[0].names,
        grown,
        arrays,
        dict(zip(constants, paths, strict=True)),
    )


def _check_state(label: str, trace: InferenceGraph, allow_random: bool) -> None:
    """Raise an error for Variables that a call updates: a file has no state."""
    for variable in trace.written:
        is_random = variable.dtype == "uint32"
        if is_random and allow_random:
            continue
        reason = (
            RANDOM
            if is_random
            else "a call changes it, and ONNX files hold no state; build the model "
            "with stateful=False, and hand states over as inputs and outputs"
        )
        raise UnsupportedError(
            f"{label}: layer {_layer_of(trace, variable)!r} has the state "
            f"{variable.path!r}: {reason}"
        )


def _layer_of(trace: InferenceGraph, variable: Any) -> str:
    """Return the path of the layer that computes the new value of a Variable."""
    count = len(trace.graph.outputs) - len(trace.written)
    number = [v is variable for v in trace.written].index(True)
    value = trace.graph.outputs[count + number]
    return "/".join(value.origin) or variable.path


def _frozen(trace: InferenceGraph, constants: Sequence[Tensor]) -> Graph:
    """Return the graph with constants for Variables, without updates."""
    graph = trace.graph
    count = len(graph.inputs) - len(constants)
    substitute = Substitution()
    for old, new in zip(graph.inputs[count:], constants, strict=True):
        substitute.replace(old, new)
    outputs = graph.outputs[: len(graph.outputs) - len(trace.written)]
    nodes = tuple(map(substitute.node, graph.nodes))
    return Graph(graph.inputs[:count], nodes, tuple(map(substitute, outputs))).pruned()


# --- constants that depend on sizes ---------------------------------------------------


def _grown_apart(
    family: Family,
) -> tuple[list[Graph], dict[Value, Grown | None], dict[Value, Sequence[Any]]]:
    """Return the graphs with an input for each size-dependent constant.

    These inputs prevent constant folding, so that their dependence stays known. The
    same applies to random keys, which ONNX generators do not use.

    Returns:
        The graphs; the dependence of each such input on sizes, None for keys; and its
        data at each size.
    """
    found: dict[Value, Grown | None] = {}
    arrays: dict[Value, Sequence[Any]] = {}
    extra: list[tuple[Value, ...]] = []
    substitutes = [Substitution() for _ in family.graphs]
    drawn = [n for n in family.graph.walk() if n.op.kind is Kind.RANDOM]
    keys = {x for node in drawn for x in node.inputs}
    for value in _values(family.graph):
        if value.constant is None or (len(family.graphs) == 1 and value not in keys):
            continue
        recipe = family.recipe(value)
        if not isinstance(recipe, Grown) and value not in keys:
            continue
        twins = family.twins(value)
        stand_ins = tuple(Value(twin.spec) for twin in twins)
        for substitute, old, new in zip(substitutes, twins, stand_ins, strict=True):
            substitute.replace(old, new)
        found[stand_ins[0]] = recipe if isinstance(recipe, Grown) else None
        arrays[stand_ins[0]] = family.arrays(value)
        extra.append(stand_ins)
    graphs = []
    pairs = zip(family.graphs, substitutes, strict=True)
    for i, (graph, substitute) in enumerate(pairs):
        outer = substitute_in(graph, substitute)
        inputs = (*outer.inputs, *(stand_ins[i] for stand_ins in extra))
        graphs.append(Graph(inputs, outer.nodes, outer.outputs, outer.names))
    return graphs, found, arrays


def substitute_in(graph: Graph, substitute: Callable[[Value], Value]) -> Graph:
    """Return the graph, and its nested graphs, with substituted values."""

    def read(node: Node) -> Node:
        attrs = {
            name: substitute_in(value, substitute)
            if isinstance(value, Graph)
            else value
            for name, value in node.attrs.items()
        }
        inputs = [substitute(x) for x in node.inputs]
        return Node(node.op, inputs, attrs, node.outputs, node.device)

    nodes = tuple(map(read, graph.nodes))
    outputs = tuple(map(substitute, graph.outputs))
    return Graph(graph.inputs, nodes, outputs, graph.names)


def _values(graph: Graph) -> list[Any]:
    """Return all unique values that a graph and its nested graphs read."""
    found: dict[Value, None] = dict.fromkeys(graph.outputs)
    for node in graph.walk():
        found.update(dict.fromkeys(node.inputs))
        found.update(dict.fromkeys(node.outputs))
        for part in node.subgraphs:
            found.update(dict.fromkeys((*part.inputs, *part.outputs)))
    return [*found]


# --- small graphs ---------------------------------------------------------------------


def _small(graph: Graph, target: Target) -> Graph:
    """Return the graph after the relevant passes, nested graphs first."""
    nodes = []
    for node in graph.nodes:
        attrs = {
            name: _small(value, target) if isinstance(value, Graph) else value
            for name, value in node.attrs.items()
        }
        nodes.append(Node(node.op, node.inputs, attrs, node.outputs, node.device))
    graph = expand(graph.replace(nodes), lambda node: not has_row(node.op.name))
    for step in _PASSES:
        graph = step(graph, target)
    return graph


# --- wide dtypes ----------------------------------------------------------------------


class _Widening:
    """Conversion of graphs in narrow float dtypes to float32."""

    def __init__(self) -> None:
        self._constants: dict[Value, Any] = {}

    def constant(self, x: Any) -> Any:
        """Return a constant in a wide dtype."""
        if x.constant is None or x.spec.dtype not in _NARROW:
            return x
        if x not in self._constants:
            array = x.constant.astype(dtypes.numpy_dtype(_NARROW[x.spec.dtype]))
            self._constants[x] = wide = Tensor(array)
            wide._is_open = x.is_open
        return self._constants[x]

    def graph(self, graph: Graph) -> Graph:
        """Return the graph with wide inputs, constants and results."""
        with Trace("export") as trace:
            values: dict[Value, Any] = {}
            for x in graph.inputs:
                values[x] = trace.placeholder(x.spec.with_dtype(_wide(x.spec.dtype)))
            for node in graph.nodes:
                inputs = [values.get(x, self.constant(x)) for x in node.inputs]
                outputs = bind(node.op, *inputs, **self._attrs(node.attrs))
                several = outputs if isinstance(outputs, tuple) else (outputs,)
                for old, new in zip(node.outputs, several, strict=True):
                    new._origin = old.origin
                    values[old] = new
        outputs = tuple(values.get(x, self.constant(x)) for x in graph.outputs)
        first = tuple(values[x] for x in graph.inputs)
        return Graph(first, tuple(trace.nodes), outputs)

    def _attrs(self, attrs: Mapping[str, Any]) -> dict[str, Any]:
        found = {}
        for name, value in attrs.items():
            is_dtype = name == "dtype" and value in _NARROW
            found[name] = _NARROW[value] if is_dtype else value
            if isinstance(value, Graph):
                found[name] = self.graph(value)
        return found


def _wide(dtype: str) -> str:
    return _NARROW.get(dtype, dtype)
