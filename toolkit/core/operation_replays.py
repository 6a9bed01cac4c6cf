"""Replays of operations: the kernels of repeated calls, found by one look-up."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeAlias, TypeVar, cast

import numpy as np

from toolkit import settings
from toolkit.backends.memory import device_memories
from toolkit.core.call_arguments import (
    STATIC_TYPES,
    PendingKey,
    add_argument,
    tensors_of,
    with_other_tensors,
)
from toolkit.core.replays import (
    KERNEL_ERRORS,
    Replay,
    TraceBudget,
    accept_replays,
    active,
    make_replay,
    same_bits,
)
from toolkit.core.tensor import Tensor, state
from toolkit.core.variable import Variable
from toolkit.errors import DTypeError

# Signatures of each of the two generations of replays, and signatures without one.
_MAX_CALLS, _MAX_SEEN = 1024, 2048
_ndarray = np.ndarray  # found without the module
_Calls: TypeAlias = "dict[Hashable, Replay | _DrawingReplay | None]"
# The replay of each signature of an operation; None if it has none. If the younger
# generation is full, it replaces the older one. A call moves a signature back.
_calls: _Calls = {}
_unknown: Any = object()  # in place of the replay of a new signature
_old_calls: _Calls = {}
_seen: dict[Hashable, int] = {}  # the calls of signatures without a replay
_budget = TraceBudget()


def clear() -> None:
    """Remove all replays of operations: a setting has changed.

    A thread that creates a replay at this moment adds it to the removed replays.
    """
    global _calls, _old_calls, _budget
    _calls, _old_calls = {}, {}
    _seen.clear()
    _budget = TraceBudget()


settings.on_change(clear)


def count() -> int:
    """Return the number of signatures of operations with a replay."""
    replays = (*_calls.values(), *_old_calls.values())
    return sum(replay is not None for replay in replays)


def _keep(
    calls: _Calls, signature: Hashable, replay: Replay | _DrawingReplay | None
) -> None:
    """Add a replay to a generation, the younger one unless it was replaced.

    Args:
        calls: the younger generation when the call began.
        signature: the signature of the call.
        replay: its replay.
    """
    global _calls, _old_calls
    calls[signature] = replay
    if len(calls) >= _MAX_CALLS and calls is _calls:
        if _old_calls:
            _budget.note_drop()
        _calls, _old_calls = {}, calls


def call_operation(
    function: Callable[..., object],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
) -> object:
    """Return the result of an operation by a replay, or None without one.

    Args:
        function: the operation, a function of tensors.
        args: the positional arguments.
        kwargs: the keyword arguments.
    """
    if device_memories:
        return None
    signature: tuple[object, ...] = (function,)
    arrays: list[object] = []
    operands: Any = args
    for x in operands:  # the most frequent arguments, without a call
        kind = type(x)
        if kind is Tensor:
            array = x._array
            if type(array) is not _ndarray:
                return None
            signature += (array.shape, x._dtype)
            arrays.append(array)
        elif kind in STATIC_TYPES:
            signature += (kind, x)
        elif kind is Variable:
            values = [y.value if type(y) is Variable else y for y in operands]
            return call_operation(function, tuple(values), kwargs)
        else:
            key: list[object] = []
            if not add_argument(x, key, arrays):
                return None
            signature += (*key,)
    for name, x in kwargs.items():
        if type(x) in STATIC_TYPES:
            signature += (name, type(x), x)
        else:
            key = [name]
            if not add_argument(x, key, arrays):
                return None
            signature += (*key,)
    calls = _calls
    try:
        replay = calls[signature]
    except KeyError:
        replay = _old_calls.pop(signature, _unknown)
        if replay is not _unknown:
            _keep(calls, signature, replay)
    if replay is None:
        return None
    if replay is _unknown:  # outside of the handler: errors have no context
        return _run_unknown(calls, signature, function, args, kwargs)
    try:
        tapes = state.tapes
        if not tapes:
            return replay.run(*arrays)
        if accept_replays(tapes):
            return replay.run_recorded(tensors_of(args, kwargs), tapes)
    except KERNEL_ERRORS:
        pass
    return None


P = ParamSpec("P")
T = TypeVar("T")


class _DrawingReplay:
    """Replay of an operation that draws one key."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self.run_recorded = replay.run_recorded

    def run(self, *arrays: object) -> object:
        """Return the outputs for arrays, one of which is a pending key."""
        drawn = [x.draw()._array if type(x) is PendingKey else x for x in arrays]
        return self._replay.run(*drawn)


def replayed(function: Callable[P, T]) -> Callable[P, T]:
    """Make a function of numbers, such as extents, repeat earlier results.

    Args:
        function: a function of this package that creates tensors.

    Returns:
        The function with replays.
    """

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        if state.trace is None and not state.marks:
            outputs = call_operation(function, args, kwargs)
            if outputs is not None:
                return cast(T, outputs)
        return function(*args, **kwargs)

    return wrapper


def _run_unknown(
    calls: _Calls,
    signature: Hashable,
    function: Callable[..., object],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
) -> object:
    """Run an operation as Python code, and create a replay at the second call."""
    if active.is_inner:
        return None
    number = _seen.get(signature, 0)
    is_traced = number >= _budget.num_calls
    if not is_traced:
        if not number and len(_seen) >= _MAX_SEEN:
            _seen.clear()
        _seen[signature] = number + 1
    active.is_inner = True
    try:
        outputs = function(*args, **kwargs)
    except (DTypeError, TypeError):  # the caller handles it
        return None
    finally:
        active.is_inner = False
    if is_traced:
        with _budget.spend():
            replay = _replay_of(function, args, kwargs, outputs)
        _keep(calls, signature, replay)
        _seen.pop(signature, None)
    return outputs


def _replay_of(
    function: Callable[..., object],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    outputs: object,
) -> Replay | _DrawingReplay | None:
    """Return the replay of an operation; None if its results can differ."""
    pending = [x for x in kwargs.values() if type(x) is PendingKey]
    if any(len(x.drawn) != 1 for x in pending):
        return None

    tensors = tensors_of(args, kwargs, PendingKey.last_drawn)
    call = with_other_tensors(function, args, kwargs)
    replay = make_replay(function.__name__, call, [x.spec for x in tensors])
    if replay is None or replay.variables or replay.written:
        return None
    try:
        repeated = replay.run(*[x._array for x in tensors])
    except KERNEL_ERRORS:
        return None
    if not same_bits(outputs, repeated):
        return None
    return _DrawingReplay(replay) if pending else replay
