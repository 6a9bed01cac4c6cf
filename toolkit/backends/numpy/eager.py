"""Large operations that run eagerly, by generated code.

What computes a call follows from the shapes, strides and dtypes of its arrays and from
the settings, and does not change as long as these stay: a call that is repeated has the
same bits. What only moves, sorts or draws has the same bits by NumPy's kernels, and is
left to them until it comes again.
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

# What code is generated for, by kind, and from how many elements on; NumPy is quick at
# what costs few additions.
_KINDS = frozenset(
    {
        *(Kind.ELEMENTWISE, Kind.REDUCE, Kind.POOL, Kind.COMPOSITE),
        *(Kind.MOVE, Kind.INDEX, Kind.SORT, Kind.RANDOM),
    }
)
_ELEMENTS, _COSTLY_ELEMENTS, _COSTLY = 1 << 16, 1 << 15, 12
# What becomes float32 by a pass of its own where a program is compiled.
_NARROW = ("float16", "bfloat16")
# Calls of other shapes that programs are made for, of each operation: what has had none
# until then is left to NumPy. Code for windows is made for each shape, and it stays.
_MOST = 256
# What has the same bits by NumPy's kernels: the first call is left to them.
_SAME = (Kind.MOVE, Kind.SORT, Kind.RANDOM)
_MOVED = ("gather", "take_along_axis", "dynamic_slice", "dynamic_update_slice")
_NOTHING = ("stop_gradient",)  # what returns its operand as it is
# Scratch memory of calls that have ended, for the next ones: a block for each thread
# that calls, of no more than so many bytes.
_spare: list[Any] = []
_MOST_KEPT = 1 << 26


def eager_kernel(backend: Backend, primitive: Primitive, kernel: Kernel) -> Kernel:
    """A kernel that leaves large calls to generated code if that is worth it.

    Args:
        backend: that the kernel is of.
        primitive: what is computed.
        kernel: what computes it where no code is generated.
    """
    size_of, fewest = _BY_NAME.get(primitive.name, (None, 0))
    is_left = primitive.kind not in _KINDS or primitive.name in _NOTHING
    if size_of is None and is_left:
        return kernel
    programs = Programs(backend, primitive, kernel)
    if size_of is not None:

        def named(*arrays: Any, **attrs: Any) -> Any:
            if size_of(*arrays, **attrs) < fewest:
                return kernel(*arrays, **attrs)
            return programs(*arrays, **attrs)

        return named
    is_costly = primitive.kind is Kind.COMPOSITE or primitive.cost >= _COSTLY
    elements = _COSTLY_ELEMENTS if is_costly else _ELEMENTS
    by_kind = _broadcast if primitive.kind is Kind.ELEMENTWISE else _largest

    def other(first: Any, *others: Any, **attrs: Any) -> Any:
        most = first.size
        for x in others:
            most *= x.size
        if most < elements or by_kind(first, *others) < elements:
            return kernel(first, *others, **attrs)
        return programs(first, *others, **attrs)

    return other


def _largest(*arrays: Any) -> int:
    """The elements of the largest operand."""
    found: int = max(x.size for x in arrays)
    return found


def _broadcast(*arrays: Any) -> int:
    """The elements of an elementwise result."""
    return np.broadcast(*arrays).size


def _multiplied(first: Any, second: Any, **attrs: Any) -> int:
    """Products of an element and a column, or a filter, of a product."""
    size: int = first.size * second.shape[-1]
    return size


def _gathered(x: Any, indices: Any, *, axis: int) -> int:
    """The elements of what is gathered."""
    size: int = indices.size * (x.size // max(1, x.shape[axis]))
    return size


def _transformed(
    first: Any, *others: Any, axis: int = -1, length: int = 0, **attrs: Any
) -> int:
    """The elements of an operand, if code for its length may be needed again.

    Code is made for each length; signals that are not cut have ever new ones.
    """
    n = length or first.shape[axis]
    return first.size if n & (n - 1) == 0 else 0


def _drawn(key: Any, *, shape: Sequence[int], **attrs: Any) -> int:
    """The elements of what is drawn."""
    return prod(shape)


# How much there is to compute of an operation, and from how much on code is generated.
# NumPy takes a product of matrices to its BLAS, and gathers what windows see.
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
    """What tells an attribute from others, also 0.0 from -0.0, and NaN from none."""
    return value.hex() if type(value) is float else value


class Programs:
    """Programs of one node for calls of one primitive, by the shapes of their arrays.

    Args:
        backend: that the programs are for.
        primitive: what is computed.
        kernel: what computes it where no code is generated.
    """

    def __init__(self, backend: Backend, primitive: Primitive, kernel: Kernel) -> None:
        self._backend, self._primitive, self._kernel = backend, primitive, kernel
        self._found: dict[Hashable, _Program] = {}
        self._refused: set[Hashable] = set()  # of which there is no program
        # What came once, of a primitive whose kernel has the same bits.
        self._once: set[Hashable] = set()
        self._is_same = primitive.kind in _SAME or primitive.name in _MOVED

    def __call__(self, *arrays: Any, **attrs: Any) -> Any:
        if rules.plain or rules.rows_independent or rules.processor is not None:
            return self._kernel(*arrays, **attrs)
        signature = tuple([(type(x), x.shape, x.strides, x.dtype) for x in arrays])
        key = settings.placement(), signature, *map(_exact, attrs.values())
        program = self._found.get(key)
        if program is None and self._is_wanted(key):
            # What calls in the midst of this - a signal's handler - finds NumPy.
            with rules.inside(plain=True):
                program = self._remember(key, self._made(signature, attrs))
        return self._kernel(*arrays, **attrs) if program is None else program(*arrays)

    def _is_wanted(self, key: Hashable) -> bool:
        """Whether a program is to be made: of what comes again, if that is as well."""
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
        """The program for arrays of these types, shapes, strides and dtypes."""
        inputs = []
        for kind, shape, strides, dtype in signature:
            # Code finds the address of an array in the object: a scalar's has none.
            if kind is not np.ndarray or not dtype.isnative:
                return None
            inputs.append(Operand(Spec(shape, dtypes.name_of(dtype)), strides))
        return _program(self._backend, self._primitive, inputs, attrs)


def _program(
    backend: Backend, primitive: Primitive, inputs: list[Operand], attrs: dict[str, Any]
) -> _Program | None:
    """A program of one node; None if no code is generated for it, or of no results."""
    specs = [x.spec for x in inputs]
    made = primitive.spec(*specs, **attrs)
    outputs = [contiguous(spec) for spec in (made if type(made) is tuple else (made,))]
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
    found: Lowered | None = None
    if node.op.graph is None:
        body = Graph(node.inputs, (node,), node.outputs)
    else:
        body = node.op.graph((x.spec for x in node.inputs), node.attrs).pruned()
    if all(map(backend.fuses, body.nodes)):
        jit = import_module("toolkit.backends.numpy.jit.lowering")
        found = jit.lowering("fused")(body, inputs, outputs)
    if found is None and node.op.graph is None:
        found = backend.lower(node, inputs, outputs)
    return found


class _Program:
    """The calls of one node, and what runs them: one more for each thread that does."""

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
            self._places,
            self._backend.call_table([*self._specs, Spec((self._work,), "uint8")], ()),
        )
        return runner
