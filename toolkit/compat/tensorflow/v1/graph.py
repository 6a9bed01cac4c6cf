"""Graphs as TensorFlow 1 has them: named operations on symbols, recorded to be run.

A tensor of a graph is a KerasTensor, so every function and every layer takes it and
records its call as a node. The graph gives the node a name and a number, and keeps the
order; a Session replays the nodes that its fetches need.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from toolkit import tree
from toolkit.compat.tensorflow.modes import local
from toolkit.compat.tensorflow.types import DType, TensorShape, as_dtype
from toolkit.compat.tensorflow.v1.names import type_of
from toolkit.errors import (
    ArgumentError,
    ArgumentTypeError,
    MissingKeyError,
    TraceError,
)
from toolkit.ir import Node
from toolkit.keras_tensor import KerasTensor
from toolkit.symbolic import FunctionOperation, Operation

_SCOPE = re.compile(r"[A-Za-z0-9.][\w.\\/>-]*$")


class GraphOperation:
    """A node of a graph: its name, and what must have run before.

    Args:
        graph: whose it is.
        node: what was recorded.
        name: unique in the graph.
        controls: operations that run before it though it does not read their results.
    """

    __slots__ = ("control_inputs", "graph", "name", "node", "number")

    def __init__(
        self, graph: Graph, node: Node, name: str, controls: tuple[GraphOperation, ...]
    ) -> None:
        self.graph, self.node, self.name = graph, node, name
        self.control_inputs = list(controls)
        self.number = len(graph.operations)

    @property
    def type(self) -> str:
        """What it does, such as "MatMul"."""
        return type_of(self.node.op)

    @property
    def inputs(self) -> tuple[GraphTensor, ...]:
        return self.node.inputs

    @property
    def outputs(self) -> list[GraphTensor]:
        return list(self.node.outputs)

    def run(self, feed_dict: Any = None, session: Any = None) -> None:
        """Run it in a session, by default the one whose `with` block this is."""
        session_of(session, f"operation {self.name!r}").run(self, feed_dict)

    def __repr__(self) -> str:
        return f"<tf.Operation {self.name!r} type={self.type}>"


class GraphTensor(KerasTensor):
    """A symbol with a name in a graph: `add:0`."""

    op: GraphOperation

    @property
    def graph(self) -> Any:  # type: ignore[override]
        return self.op.graph

    @property
    def shape(self) -> TensorShape:  # type: ignore[override]
        return TensorShape(self._shape)

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return as_dtype(self._dtype)

    def eval(self, feed_dict: Any = None, session: Any = None) -> Any:
        """Its value in a session, by default the one whose `with` block this is."""
        return session_of(session, f"tensor {self.name!r}").run(self, feed_dict)

    def set_shape(self, shape: Iterable[int | None]) -> None:
        """Say what is known of its shape besides what is inferred."""
        shape = tuple(shape)
        fits = len(shape) == self.ndim and all(
            m == n or None in (m, n) for m, n in zip(self.shape, shape, strict=True)
        )
        if not fits:
            raise ArgumentError(
                f"{self.name}: expected a shape compatible with {self.shape}; "
                f"received {shape}"
            )
        pairs = zip(self.shape, shape, strict=True)
        self._shape = tuple(n if m is None else m for m, n in pairs)

    def __bool__(self) -> bool:
        raise ArgumentTypeError(
            f"{self.name}: a tensor of a graph has no truth value; use tf.cond, or "
            "fetch it with Session.run"
        )

    def __iter__(self) -> Iterator[GraphTensor]:
        if not self.shape or self.shape[0] is None:
            raise ArgumentTypeError(
                f"{self.name}: cannot iterate over a tensor of shape {self.shape}"
            )
        return (self[i] for i in range(self.shape[0]))  # type: ignore[index]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise TraceError(
            f"{self.name}: a tensor of a graph has no value; fetch it with Session.run"
        )

    __float__ = __int__ = __index__ = numpy = __array__

    def __repr__(self) -> str:
        return f"<tf.Tensor {self.name!r} shape={self.shape} dtype={self.dtype}>"

    __str__ = __repr__


class GraphStep(Operation):
    """An operation that only graphs have: it is given symbols and asks for values.

    Args:
        function: (run, *args) -> the value or values; `run` knows those of symbols.
        name: of the type of operation.
        sets: Variables that have a value after it, whether or not they had before.
        asks: Variables that need no value; it asks whether they have one.
        watched: symbols and Variables by which it differentiates.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        sets: tuple[Any, ...] = (),
        asks: tuple[Any, ...] = (),
        watched: tuple[Any, ...] = (),
    ) -> None:
        super().__init__(name)
        self.function, self.watched = function, watched
        self.sets, self.asks = sets, asks


