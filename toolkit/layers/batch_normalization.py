"""BatchNormalization: normalize each channel by statistics of the batch."""

from __future__ import annotations

from typing import Any, Unpack

from toolkit import initializers, ops
from toolkit.arguments import Fraction, NonNegative
from toolkit.core.tensor import Tensor
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError, ShapeError
from toolkit.layers.input_spec import InputSpec
from toolkit.layers.normalization import Affine, widened
from toolkit.layers.weights import static_extent
from toolkit.ops.normalization import normalize_batch
from toolkit.type_aliases import (
    ConstraintLike,
    DTypeLike,
    InitializerLike,
    RegularizedLayerOptions,
    RegularizerLike,
    Shape,
)


class BatchNormalization(Affine):
    """Batch normalization: `gamma * (x - mean) / sqrt(variance + epsilon) + beta`.

    Training uses the mean and variance of the batch, and updates the moving statistics:
    `moving = moving * momentum + batch * (1 - momentum)`. Inference, or a frozen layer
    (`trainable = False`), uses the moving statistics.

    Args:
        axis: the axis of the channels.
        momentum: the decay of the moving statistics, in [0, 1].
        epsilon: a summand of the variance, against division by 0.
        center: whether there is a beta.
        scale: whether there is a gamma.
        beta_initializer: initializer of beta, (channels,).
        gamma_initializer: initializer of gamma, (channels,).
        moving_mean_initializer: initializer of the moving mean.
        moving_variance_initializer: initializer of the moving variance.
        beta_regularizer: regularizer of beta.
        gamma_regularizer: regularizer of gamma.
        beta_constraint: constraint of beta, applied after each update.
        gamma_constraint: constraint of gamma, applied after each update.
        renorm: whether training corrects the batch statistics by moving statistics
            (batch renormalization), so that training and inference match.
        renorm_clipping: limits of that correction: "rmax", "rmin", "dmax"; a missing
            key means no limit.
        renorm_momentum: the decay of the moving statistics of renorm.
        synchronized: whether replicas share statistics; ignored without replicas.

    Call arguments:
        training: whether to use the statistics of the batch.
        mask: all axes except the last; elements with False are ignored.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> x = toolkit.ops.convert_to_tensor([[1.0], [3.0]])
        >>> y = toolkit.layers.BatchNormalization(epsilon=0.0)(x, training=True)
        >>> y.tolist()
        [[-1.0], [1.0]]

    Reference: https://arxiv.org/abs/1502.03167, https://arxiv.org/abs/1702.03275
    """

    def __init__(
        self,
        axis: int = -1,
        momentum: Fraction = 0.99,
        epsilon: NonNegative = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: InitializerLike | None = "zeros",
        gamma_initializer: InitializerLike | None = "ones",
        moving_mean_initializer: InitializerLike | None = "zeros",
        moving_variance_initializer: InitializerLike | None = "ones",
        beta_regularizer: RegularizerLike | None = None,
        gamma_regularizer: RegularizerLike | None = None,
        beta_constraint: ConstraintLike | None = None,
        gamma_constraint: ConstraintLike | None = None,
        renorm: bool = False,
        renorm_clipping: dict[str, float] | None = None,
        renorm_momentum: float = 0.99,
        synchronized: bool = False,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(locals(), **kwargs)
        self.axis = axis
        self.momentum = momentum
        self.synchronized = synchronized
        self.renorm = renorm
        self.renorm_momentum = renorm_momentum
        self.renorm_clipping: dict[str, float] = _checked_limits(renorm_clipping or {})
        self.moving_mean_initializer: Any = initializers.get(moving_mean_initializer)
        self.moving_variance_initializer: Any = initializers.get(
            moving_variance_initializer
        )

    def build(self, input_shape: Any) -> None:
        channels = static_extent(self, input_shape, self.axis)
        self._create_affine((channels,))
        mean, variance = self.moving_mean_initializer, self.moving_variance_initializer
        self.moving_mean: Variable = self._statistic("moving_mean", channels, mean)
        self.moving_variance: Variable = self._statistic(
            "moving_variance", channels, variance
        )
        if self.renorm:

            def deviation(shape: Shape, dtype: DTypeLike | None = None) -> Tensor:
                return ops.sqrt(variance(shape, dtype=dtype))

            self.moving_stddev: Variable = self._statistic(
                "moving_stddev", channels, deviation
            )
            self.renorm_mean: Variable = self._statistic("renorm_mean", channels, mean)
            self.renorm_stddev: Variable = self._statistic(
                "renorm_stddev", channels, deviation
            )
        self.input_spec = InputSpec(ndim=len(input_shape), axes={self.axis: channels})

    def _statistic(
        self, name: str, channels: int, initializer: InitializerLike
    ) -> Variable:
        return self.add_weight(
            (channels,), initializer, trainable=False, autocast=False, name=name
        )

    def call(
        self, inputs: Any, training: bool | None = None, mask: Any = None
    ) -> Tensor:
        if training and self.trainable and self._is_plain(inputs, mask):
            return self._normalized_by_itself(inputs)
        x = widened(inputs)
        offset = None if self.beta is None else ops.cast(self.beta, x.dtype)
        scale = None if self.gamma is None else ops.cast(self.gamma, x.dtype)
        if training and self.trainable:
            mean, variance = self._moments(x, mask)
            self._move(self.moving_mean, mean, self.momentum)
            if self.renorm:
                deviation = ops.sqrt(variance + self.epsilon)
                scale, offset = self._renormalized(mean, deviation, scale, offset)
                self._move_deviations(mean, deviation)
            else:
                self._move(self.moving_variance, variance, self.momentum)
        else:
            mean = ops.cast(self.moving_mean, x.dtype)
            variance = ops.cast(self.moving_variance, x.dtype)
        x = ops.batch_normalization(
            x, mean, variance, self.axis, offset, scale, self.epsilon
        )
        return ops.cast(x, self.compute_dtype)

    def _is_plain(self, x: Tensor, mask: Tensor | None) -> bool:
        """Return whether statistics cover all of x, for each index of the last axis."""
        is_last = self.axis % x.ndim == x.ndim - 1
        return is_last and mask is None and not self.renorm

    def _normalized_by_itself(self, inputs: Tensor) -> Tensor:
        x = inputs if inputs.dtype == self.compute_dtype else widened(inputs)
        y, mean, variance = normalize_batch(x, self.gamma, self.beta, self.epsilon)
        self._move(self.moving_mean, mean, self.momentum)
        self._move(self.moving_variance, variance, self.momentum)
        return ops.cast(y, self.compute_dtype)

    def _move(self, moving: Variable, value: Tensor, momentum: float) -> Tensor:
        moved = ops.cast(moving, value.dtype) * momentum + value * (1 - momentum)
        moving.assign(moved)
        return moved

    def _move_deviations(self, mean: Tensor, deviation: Tensor) -> None:
        self._move(self.renorm_mean, mean, self.renorm_momentum)
        self._move(self.renorm_stddev, deviation, self.renorm_momentum)
        moved = self._move(self.moving_stddev, deviation, self.momentum)
        self.moving_variance.assign(ops.relu(ops.square(moved) - self.epsilon))

    def _renormalized(
        self,
        mean: Tensor,
        deviation: Tensor,
        scale: Tensor | None,
        offset: Tensor | None,
    ) -> tuple[Any, Any]:
        """Return scale and offset of `(x * r + d) * gamma + beta`, r and d fixed."""
        moving = ops.cast(self.renorm_stddev, mean.dtype)
        moving = ops.maximum(moving, self.epsilon**0.5)
        limits = self.renorm_clipping
        r = ops.stop_gradient(deviation / moving)
        d = (mean - ops.cast(self.renorm_mean, mean.dtype)) / moving
        d = ops.stop_gradient(d)
        r = ops.maximum(r, limits["rmin"]) if "rmin" in limits else r
        r = ops.minimum(r, limits["rmax"]) if "rmax" in limits else r
        d = ops.clip(d, -limits["dmax"], limits["dmax"]) if "dmax" in limits else d
        if scale is not None:
            r, d = r * scale, d * scale
        return r, d if offset is None else d + offset

    def _moments(self, x: Any, mask: Any) -> tuple[Any, Any]:
        """Return mean and variance of the unmasked elements of each channel."""
        axis = self.axis % x.ndim
        axes = tuple(i for i in range(x.ndim) if i != axis)
        if mask is None:
            return ops.moments(x, axes)
        if mask.ndim != x.ndim - 1:
            raise ShapeError(
                "BatchNormalization: expected a mask with one axis less than the "
                f"inputs {x.shape}; received {mask.shape}"
            )
        weights = ops.expand_dims(ops.cast(mask, x.dtype), -1)
        weights = ops.broadcast_to(weights, x.shape)
        count = ops.sum(weights, axes, keepdims=True) + 1e-7
        mean = ops.sum(weights * x, axes, keepdims=True) / count
        variance = ops.sum(weights * ops.square(x - mean), axes, keepdims=True) / count
        return ops.squeeze(mean, axes), ops.squeeze(variance, axes)


def _checked_limits(limits: dict[str, float]) -> dict[str, float]:
    """Check the limits of renorm's correction; return the limits that are set."""
    unknown = set(limits) - {"rmin", "rmax", "dmax"}
    if unknown:
        raise ArgumentError(
            "BatchNormalization: invalid keys for renorm_clipping, expected rmax, "
            f"rmin, dmax; received {sorted(unknown)}"
        )
    set_limits = {name: value for name, value in limits.items() if value is not None}
    if set_limits.get("rmin", 0) > set_limits.get("rmax", float("inf")):
        raise ArgumentError(
            "BatchNormalization: rmax should be greater than rmin in renorm_clipping; "
            f"received {limits}"
        )
    if set_limits.get("dmax", 0) < 0:
        raise ArgumentError(
            "BatchNormalization: dmax should be non-negative in renorm_clipping; "
            f"received {limits}"
        )
    return set_limits
