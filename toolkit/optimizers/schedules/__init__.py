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
    """Return the config of a schedule."""
    return serialization.serialize_keras_object(learning_rate_schedule)


def deserialize(config: Any, custom_objects: Any = None) -> Any:
    """Build a schedule from its config."""
    return serialization.deserialize_keras_object(config, custom_objects)
