"""Intersections over unions of predicted and labeled regions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolkit import dtypes, ops, settings
from toolkit.arguments import Positive
from toolkit.console.frames import warn
from toolkit.core.tensor import Tensor
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError
from toolkit.losses.loss import align_weight
from toolkit.metrics.metric import Metric
from toolkit.type_aliases import TensorLike


class IoU(Metric):
    """Intersection over union tp / (tp + fp + fn), the mean over some classes.

    Args:
        num_classes: the number of classes; other labels are ignored.
        target_class_ids: the classes to average.
        name: as for `Metric`.
        dtype: as for `Metric`; int32 if None, and weights are cast to it.
        ignore_class: a label whose samples are ignored, such as -1 or 255.
        sparse_y_true: whether labels are integers, not one-hot.
        sparse_y_pred: whether predictions are integers, not one value per class.
        axis: the axis of classes, if there is one.

    Example:
        >>> from toolkit import metrics
        >>> metric = metrics.IoU(num_classes=2, target_class_ids=[0])
        >>> round(float(metric([0, 0, 1, 1], [0, 1, 0, 1])), 4)
        0.3333
    """

    _direction = "up"

    def __init__(
        self,
        num_classes: Positive,
        target_class_ids: Sequence[int],
        name: str | None = None,
        dtype: Any = None,
        ignore_class: float | None = None,
        sparse_y_true: bool = True,
        sparse_y_pred: bool = True,
        axis: int | None = -1,
    ) -> None:
        super().__init__(name=name, dtype=dtype or "int32")
        # Create it first: the budget of a load then rejects a matrix of too many
        # classes.
        self.total_cm: Variable = self.add_variable(
            (num_classes, num_classes),
            "zeros",
            dtype=self.dtype,
            name="total_confusion_matrix",
        )
        if not all(0 <= i < num_classes for i in target_class_ids):
            raise ArgumentError(
                f"{type(self).__name__}: expected target_class_ids in "
                f"[0, {num_classes}); received {target_class_ids!r}"
            )
        self.num_classes = num_classes
        self.target_class_ids: list[int] = list(target_class_ids)
        self.ignore_class = ignore_class
        self.sparse_y_true = sparse_y_true
        self.sparse_y_pred = sparse_y_pred
        self.axis = axis

    def update_state(
        self,
        y_true: TensorLike,
        y_pred: TensorLike,
        sample_weight: TensorLike | None = None,
    ) -> None:
        """Count a batch; weights have the first axes of the labels, or all axes.

        Args:
            y_true: labels: integers, or one value per class.
            y_pred: predictions: integers, or one value per class.
            sample_weight: weights of the labels, or None.
        """
        labels = self._classes(y_true, self.sparse_y_true)
        true = ops.reshape(labels, (-1,))
        pred = ops.reshape(self._classes(y_pred, self.sparse_y_pred), (-1,))
        n = self.num_classes
        valid = (true >= 0) & (true < n) & (pred >= 0) & (pred < n)
        if self.ignore_class is not None:
            valid = valid & ops.not_equal(true, self.ignore_class)
        weight = ops.cast(valid, self.dtype)
        if sample_weight is not None:
            weights = ops.convert_to_tensor(sample_weight)
            if dtypes.is_float(weights.dtype) and not dtypes.is_float(self.dtype):
                warn(
                    f"{type(self).__name__}: the sample weight is float, but the "
                    f"metric counts integers: casting {weights.dtype} to {self.dtype}"
                )
            weights = ops.cast(weights, self.dtype)
            if weights.size == labels.size:
                weights = ops.reshape(weights, labels.shape)
            weights = align_weight(self.name, weights, labels)
            weights = ops.broadcast_to(weights, labels.shape)
            weight = weight * ops.reshape(weights, (-1,))
        cells = ops.where(valid, true * n + pred, 0)
        counts = ops.segment_sum(weight, cells, n * n)
        self.total_cm.assign_add(ops.reshape(counts, (n, n)))

    def _classes(self, y: Any, sparse: bool) -> Tensor:
        y = ops.convert_to_tensor(y) if sparse else ops.argmax(y, axis=self.axis)
        return ops.cast(y, "int32")

    def result(self) -> Tensor:
        total = ops.cast(self.total_cm.read(), "float32")
        intersection = ops.diagonal(total)
        union = ops.sum(total, axis=0) + ops.sum(total, axis=1) - intersection
        class_ids = ops.convert_to_tensor(self.target_class_ids, "int32")
        intersection, union = (
            ops.take(intersection, class_ids),
            ops.take(union, class_ids),
        )
        exists = ops.greater(union, 1e-9)
        ratios = ops.where(exists, intersection / (union + settings.epsilon()), 0.0)
        count = ops.sum(ops.cast(exists, "float32"))
        return ops.sum(ratios) / (count + settings.epsilon())


class BinaryIoU(IoU):
    """IoU of two classes that a threshold separates.

    Args:
        target_class_ids: the classes to average: 0, 1 or both.
        threshold: a prediction of at least this value means class 1.
        name: as for `Metric`.
        dtype: as for `Metric`.

    Example:
        >>> from toolkit import metrics
        >>> metric = metrics.BinaryIoU(target_class_ids=[1], threshold=0.5)
        >>> round(float(metric([0, 1, 1, 0], [0.1, 0.9, 0.4, 0.7])), 4)
        0.3333
    """

    def __init__(
        self,
        target_class_ids: Sequence[int] = (0, 1),
        threshold: float = 0.5,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(2, target_class_ids, name=name, dtype=dtype)
        self.threshold = threshold

    def update_state(
        self,
        y_true: TensorLike,
        y_pred: TensorLike,
        sample_weight: TensorLike | None = None,
    ) -> None:
        y_pred = ops.convert_to_tensor(y_pred) >= self.threshold
        super().update_state(y_true, y_pred, sample_weight)


class MeanIoU(IoU):
    """Mean IoU of all classes.

    Args:
        num_classes: the number of classes.
        name: as for `Metric`.
        dtype: as for `Metric`.
        ignore_class: a label whose samples are ignored.
        sparse_y_true: whether labels are integers, not one-hot.
        sparse_y_pred: whether predictions are integers, not one value per class.
        axis: the axis of classes, if there is one.

    Example:
        >>> from toolkit import metrics
        >>> metric = metrics.MeanIoU(num_classes=2)
        >>> round(float(metric([0, 0, 1, 1], [0, 1, 0, 1])), 4)
        0.3333
    """

    def __init__(
        self,
        num_classes: Positive,
        name: str | None = None,
        dtype: Any = None,
        ignore_class: float | None = None,
        sparse_y_true: bool = True,
        sparse_y_pred: bool = True,
        axis: int | None = -1,
    ) -> None:
        super().__init__(
            num_classes,
            range(num_classes),
            name=name,
            dtype=dtype,
            ignore_class=ignore_class,
            sparse_y_true=sparse_y_true,
            sparse_y_pred=sparse_y_pred,
            axis=axis,
        )


class OneHotIoU(IoU):
    """Mean IoU of some classes, for one-hot labels.

    Args:
        num_classes: the number of classes.
        target_class_ids: the classes to average.
        name: as for `Metric`.
        dtype: as for `Metric`.
        ignore_class: a label whose samples are ignored.
        sparse_y_pred: whether predictions are integers, not one value per class.
        axis: the axis of classes.

    Example:
        >>> from toolkit import metrics
        >>> metric = metrics.OneHotIoU(num_classes=2, target_class_ids=[1])
        >>> round(float(metric([[1, 0], [0, 1]], [[0.2, 0.8], [0.1, 0.9]])), 4)
        0.5
    """

    def __init__(
        self,
        num_classes: Positive,
        target_class_ids: Sequence[int],
        name: str | None = None,
        dtype: Any = None,
        ignore_class: float | None = None,
        sparse_y_pred: bool = False,
        axis: int | None = -1,
    ) -> None:
        super().__init__(
            num_classes,
            target_class_ids,
            name=name,
            dtype=dtype,
            ignore_class=ignore_class,
            sparse_y_true=False,
            sparse_y_pred=sparse_y_pred,
            axis=axis,
        )


class OneHotMeanIoU(MeanIoU):
    """Mean IoU of all classes, for one-hot labels.

    Args:
        num_classes: the number of classes.
        name: as for `Metric`.
        dtype: as for `Metric`.
        ignore_class: a label whose samples are ignored.
        sparse_y_pred: whether predictions are integers, not one value per class.
        axis: the axis of classes.

    Example:
        >>> from toolkit import metrics
        >>> metric = metrics.OneHotMeanIoU(num_classes=2)
        >>> round(float(metric([[1, 0], [0, 1]], [[0.2, 0.8], [0.1, 0.9]])), 4)
        0.25
    """

    def __init__(
        self,
        num_classes: Positive,
        name: str | None = None,
        dtype: Any = None,
        ignore_class: float | None = None,
        sparse_y_pred: bool = False,
        axis: int | None = -1,
    ) -> None:
        super().__init__(
            num_classes,
            name=name,
            dtype=dtype,
            ignore_class=ignore_class,
            sparse_y_true=False,
            sparse_y_pred=sparse_y_pred,
            axis=axis,
        )
