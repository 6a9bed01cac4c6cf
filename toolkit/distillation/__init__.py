"""Small models that learn from large ones."""

from toolkit.distillation.distiller import Distiller
from toolkit.distillation.losses import (
    DistillationLoss,
    FeatureDistillation,
    LogitsDistillation,
)

__all__ = [
    "DistillationLoss",
    "Distiller",
    "FeatureDistillation",
    "LogitsDistillation",
]
