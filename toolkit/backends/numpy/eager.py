"""Generated code for large operations that run eagerly.

The shapes, strides and dtypes of the arrays, and the settings, select the code of a
call. A repeated call has bitwise the same result. Operations that only move, sort or
draw elements have the same results in the kernels of NumPy. Generated code replaces
these kernels from the second call on.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Iterable, Mapping, Sequence
from copy import copy
from math import prod
from struct import Struct
from typing import TYPE_CHECKING, Any

import numpy as np

from toolkit import dtypes, settings
from toolkit.backends.kernels import Attributes, DirectCall, Kernel
from toolkit.backends.numpy.call_work import (
    MIN_ELEMENTS,
    WORK_BY_NAME,
    largest_size,
)
from toolkit.backends.numpy.padded import PaddedPrograms, slow_in_numpy
from toolkit.backends.target import Target
from toolkit.buffer_pool import RESULT_POOL, on_release
from toolkit.ir import Graph, Kind, Node, Primitive, Spec, Value, fused_node
from toolkit.plans.locations import Location, NodeOperands, OperandLocations, Shares
from toolkit.plans.operands import Operand, OperandMemory, contiguous
from toolkit.plans.rules import rules
from toolkit.type_aliases import Array

if TYPE_CHECKING:
    from toolkit.backends.numpy.jit.calls import Lowered
    from toolkit.backends.numpy.jit.runner import Runner
    from toolkit.backends.numpy.kernels import NumPyBackend

# The kinds of primitives with generated code. For primitives that cost this number of
# additions, it runs from fewer elements on. NumPy is fast for cheap ones.
_GENERATED_KINDS = frozenset(
    {
        *(Kind.ELEMENTWISE, Kind.REDUCE, Kind.POOL, Kind.COMPOSITE),
        *(Kind.MOVE, Kind.INDEX, Kind.SORT, Kind.RANDOM),
    }
)
_MIN_COSTLY_ELEMENTS, _MIN_COST = 1 << 15, 12
# NumPy needs 30 ns for an element of a short row, and generated code 10 ns.
_MIN_SORTED_ELEMENTS = 1 << 13
# Generated code converts these dtypes to float32 and back, in the same loop.
_NARROW = ("float16", "bfloat16")
# Products of narrow floats with generated code, which adds in float32.
_NARROW_PRODUCTS = ("matmul", "conv", "conv_input_grad", "conv_kernel_grad")
# The limit of programs for each operation. Further shapes run on NumPy. Programs for
# windows are specific to a shape, and programs are never dropped.
# The second number limits the other strides whose programs a call finds by strides.
_MAX_PROGRAMS, _MAX_STRIDES = 256, 8
# Kinds with equal results in NumPy: the first call of a shape runs on NumPy.
_BITWISE_EQUAL_KINDS = (Kind.MOVE, Kind.SORT, Kind.RANDOM)
_BITWISE_EQUAL = ("gather", "take_along_axis", "dynamic_slice", "dynamic_update_slice")
# Of these, one or two calls of NumPy, which cost as much as a call of generated code.
_FAST_IN_NUMPY = ("concatenate", "bitcast", "as_complex", "as_real", "pad")
# They combine elements in the order of the indices, in any kernel.
_IN_ORDER = ("scatter", "put_along_axis")
_IDENTITIES = ("stop_gradient",)  # returns its operand unchanged
# Free scratch buffers for later calls: one for each calling thread, of at most this
# number of bytes.
_free_scratch: list[Any] = []
on_release(_free_scratch.clear)
# For each kernel that selects by size: the kernel of NumPy, and the generated code.
_kernels: weakref.WeakKeyDictionary[Kernel, tuple[Kernel, EagerPrograms]] = (
    weakref.WeakKeyDictionary()
)
_MAX_FREE_BYTES = 1 << 26


def eager_kernel(backend: NumPyBackend, primitive: Primitive, kernel: Kernel) -> Kernel:
    """Return a kernel that runs large calls with generated code if it is faster.

    Args:
        backend: the backend of the kernel.
        primitive: the primitive to compute.
        kernel: the kernel for calls without generated code.
    """
    size_of, minimum_size = WORK_BY_NAME.get(primitive.name, (None, 0))
    has_no_code = (
        primitive.kind not in _GENERATED_KINDS or primitive.name in _IDENTITIES
    )
    if size_of is None and has_no_code:
        return kernel
    programs = EagerPrograms(backend, primitive, kernel)
    if size_of is not None:

        def run_by_name(*arrays: Any, **attrs: Any) -> Any:
            if size_of(*arrays, **attrs) < minimum_size:
                return kernel(*arrays, **attrs)
            return programs(*arrays, **attrs)

        _kernels[run_by_name] = kernel, programs
        return run_by_name
    elements = _minimum_elements(primitive)
    is_slow, padded = slow_in_numpy(primitive), PaddedPrograms(programs, kernel)
    by_kind = _result_size if primitive.kind is Kind.ELEMENTWISE else largest_size

    def run_by_kind(first: Any, *operands: Any, **attrs: Any) -> Any:
        size_limit = first.size
        for x in operands:
            size_limit *= x.size
        if size_limit < elements or by_kind(first, *operands) < elements:
            if is_slow is not None and is_slow((first, *operands), attrs):
                return padded(first, *operands, **attrs)
            return kernel(first, *operands, **attrs)
        return programs(first, *operands, **attrs)

    _kernels[run_by_kind] = kernel, programs
    return run_by_kind


def sized_kernel(
    kernel: Kernel,
    primitive: Primitive,
    specs: Sequence[Spec],
    attrs: Mapping[str, object],
) -> Kernel:
    """Return the kernel that an `eager_kernel` selects for operands of these specs.

    Args:
        kernel: the `eager_kernel`.
        primitive: its primitive.
        specs: the specs of the operands.
        attrs: the attributes of the call.
    """
    if kernel not in _kernels or not specs:
        return kernel
    plain, programs = _kernels[kernel]
    size_of, minimum_size = WORK_BY_NAME.get(primitive.name, (None, 0))
    if size_of is not None:
        return plain if size_of(*specs, **attrs) < minimum_size else programs
    elements = _minimum_elements(primitive)
    sizes = [x.size for x in specs]
    if primitive.kind is Kind.ELEMENTWISE:
        sizes = [primitive.spec(*specs, **attrs).size]
    if prod(x.size for x in specs) >= elements and max(sizes) >= elements:
        return programs
    is_slow = slow_in_numpy(primitive)
    if is_slow is not None and is_slow(specs, attrs):
        return PaddedPrograms(programs, plain).bind(specs, attrs)
    return plain


def hot_kernel(
    kernel: Kernel,
    primitive: Primitive,
    specs: Sequence[Spec],
    attrs: Mapping[str, object],
) -> Kernel | None:
    """Return generated code with the bits of a kernel of NumPy, for many small calls.

    Args:
        kernel: the `eager_kernel`.
        primitive: its primitive.
        specs: the specs of the operands.
        attrs: the attributes of the call.

    Returns:
        The code; None if there is none, or if NumPy is as fast.
    """
    if kernel not in _kernels or primitive.name in _FAST_IN_NUMPY:
        return None
    _, programs = _kernels[kernel]
    is_equal = programs.is_bitwise_equal or primitive.name in _IN_ORDER
    if not (is_equal or _adds_once(primitive, specs, attrs)):
        return None
    # Arrays with other strides have programs, too.
    return programs.bind(specs, attrs, programs)


def _adds_once(primitive: Primitive, specs: Sequence[Spec], attrs: Attributes) -> bool:
    """Return whether an adjoint of pooling adds at most one number to each pixel.

    It adds the gradients of overlapping windows in another order than NumPy.
    """
    if primitive.name not in ("max_pool_scatter", "sum_pool_grad"):
        return False
    pairs = zip(attrs["strides"], attrs["window"], strict=True)
    return specs[0].dtype not in _NARROW and all(step >= size for step, size in pairs)


def _minimum_elements(primitive: Primitive) -> int:
    """Return the number of elements from which generated code runs."""
    if primitive.kind is Kind.SORT:
        return _MIN_SORTED_ELEMENTS
    is_costly = primitive.kind is Kind.COMPOSITE or primitive.cost >= _MIN_COST
    return _MIN_COSTLY_ELEMENTS if is_costly else MIN_ELEMENTS


def _result_size(*arrays: Any) -> int:
    """Return the size of an elementwise result."""
    return np.broadcast(*arrays).size


def _attribute_key(value: Any) -> Hashable:
    """Return a key for an attribute that separates 0.0 from -0.0 and equates NaNs."""
    return value.hex() if type(value) is float else value


def _needs_array_kernels() -> bool:
    """Return whether the rules of this thread exclude generated code."""
    return (
        rules.array_kernels_only
        or rules.rows_independent
        or rules.processor is not None
    )


def _signature(arrays: Iterable[Array]) -> tuple[Hashable, ...]:
    """Return the types of arrays, as far as generated code depends on them."""
    return tuple([(type(x), x.shape, x.strides, x.dtype) for x in arrays])


class GeneratedCall(DirectCall):
    """A call of generated code, for operands of known specs."""

    __slots__ = ()


class EagerPrograms:
    """Programs of one node for calls of one primitive, by the shapes of their arrays.

    Args:
        backend: the backend of the programs.
        primitive: the primitive to compute.
        kernel: the kernel for calls without generated code.
    """

    def __init__(
        self, backend: NumPyBackend, primitive: Primitive, kernel: Kernel
    ) -> None:
        self._backend, self._primitive, self._kernel = backend, primitive, kernel
        self._programs: dict[Hashable, _EagerProgram] = {}
        self._unsupported: set[Hashable] = set()  # keys without a program
        # Keys of the first calls of primitives with equal results in NumPy.
        self._first_calls: set[Hashable] = set()
        self.is_bitwise_equal = (
            primitive.kind in _BITWISE_EQUAL_KINDS or primitive.name in _BITWISE_EQUAL
        )

    def __call__(self, *arrays: Any, **attrs: Any) -> Any:
        if _needs_array_kernels():
            return self._kernel(*arrays, **attrs)
        signature = _signature(arrays)
        key = self._key(signature, attrs)
        program = self._programs.get(key)
        if program is None and self._needs_program(key):
            program = self._compile(key, signature, attrs)
        return self._kernel(*arrays, **attrs) if program is None else program(*arrays)

    def _key(self, signature: tuple[Hashable, ...], attrs: Attributes) -> Hashable:
        return settings.placement(), signature, *map(_attribute_key, attrs.values())

    def _compile(
        self, key: Hashable, signature: tuple[Any, ...], attrs: Attributes
    ) -> _EagerProgram | None:
        # A reentrant call, for example in a signal handler, runs on NumPy.
        with rules.override(array_kernels_only=True):
            return self._remember(key, self._build(signature, attrs))

    def bind(
        self,
        specs: Sequence[Spec],
        attrs: Attributes,
        otherwise: Kernel,
        shape: tuple[int, ...] | None = None,
    ) -> Kernel | None:
        """Return the program for contiguous arrays, or None without a program.

        Args:
            specs: the specs of the operands. One without axes has no program, because
                NumPy can return a scalar in place of its array.
            attrs: the attributes.
            otherwise: the kernel for other strides, and under other rules.
            shape: the shape of all operands and of the result; None: as in the specs.
        """
        if not all(x.ndim for x in specs):
            return None
        strides = [contiguous(x).strides for x in specs]
        signature = tuple(
            [
                (np.ndarray, x.shape, step, dtypes.numpy_dtype(x.dtype))
                for x, step in zip(specs, strides, strict=True)
            ]
        )
        key = self._key(signature, attrs)
        program = self._programs.get(key)
        if program is None:
            is_full = len(self._programs) >= _MAX_PROGRAMS
            if is_full or key in self._unsupported or _needs_array_kernels():
                return None
            program = self._compile(key, signature, attrs)
        if program is None:
            return None
        run = program if shape is None else program.with_shape(shape)
        if shape is not None:
            strides = [contiguous(x.with_shape(shape)).strides for x in specs]

        by_strides: dict[Hashable, _EagerProgram | None] = {}

        def call(*arrays: Any) -> object:
            received = [x.strides for x in arrays]
            if _needs_array_kernels():
                return otherwise(*arrays, **attrs)
            if received == strides:
                return run(*arrays)
            other = by_strides.get(tuple(received))
            if other is not None:
                return other(*arrays)
            result = otherwise(*arrays, **attrs)
            if otherwise is self and len(by_strides) < _MAX_STRIDES:
                key = self._key(_signature(arrays), attrs)
                by_strides[tuple(received)] = self._programs.get(key)
            return result

        return GeneratedCall(call)

    def _needs_program(self, key: Hashable) -> bool:
        """Return whether to build a program for a key."""
        if key in self._unsupported or len(self._programs) >= _MAX_PROGRAMS:
            return False
        if self.is_bitwise_equal and key not in self._first_calls:
            if len(self._first_calls) >= _MAX_PROGRAMS:
                self._first_calls.clear()
            self._first_calls.add(key)
            return False
        return True

    def _remember(
        self, key: Hashable, program: _EagerProgram | None
    ) -> _EagerProgram | None:
        if program is not None:
            self._programs[key] = program
        else:
            if len(self._unsupported) >= _MAX_PROGRAMS:
                self._unsupported.clear()
            self._unsupported.add(key)
        return program

    def _build(
        self, signature: tuple[Any, ...], attrs: Attributes
    ) -> _EagerProgram | None:
        """Build the program for arrays of these types, shapes, strides and dtypes."""
        inputs = []
        for kind, shape, strides, dtype in signature:
            # Code loads the data pointer from the array object; scalars have none.
            if kind is not np.ndarray or not dtype.isnative:
                return None
            inputs.append(Operand(Spec(shape, dtypes.name_of(dtype)), strides))
        return _build_program(self._backend, self._primitive, inputs, attrs)


def _build_program(
    backend: NumPyBackend,
    primitive: Primitive,
    inputs: list[Operand],
    attrs: Attributes,
) -> _EagerProgram | None:
    """Return a program of one node, or None without generated code or elements."""
    specs = [x.spec for x in inputs]
    result = primitive.spec(*specs, **attrs)
    outputs = [
        contiguous(spec) for spec in (result if type(result) is tuple else (result,))
    ]
    if not all(x.spec.size for x in (*inputs, *outputs)):
        return None
    values = [[Value(x.spec) for x in operands] for operands in (inputs, outputs)]
    lowered = _lower_node(
        backend, Node(primitive, values[0], attrs, values[1]), inputs, outputs
    )
    return None if lowered is None else _EagerProgram(backend, lowered, inputs, outputs)


def _lower_node(
    backend: NumPyBackend, node: Node, inputs: list[Operand], outputs: list[Operand]
) -> Lowered | None:
    generator = backend.llvm_generator
    lowered: Lowered | None = None
    if node.op.graph is None:
        body = Graph(node.inputs, (node,), node.outputs)
    else:
        body = node.op.graph((x.spec for x in node.inputs), node.attrs).pruned()
    is_wide = all(x.spec.dtype not in _NARROW for x in (*node.inputs, *node.outputs))
    for widen in () if is_wide else generator.passes.after_expansion:
        body = widen(body, Target(backend))
    if all(map(generator.can_fuse, body.nodes)):
        lowered = generator.lower_body(body, inputs, outputs)
    is_whole = node.op.graph is None or generator.can_lower_composite(node)
    if lowered is None and is_whole and is_wide:
        lowered = generator.lower(node, inputs, outputs)
    if lowered is None and not is_wide and node.op.name in _NARROW_PRODUCTS:
        for rewrite in generator.passes.before_fusion:
            body = rewrite(body, Target(backend))
        product, *casts = body.nodes
        if product.op.name in generator.anchors and all(map(generator.can_fuse, casts)):
            lowered = generator.lower(fused_node(body), inputs, outputs)
    return lowered


class _EagerProgram:
    """The code of one node, and idle runners: one for each concurrent thread."""

    def __init__(
        self,
        backend: NumPyBackend,
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
            OperandMemory(i, x.spec.nbytes, x.is_contiguous)
            for i, x in enumerate((*inputs, *outputs))
        ]
        arrays = [Location(i, 0) for i in range(len(shares) + 1)]
        count = len(inputs)
        self._locations = OperandLocations(
            [NodeOperands(arrays[:count], arrays[count:-1], arrays[-1])]
        )
        work = OperandMemory("work", lowered.work, False)
        # Small results need no pool, and the allocator of NumPy is faster.
        is_small = all(x.spec.nbytes < RESULT_POOL.min_nbytes for x in outputs)
        self._allocate = np.empty if is_small else RESULT_POOL.empty
        self._pack = Struct(f"{len(self._specs) + 1}q").pack_into
        self._code = backend.llvm_generator.assemble(
            [lowered], Shares([NodeOperands(shares[:count], shares[count:], work)]), 1
        )
        self._idle: list[Runner] = []

    def __call__(self, *arrays: Any) -> Any:
        try:
            runner = self._idle.pop()
        except IndexError:
            runner = self._bind_runner()
        allocate = self._allocate
        results = [allocate(shape, dtype) for shape, dtype in self._results]
        work = self._take_scratch() if self._work else None
        addresses = map(id, (*arrays, *results, work))
        self._pack(runner.objects, 0, *addresses)
        runner.run()
        self._idle.append(runner)
        if 0 < self._work <= _MAX_FREE_BYTES:
            _free_scratch.append(work)
        return results[0] if len(results) == 1 else tuple(results)

    def with_shape(self, shape: tuple[int, ...]) -> _EagerProgram:
        """Return the program with results of another shape, of the same size."""
        other = copy(self)
        other._results = [(shape, dtype) for _, dtype in self._results]
        other._idle = []
        return other

    def _take_scratch(self) -> Any:
        """Return scratch memory that no concurrent call uses."""
        try:
            block = _free_scratch.pop()
        except IndexError:
            block = None
        if block is None or block.nbytes < self._work:
            block = self._backend.memory.arena(self._work)
        return block

    def _bind_runner(self) -> Runner:
        runner: Runner = self._code.bind(
            self._locations,
            self._backend.llvm_generator.call_table(
                [*self._specs, Spec((self._work,), "uint8")], ()
            ),
        )
        return runner
