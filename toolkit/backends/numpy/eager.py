"""Generated code for large operations that run eagerly.

The shapes, strides and dtypes of the arrays, and the settings, select the code of a
call. A repeated call has bitwise the same result. Operations that only move, sort or
draw elements have the same results in the kernels of NumPy. Generated code replaces
these kernels from the second call on.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from importlib import import_module
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from toolkit import dtypes, settings
from toolkit.backends.base import Backend, Kernel, Operand, Share, contiguous
from toolkit.backends.places import Location, NodeOperands, Places, Shares
from toolkit.backends.target import rules
from toolkit.ir import Graph, Kind, Node, Primitive, Spec, Value
from toolkit.spares import RESULTS

if TYPE_CHECKING:
    from toolkit.backends.numpy.jit.lowering import Lowered
    from toolkit.backends.numpy.jit.runner import Runner

# The kinds of primitives with generated code, and the element counts from which it
# runs. NumPy is fast for primitives that cost few additions.
_KINDS = frozenset(
    {
        *(Kind.ELEMENTWISE, Kind.REDUCE, Kind.POOL, Kind.COMPOSITE),
        *(Kind.MOVE, Kind.INDEX, Kind.SORT, Kind.RANDOM),
    }
)
_ELEMENTS, _COSTLY_ELEMENTS, _COSTLY = 1 << 16, 1 << 15, 12
# A compiled program converts these dtypes to float32 in a separate pass.
_NARROW = ("float16", "bfloat16")
# The limit of programs for each operation. Further shapes run on NumPy. Programs for
# windows are specific to a shape, and programs are never dropped.
_MOST = 256
# Kinds with equal results in NumPy: the first call of a shape runs on NumPy.
_SAME = (Kind.MOVE, Kind.SORT, Kind.RANDOM)
_MOVED = ("gather", "take_along_axis", "dynamic_slice", "dynamic_update_slice")
_NOTHING = ("stop_gradient",)  # returns its operand unchanged
# Free scratch buffers for later calls: one for each calling thread, of at most this
# number of bytes.
_spare: list[Any] = []
_MOST_KEPT = 1 << 26


def eager_kernel(backend: Backend, primitive: Primitive, kernel: Kernel) -> Kernel:
    """Return a kernel that runs large calls with generated code if it is faster.

    Args:
        backend: the backend of the kernel.
        primitive: the primitive to compute.
        kernel: the kernel for calls without generated code.
    """
    size_of, minimum_size = _BY_NAME.get(primitive.name, (None, 0))
    is_left = primitive.kind not in _KINDS or primitive.name in _NOTHING
    if size_of is None and is_left:
        return kernel
    programs = Programs(backend, primitive, kernel)
    if size_of is not None:

        def named(*arrays: Any, **attrs: Any) -> Any:
            if size_of(*arrays, **attrs) < minimum_size:
                return kernel(*arrays, **attrs)
            return programs(*arrays, **attrs)

        return named
    is_costly = primitive.kind is Kind.COMPOSITE or primitive.cost >= _COSTLY
    elements = _COSTLY_ELEMENTS if is_costly else _ELEMENTS
    by_kind = _broadcast if primitive.kind is Kind.ELEMENTWISE else _largest

    def other(first: Any, *operands: Any, **attrs: Any) -> Any:
        size_limit = first.size
        for x in operands:
            size_limit *= x.size
        if size_limit < elements or by_kind(first, *operands) < elements:
            return kernel(first, *operands, **attrs)
        return programs(first, *operands, **attrs)

    return other


def _largest(*arrays: Any) -> int:
    """Return the size of the largest operand."""
    size: int = max(x.size for x in arrays)
    return size


def _broadcast(*arrays: Any) -> int:
    """Return the size of an elementwise result."""
    return np.broadcast(*arrays).size


def _multiplied(first: Any, second: Any, **attrs: Any) -> int:
    """Return the multiplications of a product: elements times columns or filters."""
    size: int = first.size * second.shape[-1]
    return size


def _gathered(x: Any, indices: Any, *, axis: int) -> int:
    """Return the number of gathered elements."""
    size: int = indices.size * (x.size // max(1, x.shape[axis]))
    return size


def _transformed(
    first: Any, *operands: Any, axis: int = -1, length: int = 0, **attrs: Any
) -> int:
    """Return the size of an operand if code for its length is likely to be reused.

    Code is specific to a length. The lengths of whole signals vary without limit, so
    only powers of two count.
    """
    n = length or first.shape[axis]
    return first.size if n & (n - 1) == 0 else 0


def _drawn(key: Any, *, shape: Sequence[int], **attrs: Any) -> int:
    """Return the number of drawn elements."""
    return prod(shape)


# The work of a call by primitive, and the work from which generated code runs. NumPy
# computes matrix products with BLAS, and copies windows before it reduces them.
_BY_NAME: dict[str, tuple[Callable[..., int], int]] = {
    "matmul": (_multiplied, 1 << 21),
    "conv": (_multiplied, 1 << 16),
    "conv_input_grad": (_multiplied, 1 << 16),
    "conv_kernel_grad": (_multiplied, 1 << 16),
    "dft": (_transformed, 1 << 14),
    "rdft": (_transformed, 1 << 14),
    "irdft": (_transformed, 1 << 13),
    "gather": (_gathered, _ELEMENTS),
    "random_uniform": (_drawn, _ELEMENTS),
}


def _exact(value: Any) -> Hashable:
    """Return a key for an attribute that separates 0.0 from -0.0 and equates NaNs."""
    return value.hex() if type(value) is float else value


class Programs:
    """Programs of one node for calls of one primitive, by the shapes of their arrays.

    Args:
        backend: the backend of the programs.
        primitive: the primitive to compute.
        kernel: the kernel for calls without generated code.
    """

    def __init__(self, backend: Backend, primitive: Primitive, kernel: Kernel) -> None:
        self._backend, self._primitive, self._kernel = backend, primitive, kernel
        self._found: dict[Hashable, _Program] = {}
        self._refused: set[Hashable] = set()  # keys without a program
        # Keys of the first calls of primitives with equal results in NumPy.
        self._once: set[Hashable] = set()
        self._is_same = primitive.kind in _SAME or primitive.name in _MOVED

    def __call__(self, *arrays: Any, **attrs: Any) -> Any:
        if rules.plain or rules.rows_independent or rules.processor is not None:
            return self._kernel(*arrays, **attrs)
        signature = tuple([(type(x), x.shape, x.strides, x.dtype) for x in arrays])
        key = settings.placement(), signature, *map(_exact, attrs.values())
        program = self._found.get(key)
        if program is None and self._is_wanted(key):
            # A reentrant call, for example in a signal handler, runs on NumPy.
            with rules.inside(plain=True):
                program = self._remember(key, self._made(signature, attrs))
        return self._kernel(*arrays, **attrs) if program is None else program(*arrays)

    def _is_wanted(self, key: Hashable) -> bool:
        """Return whether to build a program for a key."""
        if key in self._refused or len(self._found) >= _MOST:
            return False
        if self._is_same and key not in self._once:
            if len(self._once) >= _MOST:
                self._once.clear()
            self._once.add(key)
            return False
        return True

    def _remember(self, key: Hashable, program: _Program | None) -> _Program | None:
        if program is not None:
            self._found[key] = program
        else:
            if len(self._refused) >= _MOST:
                self._refused.clear()
            self._refused.add(key)
        return program

    def _made(
        self, signature: tuple[Any, ...], attrs: dict[str, Any]
    ) -> _Program | None:
        """Build the program for arrays of these types, shapes, strides and dtypes."""
        inputs = []
        for kind, shape, strides, dtype in signature:
            # Code loads the data pointer from the array object; scalars have none.
            if kind is not np.ndarray or not dtype.isnative:
                return None
            inputs.append(Operand(Spec(shape, dtypes.name_of(dtype)), strides))
        return _program(self._backend, self._primitive, inputs, attrs)


def _program(
    backend: Backend, primitive: Primitive, inputs: list[Operand], attrs: dict[str, Any]
) -> _Program | None:
    """Return a program of one node, or None without generated code or elements."""
    specs = [x.spec for x in inputs]
    result = primitive.spec(*specs, **attrs)
    outputs = [
        contiguous(spec) for spec in (result if type(result) is tuple else (result,))
    ]
    if any(x.spec.dtype in _NARROW or not x.spec.size for x in (*inputs, *outputs)):
        return None
    values = [[Value(x.spec) for x in operands] for operands in (inputs, outputs)]
    lowered = _lowered(
        backend, Node(primitive, values[0], attrs, values[1]), inputs, outputs
    )
    return None if lowered is None else _Program(backend, lowered, inputs, outputs)


def _lowered(
    backend: Backend, node: Node, inputs: list[Operand], outputs: list[Operand]
) -> Lowered | None:
    lowered: Lowered | None = None
    if node.op.graph is None:
        body = Graph(node.inputs, (node,), node.outputs)
    else:
        body = node.op.graph((x.spec for x in node.inputs), node.attrs).pruned()
    if all(map(backend.can_fuse, body.nodes)):
        jit = import_module("toolkit.backends.numpy.jit.lowering")
        lowered = jit.lowering("fused")(body, inputs, outputs)
    if lowered is None and node.op.graph is None:
        lowered = backend.lower(node, inputs, outputs)
    return lowered


class _Program:
    """The code of one node, and idle runners: one for each concurrent thread."""

    def __init__(
        self,
        backend: Backend,
        lowered: Lowered,
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
    ) -> None:
        self._backend, self._work = backend, lowered.work
        self._specs = [x.spec for x in (*inputs, *outputs)]
        self._results = [
            (y.spec.shape, dtypes.numpy_dtype(y.spec.dtype)) for y in outputs
        ]
        shares = [
            Share(i, x.spec.nbytes, x.is_contiguous)
            for i, x in enumerate((*inputs, *outputs))
        ]
        arrays = [Location(i, 0) for i in range(len(shares) + 1)]
        count = len(inputs)
        self._places = Places(
            [NodeOperands(arrays[:count], arrays[count:-1], arrays[-1])]
        )
        work = Share("work", lowered.work, False)
        self._code = backend.assemble(
            [lowered], Shares([NodeOperands(shares[:count], shares[count:], work)]), 1
        )
        self._idle: list[Runner] = []

    def __call__(self, *arrays: Any) -> Any:
        try:
            runner = self._idle.pop()
        except IndexError:
            runner = self._bound()
        results = [RESULTS.empty(*result) for result in self._results]
        work = self._take() if self._work else None
        runner.objects[:] = [*map(id, arrays), *map(id, results), id(work)]
        runner.run()
        self._idle.append(runner)
        if 0 < self._work <= _MOST_KEPT:
            _spare.append(work)
        return results[0] if len(results) == 1 else tuple(results)

    def _take(self) -> Any:
        """Return scratch memory that no concurrent call uses."""
        try:
            block = _spare.pop()
        except IndexError:
            block = None
        if block is None or block.nbytes < self._work:
            block = self._backend.arena(self._work)
        return block

    def _bound(self) -> Runner:
        runner: Runner = self._code.bind(
            self._places,
            self._backend.call_table([*self._specs, Spec((self._work,), "uint8")], ()),
        )
        return runner
