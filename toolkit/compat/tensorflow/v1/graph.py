"""Graphs of TensorFlow 1: named operations on symbolic tensors, recorded for a run.

A tensor of a graph is a KerasTensor, so that every function and every layer accepts it
and records its call as a node. The graph gives the node a name and an index, and keeps
the order. A Session replays the nodes for its fetches.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from toolkit import tree
from toolkit.compat.tensorflow.modes import building_graph, local
from toolkit.compat.tensorflow.tensor_classes import DIALECT
from toolkit.compat.tensorflow.v1.operation_types import operation_kind, operation_type
from toolkit.compat.tensorflow.v1.placement import Place, parse, resolve_device
from toolkit.compat.tensorflow.v1.shape_inference import Extents, Trial
from toolkit.compat.tensorflow.v1.tensors import (
    GraphExtents,
    GraphOperation,
    GraphTensor,
    operation_of,
)
from toolkit.core import tensor as core
from toolkit.core.dialects import change_class
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
        self.variables: dict[str, Any] = {}  # from `get_variable`
        self.variable_scope: Any = None
        self._by_name: dict[str, GraphOperation] = {}
        self._used: Counter[str] = Counter()
        self._scope = ""
        self._controls: tuple[GraphOperation, ...] = ()
        self._collections: dict[Any, list[Any]] = defaultdict(list)
        self._name: str | None = None  # argument `name` of the recorded call
        self._devices: list[Any] = []  # scopes, see `placement`

    @contextmanager
    def as_default(self) -> Iterator[Graph]:
        """Record the operations inside in this graph."""
        local.graphs.append(self)
        try:
            yield self
        finally:
            local.graphs.remove(self)

    def finalize(self) -> None:
        """Forbid new operations."""
        self.finalized = True

    # --- recording --------------------------------------------------------------------

    def add(self, node: Node) -> GraphOperation:
        """Add a node; its outputs become tensors of this graph."""
        if self.finalized:
            raise TraceError("Graph is finalized and cannot be modified.")
        requested_name, self._name = self._name, None
        for x in node.inputs:
            if x.graph is not self:
                raise ArgumentError(
                    f"{operation_type(node.op)}: expected tensors of one graph; "
                    f"received {x!r} of another graph"
                )
        name = self.unique_name(requested_name or operation_type(node.op))
        operation = GraphOperation(self, node, name, self._controls)
        for i, symbol in enumerate(node.outputs):
            if not isinstance(symbol, GraphTensor):
                is_extents = isinstance(symbol, Extents)
                change_class(symbol, GraphExtents if is_extents else GraphTensor)
            symbol.op, symbol.name = operation, f"{name}:{i}"
        operation.device = resolve_device(operation, self._devices, operation.device)
        self.operations.append(operation)
        self._by_name[name] = operation
        if weights := getattr(node.op, "variables", ()):  # of a layer
            self._collect(weights)
        return operation

    def _collect(self, weights: Iterable[Any]) -> None:
        """Add the Variables of a layer to the collections, once."""
        existing = set(self._collections["variables"])
        for v in weights:
            if v not in existing:
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
        """Record a call of a function, even if no argument is symbolic.

        Args:
            function: can call function arguments, which can use tensors of the graph.
            args, kwargs: its arguments.
            name: of the operation; generated from its type if None.
            kind: the type of operation; generated from the function's name if None.
        """
        trial = Trial(function, args, kwargs)
        with DIALECT.activate():
            outputs = infer_op(trial, args, kwargs)
        outputs = tree.map_structure(trial.symbol, outputs)
        if not any(isinstance(y, KerasTensor) for y in tree.flatten(outputs)):
            return outputs
        operation: Any = FunctionOperation(function)
        operation.kind = kind or operation_kind(function.__name__)
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
        """Record the call of an operation with existing output symbols.

        `used` are further tensors that it reads.

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
        """Return `name` in the open scopes, with a number if it is in use."""
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
        """Prefix the names inside with a name; "a/" opens the scope `a` again."""
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
        """Run the given operations before the operations inside; None for no
        dependency."""
        outer = self._controls
        controls = [] if control_inputs is None else list(control_inputs)
        inherited = () if control_inputs is None else outer
        self._controls = (*inherited, *(operation_of(x, self) for x in controls))
        try:
            yield
        finally:
            self._controls = outer

    @contextmanager
    def device(self, name_or_function: Any) -> Iterator[None]:
        """Set the device of the operations inside.

        Args:
            name_or_function: a device, "cpu:0"; a task, "/job:ps/task:0", with or
                without a
                device; a function from an operation to such a name; or None, which
                    cancels
                the enclosing scopes.

        Raises:
            DeviceError: if the name is invalid, or this process does not have the
                device.
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
        """Set the device of the operations inside to the device of another
        operation."""
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
        """Return all operations, in the order of creation."""
        return list(self.operations)

    def get_operation_by_name(self, name: str) -> GraphOperation:
        """Return the operation with this name."""
        if name not in self._by_name:
            raise MissingKeyError(
                f"The name {name!r} refers to an Operation not in the graph."
            )
        return self._by_name[name]

    def get_tensor_by_name(self, name: str) -> GraphTensor:
        """Return the tensor with this name, such as "add:0"."""
        operation, colon, index = name.partition(":")
        if not colon or not index.isdigit():
            raise ArgumentError(
                f"The name {name!r} is no name of a Tensor, which is of the form "
                '"<op_name>:<output_index>"'
            )
        operation_node = self._by_name.get(operation)
        if operation_node is None or int(index) >= len(operation_node.node.outputs):
            raise MissingKeyError(
                f"The name {name!r} refers to a Tensor which does not exist."
            )
        return operation_node.outputs[int(index)]

    def as_graph_element(self, obj: Any) -> Any:
        """Return the tensor or operation for a name, or for itself."""
        if not isinstance(obj, str):
            return obj
        by_name = self.get_tensor_by_name if ":" in obj else self.get_operation_by_name
        return by_name(obj)

    # --- collections ------------------------------------------------------------------

    def add_to_collection(self, name: Any, value: Any) -> None:
        """Append a value to a collection."""
        self._collections[name].append(value)

    def add_to_collections(self, names: Any, value: Any) -> None:
        """Append a value to several collections."""
        for name in dict.fromkeys((names,) if isinstance(names, str) else names or ()):
            self.add_to_collection(name, value)

    def get_collection(self, name: Any, scope: str | None = None) -> list[Any]:
        """Return the values of a collection; with `scope`, only those with a matching
        name."""
        values = self._collections.get(name, ())
        if scope is None:
            return list(values)
        return [x for x in values if re.match(scope, getattr(x, "name", "\n"))]

    def get_collection_ref(self, name: Any) -> list[Any]:
        """Return the collection; changes of the list change the collection."""
        return self._collections[name]

    def get_all_collection_keys(self) -> list[Any]:
        """Return the names of the collections that are not empty."""
        return [name for name, values in self._collections.items() if values]

    def clear_collection(self, name: Any) -> None:
        """Clear a collection."""
        self._collections.pop(name, None)


_default = Graph()


def get_default_graph() -> Graph:
    """Return the graph of the innermost `with graph.as_default()`, or of the
    process."""
    return local.graphs[-1] if local.graphs else _default


def reset_default_graph() -> None:
    """Create a new default graph.

    Raises:
        TraceError: inside `with graph.as_default()`.
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
    """Call a function of tensors: recorded if a graph is active, else eagerly."""
    if not building_graph():
        return function(*args)
    return get_default_graph().record(function, args, {}, name)
