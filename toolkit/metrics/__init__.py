"""Metrics: numbers that measure the quality of predictions over many batches."""

from typing import Any

from toolkit import serialization
from toolkit.definitions.namespaces import lazy_namespace
from toolkit.losses import (
    binary_crossentropy as binary_crossentropy,
    binary_focal_crossentropy as binary_focal_crossentropy,
    categorical_crossentropy as categorical_crossentropy,
    categorical_focal_crossentropy as categorical_focal_crossentropy,
    categorical_hinge as categorical_hinge,
    hinge as hinge,
    huber as huber,
    kl_divergence as kl_divergence,
    log_cosh as log_cosh,
    mean_absolute_error as mean_absolute_error,
    mean_absolute_percentage_error as mean_absolute_percentage_error,
    mean_squared_error as mean_squared_error,
    mean_squared_logarithmic_error as mean_squared_logarithmic_error,
    poisson as poisson,
    sparse_categorical_crossentropy as sparse_categorical_crossentropy,
    squared_hinge as squared_hinge,
)
from toolkit.metrics.accuracy import (
    Accuracy as Accuracy,
    BinaryAccuracy as BinaryAccuracy,
    CategoricalAccuracy as CategoricalAccuracy,
    SparseCategoricalAccuracy as SparseCategoricalAccuracy,
    SparseTopKCategoricalAccuracy as SparseTopKCategoricalAccuracy,
    TopKCategoricalAccuracy as TopKCategoricalAccuracy,
    accuracy as accuracy,
    binary_accuracy as binary_accuracy,
    categorical_accuracy as categorical_accuracy,
    sparse_categorical_accuracy as sparse_categorical_accuracy,
    sparse_top_k_categorical_accuracy as sparse_top_k_categorical_accuracy,
    top_k_categorical_accuracy as top_k_categorical_accuracy,
)
from toolkit.metrics.auc import (
    AUC as AUC,
    PrecisionAtRecall as PrecisionAtRecall,
    RecallAtPrecision as RecallAtPrecision,
    SensitivityAtSpecificity as SensitivityAtSpecificity,
    SpecificityAtSensitivity as SpecificityAtSensitivity,
)
from toolkit.metrics.confusion import (
    FalseNegatives as FalseNegatives,
    FalsePositives as FalsePositives,
    Precision as Precision,
    Recall as Recall,
    TrueNegatives as TrueNegatives,
    TruePositives as TruePositives,
)
from toolkit.metrics.correlation import (
    ConcordanceCorrelation as ConcordanceCorrelation,
    PearsonCorrelation as PearsonCorrelation,
    concordance_correlation as concordance_correlation,
    pearson_correlation as pearson_correlation,
)
from toolkit.metrics.f_score import F1Score as F1Score, FBetaScore as FBetaScore
from toolkit.metrics.iou import (
    BinaryIoU as BinaryIoU,
    IoU as IoU,
    MeanIoU as MeanIoU,
    OneHotIoU as OneHotIoU,
    OneHotMeanIoU as OneHotMeanIoU,
)
from toolkit.metrics.losses import (
    BinaryCrossentropy as BinaryCrossentropy,
    CategoricalCrossentropy as CategoricalCrossentropy,
    CategoricalHinge as CategoricalHinge,
    CosineSimilarity as CosineSimilarity,
    Hinge as Hinge,
    KLDivergence as KLDivergence,
    LogCoshError as LogCoshError,
    MeanAbsoluteError as MeanAbsoluteError,
    MeanAbsolutePercentageError as MeanAbsolutePercentageError,
    MeanSquaredError as MeanSquaredError,
    MeanSquaredLogarithmicError as MeanSquaredLogarithmicError,
    Poisson as Poisson,
    SparseCategoricalCrossentropy as SparseCategoricalCrossentropy,
    SquaredHinge as SquaredHinge,
)
from toolkit.metrics.metric import Metric as Metric
from toolkit.metrics.reduction import (
    Mean as Mean,
    MeanMetricWrapper as MeanMetricWrapper,
    Sum as Sum,
)
from toolkit.metrics.regression import (
    R2Score as R2Score,
    RootMeanSquaredError as RootMeanSquaredError,
)

_CLASSES = (
    *(Accuracy, BinaryAccuracy, CategoricalAccuracy, SparseCategoricalAccuracy),
    *(SparseTopKCategoricalAccuracy, TopKCategoricalAccuracy, AUC, PrecisionAtRecall),
    *(RecallAtPrecision, SensitivityAtSpecificity, SpecificityAtSensitivity),
    *(FalseNegatives, FalsePositives, Precision, Recall, TrueNegatives, TruePositives),
    *(ConcordanceCorrelation, PearsonCorrelation, F1Score, FBetaScore, BinaryIoU, IoU),
    *(MeanIoU, OneHotIoU, OneHotMeanIoU, BinaryCrossentropy, CategoricalCrossentropy),
    *(CategoricalHinge, CosineSimilarity, Hinge, KLDivergence, LogCoshError),
    *(MeanAbsoluteError, MeanAbsolutePercentageError, MeanSquaredError),
    *(MeanSquaredLogarithmicError, Poisson, SparseCategoricalCrossentropy),
    *(SquaredHinge, Mean, Sum, R2Score, RootMeanSquaredError),
)
_OBJECTS = {
    **serialization.names_of(*_CLASSES),
    **dict.fromkeys(("bce", "BCE"), BinaryCrossentropy),
    **dict.fromkeys(("mae", "MAE"), MeanAbsoluteError),
    **dict.fromkeys(("mse", "MSE"), MeanSquaredError),
    **dict.fromkeys(("mape", "MAPE"), MeanAbsolutePercentageError),
    **dict.fromkeys(("msle", "MSLE"), MeanSquaredLogarithmicError),
}


def serialize(metric: Any) -> Any:
    """Return a metric, an object or a function, as a dict of plain values.

    Args:
        metric: a metric object or function.

    Returns:
        A dict of the class and its config, or the name of a function.

    Example:
        >>> from toolkit import metrics
        >>> config = metrics.serialize(metrics.AUC(num_thresholds=50))
        >>> config["config"]["num_thresholds"]
        50
    """
    return serialization.serialize_keras_object(metric)


def deserialize(config: Any, custom_objects: Any = None) -> Any:
    """Build a metric from the result of `serialize`.

    Args:
        config: the result of `serialize`, or a name.
        custom_objects: a dict from names to classes or functions that the config
            contains.

    Returns:
        The metric object or function.

    Example:
        >>> from toolkit import metrics
        >>> config = metrics.serialize(metrics.AUC(num_thresholds=50))
        >>> metrics.deserialize(config).num_thresholds
        50
    """
    return serialization.get(config, _OBJECTS, "metric", custom_objects)


def get(identifier: Any) -> Any:
    """Return the metric for a name, config, class, function or object; None stays None.

    Args:
        identifier: a name, config, class, function or object, or None.

    Returns:
        A metric object or function, or None.

    Example:
        >>> from toolkit import metrics
        >>> metrics.get("mse").name
        'mean_squared_error'
    """
    return serialization.get(identifier, _OBJECTS, "metric")


__getattr__, __dir__ = lazy_namespace(__name__, {})
