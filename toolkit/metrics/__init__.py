"""Metrics: numbers that sum up how good predictions are over many batches."""

from typing import Any

from toolkit import serialization
from toolkit.losses import (
    binary_crossentropy,
    binary_focal_crossentropy,
    categorical_crossentropy,
    categorical_focal_crossentropy,
    categorical_hinge,
    hinge,
    huber,
    kl_divergence,
    log_cosh,
    mean_absolute_error,
    mean_absolute_percentage_error,
    mean_squared_error,
    mean_squared_logarithmic_error,
    poisson,
    sparse_categorical_crossentropy,
    squared_hinge,
)
from toolkit.metrics.accuracy import (
    Accuracy,
    BinaryAccuracy,
    CategoricalAccuracy,
    SparseCategoricalAccuracy,
    SparseTopKCategoricalAccuracy,
    TopKCategoricalAccuracy,
    accuracy,
    binary_accuracy,
    categorical_accuracy,
    sparse_categorical_accuracy,
    sparse_top_k_categorical_accuracy,
    top_k_categorical_accuracy,
)
from toolkit.metrics.auc import (
    AUC,
    PrecisionAtRecall,
    RecallAtPrecision,
    SensitivityAtSpecificity,
    SpecificityAtSensitivity,
)
from toolkit.metrics.confusion import (
    FalseNegatives,
    FalsePositives,
    Precision,
    Recall,
    TrueNegatives,
    TruePositives,
)
from toolkit.metrics.correlation import (
    ConcordanceCorrelation,
    PearsonCorrelation,
    concordance_correlation,
    pearson_correlation,
)
from toolkit.metrics.f_score import F1Score, FBetaScore
from toolkit.metrics.iou import BinaryIoU, IoU, MeanIoU, OneHotIoU, OneHotMeanIoU
from toolkit.metrics.losses import (
    BinaryCrossentropy,
    CategoricalCrossentropy,
    CategoricalHinge,
    CosineSimilarity,
    Hinge,
    KLDivergence,
    LogCoshError,
    MeanAbsoluteError,
    MeanAbsolutePercentageError,
    MeanSquaredError,
    MeanSquaredLogarithmicError,
    Poisson,
    SparseCategoricalCrossentropy,
    SquaredHinge,
)
from toolkit.metrics.metric import Metric
from toolkit.metrics.reduction import Mean, MeanMetricWrapper, Sum
from toolkit.metrics.regression import R2Score, RootMeanSquaredError

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
    """The metric, an object or a function, as a dict of plain values."""
    return serialization.serialize_keras_object(metric)


def deserialize(config: Any, custom_objects: Any = None) -> Any:
    """The metric that `serialize` described."""
    return serialization.get(config, _OBJECTS, "metric", custom_objects)


def get(identifier: Any) -> Any:
    """The metric meant by a name, config, class, function or object; None stays None.

    Example:
        >>> from toolkit import metrics
        >>> metrics.get("mse").name
        'mean_squared_error'
    """
    return serialization.get(identifier, _OBJECTS, "metric")
