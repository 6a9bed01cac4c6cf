"""Checks of arguments by the annotations of the signature.

An annotation permits all values that work as its type: `bool` permits NumPy booleans,
0, 1 and None; `int` any index; `float` any real number, or an array of them; a tuple
may be a list. Annotations that do not restrict the type, such as `Any`, are not
checked.
"""

from __future__ import annotations

import builtins
import collections.abc
import inspect
import math
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, wraps
from numbers import Integral, Real
from operator import index
from os import PathLike
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    Self,
    TypeGuard,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from toolkit.console.tracebacks import filter_traceback
from toolkit.definitions.foreign_names import ARGUMENTS
from toolkit.errors import ArgumentError, ArgumentTypeError, unknown_arguments

Function = TypeVar("Function", bound=Callable[..., Any])


def is_int(value: object) -> TypeGuard[int]:
    """Return whether it is an integer of Python or NumPy, which has separate types."""
    return isinstance(value, Integral)


def is_real(value: object) -> TypeGuard[float]:
    """Return whether it is a real number of Python or NumPy."""
    return isinstance(value, Real)


class Interval(NamedTuple):
    """In an annotation: the minimum and the maximum of a number."""

    low: float
    high: float = math.inf

    def __str__(self) -> str:
        if -self.low == self.high:
            return "that is finite"
        if self.high == math.inf:
            return f">= {self.low}"
        return f"in [{self.low}, {self.high}]"

    def contains(self, value: Any) -> bool:
        """Return whether a number is in range; arrays are not checked."""
        return not isinstance(value, Real) or self.low <= float(value) <= self.high


class Constraint(NamedTuple):
    """In an annotation of Any: the valid values, as text and as a test."""

    text: str
    accepts: Callable[[Any], bool]


def _is_seed(value: object) -> bool:
    """Return whether it is None, an integer, a SeedGenerator or the config of one."""
    if value is None or isinstance(value, Mapping) or hasattr(value, "next"):
        return True
    return _is_int(value)


def _is_axes(value: Any) -> bool:
    """Return whether it is None, an integer or a list of integers."""
    if value is None or _is_int(value):
        return True
    return _is_list(value) and all(map(_is_int, value))


Fraction = Annotated[float, Interval(0, 1)]
Finite = Annotated[float, Interval(-sys.float_info.max, sys.float_info.max)]
NonNegative = Annotated[float, Interval(0)]
Positive = Annotated[int, Interval(1)]
Axes = Annotated[Any, Constraint("an integer, a list of integers or None", _is_axes)]
Seed = Annotated[Any, Constraint("an integer, a SeedGenerator or None", _is_seed)]


class Kind(NamedTuple):
    """Valid values of an annotation: as text, by type, and as a range."""

    text: str
    accepts: Callable[[Any], bool]
    range: Interval | None = None


# --- values that work as a type ---------------------------------------------------


def _is_bool(value: object) -> bool:
    if type(value) is bool or value is None:
        return True
    return _is_number(value) and getattr(value, "size", 1) == 1 and value in (0, 1)


def _is_int(value: Any) -> bool:
    if type(value) is int:
        return True
    try:
        index(value)
    except (TypeError, ValueError):
        return False
    return True


def _is_number(value: object) -> bool:
    if type(value) is float or isinstance(value, Real):
        return True
    kind = getattr(getattr(value, "dtype", None), "kind", "f")
    return hasattr(value, "__float__") and kind not in "OSUMm"


def _is_list(value: object) -> bool:
    if isinstance(value, (str, bytes, Mapping)):
        return False
    return isinstance(value, Iterable) or hasattr(value, "__array__")


_PATH = Kind("a path", lambda value: isinstance(value, (str, PathLike)))
_PLAIN_KINDS: dict[Any, Kind] = {
    bool: Kind("a boolean", _is_bool),
    int: Kind("an integer", _is_int),
    float: Kind("a number", _is_number),
    str: Kind("a string", lambda value: isinstance(value, str)),
    Path: _PATH,
    PathLike: _PATH,
    dict: Kind("a dict", lambda value: isinstance(value, Mapping)),
    list: Kind("a list", _is_list),
    type(None): Kind("None", lambda value: value is None),
}
_LIST_TYPES = (list, tuple, set, Sequence, Iterable)


