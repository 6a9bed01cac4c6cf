"""Calls in Python before the program of a traced function.

A graph contains no strings. So the trace of a function with strings as arguments
records the calls that map them to numbers. Each call of the function repeats these
calls first. Their results are inputs of the program.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from time import perf_counter
from typing import Any, NoReturn, TypeAlias

import numpy as np

from toolkit import dtypes, tree
from toolkit.core.convert import convert, is_strings
from toolkit.core.masks import mask_of
from toolkit.core.strings import StringTensor, apply_to_strings
from toolkit.core.tensor import Tensor, state
from toolkit.core.trace import Trace, inline, no_trace
from toolkit.errors import HostCallError
from toolkit.ir import Graph, Spec, Value
from toolkit.type_aliases import TensorLike

# Code outside of compiled functions expects arrays, or single strings.
_ATTRIBUTES_OF_VALUES = {*dir(np.ndarray), *dir(str), *dir(bytes)}
# Types of constant arguments of calls that are compared by value.
_PLAIN_TYPES = (bool, int, str, bytes, slice, type(None))


class PreparedStrings(np.ndarray[Any, Any]):
    """Strings of a batch, with the results of the calls for it if they are known.

    Attributes:
        results: their results for the batch.
    """

    results: Results | None = None


class HostStrings(StringTensor):
    """Strings in a trace: they have a shape, and no values.

    Args:
        shape: the shape.
    """

    is_traced = True

    def __init__(self, shape: Sequence[int]) -> None:
        self._extents = tuple(shape)

    @property
    def _array(self) -> NoReturn:  # type: ignore[override]
        raise _no_values()

    def __getattr__(self, name: str) -> NoReturn:
        if name in _ATTRIBUTES_OF_VALUES:
            raise _no_values()
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __str__(self) -> NoReturn:
        raise _no_values()

    def __format__(self, spec: str) -> NoReturn:
        raise _no_values()

    @property
    def shape(self) -> tuple[int, ...]:
        return self._extents

    @property
    def ndim(self) -> int:
        return len(self._extents)

    @property
    def size(self) -> int:
        return Spec(self._extents, self.dtype).size

    def __len__(self) -> int:
        if not self._extents:
            raise TypeError("len() of a single string")
        return self._extents[0]

    def __getitem__(self, key: object) -> object:
        return call_on_host(operator.getitem, (self, key))

    def __add__(self, other: object) -> object:
        return call_on_host(operator.add, (self, other))

    def __eq__(self, other: object) -> object:  # type: ignore[override]
        return call_on_host(operator.eq, (self, other))

    def __hash__(self) -> NoReturn:
        raise _no_values()

    def __bool__(self) -> NoReturn:
        raise _no_values()

    def move(
        self, function: Callable[..., object], args: object, kwargs: object
    ) -> object:
        return call_on_host(apply_to_strings, (function, args, kwargs))

    def __repr__(self) -> str:
        return f"<HostStrings shape={self.shape}, traced>"


def _no_values() -> HostCallError:
    return HostCallError(
        "strings have no values in a compiled function: only layers for strings "
        "accept them; apply the code that reads them to the data, in Dataset.map"
    )


class _Slot:
    """The index of a value among the values of a call."""

    def __init__(self, index: int) -> None:
        self.index = index


class _HostCall:
    """One recorded call. Slots replace the leaves that differ between calls.

    Args:
        function: the function.
        arguments: its arguments and keyword arguments.
        leaves: the leaves of the arguments, with slots.
    """

    def __init__(
        self, function: Callable[..., object], arguments: object, leaves: list[object]
    ) -> None:
        self.function = function
        self.structure = tree.structure_of(arguments)
        self.leaves = leaves
        self._signature = tree.signature(arguments)
        self.seconds: float = 0.0  # of the last run for other arguments

    def equals(self, other: _HostCall) -> bool:
        """Return whether the calls are known to be equal."""
        if self.function is not other.function or self._signature != other._signature:
            return False
        return all(map(_is_same, self.leaves, other.leaves))

    def run(self, values: list[object]) -> object:
        """Return the result for the values of a call of the traced function."""
        leaves = [values[x.index] if type(x) is _Slot else x for x in self.leaves]
        args, kwargs = tree.pack_sequence_as(self.structure, leaves)
        with no_trace():
            return tree.map_structure(self._standardize, self.function(*args, **kwargs))

    def _standardize(self, y: TensorLike) -> object:
        """Return a leaf of the result as a tensor or as strings."""
        if is_strings(y) or isinstance(y, (str, bytes)) or type(y) is Tensor:
            return y
        if not isinstance(y, (Tensor, np.ndarray)) or mask_of(y) is not None:
            raise HostCallError(
                f"{describe(self.function)}: a compiled function cannot contain its "
                f"result, a {type(y).__name__}; expected a tensor without a mask"
            )
        return convert(y)


# The results of each call for the arguments of a traced function, in order.
Results: TypeAlias = dict[_HostCall, list[Any]]


def _is_same(leaf: object, other: object) -> bool:
    if type(leaf) is not type(other):
        return False
    if isinstance(leaf, _Slot) and isinstance(other, _Slot):
        return leaf.index == other.index
    return leaf is other or (isinstance(leaf, _PLAIN_TYPES) and leaf == other)


def specs_of(results: Iterable[Any]) -> tuple[Spec, ...]:
    """Return the specs of tensors and strings."""
    return tuple(
        [
            x.spec if isinstance(x, Tensor) else Spec(np.shape(x), dtypes.STRING)
            for x in results
        ]
    )


def prepared_results(arguments: Sequence[object]) -> Results:
    """Return the results that are known for the arguments of a function."""
    for x in arguments:
        if type(x) is PreparedStrings and x.results is not None:
            return x.results
    return {}


def prepare(arguments: Sequence[object], results: Results) -> None:
    """Store results in one of the arguments, for `prepared_results`."""
    for x in arguments:
        if type(x) is PreparedStrings:
            x.results = results
            return


class HostCalls:
    """The calls on the host that a trace records, in order.

    Args:
        trace: the trace; its placeholders represent the arguments.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace: Trace | None = trace
        self._calls: list[_HostCall] = []
        self._specs: list[tuple[Spec, ...]] = []  # of the results of each call
        self._results: list[int] = []  # the slots of the inputs of the program
        # During the trace: the values of the traced call, and slots by their symbols.
        self._values: list[Any] = []
        self._slots: dict[Value, int] = {}
        self._string_slots: list[tuple[HostStrings, int]] = []  # they have no hash

    @property
    def functions(self) -> list[Callable[..., object]]:
        """Return the functions that are called."""
        return [call.function for call in self._calls]

    @property
    def seconds(self) -> float:
        """Return the seconds of the last run of each call."""
        return sum(call.seconds for call in self._calls)

    @property
    def specs(self) -> tuple[Spec, ...]:
        """Return the specs of all results."""
        return tuple(chain.from_iterable(self._specs))

    def argument(self, value: object, spec: Spec) -> Tensor | HostStrings:
        """Return the symbol of an argument of the traced function."""
        symbol: Tensor | HostStrings
        if spec.dtype == dtypes.STRING:
            symbol = HostStrings(spec.shape)
            self._string_slots.append((symbol, len(self._values)))
        else:
            assert self._trace is not None
            symbol = self._trace.placeholder(spec)
            self._slots[symbol] = len(self._values)
        self._values.append(value)
        return symbol

    def record(
        self, function: Callable[..., object], args: object, kwargs: object
    ) -> object:
        """Run a call for the traced arguments, and return symbols of its results."""
        operands = tree.flatten((args, kwargs))
        leaves = [self._locate(leaf, function) for leaf in operands]
        outputs = self._run(_HostCall(function, (args, kwargs), leaves))
        return tree.map_structure(self._symbol, outputs)

    def _run(self, call: _HostCall) -> Any:
        """Append a call, and return its result for the traced call."""
        outputs = call.run(self._values)
        self._calls.append(call)
        self._specs.append(specs_of(tree.flatten(outputs)))
        return outputs

    def _symbol(self, value: object) -> Tensor | HostStrings:
        """Return the symbol of a result; a tensor is an input of the program."""
        if isinstance(value, Tensor):
            self._results.append(len(self._values))
        return self.argument(value, specs_of([value])[0])

    def _locate(self, leaf: object, function: Callable[..., object]) -> object:
        """Return the slot of a leaf, or the leaf if it is a constant."""
        if isinstance(leaf, HostStrings):
            slots = [slot for symbol, slot in self._string_slots if symbol is leaf]
            if not slots:
                raise HostCallError(
                    f"{describe(function)}: the strings belong to another call of a "
                    "compiled function; pass them as an argument"
                )
            return _Slot(slots[0])
        if not isinstance(leaf, Tensor):
            return leaf
        value = leaf.static_value()
        if value is not None:
            return Tensor(value)
        x = self._outer_value(leaf)
        if x not in self._slots:
            self._evaluate(x, function)
        return _Slot(self._slots[x])

    def _outer_value(self, x: Tensor) -> Tensor:
        """Return the value of this trace that a nested trace captures as `x`."""
        value: Any = x
        trace = state.trace
        while trace is not None and trace is not self._trace:
            sources = {local: source for source, local in trace.captures.items()}
            value = sources.get(value, value)
            trace = trace.enclosing
        result: Tensor = value
        return result

    def _evaluate(self, x: Tensor, function: Callable[..., object]) -> None:
        """Record the evaluation of an operand that the trace computes."""
        known = self._slots.keys()
        nodes = None if self._trace is None else self._trace.nodes_for(x, known)
        if nodes is None:
            raise HostCallError(
                f"{describe(function)}: the layer runs in Python before the compiled "
                "function, and its input depends on weights, on a loop or on a branch "
                "of that function; apply the layer to the data or to the outputs"
            )
        needed = dict.fromkeys(v for node in nodes for v in node.inputs if v in known)
        graph = Graph(tuple(needed), tuple(nodes), (x,))
        leaves: list[object] = [_Slot(self._slots[v]) for v in needed]
        call = _HostCall(partial(_run_graph, graph), (tuple(leaves), {}), leaves)
        value = tree.flatten(self._run(call))[0]
        self._slots[x] = len(self._values)
        self._values.append(value)

    def finish(self) -> list[Tensor]:
        """Return the results for the traced call, and release its values."""
        results = [self._values[index] for index in self._results]
        self._trace, self._values, self._slots = None, [], {}
        self._string_slots.clear()
        return results

    def share(self, traces: Iterable[HostCalls]) -> None:
        """Replace the first calls by equal calls of other traces.

        Their results are then computed once, and decide which trace to run.
        """
        for trace in traces:
            pairs = zip(self._calls, trace._calls, strict=False)
            for i, (call, shared) in enumerate(pairs):
                if not call.equals(shared):
                    break
                self._calls[i] = shared

    def run(
        self, arguments: Sequence[object], call_results: Results
    ) -> list[Tensor] | None:
        """Return the additional inputs of the program for other arguments.

        Args:
            arguments: the arguments.
            call_results: the results of calls that ran for them. New results are added.

        Returns:
            None if a result has another shape than in the trace.
        """
        values: list[Any] = list(arguments)
        for call, specs in zip(self._calls, self._specs, strict=True):
            if call not in call_results:
                start = perf_counter()
                call_results[call] = tree.flatten(call.run(values))
                call.seconds = perf_counter() - start
            if specs_of(call_results[call]) != specs:
                return None
            values += call_results[call]
        return [values[index] for index in self._results]


