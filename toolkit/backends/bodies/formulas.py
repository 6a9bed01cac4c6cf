"""What a scalar rule says, as text: other formulas, other machine code.

Rules stand beside their operations, or in other packages, so the source of the
generators does not tell them apart. A rule is run once on names, and what it asks of
the vocabulary is written down.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from toolkit.ir import Rule

_DIGITS = 16


class _Name:
    """What stands for an argument, or for the result of a scalar operation."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


class _Recorder:
    """The scalar vocabulary, whose every operation is noted."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., _Name]:
        def note(*arguments: Any) -> _Name:
            self.lines.append(f"{name}{arguments!r}")
            return _Name(f"v{len(self.lines)}")

        return note


def formula(rule: Rule | None, count: int, attrs: tuple[Any, ...]) -> str:
    """A digest of what a rule computes; "" for what is not elementwise.

    Args:
        rule: the scalar rule of a primitive.
        count: how many inputs it has.
        attrs: pairs of names and values.

    Example:
        >>> square = formula(lambda s, x: s.multiply(x, x), 1, ())
        >>> square == formula(lambda s, x: s.multiply(x, s.abs(x)), 1, ())
        False
    """
    return "" if rule is None else _formula(rule, count, attrs)


@lru_cache(maxsize=4096)
def _formula(rule: Rule, count: int, attrs: tuple[Any, ...]) -> str:
    recorder = _Recorder()
    names = [_Name(f"x{i}") for i in range(count)]
    result = rule(recorder, *names, **dict(attrs))
    text = "\n".join([*recorder.lines, repr(result)])
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
