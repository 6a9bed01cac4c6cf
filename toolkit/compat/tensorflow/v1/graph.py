"""Graphs as TensorFlow 1 has them: named operations on symbols, recorded to be run.

A tensor of a graph is a KerasTensor, so every function and every layer takes it and
records its call as a node. The graph gives the node a name and a number, and keeps the
order; a Session replays the nodes that its fetches need.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from toolkit import tree
from toolkit.compat.tensorflow.modes import building_graph, local
from toolkit.compat.tensorflow.v1.names import kind_of, type_of
from toolkit.compat.tensorflow.v1.places import Place, parse, placed
from toolkit.compat.tensorflow.v1.tensors import (
    GraphExtents,
    GraphOperation,
    GraphTensor,
    operation_of,
)
from toolkit.compat.tensorflow.v1.trial import Extents, Trial
from toolkit.compat.tensorflow.views import DIALECT
from toolkit.core import tensor as core
from toolkit.core.keras_tensor import KerasTensor
from toolkit.errors import (
    ArgumentError,
    MissingKeyError,
    TraceError,
)
from toolkit.ir import Node
from toolkit.ops.symbolic import FunctionOperation, Operation, infer_op

_SCOPE = re.compile(r"[A-Za-z0-9.][\w.\\/>-]*$")


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
        self.finalized: bool = False
        self.variables: dict[str, Any] = {}  # those of `get_variable`
        self.variable_scope: Any = None
        self._by_name: dict[str, GraphOperation] = {}
        self._used: Counter[str] = Counter()
        self._scope = ""
        self._controls: tuple[GraphOperation, ...] = ()
        self._collections: dict[Any, list[Any]] = defaultdict(list)
        self._name: str | None = None  # asked for by the call that is recorded
        self._devices: list[Any] = []  # scopes, see `places`

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
                is_extents = isinstance(symbol, Extents)
                symbol.__class__ = GraphExtents if is_extents else GraphTensor
            symbol.op, symbol.name = operation, f"{name}:{i}"
        operation.device = placed(operation, self._devices, operation.device)
        self.operations.append(operation)
        self._by_name[name] = operation
        if weights := getattr(node.op, "variables", ()):  # of a layer
            self._collect(weights)
        return operation

    def _collect(self, weights: Iterable[Any]) -> None:
        """Put the Variables of a layer into the collections, once."""
        known = set(self._collections["variables"])
        for v in weights:
            if v not in known:
                self.add_to_collection("variables", v)
                if v.trainable:
                    self.add_to_collection("trainable_variables", v)

    def record(
        self,
        function: Callable[..., Any],
        args: Any,
        kwargs: Any,
        name: str | None = None,
        kind: str | None = None,
    ) -> Any:
        """Record a call of a function of tensors, though no argument is a symbol.

        Args:
            function: may call others among its arguments, which may use tensors of the
                graph.
            args, kwargs: its arguments.
            name: of the operation; made up from its type if None.
            kind: the type of operation; by default made up from the function's name.
        """
        trial = Trial(function, args, kwargs)
        with DIALECT.inside():
            outputs = infer_op(trial, args, kwargs)
        outputs = tree.map_structure(trial.symbol, outputs)
        if not any(isinstance(y, KerasTensor) for y in tree.flatten(outputs)):
            return outputs
        operation: Any = FunctionOperation(function)
        operation.kind = kind or kind_of(function.__name__)
        return self.append(operation, args, outputs, kwargs, name, used=trial.used)

    def append(
        self,
        operation: Operation,
        args: tuple[Any, ...],
        outputs: Any,
        kwargs: Any = None,
        name: str | None = None,
        controls: Iterable[GraphOperation] = (),
        used: Iterable[GraphTensor] = (),
    ) -> Any:
        """Record the call of an operation whose outputs are known symbols.

        `used` are tensors that it reads besides its arguments.

        Returns:
            The outputs; without any, the GraphOperation.
        """
        self._name = name or self._name
        arguments = (args, kwargs or {})
        inputs = [x for x in tree.flatten(arguments) if isinstance(x, KerasTensor)]
        symbols = [x for x in tree.flatten(outputs) if isinstance(x, KerasTensor)]
        attrs = {"arguments": arguments, "outputs": outputs}
        recorded = self.add(Node(operation, [*inputs, *used], attrs, symbols))
        recorded.control_inputs += controls
        return outputs if symbols else recorded

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

    @contextmanager
    def device(self, name_or_function: Any) -> Iterator[None]:
        """Place operations that are made inside.

        Args:
            name_or_function: a device, "cpu:0"; a task, "/job:ps/task:0", with or
                without one; a function from an operation to such a name; or None: what
                scopes around it say does not hold inside.

        Raises:
            DeviceError: if it is no name, or a device that this process lacks.
        """
        scope = name_or_function
        if scope is not None and not callable(scope):
            scope = parse(scope)
        with ExitStack() as stack:
            if isinstance(scope, Place) and scope.device and not scope.is_remote:
                stack.enter_context(core.device(scope.device))
            self._devices.append(scope)
            try:
                yield
            finally:
                self._devices.pop()

    @contextmanager
    def colocate_with(self, op: Any) -> Iterator[None]:
        """Place operations that are made inside where another one is placed."""
        where = operation_of(op, self).device
        if where is None:
            yield
            return
        outer, self._devices = self._devices, [None, parse(where)]
        try:
            yield
        finally:
            self._devices = outer

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


def record(
    function: Callable[..., Any], args: tuple[Any, ...], name: str | None = None
) -> Any:
    """Call a function of tensors: recorded where a graph is built, else at once."""
    if not building_graph():
        return function(*args)
    return get_default_graph().record(function, args, {}, name)
