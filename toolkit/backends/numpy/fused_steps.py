"""One loop for the elementwise operations of a frequent call with large operands.

Each of these operations runs generated code from `eager._MIN_ELEMENTS` on. One loop of
the same scalar functions has the same bits, and reads and writes memory only once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from toolkit.backends.kernels import Kernel
from toolkit.backends.numpy.eager import EagerPrograms
from toolkit.ir import Graph, Kind, Node, Primitive, Spec, Value
from toolkit.ir.value import Constant

if TYPE_CHECKING:
    from toolkit.backends.numpy.kernels import NumPyBackend

Array = Any
_num_loops = 0
_KINDS = (Kind.ELEMENTWISE, Kind.COMPOSITE)
# Generated code computes narrow floats in float32, and rounds at the end of a loop.
_DTYPES = ("float32", "float64", "bool", "int32", "int64")


def count() -> int:
    """Return the number of loops that have replaced single kernels."""
    return _num_loops


def fuse_steps(
    backend: NumPyBackend,
    graph: Graph,
    steps: Sequence[tuple[Kernel, Node]],
    outputs: Sequence[Value],
    constants: Mapping[Value, object],
    otherwise: Kernel,
) -> Kernel | None:
    """Return one loop that computes steps; None if they are not elementwise and large.

    Args:
        backend: the backend of the kernels.
        graph: the graph whose inputs the steps receive.
        steps: kernels and nodes, in order.
        outputs: the values to return.
        constants: the arrays of the other values that the steps read.
        otherwise: computes the steps one after the other.
    """
    if len(steps) < 2 or not all(type(kernel) is EagerPrograms for kernel, _ in steps):
        return None
    nodes = [node for _, node in steps]
    values = [x for node in nodes for x in (*node.inputs, *node.outputs)]
    if not all(node.op.kind in _KINDS for node in nodes):
        return None
    if not all(x.spec.dtype in _DTYPES for x in values):
        return None
    if len({y.spec.shape for y in outputs}) != 1 or not graph.inputs:
        return None
    if any(x.spec.size != 1 for x in constants) or not _are_distinct(graph, outputs):
        return None
    numbers: dict[Value, Value] = {
        x: Constant(np.asarray(array)) for x, array in constants.items()
    }
    inlined = list(_inline(nodes, numbers))
    body = Graph(
        graph.inputs, tuple(inlined), tuple([numbers.get(y, y) for y in outputs])
    )
    specs = tuple([y.spec for y in outputs])

    def spec(*operands: Spec, **attrs: object) -> Spec | tuple[Spec, ...]:
        return specs if len(specs) > 1 else specs[0]

    def trace(operands: object, attrs: object) -> Graph:
        return body

    fused = Primitive("fused_steps", Kind.COMPOSITE, spec, graph=trace)
    return _Checked(EagerPrograms(backend, fused, otherwise), otherwise)


def _are_distinct(graph: Graph, outputs: Sequence[Value]) -> bool:
    """Return whether each output is another value, and no input."""
    values = {*outputs}
    return len(values) == len(outputs) and values.isdisjoint(graph.inputs)


def _inline(nodes: Sequence[Node], renamed: dict[Value, Value]) -> Iterator[Node]:
    """Yield nodes with the bodies of composites in their place.

    Args:
        nodes: the nodes.
        renamed: the values that replace others. Results of composites are added.
    """
    for node in nodes:
        inputs = [renamed.get(x, x) for x in node.inputs]
        if node.op.graph is None:
            yield node.with_inputs(inputs)
            continue
        body: Graph = node.op.graph([x.spec for x in inputs], node.attrs).pruned()
        local = dict(zip(body.inputs, inputs, strict=True))
        for inner in body.nodes:
            results = [Value(y.spec) for y in inner.outputs]
            operands = [local.get(x, x) for x in inner.inputs]
            yield Node(inner.op, operands, inner.attrs, results)
            local.update(zip(inner.outputs, results, strict=True))
        results = [local.get(y, y) for y in body.outputs]
        renamed.update(zip(node.outputs, results, strict=True))


class _Checked:
    """Fused code that replaces single steps if its first results have the same bits.

    Args:
        fused: the fused code.
        single: computes the steps one after the other.
    """

    def __init__(self, fused: Kernel, single: Kernel) -> None:
        self._fused, self._single = fused, single
        self._run: Kernel | None = None

    def __call__(self, *arrays: Array) -> object:
        global _num_loops
        if self._run is not None:
            return self._run(*arrays)
        results, expected = self._fused(*arrays), self._single(*arrays)
        is_equal = _bits(results) == _bits(expected)
        self._run = self._fused if is_equal else self._single
        _num_loops += is_equal
        return expected


def _bits(results: object) -> list[bytes]:
    return [y.tobytes() for y in (results if type(results) is tuple else (results,))]
