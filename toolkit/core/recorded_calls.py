"""Records of replayed calls: the operations of a call, as one entry of a tape.

A tape that recorded each operation would create a node for each of them in each call.
Only a reverse pass in Python needs these nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import NoneType
from typing import Any, NamedTuple, cast

import numpy as np

from toolkit import dtypes
from toolkit.backends.base import Backend
from toolkit.backends.composites import CompositeKernel, KernelSequence, Rewrite
from toolkit.backends.kernels import DirectCall, Kernel
from toolkit.backends.step_function import StepFunction
from toolkit.core.tensor import Tensor, state
from toolkit.ir import Graph, Node, Primitive, Spec, Value


class _Step(NamedTuple):
    """An operation, with the indices of its operands and its results."""

    op: Primitive
    inputs: tuple[int, ...]
    attrs: Mapping[str, object]
    outputs: tuple[int, ...]


# Calls of a plan whose missing values were computed, after which no value is missing.
_MAX_COMPLETIONS = 8


class _Kernels(NamedTuple):
    """Kernels of a plan.

    Attributes:
        run: a function of the arrays of the inputs, which returns the arrays of the
            stored results: a tuple, unless there is one.
        stored: the indices of these results among all values, and their specs.
    """

    run: Callable[..., Any]
    stored: list[tuple[int, Spec]]


class RecordedPlan:
    """Kernels of a graph that return the values which tapes need.

    The values are in this order: the inputs, the constants, and the results of the
    nodes. Operations without an effect belong to it, too. So tapes of the Python code
    and of a replay have the same nodes.

    At first the kernels return all values. After many calls they return the outputs,
    and the values that the compiled or replayed reverse passes read. Other reverse
    passes compute the missing values again.

    Args:
        backend: the backend of the kernels.
        graph: the graph.
    """

    def __init__(self, backend: Backend, graph: Graph) -> None:
        constants: dict[Any, None] = {}
        for value in (x for node in graph.nodes for x in node.inputs):
            if value.constant is not None:
                constants[value] = None
        results = [y for node in graph.nodes for y in node.outputs]
        order = (*graph.inputs, *constants, *results)
        indices = {value: i for i, value in enumerate(order)}
        self._constants: list[Tensor] = list(constants)
        self.num_leaves: int = len(graph.inputs) + len(constants)
        self._specs = [y.spec for y in results]
        self._steps = [
            _Step(
                node.op,
                tuple([indices[x] for x in node.inputs]),
                node.attrs,
                tuple([indices[y] for y in node.outputs]),
            )
            for node in graph.nodes
        ]
        self._outputs = [(indices.get(y, -1), y) for y in graph.outputs]
        self._backend, self._graph, self._results = backend, graph, results
        # The indices of the results that reverse passes read; None: no pass was known.
        self._needed: set[int] | None = None
        self._num_completions = 0
        self._all: _Kernels = self._kernels_of_all()
        self._kernels, self._is_hot = self._all, False
        self._rewrite: Rewrite | None = None
        self._effects: dict[tuple[bool, ...], tuple[list[_Step], list[int]]] = {}

    def compile(self, rewrite: Rewrite | None = None) -> None:
        """Replace the kernels: many calls follow, so generated code is worthwhile.

        Args:
            rewrite: replaces steps by others with the same bits; None: as before.
        """
        self._is_hot, self._rewrite = True, rewrite or self._rewrite
        needed, first = self._needed, self.num_leaves
        stored = [i for i, y in self._outputs if y.constant is None]
        if needed is None or not stored or self._num_completions >= _MAX_COMPLETIONS:
            self._kernels = self._all = self._kernels_of_all(is_hot=True)
            return
        stored = sorted({*stored, *needed})
        outputs = tuple([self._results[i - first] for i in stored])
        graph = Graph(self._graph.inputs, self._graph.nodes, outputs).pruned()
        function = KernelSequence(self._backend, graph, True, self._rewrite)
        self._kernels = _Kernels(function.run, self._with_specs(stored))

    def _kernels_of_all(self, is_hot: bool = False) -> _Kernels:
        """Return kernels that return the results of all nodes."""
        asarray = self._backend.memory.asarray
        arrays: dict[Value, Any] = {x: asarray(x.constant) for x in self._constants}
        function = StepFunction(self._graph.inputs, arrays)
        for node in self._graph.nodes:
            function.add(_recorded_kernel(self._backend, node, is_hot), node, ())
        indices = range(self.num_leaves, self.num_leaves + len(self._results))
        return _Kernels(function.write(self._results), self._with_specs(indices))

    def _with_specs(self, indices: Iterable[int]) -> list[tuple[int, Spec]]:
        return [(i, self._specs[i - self.num_leaves]) for i in indices]

    def need(self, indices: Iterable[int]) -> None:
        """Store values of later calls, because a new reverse pass reads them.

        Args:
            indices: the indices of values.
        """
        needed = {i for i in indices if i >= self.num_leaves}
        if self._needed is None or not needed <= self._needed:
            self._needed = needed | (self._needed or set())
            if self._is_hot:
                self.compile()

    def call(
        self, inputs: Sequence[Tensor], stores_all: bool = False
    ) -> list[Tensor | None]:
        """Return all values for inputs; None in place of a value that is not stored.

        Args:
            inputs: the inputs.
            stores_all: whether no value may be missing. Several tapes must watch the
                same values, and only one of them computes the missing ones.
        """
        run, stored = self._all if stores_all else self._kernels
        arrays = state.quietly(run, *[x._array for x in inputs])
        results: Any = arrays if len(stored) > 1 else (arrays,)
        values: list[Tensor | None] = [*inputs, *self._constants]
        if len(stored) < len(self._specs):
            values += [None] * len(self._specs)
            for array, (i, spec) in zip(results, stored, strict=True):
                values[i] = Tensor(np.asarray(array), spec)
            return values
        for array, (_, spec) in zip(results, stored, strict=True):
            if type(array) is not np.ndarray:  # a 0-d result of a ufunc
                array = np.asarray(array)
            values.append(Tensor(array, spec))
        return values

    def complete(self, values: list[Tensor | None]) -> list[Tensor]:
        """Compute the values of a call that are None, and return all values.

        Args:
            values: all values of the call. They are replaced in place.
        """
        if NoneType in map(type, values):
            self._num_completions += 1
            if self._num_completions == _MAX_COMPLETIONS:
                self.compile()
            inputs = cast(list[Tensor], values[: len(self._graph.inputs)])
            arrays = state.quietly(self._all.run, *[x._array for x in inputs])
            for array, (i, spec) in zip(arrays, self._all.stored, strict=True):
                if values[i] is None:
                    values[i] = Tensor(np.asarray(array), spec)
        return cast(list[Tensor], values)

    def outputs(self, values: Sequence[Tensor | None]) -> list[Tensor]:
        """Return the outputs of the graph. Constants are new arrays in each call.

        Args:
            values: all values.
        """
        stored = cast(Sequence[Tensor], values)  # outputs are never None
        return [
            stored[i] if y.constant is None else Tensor(np.array(y.constant), y.spec)
            for i, y in self._outputs
        ]

    def steps(self) -> list[_Step]:
        """Return all operations."""
        return self._steps

    def effects(self, watched: tuple[bool, ...]) -> tuple[list[_Step], list[int]]:
        """Return the operations that a tape records, and the results that it watches.

        Args:
            watched: whether the tape watches each input and each constant.

        Returns:
            The operations, and indices of values.
        """
        effects = self._effects.get(watched)
        if effects is None:
            effects = self._effects[watched] = self._find_effects(watched)
        return effects

    def _find_effects(self, watched: tuple[bool, ...]) -> tuple[list[_Step], list[int]]:
        is_watched = dict(enumerate(watched))
        recorded, results = list[_Step](), list[int]()
        for step in self._steps:
            has_gradient = step.op.vjp is not None or step.op.body is not None
            if not has_gradient or not any(map(is_watched.get, step.inputs)):
                continue
            recorded.append(step)
            for i in step.outputs:
                is_watched[i] = self._specs[i - self.num_leaves].dtype in dtypes.INEXACT
                if is_watched[i]:
                    results.append(i)
        return recorded, results


class RecordedCall(NamedTuple):
    """One call of a replay, on a tape that watches one of its inputs.

    Attributes:
        plan: the operations.
        watched: whether the tape watches each input and each constant.
        values: all values of the call; None in place of a value that is not stored.
    """

    plan: RecordedPlan
    watched: tuple[bool, ...]
    values: list[Tensor | None]

    def watched_results(self) -> list[Tensor]:
        """Return the results that the tape watches."""
        values = self.plan.complete(self.values)
        return [values[i] for i in self.plan.effects(self.watched)[1]]

    def nodes(self) -> Iterator[Node]:
        """Yield the recorded operations."""
        values = self.plan.complete(self.values)
        for op, inputs, attrs, outputs in self.plan.effects(self.watched)[0]:
            yield Node(
                op, [values[i] for i in inputs], attrs, [values[i] for i in outputs]
            )


def _recorded_kernel(backend: Backend, node: Node, is_hot: bool) -> Kernel:
    """Return the kernel of a node. Its results share no memory with constants.

    Results can be views, and the user can write to the array of a result.
    """
    specs = [x.spec for x in node.inputs]
    kernel: Kernel | None = None
    if is_hot:
        kernel = backend.hot_kernel(node.op, specs, node.attrs)
    if kernel is None:
        kernel = backend.sized_kernel(node.op, specs, node.attrs)
    if isinstance(kernel, CompositeKernel):
        body = kernel.body(specs, node.attrs)
        kernel = DirectCall(KernelSequence(backend, body, is_hot).run)
    if not all(x.constant is not None for x in node.inputs):
        return kernel
    return lambda *arrays, **attrs: kernel(*[x.copy() for x in arrays], **attrs)
