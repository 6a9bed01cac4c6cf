"""Suggestions in messages: similar names, and names of other libraries."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import NoReturn


def closest(name: str, choices: Iterable[str]) -> list[str]:
    """Return the choices that somebody who wrote `name` may have meant: 0 to 3.

    Args:
        name: the name of the user.
        choices: the valid names.

    Example:
        >>> from toolkit.definitions.hints import closest
        >>> closest("Conv2d", ["Conv1D", "Conv2D"])
        ['Conv2D']
    """
    from difflib import SequenceMatcher, get_close_matches  # only needed for errors

    if name.startswith("__"):
        return []
    by_plain: dict[str, list[str]] = {}
    for choice in choices:
        by_plain.setdefault(_plain(choice), []).append(choice)

    def spelled_like(plain: str) -> str:
        def likeness(choice: str) -> tuple[bool, float]:
            ratio = SequenceMatcher(None, choice, name).ratio()
            return choice.islower() == name.islower(), ratio

        return max(by_plain[plain], key=likeness)

    if _plain(name) in by_plain:
        return [spelled_like(_plain(name))]
    words = _words(name)
    extra = {
        p: _words(c[0]) - words for p, c in by_plain.items() if _words(c[0]) > words
    }
    if extra and words:
        minimum = min(map(len, extra.values()))
        matches = [plain for plain, further in extra.items() if len(further) == minimum]
        if len(matches) <= _MAX_SUGGESTIONS:
            return [spelled_like(plain) for plain in matches]
    lower = {choice.lower(): plain for plain, (choice, *_) in by_plain.items()}
    return [
        spelled_like(lower[match])
        for match in get_close_matches(name.lower(), lower, 1, _CUTOFF)
    ]


_MAX_SUGGESTIONS = 3
_CUTOFF = 0.68  # the least similarity, of difflib


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).lower()


def _words(name: str) -> set[str]:
    """Return the words of a name in snake case or camel case, in lower case."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)
    return {word.lower() for word in words}


def first_accepted(
    table: Mapping[str, tuple[str, ...]], name: str, accepted: Collection[str]
) -> str | None:
    """Return the first name of a table's row that is accepted, or None."""
    candidates = table.get(name) or table.get(name.lower(), ())
    return next((c for c in candidates if c in accepted), None)


class _MissingName:
    """Descriptor of a name that a class lacks: its AttributeError has a hint."""

    def __init__(self, name: str, hint: str) -> None:
        self._name, self._hint = name, hint

    def __get__(self, instance: object, owner: type) -> NoReturn:
        raise AttributeError(
            f"{owner.__name__!r} object has no attribute {self._name!r}; "
            f"use {self._hint}",
            name=self._name,
            obj=None,
        )


def explain_missing(cls: type, table: Mapping[str, str]) -> None:
    """Let reads of names that a class lacks raise an AttributeError with a hint.

    `hasattr` still returns False, `dir` does not list the names, and subclasses and
    instances can define them. Other attributes are as fast as before.
    """
    hinted = {name: hint for name, hint in table.items() if not hasattr(cls, name)}
    for name, hint in hinted.items():
        setattr(cls, name, _MissingName(name, hint))

    def list_names(self: object) -> list[str]:
        return [n for n in object.__dir__(self) if not _is_missing(self, n)]

    setattr(cls, "__dir__", list_names)  # noqa: B010


def _is_missing(instance: object, name: str) -> bool:
    """Return whether an attribute is one of `explain_missing`."""
    if name in getattr(instance, "__dict__", ()):
        return False
    owner = next((c for c in type(instance).__mro__ if name in vars(c)), None)
    return owner is not None and isinstance(vars(owner)[name], _MissingName)
