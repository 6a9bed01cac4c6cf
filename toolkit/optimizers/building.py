"""Creation of a model's optimizer state before the first step."""

from __future__ import annotations

from typing import Any


def build_optimizer(model: Any) -> None:
    """Create the optimizer state of a model, if it has an optimizer."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and not optimizer.built:
        optimizer.build(model.trainable_variables)
