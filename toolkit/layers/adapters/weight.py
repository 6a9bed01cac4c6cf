"""The interface of a layer's weight to adapters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolkit.core.tensor import Tensor
from toolkit.ops.index import lookup


class Weight:
    """Weight of a layer without adaptation: the base class of adapters.

    Args:
        layer: the layer of the weight.
        name: the name of the weight; the attribute is `_name`. None means the main
            weight.
    """

    mode: str | None = None  # the quantization mode
    scales: tuple[str, ...] = ()  # the layer's attributes with the scales of the weight

    def __init__(self, layer: Any, name: str | None = None) -> None:
        self.layer = layer
        self.name: str = name or layer._adapted

    @property
    def variable(self) -> Any:
        """Return the Variable of the weight."""
        return getattr(self.layer, f"_{self.name}")

    @property
    def shape(self) -> Any:
        """Return the shape of the weight."""
        return self.variable.shape

    def value(self) -> Any:
        """Return the factor of the product that represents the weight."""
        return self.variable

    def rounded(self, inputs: Any) -> Tensor:
        """Return the factor of the product that represents the inputs."""
        return inputs

    def multiply(self, product: Callable[[Any, Any], Any], inputs: Any) -> Any:
        """Return `product(inputs, weight)`."""
        return product(self.rounded(inputs), self.value())

    def rows(self, indices: Tensor) -> Any:
        """Return `weight[indices]`, for indices from `reject_negative`."""
        return lookup(self.variable, indices)
