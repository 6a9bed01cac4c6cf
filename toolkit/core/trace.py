"""Traces: graphs under construction, and overlays for Variables.

Inside a trace every `bind` appends a node. Variable reads and writes go through the
trace, so that a trace that fails does not change any Variable.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from toolkit import dtypes
from toolkit.core.naming import scopes
from toolkit.core.tensor import Tensor, bind, run_on_host, state
from toolkit.errors import (
    ArgumentError,
    ShapeError,
    VariableCreationError,
    leaked,
)
from toolkit.ir import Graph, Kind, Node, Primitive, Spec, Value, primitive
from toolkit.ir.scalars import Rule
from toolkit.reading.budget import spend_time

if TYPE_CHECKING:
    from toolkit.core.dialects import Dialect
    from toolkit.core.variable import Variable

_SECONDS_OF_NODE = 3e-5  # estimated cost of one node, for the time budget of a load


class Overlay:
    """Reads and writes of Variables that are local to a scope."""

    def __init__(self) -> None:
        self.parent: Overlay | None = None
        self.writes: dict[Variable, Tensor] = {}

    def read(self, variable: Variable) -> Tensor:
        """Return the value of `variable` in this scope.

        Args:
            variable: a Variable.
        """
        if variable in self.writes:
            return self.writes[variable]
        if self.parent is not None:
            return self.parent.read(variable)
        return variable._eager_value()

    def write(self, variable: Variable, tensor: Tensor) -> None:
        """Set a value of `variable` that is valid only in this scope.

        Args:
            variable: a Variable.
            tensor: the value.
        """
        self.writes[variable] = tensor

    def check_creation(self) -> None:
        """Raise if this scope does not permit new Variables."""
        if self.parent is not None:
            self.parent.check_creation()


class Scope:
    """The part of a trace that a tensor references, so that the trace can be freed."""

    __slots__ = ("closed",)

    def __init__(self) -> None:
        self.closed: bool = False


class Trace(Overlay):
    """A graph under construction; use it as a context manager.

    Args:
        name: name of the traced function, for messages.
        creates_variables: whether the trace may create Variables.
        tapes: the values that these tapes watch become inputs, even if their data is
            known.
    """

    # Whether loops with a known number of iterations are not nodes of the graph.
    unrolls_loops = False

    def __init__(
        self,
        name: str = "function",
        creates_variables: bool = True,
        tapes: tuple[Any, ...] = (),
    ) -> None:
        super().__init__()
        self.name = name
        self.creates_variables = creates_variables
        # The fix, for errors about values that do not exist in the trace.
        self.fix = ""
        self.has_created = False  # whether the trace created a Variable
        self.tapes: tuple[Any, ...] = tapes
        self.scope: Scope = Scope()
        # The HostCalls of the trace; None: it does not support them.
        self.host_calls: Any = None
        self.nodes: list[Node] = []
        self.inputs: list[Tensor] = []
        # Outer values, and their placeholders in this trace.
        self.captures: dict[Tensor | Variable, Tensor] = {}
        # Tensors of this trace whose values were requested and computed.
        self.folded: dict[Tensor, Tensor] = {}
        # Variables that were written, with their later reads.
        self._rereads: dict[Variable, Tensor] = {}

    def __enter__(self) -> Trace:
        self._outer = (state.trace, state.overlay, state.tapes)
        self.parent = state.overlay
        state.trace, state.overlay, state.tapes = self, self, ()
        return self

    def __exit__(self, *exception: object) -> None:
        state.trace, state.overlay, state.tapes = self._outer
        self.scope.closed = True
        del self._outer
        self.parent, self.tapes = None, ()

    @property
    def enclosing(self) -> Trace | None:
        """Return the trace in which this trace was entered, if any."""
        return self._outer[0]

    def fix_of_missing_values(self) -> str:
        """Return the fix for code that needs values; the outermost trace decides."""
        outer = self.enclosing
        return self.fix if outer is None else outer.fix_of_missing_values()

    def placeholder(self, spec: Spec) -> Tensor:
        """Return a new input of the graph."""
        tensor = self._stand_in(spec)
        self.inputs.append(tensor)
        return tensor

    def _stand_in(self, spec: Spec, dialect: Dialect | None = None) -> Tensor:
        dialect = dialect or state.dialect
        kind = Tensor if dialect is None else dialect.tensor
        return kind(None, spec, self.scope)

    def emit(
        self, op: Primitive, inputs: Iterable[Tensor], attrs: Mapping[str, Any]
    ) -> Any:
        """Append a node; its shape rule defines the outputs."""
        spend_time(_SECONDS_OF_NODE, "a graph with this number of operations")
        inputs = [self.localize(x) for x in inputs]
        specs = op.spec(*[x.spec for x in inputs], **attrs)
        has_several = type(specs) is tuple
        outputs = [self._stand_in(s) for s in (specs if has_several else (specs,))]
        if scopes.names:
            for y in outputs:
                y._origin = scopes.names
        self.nodes.append(Node(op, inputs, attrs, outputs, state.device))
        return tuple(outputs) if has_several else outputs[0]

    def localize(self, x: Tensor) -> Tensor:
        """Return `x` in this graph: itself, or a placeholder for an outer value."""
        if x._scope is self.scope:
            return x
        if x._array is not None:
            watched = any(tape.watches((x,)) for tape in self.tapes)
            return self.capture(x) if watched else x
        if x._scope is None or x._scope.closed:
            raise leaked(self.name, x)
        return self.capture(x)

    def capture(self, source: Tensor | Variable) -> Tensor:
        """Return the placeholder of an outer value."""
        if source not in self.captures:
            self.captures[source] = self._stand_in(source.spec, source.dialect)
        return self.captures[source]

    def value_of(self, x: Tensor) -> Tensor | None:
        """Return `x` with its data, if it depends on constants only; else None.

        Extents are known in a trace, so values computed from them are known.
        """
        if x._array is not None:
            return x
        if x._scope is not self.scope:
            outer = self.enclosing
            return None if outer is None else outer.value_of(x)
        if x not in self.folded:
            nodes = self.nodes_for(x)
            if nodes is None:
                return None
            with no_trace():
                for node in nodes:
                    for v in node.inputs:
                        if v.extent is not None:
                            v.extent.domain.fix(v.extent)
                    inputs = tuple([self.folded.get(v, v) for v in node.inputs])
                    result = run_on_host(node.op, inputs, node.attrs)
                    result = result if type(result) is tuple else (result,)
                    self.folded.update(zip(node.outputs, result, strict=True))
        return self.folded[x]

    def nodes_for(self, x: Tensor, known: Collection[object] = ()) -> list[Node] | None:
        """Return the nodes that `x` depends on; None if it needs unknown inputs.

        Args:
            x: a value of the trace.
            known: the inputs with known values.
        """
        needed, nodes = {x}, []
        for node in reversed(self.nodes):
            if not needed:
                break
            outputs = set(node.outputs)
            if needed.isdisjoint(outputs):
                continue
            if node.subgraphs:
                return None
            nodes.append(node)
            needed -= outputs
            needed |= {v for v in node.inputs if v._array is None}
            needed -= self.folded.keys()
        for source, local in self.captures.items() if needed else ():
            if local in needed and isinstance(source, Tensor):
                value = source if source._array is not None else self.value_of(source)
                if value is not None:
                    self.folded[local] = value
        return nodes[::-1] if needed - self.folded.keys() <= set(known) else None

    def read(self, variable: Variable) -> Tensor:
        if variable not in self.writes:
            return self.capture(variable)
        if variable not in self._rereads:
            self._rereads[variable] = self._reread(variable)
        return self._rereads[variable]

    def _reread(self, variable: Variable) -> Tensor:
        """Return the value written to `variable`, as a new value for tapes."""
        value = self.writes[variable]
        is_wanted = variable.trainable or variable in self.captures
        if not is_wanted or value.dtype not in dtypes.INEXACT:
            return value
        return self.emit(reread_p, (value, self.capture(variable)), {})

    def write(self, variable: Variable, tensor: Tensor) -> None:
        self.writes[variable] = self.localize(tensor)
        self._rereads.pop(variable, None)

    def check_creation(self) -> None:
        if not self.creates_variables:
            raise VariableCreationError(
                f"{self.name}: the function creates a Variable again, but a compiled "
                "function keeps its Variables between calls. Create Variables, "
                "layers, metrics and optimizers outside of the function, or only in "
                "its first call: `if self.v is None: self.v = ...`"
            )
        self.has_created = True
        super().check_creation()

    def drop_unused_inputs(self, outputs: Iterable[Tensor]) -> list[int]:
        """Remove the placeholders that no output depends on.

        Args:
            outputs: tensors of this trace.

        Returns:
            The indices of the remaining placeholders.
        """
        graph = Graph(tuple(self.inputs), tuple(self.nodes), tuple(outputs))
        indices = graph.used_inputs()
        self.inputs = [self.inputs[i] for i in indices]
        return indices

    def finish(self, outputs: Iterable[Tensor]) -> Graph:
        """Return the graph; its inputs are placeholders, then captured values."""
        inputs = [*self.inputs, *self.captures.values()]
        localized = [self.localize(x) for x in outputs]
        names: dict[Value, str] = {
            local: source.path
            for source, local in self.captures.items()
            if not isinstance(source, Tensor)
        }
        return Graph(tuple(inputs), tuple(self.nodes), tuple(localized), names)


def no_trace() -> AbstractContextManager[None]:
    """Suspend the trace and its overlay: compute eagerly in the context."""
    return state.override(trace=None, overlay=None, tapes=())


class StatelessScope(Overlay):
    """Scope in which writes of Variables stay local.

    Args:
        state_mapping: pairs of (Variable, value) that are valid in the scope; None for
            none.
        collect_losses: whether `add_loss` of layers adds to `losses` of this scope
            instead of the layer.
        initialize_variables: only True; Variables have their value from the start.

    Example:
        >>> import toolkit
        >>> v = toolkit.Variable(1.0)
        >>> with toolkit.StatelessScope() as scope:
        ...     _ = v.assign(2.0)
        ...     inside = float(v.value)
        >>> inside, float(v.value), float(scope.get_current_value(v))
        (2.0, 1.0, 2.0)
    """

    def __init__(
        self,
        state_mapping: Iterable[tuple[Any, Any]] | None = None,
        collect_losses: bool = False,
        initialize_variables: bool = True,
    ) -> None:
        super().__init__()
        if not initialize_variables:
            raise ArgumentError(
                "StatelessScope: initialize_variables=False is unsupported, because "
                "Variables are initialized when they are created"
            )
        self.collect_losses = collect_losses
        self.losses: list[Tensor] = []
        for variable, value in state_mapping or ():
            if not hasattr(variable, "assign"):
                raise ArgumentError(
                    "StatelessScope: all keys in argument `mapping` must be Variables; "
                    f"received {variable!r}"
                )
            try:
                self.writes[variable] = variable.convert(value)
            except ShapeError as error:
                raise ShapeError(
                    "StatelessScope: all values in argument `mapping` must be tensors "
                    f"with the shape of their Variable: {error}"
                ) from error

    def __enter__(self) -> StatelessScope:
        self.parent = state.overlay
        state.overlay = self
        return self

    def __exit__(self, *exception: object) -> None:
        state.overlay, self.parent = self.parent, None

    def add_loss(self, loss: Tensor) -> None:
        """Add a loss to `losses`.

        Args:
            loss: a scalar tensor.
        """
        self.losses.append(loss)

    def add_update(self, update: tuple[Variable, Any]) -> None:
        """Set a local value of a Variable: `update` is the pair (Variable, value).

        Args:
            update: a pair of a Variable and its value.
        """
        variable, value = update
        self.writes[variable] = variable.convert(value)

    def get_current_value(self, variable: Variable) -> Tensor | None:
        """Return the value set for `variable` in this scope, or None.

        Args:
            variable: a Variable.
        """
        return self.writes.get(variable)


def inline(graph: Graph, inputs: Iterable[Tensor]) -> list[Tensor]:
    """Apply the nodes of `graph` to other inputs, through `bind`."""
    values = dict(zip(graph.inputs, inputs, strict=True))

    def value(x: Value) -> Tensor:
        if x not in values:
            values[x] = x if isinstance(x, Tensor) else _constant_tensor(x)
        return values[x]

    for node in graph.nodes:
        outputs = bind(node.op, *map(value, node.inputs), **node.attrs)
        results = outputs if isinstance(outputs, tuple) else (outputs,)
        values.update(zip(node.outputs, results, strict=True))
    return [value(x) for x in graph.outputs]


def _constant_tensor(constant: Value) -> Tensor:
    """Return a constant that a pass or a file inserted, as a tensor."""
    tensor = Tensor(constant.constant, constant.spec)
    tensor._is_open = constant.is_open
    if constant.extent is not None:
        tensor._extent = constant.extent
    return tensor


@lru_cache(maxsize=1024)
def _body_graph(body: Rule, name: str, specs: tuple[Spec, ...], attrs: Any) -> Graph:
    with Trace(name) as trace:
        inputs = [trace.placeholder(spec) for spec in specs]
        outputs = body(*inputs, **dict(attrs))
    return trace.finish(outputs if isinstance(outputs, tuple) else (outputs,))


def graph_rule(name: str, body: Rule) -> Rule:
    """Return the `graph` rule of a primitive with this body, traced once per signature.

    A call with graphs among its attributes is traced each time, so that the cache does
    not keep them alive.
    """

    def graph(specs: Iterable[Spec], attrs: Mapping[str, Any]) -> Graph:
        holds = any(isinstance(value, Graph) for value in attrs.values())
        trace = _body_graph.__wrapped__ if holds else _body_graph
        return trace(body, name, tuple(specs), tuple(attrs.items()))

    return graph


def decomposable(
    name: str, body: Rule, vjp: Rule | None = None, scalar: Rule | None = None
) -> Primitive:
    """Declare a composite primitive:

    `body` defines it, a kernel of a backend is optional.

    Without a `vjp` the tape differentiates the body. A `scalar` rule is the function of
    one element. Code generators with its functions compute it in a loop.
    """
    graph = graph_rule(name, body)

    def spec(*specs: Spec, **attrs: Any) -> Any:
        outputs = tuple(v.spec for v in graph(specs, attrs).outputs)
        return outputs if len(outputs) > 1 else outputs[0]

    return decomposable_as(name, spec, body, vjp, scalar)


def decomposable_as(
    name: str,
    spec: Rule,
    body: Rule,
    vjp: Rule | None = None,
    scalar: Rule | None = None,
) -> Primitive:
    """Declare a composite with a shape rule that does not need its body."""
    rules = {"body": body, "graph": graph_rule(name, body), "vjp": vjp}
    if scalar is not None:
        rules["scalar"] = scalar
    return primitive(name, Kind.COMPOSITE, spec, **rules)


# A Variable's value after an assignment. Its gradient goes to the Variable, through the
# value `before`, and not to the operands of the assigned value.
reread_p: Primitive = decomposable(
    "reread",
    lambda value, before: value,
    vjp=lambda g, y, value, before: (None, g),
)
