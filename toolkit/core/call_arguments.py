"""Arguments of repeated calls: their signature, and the tensors among them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import FunctionType

import numpy as np

from toolkit.console.frames import is_package_function
from toolkit.core.tensor import Tensor

# Types of arguments that are part of a signature.
STATIC_TYPES = frozenset({int, bool, str, type(None)})
# Items of the lists of an argument: each signature stores them, for many signatures.
_MAX_ITEMS = 512
_PACKAGE = __name__.partition(".")[0] + "."
_FLAT_TYPES = STATIC_TYPES | {Tensor, float}
_INTEGERS, _STRINGS = frozenset({int}), frozenset({str})


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


def add_argument(x: object, key: list[object], arrays: list[object]) -> bool:
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
    if kind in STATIC_TYPES:
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
        return add_argument((x.start, x.stop, x.step), key, arrays)
    elif type(x) is tuple and _INTEGERS.issuperset(map(type, x)):
        key += (kind, x)
        return len(x) <= _MAX_ITEMS
    elif type(x) is tuple or type(x) is list:
        key += [kind, len(x)]
        if len(x) + len(key) // 2 > _MAX_ITEMS:
            return False
        return all(add_argument(item, key, arrays) for item in x)
    elif type(x) is dict and _STRINGS.issuperset(map(type, x)):
        key += (kind, tuple(x))
        return add_argument((*x.values(),), key, arrays)
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


def tensors_of(
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    key_of: Callable[[PendingKey], Tensor] = PendingKey.draw,
) -> list[Tensor]:
    """Return the tensors in arguments, in the order of `add_argument`.

    Args:
        args: the positional arguments.
        kwargs: the keyword arguments.
        key_of: returns the tensor of a pending key.
    """
    operands = (*args, *kwargs.values()) if kwargs else args
    if _FLAT_TYPES.issuperset(map(type, operands)):
        return [x for x in operands if type(x) is Tensor]
    tensors: list[Tensor] = []
    pending: list[object] = [*operands[::-1]]
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
        elif type(x) is dict:
            pending += [*x.values()][::-1]
    return tensors


def _replace_tensors(x: object, tensors: Iterator[Tensor]) -> object:
    """Return an argument with other tensors, in the order of `add_argument`."""
    if type(x) is Tensor or type(x) is PendingKey:
        return next(tensors)
    if type(x) is slice:
        bounds = [_replace_tensors(y, tensors) for y in (x.start, x.stop, x.step)]
        return slice(*bounds)
    if type(x) is tuple:
        return tuple([_replace_tensors(y, tensors) for y in x])
    if type(x) is list:
        return [_replace_tensors(y, tensors) for y in x]
    if type(x) is dict:
        return {name: _replace_tensors(y, tensors) for name, y in x.items()}
    return x


def with_other_tensors(
    function: Callable[..., object],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
) -> Callable[..., object]:
    """Return a call as a function of its tensors.

    Args:
        function: the function to call.
        args: the positional arguments of the call.
        kwargs: the keyword arguments of the call.
    """

    def call(*inputs: Tensor) -> object:
        remaining = iter(inputs)
        local_args = [_replace_tensors(x, remaining) for x in args]
        local_kwargs = {
            name: _replace_tensors(x, remaining) for name, x in kwargs.items()
        }
        return function(*local_args, **local_kwargs)

    return call
