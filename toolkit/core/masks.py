"""Masks: the valid elements of a tensor or symbol, which layers pass on."""

from __future__ import annotations

from typing import Any


def mask_of(x: object) -> Any:
    """Return the mask of a tensor or symbol, or None."""
    return getattr(x, "_keras_mask", None)


def set_mask(x: Any, mask: object) -> None:
    """Set the mask of a tensor or symbol; None removes it."""
    x._keras_mask = mask
