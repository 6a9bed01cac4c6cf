"""Layers that normalize their inputs to mean 0 and variance 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from toolkit import dtypes, ops
from toolkit.arguments import NonNegative
from toolkit.core.tensor import Tensor
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError, ArgumentTypeError
from toolkit.layers.input_spec import InputSpec
from toolkit.layers.layer import Layer
from toolkit.layers.weights import (
    create_weight,
    declare_weights,
    positive,
    static_extent,
)
from toolkit.release.deprecation import warn_deprecated
from toolkit.type_aliases import (
    Axis,
    ConstraintLike,
    InitializerLike,
    RegularizedLayerOptions,
    RegularizerLike,
    Shape,
    TensorLike,
)


class Affine(Layer):
    """Base class of normalizations followed by `gamma * x + beta`."""

    _traces_call = True

    def __init__(
        self, arguments: dict[str, Any], **kwargs: Unpack[RegularizedLayerOptions]
    ) -> None:
        """Store the constructor's arguments, its `locals()`."""
        super().__init__(**kwargs)
        self.epsilon: float = arguments["epsilon"]
        self.center: bool = arguments["center"]
        self.scale: bool = arguments["scale"]
        declare_weights(self, arguments, "beta", "gamma")
        self.gamma: Any = None
        self.beta: Any = None
        self.supports_masking = True

    def compute_output_shape(self, input_shape: Shape) -> Any:
        return input_shape

    def _create_affine(self, shape: tuple[int, ...]) -> None:
        """Create gamma and beta; statistics need full precision."""
        if self.scale:
            self.gamma = create_weight(self, "gamma", shape, autocast=False)
        if self.center:
            self.beta = create_weight(self, "beta", shape, autocast=False)


def widened(x: Any) -> Tensor:
    """Return `x` in at least float32: sums of squares need more than 16 bits."""
    return ops.cast(x, dtypes.result_type(x.dtype, "float32"))


