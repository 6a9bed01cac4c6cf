"""Eager graphs, and composites on a backend without a kernel for them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from toolkit import dtypes
from toolkit.backends.kernels import Kernel
from toolkit.ir import Graph, Kind, Node, Primitive, Spec, Value

if TYPE_CHECKING:
    from toolkit.backends.base import Backend

Array = Any
# The maximum number of cached signatures per composite.
_MAX_SIGNATURES = 1024
# Elements of a result that depends on constants only, up to which it is stored.
_MAX_FOLDED = 1 << 16
_IDENTITIES = ("stop_gradient",)  # outside of programs, they return their operand


class CompositeKernel:
    """Kernel of a composite: the kernels of its body's nodes, in order.

    The body is traced once per signature, and intermediate values are not tensors. The
    first call with a signature returns None, because it can be the only one. The caller
    then runs the body with tensors.

    Args:
        backend: the backend whose kernels compute it.
        primitive: a composite.
    """

    def __init__(self, backend: Backend, primitive: Primitive) -> None:
        self._backend, self._primitive = backend, primitive
        self._bodies: dict[Hashable, KernelSequence | None] = {}

    def __call__(self, *arrays: Any, **attrs: Any) -> Any:
        signature = tuple([(x.shape, x.dtype) for x in arrays])
        key = signature, *attrs.values()
        try:
            body = self._bodies[key]
        except KeyError:
            if len(self._bodies) >= _MAX_SIGNATURES:
                self._bodies.clear()
            self._bodies[key] = None
            return None
        if body is None:
            specs = [Spec(shape, dtypes.name_of(dtype)) for shape, dtype in signature]
            graph = self.body(specs, attrs)
            body = self._bodies[key] = KernelSequence(self._backend, graph)
        results = body(arrays)
        return tuple(results) if len(results) > 1 else results[0]

    def body(self, specs: Sequence[Spec], attrs: Mapping[str, object]) -> Graph:
        """Return the body for operands of these specs, without unused nodes."""
        traced: Any = self._primitive.graph
        graph: Graph = traced(specs, attrs).pruned()
        return graph


class _Step(NamedTuple):
    """A kernel with its attributes, and the indices of its operands.

    Attributes:
        kernel: the kernel.
        first: the index of the first of at most two operands.
        second: the index of the second of two operands; -1 if there is one operand.
        operands: returns more than two operands; None for at most two.
        has_one_result: whether the kernel returns one array.
        dead: the indices of values without later readers.
    """

    kernel: Kernel
    first: int
    second: int
    operands: Callable[[Sequence[Any]], Any] | None
    has_one_result: bool
    dead: tuple[int, ...]


class KernelSequence:
    """The eager kernels of a graph's nodes, in order, for arrays of the input specs.

    The results have the same bits as the nodes outside of programs. The kernels of a
    body replace a composite without a kernel. Nodes on constants run only once.

    Args:
        backend: the backend of the kernels.
        graph: a graph without unused nodes.
    """

    def __init__(self, backend: Backend, graph: Graph) -> None:
        self._backend = backend
        environment: dict[Value, Value] = {}
        steps = list(self._expand(graph, environment))
        outputs = [environment.get(y, y) for y in graph.outputs]
        steps, folded = self._fold(steps, set(outputs))
        slots = {value: i for i, value in enumerate(graph.inputs)}
        self._constants: list[Array] = []
        for value in (*(x for _, node in steps for x in node.inputs), *outputs):
            if value in slots:
                continue
            if value in folded:
                constant = folded[value]
            elif value.constant is not None:
                constant = backend.memory.asarray(value.constant)
            else:  # the result of a step
                continue
            slots[value] = len(slots)
            self._constants.append(constant)
        kept = set(slots).difference(graph.inputs).union(outputs)
        last = {x: i for i, (_, node) in enumerate(steps) for x in node.inputs}
        self._steps: list[_Step] = []
        for i, (kernel, node) in enumerate(steps):
            for y in node.outputs:
                slots[y] = len(slots)
            dead = {x for x in (*node.inputs, *node.outputs) if last.get(x, i) == i}
            self._steps.append(_step(kernel, node, dead - kept, slots))
        self._results = [slots[y] for y in outputs]

    @property
    def single_kernel(self) -> tuple[Kernel, list[Array]] | None:
        """Return the only kernel, and its operands after the inputs of the graph.

        Return None unless it returns the only output and reads all values in order.
        """
        if len(self._steps) != 1 or not self._steps[0].has_one_result:
            return None
        (step,) = self._steps
        count = self._results[0]  # the result is stored after inputs and constants
        values = tuple(range(count))
        operands = step.operands
        if operands is None:
            pair = (step.first,) if step.second < 0 else (step.first, step.second)
            is_ordered = pair == values
        else:
            is_ordered = operands(values) == values
        return (step.kernel, self._constants) if is_ordered else None

    def __call__(self, arrays: Sequence[Array]) -> list[Array]:
        """Return one array for each output of the graph."""
        values = [*arrays, *self._constants]
        append = values.append
        for kernel, first, second, operands, has_one_result, dead in self._steps:
            if operands is not None:
                chosen = operands(values)
            elif second < 0:
                chosen = (values[first],)
            else:
                chosen = values[first], values[second]
            result = kernel(*chosen)
            if result is None:  # the first call of a composite
                result = kernel(*chosen)
            if has_one_result:
                append(result)
            else:
                values.extend(result)
            if dead:
                del chosen
                for i in dead:
                    values[i] = None
        return [values[i] for i in self._results]

    def _expand(
        self, graph: Graph, environment: dict[Value, Value]
    ) -> Iterator[tuple[Kernel, Node]]:
        """Yield kernels and nodes with new outputs, and bodies in place of composites.

        Args:
            graph: the graph.
            environment: the operands for values of the graph. Results are added.
        """
        for node in graph.nodes:
            inputs = [environment.get(x, x) for x in node.inputs]
            if node.op.name in _IDENTITIES:
                environment[node.outputs[0]] = inputs[0]
                continue
            specs = [x.spec for x in inputs]
            kernel = self._backend.sized_kernel(node.op, specs, node.attrs)
            if isinstance(kernel, CompositeKernel):
                body = kernel.body(specs, node.attrs)
                inner = dict(zip(body.inputs, inputs, strict=True))
                yield from self._expand(body, inner)
                results = [inner.get(y, y) for y in body.outputs]
            else:
                results = [Value(y.spec) for y in node.outputs]
                yield kernel, Node(node.op, inputs, node.attrs, results)
            environment.update(zip(node.outputs, results, strict=True))

    def _fold(
        self, steps: list[tuple[Kernel, Node]], outputs: set[Value]
    ) -> tuple[list[tuple[Kernel, Node]], dict[Value, Array]]:
        """Run the steps on constants, whose small results are not outputs.

        Returns:
            The other steps, and the results.
        """
        remaining, folded = [], dict[Value, Array]()
        for kernel, node in steps:
            is_constant = all(
                x in folded or x.constant is not None for x in node.inputs
            )
            if (
                not is_constant
                or node.op.kind in (Kind.CONTROL, Kind.COLLECTIVE)
                or not outputs.isdisjoint(node.outputs)
                or sum(y.spec.size for y in node.outputs) > _MAX_FOLDED
            ):
                remaining.append((kernel, node))
                continue
            asarray = self._backend.memory.asarray
            arrays = [
                folded[x] if x in folded else asarray(x.constant) for x in node.inputs
            ]
            result = kernel(*arrays, **node.attrs)
            if result is None:  # the first call of a composite
                remaining.append((kernel, node))
                continue
            results = result if isinstance(result, tuple) else (result,)
            folded.update(zip(node.outputs, results, strict=True))
        return remaining, folded


def _step(
    kernel: Kernel, node: Node, dead: set[Value], slots: dict[Value, int]
) -> _Step:
    if node.attrs:
        kernel = partial(kernel, **node.attrs)
    indices = [slots[x] for x in node.inputs]
    has_pair = len(indices) in (1, 2)
    operands: Callable[[Sequence[Array]], Any] | None = None
    if not has_pair:
        operands = itemgetter(*indices) if indices else _no_operands
    return _Step(
        kernel,
        indices[0] if has_pair else -1,
        indices[1] if len(indices) == 2 else -1,
        operands,
        len(node.outputs) == 1,
        tuple(slots[x] for x in dead),
    )


def _no_operands(values: Sequence[Array]) -> tuple[Array, ...]:
    return ()