def kind_of(annotation: Any) -> Kind | None:
    """Return the valid values of an annotation, or None if unknown."""
    origin, type_arguments = get_origin(annotation) or annotation, get_args(annotation)
    if origin is Annotated:
        constraint = next(
            (x for x in type_arguments[1:] if isinstance(x, Constraint)), None
        )
        if constraint is not None:
            return Kind(constraint.text, constraint.accepts)
        bounds = next((x for x in type_arguments[1:] if isinstance(x, Interval)), None)
        # an annotation of `type_aliases`: the code that reads the value checks it
        if bounds is None:
            return None
        kind = kind_of(type_arguments[0])
        return kind and kind._replace(text=f"{kind.text} {bounds}", range=bounds)
    if origin in (Union, types.UnionType):
        return _union_kind([kind_of(member) for member in type_arguments])
    if origin is Literal:
        text = "one of " + ", ".join(map(repr, type_arguments))
        return Kind(text, lambda value: _is_choice(value, type_arguments))
    if origin in (Callable, collections.abc.Callable):
        return Kind("a function", callable)
    if origin in _LIST_TYPES and type_arguments:
        return _list_kind(
            kind_of(type_arguments[0]), origin is tuple and type_arguments
        )
    if origin in (dict, Mapping):
        return _PLAIN_KINDS[dict]
    return _PLAIN_KINDS.get(origin) if isinstance(origin, type) else None


def _is_choice(value: object, choices: Sequence[Any]) -> bool:
    return isinstance(value, (str, int, type(None))) and value in choices


def _union_kind(kinds: list[Kind | None]) -> Kind | None:
    checkable = [kind for kind in kinds if kind is not None]
    if len(checkable) < len(kinds):
        return None

    def accepts(value: object) -> bool:
        return any(kind.accepts(value) for kind in checkable)

    bounds = next((kind.range for kind in checkable if kind.range), None)
    return Kind(" or ".join(kind.text for kind in checkable), accepts, bounds)


def _list_kind(kind: Kind | None, element_types: Any) -> Kind:
    """Return a list kind, whose elements are checked if it is a Python list."""
    length = (
        len(element_types) if element_types and Ellipsis not in element_types else None
    )

    def accepts(value: object) -> bool:
        if not _is_list(value):
            return False
        if not isinstance(value, (list, tuple)):
            return True
        if length is not None and len(value) != length:
            return False
        return kind is None or all(map(kind.accepts, value))

    count = "" if length is None else f" of {length}"
    suffix = "" if kind is None else f", each {kind.text}"
    return Kind(f"a list{count}{suffix}", accepts)


# --- signatures -------------------------------------------------------------------


class Signature(NamedTuple):
    """Arguments of a function or constructor."""

    positional: tuple[str, ...]  # names of the positional arguments
    kinds: dict[str, Kind]
    names: frozenset[str]
    accepts_any_name: bool  # further names that are not in the signature
    variadic: Kind | None = None  # of further positional arguments
    required: tuple[str, ...] = ()  # names without a default


class _Names(dict[str, Any]):
    """Names of a module; names that only type checkers import permit any value."""

    def __missing__(self, name: str) -> Any:
        return Any


@lru_cache(maxsize=4096)
def signature_of(function: Any) -> Signature:
    """Return the arguments of a function, without the `self` of a method."""
    parameters = list(inspect.signature(function).parameters.values())
    names = _Names({**vars(builtins), **inspect.unwrap(function).__globals__})
    hints = get_type_hints(function, {}, names, include_extras=True)
    if parameters and parameters[0].name == "self":
        del parameters[0]
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    kinds = {p.name: kind_of(hints.get(p.name, Any)) for p in named}
    variadic = [
        hints.get(p.name, Any) for p in parameters if p.kind is p.VAR_POSITIONAL
    ]
    return Signature(
        tuple(p.name for p in named if p.kind is not p.KEYWORD_ONLY),
        # The owner rejects arguments that must be None, with the reason.
        {k: v for k, v in kinds.items() if v is not None and v.text != "None"},
        frozenset(kinds),
        any(p.kind is p.VAR_KEYWORD for p in parameters),
        kind_of(variadic[0]) if variadic else None,
        tuple(p.name for p in named if p.default is p.empty),
    )


