"""Knowledge distillation: a small student model learns from a large teacher."""

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
