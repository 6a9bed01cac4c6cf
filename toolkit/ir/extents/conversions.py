"""Conversions of free extents to numbers and texts, which fix their value."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from math import ceil, floor
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from toolkit.ir.extents.expressions import Extent, Number

# Whether extents may be keys of dicts and sets. Code of a user could decide by such a
# key, so only the compiler may use them: its sets only remove duplicates.
_hashing: ContextVar[bool] = ContextVar("hashing", default=False)


@contextmanager
def _permit_keys(permitted: bool) -> Iterator[None]:
    """Set whether extents may be keys. If they may, their texts are expressions."""
    token = _hashing.set(permitted)
    try:
        yield
    finally:
        _hashing.reset(token)


def hashable_extents() -> AbstractContextManager[None]:
    """Permit extents as keys of dicts and sets, for passes of the compiler."""
    return _permit_keys(True)


def fixed_texts() -> AbstractContextManager[None]:
    """Fix the extents of which a text is written: texts of generated code."""
    return _permit_keys(False)


class Conversions:
    """Base of `Extent`: the methods of numbers that need a value."""

    __slots__ = ()

    domain: Any
    is_real: Any
    key: Any
    text: Any

    def _number_type(self) -> type:
        return float if self.is_real else int

    __class__ = cast(Any, property(_number_type))

    def __index__(self) -> int:
        return int(self.domain.fix(self))

    def __int__(self) -> int:
        return int(self.domain.fix(self))

    def __float__(self) -> float:
        return float(self.domain.fix(self))

    def __round__(self, digits: int | None = None) -> Number:
        if digits is None and not self.is_real:
            return cast("Extent", self)
        return cast(float, round(self._number_type()(self), digits))

    def __trunc__(self) -> Number:
        return int(self) if self.is_real else cast("Extent", self)

    def __floor__(self) -> Number:
        return floor(float(self)) if self.is_real else cast("Extent", self)

    def __ceil__(self) -> Number:
        return ceil(float(self)) if self.is_real else cast("Extent", self)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the fixed value, such as `bit_length`."""
        kind = self._number_type()
        if name.startswith("__") or not hasattr(kind, name):
            raise AttributeError(f"{kind.__name__!r} object has no attribute {name!r}")
        return getattr(kind(self), name)

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (int(self),)

    def __copy__(self) -> Extent:
        return cast("Extent", self)

    def __deepcopy__(self, memo: object) -> Extent:
        """Return the same extent: conditions on a copy of its domain have no effect."""
        return cast("Extent", self)

    def __hash__(self) -> int:
        if _hashing.get():
            return hash(self.key)
        return hash(self.domain.fix(self))

    def __repr__(self) -> str:
        if not self.domain.is_readable or _hashing.get():  # for messages
            return f"<extent {self.text}>"
        return repr(self.domain.fix(self))

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        if not self.domain.is_readable or _hashing.get():
            return str(self)
        return format(self.domain.fix(self), spec)

    def is_integer(self) -> bool:
        """Return whether its value is an integer, as `int.is_integer` does."""
        return not self.is_real or float(self).is_integer()
