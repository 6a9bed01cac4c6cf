"""Loss: the base class, and the rules of sample weights, masks and reductions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from toolkit import dtype_policies, ops, settings, tree
from toolkit.console.frames import warn
from toolkit.core.convert import extent
from toolkit.core.masks import mask_of
from toolkit.core.naming import auto_name
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, ShapeError, unknown_choice
from toolkit.ops.checks import broadcast_shapes
from toolkit.ops.symbolic import FunctionOperation, any_symbolic
from toolkit.serialization.recording import Recorded
from toolkit.type_aliases import DTypeLike, TensorLike

REDUCTIONS = ("sum_over_batch_size", "sum", "mean", "mean_with_sample_weight", "none")


class Loss(Recorded):
    """Base class of losses, which reduce targets and predictions to a number.

    Subclasses define `call(y_true, y_pred)`, which returns one loss per sample (or per
    step of a sample). `__call__` applies weights and reduces the result.

    Args:
        name: the name; None derives it from the class name.
        reduction: the reduction of losses. "sum"; "sum_over_batch_size" or "mean": the
            sum divided by the number of losses; "mean_with_sample_weight": the sum
            divided by the sum of the weights; "none" or None: no reduction.
        dtype: the dtype of the computation, a name or a policy; None is floatx.

    Example:
        >>> from toolkit import losses, ops
        >>> class Cubic(losses.Loss):
        ...     def call(self, y_true, y_pred):
        ...         return ops.mean(ops.abs(y_true - y_pred) ** 3, axis=-1)
        >>> float(Cubic()([[0.0, 0.0]], [[1.0, 2.0]]))
        4.5
    """

    def __init__(
        self,
        name: str | None = None,
        reduction: str | None = "sum_over_batch_size",
        dtype: DTypeLike | None = None,
    ) -> None:
        self.name: str = name or auto_name(type(self).__name__)
        self.reduction: str | None = standardize_reduction(reduction)
        policy = dtype_policies.get(dtype or settings.floatx())
        self._dtype = policy.compute_dtype

    @property
    def dtype(self) -> str:
        """Return the dtype of the computation."""
        return self._dtype

    def call(self, y_true: TensorLike, y_pred: TensorLike) -> Tensor:
        """Return the losses, without weights and reduction.

        Args:
            y_true: targets.
            y_pred: predictions.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define `call`")

    def __call__(
        self,
        y_true: TensorLike,
        y_pred: TensorLike,
        sample_weight: TensorLike | None = None,
    ) -> Tensor:
        """Return the losses, weighted and reduced.

        Args:
            y_true: targets, in the shape that the loss expects for y_pred.
            y_pred: predictions, (batch, ..., features). If they have a mask, only
                unmasked positions count.
            sample_weight: weights of the losses, (batch, ...). They align with the
                first axes of the losses: (batch,) is one weight per sample. Extents are
                equal or 1.

        Raises:
            ShapeError: the weights do not fit the losses.
        """
        if any_symbolic(y_true, y_pred, sample_weight):
            operation = FunctionOperation(self.__call__, self.name)
            return operation.symbolic_call(y_true, y_pred, sample_weight)
        in_mask = mask_of(y_pred)
        y_pred = to_tensors(y_pred, self._dtype)
        y_true = to_tensors(y_true, self._dtype)
        losses = self.call(y_true, y_pred)
        check_returned("loss", self.name, losses)
        out_mask = mask_of(losses)
        mask = out_mask if in_mask is None else in_mask
        if in_mask is not None and out_mask is not None:
            mask = ops.logical_and(in_mask, out_mask)
        mask = drop_incompatible_mask(self.name, mask, losses)
        return reduce_weighted(
            losses, sample_weight, mask, self.reduction, self._dtype, self.name
        )

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments as plain values."""
        if type(self).get_config is Loss.get_config:
            config = self._recorded_config(strict=True)
            return {k: v for k, v in config.items() if k != "dtype" or v is not None}
        base = {"name": self.name, "reduction": self.reduction}
        return {**base, **self._recorded_config(strict=False)}


class LossFunctionWrapper(Loss):
    """Loss defined by a function of targets and predictions.

    Args:
        fn: a function `(y_true, y_pred, **kwargs)` that returns one loss per sample.
        reduction: as for `Loss`.
        name: as for `Loss`.
        dtype: as for `Loss`.
        **kwargs: keyword arguments of `fn`.

    Example:
        >>> from toolkit import losses, ops
        >>> def absolute(y_true, y_pred, scale):
        ...     return scale * ops.mean(ops.abs(y_true - y_pred), axis=-1)
        ...
        >>> loss = losses.LossFunctionWrapper(absolute, scale=2.0)
        >>> float(loss([[1.0], [2.0]], [[2.0], [4.0]]))
        3.0
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        reduction: str | None = "sum_over_batch_size",
        name: str | None = None,
        dtype: DTypeLike | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.fn = fn
        self._fn_kwargs = kwargs

    def call(self, y_true: TensorLike, y_pred: TensorLike) -> Tensor:
        if not tree.is_nested(y_pred):
            y_true, y_pred = match_ranks(y_true, y_pred)
        return self.fn(y_true, y_pred, **self._fn_kwargs)

    def __repr__(self) -> str:
        name = getattr(self.fn, "__name__", self.fn)
        return f"<{type(self).__name__} {name}, {self._fn_kwargs}>"


