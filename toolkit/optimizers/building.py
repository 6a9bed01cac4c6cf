"""The optimizer of a model with all of its state, before it has made a step."""

from __future__ import annotations

from typing import Any


def build_optimizer(model: Any) -> None:
    """Give a model's optimizer, if it has one, the state that its first step would."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and not optimizer.built:
        optimizer.build(model.trainable_variables)