def _run_graph(graph: Graph, *inputs: Tensor) -> list[Tensor]:
    return inline(graph, inputs)


def describe(function: Callable[..., object]) -> str:
    """Return the class and the name of a layer, or the name of a function."""
    name = getattr(function, "name", None)
    if name is None:
        return str(getattr(function, "__name__", function))
    return f"{type(function).__name__} {name!r}"


def host_call_error(function: Callable[..., object]) -> HostCallError:
    """Return the error for a function that a compiled function cannot contain."""
    return HostCallError(
        f"{describe(function)}: the layer runs in Python and cannot be in a compiled "
        "function; apply it to the data before the compiled function"
    )


def _active_calls() -> HostCalls | None:
    """Return the calls of the innermost trace that records them."""
    trace = state.trace
    while trace is not None and trace.host_calls is None:
        trace = trace.enclosing
    return None if trace is None else trace.host_calls


def needs_host_call(x: object) -> bool:
    """Return whether a call on `x` can run only before the program of the trace."""
    if isinstance(x, HostStrings):
        return True
    if not isinstance(x, Tensor) or _active_calls() is None:
        return False
    return x.static_value() is None


def call_on_host(
    function: Callable[..., object],
    args: tuple[object, ...],
    kwargs: dict[str, object] | None = None,
) -> object:
    """Record a call in the active trace, which runs before its program.

    Args:
        function: runs in Python; returns tensors or strings.
        args: the arguments, with strings or tensors of the trace among them.
        kwargs: the keyword arguments.

    Raises:
        HostCallError: an argument depends on weights, or is a result of the program.
    """
    calls = _active_calls()
    if calls is None:
        raise HostCallError(
            f"{describe(function)}: expected the call inside of the trace that "
            "received the strings"
        )
    return calls.record(function, args, {} if kwargs is None else kwargs)
