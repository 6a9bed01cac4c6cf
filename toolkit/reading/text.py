"""Text of files: JSON within the load budget, and numbers."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from toolkit.errors import ModelFileError
from toolkit.reading.budget import spend

_OBJECT_SIZE = 64  # bytes of an empty list or dict, a number or a short string


def parse_json(text: str | bytes, label: str, unique: bool = False) -> Any:
    """Parse JSON text within the load budget.

    Args:
        text: the text.
        label: the file, or the part of it, for messages.
        unique: whether to refuse an object with duplicate keys, of which the last value
            would win.

    Raises:
        ModelFileError: the text is not valid JSON.
        LoadBudgetError: its values exceed the memory budget.
    """
    try:
        raw = text.encode() if isinstance(text, str) else bytes(text)
    except UnicodeError as error:
        raise ModelFileError(f"{label}: expected text in UTF-8 ({error})") from error
    count = sum(raw.count(character) for character in (b"[", b"{", b",", b":"))
    spend(len(raw) + _OBJECT_SIZE * count, f"{label}, as values,")
    try:
        return json.loads(
            text, object_pairs_hook=_build_unique_dict if unique else None
        )
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{label}: expected JSON ({error})") from error


def parse_number(kind: Any, text: str | bytes) -> Any:
    """Parse a number in ASCII digits.

    Python and NumPy also accept `1_000`, and digits of other scripts.

    Args:
        kind: the type of the number: int, float, or a type of NumPy.
        text: a field of a file, or a string of a user.

    Raises:
        ValueError: the text is not a number.
        OverflowError: the number is outside the range of the type.
    """
    has_underscore = b"_" in text if isinstance(text, bytes) else "_" in text
    if has_underscore or not text.isascii():
        raise ValueError(f"expected a number; received {text!r:.60}")
    return kind(text)


def _build_unique_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object with unique keys."""
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        raise ValueError(f"{counts.most_common(1)[0][0][:100]!r} occurs twice")
    return mapping
