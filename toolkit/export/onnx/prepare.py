"""Preparation of a model: traces at several sizes, with Variables as constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

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
from toolkit.export.onnx.family import (
    Family,
    SizeDependent,
    TraceMismatchError,
    describe_node,
)
from toolkit.export.onnx.sizes import sample_sizes
from toolkit.export.onnx.table import has_rule
from toolkit.export.onnx.windows import check_windows
from toolkit.ir import Graph, Kind, Node, Value

if TYPE_CHECKING:
    from toolkit.core.variable import Variable
    from toolkit.models.model import Model

_PASSES = (prune, simplify, fold, share, tidy_scans, simplify, prune)
RANDOM_REASON = (
    "a call draws random numbers; allow_random=True uses ONNX generators, which draw "
    "different numbers"
)
# Dtypes computed in float32, because most runtimes have few operators for them.
_NARROW = {"float16": "float32", "bfloat16": "float32"}


@record
class PreparedModel:
    """Model as one graph whose extents can depend on free sizes.

    Attributes:
        family: the graph; its inputs are the inputs of the model, then those of
            `size_constants`.
        inputs: the inputs of the model.
        names: the names of the outputs.
        size_constants: size-dependent constants; None if unused.
        samples: the data of each of these at each size.
        variables: the paths of Variables, by their constants.
    """

    family: Family
    inputs: Sequence[ModelTensor]
    names: Sequence[str]
    size_constants: Mapping[Value, SizeDependent | None]
    samples: Mapping[Value, Sequence[Any]]
    variables: Mapping[Value, str]


def prepare_model(
    model: Model, signature: Signature, allow_random: bool = False
) -> PreparedModel:
    """Trace a model at several sizes.

    Raises:
        UnsupportedError: the model has a state that a file cannot store, or an
            unsupported dependence on free sizes.
    """
    label = f"{model.name}.export"
    problem: Exception | None = None
    for size_class in range(3 if signature.free_extents else 1):
        samples = sample_sizes(signature.free_extents, size_class)
        try:
            traces = [trace_inference(model, signature, sizes) for sizes in samples]
            return _merge_traces(label, signature, traces, samples, allow_random)
        except TraceError as error:
            raise UnsupportedError(f"{label}: {error}") from error
        except ShapeError as error:  # for example, too small for a window
            problem = problem or error
        except TraceMismatchError as error:
            problem = UnsupportedError(
                f"{label}: {error} computes a different graph for other sizes of "
                f"{signature.free_extents}; pass an input_signature with fixed "
                "extents"
            )
    raise problem  # type: ignore[misc]


def _merge_traces(
    label: str,
    signature: Signature,
    traces: Sequence[InferenceGraph],
    samples: Sequence[Mapping[str, int]],
    allow_random: bool,
) -> PreparedModel:
    _check_state(label, traces[0], allow_random)
    constants = [Tensor(v.numpy()) for v in traces[0].variables]
    graphs = [_freeze_variables(trace, constants) for trace in traces]
    if any(x.spec.dtype in _NARROW for x in _unique_values(graphs[0])):
        widen = _Widening()
        graphs = [widen.graph(graph) for graph in graphs]
        constants = [widen.constant(x) for x in constants]
    for node in graphs[0].walk():
        if node.op.kind is Kind.RANDOM and not allow_random:
            raise UnsupportedError(f"{label}: {describe_node(node)}: {RANDOM_REASON}")
    graphs, size_constants, arrays = _lift_size_constants(
        Family(graphs, samples, label)
    )
    target = Target(backend())
    with no_trace():
        graphs = [_simplify_graph(graph, target) for graph in graphs]
    family = Family(graphs, samples, label)
    check_windows(family)
    paths = [v.path for v in traces[0].variables]
    return PreparedModel(
        family,
        signature.inputs,
        traces[0].names,
        size_constants,
        arrays,
        dict(zip(constants, paths, strict=True)),
    )


def _check_state(label: str, trace: InferenceGraph, allow_random: bool) -> None:
    """Raise an error for Variables that a call updates: a file has no state."""
    for variable in trace.updated_variables:
        is_random = variable.dtype == "uint32"
        if is_random and allow_random:
            continue
        reason = (
            RANDOM_REASON
            if is_random
            else "a call changes it, but ONNX files have no state; build the model "
            "with stateful=False, and pass states as inputs and outputs"
        )
        raise UnsupportedError(
            f"{label}: layer {_layer_of(trace, variable)!r} has the state "
            f"{variable.path!r}: {reason}"
        )


def _layer_of(trace: InferenceGraph, variable: Variable) -> str:
    """Return the path of the layer that computes the new value of a Variable."""
    count = len(trace.graph.outputs) - len(trace.updated_variables)
    number = [v is variable for v in trace.updated_variables].index(True)
    value = trace.graph.outputs[count + number]
    return "/".join(value.origin) or variable.path


def _freeze_variables(trace: InferenceGraph, constants: Sequence[Tensor]) -> Graph:
    """Return the graph with constants for Variables, without updates."""
    graph = trace.graph
    count = len(graph.inputs) - len(constants)
    substitute = Substitution()
    for old, new in zip(graph.inputs[count:], constants, strict=True):
        substitute.replace(old, new)
    outputs = graph.outputs[: len(graph.outputs) - len(trace.updated_variables)]
    nodes = tuple(map(substitute.node, graph.nodes))
    return Graph(graph.inputs[:count], nodes, tuple(map(substitute, outputs))).pruned()


# --- constants that depend on sizes ---------------------------------------------------


def _lift_size_constants(
    family: Family,
) -> tuple[list[Graph], dict[Value, SizeDependent | None], dict[Value, Sequence[Any]]]:
    """Return the graphs with an input for each size-dependent constant.

    These inputs prevent constant folding, so that their dependence stays known. The
    same applies to random keys, which ONNX generators do not use.

    Returns:
        The graphs; the dependence of each such input on sizes, None for keys; and its
        data at each size.
    """
    dependences: dict[Value, SizeDependent | None] = {}
    arrays: dict[Value, Sequence[Any]] = {}
    new_inputs: list[tuple[Value, ...]] = []
    substitutes = [Substitution() for _ in family.graphs]
    random_nodes = [n for n in family.graph.walk() if n.op.kind is Kind.RANDOM]
    keys = {x for node in random_nodes for x in node.inputs}
    for value in _unique_values(family.graph):
        if value.constant is None or (len(family.graphs) == 1 and value not in keys):
            continue
        dependence = family.constant_or_none(value)
        if not isinstance(dependence, SizeDependent) and value not in keys:
            continue
        counterparts = family.counterparts(value)
        placeholders = tuple(Value(counterpart.spec) for counterpart in counterparts)
        for substitute, old, new in zip(
            substitutes, counterparts, placeholders, strict=True
        ):
            substitute.replace(old, new)
        dependences[placeholders[0]] = (
            dependence if isinstance(dependence, SizeDependent) else None
        )
        arrays[placeholders[0]] = family.arrays(value)
        new_inputs.append(placeholders)
    graphs = []
    pairs = zip(family.graphs, substitutes, strict=True)
    for i, (graph, substitute) in enumerate(pairs):
        outer = substitute_in(graph, substitute)
        inputs = (*outer.inputs, *(placeholders[i] for placeholders in new_inputs))
        graphs.append(Graph(inputs, outer.nodes, outer.outputs, outer.names))
    return graphs, dependences, arrays


def substitute_in(graph: Graph, substitute: Callable[[Value], Value]) -> Graph:
    """Return the graph, and its nested graphs, with substituted values."""

    def substitute_node(node: Node) -> Node:
        attrs = {
            name: substitute_in(value, substitute)
            if isinstance(value, Graph)
            else value
            for name, value in node.attrs.items()
        }
        inputs = [substitute(x) for x in node.inputs]
        return Node(node.op, inputs, attrs, node.outputs, node.device)

    nodes = tuple(map(substitute_node, graph.nodes))
    outputs = tuple(map(substitute, graph.outputs))
    return Graph(graph.inputs, nodes, outputs, graph.names)


def _unique_values(graph: Graph) -> list[Any]:
    """Return all unique values that a graph and its nested graphs read."""
    values: dict[Value, None] = dict.fromkeys(graph.outputs)
    for node in graph.walk():
        values.update(dict.fromkeys(node.inputs))
        values.update(dict.fromkeys(node.outputs))
        for subgraph in node.subgraphs:
            values.update(dict.fromkeys((*subgraph.inputs, *subgraph.outputs)))
    return [*values]


# --- small graphs ---------------------------------------------------------------------


def _simplify_graph(graph: Graph, target: Target) -> Graph:
    """Return the graph after the relevant passes, nested graphs first."""
    nodes = []
    for node in graph.nodes:
        attrs = {
            name: _simplify_graph(value, target) if isinstance(value, Graph) else value
            for name, value in node.attrs.items()
        }
        nodes.append(Node(node.op, node.inputs, attrs, node.outputs, node.device))
    graph = expand(graph.replace(nodes), lambda node: not has_rule(node.op.name))
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
                values[x] = trace.placeholder(
                    x.spec.with_dtype(_wide_dtype(x.spec.dtype))
                )
            for node in graph.nodes:
                inputs = [values.get(x, self.constant(x)) for x in node.inputs]
                outputs = bind(node.op, *inputs, **self._attrs(node.attrs))
                results = outputs if isinstance(outputs, tuple) else (outputs,)
                for old, new in zip(node.outputs, results, strict=True):
                    new._origin = old.origin
                    values[old] = new
        outputs = tuple(values.get(x, self.constant(x)) for x in graph.outputs)
        first = tuple(values[x] for x in graph.inputs)
        return Graph(first, tuple(trace.nodes), outputs)

    def _attrs(self, attrs: Mapping[str, Any]) -> dict[str, Any]:
        widened = {}
        for name, value in attrs.items():
            is_dtype = name == "dtype" and value in _NARROW
            widened[name] = _NARROW[value] if is_dtype else value
            if isinstance(value, Graph):
                widened[name] = self.graph(value)
        return widened


def _wide_dtype(dtype: str) -> str:
    return _NARROW.get(dtype, dtype)
