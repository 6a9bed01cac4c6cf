"""JSON of files, within the budget of their load."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from toolkit.errors import ModelFileError
from toolkit.reading.budget import spend

_OF_OBJECT = 64  # bytes of an empty list or dict, a number or a short string


def parsed_json(text: str | bytes, where: str, unique: bool = False) -> Any:
    """What JSON text says.

    Args:
        text: the text.
        where: the file, or the part of it, for messages.
        unique: whether an object may not have two values under one name, of which the
            last would count.

    Raises:
        ModelFileError: it is none.
        LoadBudgetError: its values take more memory than the load may.
    """
    try:
        raw = text.encode() if isinstance(text, str) else bytes(text)
    except UnicodeError as error:
        raise ModelFileError(f"{where}: expected text in UTF-8 ({error})") from error
    count = sum(raw.count(sign) for sign in (b"[", b"{", b",", b":"))
    spend(len(raw) + _OF_OBJECT * count, f"{where}, as values,")
    try:
        return json.loads(text, object_pairs_hook=_unique if unique else None)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{where}: expected JSON ({error})") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, whose names differ."""
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        raise ValueError(f"{counts.most_common(1)[0][0][:100]!r} is there twice")
    return found
