"""Replays of operations: the kernels of repeated calls, found by one look-up."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import wraps
from types import FunctionType
from typing import Any, ParamSpec, TypeAlias, TypeVar, cast

import numpy as np

from toolkit import settings
from toolkit.backends.memory import device_memories
from toolkit.console.frames import is_package_function
from toolkit.core.replays import (
    KERNEL_ERRORS,
    Replay,
    accepts_replays,
    active,
    make_replay,
    same_bits,
)
from toolkit.core.tensor import Tensor, state
from toolkit.core.variable import Variable
from toolkit.errors import DTypeError

# Signatures of each of the two generations of replays, and signatures without one.
_MAX_CALLS, _MAX_SEEN = 1024, 2048
# Calls of a signature before its trace: at first, and after signatures were dropped.
# Otherwise signatures that never return would be traced without end.
_CALLS_BEFORE_TRACE, _CALLS_IF_DROPPED = 1, 31
# Items of the lists of an argument: each signature stores them, for many signatures.
_MAX_ITEMS = 512
_PACKAGE = __name__.partition(".")[0] + "."
_INTEGERS = frozenset({int})
_STATIC = frozenset({int, bool, str, type(None)})
_ndarray = np.ndarray  # found without the module
_Calls: TypeAlias = "dict[Hashable, Replay | _DrawingReplay | None]"
# The replay of each signature of an operation; None if it has none. If the younger
# generation is full, it replaces the older one. A call moves a signature back.
_calls: _Calls = {}
_unknown: Any = object()  # in place of the replay of a new signature
_old_calls: _Calls = {}
_seen: dict[Hashable, int] = {}  # the calls of signatures without a replay
_has_dropped = False


def clear() -> None:
    """Remove all replays of operations: a setting has changed.

    A thread that creates a replay at this moment adds it to the removed replays.
    """
    global _calls, _old_calls, _has_dropped
    _calls, _old_calls = {}, {}
    _seen.clear()
    _has_dropped = False


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
    global _calls, _old_calls, _has_dropped
    calls[signature] = replay
    if len(calls) >= _MAX_CALLS and calls is _calls:
        _has_dropped = _has_dropped or bool(_old_calls)
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
        elif kind in _STATIC:
            signature += (kind, x)
        elif kind is Variable:
            values = [y.value if type(y) is Variable else y for y in operands]
            return call_operation(function, tuple(values), kwargs)
        else:
            key: list[object] = []
            if not _add_argument(x, key, arrays):
                return None
            signature += (*key,)
    for name, x in kwargs.items():
        if type(x) in _STATIC:
            signature += (name, type(x), x)
        else:
            key = [name]
            if not _add_argument(x, key, arrays):
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
        if not state.tapes:
            return replay.run(*arrays)
        if all(map(accepts_replays, state.tapes)):
            return replay.run_recorded(_tensors_of(args, kwargs), state.tapes)
    except KERNEL_ERRORS:
        pass
    return None


P = ParamSpec("P")
T = TypeVar("T")


class PendingKey:
    """An argument of a random operation: it draws its key when the code needs it.

    A replay draws the key, too. So the state of a generator changes as in the code.

    Args:
        draw: returns a new key of a seed.
        seed: the seed.
    """

    __slots__ = ("_draw", "_seed", "drawn")

    def __init__(self, draw: Callable[[object], Tensor], seed: object) -> None:
        self._draw, self._seed = draw, seed
        self.drawn: list[Tensor] = []

    def draw(self) -> Tensor:
        """Return a new key, and remember it."""
        key = self._draw(self._seed)
        self.drawn.append(key)
        return key

    def last_drawn(self) -> Tensor:
        """Return the key that was drawn last."""
        return self.drawn[-1]


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


def _add_argument(x: object, key: list[object], arrays: list[object]) -> bool:
    """Describe an argument in `key`; return False if it is of another type.

    Args:
        x: the argument.
        key: the description. A tensor begins with its shape, other values with a type.
        arrays: the arrays of the tensors, and the pending keys. Those of the argument
            are added.
    """
    kind = type(x)
    if type(x) is Tensor:
        key += [x.shape, x._dtype]
        arrays.append(x._array)
        return type(x._array) is np.ndarray
    if kind in _STATIC:
        key += [kind, x]
    elif type(x) is PendingKey:
        key.append(kind)
        arrays.append(x)
    elif type(x) is float:  # -0.0 equals 0.0, and NaN differs from itself
        key += [kind, x if x else x.hex()]
    elif type(x) is FunctionType:
        key.append(x)
        return _is_public(x)
    elif type(x) is slice:
        key.append(kind)
        return _add_argument((x.start, x.stop, x.step), key, arrays)
    elif type(x) is tuple and _INTEGERS.issuperset(map(type, x)):
        key += (kind, x)
        return len(x) <= _MAX_ITEMS
    elif type(x) is tuple or type(x) is list:
        key += [kind, len(x)]
        if len(x) + len(key) // 2 > _MAX_ITEMS:
            return False
        return all(_add_argument(item, key, arrays) for item in x)
    else:
        return False
    return True


def _is_public(function: FunctionType) -> bool:
    """Return whether a function is one of this package, and exists only once.

    Args:
        function: the argument of an operation, such as the one of a scan.
    """
    if not function.__module__.startswith(_PACKAGE) or "<" in function.__qualname__:
        return False
    return is_package_function(function)


def _tensors_of(
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    key_of: Callable[[PendingKey], Tensor] = PendingKey.draw,
) -> list[Tensor]:
    """Return the tensors in arguments, in the order of `_add_argument`.

    Args:
        args: the positional arguments.
        kwargs: the keyword arguments.
        key_of: returns the tensor of a pending key.
    """
    tensors: list[Tensor] = []
    pending: list[object] = [*args, *kwargs.values()][::-1]
    while pending:
        x = pending.pop()
        if type(x) is Tensor:
            tensors.append(x)
        elif type(x) is PendingKey:
            tensors.append(key_of(x))
        elif type(x) is slice:
            pending += (x.step, x.stop, x.start)
        elif type(x) is tuple or type(x) is list:
            pending += x[::-1]
    return tensors


def _replace_tensors(x: object, tensors: Iterator[Tensor]) -> object:
    """Return an argument with other tensors, in the order of `_add_argument`."""
    if type(x) is Tensor or type(x) is PendingKey:
        return next(tensors)
    if type(x) is slice:
        bounds = [_replace_tensors(y, tensors) for y in (x.start, x.stop, x.step)]
        return slice(*bounds)
    if type(x) is tuple:
        return tuple([_replace_tensors(y, tensors) for y in x])
    if type(x) is list:
        return [_replace_tensors(y, tensors) for y in x]
    return x


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
    is_traced = number >= (_CALLS_IF_DROPPED if _has_dropped else _CALLS_BEFORE_TRACE)
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
        _keep(calls, signature, _replay_of(function, args, kwargs, outputs))
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

    def call(*inputs: Tensor) -> object:
        remaining = iter(inputs)
        local_args = [_replace_tensors(x, remaining) for x in args]
        local_kwargs = {
            name: _replace_tensors(x, remaining) for name, x in kwargs.items()
        }
        return function(*local_args, **local_kwargs)

    tensors = _tensors_of(args, kwargs, PendingKey.last_drawn)
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