def check_returned(kind: str, name: str, values: object) -> None:
    """Raise if the function of a loss or metric has no return statement.

    Args:
        kind: "loss" or "metric".
        name: the name of the loss or metric.
        values: the result of the function.
    """
    if values is None:
        raise ArgumentError(
            f"{kind} {name!r}: expected one value per sample; received None; does the "
            "function have a `return`?"
        )


def to_tensors(structure: Any, dtype: str) -> Tensor:
    """Convert a structure to tensors; a nested list of numbers becomes one tensor."""
    if not any(hasattr(leaf, "shape") for leaf in tree.flatten(structure)):
        return ops.convert_to_tensor(structure, dtype)
    return tree.map_structure(lambda x: ops.convert_to_tensor(x, dtype), structure)


def standardize_reduction(reduction: Any) -> str | None:
    """Check `reduction` and return it."""
    if reduction is not None and reduction not in REDUCTIONS:
        raise unknown_choice(
            "Invalid value for argument reduction", reduction, (*REDUCTIONS, None)
        )
    return reduction


def match_ranks(x1: Any, x2: Any) -> tuple[Any, Any]:
    """Match the ranks of two tensors that differ by a last axis of extent 1.

    (n, 1) and (n,) expands the latter; otherwise the longer shape is squeezed.
    """
    if x1.ndim == x2.ndim + 1 and x1.shape[-1] == 1:
        if x2.ndim == 1:
            return x1, ops.expand_dims(x2, -1)
        return ops.squeeze(x1, -1), x2
    if x2.ndim == x1.ndim + 1 and x2.shape[-1] == 1:
        x2, x1 = match_ranks(x2, x1)
    return x1, x2


def reduce_weighted(
    values: Any,
    sample_weight: TensorLike | None = None,
    mask: Any = None,
    reduction: str | None = "sum_over_batch_size",
    dtype: DTypeLike | None = None,
    label: str = "loss",
) -> Tensor:
    """Apply weights and the mask to `values` and reduce them."""
    values = ops.convert_to_tensor(values, dtype)
    weight = sample_weight
    if weight is not None:
        weight = ops.convert_to_tensor(weight, values.dtype)
    if mask is not None:
        weight = mask_weights(weight, mask, values.dtype, reduction)
    if weight is not None:
        values, weight = match_ranks(values, weight)
        weight = align_weight(label, weight, values)
        values = values * weight
    return _reduce(values, weight, reduction)


def drop_incompatible_mask(label: str, mask: Any, values: Any) -> Any:
    """Return the mask, or None if the values have no axis of steps.

    For outputs of shape (batch, steps) the loss reduces the axis of steps: then it
    warns. A function that returns one number has already applied masks.

    Args:
        label: the name of the loss or metric, for the warning.
        mask: the mask of the predictions, or None.
        values: the losses, without weights and reduction.
    """
    ndim = getattr(values, "ndim", 0)
    if mask is None or ndim == 0:
        return None
    if mask.ndim <= ndim:
        return mask
    if mask.ndim == ndim + 1 and mask.shape[-1] == 1:
        return mask
    warn(
        f"{label}: ignores the mask of the predictions, of shape "
        f"{tuple(mask.shape)}: the values, of shape {tuple(values.shape)}, have no "
        "time axis. Predictions of shape (batch, steps, 1) keep the mask"
    )
    return None


def mask_weights(weight: Any, mask: Any, dtype: str, reduction: str | None) -> Tensor:
    """Return the mask as weights, multiplied by the given weights."""
    mask = ops.cast(mask, dtype)
    if reduction in ("mean", "sum_over_batch_size"):
        # With this factor, the mean over all positions equals the mean over unmasked
        # positions.
        valid = ops.sum(mask)
        mask = mask * ops.divide_no_nan(ops.cast(mask.size, dtype), valid)
    if weight is None:
        return mask
    mask, weight = match_ranks(mask, weight)
    if weight.ndim > mask.ndim:
        mask = align_weight("mask", mask, weight)
    return align_weight("sample_weight", weight, mask) * mask


def align_weight(label: str, weight: Any, values: Any) -> Tensor:
    """Broadcast weights to the values; weights align with the first axes.

    A weight per sample, (batch,), applies to the whole sample.

    Raises:
        ShapeError: the weights do not broadcast to the values.
    """
    shape = weight.shape
    if 0 < weight.ndim < values.ndim:
        weight = ops.reshape(weight, (*shape, *(1,) * (values.ndim - weight.ndim)))
    if values.ndim == 0:
        return weight
    try:
        is_compatible = (
            broadcast_shapes(label, weight.shape, values.shape) == values.shape
        )
    except ShapeError:
        is_compatible = False
    if not is_compatible:
        raise ShapeError(
            f"{label}: expected sample_weight (or a mask) that broadcasts to the "
            f"losses of shape {values.shape} along its first axes; received shape "
            f"{shape}"
        )
    return weight


def _reduce(values: Tensor, weight: Any, reduction: str | None) -> Tensor:
    if reduction in (None, "none") or values.ndim == 0:
        return values
    total = ops.sum(values)
    if reduction == "sum":
        return total
    if reduction == "mean_with_sample_weight" and weight is not None:
        weight = ops.broadcast_to(weight, values.shape)
        return ops.divide_no_nan(total, ops.sum(weight))
    count = math.prod(values.shape)
    return total / extent(count, total.dtype) if count else total
