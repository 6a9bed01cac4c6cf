"""Large products, convolutions and costly functions that run eagerly, generated.

What computes a call follows from the shapes, strides and dtypes of its arrays alone: a
call that is repeated has the same bits.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from toolkit import dtypes
from toolkit.backends.base import Backend, Kernel, Operand, Share, contiguous
from toolkit.backends.places import Location, NodeOperands, Places, Shares
from toolkit.ir import Graph, Node, Primitive, Spec, Value

if TYPE_CHECKING:
    from toolkit.backends.numpy.jit.lowering import Lowered
    from toolkit.backends.numpy.jit.runner import Runner

# From how many products of an element and a column, or a filter, on code is generated.
# NumPy takes a product of matrices to its BLAS, and gathers what windows see.
_PRODUCTS = {
    "matmul": 1 << 21,
    "conv": 1 << 16,
    "conv_input_grad": 1 << 16,
    "conv_kernel_grad": 1 << 16,
}
# The same for functions of elements that cost so many additions each, in additions.
_COSTLY, _ADDITIONS = 12, 1 << 20
_DTYPES = ("float32", "float64")
# Calls of other shapes that are remembered, for each operation.
_MOST = 512
# Scratch memory of calls that have ended, for the next ones: a block for each thread
# that calls, of no more than so many bytes.
_spare: list[Any] = []
_MOST_KEPT = 1 << 26


def eager_kernel(backend: Backend, primitive: Primitive) -> Kernel:
    """A kernel that leaves large calls to generated code if that is worth it."""
    kernel = backend.kernels[primitive.name]
    if primitive.name in _PRODUCTS:
        return EagerKernel(backend, primitive, _columns, _PRODUCTS[primitive.name])
    if primitive.scalar is not None and primitive.cost >= _COSTLY:
        return EagerKernel(backend, primitive, _elements, _ADDITIONS // primitive.cost)
    return kernel


def _columns(first: Any, second: Any) -> int:
    """Elements of a factor times columns of the other."""
    size: int = first.size * second.shape[-1]
    return size


def _elements(first: Any, *others: Any) -> int:
    size: int = first.size
    return size


class EagerKernel:
    """A kernel that leaves large calls to programs of one node.

    Args:
        backend: of the kernel.
        primitive: what it computes; it has one result.
        measure: how large a call is, from its arrays.
        fewest: what is generated is as large.
    """

    def __init__(
        self,
        backend: Backend,
        primitive: Primitive,
        measure: Callable[..., int],
        fewest: int,
    ) -> None:
        self._backend, self._primitive = backend, primitive
        self._kernel = backend.kernels[primitive.name]
        self._measure, self._fewest = measure, fewest
        self._programs: OrderedDict[Hashable, _Program | None] = OrderedDict()

    def __call__(self, *arrays: Any, **attrs: Any) -> Any:
        if self._measure(*arrays) < self._fewest:
            return self._kernel(*arrays, **attrs)
        key = *[(a.shape, a.strides, a.dtype.char) for a in arrays], *attrs.values()
        try:
            program = self._programs[key]
        except KeyError:
            program = self._remember(key, arrays, attrs)
        return self._kernel(*arrays, **attrs) if program is None else program(*arrays)

    def _remember(
        self, key: Hashable, arrays: tuple[Any, ...], attrs: dict[str, Any]
    ) -> _Program | None:
        inputs = [operand_of(array) for array in arrays]
        program = None
        if all(x.spec.dtype in _DTYPES for x in inputs):
            program = _program(self._backend, self._primitive, inputs, attrs)
        self._programs[key] = program
        if len(self._programs) > _MOST:
            self._programs.popitem(last=False)
        return program


def operand_of(array: Any) -> Operand:
    """An array as a lowering sees it."""
    return Operand(Spec(array.shape, dtypes.name_of(array.dtype)), array.strides)


def _program(
    backend: Backend, primitive: Primitive, inputs: list[Operand], attrs: dict[str, Any]
) -> _Program | None:
    """A program of one node; None if no code is generated for it, or of no results."""
    spec = primitive.spec(*(x.spec for x in inputs), **attrs)
    if not spec.size:
        return None
    values = [Value(x.spec) for x in inputs]
    node = Node(primitive, values, attrs, [Value(spec)])
    lowered = _lowered(backend, node, inputs, [contiguous(spec)])
    return None if lowered is None else _Program(backend, lowered, inputs, spec)


def _lowered(
    backend: Backend, node: Node, inputs: list[Operand], outputs: list[Operand]
) -> Lowered | None:
    if node.op.scalar is None:
        found: Lowered | None = backend.lower(node, inputs, outputs)
        return found
    if not backend.fuses(node):
        return None
    jit = import_module("toolkit.backends.numpy.jit.lowering")
    body = Graph(node.inputs, (node,), node.outputs)
    found = jit.lowering("fused")(body, inputs, outputs)
    return found


class _Program:
    """The calls of one node, and what runs them: one more for each thread that does."""

    def __init__(
        self, backend: Backend, lowered: Lowered, inputs: list[Operand], spec: Spec
    ) -> None:
        self._spec, self._work, count = spec, lowered.work, len(inputs)
        self._dtype = dtypes.numpy_dtype(spec.dtype)
        shares = NodeOperands(
            [Share(i, x.spec.nbytes, x.is_contiguous) for i, x in enumerate(inputs)],
            [Share("out", spec.nbytes, True)],
            Share("work", lowered.work, False),
        )
        places = NodeOperands(
            [Location(i, 0) for i in range(count)],
            [Location(count, 0)],
            Location(count + 1, 0),
        )
        self._specs = [*(x.spec for x in inputs), spec, Spec((lowered.work,), "uint8")]
        self._places = Places([places])
        self._backend = backend
        self._code = backend.assemble([lowered], Shares([shares]), 1)
        self._idle: list[Runner] = []

    def __call__(self, *arrays: Any) -> Any:
        try:
            runner = self._idle.pop()
        except IndexError:
            runner = self._bound()
        out = np.empty(self._spec.shape, self._dtype)
        work = self._take() if self._work else out
        runner.objects[:] = [*map(id, arrays), id(out), id(work)]
        runner.run()
        self._idle.append(runner)
        if 0 < self._work <= _MOST_KEPT:
            _spare.append(work)
        return out

    def _take(self) -> Any:
        """Scratch memory that no other call uses at the moment."""
        try:
            block = _spare.pop()
        except IndexError:
            block = None
        if block is None or block.nbytes < self._work:
            block = self._backend.arena(self._work)
        return block

    def _bound(self) -> Runner:
        runner: Runner = self._code.bind(
            self._places, self._backend.call_table(self._specs, ())
        )
        return runner
