"""Frozen dataclasses that are quick to define.

`dataclass(frozen=True)` compiles up to six methods for each class, 1 to 2 ms. A start
defines more than a hundred classes, so that was a sixth of it. A record compiles one.

Example:
    >>> from toolkit.definitions.records import record
    >>> @record
    ... class Point:
    ...     x: int
    ...     y: int = 0
    >>> Point(1), Point(1) == Point(1, 0)
    (Point(x=1, y=0), True)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, TypeVar, dataclass_transform, overload

T = TypeVar("T")


class _Made:
    """Stands in a signature for what a factory makes for each record."""

    def __repr__(self) -> str:
        return "<factory>"


_MADE = _Made()


@overload
def record(cls: type[T], /) -> type[T]: ...


@overload
def record(*, eq: bool = True) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: Any = None, /, *, eq: bool = True) -> Any:
    """Make a class a dataclass whose instances keep their fields.

    It is what `dataclass(frozen=True)` makes it: `replace`, `fields` and `asdict` take
    its instances, and a `__post_init__` is called.

    Args:
        eq: whether instances with equal fields are equal, and have the same hash. If
            not, each is equal to itself alone.

    Raises:
        TypeError: for a field that is no argument of the constructor (`init=False`).
    """
    if cls is None:
        return lambda cls: _define(cls, eq)
    return _define(cls, eq)


def _define(cls: Any, eq: bool) -> Any:
    if cls.__doc__ is None:  # else dataclass writes a signature, which takes 1 ms
        cls.__doc__ = cls.__name__
    dataclass(init=False, repr=False, eq=False)(cls)
    methods: dict[str, Callable[..., Any]] = {
        "__init__": _constructor(cls),
        "__repr__": _repr,
        "__setattr__": _refuse_to_assign,
        "__delattr__": _refuse_to_delete,
    }
    if eq:
        methods["__eq__"], methods["__hash__"] = _comparisons(cls)
    for name, method in methods.items():
        if name not in vars(cls) or (name == "__hash__" and cls.__hash__ is None):
            setattr(cls, name, method)
    return cls


def _constructor(cls: Any) -> Callable[..., None]:
    """An `__init__` that assigns each argument to the field of its name."""
    known: dict[str, Any] = {"_set": object.__setattr__, "_made": _MADE}
    positional: list[str] = []
    named: list[str] = []
    lines: list[str] = []
    for f in fields(cls):
        if not f.init:
            raise TypeError(f"{cls.__name__}: records have no fields with init=False")
        (named if f.kw_only else positional).append(_parameter(f, known))
        value = f.name
        if f.default_factory is not MISSING:
            value = f"_factory_{f.name}() if {f.name} is _made else {f.name}"
        lines.append(f"_set(self, {f.name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    parameters = ["self", *positional, *(["*", *named] if named else [])]
    body = "\n ".join(lines or ["pass"])
    exec(f"def __init__({', '.join(parameters)}):\n {body}", known)
    constructor: Any = known.pop("__init__")
    constructor.__qualname__ = f"{cls.__qualname__}.__init__"
    constructor.__module__ = cls.__module__
    annotations = {f.name: f.type for f in fields(cls)}
    constructor.__annotations__ = {**annotations, "return": None}
    found: Callable[..., None] = constructor
    return found


def _parameter(f: Field[Any], known: dict[str, Any]) -> str:
    """How a field is written among parameters; what that reads is put among `known`."""
    if f.default_factory is not MISSING:
        known[f"_factory_{f.name}"] = f.default_factory
        return f"{f.name}=_made"
    if f.default is MISSING:
        return f.name
    known[f"_default_{f.name}"] = f.default
    return f"{f.name}=_default_{f.name}"


def _comparisons(cls: Any) -> tuple[Callable[..., Any], Callable[..., int]]:
    """An `__eq__` and a `__hash__` of all fields."""
    names = [f.name for f in fields(cls) if f.compare]
    # Of several names attrgetter makes a tuple, whose comparison knows the same object.
    values: Any = attrgetter(*names) if len(names) > 1 else _few(names)

    def equals(self: Any, other: Any) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return values(self) == values(other)

    def hash_of(self: Any) -> int:
        return hash(values(self))

    return equals, hash_of


def _few(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    return lambda x: tuple(getattr(x, name) for name in names)


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse_to_assign(self: Any, name: str, value: Any) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")
