"""Weight of 8-bit integers, with one scale per output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolkit import ops
from toolkit.autodiff.tape import GradientTape
from toolkit.core.tensor import Tensor
from toolkit.core.variable import Variable
from toolkit.layers.adapters.whole import IntegerWeight, ScaleLayout
from toolkit.ops.index import lookup
from toolkit.quantizers.configs import Int8QuantizationConfig
from toolkit.quantizers.quantizer import AbsMaxQuantizer
from toolkit.type_aliases import Shape, TensorLike


class Int8Weight(IntegerWeight):
    """Integers that replace a weight; the weight is integers / scale.

    Inputs are also rounded if the quantization config has an activation quantizer. Then
    the product is an integer product, divided by both scales. Gradients of inputs
    ignore the rounding.
    """

    mode: str = "int8"

    def __init__(
        self, layer: Any, layout: ScaleLayout, config: Any, name: str | None = None
    ) -> None:
        super().__init__(layer, layout, config or Int8QuantizationConfig(), name)
        self.scales: tuple[str, ...] = (f"{self.name}_scale",)
        self.weight_quantizer: Any = self.config.weight_quantizer or AbsMaxQuantizer(
            axis=layout.shared
        )

    @property
    def scale(self) -> Variable:
        """Return the Variable of the scales."""
        return getattr(self.layer, self.scales[0])

    def create(self, shape: Shape) -> None:
        self._create(self.name, shape, "zeros", "int8")
        stored = self.layout.to_stored_scale(ops.ones(self.layout.scale_shape(shape)))
        self._create(self.scales[0], stored.shape, "ones")

    def quantized(self, value: Any) -> dict[str, Any]:
        integers, scale = self._scaled(self.weight_quantizer, value)
        return {
            f"_{self.name}": integers,
            self.scales[0]: self.layout.to_stored_scale(scale),
        }

    def value(self) -> Any:
        return self._divided(self.variable, ops.convert_to_tensor(self.scale))

    def _divided(self, weight: Any, scale: Tensor) -> Tensor:
        return ops.divide(weight, self.layout.of_weight(scale, weight.shape))

    def multiply(self, product: Callable[[Any, Any], Any], inputs: Any) -> Any:
        quantizer = self.inputs_quantizer
        is_whole = quantizer is not None and quantizer.output_dtype == "int8"
        if not is_whole or not self.layout.is_separable:
            return super().multiply(product, inputs)
        x = ops.convert_to_tensor(inputs)
        return self._whole_product(product)(x, self.variable, self.scale)

    def _whole_product(self, product: Callable[[Any, Any], Any]) -> Any:
        """Return the integer `product` as a function of inputs, weight and scale."""
        layout, dtype = self.layout, self.layer.compute_dtype

        @ops.custom_gradient
        def multiplied(x: TensorLike, weight: Tensor, scale: Tensor) -> Any:
            integers, x_scale = self.inputs_quantizer(x, axis=layout.inputs)
            y = ops.cast(product(integers, weight), dtype)
            # Only the few scales are inverted; a division per element would be slower.
            y = ops.multiply(y, ops.reciprocal(ops.cast(scale, dtype)))
            y = ops.multiply(y, ops.reciprocal(layout.of_outputs(x_scale)))

            def grad(g: Tensor) -> tuple[Tensor | None, ...]:
                with GradientTape() as tape:
                    tape.watch(x)
                    near = product(x, self._divided(weight, scale))
                return tape.gradient(near, x, g), None, None

            return y, grad

        return multiplied

    def rows(self, indices: Tensor) -> Tensor:
        scale = lookup(self.scale, indices)
        return ops.divide(super().rows(indices), ops.expand_dims(scale, -1))
