"""Activation functions as layers."""

from __future__ import annotations

from typing import Any, Unpack

from toolkit import activations, ops, regularizers, settings
from toolkit.arguments import Axes, is_int
from toolkit.core.tensor import Tensor
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError, ShapeError
from toolkit.layers.config import renamed
from toolkit.layers.input_spec import InputSpec
from toolkit.layers.layer import Layer
from toolkit.layers.preprocessing.data_layer import DataLayer
from toolkit.layers.weights import create_weight, declare_weight, static_extent
from toolkit.type_aliases import (
    ActivationLike,
    ActivationOptions,
    ConstraintLike,
    InitializerLike,
    LayerOptions,
    RegularizedLayerOptions,
    RegularizerLike,
    Shape,
)


class Activation(Layer):
    """Layer that applies an activation function: `activation(inputs)`.

    Args:
        activation: a name such as "relu", or a function.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> toolkit.layers.Activation("relu")(toolkit.ops.arange(-2, 2)).tolist()
        [0, 0, 0, 1]
    """

    def __init__(
        self,
        activation: ActivationLike | None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.activation: Any = activations.get(activation)
        self.supports_masking = True

    def call(self, inputs: Any) -> Tensor:
        return inputs if self.activation is None else self.activation(inputs)


_NEITHER = "None or a negative value"


def _not_negative(layer: Layer, argument: str, value: Any) -> float:
    if value is None or not value >= 0:
        invalid_value = "a negative value" if argument == "max_value" else _NEITHER
        raise ArgumentError(
            f"{argument} of a {type(layer).__name__} layer cannot be {invalid_value}; "
            f"received {value!r}"
        )
    return float(value)


class ReLU(Layer):
    """Rectified linear unit, `min(max(x, 0), max_value)`, with an optional slope.

    Args:
        max_value: the maximum output; None for no limit.
        negative_slope: slope below the threshold: `negative_slope * (x - threshold)`.
        threshold: inputs below it give 0, or `negative_slope * (x - threshold)`.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> x = toolkit.ops.convert_to_tensor([-10.0, 0.5, 9.0])
        >>> toolkit.layers.ReLU(max_value=6, negative_slope=0.5)(x).tolist()
        [-5.0, 0.5, 6.0]
    """

    def __init__(
        self,
        max_value: float | None = None,
        negative_slope: float = 0.0,
        threshold: float = 0.0,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        if max_value is not None:
            max_value = _not_negative(self, "max_value", max_value)
        self.max_value = max_value
        self.negative_slope: float = _not_negative(
            self, "negative_slope", negative_slope
        )
        self.threshold: float = _not_negative(self, "threshold", threshold)
        self.supports_masking = True

    def call(self, inputs: Any) -> Tensor:
        return activations.relu(
            inputs, self.negative_slope, self.max_value, self.threshold
        )


class LeakyReLU(Layer):
    """Leaky rectified linear unit: `x` if x > 0, else `negative_slope * x`.

    Args:
        negative_slope: slope below 0.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> x = toolkit.ops.convert_to_tensor([-10.0, 5.0])
        >>> toolkit.layers.LeakyReLU(0.5)(x).tolist()
        [-5.0, 5.0]
    """

    def __init__(
        self, negative_slope: float = 0.3, **kwargs: Unpack[ActivationOptions]
    ) -> None:
        negative_slope = renamed(
            self, "alpha", "negative_slope", kwargs, negative_slope
        )
        super().__init__(**kwargs)
        self.negative_slope: float = _not_negative(
            self, "negative_slope", negative_slope
        )
        self.supports_masking = True

    def call(self, inputs: Any) -> Tensor:
        return activations.leaky_relu(inputs, negative_slope=self.negative_slope)


class ThresholdedReLU(Layer):
    """Thresholded rectified linear unit: `x` if x > theta, else 0.

    Keras 2 has this layer, Keras 3 does not. Models in Keras 2 files use it.

    Args:
        theta: the threshold, not negative.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> x = toolkit.ops.convert_to_tensor([-10.0, 1.0, 1.5])
        >>> toolkit.layers.ThresholdedReLU(1.0)(x).tolist()
        [0.0, 0.0, 1.5]
    """

    def __init__(
        self, theta: float = 1.0, **kwargs: Unpack[RegularizedLayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.theta: float = _not_negative(self, "theta", theta)
        self.supports_masking = True

    def call(self, inputs: Any) -> Tensor:
        return activations.relu(inputs, threshold=self.theta)


class ELU(Layer):
    """Exponential linear unit: `x` if x > 0, else `alpha * (exp(x) - 1)`.

    Args:
        alpha: minus the limit for large negative x.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> toolkit.layers.ELU()(toolkit.ops.array([-20.0, 0.0, 2.0])).tolist()
        [-1.0, 0.0, 2.0]

    Reference: https://arxiv.org/abs/1511.07289
    """

    def __init__(
        self, alpha: float = 1.0, **kwargs: Unpack[RegularizedLayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.alpha = alpha
        self.supports_masking = True

    def call(self, inputs: Any) -> Tensor:
        return activations.elu(inputs, alpha=self.alpha)


class PReLU(Layer):
    """Parametric rectified linear unit: `x` if x > 0, else `alpha * x` (trained alpha).

    Args:
        alpha_initializer: initializer of alpha, (*input shape without the batch).
        alpha_regularizer: regularizer of alpha.
        alpha_constraint: constraint of alpha, applied after each update.
        shared_axes: axes that share one alpha, such as (1, 2) for images.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.PReLU(alpha_initializer="ones")
        >>> layer(toolkit.ops.array([[-2.0, 3.0]])).tolist()
        [[-2.0, 3.0]]

    Reference: https://arxiv.org/abs/1502.01852
    """

    _traces_call = True

    def __init__(
        self,
        alpha_initializer: InitializerLike | None = "zeros",
        alpha_regularizer: RegularizerLike | None = None,
        alpha_constraint: ConstraintLike | None = None,
        shared_axes: Axes = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        declare_weight(
            self, "alpha", alpha_initializer, alpha_regularizer, alpha_constraint
        )
        single = is_int(shared_axes)
        self.shared_axes: tuple[int, ...] = (
            (shared_axes,) if single else tuple(shared_axes or ())
        )
        self.supports_masking = True

    def build(self, input_shape: Any) -> None:
        axes = range(1, len(input_shape))
        shared_axes_map: dict[int, int | None] = {
            i: static_extent(self, input_shape, i)
            for i in axes
            if i not in self.shared_axes
        }
        self.alpha: Variable = create_weight(
            self, "alpha", tuple(shared_axes_map.get(i, 1) for i in axes)
        )
        self.input_spec = InputSpec(ndim=len(input_shape), axes=shared_axes_map)

    def compute_output_shape(self, input_shape: Shape) -> Any:
        return input_shape

    def call(self, inputs: Any) -> Tensor:
        return ops.maximum(inputs, 0) + self.alpha * ops.minimum(inputs, 0)


class Softmax(Layer):
    """Softmax, `exp(x) / sum(exp(x))` along an axis.

    Args:
        axis: the axis along which the outputs sum to 1; several axes as a tuple.

    Call arguments:
        mask: booleans that broadcast to the inputs (numbers above 0.5 mean True). Where
            False the output is 0.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> x = toolkit.ops.convert_to_tensor([[1.0, 1.0, 5.0]])
        >>> mask = toolkit.ops.convert_to_tensor([[True, True, False]])
        >>> toolkit.layers.Softmax()(x, mask=mask).tolist()
        [[0.5, 0.5, 0.0]]
    """

    def __init__(
        self, axis: Axes = -1, **kwargs: Unpack[RegularizedLayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.axis: Axes = tuple(axis) if isinstance(axis, (list, tuple)) else axis
        self.supports_masking = True

    def call(self, inputs: Any, mask: Any = None) -> Tensor:
        if mask is None:
            return ops.softmax(inputs, axis=self.axis)
        extents = zip(mask.shape[::-1], inputs.shape[::-1], strict=False)
        if mask.ndim > inputs.ndim or any(m not in (1, n) for m, n in extents):
            raise ShapeError(
                "Softmax: the mask must be broadcastable to the inputs and not be "
                f"larger; received shapes {mask.shape} and {inputs.shape}"
            )
        mask = mask if mask.dtype == "bool" else ops.greater(mask, 0.5)
        lowest = -3e4 if inputs.dtype == "float16" else -1e9
        x = ops.softmax(ops.where(mask, inputs, lowest), axis=self.axis)
        # Without this, softmax of a fully masked row would return equal probabilities.
        return ops.where(mask, x, 0.0)


class ActivityRegularization(Layer):
    """Identity layer that adds an L1 and an L2 penalty of its inputs to the losses.

    Args:
        l1: factor of `sum(abs(x))`.
        l2: factor of `sum(x ** 2)`.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.ActivityRegularization(l2=0.5)
        >>> x = layer(toolkit.ops.array([[1.0, 3.0]]))
        >>> [float(loss) for loss in layer.losses]
        [5.0]
    """

    def __init__(
        self, l1: float = 0.0, l2: float = 0.0, **kwargs: Unpack[LayerOptions]
    ) -> None:
        penalty = regularizers.L1L2(l1=l1, l2=l2)
        super().__init__(activity_regularizer=penalty, **kwargs)
        self.l1: float = l1
        self.l2: float = l2
        self.supports_masking = True

    def call(self, inputs: Any) -> Tensor:
        return inputs


class Rescaling(DataLayer):
    """Layer that computes `inputs * scale + offset`.

    Args:
        scale: a number, or one per channel; 1 / 255 maps bytes to [0, 1].
        offset: a number, or one per channel.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> x = toolkit.ops.convert_to_tensor([0, 255], dtype="uint8")
        >>> toolkit.layers.Rescaling(2 / 255, offset=-1)(x).tolist()
        [-1.0, 1.0]
    """

    def __init__(
        self, scale: Any, offset: Any = 0.0, **kwargs: Unpack[RegularizedLayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.scale = scale
        self.offset = offset
        self.supports_masking = True
        self._allow_non_tensor_positional_args = True

    def call(self, inputs: Any) -> Tensor:
        inputs = ops.convert_to_tensor(inputs)
        scale, offset = (self._by_channel(v, inputs) for v in (self.scale, self.offset))
        return ops.cast(inputs, self.compute_dtype) * scale + offset

    def _by_channel(self, value: Any, inputs: Tensor) -> Tensor:
        tensor = ops.cast(value, self.compute_dtype)
        if tensor.ndim == 1 and settings.image_data_format() == "channels_first":
            return ops.reshape(tensor, (-1,) + (1,) * (inputs.ndim - 2))
        return tensor
