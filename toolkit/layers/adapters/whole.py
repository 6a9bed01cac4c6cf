"""Weights of whole numbers, and which of their elements share a scale."""

from __future__ import annotations

from typing import Any

from toolkit import ops
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError
from toolkit.layers.adapters.weight import Weight

Extents = tuple[int, ...]


class ScaleLayout:
    """Which elements of a weight share a scale, and how files keep the scales.

    Args:
        shared: the axes of the weight along which all elements share one.
        inputs: the axes of the inputs along which all elements share one.
        blocks: the axis of the weight as a matrix that blocks of rows or columns cut.
        packed: the axis of that matrix along which two numbers of 4 bits share a byte.
    """

    # Whether outputs can be divided by the scale of the inputs they are of.
    is_separable: bool = True
    # Whether the weight, its first axes made one, and its last, is a matrix that the
    # inputs are multiplied with.
    is_matrix: bool = True

    def __init__(
        self,
        shared: Extents,
        inputs: Extents = (-1,),
        blocks: int = 0,
        packed: int = 1,
    ) -> None:
        self.shared: Extents = shared
        self.inputs: Extents = inputs
        self.blocks: int = blocks
        self.packed: int = packed

    def kept(self, shape: Any) -> Extents:
        """The shape of a weight with extent 1 for the axes that share a scale."""
        shared = {axis % len(shape) for axis in self.shared}
        return tuple(1 if i in shared else n for i, n in enumerate(shape))

    def matrix(self, shape: Any) -> Extents:
        """The extents of a weight of this shape as a matrix.

        Axes that share a scale are one, and all others are one.
        """
        shared = {axis % len(shape) for axis in self.shared}
        pair = [1, 1]
        for i, n in enumerate(shape):
            pair[self.blocks if i in shared else 1 - self.blocks] *= n
        return tuple(pair)

    def rows_of(self, inputs: Any) -> Any:
        """Inputs, (count, rows), of a product with the weight as a matrix."""
        return ops.reshape(inputs, (-1, inputs.shape[-1]))

    def of_outputs(self, scale: Any) -> Any:
        """A scale of inputs, with extent 1 where they share one, for the outputs."""
        return scale

    def stored(self, scale: Any) -> Any:
        """A scale (of shape `kept`) as Keras's files have it: without shared axes."""
        return ops.squeeze(scale, self.shared)

    def of_weight(self, scale: Any, shape: Any) -> Any:
        """A stored scale in the shape `kept` of a weight of this shape."""
        return ops.reshape(scale, self.kept(shape))


class WholeWeight(Weight):
    """Whole numbers of a few bits in place of a weight.

    Args:
        layer: whose weight it is.
        layout: of scales.
        config: which quantizers to use.
        name: of the weight; the layer's main one if None.
    """

    def __init__(
        self, layer: Any, layout: ScaleLayout, config: Any, name: str | None = None
    ) -> None:
        super().__init__(layer, name)
        self.layout = layout
        self.config = config
        self.inputs_quantizer: Any = config.activation_quantizer

    def create(self, shape: Any) -> None:
        """Give the layer its Variables, for a weight of this shape."""
        raise NotImplementedError

    def quantized(self, value: Any) -> dict[str, Any]:
        """What the layer's Variables are for a floating weight, by their attributes."""
        raise NotImplementedError

    def _scaled(self, quantizer: Any, value: Any) -> tuple[Any, Any]:
        """Whole numbers and scales of a floating weight, if these are the layout's."""
        found = quantizer(value, to_numpy=True)
        if not isinstance(found, tuple) or len(found) != 2:
            raise ArgumentError(
                f"{self.layer.name}: expected whole numbers and their scale of the "
                f"weight_quantizer; received {type(found).__name__}"
            )
        whole, scale = found
        expected = self.layout.kept(value.shape)
        if tuple(scale.shape) != expected:
            raise ArgumentError(
                f"{self.layer.name}: the weight_quantizer must have a scale of shape "
                f"{expected}, from axis={self.layout.shared}; received "
                f"{tuple(scale.shape)}"
            )
        return whole, scale

    def rounded(self, inputs: Any) -> Any:
        if self.inputs_quantizer is None:
            return inputs
        whole, scale = self.inputs_quantizer(inputs, axis=self.layout.inputs)
        error = ops.subtract(ops.divide(whole, scale), inputs)
        return ops.add(inputs, ops.stop_gradient(error))

    def _create(self, name: str, shape: Any, start: Any, dtype: Any = None) -> Variable:
        """Give the layer a Variable that is not trained."""
        variable = self.layer.add_weight(
            shape,
            start,
            dtype,
            trainable=False,
            autocast=name != "g_idx",  # numbers of groups are exact
            name=name,
        )
        is_weight = name == self.name
        setattr(self.layer, f"_{name}" if is_weight else name, variable)
        return variable
