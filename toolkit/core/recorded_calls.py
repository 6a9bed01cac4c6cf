"""Records of replayed calls: the operations of a call, as one entry of a tape.

A tape that recorded each operation would create a node for each of them in each call.
Only a reverse pass in Python needs these nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from toolkit import dtypes
from toolkit.backends.base import Backend
from toolkit.backends.composites import CompositeKernel, KernelSequence
from toolkit.backends.kernels import DirectCall, Kernel
from toolkit.backends.step_function import StepFunction
from toolkit.core.tensor import Tensor
from toolkit.ir import Graph, Node, Primitive, Value


class _Step(NamedTuple):
    """An operation, with the indices of its operands and its results."""

    op: Primitive
    inputs: tuple[int, ...]
    attrs: Mapping[str, object]
    outputs: tuple[int, ...]


class RecordedPlan:
    """Kernels of a graph that return all values, for tapes.

    The values are in this order: the inputs, the constants, and the results of the
    nodes. Operations without an effect belong to it, too. So tapes of the Python code
    and of a replay have the same nodes.

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
        # A function of the arrays of the inputs, which returns the arrays of results.
        self.run: Callable[..., Any]
        self.compile()
        self._is_single = len(results) == 1
        self._effects: dict[tuple[bool, ...], tuple[list[_Step], list[int]]] = {}

    def compile(self, is_hot: bool = False) -> None:
        """Set `run`.

        Args:
            is_hot: whether many calls follow, so that generated code is worthwhile.
        """
        asarray = self._backend.memory.asarray
        arrays: dict[Value, Any] = {x: asarray(x.constant) for x in self._constants}
        function = StepFunction(self._graph.inputs, arrays)
        for node in self._graph.nodes:
            function.add(_recorded_kernel(self._backend, node, is_hot), node, ())
        self.run = function.write(self._results)

    def values(self, inputs: Sequence[Tensor], arrays: object) -> list[Tensor]:
        """Return all values.

        Args:
            inputs: the inputs.
            arrays: the result of `run`.
        """
        values = [*inputs, *self._constants]
        results: Any = (arrays,) if self._is_single else arrays
        for array, spec in zip(results, self._specs, strict=True):
            if type(array) is not np.ndarray:  # a 0-d result of a ufunc
                array = np.asarray(array)
            values.append(Tensor(array, spec))
        return values

    def outputs(self, values: Sequence[Tensor]) -> list[Tensor]:
        """Return the outputs of the graph. Constants are new arrays in each call.

        Args:
            values: all values.
        """
        return [
            values[i] if y.constant is None else Tensor(np.array(y.constant), y.spec)
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
        values: all values of the call.
    """

    plan: RecordedPlan
    watched: tuple[bool, ...]
    values: list[Tensor]

    def nodes(self) -> Iterator[Node]:
        """Yield the recorded operations."""
        values = self.values
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
