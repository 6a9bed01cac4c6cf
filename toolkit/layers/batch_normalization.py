"""BatchNormalization: each channel shifted and scaled by statistics of the batch."""

from __future__ import annotations

from typing import Any

from toolkit import initializers, ops
from toolkit.arguments import Fraction, NonNegative
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError, ShapeError
from toolkit.layers.input_spec import InputSpec
from toolkit.layers.normalization import Affine, widened
from toolkit.layers.weights import known
from toolkit.ops.normalization import normalize_batch
from toolkit.type_aliases import ConstraintLike, InitializerLike, RegularizerLike


class BatchNormalization(Affine):
    """`gamma * (x - mean) / sqrt(variance + epsilon) + beta` for each channel.

    In training, mean and variance are those of the batch, and move the moving ones:
    `moving = moving * momentum + batch's * (1 - momentum)`. Otherwise, or if the layer
    is frozen (`trainable = False`), the moving ones are used.

    Args:
        axis: the axis of the channels.
        momentum: how slowly the moving statistics move, in [0, 1].
        epsilon: added to the variance.
        center: whether there is a beta.
        scale: whether there is a gamma.
        beta_initializer: how beta, (channels,), starts.
        gamma_initializer: how gamma, (channels,), starts.
        moving_mean_initializer: how the moving mean starts.
        moving_variance_initializer: how the moving variance starts.
        beta_regularizer: a penalty on beta.
        gamma_regularizer: a penalty on gamma.
        beta_constraint: applied to beta after each update.
        gamma_constraint: applied to gamma after each update.
        renorm: whether training corrects the batch's statistics by moving ones, so that
            it computes what inference does.
        renorm_clipping: limits of that correction: "rmax", "rmin", "dmax"; those that
            are missing are none.
        renorm_momentum: how slowly the moving statistics of renorm move.
        synchronized: whether replicas share statistics; without replicas, no matter.

    Call arguments:
        training: whether to use the statistics of the batch.
        mask: all axes but the last, whichever has the channels; where it is False,
            elements do not count.

    Output shape: that of the inputs.

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
        **kwargs: Any,
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
        channels = known(self, input_shape, self.axis)
        self._create_affine((channels,))
        mean, variance = self.moving_mean_initializer, self.moving_variance_initializer
        self.moving_mean: Variable = self._statistic("moving_mean", channels, mean)
        self.moving_variance: Variable = self._statistic(
            "moving_variance", channels, variance
        )
        if self.renorm:

            def deviation(shape: Any, dtype: Any = None) -> Any:
                return ops.sqrt(variance(shape, dtype=dtype))

            self.moving_stddev: Variable = self._statistic(
                "moving_stddev", channels, deviation
            )
            self.renorm_mean: Variable = self._statistic("renorm_mean", channels, mean)
            self.renorm_stddev: Variable = self._statistic(
                "renorm_stddev", channels, deviation
            )
        self.input_spec = InputSpec(ndim=len(input_shape), axes={self.axis: channels})

    def _statistic(self, name: str, channels: int, initializer: Any) -> Variable:
        return self.add_weight(
            (channels,), initializer, trainable=False, autocast=False, name=name
        )

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
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

    def _is_plain(self, x: Any, mask: Any) -> bool:
        """Whether statistics are of all of x, for each index of the last axis."""
        is_last = self.axis % x.ndim == x.ndim - 1
        return is_last and mask is None and not self.renorm

    def _normalized_by_itself(self, inputs: Any) -> Any:
        x = inputs if inputs.dtype == self.compute_dtype else widened(inputs)
        y, mean, variance = normalize_batch(x, self.gamma, self.beta, self.epsilon)
        self._move(self.moving_mean, mean, self.momentum)
        self._move(self.moving_variance, variance, self.momentum)
        return ops.cast(y, self.compute_dtype)

    def _move(self, moving: Any, value: Any, momentum: float) -> Any:
        moved = ops.cast(moving, value.dtype) * momentum + value * (1 - momentum)
        moving.assign(moved)
        return moved

    def _move_deviations(self, mean: Any, deviation: Any) -> None:
        self._move(self.renorm_mean, mean, self.renorm_momentum)
        self._move(self.renorm_stddev, deviation, self.renorm_momentum)
        moved = self._move(self.moving_stddev, deviation, self.momentum)
        self.moving_variance.assign(ops.relu(ops.square(moved) - self.epsilon))

    def _renormalized(
        self, mean: Any, deviation: Any, scale: Any, offset: Any
    ) -> tuple[Any, Any]:
        """Scale and offset for `(x * r + d) * gamma + beta`, r and d constants."""
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
        """Mean and variance for each channel of what is not masked."""
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
    """The limits of renorm's correction that are set, checked."""
    unknown = set(limits) - {"rmin", "rmax", "dmax"}
    if unknown:
        raise ArgumentError(
            "BatchNormalization: invalid keys for renorm_clipping, expected rmax, "
            f"rmin, dmax; received {sorted(unknown)}"
        )
    found = {name: value for name, value in limits.items() if value is not None}
    if found.get("rmin", 0) > found.get("rmax", float("inf")):
        raise ArgumentError(
            "BatchNormalization: rmax should be greater than rmin in renorm_clipping; "
            f"received {limits}"
        )
    if found.get("dmax", 0) < 0:
        raise ArgumentError(
            "BatchNormalization: dmax should be non-negative in renorm_clipping; "
            f"received {limits}"
        )
    return found
