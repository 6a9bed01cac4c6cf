"""Compiled reverse passes of tapes outside of traced functions.

A training loop records the same operations in each step. Its first gradient compiles a
program for this sequence of operations, and later gradients find the program by it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeAlias

from toolkit import settings
from toolkit.autodiff import tape as tapes
from toolkit.autodiff.tape import GradientTape
from toolkit.backends import devices
from toolkit.core.slices import slices_of
from toolkit.core.tensor import Tensor
from toolkit.core.trace import Trace
from toolkit.core.variable import Variable
from toolkit.functions import reverse_replays
from toolkit.functions.concrete_function import ConcreteFunction
from toolkit.functions.function import Function
from toolkit.functions.garbage_collection import paused_collection
from toolkit.functions.tape_keys import (
    CallKey,
    OperationKey,
    has_registered_operations,
    is_possible,
    require_values,
    reverse_on,
)
from toolkit.ir import Spec

# Programs that are kept.
_MAX_PROGRAMS = 64
# Consecutive sequences without one that has a program already. A loop
# with another sequence in each step, for example of another length, is not compiled.
_MAX_MISSES = 8
# Keys of calls. Several can have the same operations.
_MAX_CALLS = 256

# A program, and the indices of the values that it reads.
_Program: TypeAlias = tuple[ConcreteFunction, list[int]]
_programs: dict[Any, _Program | None] = {}
# The program of a call, and the positions of its arguments among the values.
_Cached: TypeAlias = tuple[Callable[..., Any] | None, list[int]]
_calls: dict[Hashable, _Cached] = {}
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
    _forget_calls()


def _forget_calls() -> None:
    """Remove the keys of calls: a setting or a backend has changed.

    A thread that finds a program at this moment adds it to the removed keys.
    """
    global _calls
    _calls = {}


settings.on_change(_forget_calls)
devices.on_backend_change(_forget_calls)


def reverse(
    tape: GradientTape,
    targets: Sequence[Tensor],
    sources: Sequence[object],
    weights: Sequence[object] | None,
) -> list[Tensor | None] | None:
    """Return the gradient of each source by a compiled program.

    Args:
        tape: a tape that has recorded the targets.
        targets: tensors, whose sum is differentiated.
        sources: Variables and tensors.
        weights: weights of the targets; only None has programs.

    Returns:
        The gradients, each None or a tensor; or None if operations cannot be compiled,
        or no source is a Variable.
    """
    global _misses
    if weights is not None:
        return None
    if not any(isinstance(source, Variable) for source in sources):
        return None
    if not is_possible(tape, targets):
        return None
    calls = _calls
    try:
        call = CallKey(tape, targets, sources)
        cached = calls.get(call.key)
    except TypeError:  # an attribute is not hashable, such as a graph
        return None
    values = None if cached is None else call.read(cached[1])
    if cached is None or values is None:
        if not has_registered_operations(tape):
            return None
        # The key of the operations computes the values that the tape does not store.
        record = OperationKey(tape, targets, sources)
        call = CallKey(tape, targets, sources)
        cached = _find(calls, tape, call, record)
        values = call.read(cached[1])
    elif cached[0] is not None:
        _misses = 0
    run = cached[0]
    if run is None:
        return None
    gradients: list[Tensor | None] = run(values)
    return gradients


def _find(
    calls: dict[Hashable, _Cached],
    tape: GradientTape,
    call: CallKey,
    record: OperationKey,
) -> _Cached:
    """Return the program for a new key of a call."""
    global _misses
    has_program = record.key in _programs
    program = _programs[record.key] if has_program else _compile(tape, record)
    if program is None:
        cached: _Cached = None, []
    else:
        _misses = 0 if has_program else _misses
        function, indices = program
        cached = function.call, require_values(tape, call, record, indices)
    if record.key in _programs:
        if len(calls) >= _MAX_CALLS:
            calls.clear()
        calls[call.key] = cached
    return cached


def _compile(tape: GradientTape, record: OperationKey) -> _Program | None:
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


def _trace(tape: GradientTape, record: OperationKey) -> _Program | None:
    """Trace the reverse pass; None if a gradient is sparse."""
    with Trace("gradient", creates_variables=False) as trace:
        inputs = [
            trace.placeholder(Spec(x._array.shape, x._dtype)) for x in record.values
        ]
        for x, placeholder in zip(record.values, inputs, strict=True):
            placeholder._origin = x.origin
        totals = reverse_on(tape, record, inputs)
        if any(map(slices_of, totals)) or trace.captures or trace.writes:
            return None
    read = trace.drop_unused_inputs([g for g in totals if g is not None])
    return ConcreteFunction("gradient", trace, totals, True, Function), read


tapes.reverse_passes += (reverse, reverse_replays.reverse)