def _has_own_constructor(cls: type) -> bool:
    """Return whether a class is of this package and defines a constructor."""
    return "__init__" in vars(cls) and cls.__module__.startswith("toolkit.")


@lru_cache(maxsize=4096)
def constructor_signature_of(cls: type) -> Signature | None:
    """Return the arguments of a constructor and its bases; None for user classes."""
    owners = [c for c in cls.__mro__ if "__init__" in vars(c)]
    if not _has_own_constructor(owners[0]):
        return None
    signature = signature_of(vars(owners[0])["__init__"])
    kinds, names, accepts_any_name = (
        dict(signature.kinds),
        set(signature.names),
        signature.accepts_any_name,
    )
    for owner in owners[1:]:
        if not accepts_any_name or not _has_own_constructor(owner):
            break
        base = signature_of(vars(owner)["__init__"])
        kinds.update((k, v) for k, v in base.kinds.items() if k not in names)
        names |= base.names
        accepts_any_name = base.accepts_any_name
    # Undeclared names, such as deprecated ones, may still be read.
    return signature._replace(kinds=kinds, names=frozenset(names), variadic=None)


def unknown_argument_error(owner: Any, names: Iterable[str]) -> ArgumentTypeError:
    """Return the error of a constructor for names that it does not accept."""
    cls: Any = type(owner)
    signature = constructor_signature_of(cls)
    accepted = (
        signature.names if signature else inspect.signature(cls.__init__).parameters
    )
    return unknown_arguments(cls.__name__, names, accepted)


def check_call(label: str, signature: Signature, args: Any, kwargs: Any) -> None:
    """Raise for unknown names, and for invalid values."""
    if not kwargs.keys() <= signature.names:
        unknown = kwargs.keys() - signature.names
        known_elsewhere = unknown & ARGUMENTS.keys()
        if not signature.accepts_any_name or known_elsewhere:
            raise unknown_arguments(label, unknown, signature.names)
    absent = [n for n in signature.required[len(args) :] if n not in kwargs]
    if absent:
        raise ArgumentTypeError(
            f"{label}: missing argument {', '.join(map(repr, absent))}"
        )
    kinds = signature.kinds
    for name, value in (
        *zip(signature.positional, args, strict=False),
        *kwargs.items(),
    ):
        if name in kinds:
            _check(label, f"`{name}`", kinds[name], value)
    if signature.variadic is not None:
        for value in args[len(signature.positional) :]:
            _check(label, "each argument", signature.variadic, value)


def _check(label: str, argument: str, kind: Kind, value: object) -> None:
    if not kind.accepts(value):
        raise ArgumentTypeError(
            f"{label}: expected {argument} to be {kind.text}; received {value!r:.80} "
            f"of type {type(value).__name__}"
        )
    if kind.range and not kind.range.contains(value):
        raise ArgumentError(
            f"{label}: expected {argument} to be {kind.text}; received {value!r:.80}"
        )


def check_constructor(cls: type, args: Any, kwargs: Any) -> None:
    """Raise for invalid arguments of a constructor of this package."""
    signature = constructor_signature_of(cls)
    if signature is not None:
        name = kwargs.get("name")
        label = cls.__name__ + (f" {name!r}" if isinstance(name, str) else "")
        check_call(label, signature, args, kwargs)


class Checked:
    """Base of classes whose constructors check their arguments."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        if args or kwargs:
            check_constructor(cls, args, kwargs)
        return super().__new__(cls)


def check_arguments(function: Function) -> Function:
    """Return a function or method that checks its arguments before it runs."""
    num_skipped = int(next(iter(inspect.signature(function).parameters), "") == "self")

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            check_call(
                function.__name__, signature_of(function), args[num_skipped:], kwargs
            )
            return function(*args, **kwargs)
        except Exception as error:
            filter_traceback(error)
            raise

    return wrapper  # type: ignore[return-value]
