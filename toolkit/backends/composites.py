"""Eager graphs, and composites on a backend without a kernel for them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from toolkit import dtypes
from toolkit.backends.kernels import DirectCall, Kernel
from toolkit.backends.step_function import write_steps
from toolkit.ir import Graph, Kind, Node, Primitive, Spec, Value

if TYPE_CHECKING:
    from toolkit.backends.base import Backend

Array = Any
# A function of a backend, steps, outputs, and the arrays of constants.
Rewrite: TypeAlias = Callable[
    [
        "Backend",
        Sequence[tuple[Kernel, Node]],
        Sequence[Value],
        Mapping[Value, Array],
    ],
    list[tuple[Kernel, Node]],
]
# The maximum number of cached signatures per composite.
_MAX_SIGNATURES = 1024
# Elements of a result that depends on constants only, up to which it is stored.
_MAX_FOLDED = 1 << 16
_PLAIN = (bool, int, float, str, tuple, type(None))  # types of attributes
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
        return body.run(*arrays)

    def body(self, specs: Sequence[Spec], attrs: Mapping[str, object]) -> Graph:
        """Return the body for operands of these specs, without unused nodes."""
        traced: Any = self._primitive.graph
        graph: Graph = traced(specs, attrs).pruned()
        return graph


class KernelSequence:
    """The eager kernels of a graph's nodes, in order, for arrays of the input specs.

    The results have the same bits as the nodes outside of programs. The kernels of a
    body replace a composite without a kernel. Nodes on constants run only once.

    Args:
        backend: the backend of the kernels.
        graph: a graph without unused nodes.
        is_hot: whether many calls follow, so that generated code is worthwhile.
        rewrite: replaces steps by others with the same bits.
    """

    def __init__(
        self,
        backend: Backend,
        graph: Graph,
        is_hot: bool = False,
        rewrite: Rewrite | None = None,
    ) -> None:
        self._backend, self._is_hot = backend, is_hot
        environment: dict[Value, Value] = {}
        steps = list(self._expand(graph, environment))
        outputs = [environment.get(y, y) for y in graph.outputs]
        steps, folded = self._fold(_share(steps, outputs))
        constants = self._constants_of(graph, steps, outputs, folded)
        if rewrite is not None:
            steps = rewrite(backend, steps, outputs, constants)
        if is_hot:
            steps = backend.fuse_steps(steps, outputs, constants)
        # A function of the arrays of the inputs. It returns the array of the only
        # output, or a tuple of arrays.
        self.run: Callable[..., Any] = _only_kernel(
            graph, steps, outputs
        ) or write_steps(steps, graph.inputs, outputs, constants)

    def _constants_of(
        self,
        graph: Graph,
        steps: list[tuple[Kernel, Node]],
        outputs: list[Value],
        folded: Mapping[Value, Array],
    ) -> dict[Value, Array]:
        """Return the arrays that steps read in addition to inputs and results."""
        constants: dict[Value, Array] = {}
        inputs = set(graph.inputs)
        for value in (*(x for _, node in steps for x in node.inputs), *outputs):
            if value in inputs or value in constants:
                continue
            if value in folded:
                constants[value] = folded[value]
            elif value.constant is not None:
                constants[value] = self._backend.memory.asarray(value.constant)
        return constants

    def _expand(
        self, graph: Graph, environment: dict[Value, Value]
    ) -> Iterator[tuple[Kernel, Node]]:
        """Yield kernels and nodes with new outputs, and bodies in place of composites.

        Args:
            graph: the graph.
            environment: the operands for values of the graph. Results are added.
        """
        read = {x for node in graph.nodes for x in node.inputs}.union(graph.outputs)
        for node in graph.nodes:
            inputs = [environment.get(x, x) for x in node.inputs]
            if node.op.name in _IDENTITIES:
                environment[node.outputs[0]] = inputs[0]
                continue
            specs = [x.spec for x in inputs]
            used = [y in read for y in node.outputs]
            kernel = self._backend.sized_kernel(node.op, specs, node.attrs, used)
            if isinstance(kernel, CompositeKernel):
                body = kernel.body(specs, node.attrs)
                inner = dict(zip(body.inputs, inputs, strict=True))
                yield from self._expand(body, inner)
                results = [inner.get(y, y) for y in body.outputs]
            else:
                if self._is_hot:
                    hot = self._backend.hot_kernel(node.op, specs, node.attrs)
                    kernel = kernel if hot is None else hot
                results = [Value(y.spec) for y in node.outputs]
                yield kernel, Node(node.op, inputs, node.attrs, results)
            environment.update(zip(node.outputs, results, strict=True))

    def _fold(
        self, steps: list[tuple[Kernel, Node]]
    ) -> tuple[list[tuple[Kernel, Node]], dict[Value, Array]]:
        """Run the steps on constants, if their results are small.

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


def _share(
    steps: Sequence[tuple[Kernel, Node]], outputs: Sequence[Value]
) -> list[tuple[Kernel, Node]]:
    """Return steps without those that repeat an earlier one.

    Args:
        steps: kernels and nodes, in order.
        outputs: the results of the sequence, which share no memory.
    """
    shared, replaced = dict[Hashable, Sequence[Value]](), dict[Value, Value]()
    remaining, returned = list[tuple[Kernel, Node]](), set(outputs)
    for kernel, node in steps:
        node = node.with_inputs([replaced.get(x, x) for x in node.inputs])
        is_plain = all(type(x) in _PLAIN for x in node.attrs.values())
        # The text separates 0.0 from -0.0, and 1 from True.
        key = node.op, tuple(node.inputs), repr(node.attrs)
        if not is_plain or node.op.kind in (Kind.CONTROL, Kind.COLLECTIVE):
            remaining.append((kernel, node))
        elif key in shared and returned.isdisjoint(node.outputs):
            replaced.update(zip(node.outputs, shared[key], strict=True))
        else:
            shared[key] = node.outputs
            remaining.append((kernel, node))
    return remaining


def _only_kernel(
    graph: Graph, steps: Sequence[tuple[Kernel, Node]], outputs: Sequence[Value]
) -> Kernel | None:
    """Return the kernel of a graph that only applies it to its inputs, in order."""
    if len(steps) != 1:
        return None
    ((kernel, node),) = steps
    if node.attrs or node.op.body is not None:
        return None
    # `==` of tensors computes a tensor.
    if [*map(id, node.inputs)] != [*map(id, graph.inputs)]:
        return None
    if [*map(id, node.outputs)] != [*map(id, outputs)]:
        return None
    if isinstance(kernel, DirectCall) and not kernel.arguments:
        kernel = kernel.function
    return kernel
