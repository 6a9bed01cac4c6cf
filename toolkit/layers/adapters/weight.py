"""A layer's weight, as adapters see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolkit import ops


class Weight:
    """A weight of a layer as it is: the base of adapters.

    Args:
        layer: whose weight it is.
        name: of the weight, which is the layer's attribute `_name`; the layer's main
            one if None.
    """

    mode: str | None = None  # of quantization
    scales: tuple[str, ...] = ()  # the layer's attributes that belong to the weight

    def __init__(self, layer: Any, name: str | None = None) -> None:
        self.layer = layer
        self.name: str = name or layer._adapted

    @property
    def variable(self) -> Any:
        """The Variable that holds the weight."""
        return getattr(self.layer, f"_{self.name}")

    @property
    def shape(self) -> Any:
        """The extents of what it stands for."""
        return self.variable.shape

    def value(self) -> Any:
        """What stands for the weight in a product."""
        return self.variable

    def rounded(self, inputs: Any) -> Any:
        """What stands for the inputs in a product."""
        return inputs

    def multiply(self, product: Callable[[Any, Any], Any], inputs: Any) -> Any:
        """`product(inputs, weight)`."""
        return product(self.rounded(inputs), self.value())

    def rows(self, indices: Any) -> Any:
        """`weight[indices]`."""
        return ops.take(self.variable, indices, axis=0)
