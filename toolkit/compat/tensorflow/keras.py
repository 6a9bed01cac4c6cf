"""`tf.keras`: the names of toolkit."""

from __future__ import annotations

from typing import Any

import toolkit


def __getattr__(name: str) -> Any:
    return getattr(toolkit, name)
