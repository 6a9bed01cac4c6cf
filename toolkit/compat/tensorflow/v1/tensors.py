"""Parts of graphs: tensors, operations, and steps that exist only in graphs."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from toolkit import tree
from toolkit.compat.tensorflow.modes import local
from toolkit.compat.tensorflow.tensor_classes import DIALECT
from toolkit.compat.tensorflow.types import DType, TensorShape, as_dtype
from toolkit.compat.tensorflow.v1.operation_types import operation_type
from toolkit.compat.tensorflow.v1.shape_inference import Extents
from toolkit.core.keras_tensor import KerasTensor, set_shape
from toolkit.core.tensor import state
from toolkit.errors import ArgumentError, ArgumentTypeError, TraceError
from toolkit.ir import Node
from toolkit.ops.symbolic import Operation
from toolkit.type_aliases import DTypeLike, TensorLike

if TYPE_CHECKING:
    from toolkit.compat.tensorflow.v1.graph import Graph


class GraphOperation:
    """A node of a graph: its name, and the operations that must run before it.

    Args:
        graph: its graph.
        node: the recorded node.
        name: unique in the graph.
        controls: operations that run before it, although it does not read their
            results.
    """

    graph: Graph
    name: str
    node: Node

    __slots__ = ("control_inputs", "device", "graph", "name", "node", "number")

    def __init__(
        self, graph: Graph, node: Node, name: str, controls: tuple[GraphOperation, ...]
    ) -> None:
        self.graph, self.node, self.name = graph, node, name
        self.control_inputs: list[GraphOperation] = list(controls)
        self.number: int = len(graph.operations)
        # From the process's scopes; the graph also applies its device scopes.
        self.device: str | None = state.device

    @property
    def type(self) -> str:
        """Return its operation type, such as "MatMul"."""
        return operation_type(self.node.op)

    @property
    def inputs(self) -> tuple[GraphTensor, ...]:
        return self.node.inputs

    @property
    def outputs(self) -> list[GraphTensor]:
        return list(self.node.outputs)

    def run(self, feed_dict: Any = None, session: Any = None) -> None:
        """Run it in a session, by default the session of the current `with` block."""
        session_of(session, f"operation {self.name!r}").run(self, feed_dict)

    def __repr__(self) -> str:
        return f"<tf.Operation {self.name!r} type={self.type}>"


class GraphTensor(KerasTensor):
    """A symbolic tensor with a name in a graph: `add:0`."""

    dialect = DIALECT
    op: GraphOperation
    any_shape: bool = False  # whether a feed can have any shape

    @property
    def graph(self) -> Any:
        return self.op.graph

    @property
    def device(self) -> str | None:
        """Return the device of its operation; None: any."""
        return self.op.device

    @property
    def shape(self) -> TensorShape:
        return TensorShape(super().shape)

    @property
    def dtype(self) -> DType:
        return as_dtype(super().dtype)

    @property
    def value(self) -> Any:
        """Return its value in a running session, for functions that run calls.

        Raises:
            AttributeError: outside of a run.
        """
        if local.run is None:
            raise AttributeError(f"{self.name}: use Session.run to get the value")
        return local.run.value(self)

    def eval(self, feed_dict: Any = None, session: Any = None) -> Any:
        """Return its value in a session, by default the session of the current `with`
        block."""
        return session_of(session, f"tensor {self.name!r}").run(self, feed_dict)

    def get_shape(self) -> TensorShape:
        """Return the extents, None if dynamic."""
        return self.shape

    def set_shape(self, shape: Iterable[int | None]) -> None:
        """Set static extents that are not inferred."""
        shape = tuple(shape)
        if self.any_shape:
            set_shape(self, shape)
            self.any_shape = False
            return
        fits = len(shape) == self.ndim and all(
            m == n or None in (m, n) for m, n in zip(self.shape, shape, strict=True)
        )
        if not fits:
            raise ArgumentError(
                f"{self.name}: expected a shape compatible with {self.shape}; "
                f"received {shape}"
            )
        pairs = zip(self.shape, shape, strict=True)
        set_shape(self, tuple(n if m is None else m for m, n in pairs))

    def __len__(self) -> int:
        raise ArgumentTypeError(
            f"{self.name}: len() of a tensor of a graph; use .shape"
        )

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
        rows: Any = self
        return (rows[i] for i in range(self.shape[0]))

    def __array__(
        self, dtype: DTypeLike | None = None, copy: bool | None = None
    ) -> NoReturn:
        raise TraceError(
            f"{self.name}: a tensor of a graph has no value; fetch it with Session.run"
        )

    __float__ = __int__ = __index__ = __array__
    numpy: Any = __array__

    def __repr__(self) -> str:
        return f"<tf.Tensor {self.name!r} shape={self.shape} dtype={self.dtype}>"

    __str__ = __repr__


class GraphExtents(GraphTensor, Extents):
    """Integers that depend only on shapes: static when a run is compiled.

    They can be used as shapes, and so can values that are computed only from them.
    """


def _on_extents(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return the operator as a function of arrays, or of tensors if other symbols
    occur."""
    of_tensors = getattr(KerasTensor, name)

    def method(self: Any, *operands: Any) -> Any:
        values = [x for x in tree.flatten(operands) if not isinstance(x, (int, slice))]
        if local.run is not None or not all(isinstance(x, Extents) for x in values):
            return of_tensors(self, *operands)
        arguments = (*operands, self) if name.startswith("__r") else (self, *operands)
        return self.graph.record(function, arguments, {})

    return method


