"""Integer weights, and the layout of their scales."""

from __future__ import annotations

from typing import Any

from toolkit import ops
from toolkit.core.tensor import Tensor
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError
from toolkit.layers.adapters.weight import Weight
from toolkit.type_aliases import DTypeLike, Shape

Extents = tuple[int, ...]


class ScaleLayout:
    """Layout of scales: which elements of a weight share one, and the format in files.

    Args:
        shared: the axes of the weight that share a scale.
        inputs: the axes of the inputs that share a scale.
        blocks: the axis of the weight matrix that is divided into blocks.
        packed: the axis of the weight matrix along which two 4-bit numbers share a
            byte.
    """

    # Whether the scale of the inputs can divide the outputs instead.
    is_separable: bool = True
    # Whether the product is a matrix product with the weight, reshaped to two axes: all
    # axes but the last, and the last.
    is_matrix: bool = True

    def __init__(
        self, shared: Extents, inputs: Extents = (-1,), blocks: int = 0, packed: int = 1
    ) -> None:
        self.shared: Extents = shared
        self.inputs: Extents = inputs
        self.blocks: int = blocks
        self.packed: int = packed

    def scale_shape(self, shape: Any) -> Extents:
        """Return the shape of a weight with extent 1 for axes that share a scale."""
        shared = {axis % len(shape) for axis in self.shared}
        return tuple(1 if i in shared else n for i, n in enumerate(shape))

    def matrix(self, shape: Any) -> Extents:
        """Return the shape of the weight as a matrix.

        All axes that share a scale form one matrix axis, all remaining axes the other
        one.
        """
        shared = {axis % len(shape) for axis in self.shared}
        pair = [1, 1]
        for i, n in enumerate(shape):
            pair[self.blocks if i in shared else 1 - self.blocks] *= n
        return tuple(pair)

    def rows_of(self, inputs: Any) -> Tensor:
        """Reshape inputs to (count, rows), for a product with the weight matrix."""
        return ops.reshape(inputs, (-1, inputs.shape[-1]))

    def of_outputs(self, scale: Any) -> Tensor:
        """Convert a scale of inputs to the axes of the outputs."""
        return scale

    def to_stored_scale(self, scale: Any) -> Tensor:
        """Convert a scale (of shape `scale_shape`) to the format of Keras files."""
        return ops.squeeze(scale, self.shared)

    def of_weight(self, scale: Any, shape: Shape) -> Tensor:
        """Reshape a stored scale to the `scale_shape` of a weight of this shape."""
        return ops.reshape(scale, self.scale_shape(shape))


class IntegerWeight(Weight):
    """Integers of a few bits that replace a weight.

    Args:
        layer: the layer of the weight.
        layout: the layout of scales.
        config: the quantizers.
        name: the name of the weight; the layer's main one if None.
    """

    def __init__(
        self, layer: Any, layout: ScaleLayout, config: Any, name: str | None = None
    ) -> None:
        super().__init__(layer, name)
        self.layout = layout
        self.config = config
        self.inputs_quantizer: Any = config.activation_quantizer

    def create(self, shape: Shape) -> None:
        """Create the layer's Variables for a weight of this shape."""
        raise NotImplementedError

    def quantized(self, value: Any) -> dict[str, Any]:
        """Return the values of the layer's Variables for a floating weight."""
        raise NotImplementedError

    def _scaled(self, quantizer: Any, value: Tensor) -> tuple[Any, Any]:
        """Quantize a floating weight; raise unless the scales fit the layout."""
        result = quantizer(value, to_numpy=True)
        if not isinstance(result, tuple) or len(result) != 2:
            raise ArgumentError(
                f"{self.layer.name}: expected the weight_quantizer to return "
                f"integers and their scale; received {type(result).__name__}"
            )
        integers, scale = result
        expected = self.layout.scale_shape(value.shape)
        if tuple(scale.shape) != expected:
            raise ArgumentError(
                f"{self.layer.name}: the weight_quantizer must have a scale of shape "
                f"{expected}, from axis={self.layout.shared}; received "
                f"{tuple(scale.shape)}"
            )
        return integers, scale

    def rounded(self, inputs: Any) -> Tensor:
        if self.inputs_quantizer is None:
            return inputs
        integers, scale = self.inputs_quantizer(inputs, axis=self.layout.inputs)
        error = ops.subtract(ops.divide(integers, scale), inputs)
        return ops.add(inputs, ops.stop_gradient(error))

    def _create(
        self, name: str, shape: Shape, start: Any, dtype: DTypeLike | None = None
    ) -> Variable:
        """Create a Variable of the layer that is not trained."""
        variable = self.layer.add_weight(
            shape,
            start,
            dtype,
            trainable=False,
            autocast=name != "g_idx",  # group indices must stay exact
            name=name,
        )
        is_weight = name == self.name
        setattr(self.layer, f"_{name}" if is_weight else name, variable)
        return variable
