"""Frozen dataclasses with a fast definition, for internal classes.

`dataclass(frozen=True)` compiles up to six methods for each class, which takes 1 to 2
ms. A start defines more than a hundred classes, so this was 1/6 of the start time. A
record compiles one method. Classes that users may subclass are frozen dataclasses,
because a frozen dataclass cannot inherit from a record.

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

import sys
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, TypeVar, dataclass_transform, overload

T = TypeVar("T")


class _Made:
    """Placeholder in a signature for the result of a default factory."""

    def __repr__(self) -> str:
        return "<factory>"


_MADE = _Made()
# Names that an `__init__` reads have this prefix; no field has it.
_OWN = "_record_"


@overload
def record(cls: type[T], /) -> type[T]: ...


@overload
def record(*, eq: bool = True) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: Any = None, /, *, eq: bool = True) -> Any:
    """Make a class a dataclass with read-only fields.

    Its instances behave like instances of a `dataclass(frozen=True)`: `replace`,
    `fields` and `asdict` accept them, and a `__post_init__` is called.

    Args:
        eq: whether instances with equal fields are equal, and have the same hash. If
            not, instances are compared by identity.

    Raises:
        TypeError: for a field that is not an argument of the constructor
            (`init=False`), or an argument that is not a field (`InitVar`); for a field
            without a default after one with a default; if the class defines
            `__setattr__`.
    """
    if cls is None:
        return lambda cls: _define(cls, eq)
    return _define(cls, eq)


def _define(cls: Any, eq: bool) -> Any:
    if cls.__doc__ is None:  # otherwise dataclass formats a signature, which takes 1 ms
        cls.__doc__ = cls.__name__
    if "__setattr__" in vars(cls) or "__delattr__" in vars(cls):
        raise TypeError(
            f"{cls.__name__}: the fields of a record cannot be assigned or deleted"
        )
    dataclass(init=False, repr=False, eq=False)(cls)
    methods: dict[str, Callable[..., Any]] = {
        "__init__": _constructor(cls),
        "__repr__": _repr,
        "__setattr__": _assign,
        "__delattr__": _delete,
    }
    if eq:
        methods["__eq__"], methods["__hash__"] = _comparisons(cls)
    for name, method in methods.items():
        if name not in vars(cls) or (name == "__hash__" and cls.__hash__ is None):
            setattr(cls, name, method)
    return cls


def _constructor(cls: Any) -> Callable[..., None]:
    """Return an `__init__` that assigns each argument to the field of its name."""
    arguments = _arguments(cls)
    globals_of_init: dict[str, Any] = {
        f"{_OWN}set": object.__setattr__,
        f"{_OWN}made": _MADE,
    }
    positional = [_parameter(f, globals_of_init) for f in arguments if not f.kw_only]
    named = [_parameter(f, globals_of_init) for f in arguments if f.kw_only]
    this = "self" if all(f.name != "self" for f in arguments) else f"{_OWN}self"
    lines = [f"{_OWN}set({this}, {f.name!r}, {_value(f)})" for f in arguments]
    if hasattr(cls, "__post_init__"):
        lines.append(f"{this}.__post_init__()")
    parameters = [this, *positional, *(["*", *named] if named else [])]
    body = "\n  ".join(lines or ["pass"])
    text = (
        f"def {_OWN}make({', '.join(globals_of_init)}):\n"
        f" def __init__({', '.join(parameters)}):\n  {body}\n"
        " return __init__"
    )
    # They use the globals of the class's module, in which its annotations are defined.
    scope = vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else {}
    namespace: dict[str, Any] = {}
    exec(text, scope, namespace)
    constructor: Any = namespace[f"{_OWN}make"](**globals_of_init)
    constructor.__qualname__ = f"{cls.__qualname__}.__init__"
    constructor.__module__ = cls.__module__
    constructor.__annotations__ = {f.name: f.type for f in arguments} | {"return": None}
    init: Callable[..., None] = constructor
    return init


def _arguments(cls: Any) -> Sequence[Field[Any]]:
    """Return the fields of a class, if these are exactly the arguments."""
    all_fields, optional = fields(cls), ""
    for f in cls.__dataclass_fields__.values():
        if "InitVar" in str(f.type):
            raise TypeError(f"{cls.__name__}.{f.name}: records do not support InitVar")
    for f in all_fields:
        if not f.init or f.name.startswith(_OWN):
            raise TypeError(
                f"{cls.__name__}.{f.name}: expected a field without init=False whose "
                f"name does not start with {_OWN!r}"
            )
        if f.default is MISSING and f.default_factory is MISSING:
            if optional and not f.kw_only:
                raise TypeError(
                    f"{cls.__name__}.{f.name}: a field without a default follows "
                    f"{optional!r}, which has one"
                )
        elif not f.kw_only:
            optional = f.name
    return all_fields


def _parameter(f: Field[Any], globals_of_init: dict[str, Any]) -> str:
    """Return the source of a field as a parameter; extend the globals."""
    if f.default_factory is not MISSING:
        globals_of_init[f"{_OWN}factory_{f.name}"] = f.default_factory
        return f"{f.name}={_OWN}made"
    if f.default is MISSING:
        return f.name
    globals_of_init[f"{_OWN}default_{f.name}"] = f.default
    return f"{f.name}={_OWN}default_{f.name}"


def _value(f: Field[Any]) -> str:
    """Return the source of a field's value."""
    if f.default_factory is MISSING:
        return f.name
    return f"{_OWN}factory_{f.name}() if {f.name} is {_OWN}made else {f.name}"


def _comparisons(cls: Any) -> tuple[Callable[..., Any], Callable[..., int]]:
    """Return an `__eq__` and a `__hash__` that compare the fields."""
    compared = _values([f.name for f in fields(cls) if f.compare])
    hashed = _values(
        [f.name for f in fields(cls) if (f.compare if f.hash is None else f.hash)]
    )

    def equals(self: Any, other: Any) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return compared(self) == compared(other)

    def hash_of(self: Any) -> int:
        return hash(hashed(self))

    return equals, hash_of


def _values(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a getter of the attributes with these names, as a tuple.

    Two tuples are equal if they hold the same objects, even if these are NaN.
    """
    if len(names) > 1:
        return attrgetter(*names)
    return lambda x: tuple(getattr(x, name) for name in names)


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _assign(self: Any, name: str, value: Any) -> None:
    if _is_kept(self, name):
        raise FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def _delete(self: Any, name: str) -> None:
    if _is_kept(self, name):
        raise FrozenInstanceError(f"cannot delete field {name!r}")
    object.__delattr__(self, name)


def _is_kept(self: Any, name: str) -> bool:
    """Return whether an attribute is a field, or is internal to records."""
    cls = type(self)
    return "__dataclass_fields__" in vars(cls) or name in cls.__dataclass_fields__
