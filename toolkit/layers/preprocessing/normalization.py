"""Normalization: shifts and scales features to mean 0 and variance 1."""

from __future__ import annotations

from math import prod
from typing import Any, Unpack

import numpy as np

from toolkit import ops, settings
from toolkit.arguments import Axes, is_int
from toolkit.backends.memory import to_host
from toolkit.console.frames import warn
from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError, ArgumentTypeError, NotBuiltError, ShapeError
from toolkit.layers.preprocessing.data_layer import DataLayer
from toolkit.layers.preprocessing.host import batches_of
from toolkit.type_aliases import Array, RegularizedLayerOptions, TensorLike


class Normalization(DataLayer):
    """Layer that computes `(inputs - mean) / sqrt(variance)`, learned or given.

    Args:
        axis: the axis or axes along which each entry has a separate mean and variance;
            None for one mean and variance of all values.
        mean: the mean, with `variance`, instead of a call of `adapt`: a scalar, or an
            array for the axes in `axis`.
        variance: the variance, in the same shape.
        invert: whether to invert it: `mean + inputs * sqrt(variance)`.

    Output shape: same as the inputs.

    Example:
        >>> import numpy as np
        >>> import toolkit
        >>> layer = toolkit.layers.Normalization(axis=None)
        >>> layer.adapt(np.array([1.0, 2.0, 3.0, 4.0, 5.0], "float32"))
        >>> layer(np.array([3.0, 3.0])).tolist()
        [0.0, 0.0]
    """

    adapt_mean: Variable
    adapt_variance: Variable
    _looked = False  # whether the check for `adapt` has run

    def __init__(
        self,
        axis: Axes = -1,
        mean: TensorLike | None = None,
        variance: TensorLike | None = None,
        invert: bool = False,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        axes = () if axis is None else (axis,) if is_int(axis) else axis
        self.axis: tuple[int, ...] = tuple(axes)
        self.input_mean: Any = mean
        self.input_variance: Any = variance
        self.invert = invert
        self.supports_masking = True
        self._check_statistics()

    def _check_statistics(self) -> None:
        mean, variance = self.input_mean, self.input_variance
        if (mean is None) != (variance is None):
            raise ArgumentError(
                "Normalization: both `mean` and `variance` must be set, or neither; "
                f"received mean={mean}, variance={variance}"
            )
        if mean is None:
            return
        shape = np.shape(mean)
        if shape != np.shape(variance):
            raise ArgumentError(
                "Normalization: `mean` and `variance` must have the same shape; "
                f"received {shape} and {np.shape(variance)}"
            )
        if len(shape) > len(self.axis):
            raise ArgumentError(
                "Normalization: the rank of `mean` must be less than or equal to the "
                f"number of axes, {len(self.axis)}; received shape {shape}"
            )

    def build(self, input_shape: Any) -> None:
        if input_shape is None:
            return
        ndim = len(input_shape)
        if any(not -ndim <= axis < ndim for axis in self.axis):
            raise ArgumentError(
                f"Normalization: All `axis` values must be in the range [{-ndim}, "
                f"{ndim}); received {self.axis}"
            )
        axes = tuple(sorted(axis % ndim for axis in self.axis))
        if any(input_shape[axis] is None for axis in axes):
            raise ArgumentError(
                "Normalization: All `axis` values to be kept must have a known shape; "
                f"received axis={self.axis} and shape {tuple(input_shape)}"
            )
        self._kept_axes = axes
        self._extents = tuple(input_shape[axis] for axis in axes)
        self._row = [n if i in axes else 1 for i, n in enumerate(input_shape)]
        self._reduced = tuple(i for i in range(ndim) if i not in axes)
        if self.input_mean is None:
            for name, initial in (("mean", "zeros"), ("variance", "ones")):
                weight = self.add_weight(
                    self._extents, initial, trainable=False, name=name
                )
                setattr(self, f"adapt_{name}", weight)
            self.count: Variable = self.add_weight(
                (), "zeros", dtype="int32", trainable=False, name="count"
            )

    @property
    def mean(self) -> Any:
        """Return the subtracted mean in broadcastable shape, or None before `adapt`."""
        return self._statistic("mean")

    @property
    def variance(self) -> Any:
        """Return the variance, broadcastable to inputs, or None before `adapt`."""
        return self._statistic("variance")

    def _statistic(self, name: str) -> Tensor | None:
        if not self.built or not hasattr(self, "_row"):
            return None
        value = getattr(self, f"input_{name}")
        if value is None:
            value = ops.reshape(getattr(self, f"adapt_{name}"), self._row)
            return ops.cast(value, self.compute_dtype)
        value = np.asarray(value, "float64")
        shape = [1] * len(self._row)
        for axis, extent in zip(self._kept_axes[::-1], value.shape[::-1], strict=False):
            shape[axis] = extent
        rows = np.broadcast_to(value.reshape(shape), self._row)
        return convert(rows, self.compute_dtype)

    def adapt(self, data: Any) -> None:
        """Compute mean and variance from data, all at once or batch by batch.

        Args:
            data: an array or tensor, or an iterable of batches: x or (x, y).
        """
        if self.input_mean is not None:
            raise ArgumentError(
                "Normalization: `adapt` has no effect, because mean and variance "
                "were passed"
            )
        with np.errstate(invalid="ignore"):  # invalid results are reported below
            mean, variance = self._mean_and_variance(data)
        self._warn_if_not_finite(mean, variance)
        self.adapt_mean.assign(mean)
        self.adapt_variance.assign(variance)

    def _mean_and_variance(self, data: Any) -> tuple[Array, Array]:
        """Return the mean and the variance of all batches."""
        count, mean, variance = 0, np.zeros(()), np.zeros(())
        for batch in _batches(data):
            if not batch.size:
                raise ArgumentError(
                    f"Normalization {self.name!r}: adapt() expected at least one "
                    f"sample; received an array of shape {batch.shape}"
                )
            if not self.built:
                self.build(batch.shape)
            self._check_shape(batch.shape)
            own_mean = batch.mean(self._reduced)
            own_variance = batch.var(self._reduced)
            added = prod(batch.shape[axis] for axis in self._reduced)
            count += added
            fraction = added / count if count else 0.0
            total = mean + (own_mean - mean) * fraction
            variance = (variance + (mean - total) ** 2) * (1 - fraction)
            variance = variance + (own_variance + (own_mean - total) ** 2) * fraction
            mean = total
        return mean, variance

    def _warn_if_not_finite(self, mean: Any, variance: Any) -> None:
        is_invalid = ~np.isfinite(mean + variance).ravel()
        if is_invalid.any():
            warn(
                f"Normalization {self.name!r}: the data of `adapt` contains NaN or "
                f"infinity in {is_invalid.sum()} of {is_invalid.size} features, first "
                f"in the feature {is_invalid.argmax()}; the results for these features "
                "are NaN. Replace missing values, as with fillna"
            )

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        fits = len(shape) == len(self._row)
        if not fits or tuple(shape[axis] for axis in self._kept_axes) != self._extents:
            raise ShapeError(
                "Normalization: `adapt` received data with an incompatible shape: "
                f"expected {self._extents} along the axes {self._kept_axes}; received "
                f"{tuple(shape)}"
            )

    def finalize_state(self) -> None:
        """Do nothing: calls read the statistics directly."""

    def call(self, inputs: Any) -> Tensor:
        if self.mean is None:
            raise NotBuiltError(
                "Normalization: the layer must be built before it is called"
            )
        self._warn_if_unadapted()
        inputs = ops.cast(inputs, self.compute_dtype)
        scale = ops.maximum(ops.sqrt(self.variance), settings.epsilon())
        if self.invert:
            return self.mean + inputs * scale
        return (inputs - self.mean) / scale

    # Whether to omit the warning: in a network that is trained from scratch.
    may_be_unadapted = False

    def _warn_if_unadapted(self) -> None:
        """Warn at the first call if mean and variance have their initial values."""
        if self._looked or self.may_be_unadapted or self.input_mean is not None:
            return
        self.__dict__["_looked"] = True
        statistics = (self.adapt_mean, self.adapt_variance)
        mean, variance = (to_host(v._tensor._array) for v in statistics)
        if not mean.any() and (variance == 1).all():
            warn(
                f"Normalization {self.name!r}: it has not been adapted and returns "
                "its inputs unchanged; call `adapt`, or pass `mean` and `variance`"
            )

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        arguments = {"mean": self.input_mean, "variance": self.input_variance}
        arguments = {
            k: v if v is None else np.asarray(v).tolist() for k, v in arguments.items()
        }
        return {**super().get_config(), "axis": self.axis, **arguments}


def _batches(data: Any) -> Any:
    """Return batches as float64 arrays; an array or tensor is one batch."""
    if isinstance(data, (np.ndarray, Tensor)) or hasattr(data, "__array__"):
        yield _array(data)
        return
    if not hasattr(data, "__iter__") and not hasattr(data, "__getitem__"):
        raise ArgumentTypeError(
            "Normalization: unsupported data type for adapt(): expected an array, a "
            f"tensor or an iterable of batches; received {type(data).__name__}"
        )
    empty = True
    for batch in batches_of(data):
        empty = False
        yield _array(batch)
    if empty:
        raise ArgumentError(
            "Normalization: adapt() received an empty iterable; expected at least one "
            "batch"
        )


def _array(batch: Array) -> Array:
    if getattr(batch, "shape", None) is None:
        raise ArgumentTypeError(
            "Normalization: adapt() expects an iterable that yields arrays or tensors, "
            "with a `.shape`; "
            f"received an element of type {type(batch).__name__}"
        )
    return convert(batch).numpy().astype("float64")
