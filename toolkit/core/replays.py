"""Replays: repeated eager calls as the sequence of their kernels.

The first call with a signature runs as Python code. The second call also traces this
code. Later calls run the kernels of the trace, with the same bits, and skip the code.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import numpy as np

from toolkit import settings, tree
from toolkit.backends.composites import KernelSequence
from toolkit.backends.kernels import Kernel
from toolkit.backends.memory import device_memories
from toolkit.console import frames
from toolkit.core.masks import mask_of
from toolkit.core.tensor import Tensor, backend, state, wrap_result
from toolkit.core.trace import Trace
from toolkit.core.variable import Variable
from toolkit.errors import ToolkitError
from toolkit.ir import PRIMITIVES, Graph, Kind, Node, Primitive, Spec
from toolkit.thread_state import ThreadState, restore_on_error
from toolkit.type_aliases import Array

# Nodes of the largest graph, and elements of the largest operands. Python code costs
# little compared with the kernels of larger calls.
_MAX_NODES, _MAX_ELEMENTS = 4000, 1 << 20
_CONTROL = (Kind.CONTROL, Kind.COLLECTIVE)
# Errors of kernels. The Python code raises them again, with an explanation.
KERNEL_ERRORS = (TypeError, ValueError, AttributeError, RuntimeError, ToolkitError)
# Calls of operations that are replayed, and calls that occurred once.
_MAX_CALLS, _MAX_SEEN = 2048, 2048
_STATIC = frozenset({int, bool, str, type(None)})


class NotReplayable(Exception):
    """Error raised for code whose kernels depend on more than a signature."""


class ReplayTrace(Trace):
    """Trace of code that also runs eagerly, with the same operations.

    Code that reads a value cannot be replayed: it can do something else for the next
    value, or raise an error.
    """

    unrolls_loops = True

    def __init__(self, name: str) -> None:
        super().__init__(name, creates_variables=False)
        self.reads_values = False

    def value_of(self, x: Tensor) -> Tensor | None:
        """Return the value of a constant; note a read of any other value.

        Args:
            x: a tensor.
        """
        value = super().value_of(x)
        self.reads_values = self.reads_values or value is None
        return value

    def emit(
        self, op: Primitive, inputs: Iterable[Tensor], attrs: Mapping[str, object]
    ) -> object:
        """Append a node, unless there are too many for a replay.

        Args:
            op: the primitive.
            inputs: its operands.
            attrs: its attributes.
        """
        if len(self.nodes) >= _MAX_NODES:
            raise NotReplayable
        return super().emit(op, inputs, attrs)


class Tape(Protocol):
    """Recorder of operations."""

    def record(
        self,
        op: Primitive,
        inputs: tuple[Tensor, ...],
        attrs: Mapping[str, object],
        outputs: object,
    ) -> None:
        """Record an operation."""


class Replay:
    """Kernels of a traced call.

    Args:
        trace: the trace of the call.
        outputs: the nest of tensors that the call returned.

    Raises:
        NotReplayable: if the call does more than to compute its outputs.
    """

    def __init__(self, trace: ReplayTrace, outputs: object) -> None:
        leaves: list[object] = tree.flatten(outputs)
        graph = _checked_graph(trace, leaves)
        self._graph: Graph = graph
        self.variables: list[Any] = list(trace.captures)
        self._backend = backend()
        self._sequence = KernelSequence(self._backend, graph.pruned())
        single = self._sequence.single_kernel
        self._kernel: Kernel | None = single and single[0]
        self._constants: list[Array] = single[1] if single else []
        self._recorded: list[tuple[Kernel, Node]] | None = None
        self._is_single = outputs is leaves[0]
        self._pack = tree.make_packer(tree.structure_of(outputs))

    def run(self, arrays: Sequence[Array]) -> object:
        """Return the outputs for the arrays of the inputs and Variables."""
        if self._kernel is not None and self._is_single:
            result = state.quietly(self._kernel, *arrays, *self._constants)
            if type(result) is np.ndarray:
                return Tensor(result)
            if result is not None:  # otherwise the first call of a composite
                return wrap_result(result)
        results = state.quietly(self._sequence, arrays)
        if self._is_single:
            (result,) = results
            return Tensor(result) if type(result) is np.ndarray else wrap_result(result)
        return self._pack(list(map(wrap_result, results)))

    def run_recorded(self, tensors: Sequence[Tensor], tapes: Sequence[Tape]) -> object:
        """Return the outputs for tensors, after recording each operation on tapes.

        Operations without an effect are recorded, too. Tapes of the Python code and of
        the replay then have the same compiled reverse pass.
        """
        if self._recorded is None:
            self._recorded = self._plan_nodes()
        values = dict(zip(self._graph.inputs, tensors, strict=True))
        constant = values.setdefault
        for kernel, node in self._recorded:
            inputs = tuple([constant(x, x) for x in node.inputs])
            arrays = [x._array for x in inputs]
            result = state.quietly(kernel, *arrays, **node.attrs)
            if result is None:  # the first call of a composite
                result = state.quietly(kernel, *arrays, **node.attrs)
            outputs = wrap_result(result)
            for tape in tapes:
                tape.record(node.op, inputs, node.attrs, outputs)
            if type(outputs) is tuple:
                values.update(zip(node.outputs, outputs, strict=True))
            else:
                values[node.outputs[0]] = outputs
        results = [values[y] for y in self._graph.outputs]
        return results[0] if self._is_single else self._pack(results)

    def _plan_nodes(self) -> list[tuple[Kernel, Node]]:
        """Return the kernel of each node, and the node."""
        return [
            (
                self._backend.sized_kernel(
                    node.op, [x.spec for x in node.inputs], node.attrs
                ),
                node,
            )
            for node in self._graph.nodes
        ]


def _checked_graph(trace: ReplayTrace, leaves: list[object]) -> Graph:
    """Return the graph of a trace.

    Raises:
        NotReplayable: an output is not new, or the call has side effects.
    """
    if trace.reads_values or trace.writes or trace.has_created or not leaves:
        raise NotReplayable
    outputs = [y for y in leaves if type(y) is Tensor and mask_of(y) is None]
    if len(outputs) != len(leaves):
        raise NotReplayable
    for source in trace.captures:
        if type(source) is not Variable or source.placement is not None:
            raise NotReplayable
    graph = trace.finish(outputs)
    variable = set(graph.inputs)  # values that differ between calls
    for node in graph.nodes:
        op: Primitive = node.op
        if PRIMITIVES.get(op.name) is not op or op.kind in _CONTROL:
            raise NotReplayable
        if node.device is not None:
            raise NotReplayable
        if not variable.isdisjoint(node.inputs):
            variable.update(node.outputs)
    # An output that is a constant would be one array in all calls.
    if not variable.issuperset(graph.outputs) or not graph.nodes:
        raise NotReplayable
    if not set(graph.inputs).isdisjoint(graph.outputs):
        raise NotReplayable
    return graph


def make_replay(
    name: str, call: Callable[..., object], specs: Sequence[Spec]
) -> Replay | None:
    """Return the kernels of a call, or None if it cannot be replayed.

    Args:
        name: the name of the call.
        call: the code, as a function of tensors.
        specs: the specs of the tensors.
    """
    if sum(spec.size for spec in specs) > _MAX_ELEMENTS:
        return None
    warnings_before = frames.num_warnings()
    # An error occurs again without the trace, with the lines of the user.
    with suppress(Exception), restore_on_error():
        with ReplayTrace(name) as trace:
            inputs = [trace.placeholder(spec) for spec in specs]
            outputs = call(*inputs)
        if frames.num_warnings() == warnings_before:
            replay: Replay = state.quietly(Replay, trace, outputs)
            return replay
    return None


def same_bits(a: object, b: object) -> bool:
    """Return whether two nests of tensors are equal, bit for bit.

    Args:
        a: a nest of tensors.
        b: another nest of tensors.
    """
    pairs = zip(tree.flatten(a), tree.flatten(b), strict=True)
    return all(
        type(y) is type(z) is Tensor
        and y.spec == z.spec
        and y._array.tobytes() == z._array.tobytes()
        for y, z in pairs
    )


class _Active(ThreadState):
    """The call of this thread that runs as Python code, and may be replayed later."""

    is_inner = False  # whether an enclosing call may be replayed as a whole


active: _Active = _Active()
# The replay of each signature of an operation; None if there is none.
_calls: dict[Hashable, Replay | None] = {}
_seen: set[Hashable] = set()


def clear() -> None:
    """Remove all replays of operations: a setting has changed."""
    _calls.clear()
    _seen.clear()


settings.on_change(clear)


def count() -> int:
    """Return the number of signatures of operations with a replay."""
    return sum(replay is not None for replay in _calls.values())


def call_operation(
    function: Callable[..., object],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
) -> object:
    """Return the result of an operation by a replay, or None without one.

    Args:
        function: the operation, a function of tensors.
        args: the positional arguments.
        kwargs: the keyword arguments.
    """
    if device_memories:
        return None
    tensors: list[Tensor] = []
    key: list[object] = [function]
    for x in args:  # the most frequent arguments, without a call
        if type(x) is Tensor:
            if type(x._array) is not np.ndarray:
                return None
            key.append(x._array.shape)
            key.append(x._dtype)
            tensors.append(x)
        elif type(x) in _STATIC:
            key.append(type(x))
            key.append(x)
        elif not _add_argument(x, key, tensors):
            return None
    if not tensors:
        return None
    for name, x in kwargs.items():
        key.append(name)
        if not _add_argument(x, key, tensors):
            return None
    signature = tuple(key)
    try:
        replay = _calls[signature]
    except KeyError:
        return _run_unknown(signature, function, args, kwargs, tensors)
    if replay is None:
        return None
    try:
        if not state.tapes:
            return replay.run([x._array for x in tensors])
        if all(map(accepts_replays, state.tapes)):
            return replay.run_recorded(tensors, state.tapes)
    except KERNEL_ERRORS:
        pass
    return None


def accepts_replays(tape: object) -> bool:
    """Return whether a tape needs only the operations of a call, in order."""
    return getattr(tape, "accepts_replays", False)


def _add_argument(x: object, key: list[object], tensors: list[Tensor]) -> bool:
    """Describe an argument in `key`; return False if it is of another type.

    Args:
        x: the argument.
        key: the description. A tensor begins with its shape, other values with a type.
        tensors: the tensors of the call. Tensors in the argument are added.
    """
    kind = type(x)
    if type(x) is Tensor:
        key += [x.shape, x._dtype]
        tensors.append(x)
        return type(x._array) is np.ndarray
    if kind in _STATIC:
        key += [kind, x]
    elif type(x) is float:  # -0.0 equals 0.0, and NaN differs from itself
        key += [kind, x if x else x.hex()]
    elif type(x) is slice:
        key.append(kind)
        return _add_argument((x.start, x.stop, x.step), key, tensors)
    elif type(x) is tuple or type(x) is list:
        key += [kind, len(x)]
        return all(_add_argument(item, key, tensors) for item in x)
    else:
        return False
    return True


def _replace_tensors(x: object, tensors: Iterator[Tensor]) -> object:
    """Return an argument with other tensors, in the order of `_add_argument`."""
    if type(x) is Tensor:
        return next(tensors)
    if type(x) is slice:
        bounds = [_replace_tensors(y, tensors) for y in (x.start, x.stop, x.step)]
        return slice(*bounds)
    if type(x) is tuple:
        return tuple([_replace_tensors(y, tensors) for y in x])
    if type(x) is list:
        return [_replace_tensors(y, tensors) for y in x]
    return x


def _run_unknown(
    signature: Hashable,
    function: Callable[..., object],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    tensors: list[Tensor],
) -> object:
    """Run an operation as Python code, and create a replay at the second call."""
    if active.is_inner or len(_calls) >= _MAX_CALLS:
        return None
    is_repeated = signature in _seen
    if not is_repeated:
        if len(_seen) >= _MAX_SEEN:
            _seen.clear()
        _seen.add(signature)
    active.is_inner = True
    try:
        outputs = function(*args, **kwargs)
    except Exception:  # the caller handles it
        return None
    finally:
        active.is_inner = False
    if is_repeated:
        _calls[signature] = _replay_of(function, args, kwargs, tensors, outputs)
        _seen.discard(signature)
    return outputs


def _replay_of(
    function: Callable[..., object],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    tensors: list[Tensor],
    outputs: object,
) -> Replay | None:
    """Return the replay of an operation; None if its results can differ."""

    def call(*inputs: Tensor) -> object:
        remaining = iter(inputs)
        local_args = [_replace_tensors(x, remaining) for x in args]
        local_kwargs = {
            name: _replace_tensors(x, remaining) for name, x in kwargs.items()
        }
        return function(*local_args, **local_kwargs)

    replay = make_replay(function.__name__, call, [x.spec for x in tensors])
    if replay is None or replay.variables:
        return None
    try:
        repeated = replay.run([x._array for x in tensors])
    except KERNEL_ERRORS:
        return None
    return replay if same_bits(outputs, repeated) else None
