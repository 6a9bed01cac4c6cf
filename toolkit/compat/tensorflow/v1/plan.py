"""Plans: the operations for a set of fetches, replayed as one compiled function."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from toolkit import dtypes, tree
from toolkit.autodiff.tape import GradientTape, alias
from toolkit.compat.tensorflow.modes import set_run
from toolkit.compat.tensorflow.tensor_classes import Function, convert
from toolkit.compat.tensorflow.v1.placement import parse
from toolkit.compat.tensorflow.v1.seeds import GraphSeed
from toolkit.compat.tensorflow.v1.shape_inference import (
    Extents,
    are_extents,
    evaluate_on_extents,
)
from toolkit.compat.tensorflow.v1.tensors import GraphOperation, GraphStep, GraphTensor
from toolkit.compat.tensorflow.v1.variables import GraphVariable
from toolkit.core.convert import is_strings
from toolkit.core.keras_tensor import KerasTensor
from toolkit.core.tensor import Tensor, backend, device
from toolkit.core.variable import Variable
from toolkit.errors import (
    ArgumentError,
    ArgumentTypeError,
    DTypeError,
    NotBuiltError,
    ShapeError,
    TraceError,
)
from toolkit.ir import Node
from toolkit.type_aliases import TensorLike


class FailedPreconditionError(NotBuiltError, RuntimeError):
    """Error of a read of a Variable that has no value in the session."""


class Plan:
    """The operations for a set of fetches, in order, as one function of the feeds."""

    session: Any
    fetches: list[Any]
    pack: Callable[[list[Any]], Any]

    def __init__(
        self,
        session: Any,
        fetches: list[Any],
        feeds: list[GraphTensor],
        pack: Callable[[list[Any]], Any],
    ) -> None:
        self.session, self.fetches, self.pack = session, fetches, pack
        fed = set(feeds)
        self.operations: list[GraphOperation] = required_operations(fetches, fed)
        self.sources: list[GraphOperation] = self._operations_with("source")
        self.sinks: list[GraphOperation] = self._operations_with("sink")
        source_outputs = [y for op in self.sources for y in op.outputs]
        self._is_source_used = [y not in fed for y in source_outputs]
        self.feeds: list[GraphTensor] = [
            *feeds,
            *(y for y in source_outputs if y not in fed),
        ]
        steps = [op.node.op for op in self.operations]
        steps = [step for step in steps if isinstance(step, GraphStep)]
        self.sets: set[Any] = {v for step in steps for v in step.sets}
        watched = (x for step in steps for x in step.watched)
        self.watched: dict[Any, None] = dict.fromkeys(watched)
        self.arguments: list[tuple[Any, Any, tuple[Any, ...]]] = [
            (x, dtypes.numpy_dtype(x.dtype), tuple(x.shape)) for x in self.feeds
        ]
        self._check_feeds()
        self._check_places()
        self._ready = False
        self._compiles = all(step.compiles for step in steps)
        self._compute: Any = (
            Function(self.session_run) if self._compiles else self.session_run
        )

    def _operations_with(self, attribute: str) -> list[GraphOperation]:
        """Return the operations whose step has a part, for example a `source`."""
        return [op for op in self.operations if _step(op, attribute)]

    def __call__(self, values: Any) -> Any:
        if not self._ready:
            self._check_variables()
        results = self._results(self.fed(values))
        if not self._ready:
            self.session.initialized |= self.sets
            self._ready = True
        arrays = [
            None if x is None else _as_array(x, not self._compiles) for x in results
        ]
        if self.sinks:
            self._call_sinks(arrays[len(self.fetches) :])
        return self.pack(arrays[: len(self.fetches)])

    def fed(self, values: Any) -> list[Tensor]:
        """Return the feeds, and the values of sources, as validated tensors."""
        if self.sources:
            values = [*values, *self._draw()]
        pairs = zip(self.arguments, values, strict=True)
        return [_validate_feed(*argument, x) for argument, x in pairs]

    def _results(self, fed: list[Tensor]) -> list[Any]:
        """Return the values of the fetches, and of the sinks."""
        if self._compiles:
            try:
                return self._compute(*fed)
            except TraceError:
                if self._ready:
                    raise
                # An operation needs concrete values: no program can contain it.
                self._compiles, self._compute = False, self.session_run
        # Without a program, nothing else copies the feeds.
        return self._compute(*(convert(np.array(x)) for x in fed))

    def _draw(self) -> list[Any]:
        """Return the values of the sources that are not fed."""
        source_values = [
            x for op in self.sources for x in op.node.op.source(self.session)
        ]
        return [
            x
            for x, is_used in zip(source_values, self._is_source_used, strict=True)
            if is_used
        ]

    def _call_sinks(self, values: list[Any]) -> None:
        """Call the sinks with their values."""
        remaining = iter(values)
        for op in self.sinks:
            by_symbol: dict[Any, Any] = {x: next(remaining) for x in op.inputs}
            args = op.node.attrs["arguments"][0]
            leaves = [
                by_symbol[x] if isinstance(x, KerasTensor) else x
                for x in tree.flatten(args)
            ]
            op.node.op.sink(*tree.pack_sequence_as(args, leaves))

    def _check_feeds(self) -> None:
        for operation in self.operations:
            if operation.type == "Placeholder":
                x = operation.outputs[0]
                raise ArgumentError(
                    "You must feed a value for placeholder tensor "
                    f"{operation.name!r} with dtype {x.dtype} and shape {x.shape}"
                )

    def _check_places(self) -> None:
        """Raise if an operation is placed on a task of a cluster."""
        for operation in self.operations:
            if operation.device is not None and parse(operation.device).is_remote:
                raise ArgumentError(
                    f"Cannot assign a device for operation {operation.name}: it is "
                    f"placed on {operation.device}, but this session runs only in "
                    "its own process; use Session(server.target)"
                )

    def _check_variables(self) -> None:
        """Raise if a Variable is read before its initialization."""
        initialized = self.session.initialized | {
            x for x in self.feeds if isinstance(x, GraphVariable)
        }
        for operation in self.operations:
            step = operation.node.op
            checked: tuple[Any, ...] = ()
            if isinstance(step, GraphStep):
                initialized, checked = initialized.union(step.sets), step.asks
            _check_known(
                operation.node.inputs, initialized.union(checked), operation.name
            )
        _check_known(self.fetches, initialized, "Session.run")

    def session_run(self, *fed: Tensor) -> list[Any]:
        """Run all operations: in Python, or in a trace for compilation."""
        run = Run(self, fed)
        with set_run(run):
            return run.results()


class Run:
    """One replay: the values of symbols, in the order of computation."""

    plan: Plan
    session: Any

    def __init__(self, plan: Plan, fed: tuple[Tensor, ...]) -> None:
        self.plan, self.session = plan, plan.session
        self.symbol_values: dict[Any, Any] = {}
        self._sink_values: list[Any] = []  # values of the sinks
        self.tape: Any = None
        self.watched: set[Any] = set(plan.watched)
        if plan.watched:
            self.tape = GradientTape(True, watch_accessed_variables=False)
        for symbol, value in zip(plan.feeds, fed, strict=True):
            self.store_value(symbol, value)

    def results(self) -> list[Any]:
        """Run all operations; return the values of the fetches."""
        if self.tape is None:
            return self._results()
        with self.tape:
            self.tape.watch(
                [
                    self.session.cell(x)
                    for x in self.plan.watched
                    if isinstance(x, (GraphVariable, Variable))
                    and x not in self.symbol_values
                ]
            )
            return self._results()

    def _results(self) -> list[Any]:
        # A fetched Variable has its value from before the run.
        early = {
            x: self.value(x)
            for x in self.plan.fetches
            if isinstance(x, GraphVariable) and x not in self.plan.sets
        }
        for operation in self.plan.operations:
            self.perform(operation)
        results = [early[x] if x in early else self.value(x) for x in self.plan.fetches]
        return [
            x if x is None or is_strings(x) else convert(x)
            for x in (*results, *self._sink_values)
        ]

    def perform(self, operation: GraphOperation) -> None:
        """Run one operation on its device."""
        with self.on(operation.device):
            self._perform(operation)

    def _perform(self, operation: GraphOperation) -> None:
        node = operation.node
        if _step(operation, "sink"):
            self._sink_values += map(self.value, node.inputs)
        if _step(operation, "source"):
            return
        args, kwargs = node.attrs["arguments"]
        if isinstance(node.op, GraphStep):
            outputs = node.op.function(self, *args, **kwargs)
        else:
            outputs = self._call(node)
        symbols = tree.flatten(node.attrs["outputs"])
        for symbol, value in zip(symbols, tree.flatten(outputs), strict=True):
            if isinstance(symbol, KerasTensor):
                self.store_value(symbol, value)

    def _call(self, node: Node) -> Any:
        nest = self.values(node.attrs["arguments"])
        has_extents = all(isinstance(y, Extents) for y in node.outputs)
        if has_extents and are_extents(map(self.value, node.inputs)):
            return evaluate_on_extents(node.op, nest)
        return node.op(*nest[0], **nest[1])

    def store_value(self, symbol: Any, value: Any) -> None:
        """Store the value of a symbol."""
        if symbol in self.watched and dtypes.is_float(value.dtype):
            value = alias(value)  # several symbols can share a value
            self.tape.watch(value)
        self.symbol_values.setdefault(symbol, value)

    def value(self, x: TensorLike) -> Any:
        """Return the value of a symbol, or the current value of a Variable."""
        if isinstance(x, KerasTensor):
            if x not in self.symbol_values and isinstance(x, GraphVariable):
                return self.session.cell(x).read()
            return self.symbol_values[x]
        if isinstance(x, GraphSeed):
            return self.session.generator(x)
        if isinstance(x, GraphOperation):
            return None
        return x

    def values(self, nest: Any) -> Any:
        """Return a nest with the `value` of each leaf."""
        return tree.map_structure(self.value, nest)

    def cell(self, variable: Any) -> Variable:
        """Return the cell of a Variable in the session."""
        return self.session.cell(variable)

    def at(self, variable: Any) -> AbstractContextManager[None]:
        """Return a device context for updates of a Variable."""
        where = variable.device if isinstance(variable, GraphVariable) else None
        return self.on(where)

    def on(self, where: str | None) -> AbstractContextManager[None]:
        """Return a device context for computations inside; None: any device."""
        return nullcontext() if where is None else device(where)

    def is_initialized(self, variable: Any) -> bool:
        """Return whether a Variable had a value before the run."""
        return variable in self.session.initialized


def _step(operation: GraphOperation, name: str) -> Any:
    """Return an attribute of a step; None for other operations."""
    return getattr(operation.node.op, name, None)


def required_operations(fetches: list[Any], fed: set[Any]) -> list[GraphOperation]:
    """Return the operations for the fetches with some values fed, in order."""
    operations: dict[GraphOperation, None] = {}
    stack = list(fetches)
    while stack:
        x = stack.pop()
        if isinstance(x, (GraphVariable, Tensor, Variable)) or x in fed:
            continue
        operation = x.op if isinstance(x, GraphTensor) else x
        if operation not in operations:
            operations[operation] = None
            stack += operation.control_inputs
            stack += operation.inputs
    return sorted(operations, key=lambda operation: operation.number)


def _check_known(symbols: Any, available: set[Any], message: str) -> None:
    for x in symbols:
        if isinstance(x, GraphVariable) and x not in available:
            raise FailedPreconditionError(
                f"{message}: Attempting to use uninitialized value {x.path} (variable "
                f"{x.name}); run its initializer or tf.global_variables_initializer() "
                "in this session first"
            )


def _validate_feed(
    symbol: Any, dtype: Any, shape: tuple[Any, ...], value: object
) -> Tensor:
    """Return a validated feed as a tensor of the symbol's dtype."""
    if isinstance(value, KerasTensor):
        raise ArgumentTypeError(
            f"{symbol.name}: the value of a feed cannot be a tensor of a graph; "
            f"received {value!r}"
        )
    try:
        array_like = value if type(value) is np.ndarray else np.asarray(value)
        array = array_like if array_like.dtype == dtype else array_like.astype(dtype)
    except (ValueError, TypeError) as error:
        raise DTypeError(
            f"Cannot feed {value!r} for Tensor {symbol.name}, which has dtype "
            f"{symbol.dtype}: {error}"
        ) from None
    if (
        array is not array_like
        and dtype.kind in "iub"
        and not (array == array_like).all()
    ):
        raise DTypeError(
            f"Cannot feed values of dtype {array_like.dtype} for Tensor {symbol.name}, "
            f"which has dtype {symbol.dtype}: they would change"
        )
    shape_received = array.shape
    if (
        shape_received != shape
        and not symbol.any_shape
        and (
            len(shape_received) != len(shape)
            or any(
                m not in (None, n) for m, n in zip(shape, shape_received, strict=True)
            )
        )
    ):
        raise ShapeError(
            f"Cannot feed value of shape {shape_received} for Tensor {symbol.name}, "
            f"which has shape {shape}"
        )
    return Tensor(
        backend().memory.asarray(
            np.ascontiguousarray(array) if array.ndim else array, None
        )
    )


def _as_array(x: Any, copy: bool) -> Any:
    """Return the value as a separate array, or a 0-d one as a scalar."""
    array = np.array(x) if copy else x.constant
    return array if array.ndim else array[()]
