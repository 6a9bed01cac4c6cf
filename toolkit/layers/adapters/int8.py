"""A weight of 8-bit whole numbers, with scales for its outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolkit import ops
from toolkit.autodiff.tape import GradientTape
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError
from toolkit.layers.adapters.weight import Weight
from toolkit.quantizers.configs import Int8QuantizationConfig
from toolkit.quantizers.quantizer import AbsMaxQuantizer

Extents = tuple[int, ...]


class ScaleLayout:
    """Which elements of a weight share a scale, and how files keep the scales.

    Args:
        shared: the axes of the weight along which all elements share one.
        inputs: the axes of the inputs along which all elements share one.
    """

    # Whether outputs can be divided by the scale of the inputs they are of.
    is_separable: bool = True

    def __init__(self, shared: Extents, inputs: Extents = (-1,)) -> None:
        self.shared: Extents = shared
        self.inputs: Extents = inputs

    def kept(self, shape: Any) -> Extents:
        """The shape of a weight with extent 1 for the axes that share a scale."""
        shared = {axis % len(shape) for axis in self.shared}
        return tuple(1 if i in shared else n for i, n in enumerate(shape))

    def of_outputs(self, scale: Any) -> Any:
        """A scale of inputs, with extent 1 where they share one, for the outputs."""
        return scale

    def stored(self, scale: Any) -> Any:
        """A scale (of shape `kept`) as Keras's files have it: without shared axes."""
        return ops.squeeze(scale, self.shared)

    def of_weight(self, scale: Any, shape: Any) -> Any:
        """A stored scale in the shape `kept` of a weight of this shape."""
        return ops.reshape(scale, self.kept(shape))


class Int8Weight(Weight):
    """Whole numbers in place of a weight, which is these / scale.

    Inputs are rounded too, as the config of quantization says: the product is one of
    whole numbers then, divided by the scales of both. Gradients of inputs pass as if
    nothing was rounded.
    """

    mode: str = "int8"

    def __init__(self, layer: Any, layout: ScaleLayout, config: Any) -> None:
        super().__init__(layer)
        self.layout = layout
        self.scales: tuple[str, ...] = (f"{self.name}_scale",)
        config = config or Int8QuantizationConfig()
        self.inputs_quantizer: Any = config.activation_quantizer
        self.weight_quantizer: Any = config.weight_quantizer or AbsMaxQuantizer(
            axis=layout.shared
        )

    @property
    def scale(self) -> Variable:
        """The Variable that holds the scales."""
        return getattr(self.layer, self.scales[0])

    def create(self, shape: Any) -> None:
        """Give the layer both Variables."""
        layer, name = self.layer, self.name
        weight = layer.add_weight(shape, "zeros", "int8", trainable=False, name=name)
        setattr(layer, f"_{name}", weight)
        stored = self.layout.stored(ops.ones(self.layout.kept(shape)))
        (name,) = self.scales
        scale = layer.add_weight(stored.shape, "ones", trainable=False, name=name)
        setattr(layer, name, scale)

    def quantized(self, value: Any) -> tuple[Any, Any]:
        """A floating weight as whole numbers and a scale in the layout of files."""
        whole, scale = self.weight_quantizer(value, to_numpy=True)
        expected = self.layout.kept(value.shape)
        if tuple(scale.shape) != expected:
            raise ArgumentError(
                f"{self.layer.name}: the weight_quantizer must have a scale of shape "
                f"{expected}, from axis={self.layout.shared}; received "
                f"{tuple(scale.shape)}"
            )
        return whole, self.layout.stored(scale)

    def value(self) -> Any:
        return self._divided(self.variable, ops.convert_to_tensor(self.scale))

    def _divided(self, weight: Any, scale: Any) -> Any:
        return ops.divide(weight, self.layout.of_weight(scale, weight.shape))

    def multiply(self, product: Callable[[Any, Any], Any], inputs: Any) -> Any:
        quantizer = self.inputs_quantizer
        is_whole = quantizer is not None and quantizer.output_dtype == "int8"
        if not is_whole or not self.layout.is_separable:
            return super().multiply(product, inputs)
        x = ops.convert_to_tensor(inputs)
        return self._whole_product(product)(x, self.variable, self.scale)

    def _whole_product(self, product: Callable[[Any, Any], Any]) -> Any:
        """`product` of whole numbers, a function of inputs, weight and scale."""
        layout, dtype = self.layout, self.layer.compute_dtype

        @ops.custom_gradient
        def multiplied(x: Any, weight: Any, scale: Any) -> Any:
            whole, x_scale = self.inputs_quantizer(x, axis=layout.inputs)
            y = ops.cast(product(whole, weight), dtype)
            # Reciprocals are few; dividing each element would take longer.
            y = ops.multiply(y, ops.reciprocal(ops.cast(scale, dtype)))
            y = ops.multiply(y, ops.reciprocal(layout.of_outputs(x_scale)))

            def grad(g: Any) -> Any:
                with GradientTape() as tape:
                    tape.watch(x)
                    near = product(x, self._divided(weight, scale))
                return tape.gradient(near, x, g), None, None

            return y, grad

        return multiplied

    def rounded(self, inputs: Any) -> Any:
        if self.inputs_quantizer is None:
            return inputs
        whole, scale = self.inputs_quantizer(inputs, axis=self.layout.inputs)
        error = ops.subtract(ops.divide(whole, scale), inputs)
        return ops.add(inputs, ops.stop_gradient(error))

    def rows(self, indices: Any) -> Any:
        scale = ops.take(self.scale, indices, axis=0)
        return ops.divide(super().rows(indices), ops.expand_dims(scale, -1))
