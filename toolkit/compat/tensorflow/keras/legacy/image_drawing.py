"""Random numbers of `ImageDataGenerator` for one image, and their ranges."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit.arguments import is_int, is_real
from toolkit.errors import ArgumentError


def check_pair(argument: str, value: Any) -> Any:
    """Return the value, or raise if it is not a pair."""
    if np.ndim(value) != 1 or len(value) != 2:
        raise ArgumentError(f"{argument} must be two numbers; received {value!r}")
    return value


def draw_zoom(zoom_range: Any) -> tuple[float, float]:
    """Draw factors for the two axes; the range (1, 1) uses no random numbers."""
    if zoom_range[0] == 1 and zoom_range[1] == 1:
        return 1, 1
    zx, zy = np.random.uniform(zoom_range[0], zoom_range[1], 2)
    return zx, zy


def draw_uniform(limit: float) -> float:
    """Draw a number between -limit and limit."""
    return np.random.uniform(-limit, limit)


def draw_shift(shift_range: Any, extent: int) -> Any:
    """Draw the shift in pixels along an axis of this extent."""
    if not shift_range:
        return 0
    if np.ndim(shift_range) or (is_int(shift_range) and shift_range > 0):
        shift = np.random.choice(shift_range) * np.random.choice([-1, 1])
    else:
        shift = np.random.uniform(-shift_range, shift_range)
    return shift * extent if np.max(shift_range) < 1 else shift


def validate_shift(name: str, value: Any) -> Any:
    """Return the validated number or list."""
    if np.ndim(value) > 1:
        raise ArgumentError(
            f"ImageDataGenerator: {name} must be a number or a list; received {value!r}"
        )
    return value.tolist() if isinstance(value, np.ndarray) else value


def validate_zoom(value: Any) -> list[float]:
    """Return the validated [minimum, maximum] factor."""
    if is_real(value):
        return [1 - value, 1 + value]
    if np.ndim(value) == 1 and len(value) == 2 and all(map(is_real, value)):
        return list(value)
    raise ArgumentError(
        f"ImageDataGenerator: zoom_range must be a number or two; received {value!r}"
    )


def validate_brightness(value: Any) -> Any:
    """Return the validated pair of numbers, or None."""
    if value is not None and (np.ndim(value) != 1 or len(value) != 2):
        raise ArgumentError(
            "ImageDataGenerator: brightness_range must be two numbers or None; "
            f"received {value!r}"
        )
    return value


def validate_split(value: float | None) -> float:
    """Return the validated fraction of the data, below 1."""
    if value and not 0 < value < 1:
        raise ArgumentError(
            f"ImageDataGenerator: validation_split must be in [0, 1); received {value}"
        )
    return value or 0.0
