"""Learning rates that depend on the step."""

from __future__ import annotations

from typing import Any

from toolkit import serialization
from toolkit.optimizers.schedules.schedules import (
    CosineDecay,
    CosineDecayRestarts,
    ExponentialDecay,
    InverseTimeDecay,
    LearningRateSchedule,
    PiecewiseConstantDecay,
    PolynomialDecay,
)

__all__ = [
    "CosineDecay",
    "CosineDecayRestarts",
    "ExponentialDecay",
    "InverseTimeDecay",
    "LearningRateSchedule",
    "PiecewiseConstantDecay",
    "PolynomialDecay",
    "deserialize",
    "serialize",
]


def serialize(learning_rate_schedule: LearningRateSchedule) -> Any:
    """Return the config of a schedule.

    Args:
        learning_rate_schedule: a schedule.

    Returns:
        A dict of the class and the config.

    Example:
        >>> from toolkit.optimizers import schedules
        >>> config = schedules.serialize(schedules.ExponentialDecay(0.5, 10, 0.5))
        >>> config["config"]["decay_rate"]
        0.5
    """
    return serialization.serialize_keras_object(learning_rate_schedule)


def deserialize(config: Any, custom_objects: Any = None) -> Any:
    """Build a schedule from its config.

    Args:
        config: the result of `serialize`.
        custom_objects: a dict from names to classes that the config contains.

    Returns:
        The schedule.

    Example:
        >>> from toolkit.optimizers import schedules
        >>> config = schedules.serialize(schedules.ExponentialDecay(0.5, 10, 0.5))
        >>> schedules.deserialize(config).decay_rate
        0.5
    """
    return serialization.deserialize_keras_object(config, custom_objects)
