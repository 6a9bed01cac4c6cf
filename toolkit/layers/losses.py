"""The losses that a layer adds to those of its model."""

from __future__ import annotations

import weakref
from typing import Any

from toolkit import tree
from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor, state
from toolkit.errors import ArgumentError
from toolkit.layers.call import context, is_tensor
from toolkit.layers.tracking import StateOwner
from toolkit.ops import divide

# Layers that hold losses of `add_loss`: mostly none, and then clearing costs nothing.
with_losses: weakref.WeakSet[Any] = weakref.WeakSet()


class LossOwner(StateOwner):
    """Base of layers: what `add_loss` was given, and the penalties of regularizers."""

    activity_regularizer: Any = None
    # Each with the trace or scope it was added in: elsewhere it has no value.
    _losses: list[tuple[Any, Tensor]]

    def add_loss(self, loss: Any) -> None:
        """Add a scalar, or several, to `losses`; call it inside `call`.

        Nothing is added while only shapes are being inferred.
        """
        for x in tree.flatten(loss):
            if not is_tensor(x):
                raise ArgumentError(
                    f"{self.name}.add_loss: expected tensors; received {x!r}"
                )
            scope = state.overlay
            if getattr(scope, "collect_losses", False):
                scope.add_loss(convert(x))  # type: ignore[union-attr]
            elif not context.symbolic:
                self._losses.append((state.overlay, convert(x)))
                with_losses.add(self)

    @property
    def losses(self) -> list[Tensor]:
        """What the last call added, here and in layers inside, and weight penalties."""
        layers = self._flatten_layers()
        added = [
            loss
            for layer in layers
            for overlay, loss in layer._losses
            if overlay is state.overlay
        ]
        return added + [
            v.regularizer(v) for v in self.trainable_weights if v.regularizer
        ]

    def _clear_losses(self) -> None:
        for layer in self._flatten_layers():
            layer._losses.clear()
            with_losses.discard(layer)

    def _regularize_activity(self, outputs: Any) -> None:
        for output in tree.flatten(outputs):
            if isinstance(output, Tensor):
                loss = self.activity_regularizer(output)
                if output.ndim:
                    loss = divide(loss, max(output.shape[0], 1))
                self.add_loss(loss)