class Graph:
    """Operations and tensors by name, and collections of them.

    Example:
        >>> import toolkit.compat.tensorflow.v1 as tf
        >>> graph = tf.Graph()
        >>> with graph.as_default():
        ...     x = tf.placeholder("float32", (2,), name="x")
        ...     y = x + 1.0
        >>> y.name, graph.get_tensor_by_name("x:0") is x
        ('add:0', True)
    """

    def __init__(self) -> None:
        self.operations: list[GraphOperation] = []
        self.seed: int | None = None
        self.finalized = False
        self.variables: dict[str, Any] = {}  # those of `get_variable`
        self.variable_scope: Any = None
        self._by_name: dict[str, GraphOperation] = {}
        self._used: Counter[str] = Counter()
        self._scope = ""
        self._controls: tuple[GraphOperation, ...] = ()
        self._collections: dict[Any, list[Any]] = defaultdict(list)
        self._name: str | None = None  # asked for by the call that is recorded

    @contextmanager
    def as_default(self) -> Iterator[Graph]:
        """Record in this graph what is called inside."""
        local.graphs.append(self)
        try:
            yield self
        finally:
            local.graphs.remove(self)

    def finalize(self) -> None:
        """Allow no more operations."""
        self.finalized = True

    # --- recording --------------------------------------------------------------------

    def add(self, node: Node) -> GraphOperation:
        """Take a node in; its outputs become tensors of this graph."""
        if self.finalized:
            raise TraceError("Graph is finalized and cannot be modified.")
        wanted, self._name = self._name, None
        for x in node.inputs:
            if x.graph is not self:
                raise ArgumentError(
                    f"{type_of(node.op)}: expected tensors of one graph; received "
                    f"{x!r}, which is none of it"
                )
        name = self.unique_name(wanted or type_of(node.op))
        operation = GraphOperation(self, node, name, self._controls)
        for i, symbol in enumerate(node.outputs):
            if not isinstance(symbol, GraphTensor):
                symbol.__class__ = GraphTensor
            symbol.op, symbol.name = operation, f"{name}:{i}"
        self.operations.append(operation)
        self._by_name[name] = operation
        known = set(map(id, self._collections["variables"]))
        for variable in getattr(node.op, "variables", ()):  # of a layer
            if id(variable) not in known:
                self.add_to_collection("variables", variable)
                if variable.trainable:
                    self.add_to_collection("trainable_variables", variable)
        return operation

    def record(
        self,
        function: Callable[..., Any],
        args: Any,
        kwargs: Any,
        name: str | None = None,
    ) -> Any:
        """Record a call of a function of tensors, though no argument is a symbol."""
        operation = FunctionOperation(function)
        self._name = name
        outputs = operation.compute_output_spec(*args, **kwargs)
        return self.append(operation, args, outputs, kwargs)

    def append(
        self,
        operation: Operation,
        args: tuple[Any, ...],
        outputs: Any,
        kwargs: Any = None,
        name: str | None = None,
        controls: Iterable[GraphOperation] = (),
    ) -> Any:
        """Record the call of an operation whose outputs are known symbols.

        Returns:
            The outputs; without any, the GraphOperation.
        """
        self._name = name or self._name
        arguments = (args, kwargs or {})
        inputs = [x for x in tree.flatten(arguments) if isinstance(x, KerasTensor)]
        symbols = [x for x in tree.flatten(outputs) if isinstance(x, KerasTensor)]
        attrs = {"arguments": arguments, "outputs": outputs}
        recorded = self.add(Node(operation, inputs, attrs, symbols))
        recorded.control_inputs += controls
        return outputs if symbols else recorded

    @contextmanager
    def naming(self, name: str | None) -> Iterator[None]:
        """Give the next operation a name."""
        self._name = name
        try:
            yield
        finally:
            self._name = None

    # --- names ------------------------------------------------------------------------

    def unique_name(self, name: str) -> str:
        """`name` under the open scopes, with a number if it is taken."""
        if name.endswith("/"):
            return name[:-1]
        path = self._scope + name
        count = self._used[path.lower()]
        self._used[path.lower()] += 1
        while count:
            numbered = f"{path}_{count}"
            if not self._used[numbered.lower()]:
                self._used[numbered.lower()] += 1
                return numbered
            count += 1
            self._used[path.lower()] += 1
        return path

    @contextmanager
    def name_scope(self, name: str | None) -> Iterator[str]:
        """Put a name in front of those inside; "a/" opens the scope `a` once more."""
        if name and not _SCOPE.match(name):
            raise ArgumentError(f"{name!r} is not a valid scope name")
        outer = self._scope
        self._scope = f"{self.unique_name(name)}/" if name else ""
        try:
            yield self._scope
        finally:
            self._scope = outer

    @contextmanager
    def control_dependencies(self, control_inputs: Any) -> Iterator[None]:
        """Run what is given before whatever is recorded inside; None for nothing."""
        outer = self._controls
        given = [] if control_inputs is None else list(control_inputs)
        known = () if control_inputs is None else outer
        self._controls = (*known, *(operation_of(x, self) for x in given))
        try:
            yield
        finally:
            self._controls = outer

    def get_operations(self) -> list[GraphOperation]:
        """All operations, in the order in which they were made."""
        return list(self.operations)

    def get_operation_by_name(self, name: str) -> GraphOperation:
        """The operation of this name."""
        if name not in self._by_name:
            raise MissingKeyError(
                f"The name {name!r} refers to an Operation not in the graph."
            )
        return self._by_name[name]

    def get_tensor_by_name(self, name: str) -> GraphTensor:
        """The tensor of this name, such as "add:0"."""
        operation, colon, index = name.partition(":")
        if not colon or not index.isdigit():
            raise ArgumentError(
                f"The name {name!r} is no name of a Tensor, which is of the form "
                '"<op_name>:<output_index>"'
            )
        found = self._by_name.get(operation)
        if found is None or int(index) >= len(found.node.outputs):
            raise MissingKeyError(
                f"The name {name!r} refers to a Tensor which does not exist."
            )
        return found.outputs[int(index)]

    def as_graph_element(self, obj: Any) -> Any:
        """The tensor or operation that is meant by a name; they mean themselves."""
        if not isinstance(obj, str):
            return obj
        by_name = self.get_tensor_by_name if ":" in obj else self.get_operation_by_name
        return by_name(obj)

    # --- collections ------------------------------------------------------------------

    def add_to_collection(self, name: Any, value: Any) -> None:
        """Put a value at the end of a collection."""
        self._collections[name].append(value)

    def add_to_collections(self, names: Any, value: Any) -> None:
        """Put a value into several collections."""
        for name in dict.fromkeys((names,) if isinstance(names, str) else names or ()):
            self.add_to_collection(name, value)

    def get_collection(self, name: Any, scope: str | None = None) -> list[Any]:
        """The values of a collection; with `scope`, those whose name it matches."""
        values = self._collections.get(name, ())
        if scope is None:
            return list(values)
        return [x for x in values if re.match(scope, getattr(x, "name", "\n"))]

    def get_collection_ref(self, name: Any) -> list[Any]:
        """The collection itself: what is done to the list is done to it."""
        return self._collections[name]

    def get_all_collection_keys(self) -> list[Any]:
        """The names of the collections that are not empty."""
        return [name for name, values in self._collections.items() if values]

    def clear_collection(self, name: Any) -> None:
        """Empty a collection."""
        self._collections.pop(name, None)


_default = Graph()


def get_default_graph() -> Graph:
    """The graph of the innermost `with graph.as_default()`, or that of the process."""
    return local.graphs[-1] if local.graphs else _default


def reset_default_graph() -> None:
    """Begin a new default graph.

    Raises:
        TraceError: inside of `with graph.as_default()`.
    """
    global _default
    if local.graphs:
        raise TraceError(
            "reset_default_graph: do not use it to clear nested graphs; make a new "
            "Graph instead"
        )
    _default = Graph()


def session_of(given: Any, what: str) -> Any:
    """The session that is given, or else the default one, for a method of `what`."""
    if given is None and not local.sessions:
        raise ArgumentError(
            f"{what}: cannot run without a session; use `with session:` or pass one "
            "as `session`"
        )
    return given or local.sessions[-1]


def operation_of(x: Any, graph: Graph) -> GraphOperation:
    """The operation that a tensor comes from; operations mean themselves."""
    x = graph.as_graph_element(x)
    if isinstance(x, GraphOperation):
        return x
    if isinstance(x, GraphTensor):
        return x.op
    raise ArgumentTypeError(
        f"expected a tensor or an operation of a graph; received {x!r}"
    )
