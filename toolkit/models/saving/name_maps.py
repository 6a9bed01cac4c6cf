"""Mappings from weights to names and layouts in files of other libraries.

A mapping is a table or a function from a weight's name to its source in the file:

    "name"                          the same values, in the same shape
    ("name", layout)                axes in another order; see `layouts`
    ("name", layout, part)          one of several weights in one array
    ("name", function)              what the function makes of the array
    (("name", ..., "name"), function)  what it makes of several
    None                            not in the file
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from toolkit.errors import ArgumentError
from toolkit.models.saving.layouts import Layout


class Source(NamedTuple):
    """Source of a weight in a file: the names of arrays, and their conversion.

    There are no names if a table has no row for the weight.
    """

    names: tuple[str, ...]
    layout: Layout | None = None
    function: Callable[..., Any] | None = None


def source_of(name: str, mapping: Any) -> Source | None:
    """Return the source of a weight in a mapping; None: it is not in the file.

    Raises:
        ArgumentError: the mapping is invalid, or has a value in none of these forms.
    """
    if mapping is None:
        return Source((name,))
    if isinstance(mapping, Mapping):
        return _find_in_table(name, mapping)
    if callable(mapping):
        return _read(name, mapping(name), ())
    raise ArgumentError(f"mapping: expected a dict or a function; received {mapping!r}")


def _find_in_table(name: str, table: Mapping[str, Any]) -> Source | None:
    if name in table:
        return _read(name, table[name], ())
    for key, value in table.items():
        if not isinstance(key, str):
            raise ArgumentError(f"mapping: expected names as keys; received {key!r}")
        if "*" in key:
            match = re.fullmatch(re.escape(key).replace(r"\*", "([^/]*)"), name)
            if match:
                return _read(name, value, match.groups())
    return Source(())


def _read(name: str, value: Any, stars: tuple[str, ...]) -> Source | None:
    """Parse a value of a mapping; `stars` replace each `*`."""
    match value:
        case None:
            return None
        case str():
            return Source((_filled(value, stars),))
        case (str(), str()) | (str(), str(), int()):
            return Source((_filled(value[0], stars),), Layout(*value[1:]))
        case (str() | tuple() | list(), function) if callable(function):
            names = (value[0],) if isinstance(value[0], str) else tuple(value[0])
            if names and all(isinstance(name, str) for name in names):
                return Source(tuple(_filled(n, stars) for n in names), None, function)
    raise ArgumentError(
        f"mapping: {name!r}: expected a name, (name, layout), (name, layout, part), "
        f"(names, function) or None; received {value!r}"
    )


def _filled(text: str, stars: tuple[str, ...]) -> str:
    """Return a name with each `*` replaced by the matching text of the key."""
    *heads, last = text.split("*")
    if len(heads) > len(stars) and stars:
        raise ArgumentError(
            f"mapping: expected at most {len(stars)} `*`, as in the key; received "
            f"{text!r}"
        )
    if not stars:
        return text
    return "".join(h + s for h, s in zip(heads, stars, strict=False)) + last