class LayerNormalization(Affine):
    """Layer normalization: `gamma * (x - mean) / sqrt(variance + epsilon) + beta`.

    Args:
        axis: the axis, or axes, of mean and variance.
        epsilon: a summand of the variance, against division by 0.
        center: whether there is a beta.
        scale: whether there is a gamma.
        beta_initializer: initializer of beta, the extents along `axis`.
        gamma_initializer: initializer of gamma, the extents along `axis`.
        beta_regularizer: regularizer of beta.
        gamma_regularizer: regularizer of gamma.
        beta_constraint: constraint of beta, applied after each update.
        gamma_constraint: constraint of gamma, applied after each update.
        rms_scaling: deprecated: whether to compute `gamma * x / sqrt(variance +
            epsilon)`.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> x = toolkit.ops.convert_to_tensor([[1.0, 3.0], [10.0, 30.0]])
        >>> toolkit.layers.LayerNormalization(epsilon=0.0)(x).tolist()
        [[-1.0, 1.0], [-1.0, 1.0]]

    Reference: https://arxiv.org/abs/1607.06450
    """

    def __init__(
        self,
        axis: Axis = -1,
        epsilon: NonNegative = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: InitializerLike | None = "zeros",
        gamma_initializer: InitializerLike | None = "ones",
        beta_regularizer: RegularizerLike | None = None,
        gamma_regularizer: RegularizerLike | None = None,
        beta_constraint: ConstraintLike | None = None,
        gamma_constraint: ConstraintLike | None = None,
        rms_scaling: bool = False,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        kwargs.setdefault("autocast", False)  # some inputs need more than 16 bits
        super().__init__(locals(), **kwargs)
        self.axis: Any = _axes(axis)
        if rms_scaling:
            warn_deprecated(
                "LayerNormalization: `rms_scaling`, which is no RMS normalization,",
                "use `RMSNormalization`",
                since="0.1",
            )
            self.center = False
        self.rms_scaling = rms_scaling

    def build(self, input_shape: Any) -> None:
        self._create_affine(_normalized_shape(self, input_shape))

    def call(self, inputs: Any) -> Tensor:
        if self.rms_scaling:
            x = widened(inputs)
            variance = ops.var(x, axis=self.axis, keepdims=True)
            scale = 1 if self.gamma is None else ops.cast(self.gamma, x.dtype)
            x = x * ops.rsqrt(variance + self.epsilon) * scale
            return ops.cast(x, self.compute_dtype)
        x = ops.layer_normalization(
            inputs, self.gamma, self.beta, self.axis, self.epsilon
        )
        return ops.cast(x, self.compute_dtype)


def _axes(axis: Any) -> Any:
    """Return an axis, or a list of them, in the form of Keras."""
    axes = list(axis) if isinstance(axis, (list, tuple)) else [axis]
    if not all(hasattr(a, "__index__") for a in axes):
        raise ArgumentTypeError(
            "Expected an int or a list/tuple of ints for the argument 'axis'; "
            f"received {axis!r}"
        )
    return axes if isinstance(axis, (list, tuple)) else int(axis)


def _normalized_shape(layer: Any, input_shape: Sequence[int | None]) -> tuple[int, ...]:
    """Return the extents along `layer.axis`, in the order of the inputs."""
    axes = layer.axis if isinstance(layer.axis, list) else [layer.axis]
    ndim = len(input_shape)
    shape = {axis % ndim: static_extent(layer, input_shape, axis) for axis in axes}
    return tuple(shape[axis] for axis in sorted(shape))


class GroupNormalization(Affine):
    """Normalization of each group of channels, over all positions.

    Args:
        groups: the number of groups, a divisor of the channels. -1: one group per
            channel.
        axis: the axis of the channels.
        epsilon: a summand of the variance, against division by 0.
        center: whether there is a beta.
        scale: whether there is a gamma.
        beta_initializer: initializer of beta, (channels,).
        gamma_initializer: initializer of gamma, (channels,).
        beta_regularizer: regularizer of beta.
        gamma_regularizer: regularizer of gamma.
        beta_constraint: constraint of beta, applied after each update.
        gamma_constraint: constraint of gamma, applied after each update.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.GroupNormalization(groups=2)
        >>> y = layer(toolkit.ops.array([[1.0, 3.0, 10.0, 30.0]]))
        >>> toolkit.ops.round(y, 1).tolist()
        [[-1.0, 1.0, -1.0, 1.0]]

    Reference: https://arxiv.org/abs/1803.08494
    """

    def __init__(
        self,
        groups: int = 32,
        axis: int = -1,
        epsilon: NonNegative = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: InitializerLike | None = "zeros",
        gamma_initializer: InitializerLike | None = "ones",
        beta_regularizer: RegularizerLike | None = None,
        gamma_regularizer: RegularizerLike | None = None,
        beta_constraint: ConstraintLike | None = None,
        gamma_constraint: ConstraintLike | None = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        kwargs.setdefault("autocast", False)  # some inputs need more than 16 bits
        super().__init__(locals(), **kwargs)
        self.groups: int = groups if groups == -1 else positive(self, "groups", groups)
        self.axis = axis

    def build(self, input_shape: Any) -> None:
        channels = static_extent(self, input_shape, self.axis)
        self.groups = channels if self.groups == -1 else self.groups
        if channels % self.groups:
            raise ArgumentError(
                f"GroupNormalization {self.name!r}: groups cannot be more "
                "than the number of channels, and the channels must be a multiple of "
                f"groups={self.groups}; received shape {tuple(input_shape)}"
            )
        self.input_spec = InputSpec(ndim=len(input_shape), axes={self.axis: channels})
        self._create_affine((channels,))

    def call(self, inputs: Any) -> Tensor:
        x = widened(inputs)
        axis = self.axis % x.ndim
        axes = tuple(i for i in range(1, x.ndim) if i != axis)
        # Average over groups along the channel axis, so that no axis of groups is
        # needed.
        x = x - self._of_groups(ops.mean(x, axes, keepdims=True), axis)
        variance = ops.mean(ops.square(x), axes, keepdims=True)
        x = x * ops.rsqrt(self._of_groups(variance, axis) + self.epsilon)
        channel_shape = tuple(n if i == axis else 1 for i, n in enumerate(x.shape))
        if self.gamma is not None:
            x = x * ops.cast(ops.reshape(self.gamma, channel_shape), x.dtype)
        if self.beta is not None:
            x = x + ops.cast(ops.reshape(self.beta, channel_shape), x.dtype)
        return ops.cast(x, self.compute_dtype)

    def _of_groups(self, x: Tensor, axis: int) -> Tensor:
        """Return for each channel the mean over the channels of its group."""
        *before, channels = x.shape[: axis + 1]
        grouped = (*before, self.groups, channels // self.groups, *x.shape[axis + 1 :])
        means = ops.mean(ops.reshape(x, grouped), axis + 1, keepdims=True)
        return ops.reshape(ops.broadcast_to(means, grouped), x.shape)


class RMSNormalization(Layer):
    """Root mean square normalization: `scale * x / sqrt(mean(x ** 2) + epsilon)`.

    Args:
        axis: the axis, or axes, of the mean.
        epsilon: a summand of the mean, against division by 0.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> y = toolkit.layers.RMSNormalization()(toolkit.ops.array([[2.0, -2.0]]))
        >>> toolkit.ops.round(y, 2).tolist()
        [[1.0, -1.0]]

    Reference: https://arxiv.org/abs/1910.07467
    """

    _traces_call = True

    def __init__(
        self,
        axis: Axis = -1,
        epsilon: NonNegative = 1e-6,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.axis: Any = _axes(axis)
        self.epsilon = epsilon

    def build(self, input_shape: Any) -> None:
        shape = _normalized_shape(self, input_shape)
        self.scale: Variable = self.add_weight(
            shape, "ones", autocast=False, name="scale"
        )

    def compute_output_shape(self, input_shape: Shape) -> Any:
        return input_shape

    def call(self, x: TensorLike) -> Tensor:
        x = ops.rms_normalization(x, self.scale, self.axis, self.epsilon)
        return ops.cast(x, self.compute_dtype)


class UnitNormalization(Layer):
    """Normalization to vectors of length 1: `x / sqrt(sum(x ** 2))`.

    Args:
        axis: the axis, or axes, of the sum.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> x = toolkit.ops.convert_to_tensor([[3.0, 4.0]])
        >>> [round(v, 3) for v in toolkit.layers.UnitNormalization()(x)[0].tolist()]
        [0.6, 0.8]
    """

    def __init__(
        self, axis: Axis = -1, **kwargs: Unpack[RegularizedLayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.axis: Any = _axes(axis)
        self.supports_masking = True

    def call(self, inputs: Any) -> Tensor:
        return ops.normalize(inputs, axis=self.axis, order=2, epsilon=1e-12)
