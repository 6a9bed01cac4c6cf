"""One loop for consecutive elementwise operations of a frequent call.

Each of these operations runs generated code from `MIN_ELEMENTS` on. One loop of
the same scalar functions has the same bits, and reads and writes memory only once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from toolkit.backends.kernels import Kernel
from toolkit.backends.numpy.eager import EagerPrograms
from toolkit.backends.step_function import write_steps
from toolkit.ir import Graph, Kind, Node, Primitive, Spec, Value
from toolkit.ir.value import Constant

if TYPE_CHECKING:
    from toolkit.backends.numpy.kernels import NumPyBackend

Array = Any
_Step: TypeAlias = tuple[Kernel, Node]
_num_loops = 0
_KINDS = (Kind.ELEMENTWISE, Kind.COMPOSITE)
# Generated code computes narrow floats in float32, and rounds at the end of a loop.
_DTYPES = ("float32", "float64", "bool", "int32", "int64")


def count() -> int:
    """Return the number of loops that have replaced single kernels."""
    return _num_loops


def fuse_steps(
    backend: NumPyBackend,
    steps: Sequence[_Step],
    outputs: Sequence[Value],
    constants: Mapping[Value, Array],
) -> list[_Step]:
    """Return steps with one loop in place of consecutive elementwise ones.

    Args:
        backend: the backend of the kernels.
        steps: kernels and nodes, in order.
        outputs: the values that the steps compute for the caller.
        constants: the arrays of the other values that the steps read.
    """
    groups = list(_find_groups(steps))
    readers = Counter(x for _, node in steps for x in node.inputs)
    readers.update(outputs)
    fused = list[_Step]()
    for group in groups:
        inner = Counter(x for _, node in group for x in node.inputs)
        results = [y for _, node in group for y in node.outputs]
        read = [y for y in results if readers[y] > inner[y]]
        loop = _fuse(backend, group, read, constants)
        fused += group if loop is None else [loop]
    return fused


def _find_groups(steps: Sequence[_Step]) -> Iterator[list[_Step]]:
    """Yield the steps in groups. Those of a loop have results of one shape.

    A step that reads no result of a loop, such as a view of its operand, moves before
    the loop.
    """
    group, results, shape = list[_Step](), set[Value](), None
    for step in steps:
        _, node = step
        step_shape = _loop_shape(step)
        if step_shape is None or step_shape != shape:
            if results.isdisjoint(node.inputs) and step_shape is None:
                yield [step]
                continue
            if group:
                yield group
            group, results, shape = [], set(), step_shape
        group.append(step)
        results.update(node.outputs)
    if group:
        yield group


def _loop_shape(step: _Step) -> tuple[int, ...] | None:
    """Return the shape of the loop that computes a step; None if there is none."""
    kernel, node = step
    values = (*node.inputs, *node.outputs)
    shapes: set[tuple[int, ...]] = {y.spec.shape for y in node.outputs}
    if type(kernel) is not EagerPrograms or node.op.kind not in _KINDS:
        return None
    if len(shapes) != 1 or not all(x.spec.dtype in _DTYPES for x in values):
        return None
    return shapes.pop()


def _fuse(
    backend: NumPyBackend,
    steps: Sequence[_Step],
    outputs: Sequence[Value],
    constants: Mapping[Value, Array],
) -> _Step | None:
    """Return one loop for steps; None if there is one step, or none can be computed.

    Args:
        backend: the backend of the kernels.
        steps: kernels and nodes with results of one shape.
        outputs: the results that later steps or the caller read.
        constants: the arrays of constants.
    """
    if len(steps) < 2:
        return None
    nodes = [node for _, node in steps]
    results = {y: None for node in nodes for y in node.outputs}
    read = dict.fromkeys(x for node in nodes for x in node.inputs if x not in results)
    numbers: dict[Value, Value] = {
        x: Constant(np.asarray(constants[x]))
        for x in read
        if x in constants and x.spec.size == 1
    }
    inputs = tuple([x for x in read if x not in numbers])
    renamed = dict(numbers)
    inlined = tuple(_inline(nodes, renamed))
    body = Graph(inputs, inlined, tuple([renamed.get(y, y) for y in outputs]))
    if not inputs or not outputs or not _are_distinct(body):
        return None
    specs = tuple([y.spec for y in outputs])

    def spec(*operands: Spec, **attrs: object) -> Spec | tuple[Spec, ...]:
        return specs if len(specs) > 1 else specs[0]

    def trace(operands: object, attrs: object) -> Graph:
        return body

    fused = Primitive("fused_steps", Kind.COMPOSITE, spec, graph=trace)
    single = _single_kernels(steps, inputs, outputs, constants)
    kernel = _Checked(EagerPrograms(backend, fused, single), single)
    return kernel, Node(fused, inputs, {}, outputs)


def _single_kernels(
    steps: Sequence[_Step],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    constants: Mapping[Value, Array],
) -> Kernel:
    """Return a function that runs the kernels of steps one after the other."""
    given = set(inputs)
    arrays = {x: array for x, array in constants.items() if x not in given}
    return write_steps(steps, inputs, outputs, arrays)


def _are_distinct(body: Graph) -> bool:
    """Return whether each output is another value, and no input."""
    values = {*body.outputs}
    return len(values) == len(body.outputs) and values.isdisjoint(body.inputs)


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
