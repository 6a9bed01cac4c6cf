"""Eager composites on a backend without a kernel for them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, NamedTuple

from toolkit import dtypes
from toolkit.backends.kernels import Kernel
from toolkit.ir import Primitive, Spec

if TYPE_CHECKING:
    from toolkit.backends.base import Backend

# The maximum number of cached signatures per composite.
_MAX_SIGNATURES = 1024


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
        self._bodies: dict[Hashable, _Body | None] = {}

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
            body = self._bodies[key] = self._plan_body(signature, attrs)
        values = [*arrays, *body.constants]
        for kernel, inputs, node_attrs, has_one_result, dead in body.steps:
            operands = [values[i] for i in inputs]
            result = kernel(*operands, **node_attrs)
            if result is None:  # the first call of a nested composite
                result = kernel(*operands, **node_attrs)
            if has_one_result:
                values.append(result)
            else:
                values.extend(result)
            for i in dead:
                values[i] = None
        results = tuple([values[i] for i in body.results])
        return results if len(results) > 1 else results[0]

    def _plan_body(self, signature: tuple[Any, ...], attrs: dict[str, Any]) -> _Body:
        specs = [Spec(shape, dtypes.name_of(dtype)) for shape, dtype in signature]
        traced: Any = self._primitive.graph
        graph = traced(specs, attrs).pruned()
        slots = {value: i for i, value in enumerate(graph.inputs)}
        constants = []
        read = (x for node in graph.nodes for x in node.inputs)
        for value in (*read, *graph.outputs):
            if value.constant is not None and value not in slots:
                slots[value] = len(slots)
                constants.append(self._backend.memory.asarray(value.constant))
        last, steps = graph.last_uses(), []
        for i, node in enumerate(graph.nodes):
            for y in node.outputs:
                slots[y] = len(slots)
            dead = {x for x in (*node.inputs, *node.outputs) if last.get(x, i) == i}
            steps.append(
                _Step(
                    self._backend.eager_kernel(node.op),
                    tuple(slots[x] for x in node.inputs),
                    node.attrs,
                    len(node.outputs) == 1,
                    tuple(slots[x] for x in dead if x.constant is None),
                )
            )
        return _Body(constants, steps, [slots[y] for y in graph.outputs])


class _Step(NamedTuple):
    """A kernel, the indices of its inputs, and the values without later readers."""

    kernel: Kernel
    inputs: tuple[int, ...]
    attrs: dict[str, Any]
    has_one_result: bool  # whether it has one result
    dead: tuple[int, ...]


class _Body(NamedTuple):
    """The steps for one signature."""

    constants: list[Any]  # the constants, after the arrays of a call
    steps: list[_Step]
    results: list[int]
