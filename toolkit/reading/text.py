"""JSON of files, within the budget of their load."""

from __future__ import annotations

import json
from typing import Any

from toolkit.errors import ModelFileError
from toolkit.reading.budget import spend

_OF_OBJECT = 64  # bytes of an empty list or dict, a number or a short string


def parsed_json(text: str | bytes, where: str) -> Any:
    """What JSON text says.

    Args:
        text: the text.
        where: the file, or the part of it, for messages.

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
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{where}: expected JSON ({error})") from error
