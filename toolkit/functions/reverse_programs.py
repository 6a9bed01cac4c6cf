"""Compiled reverse passes of tapes outside of traced functions.

A training loop records the same operations in each step. Its first gradient compiles a
program for this sequence of operations, and later gradients find the program by it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from toolkit import dtypes
from toolkit.autodiff import tape as tapes
from toolkit.autodiff.tape import GradientTape
from toolkit.compiler import distribution_context
from toolkit.core.slices import slices_of
from toolkit.core.tensor import Tensor, backend, state
from toolkit.core.trace import Trace
from toolkit.core.variable import Variable
from toolkit.functions.concrete_function import ConcreteFunction
from toolkit.functions.function import Function
from toolkit.functions.garbage_collection import paused_collection
from toolkit.ir import Node, Spec
from toolkit.ir.primitive import PRIMITIVES
from toolkit.settings import placement

# Programs that are kept, and operations of the largest one.
_MAX_PROGRAMS, _MAX_NODES = 64, 2000
# Sequences that may follow each other without one that has a program already. A loop
# with another sequence in each step, for example of another length, is not compiled.
_MAX_MISSES = 8

_programs: dict[Any, ConcreteFunction | None] = {}
_lock = threading.Lock()
_misses = 0


def count() -> int:
    """Return the number of programs."""
    return sum(program is not None for program in _programs.values())


def clear() -> None:
    """Remove all programs."""
    global _misses
    with _lock:
        _programs.clear()
        _misses = 0


class _Record:
    """Description of the operations of a tape, of its targets and its sources.

    Attributes:
        key: the description, equal for tapes that can share a program.
        values: the leaves and the results of the operations, in the order of the key.
        indices: the position of each value.
    """

    def __init__(
        self, tape: GradientTape, targets: Sequence[Tensor], sources: Sequence[object]
    ) -> None:
        indices: dict[Tensor, int] = {}
        constants: dict[Tensor, int] = {}
        values: list[Tensor] = []
        parts: list[Any] = []
        watched = tape._watched

        def index(x: Tensor) -> int:
            number = indices.get(x)
            if number is None:
                number = len(values)
                # Each use of a constant counts as another tensor: a replay of an
                # operation uses one tensor in all calls, and Python code a new one.
                (indices if x in watched else constants)[x] = number
                values.append(x)
                parts.append((x._array.shape, x._dtype, x in watched))
            return number

        for node in tape._nodes:
            parts.append((node.op, _attributes(node.attrs)))
            parts.extend(map(index, node.inputs))
            for y in node.outputs:
                indices[y] = len(values)
                values.append(y)
        self.target_indices = [index(y) for y in targets]
        self.source_indices = [
            [index(x) for x in tape._tensors_of([source])] for source in sources
        ]
        self.key = (
            tuple(parts),
            tuple(self.target_indices),
            tuple(map(tuple, self.source_indices)),
            backend(),
            placement(),
        )
        self.values, self.indices = values, constants | indices


def _attributes(attrs: Mapping[str, object]) -> tuple[object, ...]:
    """Return attributes as a key; 0.0 and -0.0, and 1 and 1.0, are different."""
    return tuple(
        (name, type(value), value.hex() if type(value) is float else value)
        for name, value in attrs.items()
    )


def reverse(
    tape: GradientTape, targets: Sequence[Any], sources: Sequence[Any]
) -> list[Tensor | None] | None:
    """Return the gradient of each source by a compiled program.

    Args:
        tape: a tape that has recorded the targets.
        targets: tensors, whose sum is differentiated.
        sources: Variables and tensors.

    Returns:
        The gradients, each None or a tensor; or None if operations cannot be compiled,
        or no source is a Variable.
    """
    global _misses
    if not _is_possible(tape, targets, sources):
        return None
    try:
        record = _Record(tape, targets, sources)
        is_known = record.key in _programs
    except TypeError:  # an attribute is not hashable, such as a graph
        return None
    program = _programs[record.key] if is_known else _compile(tape, record)
    if program is None:
        return None
    if is_known:
        _misses = 0
    gradients: list[Tensor | None] = program.call(record.values)
    return gradients


def _is_possible(
    tape: GradientTape, targets: Sequence[object], sources: Sequence[object]
) -> bool:
    if state.tapes or state.trace is not None or state.overlay is not None:
        return False
    if state.marks or distribution_context.current() is not None:
        return False
    if not any(isinstance(source, Variable) for source in sources):
        return False
    kind, nodes = type(tape), tape._nodes
    if kind._pull_back is not GradientTape._pull_back:
        return False  # it observes the pass
    if not nodes or len(nodes) > _MAX_NODES or backend().is_accelerator:
        return False
    if not all(type(y) is Tensor and dtypes.is_float(y.dtype) for y in targets):
        return False
    return all(PRIMITIVES.get(node.op.name) is node.op for node in nodes)


def _compile(tape: GradientTape, record: _Record) -> ConcreteFunction | None:
    """Compile the reverse pass of a tape; None if it stays in Python."""
    global _misses
    with _lock:
        if _misses >= _MAX_MISSES or len(_programs) >= _MAX_PROGRAMS:
            return None
        _misses += 1
        try:
            with paused_collection():
                program = _trace(tape, record)
        except Exception:  # the pass in Python raises it, with the lines of the user
            program = None
        _programs[record.key] = program
        return program


def _trace(tape: GradientTape, record: _Record) -> ConcreteFunction | None:
    """Trace the reverse pass; None if a gradient is sparse."""
    with Trace("gradient", creates_variables=False) as trace:
        inputs = [
            trace.placeholder(Spec(x._array.shape, x._dtype)) for x in record.values
        ]
        for x, placeholder in zip(record.values, inputs, strict=True):
            placeholder._origin = x.origin

        def local(xs: Sequence[Tensor]) -> list[Tensor]:
            return [inputs[record.indices[x]] for x in xs]

        shadow = GradientTape(watch_accessed_variables=False)
        shadow._nodes = [
            Node(node.op, local(node.inputs), node.attrs, local(node.outputs))
            for node in tape._nodes
        ]
        shadow._watched = set(local([x for x in record.values if x in tape._watched]))
        reads = [[inputs[i] for i in indices] for indices in record.source_indices]
        gradients = shadow.gradient(
            [inputs[i] for i in record.target_indices],
            [x for tensors in reads for x in tensors],
        )
        totals, position = [], 0
        for tensors in reads:
            parts = [
                g
                for g in gradients[position : position + len(tensors)]
                if g is not None
            ]
            position += len(tensors)
            totals.append(tapes.add_all(parts))
        if any(map(slices_of, totals)) or trace.captures or trace.writes:
            return None
    return ConcreteFunction("gradient", trace, totals, True, Function)


tapes.reverse_passes.append(reverse)
