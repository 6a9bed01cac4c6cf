"""Sums and means of values over many batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolkit import ops
from toolkit.core.convert import extent
from toolkit.core.masks import mask_of
from toolkit.core.tensor import Tensor
from toolkit.core.variable import Variable
from toolkit.losses.loss import (
    align_weight,
    check_returned,
    drop_incompatible_mask,
    mask_weights,
    match_ranks,
)
from toolkit.metrics.metric import Metric
from toolkit.type_aliases import TensorLike


def per_sample(
    values: Any, sample_weight: Any, reduce: Callable[..., Tensor], dtype: str
) -> tuple[Tensor, Any]:
    """Return values times weights, and the weights, each reduced to one per sample.

    Args:
        values: (batch, ...), or a single number.
        sample_weight: weights of the leading axes of the values, or None.
        reduce: the reduction of the other axes, `ops.sum` or `ops.mean`.
        dtype: the dtype of both results.
    """
    mask = mask_of(values)
    values = ops.convert_to_tensor(values, dtype)
    weight = sample_weight
    if weight is not None:
        weight = ops.convert_to_tensor(weight, dtype)
        if mask is not None:
            weight = mask_weights(weight, mask, dtype, "sum")
        if values.ndim == 0:
            values = ops.broadcast_to(values, weight.shape)
        values, weight = match_ranks(values, weight)
        if values.ndim > weight.ndim:
            values = reduce(values, axis=tuple(range(weight.ndim, values.ndim)))
        weight = align_weight("metric", weight, values)
        weight = ops.broadcast_to(weight, values.shape)
        values = values * weight
        weight = _reduce_trailing_axes(weight, reduce)
    return _reduce_trailing_axes(values, reduce), weight


def _reduce_trailing_axes(x: Tensor, reduce: Callable[..., Tensor]) -> Tensor:
    return reduce(x, axis=tuple(range(1, x.ndim))) if x.ndim > 1 else x


class Sum(Metric):
    """Sum of all values, optionally weighted.

    Args:
        name: as for `Metric`.
        dtype: as for `Metric`.

    Example:
        >>> from toolkit import metrics
        >>> metric = metrics.Sum()
        >>> metric.update_state([1.0, 2.0])
        >>> float(metric([3.0]))
        6.0
    """

    def __init__(self, name: str | None = "sum", dtype: Any = None) -> None:
        super().__init__(name=name, dtype=dtype)
        self.total: Variable = self.add_variable((), "zeros", self.dtype, name="total")

    def update_state(self, values: Any, sample_weight: Any = None) -> None:
        """Add values, (batch, ...), with weights that broadcast to them.

        Args:
            values: numbers, (batch, ...).
            sample_weight: weights that broadcast to the values, or None.
        """
        values, _ = per_sample(values, sample_weight, ops.sum, self.dtype)
        self.total.assign_add(ops.sum(values))

    def result(self) -> Tensor:
        return self.total.read()


class Mean(Metric):
    """Mean of all values, optionally weighted.

    sum(values * weights) / sum(weights)

    Args:
        name: as for `Metric`.
        dtype: as for `Metric`.

    Example:
        >>> from toolkit import metrics
        >>> metric = metrics.Mean()
        >>> metric.update_state([1.0, 2.0])
        >>> float(metric([6.0], sample_weight=[2.0]))
        3.75
    """

    def __init__(self, name: str | None = "mean", dtype: Any = None) -> None:
        super().__init__(name=name, dtype=dtype)
        self.total: Variable = self.add_variable((), "zeros", self.dtype, name="total")
        self.count: Variable = self.add_variable((), "zeros", self.dtype, name="count")

    def update_state(self, values: Any, sample_weight: Any = None) -> None:
        """Add values, (batch, ...), with weights that broadcast to them.

        Args:
            values: numbers, (batch, ...).
            sample_weight: weights that broadcast to the values, or None.
        """
        values, weight = per_sample(values, sample_weight, ops.mean, self.dtype)
        count = extent(values.shape[0], self.count.dtype) if values.ndim else 1
        self.total.assign_add(ops.sum(values))
        self.count.assign_add(count if weight is None else ops.sum(weight))

    def result(self) -> Tensor:
        return ops.divide_no_nan(self.total.read(), self.count.read())


class MeanMetricWrapper(Mean):
    """Mean of a function of targets and predictions.

    Args:
        fn: a function `(y_true, y_pred, **kwargs)` that returns one value per sample.
        name: as for `Metric`.
        dtype: as for `Metric`.
        **kwargs: keyword arguments of `fn`.

    Example:
        >>> from toolkit import losses, metrics
        >>> metric = metrics.MeanMetricWrapper(losses.mean_absolute_error, name="mae")
        >>> float(metric([[1.0], [2.0]], [[1.0], [4.0]]))
        1.0
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        name: str | None = None,
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        self._fn = fn
        self._fn_kwargs = kwargs
        # For a loss, a lower value is better.
        if "toolkit.losses" in (getattr(fn, "__module__", None) or ""):
            self._direction = "down"

    def update_state(  # type: ignore[override]
        self,
        y_true: TensorLike,
        y_pred: TensorLike,
        sample_weight: TensorLike | None = None,
    ) -> None:
        """Accumulate the values of a batch; a mask of y_pred is also a weight.

        Args:
            y_true: targets, (batch, ...).
            y_pred: predictions, (batch, ...).
            sample_weight: weights that broadcast to the values, or None.
        """
        mask = mask_of(y_pred)
        values = self._fn(y_true, y_pred, **self._fn_kwargs)
        check_returned("metric", self.name, values)
        mask = drop_incompatible_mask(self.name, mask, values)
        if mask is not None:
            if sample_weight is not None:
                sample_weight = ops.convert_to_tensor(sample_weight, self.dtype)
            sample_weight = mask_weights(sample_weight, mask, self.dtype, "sum")
        super().update_state(values, sample_weight)
