"""Replays: repeated eager calls as the sequence of their kernels.

The first call with a signature runs as Python code. The second call also traces this
code. Later calls run the kernels of the trace, with the same bits, and skip the code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import numpy as np

from toolkit import tree
from toolkit.backends.composites import KernelSequence, Rewrite
from toolkit.backends.kernels import Kernel
from toolkit.console import frames
from toolkit.core.masks import mask_of
from toolkit.core.module_changes import has_foreign_functions, observe_modules
from toolkit.core.recorded_calls import RecordedPlan
from toolkit.core.tensor import Tensor, backend, state, wrap_result
from toolkit.core.trace import Trace
from toolkit.core.variable import Variable
from toolkit.errors import ToolkitError
from toolkit.ir import PRIMITIVES, Graph, Kind, Primitive, Spec
from toolkit.thread_state import ThreadState, restore_on_error
from toolkit.type_aliases import Array

# Nodes of the largest graph, and elements of the largest operands.
_MAX_NODES, _MAX_ELEMENTS = 4000, 1 << 25
# Elements up to which tapes record a call as one record, unless one loop computes it.
# Python code costs little compared with the kernels of larger calls.
_MAX_RECORDED = 1 << 20
# Elements of results that are the same in each call. A replay copies them.
_MAX_CONSTANTS = 4096
# Calls after which generated code replaces kernels. It saves some microseconds of a
# call, and its compilation takes milliseconds.
_HOT_CALLS = 128
# The same for one loop in place of several operations: elements of all its calls.
_MIN_HOT_CALLS, _HOT_ELEMENTS = 1, 1 << 22
# Elements of a result from which one loop can replace several operations.
_MIN_FUSED = 1 << 15
# Calls before the trace of a signature, also if traces took more than this share of the
# time between two drops of replays.
_CALLS_BEFORE_TRACE, _CALLS_IF_EXCEEDED, _MAX_TRACE_SHARE = 1, 31, 0.1
# Microseconds of a call's kernels and of an element of a result, and of all calls after
# which programs replace kernels. The compilation of a program takes about as long.
_KERNEL_TIME, _ELEMENT_TIME, _TIME_BEFORE_PROGRAMS = 1.0, 5e-4, 1e4
# Nodes of the smallest call that can have a program.
_MIN_PROGRAM_NODES = 3
_HOT_KINDS = (Kind.MOVE, Kind.INDEX, Kind.SORT, Kind.RANDOM, Kind.POOL)
_CONTROL = (Kind.CONTROL, Kind.COLLECTIVE)
_ndarray = np.ndarray  # found without the module
# Errors of kernels. The Python code raises them again, with an explanation.
KERNEL_ERRORS = (TypeError, ValueError, AttributeError, RuntimeError, ToolkitError)


class NotReplayable(Exception):
    """Error raised for code whose kernels depend on more than a signature."""


# Errors of a trace: the call has no replay. Signal handlers raise other errors.
_TRACE_ERRORS = (*KERNEL_ERRORS, NotReplayable, LookupError, ArithmeticError)


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

    def record_call(self, plan: RecordedPlan, values: list[Tensor | None]) -> None:
        """Record the operations of a replay."""


class Replay:
    """Kernels of a traced call.

    Args:
        trace: the trace of the call.
        outputs: the nest of tensors that the call returned.

    Raises:
        NotReplayable: if the call does more than to compute its outputs, and the values
            of Variables.
    """

    def __init__(self, trace: ReplayTrace, outputs: object) -> None:
        leaves: list[object] = tree.flatten(outputs)
        graph = _checked_graph(trace, [*leaves, *trace.writes.values()])
        self._graph: Graph = graph
        self.variables: list[Any] = list(trace.captures)
        # The Variables to assign. If there are any, `run` returns a list: the leaves of
        # the outputs, and the values of the Variables. See `split`.
        self.written: list[Any] = list(trace.writes)
        self._num_leaves = len(leaves)
        self._backend = backend()
        self._recorded: RecordedPlan | None = None
        self._num_recorded, self._stages = 0, list(_stages(graph))
        sizes = [x.spec.size for x in graph.inputs]
        self._is_large = sum(sizes) > _MAX_RECORDED and not _is_elementwise(graph)
        self._is_single = outputs is leaves[0] and not self.written
        is_flat = isinstance(outputs, (list, tuple)) and all(
            type(y) is Tensor for y in outputs
        )
        self._is_list = (is_flat and type(outputs) is list) or bool(self.written)
        self._is_tuple = is_flat and type(outputs) is tuple
        self._pack = tree.make_packer(tree.structure_of(outputs))
        # Returns the outputs for the arrays of the inputs and Variables.
        first = 0 if _can_be_hot(graph) else 1
        self.run: Callable[..., object] = self._runner(None, self._stages[first:])

    def _runner(
        self, stage: _Stage | None, later: Sequence[_Stage]
    ) -> Callable[..., object]:
        """Return a function of arrays that runs the kernels, and counts its calls.

        Args:
            stage: the stage of the kernels; None at first.
            later: the next stages.
        """
        pruned, rewrite = self._graph.pruned(), stage and stage.rewrite
        function = KernelSequence(self._backend, pruned, stage is not None, rewrite).run
        specs = [y.spec for y in self._graph.outputs]
        number = count(stage.num_calls if stage else 0).__next__
        last = later[0].num_calls if later else -1

        def advance() -> None:
            """Use the kernels of the next stage in later calls."""
            self.run = state.quietly(self._runner, later[0], later[1:])

        if self._is_single:
            return _single_runner(function, specs[0], number, last, advance)
        return self._nest_runner(function, specs, number, last, advance)

    def _nest_runner(
        self,
        function: Kernel,
        specs: list[Spec],
        number: Callable[[], int],
        last: int,
        advance: Callable[[], None],
    ) -> Callable[..., object]:
        """Return a function of arrays that returns the nest of the outputs."""
        is_tuple, spec = len(specs) > 1, specs[0]
        pack = list if self._is_list else tuple if self._is_tuple else self._pack

        def run(*arrays: Array) -> object:
            if number() == last:
                advance()
            results = state.quietly(function, *arrays)
            if not is_tuple and type(results) is _ndarray and pack is list:
                return [Tensor(results, spec)]
            pairs = zip(results if is_tuple else (results,), specs, strict=True)
            tensors = [
                Tensor(x, spec) if type(x) is _ndarray else wrap_result(x)
                for x, spec in pairs
            ]
            return tensors if pack is list else pack(tensors)

        return run

    def run_recorded(self, tensors: Sequence[Tensor], tapes: Sequence[Tape]) -> object:
        """Return the outputs for tensors, after recording the operations on tapes.

        Args:
            tensors: the inputs and the values of the Variables.
            tapes: the tapes that record.

        Returns:
            The outputs; None if the operands are large.
        """
        if self._is_large:
            return None
        plan = self._recorded
        if plan is None:
            plan = self._recorded = state.quietly(
                RecordedPlan, self._backend, self._graph
            )
        self._num_recorded += 1
        for stage in self._stages:
            if self._num_recorded == stage.num_calls:
                state.quietly(plan.compile, stage.rewrite)
        values = plan.call(tensors, stores_all=len(tapes) > 1)
        for tape in tapes:
            tape.record_call(plan, values)
        results = plan.outputs(values)
        if self._is_list:
            return results
        return results[0] if self._is_single else self._pack(results)

    def split(self, results: object) -> tuple[object, list[Tensor]]:
        """Return the nest of outputs, and the values of the written Variables.

        Args:
            results: the result of `run` or `run_recorded` with written Variables.
        """
        flat: Any = results
        return self._pack(flat[: self._num_leaves]), flat[self._num_leaves :]


class _Stage(NamedTuple):
    """Better kernels after many calls.

    Attributes:
        num_calls: the number of calls.
        rewrite: replaces steps of the kernels by programs.
    """

    num_calls: int
    rewrite: Rewrite | None


def _stages(graph: Graph) -> Iterator[_Stage]:
    """Yield the stages of the kernels of a graph, after the first one."""
    hot_calls, size = _HOT_CALLS, _largest_size(graph)
    if size >= _MIN_FUSED:
        hot_calls = max(_MIN_HOT_CALLS, min(_HOT_CALLS, _HOT_ELEMENTS // size))
    yield _Stage(hot_calls, None)
    sizes = [y.spec.size for node in graph.nodes for y in node.outputs]
    time = _KERNEL_TIME * len(graph.nodes) + _ELEMENT_TIME * sum(sizes)
    if _use_programs is not None and len(graph.nodes) >= _MIN_PROGRAM_NODES:
        num_calls = max(hot_calls + 1, int(_TIME_BEFORE_PROGRAMS / time))
        yield _Stage(num_calls, _use_programs)


_use_programs: Rewrite | None = None


def set_programs(rewrite: Rewrite) -> None:
    """Set the function that replaces steps by programs.

    The compiler imports the package of this module, so this module cannot import it.
    """
    global _use_programs
    _use_programs = rewrite


def _largest_size(graph: Graph) -> int:
    """Return the elements of the largest result."""
    sizes = [y.spec.size for node in graph.nodes for y in node.outputs]
    return max(sizes, default=0)


def _can_be_hot(graph: Graph) -> bool:
    """Return whether a node can have another kernel for many calls."""
    if len(graph.nodes) > 1 and _largest_size(graph) >= _MIN_FUSED:
        return True
    return any(node.op.kind in _HOT_KINDS or node.op.body for node in graph.nodes)


def _is_elementwise(graph: Graph) -> bool:
    """Return whether one loop can compute a graph."""
    kinds = {node.op.kind for node in graph.nodes}
    return kinds <= {Kind.ELEMENTWISE, Kind.COMPOSITE}


def _single_runner(
    function: Kernel,
    spec: Spec,
    number: Callable[[], int],
    last: int,
    advance: Callable[[], None],
) -> Callable[..., object]:
    """Return a function of arrays that returns a tensor.

    Args:
        function: the function of the arrays.
        spec: the spec of its result.
        number: returns the number of a call.
        last: the number of the call from which better kernels follow.
        advance: replaces the kernels of later calls.
    """

    def run(*arrays: Array) -> object:
        if number() == last:
            advance()
        result = state.quietly(function, *arrays)
        if type(result) is np.ndarray:
            return Tensor(result, spec)
        return wrap_result(result)

    return run


def _checked_graph(trace: ReplayTrace, leaves: list[object]) -> Graph:
    """Return the graph of a trace.

    Raises:
        NotReplayable: an output is not new, or the call has side effects.
    """
    if trace.reads_values or trace.has_created or len(leaves) == len(trace.writes):
        raise NotReplayable
    outputs = [y for y in leaves if type(y) is Tensor and mask_of(y) is None]
    if len(outputs) != len(leaves):
        raise NotReplayable
    for source in (*trace.captures, *trace.writes):
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
    constants = [y for y in graph.outputs if y not in variable]
    if sum(y.spec.size for y in constants) > _MAX_CONSTANTS:
        raise NotReplayable  # the replay would store them
    if not set(graph.inputs).isdisjoint(graph.outputs):
        raise NotReplayable
    return graph


def make_replay(
    name: str,
    call: Callable[..., object],
    specs: Sequence[Spec],
    max_elements: int = _MAX_ELEMENTS,
) -> Replay | None:
    """Return the kernels of a call, or None if it cannot be replayed.

    Args:
        name: the name of the call.
        call: the code, as a function of tensors.
        specs: the specs of the tensors.
        max_elements: the elements of the largest call with a replay.
    """
    observe_modules()
    if sum(spec.size for spec in specs) > max_elements or has_foreign_functions():
        return None
    warnings_before = frames.num_warnings()
    # An error occurs again without the trace, with the lines of the user.
    with suppress(*_TRACE_ERRORS), restore_on_error():
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


class TraceBudget:
    """Number of calls after which a signature is traced.

    Signatures that never return would be traced without end. So after replays were
    dropped, more calls come first if the traces took too much of the time.
    """

    def __init__(self) -> None:
        self.num_calls: int = _CALLS_BEFORE_TRACE
        self._started, self._spent = perf_counter(), 0.0

    @contextmanager
    def spend(self) -> Iterator[None]:
        """Return a context in which a signature is traced."""
        started = perf_counter()
        yield
        self._spent += perf_counter() - started

    def note_drop(self) -> None:
        """Adapt the number of calls: replays are dropped, to limit their number."""
        now = perf_counter()
        is_exceeded = self._spent > _MAX_TRACE_SHARE * (now - self._started)
        self.num_calls = _CALLS_IF_EXCEEDED if is_exceeded else _CALLS_BEFORE_TRACE
        self._started, self._spent = now, 0.0


class _Active(ThreadState):
    """The call of this thread that runs as Python code, and may be replayed later."""

    is_inner = False  # whether an enclosing call may be replayed as a whole


active: _Active = _Active()


def accept_replays(tapes: Sequence[object]) -> bool:
    """Return whether all tapes need only the operations of a call, in order."""
    for tape in tapes:
        if not getattr(tape, "accepts_replays", False):
            return False
    return True