for _name in ("add", "sub", "mul", "floordiv", "mod", "getitem", "neg"):
    _function = getattr(operator, _name)
    setattr(GraphExtents, f"__{_name}__", _on_extents(_function, f"__{_name}__"))
    if _name not in ("getitem", "neg"):
        setattr(GraphExtents, f"__r{_name}__", _on_extents(_function, f"__r{_name}__"))


class GraphStep(Operation):
    """An operation that exists only in graphs: its function reads symbols from the run.

    Args:
        function: (run, *args) -> the value or values; `run` has the values of symbols.
        name: of the type of operation.
        sets: Variables that have a value after it.
        asks: Variables whose initialization it checks; they need no value.
        watched: symbols and Variables for its derivatives.
        source: session -> the outputs, called before each run.
        sink: called with the arguments after each run, with arrays for symbols.
        compiles: whether a program can contain it; if not, the whole run is not
            compiled.
    """

    function: Callable[..., Any]
    kind: str
    watched: tuple[Any, ...]
    sets: tuple[Any, ...]
    asks: tuple[Any, ...]
    source: Callable[..., Any] | None
    sink: Callable[..., Any] | None
    # A Variable, and related Variables: a run on a cluster ends when the related values
    # exceed the first value that the run read.
    awaits: tuple[Any, ...] = ()

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        sets: tuple[Any, ...] = (),
        asks: tuple[Any, ...] = (),
        watched: tuple[Any, ...] = (),
        source: Callable[[Any], list[Any]] | None = None,
        sink: Callable[..., None] | None = None,
        compiles: bool = True,
    ) -> None:
        super().__init__(name)
        self.function, self.kind, self.watched = function, name, watched
        self.sets, self.asks = sets, asks
        self.source, self.sink = source, sink
        self.compiles = compiles


def session_of(session: Any, method: str) -> Any:
    """Return the given session, or the default one; `what` names the method in
    errors."""
    if session is None and not local.sessions:
        raise ArgumentError(
            f"{method}: cannot run without a session; use `with session:` or pass one "
            "as `session`"
        )
    return session or local.sessions[-1]


def operation_of(x: TensorLike, graph: Graph) -> GraphOperation:
    """Return the operation of a tensor, or an operation itself."""
    x = graph.as_graph_element(x)
    if isinstance(x, GraphOperation):
        return x
    if isinstance(x, GraphTensor):
        return x.op
    raise ArgumentTypeError(
        f"expected a tensor or an operation of a graph; received {x!r}"
    )
