"""Losses between probability distributions, as classes."""

from __future__ import annotations

from collections.abc import Sequence

from toolkit.arguments import Axes, Fraction, NonNegative
from toolkit.errors import ArgumentError
from toolkit.losses.loss import LossFunctionWrapper
from toolkit.losses.probabilistic import (
    binary_crossentropy,
    binary_focal_crossentropy,
    categorical_crossentropy,
    categorical_focal_crossentropy,
    categorical_generalized_cross_entropy,
    kl_divergence,
    poisson,
    sparse_categorical_crossentropy,
)
from toolkit.type_aliases import DTypeLike


class BinaryCrossentropy(LossFunctionWrapper):
    """Binary cross-entropy, the mean of -y * log(p) - (1 - y) * log(1 - p).

    Args:
        from_logits: whether predictions are logits, any real numbers.
        label_smoothing: in [0, 1]; moves targets by this fraction towards 1/2.
        axis: the axis of the mean.
        reduction: as for `Loss`.
        name: as for `Loss`.
        dtype: as for `Loss`.

    Example:
        >>> from toolkit import losses
        >>> loss = losses.BinaryCrossentropy(from_logits=True)
        >>> round(float(loss([[1.0], [0.0]], [[0.0], [0.0]])), 4)
        0.6931
    """

    def __init__(
        self,
        from_logits: bool = False,
        label_smoothing: Fraction = 0.0,
        axis: Axes = -1,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "binary_crossentropy",
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(
            binary_crossentropy,
            reduction,
            name,
            dtype,
            from_logits=from_logits,
            label_smoothing=label_smoothing,
            axis=axis,
        )
        self.from_logits = from_logits
        self.label_smoothing = label_smoothing
        self.axis = axis


class BinaryFocalCrossentropy(LossFunctionWrapper):
    """Binary cross-entropy with smaller weights for easy samples.

    Args:
        apply_class_balancing: whether to weight label 1 by alpha and label 0 by 1 -
            alpha.
        alpha: in [0, 1], the weight of label 1.
        gamma: >= 0; a larger gamma gives easy samples a smaller weight.
        from_logits: whether predictions are logits, any real numbers.
        label_smoothing: in [0, 1]; moves targets by this fraction towards 1/2.
        axis: the axis of the mean.
        reduction: as for `Loss`.
        name: as for `Loss`.
        dtype: as for `Loss`.

    Example:
        >>> from toolkit import losses
        >>> loss = losses.BinaryFocalCrossentropy(gamma=2.0)
        >>> round(float(loss([[0.0, 1.0]], [[0.1, 0.9]])), 5)
        0.00105

    Reference:
        [Lin et al., 2017](https://arxiv.org/abs/1708.02002)
    """

    def __init__(
        self,
        apply_class_balancing: bool = False,
        alpha: float = 0.25,
        gamma: NonNegative = 2.0,
        from_logits: bool = False,
        label_smoothing: Fraction = 0.0,
        axis: Axes = -1,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "binary_focal_crossentropy",
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(
            binary_focal_crossentropy,
            reduction,
            name,
            dtype,
            apply_class_balancing=apply_class_balancing,
            alpha=alpha,
            gamma=gamma,
            from_logits=from_logits,
            label_smoothing=label_smoothing,
            axis=axis,
        )
        self.apply_class_balancing = apply_class_balancing
        self.alpha = alpha
        self.gamma = gamma
        self.from_logits = from_logits
        self.label_smoothing = label_smoothing
        self.axis = axis


class CategoricalCrossentropy(LossFunctionWrapper):
    """Categorical cross-entropy: -sum(y_true * log(y_pred)) for one-hot targets.

    Args:
        from_logits: whether predictions are logits, any real numbers.
        label_smoothing: in [0, 1]; moves targets by this fraction towards 1 / classes.
        axis: the axis of classes.
        reduction: as for `Loss`.
        name: as for `Loss`.
        dtype: as for `Loss`.

    Example:
        >>> from toolkit import losses
        >>> loss = losses.CategoricalCrossentropy()
        >>> round(float(loss([[0.0, 1.0], [1.0, 0.0]], [[0.5, 0.5], [0.5, 0.5]])), 4)
        0.6931
    """

    def __init__(
        self,
        from_logits: bool = False,
        label_smoothing: Fraction = 0.0,
        axis: Axes = -1,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "categorical_crossentropy",
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(
            categorical_crossentropy,
            reduction,
            name,
            dtype,
            from_logits=from_logits,
            label_smoothing=label_smoothing,
            axis=axis,
        )
        self.from_logits = from_logits
        self.label_smoothing = label_smoothing
        self.axis = axis


class CategoricalFocalCrossentropy(LossFunctionWrapper):
    """Categorical cross-entropy with smaller weights for easy samples.

    Args:
        alpha: one weight for all classes, or a list of weights, one for each class.
        gamma: >= 0; a larger gamma gives easy samples a smaller weight.
        from_logits: whether predictions are logits, any real numbers.
        label_smoothing: in [0, 1]; moves targets by this fraction towards 1 / classes.
        axis: the axis of classes.
        reduction: as for `Loss`.
        name: as for `Loss`.
        dtype: as for `Loss`.

    Example:
        >>> from toolkit import losses
        >>> loss = losses.CategoricalFocalCrossentropy(alpha=0.5)
        >>> round(float(loss([[0.0, 1.0]], [[0.1, 0.9]])), 5)
        0.00053

    Reference:
        [Lin et al., 2017](https://arxiv.org/abs/1708.02002)
    """

    def __init__(
        self,
        alpha: float | Sequence[float] = 0.25,
        gamma: NonNegative = 2.0,
        from_logits: bool = False,
        label_smoothing: Fraction = 0.0,
        axis: Axes = -1,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "categorical_focal_crossentropy",
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(
            categorical_focal_crossentropy,
            reduction,
            name,
            dtype,
            alpha=alpha,
            gamma=gamma,
            from_logits=from_logits,
            label_smoothing=label_smoothing,
            axis=axis,
        )
        self.alpha = alpha
        self.gamma = gamma
        self.from_logits = from_logits
        self.label_smoothing = label_smoothing
        self.axis = axis


class SparseCategoricalCrossentropy(LossFunctionWrapper):
    """Sparse categorical cross-entropy: -log(y_pred[y_true]) for integer labels.

    Args:
        from_logits: whether predictions are logits, any real numbers.
        ignore_class: a label whose samples are ignored, such as -1 or 255.
        reduction: as for `Loss`.
        axis: the axis of classes.
        name: as for `Loss`.
        dtype: as for `Loss`.

    Example:
        >>> from toolkit import losses
        >>> loss = losses.SparseCategoricalCrossentropy()
        >>> round(float(loss([1, 0], [[0.5, 0.5], [0.5, 0.5]])), 4)
        0.6931
    """

    def __init__(
        self,
        from_logits: bool = False,
        ignore_class: float | None = None,
        reduction: str | None = "sum_over_batch_size",
        axis: Axes = -1,
        name: str | None = "sparse_categorical_crossentropy",
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(
            sparse_categorical_crossentropy,
            reduction,
            name,
            dtype,
            from_logits=from_logits,
            ignore_class=ignore_class,
            axis=axis,
        )
        self.from_logits = from_logits
        self.ignore_class = ignore_class
        self.axis = axis


class CategoricalGeneralizedCrossEntropy(LossFunctionWrapper):
    """Generalized cross-entropy: (1 - y_pred[y_true] ** q) / q, robust to wrong labels.

    Args:
        q: in (0, 1); near 0 it is the cross-entropy, near 1 the absolute error.
        reduction: as for `Loss`.
        name: as for `Loss`.
        dtype: as for `Loss`.

    Example:
        >>> from toolkit import losses
        >>> loss = losses.CategoricalGeneralizedCrossEntropy(q=0.5)
        >>> round(float(loss([1], [[0.75, 0.25]])), 4)
        1.0

    Reference:
        [Zhang, Sabuncu, 2018](https://arxiv.org/abs/1805.07836)
    """

    def __init__(
        self,
        q: float = 0.5,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "categorical_generalized_cross_entropy",
        dtype: DTypeLike | None = None,
    ) -> None:
        if not 0 < q < 1:
            raise ArgumentError(
                "CategoricalGeneralizedCrossEntropy: q must be in (0, 1); "
                f"received {q!r}"
            )
        super().__init__(
            categorical_generalized_cross_entropy, reduction, name, dtype, q=q
        )
        self.q = q


class KLDivergence(LossFunctionWrapper):
    """Kullback-Leibler divergence: sum(y_true * log(y_true / y_pred)).

    Args:
        reduction: as for `Loss`.
        name: as for `Loss`.
        dtype: as for `Loss`.

    Example:
        >>> from toolkit import losses
        >>> loss = losses.KLDivergence()
        >>> round(float(loss([[0.5, 0.5]], [[0.75, 0.25]])), 4)
        0.1438
    """

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "kl_divergence",
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(kl_divergence, reduction, name, dtype)


class Poisson(LossFunctionWrapper):
    """Poisson loss: mean(y_pred - y_true * log(y_pred)).

    Args:
        reduction: as for `Loss`.
        name: as for `Loss`.
        dtype: as for `Loss`.

    Example:
        >>> from toolkit import losses
        >>> loss = losses.Poisson()
        >>> round(float(loss([[1.0, 2.0]], [[1.0, 4.0]])), 4)
        1.1137
    """

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "poisson",
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(poisson, reduction, name, dtype)
