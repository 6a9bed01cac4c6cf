"""Programs that replace many steps of a frequent eager call.

A step costs about a microsecond of Python, and a program about three. A program has the
same bits: it contains only operations with one possible result, and no pass rewrites
them. It replaces the steps if it is faster in its first calls.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from threading import Lock
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np

from toolkit.backends.base import Backend
from toolkit.backends.kernels import DirectCall, Kernel, Reads
from toolkit.backends.step_function import write_steps
from toolkit.backends.target import Target
from toolkit.compiler.bound import BoundProgram
from toolkit.compiler.passes.rewriting import expand
from toolkit.compiler.pipeline import compile_program
from toolkit.compiler.plain_calls import make_step_call
from toolkit.ir import Graph, Kind, Node, Primitive, Spec, Value
from toolkit.ir.value import Constant

Array = Any
_Step: TypeAlias = tuple[Kernel, Node]
# The axes of an array by decreasing strides; None for row-major order.
_Order: TypeAlias = tuple[int, ...] | None
# The time of a step in calls of NumPy, and the least time of the steps of a program. A
# step of these kinds is a call of generated code, like a program.
_GENERATED_KINDS, _GENERATED_TIME = (Kind.INDEX, Kind.SORT, Kind.RANDOM), 3
_MIN_TIME = 4
# The elements of a large result. One loop computes elementwise steps of this size, see
# `Backend.fuse_steps`, and a program saves memory accesses.
_LARGE, _ELEMENTWISE = 1 << 15, (Kind.ELEMENTWISE, Kind.COMPOSITE)
# The bytes of the scratch memory of one program and of all programs, and their number.
# Each program keeps its memory.
_MAX_WORK, _MAX_TOTAL_WORK, _MAX_PROGRAMS = 1 << 23, 1 << 26, 512
# Calls that run both the program and the steps, to compare results and times.
_TRIALS = 4
_programs: weakref.WeakSet[BoundProgram] = weakref.WeakSet()
_lock = Lock()


def count() -> int:
    """Return the number of programs."""
    return len(_programs)


def use_programs(
    backend: Backend,
    steps: Sequence[_Step],
    outputs: Sequence[Value],
    constants: Mapping[Value, Array],
) -> list[_Step]:
    """Return steps in which programs replace consecutive steps.

    Args:
        backend: the backend of the kernels.
        steps: kernels and nodes, in order.
        outputs: the values that the steps compute for the caller.
        constants: the arrays of the other values that the steps read.
    """
    readers = Counter(x for _, node in steps for x in node.inputs)
    readers.update(outputs)
    replaced = list[_Step]()
    for segment in _find_segments(backend, steps):
        replaced += _replace(backend, segment, readers, constants)
    return replaced


def _find_segments(backend: Backend, steps: Sequence[_Step]) -> Iterator[list[_Step]]:
    """Yield the steps in segments. Each is one step, or has a program.

    Other steps move before a segment if they read none of its results.
    """
    segment, results = list[_Step](), dict[Value, Reads]()
    for step in steps:
        _, node = step
        reads = max([Reads.EVEN, *(results[x] for x in node.inputs if x in results)])
        if backend.has_equal_code(*step, reads):
            segment.append(step)
            results.update(dict.fromkeys(node.outputs, _reads_of(node, results)))
            continue
        if not results.keys().isdisjoint(node.inputs):
            yield segment
            segment, results = [], {}
        yield [step]
    if segment:
        yield segment


def _reads_of(node: Node, known: Mapping[Value, Reads]) -> Reads:
    """Return the arrays that a loop reads to compute the results of a node.

    Args:
        node: the node.
        known: the same for values of the segment. Other values are contiguous.
    """
    if node.op.kind is Kind.REDUCE:
        return Reads.ROWS
    is_view = node.op.name == "broadcast_to" or _adds_axes(node)
    if node.op.kind not in _ELEMENTWISE and not is_view:
        return Reads.ANY
    size, reads = node.outputs[0].spec.size, Reads.EVEN
    for x in node.inputs:
        of_operand = known.get(x, Reads.EVEN)
        if x.spec.size != size and of_operand is not Reads.ANY:
            of_operand = Reads.EVEN if x.spec.size == 1 else Reads.BROADCAST
        reads = max(reads, of_operand)
    return reads


def _adds_axes(node: Node) -> bool:
    """Return whether a node only adds or removes axes of one element."""
    if node.op.name != "reshape":
        return False
    shapes = [x.spec.shape for x in (*node.inputs, *node.outputs)]
    before, after = ([n for n in shape if n != 1] for shape in shapes)
    return before == after


def _replace(
    backend: Backend,
    segment: list[_Step],
    readers: Counter[Value],
    constants: Mapping[Value, Array],
) -> list[_Step]:
    """Return steps that compute the results of a segment.

    Args:
        backend: the backend of the kernels.
        segment: the steps.
        readers: the number of readers of each value.
        constants: the arrays of constants.
    """
    if not _is_worthwhile([step[1] for step in segment if not _is_view(step)]):
        return segment
    inner, outer = _divide(segment, readers)
    inner_readers = Counter(x for _, node in inner for x in node.inputs)
    read = {x for x, number in readers.items() if number > inner_readers[x]}
    read.update(x for _, view in outer for x in view.inputs)
    results = [y for step in inner if not _is_view(step) for y in step[1].outputs]
    outputs = [y for y in results if y in read]
    program = _program(backend, inner, outputs, constants)
    return segment if program is None else [program, *outer]


def _is_worthwhile(nodes: Sequence[Node]) -> bool:
    """Return whether a program can be faster than the steps of nodes without views."""
    if len(nodes) < 2:
        return False
    if max(y.spec.size for node in nodes for y in node.outputs) >= _LARGE:
        return not all(node.op.kind in _ELEMENTWISE for node in nodes)
    generated = sum(node.op.kind in _GENERATED_KINDS for node in nodes)
    return len(nodes) + (_GENERATED_TIME - 1) * generated >= _MIN_TIME


def _is_view(step: _Step) -> bool:
    return step[1].op.kind is Kind.VIEW


def _divide(
    segment: list[_Step], readers: Counter[Value]
) -> tuple[list[_Step], list[_Step]]:
    """Return the steps of a program, and the views that later steps read.

    A view can be among both. The program would copy it to return it.
    """
    inner, needed = list[_Step](), set[Value]()
    for step in reversed(segment):
        if not _is_view(step) or not needed.isdisjoint(step[1].outputs):
            needed.update(step[1].inputs)
            inner.append(step)
    inner.reverse()
    inner_readers = Counter(x for _, node in inner for x in node.inputs)
    read = {x for x, number in readers.items() if number > inner_readers[x]}
    outer = list[_Step]()
    for step in filter(_is_view, reversed(segment)):
        if not read.isdisjoint(step[1].outputs):
            read.update(step[1].inputs)
            outer.append(step)
    outer.reverse()
    return inner, outer


def _program(
    backend: Backend,
    steps: Sequence[_Step],
    outputs: Sequence[Value],
    constants: Mapping[Value, Array],
) -> _Step | None:
    """Return one step that runs a program, or None without a program.

    Args:
        backend: the backend of the kernels.
        steps: kernels and nodes.
        outputs: the results that later steps or the caller read.
        constants: the arrays of constants.
    """
    results = {y for _, node in steps for y in node.outputs}
    read = dict.fromkeys(x for _, node in steps for x in node.inputs)
    arrays = {
        x: Constant(np.asarray(constants[x]))
        for x in read
        if x in constants and x.constant is None
    }
    inputs = [x for x in read if x not in results and x not in constants]
    if not inputs or not outputs or len(_programs) >= _MAX_PROGRAMS:
        return None
    nodes = [
        node.with_inputs([arrays.get(x, x) for x in node.inputs]) for _, node in steps
    ]
    body = expand(Graph(tuple(inputs), tuple(nodes), tuple(outputs)), lambda node: True)
    program = compile_program(body, Target(backend, keeps_bits=True), "eager steps")
    if not program.is_plain or program.plan.nbytes > _MAX_WORK:
        return None
    bound = BoundProgram(program)
    with _lock:
        total = sum(x.program.plan.nbytes for x in _programs)
        if total + program.plan.nbytes > _MAX_TOTAL_WORK:
            return None
        _programs.add(bound)
    single = _Steps(backend, steps, inputs, outputs, constants)
    return DirectCall(_Trial(bound, single)), Node(
        _primitive(outputs), inputs, {}, outputs
    )


def _primitive(outputs: Sequence[Value]) -> Primitive:
    """Return the primitive of a node that runs a program."""
    specs = tuple([y.spec for y in outputs])

    def spec(*operands: Spec, **attrs: object) -> Spec | tuple[Spec, ...]:
        return specs if len(specs) > 1 else specs[0]

    return Primitive("program", Kind.CONTROL, spec)


class _Steps:
    """Steps that a program can replace.

    Args:
        backend: the backend of the kernels.
        steps: kernels and nodes.
        inputs, outputs: the values that they read, and their results.
        constants: the arrays of constants.

    Attributes:
        run: a function of arrays that runs the steps.
    """

    def __init__(
        self,
        backend: Backend,
        steps: Sequence[_Step],
        inputs: Sequence[Value],
        outputs: Sequence[Value],
        constants: Mapping[Value, Array],
    ) -> None:
        self._backend, self._steps = backend, steps
        self._inputs, self._outputs = inputs, outputs
        read = {x for _, node in steps for x in node.inputs}
        self._constants = {x: y for x, y in constants.items() if x in read}
        self.run: Kernel = write_steps(
            backend.fuse_steps(steps, outputs, constants),
            inputs,
            outputs,
            self._constants,
        )

    def orders(self, arrays: Sequence[Array]) -> list[_Order] | None:
        """Return the order of axes in memory of each result, None if it is row-major.

        NumPy gives a result the order of axes of its operands. A reduction adds in
        another order for another order of axes.

        Args:
            arrays: the arrays of the inputs.

        Returns:
            The orders, or None if a reduction reads an array with another order of axes
            than the program.
        """
        values = {**self._constants, **dict(zip(self._inputs, arrays, strict=True))}
        last = {x: i for i, (_, node) in enumerate(self._steps) for x in node.inputs}
        orders = dict[Value, _Order]()
        for i, (kernel, node) in enumerate(self._steps):
            operands = [values[x] for x in node.inputs]
            if _adds_several(node) and not self._is_in_order(kernel, node, operands[0]):
                return None
            result = kernel(*operands, **node.attrs)
            results = result if isinstance(result, tuple) else (result,)
            for y, array in zip(node.outputs, results, strict=True):
                values[y], orders[y] = array, _order_of(array)
            for x in node.inputs:
                if last[x] == i:
                    values.pop(x, None)
        return [orders[y] for y in self._outputs]

    def _is_in_order(self, kernel: Kernel, node: Node, array: Array) -> bool:
        """Return whether a reduction of an array has the order of the program."""
        if not all(step or extent == 1 for step, extent in _axes_of(array)):
            # The array broadcasts.
            if not self._backend.has_equal_code(kernel, node, Reads.BROADCAST):
                return False
        return _order_of(array) is None


def _axes_of(array: Array) -> Iterator[tuple[int, int]]:
    """Return the stride and the extent of each axis."""
    return zip(array.strides, array.shape, strict=True)


def _adds_several(node: Node) -> bool:
    """Return whether a node combines more than two numbers."""
    if node.op.name not in ("sum", "prod", "max", "min"):
        return False
    (x,), (y,) = node.inputs, node.outputs
    return bool(x.spec.size > 2 * y.spec.size)


def _order_of(array: Array) -> _Order:
    """Return the axes of an array by decreasing strides; None if they are in order."""
    axes = list(enumerate(_axes_of(array)))
    strides = [(-step, i) for i, (step, extent) in axes if step and extent > 1]
    if strides == sorted(strides) and all(step < 0 for step, _ in strides):
        return None
    short = [i for i, (step, extent) in axes if not step or extent <= 1]
    return (*short, *[i for _, i in sorted(strides)])


def _reorder(order: tuple[int, ...], array: Array) -> Array:
    """Return a copy of a row-major array with another order of axes in memory."""
    return array.transpose(order).copy().transpose(np.argsort(order))


class _Trial:
    """Program that replaces steps, if it has the same bits and is faster.

    The results depend on the strides of the operands. So the program computes calls
    with the strides of the first call.

    Args:
        program: the program.
        steps: the steps.
    """

    def __init__(self, program: BoundProgram, steps: _Steps) -> None:
        self._steps, self._single = steps, steps.run
        self._program: BoundProgram | None = program
        self._run: Kernel = self._start
        # Calls of the program, and the seconds of the fastest call of both.
        self._num_calls, self._best = 0, [np.inf, np.inf]

    def __call__(self, *arrays: Array) -> object:
        return self._run(*arrays)

    def _start(self, *arrays: Array) -> object:
        """Run the steps in the first call."""
        orders, program = self._steps.orders(arrays), self._program
        if orders is None or program is None:
            self._reject()
        else:
            convert = [
                None if order is None else partial(_reorder, order) for order in orders
            ]
            strides = [x.strides for x in arrays]
            fused = make_step_call(program, strides, convert, self._single)
            self._run = partial(self._compare, fused)
        return self._single(*arrays)

    def _compare(self, fused: Kernel, *arrays: Array) -> object:
        """Return the results of the steps, and compare them with the program's."""
        self._num_calls += 1
        results = list[Any]()
        for i, run in enumerate((fused, self._single)):
            started = perf_counter()
            results.append(run(*arrays))
            self._best[i] = min(self._best[i], perf_counter() - started)
        if _bits(results[0]) != _bits(results[1]):
            self._reject()
        elif self._num_calls == _TRIALS:
            self._run = fused
            if self._best[0] >= self._best[1]:
                self._reject()
        return results[1]

    def _reject(self) -> None:
        """Run the steps from now on."""
        self._run, self._program = self._single, None


def _bits(results: object) -> list[tuple[object, ...]]:
    """Return the bits and the strides of results."""
    arrays = results if type(results) is tuple else (results,)
    return [(*_layout(np.asarray(y)), np.asarray(y).tobytes()) for y in arrays]


def _layout(array: Array) -> tuple[list[int], object]:
    """Return the strides of the axes with several elements, and the dtype."""
    return [step for step, extent in _axes_of(array) if extent > 1], array.dtype
