"""Warning about layers that run in the wrong mode, without a `training` argument."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from toolkit.console.frames import warn_once
from toolkit.layers.batch_normalization import BatchNormalization
from toolkit.layers.call import context
from toolkit.layers.layer import Layer
from toolkit.layers.spectral_normalization import SpectralNormalization
from toolkit.layers.tracking import owned_state
from toolkit.random import SeedGenerator


@contextmanager
def watch_training_mode(model: Any, training: bool) -> Iterator[None]:
    """Warn once about layers whose mode is not `training`, for a model without one.

    As in Keras, a model whose `call` has no argument `training` does not receive the
    mode of `fit` and `evaluate`. Layers that receive no mode use their default.

    Args:
        model: the model that the block calls.
        training: whether the step is a training step.
    """
    with context.override(defaulted=[]):
        yield
        layers = [x for x, mode in context.defaulted or () if bool(mode) != training]
    names = [
        f"{x.name!r} ({type(x).__name__})" for x in _innermost(layers) if x is not model
    ]
    if names:
        mode = "in inference mode" if training else "in training mode"
        warn_once(
            model,
            f"{'fit' if training else 'evaluate and predict'}: the `call` of "
            f"{model.name!r} has no argument `training`, so {', '.join(names)} run "
            f"{mode}; define `call(self, inputs, training=None)`",
            topic=f"training mode {training}",
        )


def _innermost(layers: list[Layer]) -> list[Layer]:
    """Return the layers that depend on the mode, without those around another one."""
    matches = [*dict.fromkeys(x for x in layers if _depends_on_mode(x))]
    return [
        x
        for x in matches
        if not any(y is not x and y in x._flatten_layers() for y in matches)
    ]


def _depends_on_mode(layer: Layer) -> bool:
    """Return whether the outputs of a layer differ in training."""
    return any(
        (isinstance(x, BatchNormalization) and x.trainable)
        or isinstance(x, SpectralNormalization)
        or bool(owned_state(x, SeedGenerator))
        for x in layer._flatten_layers()
    )
